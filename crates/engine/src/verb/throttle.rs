//! Throttles by name.

use crate::job::{Flag, Place};
use crate::record::Key;
use crate::tenant::{Cx, Tenant};
use crate::{Name, Reply, ThrottleView, throttle};

impl Tenant {
    pub(super) fn throttle_set(&mut self, cx: &mut Cx<'_>, id: Name, maximum: f64, ttl: f64) -> Reply {
        let record = self.indexes.throttles.entry(id.clone()).or_default();
        let ended = !record.is_defined(cx.clock);
        record.maximum = Some(maximum);
        if ttl > 0.0 {
            record.ends_at = Some(cx.clock + ttl);
        } else if ended {
            record.ends_at = None;
        }
        self.indexes.dirty.insert(Key::Throttle(id));
        self.touch_all(cx);
        Reply::Done
    }

    pub(super) fn throttle_get(&self, cx: &Cx<'_>, id: Name) -> Reply {
        Reply::Throttle(self.throttle_view(cx, id))
    }

    pub(super) fn throttle_view(&self, cx: &Cx<'_>, id: Name) -> ThrottleView {
        let record = self.indexes.throttles.get(&id).filter(|record| record.is_defined(cx.clock));
        let (maximum, ttl) = match record {
            None => (0.0, -2.0),
            Some(record) => {
                (record.maximum.unwrap_or(0.0), record.ends_at.map_or(-1.0, |end| (end - cx.clock).round()))
            }
        };
        ThrottleView { id, maximum, ttl }
    }

    pub(super) fn throttle_delete(&mut self, cx: &mut Cx<'_>, id: &Name) -> Reply {
        if let Some(record) = self.indexes.throttles.get_mut(id) {
            record.maximum = None;
            record.ends_at = None;
            if record.is_unused() {
                self.indexes.throttles.remove(id);
            }
        }
        self.indexes.dirty.insert(Key::Throttle(id.clone()));
        self.touch_all(cx);
        Reply::Done
    }

    pub(super) fn throttle_locks(&self, id: &Name) -> Reply {
        let mut holders: Vec<Name> = self.lock_holders(id).cloned().collect();
        holders.sort_unstable();
        Reply::Names(holders)
    }

    /// Who holds a lock, in any order.
    pub(crate) fn lock_holders(&self, id: &Name) -> impl Iterator<Item = &Name> {
        let named = self.indexes.throttles.get(id).into_iter().flat_map(|record| &record.locks);
        let queue = throttle::queue_of(id).and_then(|queue| self.indexes.queues.get(queue));
        let own = queue.into_iter().flat_map(|queue| &queue.locks).map(|(_, jid)| jid);
        let own = own.filter(|jid| self.jobs.get(*jid).is_some_and(|job| !job.flags.has(Flag::Unthrottled)));
        named.chain(own)
    }

    pub(super) fn throttle_pending(&self, id: &Name) -> Reply {
        let pending = self.indexes.throttles.get(id).into_iter().flat_map(|record| &record.pending);
        Reply::Names(pending.map(|(_, jid)| jid.clone()).collect())
    }

    pub(super) fn throttle_release(&mut self, cx: &mut Cx<'_>, id: &Name, jids: &[Name]) -> Reply {
        for jid in jids {
            self.release(cx, id, jid);
            self.admit(cx, id);
        }
        self.touch_all(cx);
        Reply::Done
    }

    /// One job's lock of one throttle goes; a job that waits for it waits no more, but stays where it is.
    fn release(&mut self, cx: &mut Cx<'_>, id: &Name, jid: &Name) {
        let Some(job) = self.jobs.get_mut(jid) else { return };
        let own = throttle::queue_of(id) == Some(job.queue.bytes()) && job.place == Place::Locks;
        if own && !job.flags.has(Flag::Unthrottled) {
            job.flags.set(Flag::Unthrottled, true);
            self.indexes.queue(&job.queue.clone()).unthrottled += 1;
            self.indexes.mark(job);
            return;
        }
        let Some(more) = job.more.as_deref_mut() else { return };
        if let Some(position) = more.holds.iter().position(|held| held == id) {
            more.holds.remove(position);
            if let Some(record) = self.indexes.throttles.get_mut(id) {
                record.locks.remove(jid);
            }
            self.indexes.mark(job);
        } else if more.pending.as_ref().is_some_and(|(waits_for, _)| waits_for == id) {
            // Left in the throttled index with nothing to wake it, the job would wait for ever: it goes to work.
            self.indexes.leave(cx, job);
            self.indexes.enter_work(cx, job, cx.now);
            cx.tell_now(crate::Kind::Ready, job);
        }
    }
}
