//! Replies in a form both sides can be compared in: a text is its bytes, wherever the engine keeps it.

use bytes::Bytes;
use haul_engine::{
    BodyId, Entry, Failure, JobView, KeyAnswer, KeyType, KeyView, Name, QueueCounts, Recur, Refusal, Reply,
    Series, State, StatsView, Text, ThrottleView, ViewValue, What, WorkerCounts,
};

/// What a command answers, refusals included.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Refused(Refusal),
    Done,
    Bool(bool),
    Int(i64),
    Number(f64),
    Name(Name),
    Names(Vec<Name>),
    Job(Option<Box<JobSeen>>),
    Jobs(Vec<JobSeen>),
    State(State),
    Each(Vec<Result<f64, Refusal>>),
    Stopped(Option<Refusal>),
    Counts(Vec<QueueCounts>),
    Stats(Box<StatsSeen>),
    Page {
        total: usize,
        jids: Vec<Name>,
    },
    Groups(Vec<(Name, usize)>),
    Tracked {
        jobs: Vec<JobSeen>,
        expired: Vec<Name>,
    },
    Recur(Option<Box<Recur>>),
    Workers(Vec<WorkerCounts>),
    WorkerJobs {
        jobs: Vec<Name>,
        stalled: Vec<Name>,
    },
    Option(Option<Name>),
    Options(Vec<(Name, Name)>),
    Throttle(ThrottleView),
    Keyspace(KeyAnswer),
    KeyType(KeyType),
    KeyCount(usize),
    KeyScored(Vec<(Name, f64)>),
    KeyScore(Option<f64>),
    KeyRank(Option<usize>),
    Keys(Vec<Name>),
    /// A part of a hash or list, each value in words.
    KeyValues(Vec<String>),
    /// How many jobs there are; the other totals count things only the engine has.
    Totals(usize),
    /// Nothing the model has an opinion on.
    Unchecked,
}

/// A job as a reply shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSeen {
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
    pub attempt: u32,
    pub data: Bytes,
    pub result: Option<Bytes>,
    pub tags: Vec<Name>,
    /// When, and what in words.
    pub history: Vec<(f64, String)>,
    pub failure: Option<FailureSeen>,
    pub spawned_from: Option<Name>,
    pub dependents: Vec<Name>,
    pub dependencies: Vec<Name>,
    pub throttles: Vec<Name>,
    pub report: Option<ReportSeen>,
}

/// What a job said of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportSeen {
    pub attempt: u32,
    pub percent: Option<f64>,
    pub message: Option<Name>,
    pub output: Option<Bytes>,
    pub output_bytes: u64,
    pub checkpoint: Option<Bytes>,
}

/// Why a job failed.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureSeen {
    pub group: Name,
    pub message: Bytes,
    pub when: f64,
    pub worker: Name,
    pub queue: Name,
}

/// A day's statistics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatsSeen {
    pub wait: SeriesSeen,
    pub run: SeriesSeen,
    pub failures: i64,
    pub failed: i64,
    pub retries: i64,
}

/// One series of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesSeen {
    pub total: f64,
    pub mean: f64,
    pub vk: f64,
    pub unified: Vec<u64>,
    pub fine: Vec<u64>,
    pub sparse: Vec<(String, u64)>,
}

/// Finds the bytes of a body; none: it is missing, which is a failure of its own.
pub(crate) type Fetch<'a> = &'a dyn Fn(BodyId) -> Option<Bytes>;

/// The engine's outcome in comparable form.
pub(crate) fn seen(outcome: Result<Reply, Refusal>, fetch: Fetch<'_>) -> Answer {
    match outcome {
        Err(refusal) => Answer::Refused(refusal),
        Ok(reply) => seen_reply(reply, fetch),
    }
}

fn seen_reply(reply: Reply, fetch: Fetch<'_>) -> Answer {
    let jobs = |jobs: Vec<JobView>| jobs.into_iter().map(|job| seen_job(job, fetch)).collect();
    match reply {
        Reply::Done => Answer::Done,
        Reply::Bool(value) => Answer::Bool(value),
        Reply::Int(value) => Answer::Int(value),
        Reply::Number(value) => Answer::Number(value),
        Reply::Name(value) => Answer::Name(value),
        Reply::Names(values) => Answer::Names(values),
        Reply::Job(job) => Answer::Job(job.map(|job| Box::new(seen_job(*job, fetch)))),
        Reply::Jobs(views) => Answer::Jobs(jobs(views)),
        Reply::State(state) => Answer::State(state),
        Reply::Each(each) => Answer::Each(each),
        Reply::Stopped(refusal) => Answer::Stopped(refusal),
        Reply::Counts(counts) => Answer::Counts(vec![counts]),
        Reply::AllCounts(counts) => Answer::Counts(counts),
        Reply::Stats(stats) => Answer::Stats(Box::new(seen_stats(&stats))),
        Reply::Page { total, jids } => Answer::Page { total, jids },
        Reply::Groups(groups) => Answer::Groups(groups),
        Reply::Tracked { jobs: views, expired } => Answer::Tracked { jobs: jobs(views), expired },
        Reply::Recur(recur) => Answer::Recur(recur),
        Reply::Workers(workers) => Answer::Workers(workers),
        Reply::WorkerJobs { jobs, stalled } => Answer::WorkerJobs { jobs, stalled },
        Reply::Option(value) => Answer::Option(value),
        Reply::Options(options) => Answer::Options(options),
        Reply::Throttle(throttle) => Answer::Throttle(throttle),
        Reply::Key(view) => seen_key(view, fetch),
        Reply::Keyspace(answer) => Answer::Keyspace(answer),
        // A search has tests of its own against a look at every job, pages of lists too.
        Reply::Versions(_) | Reply::Overview(_) | Reply::Found { .. } | Reply::Listed { .. } => {
            Answer::Unchecked
        }
        Reply::Recurs(_) | Reply::Throttles(_) => Answer::Unchecked,
        Reply::Totals(totals) => Answer::Totals(totals.jobs),
    }
}

