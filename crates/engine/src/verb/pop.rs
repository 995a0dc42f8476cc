//! Pop and peek: expired locks first, then what recurs and what is due, then work in order.

use bytes::Bytes;

use crate::job::{Flag, Job, Place, State, What};
use crate::record::Key;
use crate::score::{Score, up_to};
use crate::tenant::{Cx, Indexes, Tenant};
use crate::{Event, Failure, Grace, Kind, Lock, Name, Pop, Recur, Reply, TrackedEvent, throttle};

impl Tenant {
    pub(super) fn pop(&mut self, cx: &mut Cx<'_>, pop: &Pop) -> Reply {
        let mut popped = Vec::new();
        if pop.round_robin {
            self.pop_in_turn(cx, pop, &mut popped);
        } else {
            for queue in &pop.queues {
                let wanted = pop.count - popped.len();
                self.pop_queue(cx, pop, queue, wanted, &mut popped);
                if popped.len() >= pop.count {
                    break;
                }
            }
        }
        Reply::Jobs(self.views(&popped))
    }

    /// One from each queue that still gives, until there are enough.
    fn pop_in_turn(&mut self, cx: &mut Cx<'_>, pop: &Pop, popped: &mut Vec<Name>) {
        let mut giving: Vec<&Name> = pop.queues.iter().collect();
        while !giving.is_empty() && popped.len() < pop.count {
            giving.retain(|queue| {
                if popped.len() >= pop.count {
                    return true;
                }
                let before = popped.len();
                self.pop_queue(cx, pop, queue, 1, popped);
                popped.len() > before
            });
        }
    }

    /// Adds at most `count` jobs to those popped.
    pub(super) fn pop_queue(
        &mut self,
        cx: &mut Cx<'_>,
        pop: &Pop,
        name: &Name,
        count: usize,
        popped: &mut Vec<Name>,
    ) {
        let queue = self.indexes.queues.get(name);
        if queue.is_some_and(|queue| queue.paused) {
            return;
        }
        let due = queue.map(|queue| queue.due(cx.now));
        let worker = self.indexes.names.shared(pop.worker.bytes());
        self.indexes.saw_worker(&worker, cx.now);
        let count = self.allowed(cx, name, count);
        let Some(due) = due.filter(|_| count > 0) else { return };
        let expires = match pop.lock {
            Lock::Option => cx.now + self.indexes.config.heartbeat(name),
            Lock::Seconds(seconds) => cx.now + seconds,
            Lock::Until(moment) => moment,
        };
        let mut missing = count;
        if due.locks {
            for jid in self.expire_locks(cx, pop, name, count) {
                if let Some(job) = self.jobs.get_mut(&jid) {
                    self.indexes.hand_out(cx, job, &worker, expires);
                }
                popped.push(jid);
                missing -= 1;
            }
        }
        if !self.indexes.throttles.is_empty()
            && !self.indexes.is_available(&throttle::of_queue(name), cx.clock)
        {
            return;
        }
        if due.recurring {
            self.spawn_recurring(cx, name, missing);
        }
        if due.scheduled {
            self.move_due(cx, name, missing);
        }
        self.take_work(cx, pop, name, missing, popped, (&worker, expires));
    }

    /// How many of `count` the concurrency option lets through.
    fn allowed(&self, cx: &Cx<'_>, name: &Name, count: usize) -> usize {
        let limit = self.indexes.config.max_concurrency(name).filter(|_| cx.rules.concurrency_option);
        let (Some(limit), Some(queue)) = (limit, self.indexes.queues.get(name)) else { return count };
        let running = queue.locks.range((Score::new(cx.now), Name::new(b""))..).count() as f64;
        count.min((limit - running).max(0.0) as usize)
    }

