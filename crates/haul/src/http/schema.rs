//! What `/openapi.json` says of the answers. The answers themselves are written by `dialect::native_shape`, the same as
//! for `HAUL.*`; these types are only described, and a test holds the two together.

#![expect(dead_code, reason = "described, never made")]

use utoipa::ToSchema;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

/// An error. Nothing was changed.
#[derive(ToSchema)]
#[schema(as = Error)]
pub(crate) struct ErrorDoc {
    pub(crate) error: ErrorBody,
}

/// What went wrong.
#[derive(ToSchema)]
pub(crate) struct ErrorBody {
    /// Stable, for programs.
    #[schema(example = "NOJOB")]
    pub(crate) code: String,
    /// One sentence, for people.
    pub(crate) message: String,
}

/// A job.
#[derive(ToSchema)]
#[schema(as = Job)]
pub(crate) struct JobDoc {
    pub(crate) jid: String,
    pub(crate) klass: String,
    /// None once complete.
    #[schema(required)]
    pub(crate) queue: Option<String>,
    pub(crate) state: StateDoc,
    /// Any JSON.
    #[schema(value_type = serde_json::Value)]
    pub(crate) data: (),
    /// What the job left as its result.
    #[schema(required)]
    pub(crate) result: Option<String>,
    /// Higher runs first.
    pub(crate) priority: f64,
    /// How many hand-overs it is given.
    pub(crate) retries: f64,
    /// How many are left; -1 once they are used up.
    pub(crate) remaining: f64,
    /// How often it was handed out: names this attempt.
    pub(crate) attempt: u32,
    /// Who holds it, while it runs.
    #[schema(required)]
    pub(crate) worker: Option<String>,
    /// When the lock ends, in seconds since 1970, while it runs; null also if it never ends.
    #[schema(required)]
    pub(crate) expires: Option<f64>,
    /// When it is due, if it is scheduled.
    #[schema(required)]
    pub(crate) due: Option<f64>,
    /// The process that runs it, where its worker said.
    pub(crate) pid: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) tracked: bool,
    #[schema(required)]
    pub(crate) failure: Option<FailureDoc>,
    /// Jobs it waits for.
    pub(crate) dependencies: Vec<String>,
    /// Jobs that wait for it.
    pub(crate) dependents: Vec<String>,
    pub(crate) throttles: Vec<String>,
    /// The recurring job that made it.
    #[schema(required)]
    pub(crate) spawned_from: Option<String>,
    pub(crate) history: Vec<EntryDoc>,
    /// How far it is, if it said so.
    pub(crate) progress: Option<ProgressDoc>,
    /// The last part of what it printed.
    pub(crate) output: Option<String>,
    /// How long that was in all.
    pub(crate) output_bytes: Option<u64>,
    /// What the last attempt left for the next.
    #[schema(value_type = serde_json::Value, required = false)]
    pub(crate) checkpoint: Option<()>,
    /// The W3C trace context it was put with, if it was.
    pub(crate) trace: Option<String>,
}

/// How far a job is.
#[derive(ToSchema)]
#[schema(as = Progress)]
pub(crate) struct ProgressDoc {
    #[schema(required)]
    pub(crate) percent: Option<f64>,
    #[schema(required)]
    pub(crate) message: Option<String>,
}

/// Where a job is.
#[derive(ToSchema)]
#[schema(as = State, rename_all = "lowercase")]
pub(crate) enum StateDoc {
    Waiting,
    Scheduled,
    Depends,
    Throttled,
    Running,
    Stalled,
    Failed,
    Complete,
}

/// Why a job failed.
#[derive(ToSchema)]
#[schema(as = Failure)]
pub(crate) struct FailureDoc {
    pub(crate) group: String,
    pub(crate) message: String,
    pub(crate) when: f64,
    #[schema(required)]
    pub(crate) worker: Option<String>,
}

/// Something that happened to a job; other members depend on `what`.
#[derive(ToSchema)]
#[schema(as = Entry)]
pub(crate) struct EntryDoc {
    /// Seconds since 1970.
    pub(crate) when: f64,
    pub(crate) what: String,
}

