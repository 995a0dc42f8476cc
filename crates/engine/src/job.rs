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
    pub(crate) numbers: Numbers<f64, f64>,
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
    pub(crate) data: Text,
    pub(crate) history: History,
    pub(crate) more: Option<Box<More>>,
    /// None: it was never handed out.
    run: Option<Box<Run>>,
    /// Moment of the last put, pop or complete: feeds the statistics.
    pub(crate) time: f64,
    pub(crate) score: f64,
    pub(crate) state: State,
    pub(crate) place: Place,
    pub(crate) flags: Flags,
    numbers: Numbers<i16, i8>,
}

/// Who runs a job, or ran it last. Nearly all of many jobs wait to be handed out: they do without.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// None or empty: nobody. Stays set after `retry`.
    pub(crate) worker: Option<Name>,
    pub(crate) expires: f64,
    /// How often it was handed out.
    pub(crate) attempt: u32,
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
pub(crate) struct Numbers<P, R> {
    priority: P,
    retries: R,
    remaining: R,
}

impl Numbers<f64, f64> {
    fn get(&self, which: Number) -> f64 {
        match which {
            Number::Priority => self.priority,
            Number::Retries => self.retries,
            Number::Remaining => self.remaining,
        }
    }

    fn set(&mut self, which: Number, value: f64) {
        match which {
            Number::Priority => self.priority = value,
            Number::Retries => self.retries = value,
            Number::Remaining => self.remaining = value,
        }
    }
}

/// The least of each stands for a number that is in `More`.
impl Numbers<i16, i8> {
    /// None: it is elsewhere.
    fn get(&self, which: Number) -> Option<f64> {
        let retries = match which {
            Number::Priority => return (self.priority != i16::MIN).then_some(f64::from(self.priority)),
            Number::Retries => self.retries,
            Number::Remaining => self.remaining,
        };
        (retries != i8::MIN).then_some(f64::from(retries))
    }

    /// Takes the nearest there is; says whether it is the very same.
    fn set(&mut self, which: Number, value: f64) -> bool {
        match which {
            Number::Priority => self.priority = value as i16,
            Number::Retries => self.retries = value as i8,
            Number::Remaining => self.remaining = value as i8,
        }
        self.get(which).is_some_and(|small| small.to_bits() == value.to_bits())
    }

