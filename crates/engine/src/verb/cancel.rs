//! Cancel: jobs go, running ones too. A job others wait for goes only together with them.

use hashbrown::HashSet;

use super::Answer;
use crate::job::State;
use crate::tenant::{Cx, Tenant};
use crate::{Event, Kind, Name, Refusal, Reply, TrackedEvent};

impl Tenant {
    pub(super) fn cancel(&mut self, cx: &mut Cx<'_>, jids: &[Name]) -> Answer {
        let named: HashSet<&Name> = jids.iter().collect();
        for jid in jids {
            let more = self.jobs.get(jid).and_then(|job| job.more.as_deref());
            let mut dependents = more.iter().flat_map(|more| &more.dependents);
            if let Some(by) = dependents.find(|by| !named.contains(by)) {
                return Err(Refusal::Needed { jid: jid.clone(), by: by.clone() });
            }
        }
        let canceled = jids.iter().filter(|jid| self.cancel_one(cx, jid)).count();
        Ok(Reply::Int(canceled as i64))
    }

    fn cancel_one(&mut self, cx: &mut Cx<'_>, jid: &Name) -> bool {
        let Some(job) = self.jobs.get_mut(jid) else {
            cx.emit(Event::Canceled { jid: jid.clone(), queue: None, worker: None });
            self.indexes.emit_tracked(cx, TrackedEvent::Canceled, jid);
            return false;
        };
        if job.state == State::Complete {
            return false;
        }
        let (queue, worker) = (Some(job.queue.clone()), Some(self.indexes.worker_of(job)));
        cx.emit(Event::Canceled { jid: jid.clone(), queue, worker });
        cx.tell_now(Kind::Canceled, job);
        self.indexes.uncount_failed(job);
        let waiters = match self.jobs.get(jid) {
            Some(job) => self.indexes.throttles_of(job),
            None => Vec::new(),
        };
        self.delete(cx, jid);
        self.indexes.emit_tracked(cx, TrackedEvent::Canceled, jid);
        self.admit_all(cx, &waiters);
        true
    }
}
