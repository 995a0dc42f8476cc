//! Blueque's lists, sets and sorted sets: which moves of jobs their changes are.

use bytes::Bytes;

use super::Answer;
use super::task::take_error;
use crate::job::{Job, Place, State};
use crate::score::Score;
use crate::task::{FAILED_GROUP, LOCK_ENDLESS, Role, TaskCommand};
use crate::tenant::{Cx, Tenant};
use crate::{
    Complete, Fail, KeyAnswer, KeyCommand, KeyType, Lock, Name, Pop, Put, PutWhen, Refusal, Reply, Text,
};

/// How far apart two entries of a list are in the work index: a microsecond.
const STEP: f64 = 1e-6 / 1e10;
/// Entries that are ahead of the clock by less than this were pushed, not given another priority: ten seconds.
const AHEAD: f64 = 10.0 / 1e10;
/// How far apart two endless locks end. Doubles of that size are 15 microseconds apart.
const LOCK_STEP: f64 = 1e-4;

impl Tenant {
    /// Pushes an id to a list. That the key is a list was checked.
    pub(super) fn push_id(&mut self, cx: &mut Cx<'_>, key: &Name, id: Name, left: bool) {
        match Role::of(key.bytes()) {
            Role::Pending(queue) => self.push_pending(cx, &queue, &id, left),
            Role::Complete(queue) => self.push_complete(cx, &queue, &id),
            Role::Failed(queue) => self.push_failed(cx, &queue, &id),
            Role::Reserved(names) if self.push_reserved(cx, &names, &id) => {}
            _ => {
                let values = vec![id];
                // That it is a list was checked.
                let _ = self.keyspace(cx, KeyCommand::Push { key: key.clone(), values, left });
            }
        }
    }

    /// Puts a job into a queue without changing what it is.
    fn put_task(&mut self, cx: &mut Cx<'_>, jid: &Name, queue: &Name, delay: f64) {
        self.ensure_task(cx, jid);
        let put = Put {
            jid: jid.clone(),
            queue: queue.clone(),
            worker: None,
            klass: None,
            data: None,
            delay,
            priority: None,
            tags: None,
            retries: None,
            depends: Vec::new(),
            throttles: Vec::new(),
            when: PutWhen::Always,
            trace: None,
        };
        self.put(cx, put, true);
    }

    /// To the end of the queue (or to its head), behind whatever was pushed before.
    fn push_pending(&mut self, cx: &mut Cx<'_>, queue: &Name, jid: &Name, left: bool) {
        self.put_task(cx, jid, queue, 0.0);
        let Some(job) = self.jobs.get_mut(jid) else { return };
        self.indexes.leave(cx, job);
        job.state = State::Waiting;
        let work = &self.indexes.queue(queue).work;
        let score = if left {
            let now = Job::work_score(job.priority(), cx.now);
            let ahead = work.range((Score::new(now - AHEAD), Name::new(b""))..).next();
            ahead
                .map(|(score, _)| score.get())
                .filter(|score| *score <= now)
                .map_or(now, |score| score - STEP)
        } else {
            work.last()
                .map_or_else(|| Job::work_score(job.priority(), cx.now), |(score, _)| score.get() + STEP)
        };
        self.indexes.enter(cx, job, Place::Work, score);
        self.settle_task(jid);
    }

    /// Into the schedule; says whether it is new there.
    fn schedule(&mut self, cx: &mut Cx<'_>, queue: &Name, jid: &Name, at: f64) -> bool {
        let old = self.jobs.get(jid).filter(|job| job.place == Place::Scheduled && job.queue == *queue);
        let old = old.map(|job| job.score);
        if old == Some(at) {
            return false;
        }
        self.put_task(cx, jid, queue, 1.0);
        let Some(job) = self.jobs.get_mut(jid) else { return false };
        self.indexes.leave(cx, job);
        job.state = State::Scheduled;
        self.indexes.enter(cx, job, Place::Scheduled, at);
        self.settle_task(jid);
        old.is_none()
    }

    /// The job is finished. Its result is what the client wrote into the hash.
    fn push_complete(&mut self, cx: &mut Cx<'_>, queue: &Name, jid: &Name) {
        if self.relist(cx, queue, jid, Place::Completed) {
            return;
        }
        self.finish_in(cx, queue, jid);
        let Some(job) = self.jobs.get_mut(jid) else { return };
        job.state = State::Running;
        let result = job.more().result.take();
        let complete = Complete {
            jid: jid.clone(),
            worker: None,
            queue: None,
            attempt: None,
            data: None,
            result: None,
            next: None,
        };
        // A running job, whoever holds it: not refused.
        let _ = self.complete(cx, complete);
        match self.jobs.get_mut(jid) {
            Some(job) => job.more().result = result,
            None => result.iter().for_each(|text| cx.forget(text)),
        }
        self.settle_task(jid);
    }

