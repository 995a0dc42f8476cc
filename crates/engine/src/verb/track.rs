//! Tracking: jobs whose every step is told to the world.

use super::{Answer, job_mut};
use crate::record::Key;
use crate::tenant::{Cx, Tenant};
use crate::{Event, Kind, Name, Reply};

impl Tenant {
    pub(super) fn track(&mut self, cx: &mut Cx<'_>, jid: &Name) -> Answer {
        let job = job_mut(&mut self.jobs, jid)?;
        cx.tell_now(Kind::Tracked, job);
        let jid = job.jid.clone();
        cx.emit(Event::Track { jid: jid.clone() });
        self.indexes.dirty.insert(Key::Tracked(jid.clone()));
        Ok(Reply::Bool(self.indexes.tracked.insert(jid, cx.now).is_none()))
    }

    /// Also of a job that is gone.
    pub(super) fn untrack(&mut self, cx: &mut Cx<'_>, jid: &Name) -> Reply {
        cx.emit(Event::Untrack { jid: jid.clone() });
        if let Some(job) = self.jobs.get(jid) {
            cx.tell_now(Kind::Untracked, job);
        }
        self.indexes.dirty.insert(Key::Tracked(jid.clone()));
        Reply::Bool(self.indexes.tracked.remove(jid).is_some())
    }

    pub(super) fn tracked(&self) -> Reply {
        let mut order: Vec<(crate::Score, &Name)> =
            self.indexes.tracked.iter().map(|(jid, at)| (crate::Score::new(*at), jid)).collect();
        order.sort_unstable();
        self.tracked_of(order.into_iter().map(|(_, jid)| jid))
    }

    pub(super) fn tracked_of<'a>(&self, jids: impl Iterator<Item = &'a Name>) -> Reply {
        let (mut jobs, mut expired) = (Vec::new(), Vec::new());
        for jid in jids {
            match self.jobs.get(jid) {
                Some(job) => jobs.push(self.indexes.view(job)),
                None => expired.push(jid.clone()),
            }
        }
        Reply::Tracked { jobs, expired }
    }
}
