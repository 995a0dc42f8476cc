//! Put (7.7), step by step as the chapter numbers them.

use std::collections::BTreeSet;

use bytes::Bytes;
use haul_engine::{Event, Name, Put, PutWhen, Refusal, State, TrackedEvent};

use super::redis::{self, queue_throttle};
use super::{Cx, Job, Outcome, Tenant};
use crate::answer::Answer;

impl Tenant {
    /// All or none: what an earlier put of the list makes, exists for the later ones.
    pub(super) fn put_many(&mut self, cx: &mut Cx, puts: &[Put]) -> Outcome {
        let mut made = BTreeSet::new();
        for put in puts {
            let exists = self.find(&put.jid).is_some() || made.contains(&put.jid);
            let whole = put.klass.is_some() && put.data.is_some();
            if put.when == PutWhen::New && exists {
                return Err(Refusal::Exists { jid: put.jid.clone() });
            }
            if !exists && (put.when == PutWhen::Exists || !whole) {
                return Err(Refusal::NoJob { jid: put.jid.clone() });
            }
            made.insert(put.jid.clone());
        }
        puts.iter().for_each(|put| self.put(cx, put));
        Ok(Answer::Names(puts.iter().map(|put| put.jid.clone()).collect()))
    }

    fn put(&mut self, cx: &mut Cx, put: &Put) {
        let jid = &put.jid;
        let old = self.find(jid).cloned();
        self.unindex_tags(cx, jid); // 1
        if !put.depends.is_empty() {
            for other in self.smembers(&redis::job(jid, "dependencies")) {
                if !put.depends.contains(&other) {
                    self.unlink(jid, &other); // 2
                }
            }
        }
        cx.emit(Event::Put { jid: jid.clone(), queue: put.queue.clone() }); // 3
        if old.is_none() {
            self.jobs.push(blank(jid));
        }
        self.note(jid, cx.now, format!("put {}", put.queue)); // 4
        if let Some(old) = &old {
            self.take_away(cx, old, put.worker.as_ref()); // 5, 6, 7
        }
        let tags = put.tags.clone().or(old.as_ref().map(|old| old.tags.clone())).unwrap_or_default();
        if cx.rules.tags_indexed {
            tags.iter().for_each(|tag| self.index_tag(cx, jid, tag)); // 8
        }
        if let Some(old) = &old {
            self.leave_failures(old); // 9
        }
        if put.klass.is_some() {
            self.clear_checkpoint(jid);
        }
        self.write(cx, put, tags, old.as_ref()); // 10
        for other in &put.depends {
            self.link(jid, other); // 11
        }
        self.place(cx, jid, put.delay); // 12
        self.register(&put.queue, cx.now); // 13
        self.emit_tracked(cx, TrackedEvent::Put, jid); // 14
    }

    fn take_away(&mut self, cx: &mut Cx, old: &Job, worker: Option<&Name>) {
        self.remove_job(&old.jid);
        if old.state == State::Running {
            self.release_all(cx, &old.jid);
        }
        if !old.worker.is_empty() && worker != Some(&old.worker) {
            cx.emit(Event::LockLost { jid: old.jid.clone(), worker: old.worker.clone() });
        }
        self.zrem(&redis::worker(&old.worker), &old.jid);
        self.zrem(b"ql:completed", &old.jid);
    }

    /// A failed job leaves its group, and is no longer counted where it failed.
    pub(super) fn leave_failures(&mut self, old: &Job) {
        let (State::Failed, Some(failure)) = (old.state, &old.failure) else { return };
        self.lrem(&redis::group(&failure.group), &old.jid);
        let day = self.day(&failure.queue, failure.when);
        day.failed = Some(day.failed.unwrap_or(0) - 1);
    }

