//! Throttles (12.3).

use haul_engine::{Name, State, ThrottleView};

use super::redis;
use super::{Cx, Tenant};
use crate::answer::Answer;

impl Tenant {
    /// The maximum of a definition that has not ended; 0: unlimited.
    fn maximum(&self, cx: &Cx, id: &Name) -> f64 {
        self.defined(cx, id).map_or(0.0, |(maximum, _)| maximum)
    }

    pub(super) fn defined(&self, cx: &Cx, id: &Name) -> Option<(f64, Option<f64>)> {
        self.throttles.get(id).copied().filter(|(_, ends_at)| ends_at.is_none_or(|end| end > cx.clock))
    }

    pub(super) fn available(&self, cx: &Cx, id: &Name) -> bool {
        let maximum = self.maximum(cx, id);
        maximum == 0.0 || (self.zcard(&redis::throttle(id, "locks")) as f64) < maximum
    }

    /// The job waits for the first of its throttles that is full.
    pub(super) fn throttle(&mut self, cx: &mut Cx, jid: &Name) {
        let Ok(job) = self.job(jid) else { return };
        let full = self.all_throttles(jid).into_iter().find(|id| !self.available(cx, id));
        if let Some(id) = full {
            self.zadd(&redis::throttle(&id, "pending"), cx.now, jid);
        }
        self.zadd(&redis::queue(&job.queue, "throttled"), cx.now, jid);
        if job.state != State::Throttled {
            self.edit(jid, |job| job.state = State::Throttled);
            self.note(jid, cx.now, format!("throttled {}", job.queue));
        }
    }

    /// All of a job's throttles let go of it.
    pub(super) fn release_all(&mut self, cx: &Cx, jid: &Name) {
        for id in self.all_throttles(jid) {
            self.zrem(&redis::throttle(&id, "locks"), jid);
            self.admit(cx, &id);
        }
    }

    /// The oldest that wait go back to work, as many as there is room for.
    fn admit(&mut self, cx: &Cx, id: &Name) {
        let pending = redis::throttle(id, "pending");
        let maximum = self.maximum(cx, id);
        let locks = self.zcard(&redis::throttle(id, "locks")) as f64;
        let room = if maximum == 0.0 { 10.0 } else { (maximum - locks).max(0.0) };
        for jid in self.members(&pending).into_iter().take(room as usize) {
            self.zrem(&pending, &jid);
            self.unthrottle(cx, &jid);
        }
    }

    fn unthrottle(&mut self, cx: &Cx, jid: &Name) {
        let Some(queue) = self.find(jid).map(|job| job.queue.clone()) else { return };
        self.zrem(&redis::queue(&queue, "throttled"), jid);
        self.enter_work(jid, cx.now);
    }

    pub(super) fn throttle_set(&mut self, cx: &Cx, id: &Name, maximum: f64, ttl: f64) -> Answer {
        let old_end = self.defined(cx, id).and_then(|(_, ends_at)| ends_at);
        let ends_at = if ttl > 0.0 { Some(cx.clock + ttl) } else { old_end };
        self.throttles.insert(id.clone(), (maximum, ends_at));
        Answer::Done
    }

    pub(super) fn throttle_get(&self, cx: &Cx, id: &Name) -> Answer {
        let (maximum, ttl) = match self.defined(cx, id) {
            None => (0.0, -2.0),
            Some((maximum, None)) => (maximum, -1.0),
            Some((maximum, Some(end))) => (maximum, (end - cx.clock).round()),
        };
        Answer::Throttle(ThrottleView { id: id.clone(), maximum, ttl })
    }

    pub(super) fn throttle_release(&mut self, cx: &Cx, id: &Name, jids: &[Name]) -> Answer {
        for jid in jids {
            if !self.zrem(&redis::throttle(id, "locks"), jid)
                && self.zrem(&redis::throttle(id, "pending"), jid)
            {
                self.unthrottle(cx, jid);
            }
            self.admit(cx, id);
        }
        Answer::Done
    }
}
