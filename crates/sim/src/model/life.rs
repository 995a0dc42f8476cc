//! What happens to a job after it was put: complete, fail, retry, heartbeat, depends, priority, timeout, cancel,
//! unfail, log (chapter 7).

use bytes::Bytes;
use haul_engine::{Complete, Event, Fail, Heartbeat, Lock, Name, Next, Refusal, Retry, State, TrackedEvent};

use super::redis;
use super::{Cx, Job, Outcome, Tenant, Twist};
use crate::answer::{Answer, FailureSeen};

impl Tenant {
    /// The job, if it runs and is held by whoever claims so.
    pub(super) fn running(
        &self,
        jid: &Name,
        worker: Option<&Name>,
        attempt: Option<u32>,
    ) -> Result<Job, Refusal> {
        let job = self.job(jid)?;
        if job.state != State::Running {
            return Err(Refusal::NotRunning { jid: jid.clone(), state: job.state });
        }
        if worker.is_some_and(|worker| *worker != job.worker)
            || attempt.is_some_and(|attempt| attempt != job.attempt)
        {
            return Err(Refusal::NotHeld { jid: jid.clone(), worker: job.worker });
        }
        Ok(job)
    }

    /// 7.2
    pub(super) fn complete(&mut self, cx: &mut Cx, complete: &Complete) -> Result<State, Refusal> {
        let jid = &complete.jid;
        let job = self.running(jid, complete.worker.as_ref(), complete.attempt)?;
        if complete.queue.as_ref().is_some_and(|queue| *queue != job.queue) {
            return Err(Refusal::WrongQueue { jid: jid.clone(), queue: job.queue });
        }
        self.note(jid, cx.now, "done".to_owned());
        self.edit(jid, |job| {
            if let Some(data) = complete.data.clone().filter(|_| cx.twist != Some(Twist::CompleteKeepsData)) {
                job.data = data;
            }
            job.result = complete.result.clone();
        });
        self.remove_job(jid);
        self.release_all(cx, jid);
        self.day(&job.queue, cx.now).run.push(cx.now - job.time);
        self.zrem(&redis::worker(&job.worker), jid);
        self.emit_tracked(cx, TrackedEvent::Completed, jid);
        self.clear_checkpoint(jid);
        self.edit(jid, |job| {
            job.time = cx.now;
            job.worker = "".into();
            job.failure = None;
            job.expires = 0.0;
            job.remaining = job.retries;
        });
        Ok(match &complete.next {
            Some(next) => self.advance(cx, jid, next),
            None => self.finish(cx, jid),
        })
    }

    pub(super) fn complete_many(&mut self, cx: &mut Cx, worker: &Name, jids: &[Name]) -> Answer {
        let mut each = Vec::new();
        for jid in jids {
            let complete = Complete {
                jid: jid.clone(),
                worker: Some(worker.clone()),
                queue: None,
                attempt: None,
                data: None,
                result: None,
                next: None,
            };
            each.push(self.complete(cx, &complete).map(|_| 0.0));
        }
        Answer::Each(each)
    }

    fn advance(&mut self, cx: &mut Cx, jid: &Name, next: &Next) -> State {
        let from = self.find(jid).map(|job| job.queue.clone()).unwrap_or_else(|| "".into());
        cx.emit(Event::Advanced { jid: jid.clone(), queue: from, to: next.queue.clone() });
        self.note(jid, cx.now, format!("put {}", next.queue));
        self.register(&next.queue, cx.now);
        self.edit(jid, |job| job.queue = next.queue.clone());
        let state = if next.delay > 0.0 && next.depends.is_empty() {
            self.zadd(&redis::queue(&next.queue, "scheduled"), cx.now + next.delay, jid);
            State::Scheduled
        } else {
            let linked = next.depends.iter().filter(|other| self.link(jid, other)).count();
            if linked > 0 {
                self.zadd(&redis::queue(&next.queue, "depends"), cx.now, jid);
                State::Depends
            } else {
                self.enter_work(jid, cx.now);
                State::Waiting
            }
        };
        self.edit(jid, |job| {
            job.state = state;
            if state == State::Depends && next.delay > 0.0 {
                job.scheduled = Some(cx.now + next.delay);
            }
        });
        state
    }

