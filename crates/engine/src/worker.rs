//! A worker: when it was last seen, and the jobs it holds.

use serde::{Deserialize, Serialize};

use crate::Name;
use crate::index::Index;
use crate::task::LOCK_ENDLESS;

/// One worker. `jobs` (jid by lock expiry) is rebuilt from the jobs.
#[derive(Default, Debug, Serialize, Deserialize)]
pub(crate) struct Worker {
    /// None: it holds jobs but is not listed (deregistered, or forgotten for its age).
    pub(crate) seen_at: Option<f64>,
    /// What it says of itself: JSON. Stored behind (`record.rs`), as is `drain`.
    #[serde(skip)]
    pub(crate) facts: Option<Name>,
    /// It is asked to take no more jobs.
    #[serde(skip)]
    pub(crate) drain: bool,
    #[serde(skip)]
    pub(crate) jobs: Index,
}

impl Worker {
    /// Whether it holds a job for good: it may be silent for as long as that takes.
    pub(crate) fn holds_endless(&self) -> bool {
        self.jobs.last().is_some_and(|(end, _)| end.get() >= LOCK_ENDLESS)
    }
}