    fn write(&mut self, cx: &Cx, put: &Put, tags: Vec<Name>, old: Option<&Job>) {
        // The old queue's own throttle goes from the list that was given; the new one's is implied.
        // A job that is merely moved keeps its own.
        let mut throttles = match (&put.klass, old) {
            (None, Some(old)) => old.throttles.clone(),
            _ => put.throttles.clone(),
        };
        throttles.retain(|id| *id != queue_throttle(&put.queue));
        throttles
            .retain(|id| old.is_none_or(|old| old.queue.is_empty() || *id != queue_throttle(&old.queue)));
        let retries = put.retries.map(f64::floor).or(old.map(|old| old.retries)).unwrap_or(5.0);
        self.edit(&put.jid, |job| {
            job.klass = put.klass.clone().unwrap_or_else(|| job.klass.clone());
            job.data = put.data.clone().unwrap_or_else(|| job.data.clone());
            job.priority = put.priority.unwrap_or(job.priority);
            job.tags = tags;
            job.state = if put.delay > 0.0 { State::Scheduled } else { State::Waiting };
            job.worker = "".into();
            job.expires = 0.0;
            job.queue = put.queue.clone();
            (job.retries, job.remaining) = (retries, retries);
            job.time = cx.now;
            job.throttles = throttles;
            job.grace = false;
            job.scheduled = None;
        });
    }

    fn place(&mut self, cx: &mut Cx, jid: &Name, delay: f64) {
        let Some(queue) = self.find(jid).map(|job| job.queue.clone()) else { return };
        if !self.smembers(&redis::job(jid, "dependencies")).is_empty() {
            self.zadd(&redis::queue(&queue, "depends"), cx.now, jid);
            self.edit(jid, |job| {
                job.state = State::Depends;
                job.scheduled = (delay > 0.0).then_some(cx.now + delay);
            });
        } else if delay > 0.0 {
            self.zadd(&redis::queue(&queue, "scheduled"), cx.now + delay, jid);
        } else if !self.all_throttles(jid).iter().all(|id| self.available(cx, id)) {
            self.throttle(cx, jid);
        } else {
            self.enter_work(jid, cx.now);
        }
    }

    /// Into its queue's work index, as of `t` (5.1).
    pub(super) fn enter_work(&mut self, jid: &Name, t: f64) {
        if let Some(job) = self.find(jid) {
            let (key, score) = (redis::queue(&job.queue, "work"), job.priority - t / 1e10);
            self.zadd(&key, score, jid);
        }
    }

    /// Out of every index of its queue, and of the line of any throttle.
    pub(super) fn remove_job(&mut self, jid: &Name) {
        let Some(queue) = self.find(jid).map(|job| job.queue.clone()) else { return };
        for part in ["work", "locks", "scheduled", "depends", "throttled"] {
            self.zrem(&redis::queue(&queue, part), jid);
        }
        for id in self.all_throttles(jid) {
            self.zrem(&redis::throttle(&id, "pending"), jid);
        }
    }

    /// 6.8
    pub(super) fn register(&mut self, queue: &Name, now: f64) {
        if self.zscore(b"ql:queues", queue).is_none() {
            self.zadd(b"ql:queues", now, queue);
        }
    }

    /// Waits for a job that exists and is not complete; true: it does now.
    pub(super) fn link(&mut self, jid: &Name, other: &Name) -> bool {
        if self.find(other).is_none_or(|other| other.state == State::Complete) {
            return false;
        }
        self.sadd(&redis::job(other, "dependents"), jid);
        self.sadd(&redis::job(jid, "dependencies"), other);
        true
    }

    pub(super) fn unlink(&mut self, jid: &Name, other: &Name) {
        self.srem(&redis::job(other, "dependents"), jid);
        self.srem(&redis::job(jid, "dependencies"), other);
    }
}

/// A job before anything is written.
pub(super) fn blank(jid: &Name) -> Job {
    Job {
        jid: jid.clone(),
        klass: "".into(),
        data: Bytes::new(),
        priority: 0.0,
        tags: Vec::new(),
        state: State::Waiting,
        worker: "".into(),
        expires: 0.0,
        queue: "".into(),
        retries: 5.0,
        remaining: 5.0,
        time: 0.0,
        failure: None,
        grace: false,
        scheduled: None,
        spawned_from: None,
        history: Vec::new(),
        throttles: Vec::new(),
        attempt: 0,
        result: None,
        report: None,
    }
}