    #[expect(clippy::too_many_arguments, reason = "one step of pop_queue, cut out for its length")]
    fn take_work(
        &mut self,
        cx: &mut Cx<'_>,
        pop: &Pop,
        name: &Name,
        mut missing: usize,
        popped: &mut Vec<Name>,
        lock: (&Name, f64),
    ) {
        let mut rounds =
            if cx.rules.pop_rounds_option { self.indexes.config.max_pop_retry(name) } else { f64::INFINITY };
        while missing > 0 && rounds > 0.0 {
            let Some(queue) = self.indexes.queues.get(name) else { return };
            // One of any klass is the last: most pops need no list.
            let last = queue.work.last().filter(|_| missing == 1 && pop.klasses.is_empty());
            if let Some((_, jid)) = last {
                let jid = jid.clone();
                missing -= usize::from(self.take_one(cx, &jid, lock));
                if missing == 0 {
                    popped.push(jid);
                }
            } else {
                let next = self.wanted(pop, queue.work.iter().rev().map(|(_, jid)| jid), missing);
                if next.is_empty() {
                    return;
                }
                for jid in next {
                    if self.take_one(cx, &jid, lock) {
                        popped.push(jid);
                        missing -= 1;
                    }
                }
            }
            rounds -= 1.0;
        }
    }

    /// Hands one out that is in work, or holds it back behind a throttle that is full; says which.
    fn take_one(&mut self, cx: &mut Cx<'_>, jid: &Name, (worker, expires): (&Name, f64)) -> bool {
        let Some(job) = self.jobs.get_mut(jid) else { return false };
        self.indexes.leave(cx, job);
        if let Some(full) = self.indexes.unavailable(job, cx.clock) {
            let sight = cx.sight(job);
            cx.tell(sight, Kind::Throttled, State::Throttled, Some(full.clone()));
            self.indexes.throttle(cx, job, full);
            return false;
        }
        self.indexes.acquire(job);
        self.indexes.hand_out(cx, job, worker, expires);
        true
    }

