//! What nodes say of themselves, and how others see them.

use serde::{Deserialize, Serialize};

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Presence {
    /// New at every start.
    pub id: String,
    /// Where other nodes find it.
    pub address: String,
    pub http: Option<String>,
    pub redis: String,
    pub version: String,
    pub started_at: f64,
    /// It gives its shards away and takes none.
    pub leaving: bool,
    /// What it owns.
    pub shards: Vec<Held>,
}

impl Presence {
    /// Whether nothing follows for others from the difference: the figures of its shards may be others.
    pub fn is_placed_as(&self, other: &Presence) -> bool {
        let owned =
            |one: &Presence| one.shards.iter().map(|held| (held.shard, held.epoch)).collect::<Vec<_>>();
        (&self.id, &self.address, self.leaving) == (&other.id, &other.address, other.leaving)
            && owned(self) == owned(other)
    }
}

/// A shard that a node owns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    pub shard: u32,
    /// How often it was opened: the higher is the later owner.
    pub epoch: u64,
    pub jobs: usize,
    /// Rounds not durable yet.
    pub in_flight: usize,
    /// What the last commit took.
    pub commit_ms: f64,
}

/// A node as another sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub presence: Presence,
    /// Since it last gave a sign, by the store's clock.
    pub age_ms: i64,
}
