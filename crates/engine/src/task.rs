//! Tasks: what Blueque's clients keep of a job, and the keys under which they see it.
//!
//! The job is the truth: its queue, data, result, failure and worker are the engine's. A task adds the hash as the client
//! wrote it, field by field, and where the id stands in the lists of finished tasks. When other dialects move the job,
//! the fields that speak of that (`status`, `node`, ...) are brought into step as they are read.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::job::{Job, Place, State, What};
use crate::record::Key;
use crate::tenant::Indexes;
use crate::{KeyType, Name, ScoreRange, Text};

/// A lock that ends this late never ends: in seconds since 1970, some 3,000 years from now. Finite, so that every
/// dialect can write it.
pub(crate) const LOCK_ENDLESS: f64 = 1e11;

/// The failure group of tasks that their own clients failed.
pub(crate) const FAILED_GROUP: &[u8] = b"blueque";
/// The klass of jobs that Blueque's clients made.
pub(crate) const KLASS: &[u8] = b"blueque";

/// A write to a key of Blueque's, or to a plain key beside them.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum TaskCommand {
    /// -> `Int`, new fields.
    HashSet { key: Name, pairs: Vec<(Name, Bytes)> },
    /// -> `Int`, removed keys.
    Delete { keys: Vec<Name> },
    /// -> `Int`, the length.
    Push { key: Name, values: Vec<Name>, left: bool },
    /// -> `Popped` or `Nil`
    Pop { key: Name, left: bool },
    /// From the right end of one list to the left end of another. -> `Text` or `Nil`
    Move { from: Name, to: Name },
    /// The first `count` from the left, from the right if negative, all if 0. -> `Int`, removed ones.
    ListRemove { key: Name, count: i64, value: Name },
    /// -> `Int`, new members.
    SetAdd { key: Name, members: Vec<Name> },
    /// -> `Int`, removed members.
    SetRemove { key: Name, members: Vec<Name> },
    /// -> `Int`, new members.
    ScoreAdd { key: Name, members: Vec<(f64, Name)> },
    /// -> `Score`
    ScoreIncrement { key: Name, by: f64, member: Name },
    /// -> `Int`, removed members.
    ScoreRemove { key: Name, members: Vec<Name> },
    /// -> `Int`, removed members.
    ScoreRemoveRange { key: Name, range: ScoreRange },
}

impl TaskCommand {
    /// The keys it writes.
    pub(crate) fn keys(&self) -> Vec<&Name> {
        match self {
            TaskCommand::Delete { keys } => keys.iter().collect(),
            TaskCommand::Move { from, to } => vec![from, to],
            TaskCommand::HashSet { key, .. }
            | TaskCommand::Push { key, .. }
            | TaskCommand::Pop { key, .. }
            | TaskCommand::ListRemove { key, .. }
            | TaskCommand::SetAdd { key, .. }
            | TaskCommand::SetRemove { key, .. }
            | TaskCommand::ScoreAdd { key, .. }
            | TaskCommand::ScoreIncrement { key, .. }
            | TaskCommand::ScoreRemove { key, .. }
            | TaskCommand::ScoreRemoveRange { key, .. } => vec![key],
        }
    }
}

/// What a key of Blueque's stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Role {
    /// A task's hash.
    Task(Name),
    /// The queue's work.
    Pending(Name),
    /// The queue's schedule.
    Scheduled(Name),
    /// The running jobs of a queue and a worker: both names, joined by an underscore.
    Reserved(Name),
    /// The queue's finished tasks.
    Complete(Name),
    Failed(Name),
    /// Who runs what as which process. Kept beside the jobs.
    Started(Name),
    /// Kept beside the jobs; of this type, if the name tells.
    Plain(Option<KeyType>),
}

const PREFIX: &[u8] = b"blueque_";

/// Whether this is a key of Blueque's.
pub fn is_task_key(key: &[u8]) -> bool {
    key.starts_with(PREFIX)
}