/// The answers of every route that are not its own: what may go wrong.
pub(crate) struct Problems;

impl utoipa::IntoResponses for Problems {
    fn responses() -> std::collections::BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let answer = |what: &str| {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Error"))).build();
            let response = ResponseBuilder::new().description(what).content("application/json", content);
            RefOr::T(response.build())
        };
        [
            ("4XX".to_owned(), answer("The request cannot be done; the error says why")),
            ("5XX".to_owned(), answer("Haul cannot do it now; the error says why")),
        ]
        .into()
    }
}

/// What became of a put.
#[derive(ToSchema)]
#[schema(as = Put)]
pub(crate) struct PutDoc {
    pub(crate) jid: String,
    /// There was such a job already, and it was left as it is.
    pub(crate) existing: bool,
}

/// What became of several puts.
#[derive(ToSchema)]
#[schema(as = Puts)]
pub(crate) struct PutsDoc {
    pub(crate) jids: Vec<String>,
}

/// What became of a stream of puts.
#[derive(ToSchema)]
#[schema(as = PutStream)]
pub(crate) struct PutStreamDoc {
    /// How many jobs were put.
    pub(crate) put: u64,
    /// How many lines were not.
    pub(crate) refused: u64,
    /// Why: the first hundred of them.
    pub(crate) errors: Vec<LineError>,
}

/// A line that was not put.
#[derive(ToSchema)]
pub(crate) struct LineError {
    pub(crate) line: u64,
    pub(crate) code: String,
    pub(crate) message: String,
}

/// Jobs.
#[derive(ToSchema)]
#[schema(as = Jobs)]
pub(crate) struct JobsDoc {
    pub(crate) jobs: Vec<JobDoc>,
}

