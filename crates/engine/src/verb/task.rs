//! Blueque's writes: what its clients do to keys is done to the jobs behind them. What stands for no job is kept beside
//! them, in the scratch keyspace.
//!
//! A job is here for as long as it has a hash or its id is in a list. In neither: it goes. With a hash but in no list of
//! the engine's: a draft.

use bytes::Bytes;

use super::Answer;
use crate::job::{Job, Place, State};
use crate::record::Key;
use crate::task::{Field, KLASS, Role, Task, TaskCommand};
use crate::tenant::{Cx, Tenant};
use crate::{Event, KeyAnswer, KeyCommand, KeyType, Kind, Name, Refusal, Reply, Text};

/// A queue's name in a hash that is longer is not taken for one.
const QUEUE_BYTES_MAX: usize = 1024;

impl Tenant {
    pub(super) fn task(&mut self, cx: &mut Cx<'_>, command: TaskCommand) -> Answer {
        let count = |count: usize| KeyAnswer::Int(i64::try_from(count).unwrap_or(i64::MAX));
        for key in command.keys() {
            self.indexes.keyspace.drop_ended(key, cx.clock);
        }
        let answer = match command {
            TaskCommand::HashSet { key, pairs } => match self.writable(cx, &key, KeyType::Hash)? {
                Role::Task(jid) => count(self.set_fields(cx, &jid, pairs)),
                _ => {
                    let pairs = pairs.into_iter().map(|(field, value)| (field, Name::new(&value))).collect();
                    return self.keyspace(cx, KeyCommand::HashSet { key, pairs });
                }
            },
            TaskCommand::Delete { keys } => count(self.delete_keys(cx, keys)?),
            TaskCommand::Push { key, values, left } => {
                self.writable(cx, &key, KeyType::List)?;
                for value in values {
                    self.push_id(cx, &key, value, left);
                }
                count(self.list_len(&key))
            }
            TaskCommand::Pop { key, left } => {
                self.writable(cx, &key, KeyType::List)?;
                match self.take_end(cx, &key, left) {
                    Some(id) => KeyAnswer::Popped(key, id),
                    None => KeyAnswer::Nil,
                }
            }
            TaskCommand::Move { from, to } => self.move_id(cx, &from, &to)?,
            TaskCommand::ListRemove { key, count: times, value } => {
                count(self.remove_id(cx, &key, times, &value)?)
            }
            other => return self.task_members(cx, other),
        };
        Ok(Reply::Keyspace(answer))
    }

    /// What a key stands for, if it may be written as this type.
    pub(super) fn writable(&self, cx: &Cx<'_>, key: &Name, kind: KeyType) -> Result<Role, Refusal> {
        let role = Role::of(key.bytes());
        match role.kind() {
            Some(fixed) if fixed != kind => Err(Refusal::WrongType),
            None if self.kind_of(cx, key).is_some_and(|found| found != kind) => Err(Refusal::WrongType),
            _ => Ok(role),
        }
    }

    /// What a key stands for, if something of this type may be taken out of it; none if nothing is there.
    pub(super) fn removable(&self, cx: &Cx<'_>, key: &Name, kind: KeyType) -> Result<Option<Role>, Refusal> {
        match self.kind_of(cx, key) {
            None => Ok(None),
            Some(found) if found != kind => Err(Refusal::WrongType),
            Some(_) => Ok(Some(Role::of(key.bytes()))),
        }
    }

    /// The scratch key is to be stored, or to be deleted.
    pub(super) fn touch_scratch(&mut self, cx: &mut Cx<'_>, key: &Name) {
        cx.round.touch_queue(key);
        self.indexes.dirty.insert(Key::Scratch(key.clone()));
    }

    /// The job of a task; made as a draft without a hash if there is none.
    pub(super) fn ensure_task(&mut self, cx: &mut Cx<'_>, jid: &Name) {
        if !self.jobs.contains_key(jid) {
            let nobody = self.indexes.names.shared(b"");
            let mut job = Box::new(Job::new(jid.clone(), &nobody, &nobody));
            job.klass = self.indexes.names.shared(KLASS);
            job.time = cx.now;
            self.indexes.enter(cx, &mut job, Place::Draft, cx.now);
            job.more().task = Some(Box::new(Task::blank(&job)));
            self.jobs.insert(job);
        }
        let state = self.jobs.get(jid).map_or(State::Waiting, |job| job.state);
        self.catch_up(cx, jid, state);
    }

