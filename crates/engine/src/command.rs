//! Commands: what a dialect asks of the engine. Everything is already parsed and within limits.
//!
//! Where dialects differ in meaning the difference is a field here (`Rules`), never a second copy of a verb.

use bytes::Bytes;

use crate::{Cron, KeyCommand, KeyQuery, Name, TaskCommand};

/// One command with who and when.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Call {
    /// Whose jobs.
    pub tenant: Name,
    /// The caller's time in seconds; the server's for the native dialects.
    pub now: f64,
    /// The server's time in seconds: used only for the life of throttles.
    pub clock: f64,
    /// Where the caller's dialect differs.
    pub rules: Rules,
    /// What to do.
    pub command: Command,
}

/// The differences in meaning between dialects.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Rules {
    /// How long a worker whose lock ran out may still renew it before the job is handed over.
    pub grace: Grace,
    /// A hand-over costs a retry, and without retries left the job fails.
    pub retries_counted: bool,
    /// `<queue>-max-concurrency` bounds a pop.
    pub concurrency_option: bool,
    /// A pop looks at the work index at most `max-pop-retry` times; otherwise until it has enough.
    pub pop_rounds_option: bool,
    /// A tag whose last job leaves is forgotten; otherwise its counter drifts.
    pub unused_tags_forgotten: bool,
    /// Tags are indexed.
    pub tags_indexed: bool,
    /// Events are published.
    pub events: bool,
    /// An explicit retry that exhausts is recorded as `failed-retries` and told to nobody.
    pub exhaustion_quiet: bool,
    /// An explicit retry that names its group leaves a line in the history.
    pub retries_noted: bool,
    /// A heartbeat counts as a sign of life of the worker.
    pub heartbeat_is_life: bool,
    /// `timeout` clears the job's worker.
    pub timeout_clears_worker: bool,
    /// `timeout` of several jobs is done for all or none; otherwise in order, up to the first that is refused.
    pub timeout_whole: bool,
    /// Tasks that fell due stay in the schedule until a client moves them.
    pub tasks_stay_scheduled: bool,
}

/// See [`Rules::grace`].
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Grace {
    /// The option `grace-period`.
    Option,
    /// None: a lock that ran out is handed over at once.
    None,
}

impl Rules {
    /// qless.
    pub const QLESS: Rules = Rules {
        grace: Grace::Option,
        retries_counted: true,
        concurrency_option: true,
        pop_rounds_option: false,
        unused_tags_forgotten: false,
        tags_indexed: true,
        events: true,
        exhaustion_quiet: false,
        retries_noted: false,
        heartbeat_is_life: true,
        timeout_clears_worker: false,
        timeout_whole: false,
        tasks_stay_scheduled: false,
    };
    /// qless with throttles: the script reqless shipped before it renamed its commands.
    pub const QLESS_THROTTLES: Rules = Rules {
        concurrency_option: false,
        pop_rounds_option: true,
        unused_tags_forgotten: true,
        ..Rules::QLESS
    };
    /// reqless.
    pub const REQLESS: Rules = Rules {
        exhaustion_quiet: true,
        heartbeat_is_life: false,
        timeout_clears_worker: true,
        ..Rules::QLESS_THROTTLES
    };
    /// The older one-script-per-command API.
    pub const OLDER: Rules = Rules {
        grace: Grace::None,
        retries_counted: false,
        tags_indexed: false,
        events: false,
        ..Rules::QLESS
    };
    /// Haul's own commands.
    pub const NATIVE: Rules = Rules {
        grace: Grace::None,
        retries_noted: true,
        unused_tags_forgotten: true,
        timeout_clears_worker: true,
        timeout_whole: true,
        ..Rules::QLESS
    };
    /// Blueque's commands on its keys.
    pub const BLUEQUE: Rules = Rules { tasks_stay_scheduled: true, ..Rules::NATIVE };
}

