//! Pop, peek and what they set in motion: expired locks (6.5), recurring children (6.4), due jobs (6.3).

use bytes::Bytes;
use haul_engine::{Event, Grace, Name, Pop, State, TrackedEvent};

use super::put::blank;
use super::redis::{self, queue_throttle};
use super::{Cx, Tenant, Twist};
use crate::answer::{Answer, FailureSeen};

impl Tenant {
    /// 7.12 and 12.3, over one queue or several.
    pub(super) fn pop(&mut self, cx: &mut Cx, pop: &Pop) -> Answer {
        let mut popped: Vec<Name> = Vec::new();
        if pop.round_robin {
            let mut giving = pop.queues.clone();
            while popped.len() < pop.count && !giving.is_empty() {
                let mut still_giving = Vec::new();
                for queue in giving {
                    let asked = popped.len() < pop.count;
                    let got = if asked { self.pop_queue(cx, pop, &queue, 1) } else { Vec::new() };
                    if !asked || !got.is_empty() {
                        still_giving.push(queue);
                    }
                    popped.extend(got);
                }
                giving = still_giving;
            }
        } else {
            for queue in &pop.queues {
                let got = self.pop_queue(cx, pop, queue, pop.count - popped.len());
                popped.extend(got);
                if popped.len() == pop.count {
                    break;
                }
            }
        }
        Answer::Jobs(self.views(&popped))
    }

    fn pop_queue(&mut self, cx: &mut Cx, pop: &Pop, queue: &Name, count: usize) -> Vec<Name> {
        if self.sets.get(&b"ql:paused_queues"[..]).is_some_and(|paused| paused.contains(queue)) {
            return Vec::new();
        }
        self.zadd(b"ql:workers", cx.now, &pop.worker);
        let mut count = count;
        let limit = self.number(&format!("{queue}-max-concurrency")).unwrap_or(0.0);
        if cx.rules.concurrency_option && limit > 0.0 {
            let running = self.zrangebyscore(&redis::queue(queue, "locks"), cx.now, f64::INFINITY).len();
            count = count.min((limit - running as f64).max(0.0) as usize);
        }
        if count == 0 {
            return Vec::new();
        }
        let expires = self.expiry(cx, queue, pop.lock);
        let mut popped = self.expired_locks(cx, queue, count);
        for jid in &popped {
            self.pop_job(cx, jid, &pop.worker, expires);
        }
        if !self.available(cx, &queue_throttle(queue)) {
            return popped;
        }
        let missing = count - popped.len();
        self.spawn_recurring(cx, queue, missing);
        self.move_due(cx, queue, missing);
        self.pop_work(cx, (queue, count), &mut popped, (&pop.worker, expires));
        popped
    }

    fn pop_work(&mut self, cx: &mut Cx, from: (&Name, usize), popped: &mut Vec<Name>, by: (&Name, f64)) {
        let (queue, count) = from;
        let own = self.number(&format!("{queue}-max-pop-retry")).or_else(|| self.number("max-pop-retry"));
        let mut rounds = if cx.rules.pop_rounds_option { own.unwrap_or(1.0) } else { f64::INFINITY };
        while popped.len() < count && rounds > 0.0 {
            let jids: Vec<Name> = self.work_order(cx, queue).into_iter().take(count - popped.len()).collect();
            if jids.is_empty() {
                break;
            }
            for jid in jids {
                self.zrem(&redis::queue(queue, "work"), &jid);
                let ids = self.all_throttles(&jid);
                if ids.iter().all(|id| self.available(cx, id)) {
                    for id in &ids {
                        self.zadd(&redis::throttle(id, "locks"), 1.0, &jid);
                    }
                    self.pop_job(cx, &jid, by.0, by.1);
                    popped.push(jid);
                } else {
                    self.throttle(cx, &jid);
                }
            }
            rounds -= 1.0;
        }
    }

    /// The work index, the next job first (5.1).
    pub(super) fn work_order(&self, cx: &Cx, queue: &Name) -> Vec<Name> {
        let mut order = self.zrange(&redis::queue(queue, "work"));
        order.reverse();
        if cx.twist == Some(Twist::TiesAscending) {
            order.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        }
        order.into_iter().map(|(_, jid)| jid).collect()
    }

    /// 7.12, step 9.
    fn pop_job(&mut self, cx: &mut Cx, jid: &Name, worker: &Name, expires: f64) {
        let Ok(job) = self.job(jid) else { return };
        self.note(jid, cx.now, format!("popped {worker}"));
        self.day(&job.queue, cx.now).wait.push(cx.now - job.time);
        self.zadd(&redis::worker(worker), expires, jid);
        self.edit(jid, |job| {
            job.time = cx.now;
            job.worker = worker.clone();
            job.expires = expires;
            job.state = State::Running;
            job.attempt += 1;
        });
        self.zadd(&redis::queue(&job.queue, "locks"), expires, jid);
        self.emit_tracked(cx, TrackedEvent::Popped, jid);
    }

