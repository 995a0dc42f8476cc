//! Recurring definitions: what to spawn, how often, and when next.

use serde::{Deserialize, Serialize};

use crate::Name;

/// A recurring definition. There are few, so their data stays in memory and is copied to each child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recur {
    pub jid: Name,
    pub queue: Name,
    pub klass: Name,
    pub data: Name,
    pub priority: f64,
    pub retries: f64,
    pub interval: f64,
    pub backlog: f64,
    /// Children spawned so far; survives re-definition.
    pub count: u64,
    pub tags: Vec<Name>,
    /// Without the queue's own.
    pub throttles: Vec<Name>,
    /// When the next child is due.
    pub next: f64,
}
