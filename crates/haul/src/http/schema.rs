//! What `/openapi.json` says of the answers. The answers themselves are written by `dialect::native_shape`, the same as
//! for `HAUL.*`; these types are only described, and a test holds the two together.

#![expect(dead_code, reason = "described, never made")]

use utoipa::ToSchema;

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
    /// When the lock ends, in seconds since 1970, while it runs.
    #[schema(required)]
    pub(crate) expires: Option<f64>,
    /// When it is due, if it is scheduled.
    #[schema(required)]
    pub(crate) due: Option<f64>,
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
    /// The W3C trace context it was put with, if it was.
    pub(crate) trace: Option<String>,
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
