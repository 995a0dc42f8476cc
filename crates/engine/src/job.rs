//! Jobs. The struct is both the form in memory and, without the fields marked `skip`, the stored form.
//!
//! Ten million of these must fit in memory: common fields are inline and small, rare ones are in `More`.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::history::History;
use crate::task::Task;
use crate::{Name, Text};

/// What a job's `state` field says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Ready to be popped.
    Waiting,
    /// Not before a time.
    Scheduled,
    /// Blocked by other jobs.
    Depends,
    /// Held back by a throttle; stays so after release, until popped.
    Throttled,
    /// Locked by a worker.
    Running,
    /// Its lock was taken away by `timeout`.
    Stalled,
    /// In a failure group.
    Failed,
    /// Finished, kept for a while.
    Complete,
}

impl State {
    /// Its word, the same in every dialect.
    pub fn word(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Scheduled => "scheduled",
            State::Depends => "depends",
            State::Throttled => "throttled",
            State::Running => "running",
            State::Stalled => "stalled",
            State::Failed => "failed",
            State::Complete => "complete",
        }
    }
}

/// The one index that holds a job. `Job::score` is its score there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// The queue's work index.
    Work,
    /// The queue's lock index; the score is the lock's end.
    Locks,
    /// The queue's scheduled index; the score is the due time.
    Scheduled,
    /// The queue's depends index.
    Depends,
    /// The queue's throttled index.
    Throttled,
    /// A failure group; the score is the failure's sequence number.
    Failed,
    /// The completed index; the score is the completion time.
    Completed,
    /// In no list of its queue: a task whose hash is there but whose id is not yet, or no longer, in a list. Never popped.
    Draft,
}

/// What happened to a job, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Whole seconds.
    pub when: f64,
    /// What happened.
    pub what: What,
}

/// One kind of history entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// Put into a queue.
    Put(Name),
    /// Handed to a worker.
    Popped(Name),
    /// Completed.
    Done,
    /// Its lock ran out or was taken away.
    TimedOut,
    /// Failed by its worker: (worker, group).
    Failed(Box<(Name, Name)>),
    /// Retries exhausted: the group.
    Exhausted(Name),
    /// Retries exhausted through an explicit retry, in the dialect that words it `failed-retries`.
    FailedRetries(Name),
    /// Held back by a throttle in this queue.
    Throttled(Name),
    /// A line of the user's: message, and a JSON object or array if one was given.
    Log(Box<(Name, Option<Text>)>),
}

/// Why a job failed. Survives a new put and a retry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The group it failed into.
    pub group: Name,
    /// The message, possibly a long trace.
    pub message: Text,
    /// When, in seconds.
    pub when: f64,
    /// Who reported it; empty if nobody did.
    pub worker: Name,
    /// The queue it failed in.
    pub queue: Name,
}

/// A tag of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tagged {
    pub(crate) tag: Name,
    /// When it was tagged; none if the tag index does not hold it (the older API's jobs).
    pub(crate) at: Option<f64>,
}

/// What a job said of itself while it ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// Which attempt said it. The checkpoint may be of an earlier one.
    pub attempt: u32,
    /// How far it was, from 0 to 100.
    pub percent: Option<f64>,
    /// What it was doing.
    pub message: Option<Name>,
    /// The last part of its output.
    pub output: Option<Text>,
    /// How long the output was in all up to there.
    pub output_bytes: u64,
    /// What the next attempt begins with.
    pub checkpoint: Option<Text>,
}

/// The fields few jobs have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct More {
    pub(crate) tags: Vec<Tagged>,
    pub(crate) failure: Option<Failure>,
    /// When to run once the dependencies clear.
    pub(crate) scheduled: Option<f64>,
    pub(crate) spawned_from: Option<Name>,
    pub(crate) result: Option<Text>,
    /// Throttles named by the user; the queue's own is implied and last.
    pub(crate) throttles: Vec<Name>,
    /// Throttles of `throttles` it holds a lock of.
    pub(crate) holds: Vec<Name>,
    /// The throttle it waits for, and since when.
    pub(crate) pending: Option<(Name, f64)>,
    /// What it said of itself while it ran. Stored behind the job's own fields (`record.rs`).
    #[serde(skip)]
    pub(crate) report: Option<Box<Reported>>,
    /// What Blueque's clients keep of it. Stored behind the job's own fields (`record.rs`).
    #[serde(skip)]
    pub(crate) task: Option<Box<Task>>,
    /// The trace context it was put with. Stored behind the job's own fields (`record.rs`).
    #[serde(skip)]
    pub(crate) trace: Option<Name>,
    /// Those of the job's numbers that are not small and whole. Stored with the others.
    #[serde(skip)]
    pub(crate) numbers: Numbers<f64>,
    /// Jobs this one waits for. Stored as edges of their own, so that releasing one costs one small record.
    #[serde(skip)]
    pub(crate) dependencies: BTreeSet<Name>,
    /// Jobs waiting for this one: the inverse of their dependencies.
    #[serde(skip)]
    pub(crate) dependents: BTreeSet<Name>,
}

