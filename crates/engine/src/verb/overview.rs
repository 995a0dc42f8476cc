//! Overview: everything a monitoring page shows of a tenant, in one look that moves nothing.

use crate::job::{Job, Place};
use crate::queue::Queue;
use crate::score::{Score, count_between};
use crate::stats::{DayStats, day_of};
use crate::tenant::{Cx, Tenant};
use crate::{Histogram, Name, Overview, QueueCounts, QueueOverview, Reply};

/// Distinct priorities looked at for the oldest waiting job, from the highest down.
const OLDEST_PRIORITIES_MAX: usize = 64;
/// A worker counts as alive if it was seen within these seconds, or holds a lock that has not run out.
const ALIVE_SECONDS: f64 = 300.0;

impl Tenant {
    pub(super) fn overview(&self, cx: &Cx<'_>, queues_max: usize) -> Reply {
        let mut known: Vec<(Score, &Name, &Queue)> = self
            .indexes
            .queues
            .iter()
            .filter(|(_, queue)| !queue.is_unused())
            .map(|(name, queue)| (Score::new(queue.seen_at.unwrap_or(f64::MAX)), name, queue))
            .collect();
        // The first seen come first: which queues are shown by name does not change from one look to the next.
        known.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let mut all = known.into_iter().map(|(_, name, queue)| self.queue_overview(cx, name, queue));
        let queues: Vec<QueueOverview> = all.by_ref().take(queues_max).collect();
        let other = all.reduce(|mut sum, queue| {
            sum.add(&queue);
            sum
        });
        let workers = self.indexes.workers.values().filter(|worker| worker.seen_at.is_some());
        let alive = |worker: &&crate::worker::Worker| {
            let held = worker.jobs.last().is_some_and(|(expires, _)| expires.get() > cx.now);
            held || worker.seen_at.is_some_and(|at| at >= cx.now - ALIVE_SECONDS)
        };
        Reply::Overview(Box::new(Overview {
            jobs: self.jobs.len(),
            completed: self.indexes.completed.len(),
            failed: self.indexes.groups.values().map(std::collections::BTreeMap::len).sum(),
            workers: workers.clone().count(),
            workers_alive: workers.filter(alive).count(),
            queues,
            other,
        }))
    }

    fn queue_overview(&self, cx: &Cx<'_>, name: &Name, queue: &Queue) -> QueueOverview {
        let stalled = count_between(&queue.locks, 0.0, cx.now);
        // What is due could be popped: it waits, whoever has not come to move it.
        let due = count_between(&queue.scheduled, 0.0, cx.now);
        let none = DayStats::default();
        let day = self.indexes.stats.get(&(Score::new(day_of(cx.now)), name.clone())).unwrap_or(&none);
        QueueOverview {
            counts: QueueCounts {
                name: name.clone(),
                waiting: queue.work.len() + due,
                running: queue.locks.len() - stalled,
                stalled,
                scheduled: queue.scheduled.len() - due,
                depends: queue.depends.len(),
                recurring: queue.recurring.len(),
                throttled: queue.throttled.len(),
                paused: queue.paused,
            },
            oldest: self.oldest(queue, cx.now).map(|since| (cx.now - since).max(0.0)),
            wait: Histogram::of(&day.wait),
            run: Histogram::of(&day.run),
            failures: day.failures.unwrap_or(0),
            retries: day.retries.unwrap_or(0),
        }
    }

    /// Since when the job waits that has waited longest. Within a priority that is the first in line, so it is enough
    /// to jump from priority to priority; jobs whose priorities differ by less than time counts are taken as one.
    fn oldest(&self, queue: &Queue, now: f64) -> Option<f64> {
        let first_due = queue.scheduled.first().map(|(due, _)| due.get()).filter(|due| *due <= now);
        let mut oldest = first_due;
        let mut below: Option<Score> = None;
        for _ in 0..OLDEST_PRIORITIES_MAX {
            let next = match below {
                None => queue.work.last(),
                Some(score) => queue.work.range(..(score, Name::new(b""))).next_back(),
            };
            let Some((score, jid)) = next else { break };
            let Some(job) = self.jobs.get(jid) else { break };
            let since = job.available_since();
            oldest = Some(oldest.map_or(since, |oldest| oldest.min(since)));
            // A score that says nothing of time (taken back, or given a new priority while waiting) hides the others
            // of its priority: pass over it alone.
            let newest = Job::work_score(job.priority(), now);
            let timed = job.place == Place::Work && (newest..job.priority()).contains(&score.get());
            below = Some(if timed { Score::new(newest) } else { *score });
        }
        oldest
    }
}