/// What to do.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Command {
    /// One job. -> `Job`
    Get { jid: Name },
    /// The jobs that exist, in order. -> `Jobs`
    GetMany { jids: Vec<Name> },
    /// Whether there is such a job. -> `Bool`
    Exists { jid: Name },
    /// New, or moved and redefined. -> `Name`
    Put(Box<Put>),
    /// All or none. -> `Names`
    PutMany(Vec<Put>),
    /// -> `Jobs`
    Pop(Pop),
    /// Expired locks, then work order. -> `Jobs`
    Peek { queue: Name, offset: usize, count: usize },
    /// -> `State`
    Complete(Box<Complete>),
    /// Each on its own: a refusal of one does not stop the others. -> `Each`
    CompleteMany { worker: Name, jids: Vec<Name> },
    /// -> `Name`
    Fail(Box<Fail>),
    /// -> `Number`, the new expiry.
    Heartbeat(Heartbeat),
    /// Each on its own. -> `Each`
    HeartbeatMany { worker: Name, jids: Vec<Name> },
    /// What a running job says of itself. -> `Done`
    Report(Box<Report>),
    /// -> `Number`, retries left.
    Retry(Box<Retry>),
    /// -> `Done`. `on: None` is an unknown word: checked last, refused.
    Depends { jid: Name, on: Option<bool>, jids: Vec<Name>, all: bool },
    /// -> `Number`
    Priority { jid: Name, priority: f64 },
    /// -> `Names`, all its tags.
    Tag { jid: Name, tags: Vec<Name> },
    /// -> `Names`
    Untag { jid: Name, tags: Vec<Name> },
    /// -> `Page`
    Tagged { tag: Name, range: RankWindow },
    /// Tags used at least twice, best first. -> `Names`
    TopTags { offset: usize, count: Option<usize> },
    /// -> `Bool`, whether that changed anything.
    Track { jid: Name },
    /// -> `Bool`
    Untrack { jid: Name },
    /// -> `Tracked`
    Tracked,
    /// -> `Done`
    Log { jid: Name, message: Name, data: Option<Bytes> },
    /// -> `Done`
    Pause { queues: Vec<Name>, paused: bool },
    /// One queue. -> `Counts`
    QueueCounts { queue: Name },
    /// All known queues. -> `AllCounts`
    AllQueueCounts,
    /// -> `Names`
    QueueNames,
    /// -> `Int`
    Length { queue: Name },
    /// -> `Stats`
    Stats { queue: Name, date: f64 },
    /// In order, up to the first that is refused; earlier ones stay done. -> `Stopped`
    Timeout { jids: Vec<Name> },
    /// -> `Int`, how many existed.
    Cancel { jids: Vec<Name> },
    /// -> `Int`
    Unfail { queue: Name, group: Name, count: usize },
    /// -> `Name`
    Recur(Box<RecurPut>),
    /// -> `Bool`
    Unrecur { jid: Name },
    /// -> `Recur`
    RecurGet { jid: Name },
    /// -> `Done`
    RecurUpdate { jid: Name, changes: Vec<RecurChange> },
    /// A child at once, besides those that come by themselves. -> `Name`, the child's.
    RecurRun { jid: Name },
    /// -> `Names`
    RecurTag { jid: Name, tags: Vec<Name> },
    /// -> `Names`
    RecurUntag { jid: Name, tags: Vec<Name> },
    /// -> `Workers`
    Workers,
    /// -> `WorkerJobs`
    WorkerJobs { worker: Name },
    /// A sign of life of a worker with what it says of itself; a new one has not been asked to drain, one that
    /// drains of its own accord says so. -> `Bool`, whether it is asked to drain.
    Register { worker: Name, facts: Name, is_new: bool, draining: bool },
    /// Asks a worker to take no more jobs. -> `Bool`, whether there is such a worker.
    Drain { worker: Name, drain: bool },
    /// -> `Done`
    Deregister { workers: Vec<Name> },
    /// -> `Done`
    Forget { queues: Vec<Name> },
    /// Part of a list. -> `Listed`
    List(Box<List>),
    /// Jobs in a state. -> `Names`
    Jobs(Jobs),
    /// -> `Groups`
    FailureGroups,
    /// -> `Page`
    Failed { group: Name, range: RankWindow },
    /// Jobs by what they are, a page at a time. -> `Found`
    Search(Box<Search>),
    /// -> `Option`
    ConfigGet { option: Name },
    /// The options that are set. -> `Options`
    ConfigAll,
    /// -> `Done`
    ConfigSet { option: Name, value: Name },
    /// -> `Done`
    ConfigUnset { option: Name },
    /// -> `Done`
    ThrottleSet { id: Name, maximum: f64, ttl: f64 },
    /// -> `Throttle`
    ThrottleGet { id: Name },
    /// -> `Done`
    ThrottleDelete { id: Name },
    /// -> `Names`
    ThrottleLocks { id: Name },
    /// -> `Names`
    ThrottlePending { id: Name },
    /// -> `Done`
    ThrottleRelease { id: Name, jids: Vec<Name> },
    /// A read of the virtual or scratch keys. -> `Key`
    Key(KeyQuery),
    /// A command on the scratch keyspace. -> `Keyspace`
    Keyspace(KeyCommand),
    /// A write to a key that may be a view of jobs. -> `Keyspace`
    Task(TaskCommand),
    /// Fingerprints of keys, for watching them. -> `Versions`
    Versions { keys: Vec<Name> },
    /// Everything of the tenant goes. -> `Done`
    Flush,
    /// -> `Totals`
    Totals,
    /// How many keys the state is seen as: looks at every job. -> `Int`
    KeyCount,
    /// Figures of the tenant and of its queues: the first `queues_max` by name, the rest summed. -> `Overview`
    Overview { queues_max: usize },
    /// Every tenant there is, whoever asks. -> `Names`
    Tenants,
}