    fn finish(&mut self, cx: &mut Cx, jid: &Name) -> State {
        let queue = self.find(jid).map(|job| job.queue.clone()).unwrap_or_else(|| "".into());
        cx.emit(Event::Completed { jid: jid.clone(), queue });
        self.edit(jid, |job| {
            job.state = State::Complete;
            job.queue = "".into();
        });
        self.zadd(b"ql:completed", cx.now, jid);
        let dependents = self.smembers(&redis::job(jid, "dependents"));
        for dependent in dependents {
            self.unlink(&dependent, jid);
            self.release_dependent(cx, &dependent, true);
        }
        self.purge(cx);
        State::Complete
    }

    /// 6.6, for one job that may have nothing left to wait for.
    fn release_dependent(&mut self, cx: &Cx, jid: &Name, use_schedule: bool) {
        let Ok(job) = self.job(jid) else { return };
        let free = self.smembers(&redis::job(jid, "dependencies")).is_empty();
        if !free || !self.zrem(&redis::queue(&job.queue, "depends"), jid) {
            return;
        }
        self.edit(jid, |job| job.scheduled = None);
        match job.scheduled.filter(|_| use_schedule) {
            Some(due) => {
                self.zadd(&redis::queue(&job.queue, "scheduled"), due, jid);
                self.edit(jid, |job| job.state = State::Scheduled);
            }
            None => {
                self.enter_work(jid, cx.now);
                self.edit(jid, |job| job.state = State::Waiting);
            }
        }
    }

    /// 6.7
    fn purge(&mut self, cx: &Cx) {
        let age = self.number("jobs-history").unwrap_or(604_800.0);
        for jid in self.zrangebyscore(b"ql:completed", 0.0, cx.now - age) {
            self.delete(cx, &jid);
        }
        let kept = self.number("jobs-history-count").unwrap_or(50_000.0).max(0.0) as usize;
        let all = self.members(b"ql:completed");
        for jid in all.iter().take(all.len().saturating_sub(kept)) {
            self.delete(cx, jid);
        }
    }

    /// The job's hash, history, tags and links go. Locks and lines of throttles are the caller's.
    pub(super) fn delete(&mut self, cx: &Cx, jid: &Name) {
        self.unindex_tags(cx, jid);
        self.zrem(b"ql:completed", jid);
        for other in self.smembers(&redis::job(jid, "dependencies")) {
            self.unlink(jid, &other);
        }
        for other in self.smembers(&redis::job(jid, "dependents")) {
            self.unlink(&other, jid);
        }
        self.jobs.retain(|job| job.jid != *jid);
    }

    /// 7.3; without a worker (14.2) in any state but complete.
    pub(super) fn fail(&mut self, cx: &mut Cx, fail: &Fail) -> Outcome {
        let jid = &fail.jid;
        let job = match &fail.worker {
            Some(worker) => self.running(jid, Some(worker), fail.attempt)?,
            None => self.job(jid)?,
        };
        if job.state == State::Complete {
            return Err(Refusal::NotRunning { jid: jid.clone(), state: job.state });
        }
        let worker = fail.worker.clone().unwrap_or_else(|| job.worker.clone());
        let (group, message) = (fail.group.clone(), fail.message.clone());
        cx.emit(Event::Failed { jid: jid.clone(), group, worker: worker.clone(), message });
        self.emit_tracked(cx, TrackedEvent::Failed, jid);
        self.zrem(&redis::worker(&job.worker), jid);
        self.leave_failures(&job);
        self.note(jid, cx.now, format!("failed {worker} {}", fail.group));
        self.remove_job(jid);
        self.release_all(cx, jid);
        if let Some(data) = fail.data.clone() {
            self.edit(jid, |job| job.data = data);
        }
        let failure = FailureSeen {
            group: fail.group.clone(),
            message: fail.message.clone(),
            when: cx.now.floor(),
            worker,
            queue: job.queue,
        };
        self.enter_failed(cx, jid, failure);
        Ok(Answer::Name(jid.clone()))
    }

    /// State, failure, group and counters of a job that just failed.
    pub(super) fn enter_failed(&mut self, cx: &Cx, jid: &Name, failure: FailureSeen) {
        self.lpush(&redis::group(&failure.group), jid);
        let day = self.day(&failure.queue, cx.now);
        day.failures = Some(day.failures.unwrap_or(0) + 1);
        day.failed = Some(day.failed.unwrap_or(0) + 1);
        self.edit(jid, |job| {
            job.state = State::Failed;
            job.worker = "".into();
            job.expires = 0.0;
            job.failure = Some(failure);
        });
    }

