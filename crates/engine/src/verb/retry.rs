//! Retry: a worker gives a job back; without retries left it fails.

use super::pop::{exhausted_message, set_failure};
use super::{Answer, Claim, held};
use crate::job::{Flag, Job, Place, State, What};
use crate::tenant::{Cx, Indexes, Tenant};
use crate::{Failure, Kind, Name, Reply, Retry, TrackedEvent};

impl Tenant {
    pub(super) fn retry(&mut self, cx: &mut Cx<'_>, retry: Retry) -> Answer {
        let claim = Claim { jid: &retry.jid, worker: Some(&retry.worker), attempt: retry.attempt };
        let job = held(&mut self.jobs, &claim)?;
        let queue = match &retry.queue {
            Some(queue) => self.indexes.names.shared(queue.bytes()),
            None => job.queue.clone(),
        };
        let sight = cx.sight(job);
        let group = retry.group.clone();
        job.set_remaining(job.remaining() - 1.0);
        job.flags.set(Flag::Warned, false);
        self.indexes.unhold(job);
        self.indexes.leave(cx, job);
        self.indexes.release_locks(job);
        let old_queue = job.queue.clone();
        if job.remaining() < 0.0 {
            self.indexes.exhaust(cx, job, retry, &queue);
            let group = job.failure().map(|failure| failure.group.clone());
            cx.tell(sight, Kind::Failed, job.state, group);
        } else {
            self.indexes.give_back(cx, job, retry, &queue);
            cx.tell(sight, Kind::Retried, job.state, group);
        }
        let remaining = job.remaining();
        let mut waiters = job.more.as_deref().map_or_else(Vec::new, |more| more.throttles.clone());
        waiters.push(crate::throttle::of_queue(&old_queue));
        self.admit_all(cx, &waiters);
        Ok(Reply::Number(remaining))
    }
}

impl Indexes {
    /// Back into a queue. Worker, expiry and `time` stay as they were.
    fn give_back(&mut self, cx: &mut Cx<'_>, job: &mut Job, retry: Retry, queue: &Name) {
        if job.queue != *queue {
            job.queue = queue.clone();
            self.register(queue, cx.now);
        }
        if let (Some(group), Some(message)) = (retry.group, retry.message) {
            if cx.rules.retries_noted {
                let line = Name::new(&[b"retried: ", group.bytes()].concat());
                self.note(cx, job, cx.now, What::Log(Box::new((line, None))));
            }
            let worker = self.names.shared(retry.worker.bytes());
            let group = self.names.shared(group.bytes());
            let message = cx.keep(message);
            set_failure(
                cx,
                job,
                Failure { group, message, when: cx.now.floor(), worker, queue: queue.clone() },
            );
        }
        if retry.delay > 0.0 {
            job.state = State::Scheduled;
            self.enter(cx, job, Place::Scheduled, cx.now + retry.delay);
        } else {
            job.state = State::Waiting;
            self.enter_work(cx, job, cx.now);
        }
    }

    /// No retries left.
    fn exhaust(&mut self, cx: &mut Cx<'_>, job: &mut Job, retry: Retry, queue: &Name) {
        let given = retry.group.is_some() && retry.message.is_some();
        let group = retry.group.unwrap_or_else(|| Name::new(&[b"failed-retries-", queue.bytes()].concat()));
        let group = self.names.shared(group.bytes());
        let what = if cx.rules.exhaustion_quiet { What::FailedRetries } else { What::Exhausted };
        self.note(cx, job, cx.now, what(group.clone()));
        let (message, when, worker) = match retry.message {
            Some(message) if given => (message, cx.now.floor(), self.names.shared(retry.worker.bytes())),
            _ => (exhausted_message(&job.queue), cx.now, self.names.none()),
        };
        let message = cx.keep(message);
        set_failure(cx, job, Failure { group, message, when, worker, queue: queue.clone() });
        job.state = State::Failed;
        job.clear_lock();
        if !cx.rules.exhaustion_quiet {
            self.emit_tracked(cx, TrackedEvent::Failed, &job.jid);
        }
        self.enter_group(cx, job);
        self.count_failure(queue, cx.now);
    }
}
