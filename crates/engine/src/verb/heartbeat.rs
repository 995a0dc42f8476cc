//! Heartbeat: a worker renews its lock, and may save new data.

use super::{Claim, held};
use crate::tenant::{Cx, Tenant};
use crate::{Heartbeat, Lock, Name, Refusal, Reply};

impl Tenant {
    /// The new expiry.
    pub(super) fn heartbeat(&mut self, cx: &mut Cx<'_>, beat: Heartbeat) -> Result<f64, Refusal> {
        let Heartbeat { jid, worker, attempt, lock, data } = beat;
        let job = held(&mut self.jobs, &Claim { jid: &jid, worker: Some(&worker), attempt })?;
        if worker.is_empty() {
            return Err(Refusal::NotHeld { jid, worker });
        }
        let expires = match lock {
            Lock::Option => cx.now + self.indexes.config.heartbeat(&job.queue),
            Lock::Seconds(seconds) => cx.now + seconds,
            Lock::Until(moment) => moment,
        };
        Tenant::set_data(cx, job, data);
        let name = self.indexes.names.shared(worker.bytes());
        self.indexes.hold(job, name, expires);
        self.indexes.relock(cx, job, expires);
        if cx.rules.heartbeat_is_life {
            self.indexes.saw_worker(&worker, cx.now);
        }
        Ok(expires)
    }

    pub(super) fn heartbeat_many(&mut self, cx: &mut Cx<'_>, worker: &Name, jids: Vec<Name>) -> Reply {
        let one = |jid: Name| {
            let beat =
                Heartbeat { jid, worker: worker.clone(), attempt: None, lock: Lock::Option, data: None };
            self.heartbeat(cx, beat)
        };
        Reply::Each(jids.into_iter().map(one).collect())
    }
}
