//! A job in the words of the older document: a date and an owner say what it does. They are not stored; this is how the
//! engine's states read in those words.

use haul_engine::{JobView, State, What};
use haul_journal::{Id, years_later};

/// The owner of what has ended.
pub(crate) const DONE: &str = "__done";
/// How long after its end an archived job is dated, in years.
const ARCHIVE_YEARS: u32 = 1000;

/// When something is due, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// In milliseconds: when it may run; when its lock ends; a thousand years after its end.
    pub(crate) dt_ms: u64,
    /// Empty, a sysid, or [`DONE`].
    pub(crate) lock: String,
    pub(crate) create_ms: u64,
    pub(crate) done_ms: Option<u64>,
    /// How many runs ended with retry or error.
    pub(crate) retries: u32,
}

/// How a job reads. When it ended is told more exactly by who ran it than by its history.
pub(crate) fn seen(job: &JobView, done_ms: Option<u64>) -> Seen {
    let last_ms = ms(job.history.last().map_or(0.0, |entry| entry.when));
    let made_ms = job.history.first().map_or(0, |entry| ms(entry.when));
    // The history counts whole seconds.
    let create_ms = Id::parse(&job.jid.display()).map_or(made_ms, |id| id.ms);
    let is_done = matches!(job.state, State::Complete | State::Failed);
    let done_ms = is_done.then_some(done_ms.unwrap_or(last_ms).max(create_ms));
    let (dt_ms, lock) = match (job.state, done_ms) {
        (_, Some(done_ms)) => (years_later(done_ms, ARCHIVE_YEARS), DONE.to_owned()),
        (State::Running, _) => (ms(job.expires), job.worker.to_string()),
        _ if job.history.last().is_some_and(|entry| entry.what == What::TimedOut) => (last_ms, String::new()),
        // Put a moment after it was accepted, which is what counts.
        _ if job.due.is_none() && ms(job.available_since.floor()) == made_ms => (create_ms, String::new()),
        _ => (ms(job.due.unwrap_or(job.available_since)), String::new()),
    };
    let retries = (job.retries - job.remaining).clamp(0.0, f64::from(u32::MAX)) as u32;
    Seen { dt_ms, lock, create_ms, done_ms, retries }
}

fn ms(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}