    fn set_elsewhere(&mut self, which: Number) {
        match which {
            Number::Priority => self.priority = i16::MIN,
            Number::Retries => self.retries = i8::MIN,
            Number::Remaining => self.remaining = i8::MIN,
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

/// Written as a name of these bytes is.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl Serialize for Job {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = (&self.klass, &self.queue, Bytes(self.worker_bytes()));
        let large = (&self.data, &self.history, &self.more);
        let numbers = (self.priority(), self.retries(), self.remaining());
        let times = (self.expires(), self.time, self.score);
        (names, large, numbers, times, (self.attempt(), self.state, self.place, self.flags))
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Job {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (names, large, numbers, times, (attempt, state, place, flags)) =
            Deserialize::deserialize(deserializer)?;
        let ((klass, queue, worker), (data, history, more)): ((_, _, Name), _) = (names, large);
        let (priority, retries, remaining): (f64, f64, f64) = numbers;
        let (expires, time, score): (f64, f64, f64) = times;
        let has_run =
            attempt != 0 || expires.to_bits() != 0 || !worker.is_empty() || Flags::has(flags, Flag::Held);
        let run = has_run.then(|| Box::new(Run { worker: Some(worker), expires, attempt }));
        let (jid, numbers) = (Name::new(b""), Numbers::default());
        let mut job =
            Job { jid, klass, queue, data, history, more, run, time, score, state, place, flags, numbers };
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
            data: Text::Short(nobody.clone()),
            history: History::default(),
            more: None,
            run: None,
            time: 0.0,
            score: 0.0,
            state: State::Waiting,
            place: Place::Work,
            flags: Flags::default(),
            numbers: Numbers { priority: 0, retries: 5, remaining: 5 },
        }
    }

    fn number(&self, which: Number) -> f64 {
        let elsewhere = || self.more.as_deref().map_or(0.0, |more| more.numbers.get(which));
        self.numbers.get(which).unwrap_or_else(elsewhere)
    }

    fn set_number(&mut self, which: Number, value: f64) {
        if !self.numbers.set(which, value) {
            self.numbers.set_elsewhere(which);
            self.more().numbers.set(which, value);
        }
    }

    /// Who holds it, or held it last: see [`Run`].
    pub(crate) fn worker(&self) -> Option<&Name> {
        self.run.as_deref().and_then(|run| run.worker.as_ref())
    }

    /// The same, empty for none.
    pub(crate) fn worker_bytes(&self) -> &[u8] {
        self.worker().map_or(b"", Name::bytes)
    }

    /// When its lock ends, if it has one.
    pub(crate) fn expires(&self) -> f64 {
        self.run.as_deref().map_or(0.0, |run| run.expires)
    }

    /// How often it was handed out.
    pub(crate) fn attempt(&self) -> u32 {
        self.run.as_deref().map_or(0, |run| run.attempt)
    }

    /// To be changed; if it is there.
    pub(crate) fn run_mut(&mut self) -> Option<&mut Run> {
        self.run.as_deref_mut()
    }

    /// To be changed.
    pub(crate) fn run(&mut self) -> &mut Run {
        self.run.get_or_insert_default()
    }

    /// Nobody holds it; answers who did.
    pub(crate) fn clear_lock(&mut self) -> Option<Name> {
        let run = self.run_mut()?;
        run.expires = 0.0;
        run.worker.take()
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

    /// Ten million of them: with one byte more, the allocator takes 112 for each.
    #[test]
    fn a_job_takes_96_bytes() {
        assert_eq!(size_of::<Job>(), 96);
    }

    fn job() -> Job {
        Job::new("jid".into(), &"queue".into(), &"".into())
    }

    #[test]
    fn every_number_is_kept_exactly() {
        let small = [0.0, 1.0, -1.0, 127.0, -127.0];
        let odd = [
            -0.0,
            0.5,
            128.0,
            -128.0,
            -129.0,
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

    #[test]
    fn every_priority_is_kept_exactly() {
        let small = [0.0, 128.0, 32_767.0, -32_767.0];
        let odd = [-0.0, 0.5, 32_768.0, -32_768.0, f64::NEG_INFINITY];
        for (value, elsewhere) in
            small.map(|value| (value, false)).into_iter().chain(odd.map(|value| (value, true)))
        {
            let mut job = job();
            job.set_priority(value);
            assert_eq!(job.priority().to_bits(), value.to_bits());
            assert_eq!(job.more.is_some(), elsewhere, "{value}");
            let loaded: Job = postcard::from_bytes(&postcard::to_stdvec(&job).unwrap()).unwrap();
            assert_eq!(loaded.priority().to_bits(), value.to_bits());
            assert_eq!((loaded.retries(), loaded.remaining()), (5.0, 5.0));
        }
    }

    #[test]
    fn who_runs_it_is_stored_as_a_field_each() {
        let stored = |job: &Job| postcard::to_stdvec(job).unwrap();
        let mut ran = job();
        *ran.run() = Run { worker: Some("me".into()), expires: 7.5, attempt: 3 };
        let loaded: Job = postcard::from_bytes(&stored(&ran)).unwrap();
        assert_eq!((loaded.worker(), loaded.expires(), loaded.attempt()), (Some(&"me".into()), 7.5, 3));
        assert_eq!(ran.clear_lock(), Some("me".into()));
        let loaded: Job = postcard::from_bytes(&stored(&ran)).unwrap();
        assert_eq!((loaded.worker_bytes(), loaded.expires(), loaded.attempt()), (&b""[..], 0.0, 3));
        let mut waits = job();
        let bytes = stored(&waits);
        assert!(postcard::from_bytes::<Job>(&bytes).unwrap().run.is_none());
        waits.run();
        assert_eq!(stored(&waits), bytes);
    }
}
