//! Depends: what a waiting job waits for is changed.

use super::Answer;
use crate::job::State;
use crate::tenant::{Cx, Tenant};
use crate::{Name, Refusal, Reply};

impl Tenant {
    pub(super) fn depends(
        &mut self,
        cx: &mut Cx<'_>,
        jid: &Name,
        on: Option<bool>,
        jids: &[Name],
        all: bool,
    ) -> Answer {
        let state = self.jobs.get(jid).map(|job| job.state);
        if state != Some(State::Depends) {
            return Err(Refusal::NotDepends { jid: jid.clone(), state });
        }
        match on {
            None => return Err(Refusal::NeitherOnNorOff),
            Some(true) => {
                self.link(jid, jids);
            }
            Some(false) => self.undepend(cx, jid, jids, all),
        }
        Ok(Reply::Done)
    }

    fn undepend(&mut self, cx: &mut Cx<'_>, jid: &Name, jids: &[Name], all: bool) {
        let more = self.jobs.get(jid).and_then(|job| job.more.as_deref());
        let has = more.map(|more| more.dependencies.clone()).unwrap_or_default();
        let gone: Vec<&Name> =
            if all { has.iter().collect() } else { jids.iter().filter(|j| has.contains(*j)).collect() };
        for other in &gone {
            self.unlink(jid, other);
        }
        if all || !jids.is_empty() {
            self.settle(cx, jid, false);
        }
    }
}
