//! Fail: a worker gives up on a job, saying why.

use super::pop::set_failure;
use super::{Answer, Claim, held, job_mut};
use crate::job::{State, What};
use crate::tenant::{Cx, Tenant};
use crate::{Event, Fail, Failure, Kind, Refusal, Reply, TrackedEvent};

impl Tenant {
    pub(super) fn fail(&mut self, cx: &mut Cx<'_>, fail: Fail) -> Answer {
        let Fail { jid, worker, attempt, group, message, data } = fail;
        let job = match &worker {
            Some(_) => held(&mut self.jobs, &Claim { jid: &jid, worker: worker.as_ref(), attempt })?,
            None => {
                let job = job_mut(&mut self.jobs, &jid)?;
                if job.state == State::Complete {
                    return Err(Refusal::NotRunning { jid, state: job.state });
                }
                job
            }
        };
        let worker = worker.unwrap_or_else(|| self.indexes.worker_of(job));
        let event = Event::Failed {
            jid: jid.clone(),
            group: group.clone(),
            worker: worker.clone(),
            message: message.clone(),
        };
        cx.emit(event);
        self.indexes.emit_tracked(cx, TrackedEvent::Failed, &jid);
        let group = self.indexes.names.shared(group.bytes());
        let sight = cx.sight(job);
        cx.tell(sight, Kind::Failed, State::Failed, Some(group.clone()));
        let worker = self.indexes.names.shared(worker.bytes());
        self.indexes.uncount_failed(job);
        self.indexes.unhold(job);
        self.indexes.leave(cx, job);
        self.indexes.release_locks(job);
        self.indexes.note(cx, job, cx.now, What::Failed(Box::new((worker.clone(), group.clone()))));
        Tenant::set_data(cx, job, data);
        let queue = job.queue.clone();
        let message = cx.keep(message);
        set_failure(cx, job, Failure { group, message, when: cx.now.floor(), worker, queue: queue.clone() });
        job.state = State::Failed;
        job.clear_lock();
        self.indexes.enter_group(cx, job);
        self.indexes.count_failure(&queue, cx.now);
        let waiters = match self.jobs.get(&jid) {
            Some(job) => self.indexes.throttles_of(job),
            None => Vec::new(),
        };
        self.admit_all(cx, &waiters);
        Ok(Reply::Name(jid))
    }
}