impl Role {
    pub(crate) fn of(key: &[u8]) -> Role {
        let Some(rest) = key.strip_prefix(PREFIX) else { return Role::Plain(None) };
        let after = |prefix: &[u8]| rest.strip_prefix(prefix).filter(|name| !name.is_empty()).map(Name::new);
        let made = after(b"task_")
            .map(Role::Task)
            .or_else(|| after(b"pending_tasks_").map(Role::Pending))
            .or_else(|| after(b"reserved_tasks_").map(Role::Reserved))
            .or_else(|| after(b"scheduled_tasks_").map(Role::Scheduled))
            .or_else(|| after(b"complete_tasks_").map(Role::Complete))
            .or_else(|| after(b"failed_tasks_").map(Role::Failed))
            .or_else(|| after(b"started_tasks_").map(Role::Started));
        made.unwrap_or_else(|| match rest {
            b"queues" => Role::Plain(Some(KeyType::Zset)),
            _ if rest.starts_with(b"listeners_") => Role::Plain(Some(KeyType::Set)),
            _ if rest.starts_with(b"tasks_") => Role::Plain(Some(KeyType::List)),
            _ => Role::Plain(None),
        })
    }

    /// The type its name fixes.
    pub(crate) fn kind(&self) -> Option<KeyType> {
        match self {
            Role::Task(_) => Some(KeyType::Hash),
            Role::Pending(_) | Role::Reserved(_) | Role::Complete(_) | Role::Failed(_) => Some(KeyType::List),
            Role::Started(_) => Some(KeyType::Set),
            Role::Scheduled(_) => Some(KeyType::Zset),
            Role::Plain(kind) => *kind,
        }
    }
}

/// A value of a task's hash: the client's own, or the job's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Field {
    Own(Text),
    /// The job's data.
    Data,
    /// The job's result.
    Result,
    /// The message of the job's failure.
    Message,
}

/// What Blueque's clients keep of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// In order of insertion. Empty: there is no hash, only an id in a list.
    pub(crate) fields: Vec<(Name, Field)>,
    /// Where the job was when the fields were last in step with it, how often handed out, and in which queue.
    seen: (Place, u32, Name),
    /// The queue it was in last: a finished job has none of its own.
    pub(crate) home: Name,
    /// Its order in the list of complete or failed tasks of `home`, the newest highest.
    pub(crate) listed: Option<u64>,
    /// Its members of sets of started tasks: key and member.
    pub(crate) started: Vec<(Name, Name)>,
    /// Changes with every write.
    pub(crate) version: u64,
}

/// The finished tasks of a queue by order, the newest last.
#[derive(Default, Debug)]
pub(crate) struct Finished {
    pub(crate) complete: BTreeMap<u64, Name>,
    pub(crate) failed: BTreeMap<u64, Name>,
}

impl Finished {
    fn list(&mut self, place: Place) -> &mut BTreeMap<u64, Name> {
        if place == Place::Failed { &mut self.failed } else { &mut self.complete }
    }
}

fn text(words: &str) -> Field {
    Field::Own(Text::Short(words.into()))
}

fn moment(at: f64) -> Field {
    text(&format!("{at}"))
}

impl Task {
    /// A task without a hash.
    pub(crate) fn blank(job: &Job) -> Task {
        let mut task = Task {
            fields: Vec::new(),
            seen: (job.place, job.attempt(), job.queue.clone()),
            home: job.queue.clone(),
            listed: None,
            started: Vec::new(),
            version: 0,
        };
        if task.home.is_empty() {
            task.home = last_queue(job);
        }
        task
    }

    /// The task that a job of another dialect is, in this state.
    pub(crate) fn of(job: &Job, state: State) -> Task {
        let mut task = Task::blank(job);
        task.set("status", text(status(state)));
        task.set("queue", Field::Own(Text::Short(task.home.clone())));
        task.set("parameters", Field::Data);
        task.set("created", moment(job.history.first_at().unwrap_or(job.time)));
        task.bring_up(job, state);
        if job.place == Place::Scheduled {
            task.set("eta", moment(job.score));
        }
        task
    }