    /// The job has failed. The message is the error that the client wrote into the hash.
    fn push_failed(&mut self, cx: &mut Cx<'_>, queue: &Name, jid: &Name) {
        if self.relist(cx, queue, jid, Place::Failed) {
            return;
        }
        self.finish_in(cx, queue, jid);
        let Some(job) = self.jobs.get_mut(jid) else { return };
        let error = take_error(job);
        let message = match &error {
            Some(Text::Short(name)) => Bytes::copy_from_slice(name.bytes()),
            Some(Text::Long(id)) => cx.round.body(*id).unwrap_or_default(),
            None => Bytes::new(),
        };
        let fail = Fail {
            jid: jid.clone(),
            worker: None,
            attempt: None,
            group: Name::new(FAILED_GROUP),
            message,
            data: None,
        };
        // Not complete: not refused.
        let _ = self.fail(cx, fail);
        if let (Some(error), Some(job)) = (error, self.jobs.get_mut(jid))
            && let Some(failure) = job.more().failure.as_mut()
        {
            cx.forget(&std::mem::replace(&mut failure.message, error));
        }
        self.settle_task(jid);
    }

    /// A job that is finished already is only listed anew; says whether it was.
    fn relist(&mut self, cx: &mut Cx<'_>, queue: &Name, jid: &Name, place: Place) -> bool {
        let Some(job) = self.jobs.get(jid).filter(|job| job.place == place) else { return false };
        let state = job.state;
        self.catch_up(cx, jid, state);
        let Some(job) = self.jobs.get_mut(jid) else { return false };
        self.indexes.unlist(job);
        if let Some(task) = job.task_mut() {
            task.home = queue.clone();
        }
        self.indexes.list(job);
        self.settle_task(jid);
        true
    }

    /// A draft of this queue, about to be finished.
    fn finish_in(&mut self, cx: &mut Cx<'_>, queue: &Name, jid: &Name) {
        self.ensure_task(cx, jid);
        self.put_aside(cx, jid);
        let queue = self.indexes.names.shared(queue.bytes());
        self.indexes.register(&queue, cx.now);
        if let Some(job) = self.jobs.get_mut(jid) {
            job.queue = queue;
        }
    }

    /// Locks a job that is in none of the engine's lists for the worker a key names; says whether the key does.
    fn push_reserved(&mut self, cx: &mut Cx<'_>, names: &Name, jid: &Name) -> bool {
        let Some(job) = self.jobs.get(jid).filter(|job| job.place == Place::Draft) else { return false };
        let Some(worker) = worker_in(names, &job.queue) else { return false };
        let ends_at = self.endless(cx, &job.queue.clone());
        self.ensure_task(cx, jid);
        let Some(job) = self.jobs.get_mut(jid) else { return false };
        self.indexes.leave(cx, job);
        job.state = State::Running;
        let worker = self.indexes.names.shared(worker.bytes());
        self.indexes.hold(job, worker, ends_at);
        self.indexes.enter(cx, job, Place::Locks, ends_at);
        self.settle_task(jid);
        true
    }

    /// The end of the next lock of a queue that never ends: the newest ends last.
    fn endless(&self, cx: &Cx<'_>, queue: &Name) -> f64 {
        let newest = self.indexes.queues.get(queue).and_then(|queue| queue.locks.last());
        let after = newest.map_or(0.0, |(end, _)| end.get() + LOCK_STEP);
        (cx.now.max(0.0) + LOCK_ENDLESS).max(after)
    }

    pub(super) fn move_id(&mut self, cx: &mut Cx<'_>, from: &Name, to: &Name) -> Result<KeyAnswer, Refusal> {
        if let (Role::Pending(queue), Role::Reserved(names)) = (Role::of(from.bytes()), Role::of(to.bytes()))
            && let Some(worker) = worker_in(&names, &queue)
        {
            return Ok(self.pop_task(cx, &queue, worker).map_or(KeyAnswer::Nil, KeyAnswer::Text));
        }
        if self.removable(cx, from, KeyType::List)?.is_none() {
            return Ok(KeyAnswer::Nil);
        }
        self.writable(cx, to, KeyType::List)?;
        let Some(id) = self.take_end(cx, from, false) else { return Ok(KeyAnswer::Nil) };
        self.push_id(cx, to, id.clone(), true);
        Ok(KeyAnswer::Text(id))
    }