/// A page of a search. It may hold fewer jobs than asked for, even none, and yet not be the last.
#[derive(ToSchema)]
#[schema(as = Page)]
pub(crate) struct PageDoc {
    pub(crate) jobs: Vec<JobDoc>,
    /// Give this as `cursor` for the next page; null: this is the last.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// A queue's counts.
#[derive(ToSchema)]
#[schema(as = Queue)]
pub(crate) struct QueueDoc {
    pub(crate) name: String,
    pub(crate) waiting: u64,
    pub(crate) running: u64,
    pub(crate) stalled: u64,
    pub(crate) scheduled: u64,
    pub(crate) depends: u64,
    pub(crate) recurring: u64,
    pub(crate) throttled: u64,
    pub(crate) paused: bool,
}

/// All queues.
#[derive(ToSchema)]
#[schema(as = Queues)]
pub(crate) struct QueuesDoc {
    pub(crate) queues: Vec<QueueDoc>,
    /// How many there are on all pages together.
    pub(crate) total: u64,
    /// The cursor of the next page; null: this is the last.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// A day's statistics of a queue.
#[derive(ToSchema)]
#[schema(as = Stats)]
pub(crate) struct StatsDoc {
    /// Seconds from put to pop.
    pub(crate) wait: SeriesDoc,
    /// Seconds from pop to completion.
    pub(crate) run: SeriesDoc,
    /// Jobs that failed on that day.
    pub(crate) failures: f64,
    /// Of those, jobs that are still failed.
    pub(crate) failed: f64,
    pub(crate) retries: f64,
}

/// A series of durations: how many, mean, deviation; by second up to 60, by minute up to 60, by hour up to 24, by day.
#[derive(ToSchema)]
#[schema(as = Series)]
pub(crate) struct SeriesDoc {
    pub(crate) count: f64,
    pub(crate) mean: f64,
    pub(crate) std: f64,
    pub(crate) histogram: Vec<i64>,
}

/// Workers, the most recently seen first.
#[derive(ToSchema)]
#[schema(as = Workers)]
pub(crate) struct WorkersDoc {
    pub(crate) workers: Vec<WorkerDoc>,
    /// How many there are on all pages together.
    pub(crate) total: u64,
    /// The cursor of the next page; null: this is the last.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// A worker.
#[derive(ToSchema)]
#[schema(as = Worker)]
pub(crate) struct WorkerDoc {
    pub(crate) name: String,
    pub(crate) jobs: u64,
    pub(crate) stalled: u64,
    pub(crate) seen_at: f64,
    pub(crate) state: LifeDoc,
    /// What it says of itself: host, pid, version, queues, capacity; null if it has not registered.
    #[schema(value_type = serde_json::Value)]
    pub(crate) facts: (),
}

/// How a worker is doing, by how long ago it was heard of.
#[derive(ToSchema)]
#[schema(as = Life, rename_all = "lowercase")]
pub(crate) enum LifeDoc {
    Alive,
    Draining,
    Silent,
    Gone,
}

/// The jids a worker holds.
#[derive(ToSchema)]
#[schema(as = WorkerJobs)]
pub(crate) struct WorkerJobsDoc {
    pub(crate) jobs: Vec<String>,
    pub(crate) stalled: Vec<String>,
    /// How many there are on all pages together.
    pub(crate) total: u64,
    /// The cursor of the next page; null: this is the last.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// Failure groups.
#[derive(ToSchema)]
#[schema(as = Groups)]
pub(crate) struct GroupsDoc {
    pub(crate) groups: Vec<GroupDoc>,
    /// How many there are on all pages together.
    pub(crate) total: u64,
    /// The cursor of the next page; null: this is the last.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// A failure group.
#[derive(ToSchema)]
#[schema(as = Group)]
pub(crate) struct GroupDoc {
    pub(crate) name: String,
    pub(crate) jobs: u64,
}

/// How many jobs it was done to.
#[derive(ToSchema)]
#[schema(as = Done)]
pub(crate) struct CountDoc {
    pub(crate) jobs: u64,
}

/// Whether that changed anything.
#[derive(ToSchema)]
#[schema(as = Changed)]
pub(crate) struct ChangedDoc {
    pub(crate) changed: bool,
}

/// When the lock ends.
#[derive(ToSchema)]
#[schema(as = Lock)]
pub(crate) struct LockDoc {
    /// Seconds since 1970.
    pub(crate) expires: f64,
}

/// The state a job went to.
#[derive(ToSchema)]
#[schema(as = NewState)]
pub(crate) struct NewStateDoc {
    pub(crate) state: StateDoc,
}

/// How many hand-overs are left; below 0: the job has failed.
#[derive(ToSchema)]
#[schema(as = Remaining)]
pub(crate) struct RemainingDoc {
    pub(crate) remaining: f64,
}

/// Names.
#[derive(ToSchema)]
#[schema(as = Tags)]
pub(crate) struct TagsDoc {
    pub(crate) tags: Vec<String>,
}

/// One outcome for each job, in the order given.
#[derive(ToSchema)]
#[schema(as = Outcomes)]
pub(crate) struct OutcomesDoc {
    pub(crate) outcomes: Vec<OutcomeDoc>,
}

/// What became of one job: `expires` or `state`, or an error.
#[derive(ToSchema)]
#[schema(as = Outcome)]
pub(crate) struct OutcomeDoc {
    pub(crate) jid: String,
    pub(crate) ok: bool,
    pub(crate) expires: Option<f64>,
    pub(crate) state: Option<StateDoc>,
    pub(crate) error: Option<ErrorBody>,
}

/// Tracked jobs, and tracked jids whose job is gone.
#[derive(ToSchema)]
#[schema(as = Tracked)]
pub(crate) struct TrackedDoc {
    pub(crate) jobs: Vec<JobDoc>,
    pub(crate) expired: Vec<String>,
    /// How many there are on all pages together.
    pub(crate) total: u64,
    /// The cursor of the next page; null: this is the last.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// A recurring job.
#[derive(ToSchema)]
#[schema(as = Recurring)]
pub(crate) struct RecurDoc {
    pub(crate) jid: String,
    pub(crate) klass: String,
    pub(crate) queue: String,
    #[schema(value_type = serde_json::Value)]
    pub(crate) data: (),
    pub(crate) priority: f64,
    pub(crate) retries: f64,
    /// Seconds.
    pub(crate) interval: f64,
    pub(crate) backlog: f64,
    /// How many jobs it has made.
    pub(crate) count: f64,
    /// When it makes the next, in seconds since 1970; null: never.
    #[schema(required)]
    pub(crate) next: Option<f64>,
    /// A cron pattern that it follows instead of the interval.
    #[schema(required)]
    pub(crate) cron: Option<String>,
    /// The time zone of the pattern.
    #[schema(required)]
    pub(crate) timezone: Option<String>,
    /// The pattern in plain words.
    #[schema(required)]
    pub(crate) words: Option<String>,
    /// It makes no jobs.
    pub(crate) paused: bool,
    /// When it makes its next few jobs, unless something changes.
    pub(crate) upcoming: Vec<f64>,
    pub(crate) tags: Vec<String>,
    pub(crate) throttles: Vec<String>,
}

/// Recurring jobs.
#[derive(ToSchema)]
#[schema(as = RecurringList)]
pub(crate) struct RecursDoc {
    pub(crate) recurring: Vec<RecurDoc>,
    /// How many there are on all pages together.
    pub(crate) total: u64,
    /// The cursor of the next page; null: this is the last.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// A throttle: at most `maximum` of the jobs under it run at once.
#[derive(ToSchema)]
#[schema(as = Throttle)]
pub(crate) struct ThrottleDoc {
    pub(crate) id: String,
    /// 0: no limit.
    pub(crate) maximum: f64,
    /// Seconds it has left; -1: no end.
    pub(crate) ttl: f64,
}

/// A throttle with the jobs under it, the first hundred of each.
#[derive(ToSchema)]
#[schema(as = ThrottleJobs)]
pub(crate) struct ThrottleJobsDoc {
    pub(crate) id: String,
    pub(crate) maximum: f64,
    pub(crate) ttl: f64,
    /// Those that run.
    pub(crate) locks: Vec<String>,
    pub(crate) locks_total: u64,
    /// Those held back.
    pub(crate) pending: Vec<String>,
    pub(crate) pending_total: u64,
}

/// Options and their values.
#[derive(ToSchema)]
#[schema(as = Options)]
pub(crate) struct OptionsDoc {
    pub(crate) options: std::collections::BTreeMap<String, String>,
    /// How many are set, on all pages together.
    pub(crate) total: u64,
    /// The cursor of the next page; null: this is the last.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// Throttles.
#[derive(ToSchema)]
#[schema(as = Throttles)]
pub(crate) struct ThrottlesDoc {
    pub(crate) throttles: Vec<ThrottleDoc>,
    /// How many there are on all pages together.
    pub(crate) total: u64,
    /// The cursor of the next page; null: this is the last.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// The server.
#[derive(ToSchema)]
#[schema(as = Info)]
pub(crate) struct InfoDoc {
    pub(crate) version: String,
    pub(crate) durability: String,
    /// Seconds since 1970.
    pub(crate) now: f64,
    pub(crate) uptime: f64,
    /// The tenant asked about.
    pub(crate) tenant: String,
    pub(crate) jobs: u64,
    pub(crate) queues: u64,
    pub(crate) workers: u64,
}

/// How much waits in a queue: for autoscalers.
#[derive(ToSchema)]
#[schema(as = Backlog)]
pub(crate) struct BacklogDoc {
    /// Waiting, scheduled and due, and stalled jobs.
    pub(crate) backlog: u64,
    pub(crate) running: u64,
}

/// What operators did, the newest last.
#[derive(ToSchema)]
#[schema(as = Audit)]
pub(crate) struct AuditDoc {
    pub(crate) entries: Vec<AuditEntryDoc>,
}

/// One thing an operator did or tried; what it was about is in further fields, by kind.
#[derive(ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditEntryDoc {
    /// Seconds since 1970.
    pub(crate) at: f64,
    /// The token's name; none without authentication.
    #[schema(required)]
    pub(crate) token: Option<String>,
    /// Where it came from.
    pub(crate) peer: String,
    /// `redis`, `http` or `cli`.
    pub(crate) via: String,
    pub(crate) tenant: String,
    #[schema(example = "cancel")]
    pub(crate) action: String,
    /// `done`, or the code of the refusal.
    pub(crate) outcome: String,
}