    /// The values its clients keep themselves.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Text> {
        self.fields.iter().filter_map(|(_, field)| match field {
            Field::Own(text) => Some(text),
            _ => None,
        })
    }

    pub(crate) fn texts_mut(&mut self, each: &mut dyn FnMut(&mut Text)) {
        for (_, field) in &mut self.fields {
            if let Field::Own(text) = field {
                each(text);
            }
        }
    }

    /// The process its client said it runs in: the middle of `listener pid task`.
    pub(crate) fn pid(&self) -> Option<Name> {
        let (_, member) = self.started.last()?;
        member.bytes().rsplit(|byte| *byte == b' ').nth(1).map(Name::new)
    }

    pub(crate) fn field(&self, name: &[u8]) -> Option<&Field> {
        self.fields.iter().find(|(known, _)| known.bytes() == name).map(|(_, field)| field)
    }

    /// Sets a field; what was there before, if it was the client's own.
    pub(crate) fn replace(&mut self, name: &Name, field: Field) -> Option<Field> {
        match self.fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => Some(std::mem::replace(old, field)),
            None => {
                self.fields.push((name.clone(), field));
                None
            }
        }
    }

    /// Sets a field; the text that was there before, to be forgotten.
    fn set(&mut self, name: &str, field: Field) -> Option<Text> {
        match self.replace(&name.into(), field) {
            Some(Field::Own(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether other dialects have moved the job since.
    pub(crate) fn is_behind(&self, job: &Job) -> bool {
        let (place, attempt, queue) = &self.seen;
        *place != job.place || *attempt != job.attempt() || *queue != job.queue
    }

    /// Whether the fields were in step with a job that was there, so often handed out, in that queue.
    pub(crate) fn was_in_step(&self, before: &(Place, u32, Name)) -> bool {
        self.seen == *before
    }

    /// The fields are in step with the job.
    pub(crate) fn saw(&mut self, job: &Job) {
        self.seen = (job.place, job.attempt(), job.queue.clone());
    }

    /// Brings the fields into step with a job that others moved, as if it were in this state. Answers the texts that
    /// are no longer needed.
    pub(crate) fn catch_up(&mut self, job: &Job, state: State) -> Vec<Text> {
        if self.fields.is_empty() {
            return Vec::new();
        }
        let mut old = vec![self.set("status", text(status(state)))];
        if !job.queue.is_empty() {
            old.push(self.set("queue", Field::Own(Text::Short(job.queue.clone()))));
        }
        // The process of an earlier holder.
        if state == State::Running {
            old.push(self.set("pid", text("")));
            self.fields.retain(|(name, _)| name.bytes() != b"pid");
        }
        let mut old: Vec<Text> = old.into_iter().flatten().collect();
        old.extend(self.bring_up(job, state));
        old
    }

    fn bring_up(&mut self, job: &Job, state: State) -> Vec<Text> {
        let updated = job.history.last_at().unwrap_or(job.time).max(job.time);
        let mut old = vec![self.set("updated", moment(updated))];
        if let Some(worker) = last_worker(job)
            && matches!(state, State::Running | State::Complete | State::Failed)
        {
            old.push(self.set("node", Field::Own(Text::Short(worker))));
        }
        if state == State::Complete {
            old.push(self.set("result", Field::Result));
        }
        if state == State::Failed {
            old.push(self.set("error", Field::Message));
        }
        self.fields.retain(|(_, field)| value(job, field).is_some());
        old.into_iter().flatten().collect()
    }
}

/// The text of a field; none: the job's own is gone.
pub(crate) fn value<'a>(job: &'a Job, field: &'a Field) -> Option<&'a Text> {
    match field {
        Field::Own(text) => Some(text),
        Field::Data => Some(&job.data),
        Field::Result => job.more.as_deref().and_then(|more| more.result.as_ref()),
        Field::Message => job.failure().map(|failure| &failure.message),
    }
}

/// The queue of the last put: a finished job does not say it itself.
fn last_queue(job: &Job) -> Name {
    let history = job.history.to_vec();
    let puts = history.iter().rev().find_map(|entry| match &entry.what {
        What::Put(queue) => Some(queue.clone()),
        _ => None,
    });
    puts.unwrap_or_else(|| job.queue.clone())
}

/// Who had it last: a finished job does not say it itself.
fn last_worker(job: &Job) -> Option<Name> {
    let history = job.history.to_vec();
    history.iter().rev().find_map(|entry| match &entry.what {
        What::Popped(worker) => Some(worker.clone()),
        _ => None,
    })
}

/// Blueque's word for a state.
fn status(state: State) -> &'static str {
    match state {
        State::Waiting | State::Depends | State::Throttled | State::Stalled => "pending",
        State::Scheduled => "scheduled",
        State::Running => "reserved",
        State::Failed => "failed",
        State::Complete => "complete",
    }
}

impl Indexes {
    /// The list of finished tasks that a place of finished jobs belongs to.
    pub(crate) fn finished_list(&self, queue: &Name, place: Place) -> Option<&BTreeMap<u64, Name>> {
        let lists = self.finished.get(queue)?;
        Some(if place == Place::Failed { &lists.failed } else { &lists.complete })
    }

    /// A job with a task leaves the index that holds it.
    pub(crate) fn task_leaves(&mut self, job: &mut Job) {
        self.unlist(job);
        let queue = job.queue.clone();
        if let Some(task) = job.task_mut()
            && !queue.is_empty()
        {
            task.home = queue;
        }
    }

    /// A job with a task has entered an index: finished ones are listed; what no longer runs is not started.
    pub(crate) fn task_enters(&mut self, job: &mut Job) {
        let place = job.place;
        if matches!(place, Place::Completed | Place::Failed) {
            self.list(job);
        }
        if !matches!(place, Place::Locks | Place::Draft) {
            self.forget_started(job);
        }
    }

    /// Into the list of finished tasks of its queue, the newest.
    pub(crate) fn list(&mut self, job: &mut Job) {
        self.unlist(job);
        let (jid, place) = (job.jid.clone(), job.place);
        self.finished_seq += 1;
        let order = self.finished_seq;
        let Some(task) = job.task_mut() else { return };
        task.listed = Some(order);
        let home = task.home.clone();
        self.finished.entry(home).or_default().list(place).insert(order, jid);
        self.mark(job);
    }

    /// Out of the list of finished tasks; says whether it was in one.
    pub(crate) fn unlist(&mut self, job: &mut Job) -> bool {
        let place = job.place;
        let Some(task) = job.task_mut() else { return false };
        let Some(order) = task.listed.take() else { return false };
        let home = task.home.clone();
        if let Some(lists) = self.finished.get_mut(&home) {
            lists.list(place).remove(&order);
            if lists.complete.is_empty() && lists.failed.is_empty() {
                self.finished.remove(&home);
            }
        }
        self.mark(job);
        true
    }

    /// The entry of a stored task that was listed.
    pub(crate) fn index_finished(&mut self, job: &Job) {
        let Some(task) = job.task() else { return };
        self.keyspace.saw_version(task.version);
        if let Some(order) = task.listed {
            self.finished_seq = self.finished_seq.max(order);
            let lists = self.finished.entry(task.home.clone()).or_default();
            lists.list(job.place).insert(order, job.jid.clone());
        }
    }

    /// The task's process has ended, or is no longer of interest.
    pub(crate) fn forget_started(&mut self, job: &mut Job) {
        let Some(task) = job.task_mut() else { return };
        for (key, member) in std::mem::take(&mut task.started) {
            self.keyspace.remove_member(&key, &member);
            self.dirty.insert(Key::Scratch(key));
        }
    }
}
