//! What a node should do next with the shards, from what it sees. Pure: the keeper does it, the simulator too.

use std::collections::BTreeMap;
use std::time::Duration;

use super::placement;
use super::presence::Seen;

/// How long a living node may keep a shard that should be this one's before it is taken from it.
pub(crate) const HAND_OVER_MAX: Duration = Duration::from_secs(30);

/// What a node knows when it decides.
pub(crate) struct Sight<'a> {
    pub(crate) me: &'a str,
    pub(crate) shards: u32,
    pub(crate) nodes: &'a [Seen],
    pub(crate) gone_after: Duration,
    /// Since when, in seconds of this node's own time, it has wanted a shard that another living node has.
    pub(crate) wanted: &'a BTreeMap<u32, f64>,
    pub(crate) now: f64,
}

/// What to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) open: Vec<u32>,
    pub(crate) close: Vec<u32>,
    /// This node's, and another living node still has it.
    pub(crate) wanted: Vec<u32>,
    /// Where each shard is, if anywhere: the id of the living node with the highest epoch.
    pub(crate) at: BTreeMap<u32, String>,
}

impl Sight<'_> {
    /// Whether the node has given a sign of life lately. One that was started again at the same address is not the one
    /// that was there before.
    fn is_alive(&self, node: &Seen) -> bool {
        let again = self.nodes.iter().any(|other| {
            other.presence.address == node.presence.address
                && other.presence.started_at > node.presence.started_at
        });
        !again && node.age_ms < i64::try_from(self.gone_after.as_millis()).unwrap_or(i64::MAX)
    }

    /// What to do.
    pub(crate) fn plan(&self) -> Plan {
        let alive: Vec<&Seen> = self.nodes.iter().filter(|node| self.is_alive(node)).collect();
        let mut plan = Plan::default();
        for shard in 0..self.shards {
            let takers = alive.iter().filter(|node| !node.presence.leaving);
            let owner = placement::owner(shard, takers.map(|node| node.presence.id.as_str()));
            let holder = self.holder(&alive, shard);
            if let Some(holder) = holder {
                plan.at.insert(shard, holder.to_owned());
            }
            match (owner, holder) {
                (Some(owner), None) if owner == self.me => plan.open.push(shard),
                (Some(owner), Some(holder)) if owner == self.me && holder != self.me => {
                    plan.wanted.push(shard);
                    let since = self.wanted.get(&shard).copied().unwrap_or(self.now);
                    if self.now - since >= HAND_OVER_MAX.as_secs_f64() {
                        plan.open.push(shard);
                    }
                }
                // One that leaves gives away even what nobody is there to take.
                (owner, Some(holder)) if holder == self.me && owner != Some(self.me) => {
                    plan.close.push(shard)
                }
                _ => {}
            }
        }
        plan
    }

    fn holder(&self, alive: &[&Seen], shard: u32) -> Option<&str> {
        let held =
            self.nodes.iter().filter(|node| alive.iter().any(|one| one.presence.id == node.presence.id));
        let held = held.flat_map(|node| node.presence.shards.iter().map(move |held| (node, held)));
        let latest = held.filter(|(_, held)| held.shard == shard).max_by_key(|(_, held)| held.epoch);
        latest.map(|(node, _)| node.presence.id.as_str())
    }
}
