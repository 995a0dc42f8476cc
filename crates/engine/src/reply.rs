//! Replies and refusals. A reply says what is; how it is written is the dialect's business.

use crate::{BodyId, Entry, Failure, KeyAnswer, KeyView, Name, Recur, Series, State, Text};

/// What a command answers.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Reply {
    /// It is done; nothing to say.
    Done,
    /// Yes or no.
    Bool(bool),
    /// A count.
    Int(i64),
    /// A number that may have a fraction.
    Number(f64),
    /// A name, mostly a jid.
    Name(Name),
    /// Names, in order.
    Names(Vec<Name>),
    /// A job, if it exists.
    Job(Option<Box<JobView>>),
    /// Jobs, in order.
    Jobs(Vec<JobView>),
    /// The state a job went to.
    State(State),
    /// One outcome per job of a command on many.
    Each(Vec<Result<f64, Refusal>>),
    /// How far a command on many came.
    Stopped(Option<Refusal>),
    /// One queue's counts.
    Counts(QueueCounts),
    /// All queues' counts.
    AllCounts(Vec<QueueCounts>),
    /// A day's statistics of a queue.
    Stats(Box<StatsView>),
    /// Part of a list, with the whole's length.
    Page { total: usize, jids: Vec<Name> },
    /// A page of a search: the jobs, where each is in the walk, and where the next page begins.
    Found { jobs: Vec<JobView>, positions: Vec<crate::Position>, next: Option<crate::Position> },
    /// Part of a list: its rows, how many there are in all, and where the next part goes on.
    Listed { rows: Box<Reply>, total: usize, next: Option<crate::Mark> },
    /// Failure groups with their sizes, by name.
    Groups(Vec<(Name, usize)>),
    /// Tracked jobs, and tracked jids whose job is gone.
    Tracked { jobs: Vec<JobView>, expired: Vec<Name> },
    /// A recurring definition, if it exists.
    Recur(Option<Box<Recur>>),
    /// Recurring definitions.
    Recurs(Vec<Recur>),
    /// Throttles.
    Throttles(Vec<ThrottleView>),
    /// Workers, the most recent first.
    Workers(Vec<WorkerCounts>),
    /// A worker's jobs.
    WorkerJobs { jobs: Vec<Name>, stalled: Vec<Name> },
    /// An option's value, if set.
    Option(Option<Name>),
    /// The options that are set.
    Options(Vec<(Name, Name)>),
    /// A throttle.
    Throttle(ThrottleView),
    /// What a key holds.
    Key(KeyView),
    /// What a keyspace command answers.
    Keyspace(KeyAnswer),
    /// Fingerprints of keys.
    Versions(Vec<u64>),
    /// Totals of the tenant.
    Totals(Totals),
    /// Figures of the tenant and of its queues.
    Overview(Box<Overview>),
}

impl Reply {
    /// Every body that must be fetched before this can be written.
    pub fn bodies(&self, each: &mut dyn FnMut(BodyId)) {
        match self {
            Reply::Job(Some(job)) => job.bodies(each),
            Reply::Jobs(jobs) | Reply::Tracked { jobs, .. } | Reply::Found { jobs, .. } => {
                jobs.iter().for_each(|job| job.bodies(each));
            }
            Reply::Listed { rows, .. } => rows.bodies(each),
            Reply::Key(view) => view.bodies(each),
            _ => {}
        }
    }
}

/// A job as a reply shows it. Names are shared with the engine, texts are yet to be fetched.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct JobView {
    pub jid: Name,
    pub klass: Name,
    pub queue: Name,
    pub state: State,
    pub worker: Name,
    pub tracked: bool,
    pub priority: f64,
    pub retries: f64,
    pub remaining: f64,
    pub expires: f64,
    /// When a scheduled job is due.
    pub due: Option<f64>,
    /// Since when a worker could have taken a waiting job.
    pub available_since: f64,
    pub attempt: u32,
    /// The process that runs it, where its worker said.
    pub pid: Option<Name>,
    /// Its data is a text of a client that need not be JSON.
    pub opaque: bool,
    pub data: Text,
    pub result: Option<Text>,
    pub tags: Vec<Name>,
    pub history: Vec<Entry>,
    pub failure: Option<Failure>,
    pub spawned_from: Option<Name>,
    /// What it said of itself while it ran.
    pub report: Option<Box<crate::Reported>>,
    pub dependents: Vec<Name>,
    pub dependencies: Vec<Name>,
    /// The queue's own included, last; empty once complete.
    pub throttles: Vec<Name>,
    /// The trace context it was put with.
    pub trace: Option<Name>,
}

impl JobView {
    /// Whether its lock never ends.
    pub fn is_endless(&self) -> bool {
        self.expires >= crate::task::LOCK_ENDLESS
    }

    fn bodies(&self, each: &mut dyn FnMut(BodyId)) {
        let mut text = |text: &Text| {
            if let Some(id) = text.body() {
                each(id);
            }
        };
        text(&self.data);
        self.result.iter().for_each(&mut text);
        self.failure.iter().for_each(|failure| text(&failure.message));
        if let Some(report) = &self.report {
            report.output.iter().chain(&report.checkpoint).for_each(&mut text);
        }
        for entry in &self.history {
            if let crate::What::Log(log) = &entry.what {
                log.1.iter().for_each(&mut text);
            }
        }
    }
}

/// A queue's counts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QueueCounts {
    pub name: Name,
    pub waiting: usize,
    pub running: usize,
    pub stalled: usize,
    pub scheduled: usize,
    pub depends: usize,
    pub recurring: usize,
    pub throttled: usize,
    pub paused: bool,
}