impl Command {
    /// Whether it only looks. (Some looks tidy up on the way; a frozen engine leaves that.)
    pub fn is_look(&self) -> bool {
        match self {
            Command::Keyspace(command) => matches!(command, KeyCommand::Get { .. } | KeyCommand::Ttl { .. }),
            Command::Get { .. }
            | Command::GetMany { .. }
            | Command::Exists { .. }
            | Command::Peek { .. }
            | Command::Tagged { .. }
            | Command::TopTags { .. }
            | Command::Tracked
            | Command::QueueCounts { .. }
            | Command::AllQueueCounts
            | Command::QueueNames
            | Command::Length { .. }
            | Command::Stats { .. }
            | Command::RecurGet { .. }
            | Command::Workers
            | Command::WorkerJobs { .. }
            | Command::Jobs(_)
            | Command::FailureGroups
            | Command::Failed { .. }
            | Command::Search(_)
            | Command::List(_)
            | Command::ConfigGet { .. }
            | Command::ConfigAll
            | Command::ThrottleGet { .. }
            | Command::ThrottleLocks { .. }
            | Command::ThrottlePending { .. }
            | Command::Key(_)
            | Command::Versions { .. }
            | Command::Totals
            | Command::KeyCount
            | Command::Overview { .. }
            | Command::Tenants => true,
            _ => false,
        }
    }
}

/// See [`Command::Put`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Put {
    /// Which job.
    pub jid: Name,
    /// Into which queue.
    pub queue: Name,
    /// Who puts it: the holder of a lock loses it without notice only if it is this one.
    pub worker: Option<Name>,
    /// None keeps what the job has.
    pub klass: Option<Name>,
    /// None keeps what the job has.
    pub data: Option<Bytes>,
    /// Seconds; not positive: at once.
    pub delay: f64,
    /// None keeps, or 0.
    pub priority: Option<f64>,
    /// None keeps, or none.
    pub tags: Option<Vec<Name>>,
    /// None keeps, or 5.
    pub retries: Option<f64>,
    /// Empty keeps.
    pub depends: Vec<Name>,
    /// What is given, plus the queue's own. Kept as they are only if `klass` is: a job that is merely moved.
    pub throttles: Vec<Name>,
    /// What must hold of the job's existence.
    pub when: PutWhen,
    /// A W3C trace context to carry to whoever runs it; none keeps what the job has.
    pub trace: Option<Name>,
}

/// See [`Put::when`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PutWhen {
    /// New or not.
    Always,
    /// Only an existing job is put again.
    Exists,
    /// Only a new one.
    New,
}

/// See [`Command::Pop`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Pop {
    /// Who takes them.
    pub worker: Name,
    /// From where, in this order.
    pub queues: Vec<Name>,
    /// One from each queue in turn, instead of all from the first.
    pub round_robin: bool,
    /// At most this many.
    pub count: usize,
    /// When the lock ends.
    pub lock: Lock,
    /// Only jobs of these klasses; empty: any. At most [`crate::KLASS_WALK_MAX`] jobs of each queue are looked at.
    pub klasses: Vec<Name>,
}

/// How long a lock lasts.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Lock {
    /// As the options say.
    Option,
    /// This many seconds from now.
    Seconds(f64),
    /// Until this moment.
    Until(f64),
}

/// See [`Command::Complete`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Complete {
    /// Which job.
    pub jid: Name,
    /// Who must hold it; none: whoever does.
    pub worker: Option<Name>,
    /// The queue it must run in; none: any.
    pub queue: Option<Name>,
    /// The attempt it must be.
    pub attempt: Option<u32>,
    /// New data; none keeps.
    pub data: Option<Bytes>,
    /// A result to keep with the job.
    pub result: Option<Bytes>,
    /// Move on instead of finishing.
    pub next: Option<Next>,
}