    /// The next job of a queue, locked by a worker without end. What its client sees in the hash is as before.
    fn pop_task(&mut self, cx: &mut Cx<'_>, queue: &Name, worker: Name) -> Option<Name> {
        let lock = Lock::Until(self.endless(cx, queue));
        let pop = Pop { worker, queues: Vec::new(), count: 1, lock, round_robin: false, klasses: Vec::new() };
        let mut popped = Vec::new();
        self.pop_queue(cx, &pop, queue, 1, &mut popped);
        let jid = popped.pop()?;
        let job = self.jobs.get(&jid)?;
        let before = (Place::Work, job.attempt().wrapping_sub(1), job.queue.clone());
        if job.task().is_none_or(|task| !task.was_in_step(&before)) {
            self.catch_up(cx, &jid, State::Waiting);
        }
        self.settle_task(&jid);
        Some(jid)
    }

    /// Takes the id at one end of a list.
    pub(super) fn take_end(&mut self, cx: &mut Cx<'_>, key: &Name, left: bool) -> Option<Name> {
        let at = if left { 0 } else { self.list_len(key).checked_sub(1)? };
        let id = self.list_part(key, at, 1).pop()?;
        let count = if left { 1 } else { -1 };
        match self.remove_id(cx, key, count, &id) {
            Ok(removed) if removed > 0 => Some(id),
            _ => None,
        }
    }

    pub(super) fn remove_id(
        &mut self,
        cx: &mut Cx<'_>,
        key: &Name,
        count: i64,
        id: &Name,
    ) -> Result<usize, Refusal> {
        if self.removable(cx, key, KeyType::List)?.is_none() {
            return Ok(0);
        }
        // A job is in a list once; the rest of a list is what stands for no job.
        let removed = usize::from(self.remove_view(cx, key, id));
        if removed == 1 && count.unsigned_abs() == 1 {
            return Ok(1);
        }
        let count = count - count.signum() * removed as i64;
        let others = self.indexes.keyspace.remove_from_list(key, count, id)?;
        if others > 0 {
            self.touch_scratch(cx, key);
        }
        Ok(removed + others)
    }

    /// Takes a job out of a list; says whether it was in it.
    pub(super) fn remove_view(&mut self, cx: &mut Cx<'_>, key: &Name, jid: &Name) -> bool {
        let Some(job) = self.jobs.get(jid) else { return false };
        let is_in = match Role::of(key.bytes()) {
            Role::Pending(queue) => job.place == Place::Work && job.queue == queue,
            Role::Scheduled(queue) => job.place == Place::Scheduled && job.queue == queue,
            Role::Reserved(names) => {
                job.place == Place::Locks
                    && worker_in(&names, &job.queue)
                        .is_some_and(|worker| worker.bytes() == job.worker_bytes())
            }
            Role::Complete(queue) => {
                return job.place == Place::Completed && self.unlist_from(cx, jid, &queue);
            }
            Role::Failed(queue) => return job.place == Place::Failed && self.unlist_from(cx, jid, &queue),
            _ => false,
        };
        if is_in {
            self.make_draft(cx, jid);
        }
        is_in
    }

    /// Off the list of finished tasks of a queue. Without a hash, nothing is left of it.
    fn unlist_from(&mut self, cx: &mut Cx<'_>, jid: &Name, queue: &Name) -> bool {
        let Some(job) = self.jobs.get_mut(jid) else { return false };
        let Some(task) = job.task().filter(|task| task.home == *queue) else { return false };
        let bare = task.fields.is_empty();
        let removed = self.indexes.unlist(job);
        match removed && bare {
            true => self.drop_job(cx, jid),
            false => self.settle_task(jid),
        }
        removed
    }