    /// The first `count` of the klasses asked for, among as many as may be looked at.
    fn wanted<'a>(&self, pop: &Pop, jids: impl Iterator<Item = &'a Name>, count: usize) -> Vec<Name> {
        if pop.klasses.is_empty() {
            return jids.take(count).cloned().collect();
        }
        let is_wanted = |jid: &&Name| self.jobs.get(*jid).is_some_and(|job| pop.klasses.contains(&job.klass));
        jids.take(KLASS_WALK_MAX).filter(is_wanted).take(count).cloned().collect()
    }

    /// Locks that ran out: their workers are warned, or lose the job. The jobs to hand over, still in the lock index:
    /// they keep their throttles.
    fn expire_locks(&mut self, cx: &mut Cx<'_>, pop: &Pop, name: &Name, count: usize) -> Vec<Name> {
        let Some(queue) = self.indexes.queues.get(name) else { return Vec::new() };
        let most = if pop.klasses.is_empty() { count } else { KLASS_WALK_MAX };
        let expired = up_to(&queue.locks, f64::NEG_INFINITY, cx.now, most);
        let expired = self.wanted(pop, expired.iter().map(|(_, jid)| jid), count);
        let grace = match cx.rules.grace {
            Grace::Option => self.indexes.config.grace_period(),
            Grace::None => 0.0,
        };
        let mut handed_over = Vec::new();
        for jid in expired {
            let Some(job) = self.jobs.get_mut(&jid) else { continue };
            self.indexes.unhold(job);
            let warned = job.flags.has(Flag::Warned);
            if !warned || grace <= 0.0 {
                self.indexes.warn(cx, job, grace);
            }
            if (warned || grace <= 0.0) && self.hand_over(cx, &jid, name) {
                handed_over.push(jid);
            }
        }
        handed_over
    }

    /// The lock is gone for good: a retry is spent, or the job fails. True: the next worker gets it.
    fn hand_over(&mut self, cx: &mut Cx<'_>, jid: &Name, popping: &Name) -> bool {
        let Some(job) = self.jobs.get_mut(jid) else { return false };
        job.flags.set(Flag::Warned, false);
        self.indexes.mark(job);
        if cx.rules.retries_counted {
            job.set_remaining(job.remaining() - 1.0);
        }
        if job.remaining() >= 0.0 || !cx.rules.retries_counted {
            return true;
        }
        self.indexes.leave(cx, job);
        let waiters = self.exhaust_by_pop(cx, jid, popping);
        self.admit_all(cx, &waiters);
        false
    }

    fn exhaust_by_pop(&mut self, cx: &mut Cx<'_>, jid: &Name, popping: &Name) -> Vec<Name> {
        let Some(job) = self.jobs.get_mut(jid) else { return Vec::new() };
        let group = Name::new(&[b"failed-retries-", job.queue.bytes()].concat());
        let message = exhausted_message(popping);
        // Its run ended with its lock, not now.
        if let Some(sight) = cx.sight(job) {
            let sight = Box::new(crate::Notice { since: cx.now, ..*sight });
            cx.tell(Some(sight), Kind::Failed, State::Failed, Some(group.clone()));
        }
        let worker = job.clear_lock().unwrap_or_else(|| self.indexes.names.none());
        self.indexes.release_locks(job);
        self.indexes.note(cx, job, cx.now, What::Exhausted(group.clone()));
        job.state = State::Failed;
        let failure = Failure {
            group: group.clone(),
            message: cx.keep(message.clone()),
            when: cx.now,
            worker: self.indexes.names.shared(b""),
            queue: self.indexes.names.shared(popping.bytes()),
        };
        set_failure(cx, job, failure);
        self.indexes.enter_group(cx, job);
        self.indexes.emit_tracked(cx, TrackedEvent::Failed, jid);
        cx.emit(Event::Failed { jid: jid.clone(), group, worker, message });
        self.indexes.count_failure(popping, cx.now);
        match self.jobs.get(jid) {
            Some(job) => self.indexes.throttles_of(job),
            None => Vec::new(),
        }
    }

    pub(super) fn peek(&mut self, cx: &mut Cx<'_>, name: &Name, offset: usize, count: usize) -> Reply {
        let wanted = if count == 0 { 0 } else { offset.saturating_add(count) };
        let Some(queue) = self.indexes.queues.get(name) else { return Reply::Jobs(Vec::new()) };
        let expired = up_to(&queue.locks, f64::NEG_INFINITY, cx.now, wanted);
        let mut jids: Vec<Name> = expired.into_iter().map(|(_, jid)| jid).collect();
        let missing = wanted - jids.len();
        self.spawn_recurring(cx, name, missing);
        self.move_due(cx, name, missing);
        if let Some(queue) = self.indexes.queues.get(name) {
            jids.extend(queue.work.iter().rev().take(missing).map(|(_, jid)| jid.clone()));
        }
        jids.drain(..offset.min(jids.len()));
        Reply::Jobs(self.views(&jids))
    }

    /// Makes the children that are due, at most `count`.
    fn spawn_recurring(&mut self, cx: &mut Cx<'_>, name: &Name, count: usize) {
        if cx.round.frozen {
            return;
        }
        let Some(queue) = self.indexes.queues.get(name) else { return };
        let count = count.min(SPAWN_COUNT_MAX);
        let due = up_to(&queue.recurring, 0.0, cx.now, count);
        let mut moved = 0;
        for (_, jid) in due {
            let Some(recur) = self.indexes.recurs.get(&jid) else { continue };
            let mut recur = recur.clone();
            let before = recur.due();
            recur.skip_missed(cx.now);
            let mut spawned = false;
            while recur.next <= cx.now && moved < count && cx.round.bodies_bytes() < SPAWN_BYTES_MAX {
                recur.count += 1;
                moved += 1;
                spawned = true;
                self.spawn(cx, &recur);
                recur.advance();
            }
            if spawned {
                self.reschedule(&mut recur, before);
                self.indexes.recurs.insert(jid.clone(), recur);
                self.indexes.dirty.insert(Key::Recur(jid));
            }
        }
    }

    /// Moves a definition from its old next time to its new one.
    fn reschedule(&mut self, recur: &mut Recur, before: f64) {
        let index = &mut self.indexes.queue(&recur.queue).recurring;
        index.remove(&(Score::new(before), recur.jid.clone()));
        index.insert((Score::new(recur.due()), recur.jid.clone()));
    }

    /// One child, nominally at `recur.next`; answers its jid.
    pub(super) fn spawn(&mut self, cx: &mut Cx<'_>, recur: &Recur) -> Name {
        let jid = Name::new(&[recur.jid.bytes(), b"-", recur.count.to_string().as_bytes()].concat());
        // A job of this very name is replaced; whoever waits for it waits for the child.
        let old = self.jobs.get_mut(&jid).and_then(|job| job.more.as_deref_mut());
        let mut dependents = old.map(|more| std::mem::take(&mut more.dependents)).unwrap_or_default();
        dependents.remove(&jid);
        let waiters = match self.jobs.get(&jid) {
            Some(job) if job.place == Place::Locks => self.indexes.throttles_of(job),
            _ => Vec::new(),
        };
        self.delete(cx, &jid);
        let nobody = self.indexes.names.shared(b"");
        let mut job =
            Box::new(Job::new(jid.clone(), &self.indexes.names.shared(recur.queue.bytes()), &nobody));
        job.klass = self.indexes.names.shared(recur.klass.bytes());
        job.data = cx.keep(Bytes::copy_from_slice(recur.data.bytes()));
        job.set_priority(recur.priority);
        job.set_retries(recur.retries);
        job.set_remaining(recur.retries);
        job.time = recur.next;
        job.more().spawned_from = Some(recur.jid.clone());
        job.more().throttles = recur.throttles.clone();
        job.more().dependents = dependents;
        self.indexes.note(cx, &mut job, recur.next, What::Put(recur.queue.clone()));
        self.indexes.retag(cx, &mut job, recur.tags.clone());
        self.indexes.enter_work(cx, &mut job, recur.next);
        let sight = cx.sight(&job);
        cx.tell(sight, Kind::Spawned, State::Waiting, Some(recur.jid.clone()));
        self.jobs.insert(job);
        self.admit_all(cx, &waiters);
        jid
    }
}