/// A job's header. Its data is a [`Text`]. Stored without its jid, field by field in this order, with its numbers as doubles
/// behind `more`.
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) jid: Name,
    pub(crate) klass: Name,
    /// Empty once complete.
    pub(crate) queue: Name,
    /// Empty when none; stays set after `retry`.
    pub(crate) worker: Name,
    pub(crate) data: Text,
    pub(crate) history: History,
    pub(crate) more: Option<Box<More>>,
    pub(crate) expires: f64,
    /// Moment of the last put, pop or complete: feeds the statistics.
    pub(crate) time: f64,
    pub(crate) score: f64,
    /// How often it was handed out.
    pub(crate) attempt: u32,
    pub(crate) state: State,
    pub(crate) place: Place,
    pub(crate) flags: Flags,
    pub(crate) numbers: Numbers<i16>,
}

/// One of a job's small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Priority,
    Retries,
    Remaining,
}

/// A job's small numbers. They may be any doubles, and nearly all are small and whole: the others are in `More`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Numbers<T> {
    priority: T,
    retries: T,
    remaining: T,
}

/// In place of a small number: it is in `More`.
const ELSEWHERE: i16 = i16::MIN;

impl<T: Copy> Numbers<T> {
    fn get(&self, which: Number) -> T {
        match which {
            Number::Priority => self.priority,
            Number::Retries => self.retries,
            Number::Remaining => self.remaining,
        }
    }

    fn set(&mut self, which: Number, value: T) {
        match which {
            Number::Priority => self.priority = value,
            Number::Retries => self.retries = value,
            Number::Remaining => self.remaining = value,
        }
    }
}

/// What is so of a job or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    /// The worker was warned that its lock ran out.
    Warned = 1,
    /// Listed among its worker's jobs (with `expires` as the score).
    Held = 2,
    /// Runs, but its lock on the queue's throttle was released by hand.
    Unthrottled = 4,
    /// To be stored at the end of the round. Not stored itself.
    Dirty = 8,
}

/// The flags that are set, a bit each: a byte less, and a job would need the next size of memory. Stored as a bool each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    const STORED: [Flag; 3] = [Flag::Warned, Flag::Held, Flag::Unthrottled];

    pub(crate) fn has(self, flag: Flag) -> bool {
        self.0 & flag as u8 != 0
    }

    pub(crate) fn set(&mut self, flag: Flag, on: bool) {
        self.0 = if on { self.0 | flag as u8 } else { self.0 & !(flag as u8) };
    }

    /// Takes the flag away; answers whether it was there.
    pub(crate) fn take(&mut self, flag: Flag) -> bool {
        let had = self.has(flag);
        self.set(flag, false);
        had
    }
}

impl Serialize for Flags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::STORED.map(|flag| self.has(flag)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Flags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = <[bool; 3]>::deserialize(deserializer)?;
        let mut flags = Flags::default();
        Self::STORED.iter().zip(stored).for_each(|(flag, on)| flags.set(*flag, on));
        Ok(flags)
    }
}

impl Serialize for Job {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = (&self.klass, &self.queue, &self.worker);
        let large = (&self.data, &self.history, &self.more);
        let numbers = (self.priority(), self.retries(), self.remaining());
        let times = (self.expires, self.time, self.score);
        (names, large, numbers, times, (self.attempt, self.state, self.place, self.flags))
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Job {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (names, large, numbers, times, (attempt, state, place, flags)) =
            Deserialize::deserialize(deserializer)?;
        let ((klass, queue, worker), (data, history, more)) = (names, large);
        let (priority, retries, remaining): (f64, f64, f64) = numbers;
        let (expires, time, score) = times;
        let (jid, numbers) = (Name::new(b""), Numbers::default());
        let mut job = Job {
            jid,
            klass,
            queue,
            worker,
            data,
            history,
            more,
            expires,
            time,
            score,
            attempt,
            state,
            place,
            flags,
            numbers,
        };
        job.set_priority(priority);
        job.set_retries(retries);
        job.set_remaining(remaining);
        Ok(job)
    }
}

impl Job {
    /// A job as it is before its first put is done.
    pub(crate) fn new(jid: Name, queue: &Name, nobody: &Name) -> Self {
        Job {
            jid,
            klass: nobody.clone(),
            queue: queue.clone(),
            worker: nobody.clone(),
            data: Text::Short(nobody.clone()),
            history: History::default(),
            more: None,
            expires: 0.0,
            time: 0.0,
            score: 0.0,
            attempt: 0,
            state: State::Waiting,
            place: Place::Work,
            flags: Flags::default(),
            numbers: Numbers { priority: 0, retries: 5, remaining: 5 },
        }
    }

    fn number(&self, which: Number) -> f64 {
        match self.numbers.get(which) {
            ELSEWHERE => self.more.as_deref().map_or(0.0, |more| more.numbers.get(which)),
            small => f64::from(small),
        }
    }

