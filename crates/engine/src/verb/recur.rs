//! Recurring definitions: made, changed, ended. Their children are spawned by pop and peek.

use hashbrown::HashSet;

use super::Answer;
use crate::record::Key;
use crate::score::Score;
use crate::tenant::{Cx, Tenant};
use crate::{CRON_BACKLOG_MAX, Cron, Kind, Name, Recur, RecurChange, RecurPut, Refusal, Reply, throttle};

impl Tenant {
    pub(super) fn recur(&mut self, cx: &mut Cx<'_>, put: RecurPut) -> Answer {
        if let Some(cron) = &put.cron {
            check_cron(cron, put.backlog, cx.now)?;
        }
        let (count, paused) = self.remove_recur(&put.jid).map_or((0, false), |old| (old.count, old.paused));
        let own = throttle::of_queue(&put.queue);
        let mut recur = Recur {
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
            cron: None,
            paused,
        };
        if let Some(cron) = put.cron {
            recur.follow(cron, cx.now);
        }
        self.indexes.register(&put.queue, cx.now);
        self.insert_recur(cx, recur);
        Ok(Reply::Name(put.jid))
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
        let entry = (Score::new(old.due()), old.jid.clone());
        self.indexes.queue(&old.queue.clone()).recurring.remove(&entry);
        self.indexes.dirty.insert(Key::Recur(jid.clone()));
        Some(old)
    }

    fn insert_recur(&mut self, cx: &mut Cx<'_>, recur: Recur) {
        let entry = (Score::new(recur.due()), recur.jid.clone());
        self.indexes.queue(&recur.queue.clone()).recurring.insert(entry);
        self.indexes.dirty.insert(Key::Recur(recur.jid.clone()));
        cx.round.touch_queue(&recur.queue);
        cx.tell_recur(Kind::Recurring, &recur);
        self.indexes.recurs.insert(recur.jid.clone(), recur);
    }

    pub(super) fn recur_update(&mut self, cx: &mut Cx<'_>, jid: &Name, changes: Vec<RecurChange>) -> Answer {
        let Some(old) = self.indexes.recurs.get(jid) else {
            return Err(Refusal::NoRecur { jid: jid.clone() });
        };
        let mut backlog = old.backlog;
        for change in &changes {
            match change {
                RecurChange::Backlog(wanted) => backlog = *wanted,
                RecurChange::Cron(cron) => check_cron(cron, backlog, cx.now)?,
                _ => {}
            }
        }
        let Some(mut recur) = self.remove_recur(jid) else {
            return Err(Refusal::NoRecur { jid: jid.clone() });
        };
        for change in changes {
            match change {
                RecurChange::Priority(priority) => recur.priority = priority,
                RecurChange::Interval(interval) => {
                    recur.next = match recur.cron.take() {
                        Some(_) => cx.now + interval,
                        None => recur.next + (interval - recur.interval),
                    };
                    recur.interval = interval;
                }
                RecurChange::Cron(cron) => recur.follow(cron, cx.now),
                RecurChange::Paused(true) => recur.paused = true,
                RecurChange::Paused(false) if recur.paused => recur.resume(cx.now),
                RecurChange::Paused(false) => {}
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

    /// A child now; when the next comes by itself stays as it is.
    pub(super) fn recur_run(&mut self, cx: &mut Cx<'_>, jid: &Name) -> Answer {
        let Some(recur) = self.indexes.recurs.get_mut(jid) else {
            return Err(Refusal::NoRecur { jid: jid.clone() });
        };
        recur.count += 1;
        let once = Recur { next: cx.now, ..recur.clone() };
        self.indexes.dirty.insert(Key::Recur(jid.clone()));
        Ok(Reply::Name(self.spawn(cx, &once)))
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

/// A schedule that has a moment to come, and a backlog that can be counted.
fn check_cron(cron: &Cron, backlog: f64, now: f64) -> Result<(), Refusal> {
    if !(0.0..=CRON_BACKLOG_MAX).contains(&backlog) {
        let limit =
            format!("a schedule's backlog is from 0 to the limit cron-backlog-max, {CRON_BACKLOG_MAX}");
        return Err(Refusal::BadArgument(limit));
    }
    match cron.after(now) {
        Some(_) => Ok(()),
        None => Err(Refusal::BadArgument(format!("the schedule {:?} never comes", cron.text()))),
    }
}
