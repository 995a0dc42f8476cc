//! Lists, counts and statistics (7.4, 7.5, 7.18 to 7.20, 7.26, 6.2).

use std::collections::BTreeMap;

use haul_engine::{
    HISTOGRAM_FINE, HISTOGRAM_UNIFIED, JobList, Jobs, Name, QueueCounts, RankWindow, WorkerCounts,
};

use super::redis;
use super::{Cx, Day, Tenant};
use crate::answer::{Answer, SeriesSeen, StatsSeen};

/// The part of a list that a window shows, as `LIMIT` or as the ranks of `ZRANGE` and `LRANGE` do.
pub(super) fn window(all: &[Name], range: RankWindow) -> Vec<Name> {
    let size = all.len() as i64;
    let inside = |rank: i64| match range {
        RankWindow::Limit { offset, count } => {
            rank >= offset as i64 && count.is_none_or(|count| rank < (offset + count) as i64)
        }
        RankWindow::Ranks { start, stop } => {
            let from_end = |end: i64| if end < 0 { size + end } else { end };
            rank >= from_end(start) && rank <= from_end(stop)
        }
    };
    all.iter().zip(0..).filter(|(_, rank)| inside(*rank)).map(|(name, _)| name.clone()).collect()
}

impl Tenant {
    pub(super) fn pause(&mut self, queues: &[Name], paused: bool) -> Answer {
        for queue in queues {
            if paused {
                self.sadd(b"ql:paused_queues", queue);
            } else {
                self.srem(b"ql:paused_queues", queue);
            }
        }
        Answer::Done
    }

    pub(super) fn queue_counts(&mut self, cx: &Cx, name: &Name) -> QueueCounts {
        self.move_due(cx, name, usize::MAX);
        let count = |part| self.zcard(&redis::queue(name, part));
        let stalled = self.zrangebyscore(&redis::queue(name, "locks"), 0.0, cx.now).len();
        QueueCounts {
            name: name.clone(),
            waiting: count("work"),
            running: count("locks") - stalled,
            stalled,
            scheduled: count("scheduled"),
            depends: count("depends"),
            recurring: count("recur"),
            throttled: count("throttled"),
            paused: self.sets.get(&b"ql:paused_queues"[..]).is_some_and(|paused| paused.contains(name)),
        }
    }

    pub(super) fn list(&mut self, cx: &Cx, jobs: &Jobs) -> Vec<Name> {
        let key = |part| redis::queue(&jobs.queue, part);
        let all = match jobs.list {
            JobList::Complete => self.members(b"ql:completed").into_iter().rev().collect(),
            JobList::Waiting => self.work_order(cx, &jobs.queue),
            JobList::Running => self.zrangebyscore(&key("locks"), cx.now, f64::INFINITY),
            JobList::Stalled => self.zrangebyscore(&key("locks"), f64::NEG_INFINITY, cx.now),
            JobList::Scheduled => {
                self.move_due(cx, &jobs.queue, usize::MAX);
                self.members(&key("scheduled"))
            }
            JobList::Depends => self.members(&key("depends")),
            JobList::Recurring => self.members(&key("recur")),
            JobList::Throttled => self.members(&key("throttled")),
        };
        window(&all, jobs.range)
    }

    pub(super) fn failure_groups(&self) -> Answer {
        let groups = self.lists.iter().filter_map(|(key, jids)| Some((key.strip_prefix(b"ql:f:")?, jids)));
        Answer::Groups(groups.map(|(group, jids)| (Name::new(group), jids.len())).collect())
    }

    pub(super) fn failed(&self, group: &Name, range: RankWindow) -> Answer {
        let all = self.lrange(&redis::group(group));
        Answer::Page { total: all.len(), jids: window(&all, range) }
    }

    fn forget_old_workers(&mut self, cx: &Cx) {
        let oldest = cx.now - self.number("max-worker-age").unwrap_or(86_400.0);
        for worker in self.zrangebyscore(b"ql:workers", f64::NEG_INFINITY, oldest) {
            self.zrem(b"ql:workers", &worker);
            self.zsets.remove(&redis::worker(&worker));
            self.facts.remove(&worker);
        }
    }

