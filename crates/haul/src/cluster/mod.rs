//! Many nodes on one bucket. A node owns some of the shards; the others it reaches through the nodes that own them, so that
//! every node serves every client.
//!
//! - `meta`: what the data set is: how many shards, and the nodes' common secret.
//! - `presence`: who is there, by objects in the bucket.
//! - `keeper`: opens what is this node's and closes what is not. The crate `haul-cluster` decides.
//! - `wire`: what nodes say to each other; `tls`: so that nobody else hears or says it; `link`: asking another node;
//!   `listen`: being asked.
//! - `route`: [`Shards`], what the rest of the server holds: a call goes to its shard, wherever that is.
//!
//! That no shard has two owners is SlateDB's doing (`haul_store::object`): whoever opens a shard makes all who had it fail.
//! All that is here only decides how soon a shard is served again, and by whom.

mod keeper;
mod link;
mod listen;
mod meta;
mod outward;
mod presence;
mod route;
#[cfg(test)]
mod tests;
mod tls;
mod wire;

pub(crate) use haul_cluster::{Held, Presence, shard_of};
pub(crate) use keeper::{Keeper, Start, start};
pub(crate) use meta::{Meta, SHARDS_MAX};
pub(crate) use outward::Outward;
pub(crate) use presence::Register;
pub(crate) use route::Shards;

use std::net::SocketAddr;
use std::time::Duration;

/// What a node is told of itself.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Where other nodes are listened to.
    pub(crate) listen: SocketAddr,
    /// Where other nodes find this one; none: where it listens.
    pub(crate) advertise: Option<String>,
    /// Between two signs of life.
    pub(crate) presence_interval: Duration,
    /// A request for a shard that no node has waits this long for one to take it.
    pub(crate) patience: Duration,
}

impl Settings {
    /// A node without a sign of life for this long is gone, and its shards are taken over.
    pub(crate) fn gone_after(&self) -> Duration {
        self.presence_interval * 4
    }
}