/// The bytes of a text. A missing body shows as a text that no workload writes.
fn bytes_of(text: &Text, fetch: Fetch<'_>) -> Bytes {
    match text {
        Text::Short(name) => Bytes::copy_from_slice(name.bytes()),
        Text::Long(id) => fetch(*id).unwrap_or_else(|| Bytes::from(format!("<body {} is missing>", id.0))),
    }
}

fn seen_job(job: JobView, fetch: Fetch<'_>) -> JobSeen {
    JobSeen {
        data: bytes_of(&job.data, fetch),
        result: job.result.map(|text| bytes_of(&text, fetch)),
        history: job.history.iter().map(|entry| (entry.when, in_words(&entry.what, fetch))).collect(),
        failure: job.failure.map(|failure| seen_failure(failure, fetch)),
        report: job.report.map(|report| ReportSeen {
            attempt: report.attempt,
            percent: report.percent,
            message: report.message,
            output: report.output.map(|text| bytes_of(&text, fetch)),
            output_bytes: report.output_bytes,
            checkpoint: report.checkpoint.map(|text| bytes_of(&text, fetch)),
        }),
        jid: job.jid,
        klass: job.klass,
        queue: job.queue,
        state: job.state,
        worker: job.worker,
        tracked: job.tracked,
        priority: job.priority,
        retries: job.retries,
        remaining: job.remaining,
        expires: job.expires,
        attempt: job.attempt,
        tags: job.tags,
        spawned_from: job.spawned_from,
        dependents: job.dependents,
        dependencies: job.dependencies,
        throttles: job.throttles,
    }
}

fn seen_failure(failure: Failure, fetch: Fetch<'_>) -> FailureSeen {
    let Failure { group, message, when, worker, queue } = failure;
    FailureSeen { group, message: bytes_of(&message, fetch), when, worker, queue }
}

fn in_words(what: &What, fetch: Fetch<'_>) -> String {
    match what {
        What::Put(queue) => format!("put {queue}"),
        What::Popped(worker) => format!("popped {worker}"),
        What::Done => "done".to_owned(),
        What::TimedOut => "timed-out".to_owned(),
        What::Failed(by) => format!("failed {} {}", by.0, by.1),
        What::Exhausted(group) => format!("failed {group}"),
        What::FailedRetries(group) => format!("failed-retries {group}"),
        What::Throttled(queue) => format!("throttled {queue}"),
        What::Log(log) => {
            let data = log.1.as_ref().map(|text| bytes_of(text, fetch)).unwrap_or_default();
            format!("log {} {}", log.0, String::from_utf8_lossy(&data))
        }
    }
}

fn seen_stats(stats: &StatsView) -> StatsSeen {
    StatsSeen {
        wait: seen_series(&stats.wait),
        run: seen_series(&stats.run),
        failures: stats.failures,
        failed: stats.failed,
        retries: stats.retries,
    }
}

fn seen_series(series: &Series) -> SeriesSeen {
    SeriesSeen {
        total: series.total,
        mean: series.mean,
        vk: series.vk,
        unified: series.unified(),
        fine: series.fine(),
        sparse: series.sparse(),
    }
}

/// The locks of a queue's own throttle: the engine lists that key only where throttles are in use, so listings are
/// compared without it. What it holds is compared all the same.
pub(crate) fn is_own_lock_set(key: &Name) -> bool {
    key.bytes().starts_with(b"ql:th:ql:q:") && key.bytes().ends_with(b"-locks")
}

fn seen_key(view: KeyView, fetch: Fetch<'_>) -> Answer {
    match view {
        KeyView::Type(kind) => Answer::KeyType(kind),
        KeyView::Count(count) => Answer::KeyCount(count),
        KeyView::Scored(scored) => Answer::KeyScored(scored),
        KeyView::Score(score) => Answer::KeyScore(score),
        KeyView::Rank(rank) => Answer::KeyRank(rank),
        KeyView::Members(members) => Answer::Names(members),
        KeyView::Keys(mut keys) => {
            keys.retain(|key| !is_own_lock_set(key));
            Answer::Keys(keys)
        }
        KeyView::Pairs(pairs) => {
            let pair =
                |(field, value): (Name, ViewValue)| format!("{field} = {}", value_in_words(&value, fetch));
            Answer::KeyValues(pairs.into_iter().map(pair).collect())
        }
        KeyView::Values(values) => {
            let value = |value: Option<ViewValue>| {
                value.map_or("nil".to_owned(), |value| value_in_words(&value, fetch))
            };
            Answer::KeyValues(values.into_iter().map(value).collect())
        }
    }
}

fn value_in_words(value: &ViewValue, fetch: Fetch<'_>) -> String {
    match value {
        ViewValue::Name(name) => name.display().into_owned(),
        ViewValue::Text(text) => String::from_utf8_lossy(&bytes_of(text, fetch)).into_owned(),
        ViewValue::Number(number) | ViewValue::Moment(number) => number.to_string(),
        ViewValue::Names(names) => format!("{names:?}"),
        ViewValue::Entry(Entry { when, what }) => format!("{when} {}", in_words(what, fetch)),
        ViewValue::Failure(failure) => format!("{:?}", seen_failure(failure.clone(), fetch)),
    }
}
