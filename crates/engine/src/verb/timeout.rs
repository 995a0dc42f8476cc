//! Timeout: a lock is taken away by hand; the job is next in line.

use super::{Claim, held};
use crate::job::{Place, State, What};
use crate::tenant::{Cx, Tenant};
use crate::{Event, Name, Refusal, Reply};

impl Tenant {
    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>, jids: Vec<Name>) -> Reply {
        if cx.rules.timeout_whole {
            let mut seen = hashbrown::HashSet::new();
            for jid in &jids {
                let refused = held(&mut self.jobs, &Claim { jid, worker: None, attempt: None }).err();
                if refused.is_some() || !seen.insert(jid) {
                    let state = crate::job::State::Stalled;
                    return Reply::Stopped(refused.or(Some(Refusal::NotRunning { jid: jid.clone(), state })));
                }
            }
        }
        let refused = jids.into_iter().find_map(|jid| self.timeout_one(cx, &jid).err());
        Reply::Stopped(refused)
    }

    fn timeout_one(&mut self, cx: &mut Cx<'_>, jid: &Name) -> Result<(), Refusal> {
        let job = held(&mut self.jobs, &Claim { jid, worker: None, attempt: None })?;
        self.indexes.note(cx, job, cx.now, What::TimedOut);
        self.indexes.unhold(job);
        self.indexes.leave(cx, job);
        self.indexes.release_locks(job);
        job.state = State::Stalled;
        job.run().expires = 0.0;
        cx.emit(Event::LockLost { jid: jid.clone(), worker: self.indexes.worker_of(job) });
        cx.tell_lost(job, State::Stalled, "released");
        if cx.rules.timeout_clears_worker {
            job.clear_lock();
        }
        self.indexes.enter(cx, job, Place::Work, f64::INFINITY);
        let waiters = match self.jobs.get(jid) {
            Some(job) => self.indexes.throttles_of(job),
            None => Vec::new(),
        };
        self.admit_all(cx, &waiters);
        Ok(())
    }
}