    pub(super) fn workers(&mut self, cx: &Cx) -> Answer {
        self.forget_old_workers(cx);
        let seen = self.zrange(b"ql:workers").into_iter().rev();
        let counts = seen.map(|(seen_at, name)| {
            let (facts, drain) = self.facts.get(&name).cloned().unwrap_or_default();
            WorkerCounts {
                jobs: self.worker_range(&name, cx.now, cx.now + 8_640_000.0).len(),
                stalled: self.worker_range(&name, 0.0, cx.now).len(),
                name,
                seen_at,
                facts,
                life: haul_engine::Life::of(seen_at, drain, cx.now),
            }
        });
        Answer::Workers(counts.collect())
    }

    pub(super) fn worker_jobs(&mut self, cx: &Cx, worker: &Name) -> Answer {
        self.forget_old_workers(cx);
        let jobs = self.worker_range(worker, cx.now, cx.now + 8_640_000.0);
        Answer::WorkerJobs { jobs, stalled: self.worker_range(worker, 0.0, cx.now) }
    }

    fn worker_range(&self, worker: &Name, min: f64, max: f64) -> Vec<Name> {
        let mut jids = self.zrangebyscore(&redis::worker(worker), min, max);
        jids.reverse();
        jids
    }

    /// The record of a queue on the day of `at`; a new one may push old ones out.
    pub(super) fn day(&mut self, queue: &Name, at: f64) -> &mut Day {
        let key = (day_of(at), queue.clone());
        let prunes = self.number("haul-prune-stats").is_some_and(|on| on > 0.0);
        if prunes && !self.days.contains_key(&key) {
            let oldest = key.0 as f64 - self.number("stats-history").unwrap_or(30.0) * 86_400.0;
            self.days.retain(|(day, _), _| *day as f64 >= oldest);
        }
        self.days.entry(key).or_default()
    }

    pub(super) fn stats(&self, queue: &Name, date: f64) -> StatsSeen {
        let blank = Day::default();
        let day = self.days.get(&(day_of(date), queue.clone())).unwrap_or(&blank);
        StatsSeen {
            wait: series(&day.wait),
            run: series(&day.run),
            failures: day.failures.unwrap_or(0),
            failed: day.failed.unwrap_or(0),
            retries: day.retries.unwrap_or(0),
        }
    }
}

/// The first second of the day.
fn day_of(at: f64) -> i64 {
    (at / 86_400.0).floor() as i64 * 86_400
}

/// Moments and histograms of samples in the order they came.
fn series(samples: &[f64]) -> SeriesSeen {
    let mut seen = SeriesSeen {
        unified: vec![0; HISTOGRAM_UNIFIED],
        fine: vec![0; HISTOGRAM_FINE],
        ..SeriesSeen::default()
    };
    let mut sparse: BTreeMap<i64, (String, u64)> = BTreeMap::new();
    for value in samples {
        seen.total += 1.0;
        let old = seen.mean;
        if seen.total == 1.0 {
            seen.mean = *value;
        } else {
            seen.mean += (value - seen.mean) / seen.total;
            seen.vk += (value - seen.mean) * (value - old);
        }
        let second = value.floor() as i64;
        let (start, letter, number) = match second {
            ..60 => (second, 's', second),
            60..3600 => (second / 60 * 60, 'm', second / 60),
            3600..86_400 => (second / 3600 * 3600, 'h', second / 3600),
            _ => (second / 86_400 * 86_400, 'd', second / 86_400),
        };
        let unified = match letter {
            's' => number,
            'm' => 60 + number - 1,
            'h' => 119 + number - 1,
            _ => 142 + number - 1,
        };
        let fine = match second {
            ..3600 => unified,
            3600..86_400 => 119 + second / 900 - 4,
            86_400..259_200 => 211 + second / 3600 - 24,
            _ => 259 + second / 86_400 - 3,
        };
        for (histogram, index) in [(&mut seen.unified, unified), (&mut seen.fine, fine)] {
            if let Some(bin) = usize::try_from(index).ok().and_then(|index| histogram.get_mut(index)) {
                *bin += 1;
            }
        }
        sparse.entry(start).or_insert_with(|| (format!("{letter}{number}"), 0)).1 += 1;
    }
    seen.sparse = sparse.into_values().collect();
    seen
}