    /// Makes a job a task whose fields are in step with it, as if it were in this state.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>, jid: &Name, state: State) {
        let Some(job) = self.jobs.get_mut(jid) else { return };
        match job.more.as_deref_mut().and_then(|more| more.task.take()) {
            Some(mut task) => {
                if task.is_behind(job) {
                    task.catch_up(job, state).iter().for_each(|text| cx.forget(text));
                    self.indexes.mark(job);
                }
                job.more().task = Some(task);
            }
            None => {
                let task = Task::of(job, state);
                job.more().task = Some(Box::new(task));
                if matches!(job.place, Place::Completed | Place::Failed) {
                    self.indexes.list(job);
                }
                self.indexes.mark(job);
            }
        }
    }

    /// The fields are as their client wants them, wherever the job is now.
    pub(super) fn settle_task(&mut self, jid: &Name) {
        let version = self.indexes.keyspace.next_version();
        let Some(job) = self.jobs.get_mut(jid) else { return };
        let Some(mut task) = job.more.as_deref_mut().and_then(|more| more.task.take()) else { return };
        task.saw(job);
        task.version = version;
        job.more().task = Some(task);
        self.indexes.mark(job);
    }

    /// How many fields are new.
    fn set_fields(&mut self, cx: &mut Cx<'_>, jid: &Name, pairs: Vec<(Name, Bytes)>) -> usize {
        self.ensure_task(cx, jid);
        let Some(job) = self.jobs.get_mut(jid) else { return 0 };
        let before = job.task().map_or(0, |task| task.fields.len());
        for (name, bytes) in pairs {
            if name.bytes() == b"queue" && job.place == Place::Draft && bytes.len() <= QUEUE_BYTES_MAX {
                job.queue = self.indexes.names.shared(&bytes);
            }
            set_field(cx, job, &name, bytes);
        }
        let after = job.task().map_or(0, |task| task.fields.len());
        self.settle_task(jid);
        after - before
    }

    fn delete_keys(&mut self, cx: &mut Cx<'_>, keys: Vec<Name>) -> Result<usize, Refusal> {
        for key in &keys {
            if let Role::Task(jid) = Role::of(key.bytes()) {
                self.check_unneeded(&jid)?;
            }
        }
        Ok(keys.iter().filter(|key| self.delete_key(cx, key)).count())
    }

    /// A job that others wait for does not go.
    fn check_unneeded(&self, jid: &Name) -> Result<(), Refusal> {
        let Some(job) = self.jobs.get(jid).filter(|job| !is_listed(job)) else { return Ok(()) };
        match job.more.as_deref().and_then(|more| more.dependents.first()) {
            Some(by) => Err(Refusal::Needed { jid: jid.clone(), by: by.clone() }),
            None => Ok(()),
        }
    }

    fn delete_key(&mut self, cx: &mut Cx<'_>, key: &Name) -> bool {
        let there = self.kind_of(cx, key).is_some();
        match Role::of(key.bytes()) {
            Role::Task(jid) if there => self.delete_hash(cx, &jid),
            Role::Task(_) => {}
            Role::Pending(_)
            | Role::Scheduled(_)
            | Role::Reserved(_)
            | Role::Complete(_)
            | Role::Failed(_) => {
                for id in self.ids(key) {
                    self.remove_view(cx, key, &id);
                }
                self.remove_scratch(cx, key);
            }
            Role::Started(_) => {
                let members = self.indexes.keyspace.members(key);
                self.remove_started(cx, key, &members);
            }
            Role::Plain(_) => self.remove_scratch(cx, key),
        }
        there
    }

    fn remove_scratch(&mut self, cx: &mut Cx<'_>, key: &Name) {
        if self.indexes.keyspace.slots.remove(key).is_some() {
            self.touch_scratch(cx, key);
        }
    }

    /// The hash goes, and the job with it unless its id is still in a list.
    fn delete_hash(&mut self, cx: &mut Cx<'_>, jid: &Name) {
        let Some(job) = self.jobs.get(jid) else { return };
        if !is_listed(job) {
            return self.drop_job(cx, jid);
        }
        self.ensure_task(cx, jid);
        let Some(job) = self.jobs.get_mut(jid) else { return };
        let fields = job.task_mut().map(|task| std::mem::take(&mut task.fields)).unwrap_or_default();
        for (_, field) in &fields {
            if let Field::Own(text) = field {
                cx.forget(text);
            }
        }
        Tenant::set_data(cx, job, Some(Bytes::new()));
        if let Some(result) = job.more().result.take() {
            cx.forget(&result);
        }
        self.settle_task(jid);
    }

    /// The job goes, as if it were cancelled. Sets of started tasks are its client's to change.
    pub(super) fn drop_job(&mut self, cx: &mut Cx<'_>, jid: &Name) {
        let Some(job) = self.jobs.get(jid) else { return };
        if !matches!(job.place, Place::Completed | Place::Draft) {
            let (queue, worker) = (Some(job.queue.clone()), Some(self.indexes.worker_of(job)));
            cx.emit(Event::Canceled { jid: jid.clone(), queue, worker });
            cx.tell_now(Kind::Canceled, job);
        }
        self.indexes.uncount_failed(job);
        let waiters = self.indexes.throttles_of(job);
        if let Some(task) = self.jobs.get_mut(jid).and_then(Job::task_mut) {
            task.started.clear();
        }
        self.delete(cx, jid);
        self.admit_all(cx, &waiters);
    }

    /// Out of the engine's lists. Without a hash, nothing is left of it.
    pub(super) fn make_draft(&mut self, cx: &mut Cx<'_>, jid: &Name) {
        let state = self.jobs.get(jid).map_or(State::Waiting, |job| job.state);
        self.catch_up(cx, jid, state);
        let Some(job) = self.jobs.get_mut(jid) else { return };
        if job.task().is_none_or(|task| task.fields.is_empty()) {
            return self.drop_job(cx, jid);
        }
        self.put_aside(cx, jid);
        self.settle_task(jid);
    }

    /// Into the drafts, from wherever it is. Who held it stays written on it.
    pub(super) fn put_aside(&mut self, cx: &mut Cx<'_>, jid: &Name) {
        let Some(job) = self.jobs.get(jid) else { return };
        let waiters = if job.place == Place::Locks { self.indexes.throttles_of(job) } else { Vec::new() };
        let Some(job) = self.jobs.get_mut(jid) else { return };
        self.indexes.uncount_failed(job);
        self.indexes.unhold(job);
        self.indexes.leave(cx, job);
        self.indexes.release_locks(job);
        job.state = State::Waiting;
        if let Some(run) = job.run_mut() {
            run.expires = 0.0;
        }
        self.indexes.enter(cx, job, Place::Draft, cx.now);
        self.admit_all(cx, &waiters);
    }
}

