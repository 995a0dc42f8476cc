//! Options: texts as set, read as numbers where a number is needed. A text that is no number counts as unset.

use std::collections::BTreeMap;

use crate::Name;

/// The options that are set.
#[derive(Default, Debug)]
pub(crate) struct Config {
    pub(crate) options: BTreeMap<Name, Name>,
}

impl Config {
    /// The number under the option named by these parts joined.
    pub(crate) fn number(&self, parts: &[&[u8]]) -> Option<f64> {
        if self.options.is_empty() {
            return None;
        }
        crate::parse_number(self.options.get(parts.concat().as_slice())?.bytes())
    }

    /// How long a lock in this queue lasts.
    pub(crate) fn heartbeat(&self, queue: &Name) -> f64 {
        self.number(&[queue.bytes(), b"-heartbeat"])
            .or_else(|| self.number(&[b"heartbeat-", queue.bytes()]))
            .or_else(|| self.number(&[b"heartbeat"]))
            .unwrap_or(60.0)
    }

    pub(crate) fn grace_period(&self) -> f64 {
        self.number(&[b"grace-period"]).unwrap_or(10.0)
    }

    /// How many jobs of this queue may run at once, for the dialects that ask; none: any number.
    pub(crate) fn max_concurrency(&self, queue: &Name) -> Option<f64> {
        self.number(&[queue.bytes(), b"-max-concurrency"]).filter(|limit| *limit > 0.0)
    }

    pub(crate) fn max_pop_retry(&self, queue: &Name) -> f64 {
        self.number(&[queue.bytes(), b"-max-pop-retry"])
            .or_else(|| self.number(&[b"max-pop-retry"]))
            .unwrap_or(1.0)
    }

    /// Most history entries a job keeps; none: no cap.
    pub(crate) fn max_job_history(&self) -> Option<usize> {
        let cap = self.number(&[b"max-job-history"]).unwrap_or(100.0);
        (cap > 0.0).then_some(cap.max(2.0) as usize)
    }

    /// Seconds a finished job is kept.
    pub(crate) fn jobs_history(&self) -> f64 {
        self.number(&[b"jobs-history"]).unwrap_or(604_800.0)
    }

    /// Finished jobs kept at most.
    pub(crate) fn jobs_history_count(&self) -> usize {
        self.number(&[b"jobs-history-count"]).unwrap_or(50_000.0).max(0.0) as usize
    }

    pub(crate) fn max_worker_age(&self) -> f64 {
        self.number(&[b"max-worker-age"]).unwrap_or(86_400.0)
    }

    /// Days statistics are kept, if pruning is on (`haul-prune-stats`): clients' clocks may start near 0.
    pub(crate) fn stats_days(&self) -> Option<f64> {
        let on = self.number(&[b"haul-prune-stats"]).is_some_and(|value| value > 0.0);
        on.then(|| self.number(&[b"stats-history"]).unwrap_or(30.0))
    }
}
