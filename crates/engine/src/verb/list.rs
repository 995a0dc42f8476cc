//! Lists and counts: queues, workers, failures, statistics.

use crate::index::Index;
use crate::job::Flag;
use crate::record::Key;
use crate::score::{Score, count_between};
use crate::stats::day_of;
use crate::task::LOCK_ENDLESS;
use crate::tenant::{Cx, Tenant};
use crate::{
    JobList, Jobs, Kind, Life, Name, QueueCounts, RankWindow, Reply, StatsView, Totals, WorkerCounts,
};

/// Lock ends later than this many seconds from now are not counted among a worker's jobs.
const WORKER_JOBS_HORIZON: f64 = 8_640_000.0;

impl Tenant {
    pub(super) fn pause(&mut self, cx: &mut Cx<'_>, queues: Vec<Name>, paused: bool) -> Reply {
        for name in queues {
            if !paused && !self.indexes.queues.contains_key(&name) {
                continue;
            }
            self.indexes.queue(&name).paused = paused;
            cx.round.touch_queue(&name);
            cx.tell_of(if paused { Kind::Paused } else { Kind::Unpaused }, Some(&name), None);
            self.indexes.dirty.insert(Key::Queue(name));
        }
        Reply::Done
    }

    pub(super) fn queue_counts(&mut self, cx: &mut Cx<'_>, name: Name) -> QueueCounts {
        self.move_due(cx, &name, usize::MAX);
        let blank = crate::queue::Queue::default();
        let queue = self.indexes.queues.get(&name).unwrap_or(&blank);
        let stalled = count_between(&queue.locks, 0.0, cx.now);
        QueueCounts {
            name,
            waiting: queue.work.len(),
            running: queue.locks.len() - stalled,
            stalled,
            scheduled: queue.scheduled.len(),
            depends: queue.depends.len(),
            recurring: queue.recurring.len(),
            throttled: queue.throttled.len(),
            paused: queue.paused,
        }
    }

    pub(super) fn all_queue_counts(&mut self, cx: &mut Cx<'_>) -> Reply {
        let names = self.queue_names();
        Reply::AllCounts(names.into_iter().map(|name| self.queue_counts(cx, name)).collect())
    }

    pub(super) fn queue_names(&self) -> Vec<Name> {
        let seen =
            self.indexes.queues.iter().filter_map(|(name, queue)| Some((Score::new(queue.seen_at?), name)));
        let mut seen: Vec<(Score, &Name)> = seen.collect();
        seen.sort_unstable();
        seen.into_iter().map(|(_, name)| name.clone()).collect()
    }

    pub(super) fn length(&self, queue: &Name) -> Reply {
        let queue = self.indexes.queues.get(queue);
        let length = queue.map_or(0, |queue| queue.locks.len() + queue.work.len() + queue.scheduled.len());
        Reply::Int(length as i64)
    }

    pub(super) fn stats(&self, queue: &Name, date: f64) -> Reply {
        let day = self.indexes.stats.get(&(Score::new(day_of(date)), queue.clone()));
        Reply::Stats(Box::new(day.map_or_else(StatsView::default, |day| StatsView {
            wait: day.wait.clone(),
            run: day.run.clone(),
            failures: day.failures.unwrap_or(0),
            failed: day.failed.unwrap_or(0),
            retries: day.retries.unwrap_or(0),
        })))
    }

    /// Workers not seen for long are forgotten, their lists of jobs too; locks and jobs stay.
    pub(super) fn forget_old_workers(&mut self, cx: &Cx<'_>) {
        if cx.round.frozen {
            return;
        }
        let oldest = cx.now - self.indexes.config.max_worker_age();
        let old =
            self.indexes.workers.iter().filter(|(_, worker)| {
                worker.seen_at.is_some_and(|at| at <= oldest) && !worker.holds_endless()
            });
        let old: Vec<Name> = old.map(|(name, _)| name.clone()).collect();
        for name in old {
            let Some(worker) = self.indexes.workers.remove(&name) else { continue };
            for (_, jid) in worker.jobs {
                if let Some(job) = self.jobs.get_mut(&jid) {
                    job.flags.set(Flag::Held, false);
                    self.indexes.mark(job);
                }
            }
            self.indexes.dirty.insert(Key::Worker(name));
        }
    }

    pub(super) fn workers(&mut self, cx: &mut Cx<'_>) -> Reply {
        self.forget_old_workers(cx);
        let listed = self.indexes.workers.keys().filter_map(|name| self.worker_counts(cx, name));
        let mut listed: Vec<WorkerCounts> = listed.collect();
        listed
            .sort_unstable_by(|a, b| (Score::new(b.seen_at), &b.name).cmp(&(Score::new(a.seen_at), &a.name)));
        Reply::Workers(listed)
    }

