//! A tag: its use counter and the jobs that carry it.

use serde::{Deserialize, Serialize};

use crate::index::Index;

/// One tag. `jobs` (jid by time tagged) is rebuilt from the jobs; the counter drifts by design of qless and is stored.
#[derive(Default, Debug, Serialize, Deserialize)]
pub(crate) struct Tag {
    /// None: not listed.
    pub(crate) count: Option<i64>,
    #[serde(skip)]
    pub(crate) jobs: Index,
}
