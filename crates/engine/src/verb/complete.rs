//! Complete: a job is finished, or moves on to the next queue.

use std::collections::BTreeSet;

use super::pop::clear_failure;
use super::report::clear_checkpoint;
use super::{Answer, Claim, held};
use crate::job::{Job, Place, State, What};
use crate::tenant::{Cx, Indexes, Tenant};
use crate::{Complete, Event, Kind, Name, Next, Refusal, Reply, TrackedEvent};

impl Tenant {
    pub(super) fn complete(&mut self, cx: &mut Cx<'_>, complete: Complete) -> Answer {
        let Complete { jid, worker, queue, attempt, data, result, next } = complete;
        let job = held(&mut self.jobs, &Claim { jid: &jid, worker: worker.as_ref(), attempt })?;
        if queue.is_some_and(|queue| queue != job.queue) {
            return Err(Refusal::WrongQueue { jid, queue: job.queue.clone() });
        }
        let sight = cx.sight(job);
        self.indexes.note(cx, job, cx.now, What::Done);
        Tenant::set_data(cx, job, data);
        if let Some(old) = job.more.as_deref_mut().and_then(|more| more.result.take()) {
            cx.forget(&old);
        }
        if let Some(result) = result {
            job.more().result = Some(cx.keep(result));
        }
        self.indexes.unhold(job);
        self.indexes.leave(cx, job);
        self.indexes.release_locks(job);
        let ran = cx.now - job.time;
        self.indexes.day(&job.queue, cx.now).run.add(ran);
        job.time = cx.now;
        job.set_remaining(job.retries());
        job.clear_lock();
        clear_failure(cx, job);
        clear_checkpoint(cx, job);
        self.indexes.emit_tracked(cx, TrackedEvent::Completed, &jid);
        let waiters = self.indexes.throttles_of(job);
        let state = match next {
            Some(next) => {
                let state = self.advance(cx, &jid, &next);
                cx.tell(sight, Kind::Advanced, state, Some(next.queue));
                state
            }
            None => {
                cx.tell(sight, Kind::Completed, State::Complete, None);
                self.indexes.finish(cx, job);
                let dependents = take_dependents(job);
                if !dependents.is_empty() {
                    self.let_go(cx, &jid, dependents);
                }
                self.purge(cx);
                State::Complete
            }
        };
        self.admit_all(cx, &waiters);
        Ok(Reply::State(state))
    }

    pub(super) fn complete_many(&mut self, cx: &mut Cx<'_>, worker: &Name, jids: Vec<Name>) -> Reply {
        let one = |jid: Name| {
            let worker = Some(worker.clone());
            let complete =
                Complete { jid, worker, queue: None, attempt: None, data: None, result: None, next: None };
            self.complete(cx, complete).map(|_| 0.0)
        };
        Reply::Each(jids.into_iter().map(one).collect())
    }

    /// On to the next queue; the job is in no index.
    fn advance(&mut self, cx: &mut Cx<'_>, jid: &Name, next: &Next) -> State {
        let to = self.indexes.names.shared(next.queue.bytes());
        let Some(job) = self.jobs.get_mut(jid) else { return State::Complete };
        cx.emit(Event::Advanced { jid: jid.clone(), queue: job.queue.clone(), to: to.clone() });
        self.indexes.note(cx, job, cx.now, What::Put(to.clone()));
        job.queue = to.clone();
        job.state = State::Waiting;
        self.indexes.register(&to, cx.now);
        if next.delay > 0.0 && next.depends.is_empty() {
            job.state = State::Scheduled;
            self.indexes.enter(cx, job, Place::Scheduled, cx.now + next.delay);
            return State::Scheduled;
        }
        let waits = self.link(jid, &next.depends);
        let Some(job) = self.jobs.get_mut(jid) else { return State::Complete };
        if waits {
            job.state = State::Depends;
            if next.delay > 0.0 {
                job.more().scheduled = Some(cx.now + next.delay);
            }
            self.indexes.enter(cx, job, Place::Depends, cx.now);
            return State::Depends;
        }
        self.indexes.enter_work(cx, job, cx.now);
        State::Waiting
    }

    /// Those who waited for a job need not any more.
    fn let_go(&mut self, cx: &mut Cx<'_>, jid: &Name, dependents: BTreeSet<Name>) {
        for dependent in dependents {
            self.unlink(&dependent, jid);
            self.settle(cx, &dependent, true);
        }
    }

    /// Finished jobs that are too old or too many go.
    fn purge(&mut self, cx: &mut Cx<'_>) {
        let oldest = cx.now - self.indexes.config.jobs_history();
        let aged = crate::score::up_to(&self.indexes.completed, 0.0, oldest, usize::MAX);
        for (_, jid) in aged {
            self.purge_one(cx, &jid);
        }
        let excess = self.indexes.completed.len().saturating_sub(self.indexes.config.jobs_history_count());
        for _ in 0..excess {
            let Some((_, jid)) = self.indexes.completed.first().cloned() else { return };
            self.purge_one(cx, &jid);
        }
    }

    fn purge_one(&mut self, cx: &mut Cx<'_>, jid: &Name) {
        if cx.round.listening
            && let Some(job) = self.jobs.get(jid)
        {
            cx.tell_now(Kind::Purged, job);
        }
        self.delete(cx, jid);
    }
}

fn take_dependents(job: &mut Job) -> BTreeSet<Name> {
    job.more.as_deref_mut().map_or_else(BTreeSet::new, |more| std::mem::take(&mut more.dependents))
}

impl Indexes {
    /// Finished for good; the job is in no index.
    fn finish(&mut self, cx: &mut Cx<'_>, job: &mut Job) {
        let queue = std::mem::replace(&mut job.queue, self.names.none());
        cx.emit(Event::Completed { jid: job.jid.clone(), queue });
        job.state = State::Complete;
        self.enter(cx, job, Place::Completed, cx.now);
    }
}
