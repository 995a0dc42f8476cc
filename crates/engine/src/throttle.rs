//! Throttles: how many jobs that name one may run at once.
//!
//! Every queue has one of its own, under `ql:q:<queue>`: its locks are the queue's lock index, so they cost nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::Name;
use crate::index::Index;

/// A throttle with this prefix is the one of the queue named behind it.
pub const QUEUE_THROTTLE_PREFIX: &[u8] = b"ql:q:";

/// One throttle. `locks` and `pending` are rebuilt from the jobs.
#[derive(Default, Debug, Serialize, Deserialize)]
pub(crate) struct Throttle {
    /// 0: unlimited. None: not defined.
    pub(crate) maximum: Option<f64>,
    /// Server time at which the definition ends.
    pub(crate) ends_at: Option<f64>,
    #[serde(skip)]
    pub(crate) locks: BTreeSet<Name>,
    #[serde(skip)]
    pub(crate) pending: Index,
}

impl Throttle {
    /// The definition's maximum at this server time; 0: unlimited.
    pub(crate) fn maximum_at(&self, clock: f64) -> f64 {
        if self.is_defined(clock) { self.maximum.unwrap_or(0.0) } else { 0.0 }
    }

    pub(crate) fn is_defined(&self, clock: f64) -> bool {
        self.maximum.is_some() && self.ends_at.is_none_or(|end| end > clock)
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.maximum.is_none() && self.locks.is_empty() && self.pending.is_empty()
    }
}

/// The name of a queue's own throttle.
pub(crate) fn of_queue(queue: &Name) -> Name {
    let (prefix, queue) = (QUEUE_THROTTLE_PREFIX, queue.bytes());
    let mut room = [0; 64];
    match room.get_mut(..prefix.len() + queue.len()) {
        Some(name) => {
            let (front, back) = name.split_at_mut(prefix.len());
            front.copy_from_slice(prefix);
            back.copy_from_slice(queue);
            Name::new(name)
        }
        None => Name::new(&[prefix, queue].concat()),
    }
}

/// The queue whose own throttle this is.
pub(crate) fn queue_of(id: &Name) -> Option<&[u8]> {
    id.bytes().strip_prefix(QUEUE_THROTTLE_PREFIX)
}