    /// 7.6
    pub(super) fn heartbeat(&mut self, cx: &mut Cx, beat: &Heartbeat) -> Result<f64, Refusal> {
        let jid = &beat.jid;
        let job = self.running(jid, Some(&beat.worker), beat.attempt)?;
        if job.worker.is_empty() {
            return Err(Refusal::NotHeld { jid: jid.clone(), worker: job.worker });
        }
        let expires = self.expiry(cx, &job.queue, beat.lock);
        self.edit(jid, |job| {
            job.expires = expires;
            job.data = beat.data.clone().unwrap_or_else(|| job.data.clone());
            if cx.twist == Some(Twist::HeartbeatClearsWarning) {
                job.grace = false;
            }
        });
        self.zadd(&redis::worker(&beat.worker), expires, jid);
        self.zadd(&redis::queue(&job.queue, "locks"), expires, jid);
        if cx.rules.heartbeat_is_life {
            self.zadd(b"ql:workers", cx.now, &beat.worker);
        }
        Ok(expires)
    }

    pub(super) fn expiry(&self, cx: &Cx, queue: &Name, lock: Lock) -> f64 {
        match lock {
            Lock::Option => cx.now + self.heartbeat_interval(queue),
            Lock::Seconds(seconds) => cx.now + seconds,
            Lock::Until(moment) => moment,
        }
    }

    pub(super) fn heartbeat_many(&mut self, cx: &mut Cx, worker: &Name, jids: &[Name]) -> Answer {
        let mut each = Vec::new();
        for jid in jids {
            let (jid, worker) = (jid.clone(), worker.clone());
            each.push(
                self.heartbeat(cx, &Heartbeat { jid, worker, attempt: None, lock: Lock::Option, data: None }),
            );
        }
        Answer::Each(each)
    }

    /// 7.9
    pub(super) fn retry(&mut self, cx: &mut Cx, retry: &Retry) -> Outcome {
        let jid = &retry.jid;
        let job = self.running(jid, Some(&retry.worker), retry.attempt)?;
        let queue = retry.queue.clone().unwrap_or_else(|| job.queue.clone());
        let remaining = job.remaining - 1.0;
        self.edit(jid, |job| {
            job.remaining = remaining;
            job.grace = false;
        });
        self.zrem(&redis::queue(&job.queue, "locks"), jid);
        self.release_all(cx, jid);
        self.zrem(&redis::worker(&retry.worker), jid);
        let given = retry.group.clone().zip(retry.message.clone()).map(|(group, message)| FailureSeen {
            group,
            message,
            when: cx.now.floor(),
            worker: retry.worker.clone(),
            queue: queue.clone(),
        });
        if remaining < 0.0 {
            let group = retry.group.clone().unwrap_or_else(|| format!("failed-retries-{queue}").into());
            let word = if cx.rules.exhaustion_quiet { "failed-retries" } else { "failed" };
            self.note(jid, cx.now, format!("{word} {group}"));
            let message = exhausted(&job.queue);
            let own = FailureSeen { group, message, when: cx.now, worker: "".into(), queue };
            self.enter_failed(cx, jid, given.unwrap_or(own));
            if !cx.rules.exhaustion_quiet {
                self.emit_tracked(cx, TrackedEvent::Failed, jid);
            }
            return Ok(Answer::Number(remaining));
        }
        if queue != job.queue {
            self.register(&queue, cx.now);
        }
        if let Some(given) = given.as_ref().filter(|_| cx.rules.retries_noted) {
            self.note(jid, cx.now, format!("log retried: {} ", given.group));
        }
        self.edit(jid, |job| {
            job.queue = queue.clone();
            job.failure = given.or(job.failure.take());
            job.state = if retry.delay > 0.0 { State::Scheduled } else { State::Waiting };
        });
        if retry.delay > 0.0 {
            self.zadd(&redis::queue(&queue, "scheduled"), cx.now + retry.delay, jid);
        } else {
            self.enter_work(jid, cx.now);
        }
        Ok(Answer::Number(remaining))
    }

    /// 7.10
    pub(super) fn depends(
        &mut self,
        cx: &mut Cx,
        jid: &Name,
        on: Option<bool>,
        others: (&[Name], bool),
    ) -> Outcome {
        let state = self.find(jid).map(|job| job.state);
        if state != Some(State::Depends) {
            return Err(Refusal::NotDepends { jid: jid.clone(), state });
        }
        let (jids, all) = others;
        match on {
            None => return Err(Refusal::NeitherOnNorOff),
            Some(true) => {
                for other in jids {
                    self.link(jid, other);
                }
            }
            Some(false) => {
                let gone = if all { self.smembers(&redis::job(jid, "dependencies")) } else { jids.to_vec() };
                gone.iter().for_each(|other| self.unlink(jid, other));
                self.release_dependent(cx, jid, false);
            }
        }
        Ok(Answer::Done)
    }