/// Where a completed job goes on.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Next {
    /// The next queue.
    pub queue: Name,
    /// Seconds.
    pub delay: f64,
    /// Jobs to wait for.
    pub depends: Vec<Name>,
}

/// See [`Command::Fail`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Fail {
    /// Which job.
    pub jid: Name,
    /// Who must hold it; none: in any state but complete (the oldest API).
    pub worker: Option<Name>,
    /// The attempt it must be.
    pub attempt: Option<u32>,
    /// Into which group.
    pub group: Name,
    /// Why.
    pub message: Bytes,
    /// New data; none keeps.
    pub data: Option<Bytes>,
}

/// See [`Command::Heartbeat`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Heartbeat {
    /// Which job.
    pub jid: Name,
    /// Who must hold it.
    pub worker: Name,
    /// The attempt it must be.
    pub attempt: Option<u32>,
    /// Until when.
    pub lock: Lock,
    /// New data; none keeps.
    pub data: Option<Bytes>,
}

/// See [`Command::Report`]. What is none stays as it is.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Which job.
    pub jid: Name,
    /// Who must hold it.
    pub worker: Name,
    /// The attempt it must be.
    pub attempt: Option<u32>,
    /// How far it is, from 0 to 100.
    pub percent: Option<f64>,
    /// What it is doing.
    pub message: Option<Name>,
    /// The last part of its output.
    pub output: Option<Bytes>,
    /// How long the output was in all up to there.
    pub output_bytes: Option<u64>,
    /// What the next attempt is to begin with: JSON.
    pub checkpoint: Option<Bytes>,
}

/// See [`Command::Retry`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Retry {
    /// Which job.
    pub jid: Name,
    /// Back into which queue; none: its own.
    pub queue: Option<Name>,
    /// Who must hold it.
    pub worker: Name,
    /// The attempt it must be.
    pub attempt: Option<u32>,
    /// Seconds.
    pub delay: f64,
    /// The group to fail into without retries left.
    pub group: Option<Name>,
    /// Why.
    pub message: Option<Bytes>,
}

/// See [`Command::Recur`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct RecurPut {
    /// Which definition.
    pub jid: Name,
    /// Into which queue its children go.
    pub queue: Name,
    /// Their klass.
    pub klass: Name,
    /// Their data.
    pub data: Bytes,
    /// Seconds between them, positive.
    pub interval: f64,
    /// Seconds until the first.
    pub offset: f64,
    /// A schedule; interval and offset are then ignored.
    pub cron: Option<Cron>,
    /// Their priority.
    pub priority: f64,
    /// Their retries.
    pub retries: f64,
    /// Missed occurrences made up for at most; 0: all.
    pub backlog: f64,
    /// Their tags.
    pub tags: Vec<Name>,
    /// Their throttles, the queue's own excepted.
    pub throttles: Vec<Name>,
}

/// One change of a recurring definition.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum RecurChange {
    /// New priority.
    Priority(f64),
    /// New interval; shifts the next time by the difference. Instead of a schedule: counts from now.
    Interval(f64),
    /// New schedule.
    Cron(Cron),
    /// Spawns nothing any more, or goes on with the next moment to come.
    Paused(bool),
    /// New retries.
    Retries(f64),
    /// New data.
    Data(Bytes),
    /// New klass.
    Klass(Name),
    /// New queue.
    Queue(Name),
    /// New backlog.
    Backlog(f64),
    /// New throttles.
    Throttles(Vec<Name>),
}

/// See [`Command::List`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct List {
    /// Which.
    pub what: Listing,
    /// Where the page before ended.
    pub after: Option<Mark>,
    /// Rows passed over from there.
    pub skip: usize,
    /// Rows at most.
    pub count: usize,
}

/// The lists there are, and what each holds.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Listing {
    /// In the order in which they were first seen. `AllCounts`
    Queues,
    /// The most recently seen first. `Workers`
    Workers,
    /// Those it holds, whose lock ends first coming first. `WorkerJobs`
    WorkerJobs(Name),
    /// The largest first. `Groups`
    Groups,
    /// In the order in which they were tracked. `Tracked`
    Tracked,
    /// Of all queues or one, the soonest first. `Recurs`
    Recurring { queue: Option<Name> },
    /// By name. `Throttles`
    Throttles,
    /// The jobs under a throttle, by name. `Names`
    ThrottleLocks(Name),
    /// The jobs it holds back, those that came first coming first. `Names`
    ThrottlePending(Name),
    /// The options that are set and begin with this, by name. `Options`
    Options { prefix: Name },
}