/// Jobs of a queue that a pop by klass looks at, at most, in the order of work: who wants one klass of a long mixed queue
/// is better served by a queue of its own.
pub const KLASS_WALK_MAX: usize = 1000;
/// Children made by one pop or peek at most: a definition can be due without number, and the caller asks for what it
/// likes. The next pop makes the next ones.
const SPAWN_COUNT_MAX: usize = 10_000;
/// No more children are made in a round that has this many bytes to store.
const SPAWN_BYTES_MAX: usize = 64 << 20;

/// What a job that has no retries left says of itself.
pub(super) fn exhausted_message(queue: &Name) -> Bytes {
    [b"Job exhausted retries in queue \"", queue.bytes(), b"\""].concat().into()
}

/// Replaces a job's failure, and the body its old message had.
pub(super) fn set_failure(cx: &mut Cx<'_>, job: &mut Job, failure: Failure) {
    clear_failure(cx, job);
    job.more().failure = Some(failure);
}

/// Forgets a job's failure.
pub(super) fn clear_failure(cx: &mut Cx<'_>, job: &mut Job) {
    if let Some(old) = job.more.as_deref_mut().and_then(|more| more.failure.take()) {
        cx.forget(&old.message);
    }
}

impl Indexes {
    /// Locks a job for a worker, of whom it has the shared name. It comes from work and is in no index, or its lock passes
    /// from another worker.
    fn hand_out(&mut self, cx: &mut Cx<'_>, job: &mut Job, worker: &Name, expires: f64) {
        let since = job.available_since();
        self.note(cx, job, cx.now, What::Popped(worker.clone()));
        let waited = cx.now - job.time;
        self.day(&job.queue, cx.now).wait.add(waited);
        job.time = cx.now;
        let run = job.run();
        run.attempt = run.attempt.wrapping_add(1);
        job.state = State::Running;
        self.hold(job, worker.clone(), expires);
        match job.place {
            Place::Locks => self.relock(cx, job, expires),
            _ => self.enter(cx, job, Place::Locks, expires),
        }
        self.emit_tracked(cx, TrackedEvent::Popped, &job.jid);
        if let Some(sight) = cx.sight(job) {
            cx.tell(Some(Box::new(crate::Notice { since, ..*sight })), Kind::Popped, State::Running, None);
        }
    }

    /// Tells the world that a lock ran out; the job stays with its worker for the grace period.
    fn warn(&mut self, cx: &mut Cx<'_>, job: &mut Job, grace: f64) {
        self.emit_tracked(cx, TrackedEvent::Stalled, &job.jid);
        self.note(cx, job, cx.now, What::TimedOut);
        job.flags.set(Flag::Warned, true);
        cx.emit(Event::LockLost { jid: job.jid.clone(), worker: self.worker_of(job) });
        cx.tell_lost(job, job.state, "expired");
        self.relock(cx, job, cx.now + grace);
        *self.day(&job.queue, cx.now).retries.get_or_insert(0) += 1;
    }
}