/// How a worker is doing, by its last sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Life {
    /// Heard of lately.
    Alive,
    /// Heard of lately, and takes no more jobs.
    Draining,
    /// Not heard of for [`Life::ALIVE_SECONDS`].
    Silent,
    /// Not heard of for [`Life::SILENT_SECONDS`].
    Gone,
}

impl Life {
    /// Who was heard of this recently is alive.
    pub const ALIVE_SECONDS: f64 = 30.0;
    /// Who was not heard of for longer is gone.
    pub const SILENT_SECONDS: f64 = 300.0;

    /// How a worker is doing.
    pub fn of(seen_at: f64, drain: bool, now: f64) -> Self {
        match now - seen_at {
            age if age > Self::SILENT_SECONDS => Life::Gone,
            age if age > Self::ALIVE_SECONDS => Life::Silent,
            _ if drain => Life::Draining,
            _ => Life::Alive,
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Life::Alive => "alive",
            Life::Draining => "draining",
            Life::Silent => "silent",
            Life::Gone => "gone",
        }
    }
}

/// A worker's counts.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct WorkerCounts {
    pub name: Name,
    pub jobs: usize,
    pub stalled: usize,
    pub seen_at: f64,
    /// What it says of itself: JSON.
    pub facts: Option<Name>,
    /// How it is doing.
    pub life: Life,
}

/// A day's statistics of a queue.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct StatsView {
    pub wait: Series,
    pub run: Series,
    pub failures: i64,
    pub failed: i64,
    pub retries: i64,
}

/// A throttle.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ThrottleView {
    pub id: Name,
    pub maximum: f64,
    /// Seconds left; -1: no end; -2: not stored.
    pub ttl: f64,
}

/// Totals of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Totals {
    pub jobs: usize,
    pub queues: usize,
    pub workers: usize,
}

/// Figures of a tenant.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Overview {
    pub jobs: usize,
    /// Finished jobs that are kept.
    pub completed: usize,
    /// Jobs in failure groups.
    pub failed: usize,
    pub workers: usize,
    /// Workers seen in the last minutes, or holding a lock.
    pub workers_alive: usize,
    /// In the order in which they were first seen.
    pub queues: Vec<QueueOverview>,
    /// The sum of the queues that are not listed.
    pub other: Option<QueueOverview>,
}

/// Figures of a queue. Histograms, failures and retries are today's.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct QueueOverview {
    pub counts: QueueCounts,
    /// Seconds for which the job has waited that has waited longest; none: no job waits.
    pub oldest: Option<f64>,
    pub wait: Histogram,
    pub run: Histogram,
    pub failures: i64,
    pub retries: i64,
}

impl QueueOverview {
    /// Adds another queue's figures; the name stays.
    pub fn add(&mut self, other: &QueueOverview) {
        let (mine, theirs) = (&mut self.counts, &other.counts);
        mine.waiting += theirs.waiting;
        mine.running += theirs.running;
        mine.stalled += theirs.stalled;
        mine.scheduled += theirs.scheduled;
        mine.depends += theirs.depends;
        mine.recurring += theirs.recurring;
        mine.throttled += theirs.throttled;
        mine.paused &= theirs.paused;
        self.oldest = match (self.oldest, other.oldest) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        self.wait.add(&other.wait);
        self.run.add(&other.run);
        self.failures += other.failures;
        self.retries += other.retries;
    }
}

/// How many samples lie below each of [`Histogram::BOUNDS`].
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Histogram {
    pub below: [u64; Histogram::BOUNDS.len()],
    pub count: u64,
    pub sum: f64,
}

impl Histogram {
    /// Seconds; each begins one of the bins that are kept.
    pub const BOUNDS: [i64; 14] = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400];

    pub(crate) fn of(series: &Series) -> Self {
        Histogram {
            below: Self::BOUNDS.map(|bound| series.below(bound)),
            count: series.total as u64,
            sum: series.mean * series.total,
        }
    }

    fn add(&mut self, other: &Histogram) {
        self.below.iter_mut().zip(other.below).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum += other.sum;
    }
}

/// An expected no: a stable code with the facts to explain it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Refusal {
    /// There is no such job.
    NoJob { jid: Name },
    /// There is no such recurring job.
    NoRecur { jid: Name },
    /// A put of a new job named one that exists.
    Exists { jid: Name },
    /// The job is not running.
    NotRunning { jid: Name, state: State },
    /// Somebody else, or a later attempt, holds it.
    NotHeld { jid: Name, worker: Name },
    /// It runs in another queue.
    WrongQueue { jid: Name, queue: Name },
    /// It does not wait for others. None: there is no such job.
    NotDepends { jid: Name, state: Option<State> },
    /// The word is neither on nor off.
    NeitherOnNorOff,
    /// Others depend on the job to be cancelled.
    Needed { jid: Name, by: Name },
    /// The key holds another type.
    WrongType,
    /// A number was needed where the key holds none, or it would not be whole.
    NotInteger,
    /// Something else about the arguments.
    BadArgument(String),
}

impl Refusal {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::NoJob { .. } => "NOJOB",
            Refusal::NoRecur { .. } => "NORECUR",
            Refusal::Exists { .. } => "EXISTS",
            Refusal::NotRunning { .. } => "NOTRUNNING",
            Refusal::NotHeld { .. } => "NOTHELD",
            Refusal::WrongQueue { .. } => "WRONGQUEUE",
            Refusal::NotDepends { .. } => "NOTDEPENDS",
            Refusal::Needed { .. } => "NEEDED",
            Refusal::WrongType => "WRONGTYPE",
            Refusal::NeitherOnNorOff | Refusal::NotInteger | Refusal::BadArgument(_) => "BADARG",
        }
    }
}