    /// The commands on members of sets and sorted sets.
    pub(super) fn task_members(&mut self, cx: &mut Cx<'_>, command: TaskCommand) -> Answer {
        let count = |count: usize| Ok(Reply::Keyspace(KeyAnswer::Int(count as i64)));
        match command {
            TaskCommand::SetAdd { key, members } => {
                self.writable(cx, &key, KeyType::Set)?;
                count(self.add_members(cx, &key, &members)?)
            }
            TaskCommand::SetRemove { key, members } => {
                self.removable(cx, &key, KeyType::Set)?;
                count(self.remove_started(cx, &key, &members))
            }
            TaskCommand::ScoreAdd { key, members } => match self.writable(cx, &key, KeyType::Zset)? {
                Role::Scheduled(queue) => {
                    count(members.iter().filter(|(at, jid)| self.schedule(cx, &queue, jid, *at)).count())
                }
                _ => {
                    let added = self.indexes.keyspace.set_scores(&key, &members)?;
                    self.touch_scratch(cx, &key);
                    count(added)
                }
            },
            TaskCommand::ScoreIncrement { key, by, member } => {
                let score = self.increment(cx, &key, by, &member)?;
                Ok(Reply::Keyspace(KeyAnswer::Score(score)))
            }
            TaskCommand::ScoreRemove { key, members } => {
                count(match self.removable(cx, &key, KeyType::Zset)? {
                    Some(Role::Scheduled(_)) => {
                        members.iter().filter(|jid| self.remove_view(cx, &key, jid)).count()
                    }
                    _ => {
                        self.touch_scratch(cx, &key);
                        self.indexes.keyspace.remove_scores(&key, &members)?
                    }
                })
            }
            TaskCommand::ScoreRemoveRange { key, range } => {
                count(match self.removable(cx, &key, KeyType::Zset)? {
                    Some(Role::Scheduled(queue)) => {
                        let scheduled = self.indexes.queues.get(&queue).map(|queue| &queue.scheduled);
                        let inside = scheduled.into_iter().flatten().filter(|(at, _)| range.holds(at.get()));
                        let inside: Vec<Name> = inside.map(|(_, jid)| jid.clone()).collect();
                        inside.iter().filter(|jid| self.remove_view(cx, &key, jid)).count()
                    }
                    _ => {
                        self.touch_scratch(cx, &key);
                        self.indexes.keyspace.remove_score_range(&key, &range)?
                    }
                })
            }
            _ => Ok(Reply::Done), // the caller's
        }
    }

    fn increment(&mut self, cx: &mut Cx<'_>, key: &Name, by: f64, member: &Name) -> Result<f64, Refusal> {
        let role = self.writable(cx, key, KeyType::Zset)?;
        let old = match &role {
            Role::Scheduled(queue) => {
                let job = self.jobs.get(member);
                job.filter(|job| job.place == Place::Scheduled && job.queue == *queue).map(|job| job.score)
            }
            _ => self.indexes.keyspace.score(key, member)?,
        };
        let score = old.unwrap_or(0.0) + by;
        if score.is_nan() {
            return Err(Refusal::BadArgument("resulting score is not a number (NaN)".to_owned()));
        }
        match role {
            Role::Scheduled(queue) => {
                self.schedule(cx, &queue, member, score);
            }
            _ if old == Some(score) => {}
            _ => {
                self.indexes.keyspace.set_scores(key, &[(score, member.clone())])?;
                self.touch_scratch(cx, key);
            }
        }
        Ok(score)
    }

    fn add_members(&mut self, cx: &mut Cx<'_>, key: &Name, members: &[Name]) -> Result<usize, Refusal> {
        let added = self.indexes.keyspace.add_members(key, members)?;
        self.touch_scratch(cx, key);
        let Role::Started(queue) = Role::of(key.bytes()) else { return Ok(added) };
        for member in members {
            let Some(jid) = task_in(member) else { continue };
            let runs = |job: &Job| job.place == Place::Locks && job.queue == queue;
            let Some(state) = self.jobs.get(&jid).filter(|job| runs(job)).map(|job| job.state) else {
                continue;
            };
            self.catch_up(cx, &jid, state);
            let Some(job) = self.jobs.get_mut(&jid) else { continue };
            let entry = (key.clone(), member.clone());
            if let Some(task) = job.task_mut()
                && !task.started.contains(&entry)
            {
                task.started.push(entry);
            }
            self.indexes.mark(job);
        }
        Ok(added)
    }

    /// Takes members out of a set, and off the tasks that they stand for.
    pub(super) fn remove_started(&mut self, cx: &mut Cx<'_>, key: &Name, members: &[Name]) -> usize {
        let mut removed = 0;
        for member in members {
            if !self.indexes.keyspace.remove_member(key, member) {
                continue;
            }
            removed += 1;
            self.touch_scratch(cx, key);
            if let Some(job) = task_in(member).and_then(|jid| self.jobs.get_mut(&jid))
                && let Some(task) = job.task_mut()
            {
                task.started.retain(|(set, known)| set != key || known != member);
                self.indexes.mark(job);
            }
        }
        removed
    }
}

/// The worker in `queue_worker`.
pub(crate) fn worker_in(names: &Name, queue: &Name) -> Option<Name> {
    let rest = names.bytes().strip_prefix(queue.bytes())?.strip_prefix(b"_")?;
    (!rest.is_empty() && !queue.is_empty()).then(|| Name::new(rest))
}

/// The task in `listener pid task`.
fn task_in(member: &Name) -> Option<Name> {
    let mut words = member.bytes().rsplitn(3, |byte| *byte == b' ');
    let jid = words.next()?;
    words.next()?;
    words.next()?;
    (!jid.is_empty()).then(|| Name::new(jid))
}
