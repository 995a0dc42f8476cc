//! Recurring definitions (7.24, 7.25). The schedule is the queue's `-recur` set alone.

use haul_engine::{Name, Recur, RecurChange, RecurPut, Refusal};

use super::redis::{self, queue_throttle};
use super::{Cx, Outcome, Tenant};
use crate::answer::Answer;

impl Tenant {
    pub(super) fn recur(&mut self, cx: &Cx, put: &RecurPut) -> Answer {
        let count = self.recur_view(&put.jid).map_or(0, |old| old.count);
        self.unrecur(&put.jid);
        let mut throttles = put.throttles.clone();
        throttles.retain(|id| *id != queue_throttle(&put.queue));
        self.recurs.push(Recur {
            jid: put.jid.clone(),
            queue: put.queue.clone(),
            klass: put.klass.clone(),
            data: Name::new(&put.data),
            priority: put.priority,
            retries: put.retries.floor(),
            interval: put.interval,
            backlog: put.backlog,
            count,
            tags: put.tags.clone(),
            throttles,
            next: 0.0,
            cron: None,
            paused: false,
        });
        self.zadd(&redis::queue(&put.queue, "recur"), cx.now + put.offset, &put.jid);
        self.register(&put.queue, cx.now);
        Answer::Name(put.jid.clone())
    }

    pub(super) fn unrecur(&mut self, jid: &Name) -> Answer {
        let Some(old) = self.recur_view(jid) else { return Answer::Bool(false) };
        self.zrem(&redis::queue(&old.queue, "recur"), jid);
        self.recurs.retain(|recur| recur.jid != *jid);
        Answer::Bool(true)
    }

    pub(super) fn recur_view(&self, jid: &Name) -> Option<Recur> {
        let mut recur = self.recurs.iter().find(|recur| recur.jid == *jid)?.clone();
        recur.next = self.zscore(&redis::queue(&recur.queue, "recur"), jid)?;
        Some(recur)
    }

    fn recur_mut(&mut self, jid: &Name) -> Result<&mut Recur, Refusal> {
        let found = self.recurs.iter_mut().find(|recur| recur.jid == *jid);
        found.ok_or_else(|| Refusal::NoRecur { jid: jid.clone() })
    }

    pub(super) fn recur_update(&mut self, cx: &Cx, jid: &Name, changes: &[RecurChange]) -> Outcome {
        self.recur_mut(jid)?;
        for change in changes {
            let Some(now) = self.recur_view(jid) else { continue };
            match change {
                RecurChange::Interval(interval) => {
                    let next = now.next + (interval - now.interval);
                    self.zadd(&redis::queue(&now.queue, "recur"), next, jid);
                }
                RecurChange::Queue(queue) => {
                    self.zrem(&redis::queue(&now.queue, "recur"), jid);
                    self.zadd(&redis::queue(queue, "recur"), now.next, jid);
                    self.register(queue, cx.now);
                }
                _ => {}
            }
            let recur = self.recur_mut(jid)?;
            match change {
                RecurChange::Priority(priority) => recur.priority = *priority,
                RecurChange::Interval(interval) => recur.interval = *interval,
                RecurChange::Retries(retries) => recur.retries = retries.floor(),
                RecurChange::Data(data) => recur.data = Name::new(data),
                RecurChange::Klass(klass) => recur.klass = klass.clone(),
                RecurChange::Queue(queue) => recur.queue = queue.clone(),
                RecurChange::Backlog(backlog) => recur.backlog = *backlog,
                RecurChange::Throttles(throttles) => recur.throttles = throttles.clone(),
                // Haul's own; the workload has none.
                RecurChange::Cron(_) | RecurChange::Paused(_) => {}
            }
        }
        let recur = self.recur_mut(jid)?;
        let own = queue_throttle(&recur.queue);
        recur.throttles.retain(|id| *id != own);
        Ok(Answer::Done)
    }

    pub(super) fn recur_tag(&mut self, jid: &Name, tags: &[Name]) -> Outcome {
        let recur = self.recur_mut(jid)?;
        let new: Vec<Name> = tags.iter().filter(|tag| !recur.tags.contains(tag)).cloned().collect();
        recur.tags.extend(new);
        Ok(Answer::Names(recur.tags.clone()))
    }

    pub(super) fn recur_untag(&mut self, jid: &Name, tags: &[Name]) -> Outcome {
        let recur = self.recur_mut(jid)?;
        recur.tags.retain(|tag| !tags.contains(tag));
        Ok(Answer::Names(recur.tags.clone()))
    }
}