/// A row's place in a list.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Mark {
    /// What the list is ordered by first.
    pub score: f64,
    /// What comes then.
    pub name: Name,
}

impl Mark {
    /// As bytes that a client may hold.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// From bytes that a client sent; none if they are not a mark.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mark: Mark = postcard::from_bytes(bytes).ok()?;
        (!mark.score.is_nan()).then_some(mark)
    }
}

/// See [`Command::Jobs`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Jobs {
    /// Which index.
    pub list: JobList,
    /// Of which queue; ignored for `Complete`.
    pub queue: Name,
    /// Positions wanted.
    pub range: RankWindow,
}

/// See [`Command::Search`]. What is none is not asked for.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Search {
    /// In which queue; completed jobs are in none.
    pub queue: Option<Name>,
    /// In which state.
    pub state: Option<SearchState>,
    /// Of which klass.
    pub klass: Option<Name>,
    /// With which tag.
    pub tag: Option<Name>,
    /// Held by which worker.
    pub worker: Option<Name>,
    /// Failed in which group.
    pub group: Option<Name>,
    /// The last thing in their history happened then or later.
    pub since: Option<f64>,
    /// It happened then or earlier.
    pub until: Option<f64>,
    /// Where the page before ended.
    pub from: Option<Position>,
    /// Jobs on a page at most.
    pub count: usize,
    /// Jobs looked at for it at most.
    pub examine_max: usize,
}

/// A state as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum SearchState {
    /// Ready to be popped.
    Waiting,
    /// Locked, and the lock has not run out.
    Running,
    /// Its lock has run out or was taken away.
    Stalled,
    /// Not before a time.
    Scheduled,
    /// Blocked by other jobs.
    Depends,
    /// Held back by a throttle.
    Throttled,
    /// In a failure group.
    Failed,
    /// Finished.
    Complete,
}

impl SearchState {
    /// The state of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "waiting" => SearchState::Waiting,
            "running" => SearchState::Running,
            "stalled" => SearchState::Stalled,
            "scheduled" => SearchState::Scheduled,
            "depends" => SearchState::Depends,
            "throttled" => SearchState::Throttled,
            "failed" => SearchState::Failed,
            "complete" => SearchState::Complete,
            _ => return None,
        })
    }
}

/// Where in a search's walk a page ended.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Position {
    /// The queue, group, tag or worker whose jobs were walked.
    pub name: Name,
    /// Which of its indexes.
    pub place: crate::Place,
    /// The last job's score there.
    pub score: f64,
    /// The last job.
    pub jid: Name,
}

impl Position {
    /// As bytes that a client may hold.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// From bytes that a client sent; none if they are not a position.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let position: Position = postcard::from_bytes(bytes).ok()?;
        position.score.is_finite().then_some(position)
    }
}

/// The lists a queue (or the tenant) has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum JobList {
    /// Finished, newest first.
    Complete,
    /// In work order.
    Waiting,
    /// Locks that have not run out.
    Running,
    /// Locks that have.
    Stalled,
    /// By due time.
    Scheduled,
    /// By time of entry.
    Depends,
    /// Definitions by next time.
    Recurring,
    /// By time of entry.
    Throttled,
}

/// A window of positions. The dialects count in two ways, both visible to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum RankWindow {
    /// Positions `start..=stop`, negative ones counted from the end.
    Ranks { start: i64, stop: i64 },
    /// `count` from `offset`; none: all.
    Limit { offset: usize, count: Option<usize> },
}

impl RankWindow {
    /// As (skip, take) over a list of `len`.
    pub(crate) fn resolve(self, len: usize) -> (usize, usize) {
        match self {
            RankWindow::Limit { offset, count } => (offset.min(len), count.unwrap_or(len)),
            RankWindow::Ranks { start, stop } => {
                let size = i64::try_from(len).unwrap_or(i64::MAX);
                let from = if start < 0 { (size + start).max(0) } else { start };
                let to = if stop < 0 { size + stop } else { stop.min(size - 1) };
                if from > to || from >= size {
                    return (0, 0);
                }
                let skip = usize::try_from(from).unwrap_or(0);
                (skip, usize::try_from(to - from + 1).unwrap_or(0))
            }
        }
    }
}