    pub(super) fn worker_counts(&self, cx: &Cx<'_>, name: &Name) -> Option<WorkerCounts> {
        let worker = self.indexes.workers.get(name)?;
        Some(WorkerCounts {
            name: name.clone(),
            jobs: count_between(&worker.jobs, cx.now, cx.now + WORKER_JOBS_HORIZON)
                + count_between(&worker.jobs, LOCK_ENDLESS, f64::INFINITY),
            stalled: count_between(&worker.jobs, 0.0, cx.now),
            seen_at: worker.seen_at?,
            facts: worker.facts.clone(),
            life: Life::of(worker.seen_at?, worker.drain, cx.now),
        })
    }

    pub(super) fn worker_jobs(&mut self, cx: &mut Cx<'_>, worker: &Name) -> Reply {
        self.forget_old_workers(cx);
        let blank = Index::new();
        let jobs = self.indexes.workers.get(worker).map_or(&blank, |worker| &worker.jobs);
        let horizon = cx.now + WORKER_JOBS_HORIZON;
        let those = |wanted: &dyn Fn(f64) -> bool| {
            let inside = jobs.iter().rev().filter(|(score, _)| wanted(score.get()));
            inside.map(|(_, jid)| jid.clone()).collect()
        };
        Reply::WorkerJobs {
            jobs: those(&|end| (cx.now..=horizon).contains(&end) || end >= LOCK_ENDLESS),
            stalled: those(&|end| (0.0..=cx.now).contains(&end)),
        }
    }

    pub(super) fn deregister(&mut self, workers: Vec<Name>) -> Reply {
        for name in workers {
            if let Some(worker) = self.indexes.workers.get_mut(&name) {
                (worker.seen_at, worker.facts, worker.drain) = (None, None, false);
                if worker.jobs.is_empty() {
                    self.indexes.workers.remove(&name);
                }
            }
            self.indexes.dirty.insert(Key::Worker(name));
        }
        Reply::Done
    }

    pub(super) fn forget(&mut self, queues: Vec<Name>) -> Reply {
        for name in queues {
            if let Some(queue) = self.indexes.queues.get_mut(&name) {
                queue.seen_at = None;
                if queue.is_unused() {
                    self.indexes.queues.remove(&name);
                }
            }
            self.indexes.dirty.insert(Key::Queue(name));
        }
        Reply::Done
    }

    pub(super) fn list(&mut self, cx: &mut Cx<'_>, jobs: &Jobs) -> Vec<Name> {
        if jobs.list == JobList::Scheduled {
            self.move_due(cx, &jobs.queue, usize::MAX);
        }
        let blank = crate::queue::Queue::default();
        let queue = self.indexes.queues.get(&jobs.queue).unwrap_or(&blank);
        let forward = |index: &Index| window(index.iter(), index.len(), jobs.range);
        let backward = |index: &Index| window(index.iter().rev(), index.len(), jobs.range);
        match jobs.list {
            JobList::Complete => backward(&self.indexes.completed),
            JobList::Waiting => backward(&queue.work),
            JobList::Scheduled => forward(&queue.scheduled),
            JobList::Depends => forward(&queue.depends),
            JobList::Throttled => forward(&queue.throttled),
            JobList::Recurring => forward(&queue.recurring),
            JobList::Running => {
                let live = || queue.locks.range((Score::new(cx.now), Name::new(b""))..);
                window(live(), live().count(), jobs.range)
            }
            JobList::Stalled => {
                let stalled = || queue.locks.iter().take_while(|(score, _)| score.get() <= cx.now);
                window(stalled(), stalled().count(), jobs.range)
            }
        }
    }

    pub(super) fn failure_groups(&self) -> Reply {
        Reply::Groups(self.indexes.groups.iter().map(|(group, jids)| (group.clone(), jids.len())).collect())
    }

    pub(super) fn failed(&self, group: &Name, range: RankWindow) -> Reply {
        let Some(group) = self.indexes.groups.get(group) else {
            return Reply::Page { total: 0, jids: Vec::new() };
        };
        let (skip, take) = range.resolve(group.len());
        Reply::Page {
            total: group.len(),
            jids: group.values().rev().skip(skip).take(take).cloned().collect(),
        }
    }

    pub(super) fn totals(&self) -> Reply {
        Reply::Totals(Totals {
            jobs: self.jobs.len(),
            queues: self.indexes.queues.len(),
            workers: self.indexes.workers.len(),
        })
    }
}

fn window<'a>(entries: impl Iterator<Item = &'a (Score, Name)>, len: usize, range: RankWindow) -> Vec<Name> {
    let (skip, take) = range.resolve(len);
    entries.skip(skip).take(take).map(|(_, jid)| jid.clone()).collect()
}