/// Whether the id of a job is in a list of Blueque's.
fn is_listed(job: &Job) -> bool {
    match job.place {
        Place::Work | Place::Locks | Place::Scheduled => true,
        _ => job.task().is_some_and(|task| task.listed.is_some()),
    }
}

/// Writes one field: into the job, where it is the job's.
fn set_field(cx: &mut Cx<'_>, job: &mut Job, name: &Name, bytes: Bytes) {
    let own = |job: &Job| job.task().and_then(|task| task.field(name.bytes())).cloned();
    let field = match name.bytes() {
        b"parameters" => {
            Tenant::set_data(cx, job, Some(bytes));
            Field::Data
        }
        b"result" => {
            let text = cx.keep(bytes);
            if let Some(old) = job.more().result.replace(text) {
                cx.forget(&old);
            }
            Field::Result
        }
        b"error" if own(job) == Some(Field::Message) && job.failure().is_some() => {
            set_message(cx, job, bytes);
            Field::Message
        }
        _ => Field::Own(cx.keep(bytes)),
    };
    if let Some(Field::Own(old)) = job.task_mut().and_then(|task| task.replace(name, field)) {
        cx.forget(&old);
    }
}

fn set_message(cx: &mut Cx<'_>, job: &mut Job, bytes: Bytes) {
    let text = cx.keep(bytes);
    if let Some(failure) = job.more().failure.as_mut() {
        cx.forget(&std::mem::replace(&mut failure.message, text));
    }
}

/// The error that the client wrote, to be moved into the job's failure.
pub(super) fn take_error(job: &mut Job) -> Option<Text> {
    let task = job.task_mut()?;
    let (_, field) = task.fields.iter_mut().find(|(name, _)| name.bytes() == b"error")?;
    match std::mem::replace(field, Field::Message) {
        Field::Own(text) => Some(text),
        _ => None,
    }
}