    fn set_number(&mut self, which: Number, value: f64) {
        // The nearest there is: that will do if it is the very same.
        let small = value as i16;
        if small != ELSEWHERE && f64::from(small).to_bits() == value.to_bits() {
            self.numbers.set(which, small);
        } else {
            self.numbers.set(which, ELSEWHERE);
            self.more().numbers.set(which, value);
        }
    }

    pub(crate) fn priority(&self) -> f64 {
        self.number(Number::Priority)
    }

    pub(crate) fn set_priority(&mut self, priority: f64) {
        self.set_number(Number::Priority, priority);
    }

    pub(crate) fn retries(&self) -> f64 {
        self.number(Number::Retries)
    }

    pub(crate) fn set_retries(&mut self, retries: f64) {
        self.set_number(Number::Retries, retries);
    }

    /// Retries that are left.
    pub(crate) fn remaining(&self) -> f64 {
        self.number(Number::Remaining)
    }

    pub(crate) fn set_remaining(&mut self, remaining: f64) {
        self.set_number(Number::Remaining, remaining);
    }

    pub(crate) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    pub(crate) fn tags(&self) -> &[Tagged] {
        self.more.as_deref().map_or(&[], |more| &more.tags)
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.more.as_deref().and_then(|more| more.failure.as_ref())
    }

    pub(crate) fn task(&self) -> Option<&Task> {
        self.more.as_deref().and_then(|more| more.task.as_deref())
    }

    pub(crate) fn task_mut(&mut self) -> Option<&mut Task> {
        self.more.as_deref_mut().and_then(|more| more.task.as_deref_mut())
    }

    pub(crate) fn has_dependencies(&self) -> bool {
        self.more.as_deref().is_some_and(|more| !more.dependencies.is_empty())
    }

    /// Every body this job owns.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = crate::BodyId> + '_ {
        let more = self.more.as_deref();
        let message = more.and_then(|more| more.failure.as_ref()).map(|failure| &failure.message);
        let result = more.and_then(|more| more.result.as_ref());
        let report = more.and_then(|more| more.report.as_deref());
        let reported = report.into_iter().flat_map(|report| report.output.iter().chain(&report.checkpoint));
        let fields = self.task().into_iter().flat_map(Task::texts);
        let texts = std::iter::once(&self.data).chain(message).chain(result).chain(reported).chain(fields);
        texts.chain(self.history.texts()).filter_map(Text::body)
    }

    /// The same, to be given other numbers.
    pub(crate) fn bodies_mut(&mut self, each: &mut dyn FnMut(&mut crate::BodyId)) {
        let mut text = |text: &mut Text| {
            if let Text::Long(id) = text {
                each(id);
            }
        };
        text(&mut self.data);
        self.history.texts_mut(&mut text);
        let Some(more) = self.more.as_deref_mut() else { return };
        more.failure.iter_mut().for_each(|failure| text(&mut failure.message));
        more.result.iter_mut().for_each(&mut text);
        for report in more.report.iter_mut() {
            report.output.iter_mut().chain(&mut report.checkpoint).for_each(&mut text);
        }
        more.task.iter_mut().for_each(|task| task.texts_mut(&mut text));
    }

    /// Since when a worker could have taken it: from its order in the work index, where that tells.
    pub(crate) fn available_since(&self) -> f64 {
        let entered = (self.priority() - self.score) * 1e10;
        if self.place != Place::Work || !entered.is_finite() || entered <= self.time {
            self.time
        } else {
            entered
        }
    }

    /// The order in the work index: highest first. The double arithmetic is part of the contract: it decides ties.
    pub(crate) fn work_score(priority: f64, entered_at: f64) -> f64 {
        priority - entered_at / 1e10
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten million of them: with one byte more, the allocator takes 128 for each.
    #[test]
    fn a_job_takes_112_bytes() {
        assert_eq!(size_of::<Job>(), 112);
    }

    fn job() -> Job {
        Job::new("jid".into(), &"queue".into(), &"".into())
    }

    #[test]
    fn every_number_is_kept_exactly() {
        let small = [0.0, 1.0, -1.0, 32_767.0, -32_767.0];
        let odd = [
            -0.0,
            0.5,
            32_768.0,
            -32_768.0,
            -32_769.0,
            1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
        ];
        for (value, elsewhere) in
            small.map(|value| (value, false)).into_iter().chain(odd.map(|value| (value, true)))
        {
            let mut job = job();
            job.set_retries(value);
            assert_eq!(job.retries().to_bits(), value.to_bits());
            assert_eq!(job.more.is_some(), elsewhere, "{value}");
            assert_eq!((job.priority(), job.remaining()), (0.0, 5.0));
            let stored = postcard::to_stdvec(&job).unwrap();
            let loaded: Job = postcard::from_bytes(&stored).unwrap();
            assert_eq!(loaded.retries().to_bits(), value.to_bits());
            assert_eq!((loaded.priority(), loaded.remaining()), (0.0, 5.0));
            job.set_retries(7.0);
            assert_eq!(job.retries(), 7.0);
        }
    }
}