    /// 6.5: the jobs to hand over.
    fn expired_locks(&mut self, cx: &mut Cx, queue: &Name, count: usize) -> Vec<Name> {
        let locks = redis::queue(queue, "locks");
        let grace = match cx.rules.grace {
            Grace::Option => self.number("grace-period").unwrap_or(10.0),
            Grace::None => 0.0,
        };
        let mut handed_over = Vec::new();
        let expired = self.zrangebyscore(&locks, f64::NEG_INFINITY, cx.now);
        for jid in expired.into_iter().take(count) {
            let Ok(job) = self.job(&jid) else { continue };
            self.zrem(&redis::worker(&job.worker), &jid);
            if !job.grace || grace <= 0.0 {
                self.emit_tracked(cx, TrackedEvent::Stalled, &jid);
                self.note(&jid, cx.now, "timed-out".to_owned());
                self.edit(&jid, |job| job.grace = true);
                if cx.twist != Some(Twist::SilentWarning) {
                    cx.emit(Event::LockLost { jid: jid.clone(), worker: job.worker.clone() });
                }
                self.zadd(&locks, cx.now + grace, &jid);
                let day = self.day(queue, cx.now);
                day.retries = Some(day.retries.unwrap_or(0) + 1);
            }
            if !job.grace && grace > 0.0 {
                continue;
            }
            let remaining = if cx.rules.retries_counted { job.remaining - 1.0 } else { job.remaining };
            self.edit(&jid, |job| {
                job.grace = false;
                job.remaining = remaining;
            });
            if remaining < 0.0 && cx.rules.retries_counted {
                self.exhaust(cx, &jid, queue);
            } else {
                handed_over.push(jid);
            }
        }
        handed_over
    }

    /// No retries left, found out by a pop.
    fn exhaust(&mut self, cx: &mut Cx, jid: &Name, popping: &Name) {
        let Ok(job) = self.job(jid) else { return };
        self.remove_job(jid);
        self.release_all(cx, jid);
        let group: Name = format!("failed-retries-{}", job.queue).into();
        let message = super::life::exhausted(popping);
        self.note(jid, cx.now, format!("failed {group}"));
        let queue = popping.clone();
        let failure = FailureSeen {
            group: group.clone(),
            message: message.clone(),
            when: cx.now,
            worker: "".into(),
            queue,
        };
        self.enter_failed(cx, jid, failure);
        self.emit_tracked(cx, TrackedEvent::Failed, jid);
        cx.emit(Event::Failed { jid: jid.clone(), group, worker: job.worker, message });
    }

    /// 7.13
    pub(super) fn peek(&mut self, cx: &mut Cx, queue: &Name, offset: usize, count: usize) -> Answer {
        if count == 0 {
            return Answer::Jobs(Vec::new());
        }
        let wanted = offset + count;
        let expired = self.zrangebyscore(&redis::queue(queue, "locks"), f64::NEG_INFINITY, cx.now);
        let mut jids: Vec<Name> = expired.into_iter().take(wanted).collect();
        let missing = wanted - jids.len();
        self.spawn_recurring(cx, queue, missing);
        self.move_due(cx, queue, missing);
        jids.extend(self.work_order(cx, queue).into_iter().take(missing));
        let jids: Vec<Name> = jids.into_iter().skip(offset).collect();
        Answer::Jobs(self.views(&jids))
    }

    /// 6.3
    pub(super) fn move_due(&mut self, cx: &Cx, queue: &Name, count: usize) {
        let scheduled = redis::queue(queue, "scheduled");
        for jid in self.zrangebyscore(&scheduled, 0.0, cx.now).into_iter().take(count) {
            self.zrem(&scheduled, &jid);
            self.enter_work(&jid, cx.now);
            self.edit(&jid, |job| job.state = State::Waiting);
        }
    }

    /// 6.4
    fn spawn_recurring(&mut self, cx: &mut Cx, queue: &Name, count: usize) {
        let index = redis::queue(queue, "recur");
        let mut moved = 0;
        for jid in self.zrangebyscore(&index, 0.0, cx.now).into_iter().take(count) {
            let Some(recur) = self.recurs.iter().find(|recur| recur.jid == jid).cloned() else { continue };
            let mut next = self.zscore(&index, &jid).unwrap_or(0.0).floor();
            if recur.backlog != 0.0 {
                let missed = (cx.now - next) / recur.interval;
                if missed > recur.backlog {
                    next += (missed - recur.backlog).ceil() * recur.interval;
                }
            }
            while next <= cx.now && moved < count {
                self.spawn(cx, &jid, next);
                next += recur.interval;
                self.zadd(&index, next, &jid);
                moved += 1;
            }
        }
    }

    fn spawn(&mut self, cx: &mut Cx, parent: &Name, next: f64) {
        let Some(recur) = self.recurs.iter_mut().find(|recur| recur.jid == *parent) else { return };
        recur.count += 1;
        let recur = recur.clone();
        let jid: Name = format!("{parent}-{}", recur.count).into();
        // A job of that name goes; whoever waits for it waits for the child.
        let dependents = self.smembers(&redis::job(&jid, "dependents"));
        if let Some(old) = self.find(&jid).cloned() {
            self.zrem(&redis::worker(&old.worker), &jid);
            self.remove_job(&jid);
            if let (State::Failed, Some(failure)) = (old.state, &old.failure) {
                self.lrem(&redis::group(&failure.group), &jid);
            }
            if old.state == State::Running {
                self.release_all(cx, &jid);
            }
            self.delete(cx, &jid);
        }
        let mut job = blank(&jid);
        job.klass = recur.klass.clone();
        job.data = Bytes::copy_from_slice(recur.data.bytes());
        job.priority = recur.priority;
        job.tags = recur.tags.clone();
        job.queue = recur.queue.clone();
        (job.retries, job.remaining) = (recur.retries, recur.retries);
        job.time = next;
        job.throttles = recur.throttles.clone();
        job.spawned_from = Some(parent.clone());
        self.jobs.push(job);
        self.note(&jid, next, format!("put {}", recur.queue));
        if cx.rules.tags_indexed {
            recur.tags.iter().for_each(|tag| self.index_tag(cx, &jid, tag));
        }
        self.enter_work(&jid, next);
        for dependent in dependents.iter().filter(|dependent| **dependent != jid) {
            self.link(dependent, &jid);
        }
    }
}