    /// 7.11
    pub(super) fn priority(&mut self, jid: &Name, priority: f64) -> Outcome {
        let job = self.job(jid)?;
        let work = redis::queue(&job.queue, "work");
        if self.zscore(&work, jid).is_some() {
            self.zadd(&work, priority, jid);
        }
        self.edit(jid, |job| job.priority = priority);
        Ok(Answer::Number(priority))
    }

    /// 7.22
    pub(super) fn timeout(&mut self, cx: &mut Cx, jids: &[Name]) -> Answer {
        if cx.rules.timeout_whole {
            for (at, jid) in jids.iter().enumerate() {
                if let Err(refusal) = self.running(jid, None, None) {
                    return Answer::Stopped(Some(refusal));
                }
                if jids.iter().take(at).any(|earlier| earlier == jid) {
                    return Answer::Stopped(Some(Refusal::NotRunning {
                        jid: jid.clone(),
                        state: State::Stalled,
                    }));
                }
            }
        }
        for jid in jids {
            let job = match self.running(jid, None, None) {
                Err(refusal) => return Answer::Stopped(Some(refusal)),
                Ok(job) => job,
            };
            self.note(jid, cx.now, "timed-out".to_owned());
            self.zrem(&redis::queue(&job.queue, "locks"), jid);
            self.zrem(&redis::worker(&job.worker), jid);
            self.release_all(cx, jid);
            self.zadd(&redis::queue(&job.queue, "work"), f64::INFINITY, jid);
            self.edit(jid, |job| {
                job.state = State::Stalled;
                job.expires = 0.0;
                if cx.rules.timeout_clears_worker {
                    job.worker = "".into();
                }
            });
            cx.emit(Event::LockLost { jid: jid.clone(), worker: job.worker });
        }
        Answer::Stopped(None)
    }

    /// 7.21
    pub(super) fn cancel(&mut self, cx: &mut Cx, jids: &[Name]) -> Outcome {
        for jid in jids {
            for by in self.smembers(&redis::job(jid, "dependents")) {
                if !jids.contains(&by) {
                    return Err(Refusal::Needed { jid: jid.clone(), by });
                }
            }
        }
        let mut existed = 0;
        for jid in jids {
            let Some(job) = self.find(jid).cloned() else {
                cx.emit(Event::Canceled { jid: jid.clone(), queue: None, worker: None });
                self.emit_tracked(cx, TrackedEvent::Canceled, jid);
                continue;
            };
            if job.state == State::Complete {
                continue;
            }
            existed += 1;
            let (queue, worker) = (Some(job.queue.clone()), Some(job.worker.clone()));
            cx.emit(Event::Canceled { jid: jid.clone(), queue, worker });
            self.zrem(&redis::worker(&job.worker), jid);
            self.remove_job(jid);
            self.release_all(cx, jid);
            self.leave_failures(&job);
            self.delete(cx, jid);
            self.emit_tracked(cx, TrackedEvent::Canceled, jid);
        }
        Ok(Answer::Int(existed))
    }

    /// 7.23
    pub(super) fn unfail(&mut self, cx: &mut Cx, queue: &Name, group: &Name, count: usize) -> Answer {
        let key = redis::group(group);
        let oldest: Vec<Name> = self.lrange(&key).into_iter().rev().take(count).collect();
        for jid in &oldest {
            self.lrem(&key, jid);
            self.note(jid, cx.now, format!("put {queue}"));
            self.edit(jid, |job| {
                job.state = State::Waiting;
                job.worker = "".into();
                job.expires = 0.0;
                job.queue = queue.clone();
                job.remaining = job.retries;
            });
            self.enter_work(jid, cx.now);
            self.register(queue, cx.now);
        }
        Answer::Int(oldest.len() as i64)
    }

    /// 7.17
    pub(super) fn log(&mut self, cx: &Cx, jid: &Name, message: &Name, data: Option<&Bytes>) -> Outcome {
        self.job(jid)?;
        let data = data.map(|data| String::from_utf8_lossy(data).into_owned()).unwrap_or_default();
        self.note(jid, cx.now, format!("log {message} {data}"));
        Ok(Answer::Done)
    }
}

/// What a job that has no retries left says of itself.
pub(super) fn exhausted(queue: &Name) -> Bytes {
    Bytes::from(format!("Job exhausted retries in queue \"{queue}\""))
}
