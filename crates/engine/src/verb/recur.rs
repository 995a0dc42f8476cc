//! Recurring definitions: made, changed, ended. Their children are spawned by pop and peek.

use hashbrown::HashSet;

use super::Answer;
use crate::record::Key;
use crate::score::Score;
use crate::tenant::{Cx, Tenant};
use crate::{Kind, Name, Recur, RecurChange, RecurPut, Refusal, Reply, throttle};

impl Tenant {
    pub(super) fn recur(&mut self, cx: &mut Cx<'_>, put: RecurPut) -> Reply {
        let count = self.remove_recur(&put.jid).map_or(0, |old| old.count);
        let own = throttle::of_queue(&put.queue);
        let recur = Recur {
            jid: put.jid.clone(),
            queue: self.indexes.names.shared(put.queue.bytes()),
            klass: put.klass,
            data: Name::new(&put.data),
            priority: put.priority,
            retries: put.retries.floor(),
            interval: put.interval,
            backlog: put.backlog,
            count,
            tags: put.tags,
            throttles: put.throttles.into_iter().filter(|id| *id != own).collect(),
            next: cx.now + put.offset,
        };
        self.indexes.register(&put.queue, cx.now);
        self.insert_recur(cx, recur);
        Reply::Name(put.jid)
    }

    pub(super) fn unrecur(&mut self, cx: &mut Cx<'_>, jid: &Name) -> Reply {
        let ended = self.remove_recur(jid);
        if let Some(recur) = &ended {
            cx.tell_recur(Kind::Unrecurred, recur);
        }
        Reply::Bool(ended.is_some())
    }

    fn remove_recur(&mut self, jid: &Name) -> Option<Recur> {
        let old = self.indexes.recurs.remove(jid)?;
        let entry = (Score::new(old.next), old.jid.clone());
        self.indexes.queue(&old.queue.clone()).recurring.remove(&entry);
        self.indexes.dirty.insert(Key::Recur(jid.clone()));
        Some(old)
    }

    fn insert_recur(&mut self, cx: &mut Cx<'_>, recur: Recur) {
        let entry = (Score::new(recur.next), recur.jid.clone());
        self.indexes.queue(&recur.queue.clone()).recurring.insert(entry);
        self.indexes.dirty.insert(Key::Recur(recur.jid.clone()));
        cx.round.touch_queue(&recur.queue);
        cx.tell_recur(Kind::Recurring, &recur);
        self.indexes.recurs.insert(recur.jid.clone(), recur);
    }

    pub(super) fn recur_update(&mut self, cx: &mut Cx<'_>, jid: &Name, changes: Vec<RecurChange>) -> Answer {
        let Some(mut recur) = self.remove_recur(jid) else {
            return Err(Refusal::NoRecur { jid: jid.clone() });
        };
        for change in changes {
            match change {
                RecurChange::Priority(priority) => recur.priority = priority,
                RecurChange::Interval(interval) => {
                    recur.next += interval - recur.interval;
                    recur.interval = interval;
                }
                RecurChange::Retries(retries) => recur.retries = retries.floor(),
                RecurChange::Data(data) => recur.data = Name::new(&data),
                RecurChange::Klass(klass) => recur.klass = klass,
                RecurChange::Queue(queue) => {
                    self.indexes.register(&queue, cx.now);
                    recur.queue = self.indexes.names.shared(queue.bytes());
                }
                RecurChange::Backlog(backlog) => recur.backlog = backlog,
                RecurChange::Throttles(throttles) => recur.throttles = throttles,
            }
        }
        let own = throttle::of_queue(&recur.queue);
        recur.throttles.retain(|id| *id != own);
        self.insert_recur(cx, recur);
        Ok(Reply::Done)
    }

    pub(super) fn recur_tag(&mut self, jid: &Name, tags: Vec<Name>) -> Answer {
        let Some(recur) = self.indexes.recurs.get_mut(jid) else {
            return Err(Refusal::NoRecur { jid: jid.clone() });
        };
        let before: HashSet<Name> = recur.tags.iter().cloned().collect();
        recur.tags.extend(tags.into_iter().filter(|tag| !before.contains(tag)));
        self.indexes.dirty.insert(Key::Recur(jid.clone()));
        Ok(Reply::Names(recur.tags.clone()))
    }

    pub(super) fn recur_untag(&mut self, jid: &Name, tags: &[Name]) -> Answer {
        let Some(recur) = self.indexes.recurs.get_mut(jid) else {
            return Err(Refusal::NoRecur { jid: jid.clone() });
        };
        let gone: HashSet<&Name> = tags.iter().collect();
        recur.tags.retain(|tag| !gone.contains(tag));
        self.indexes.dirty.insert(Key::Recur(jid.clone()));
        Ok(Reply::Names(recur.tags.clone()))
    }
}
