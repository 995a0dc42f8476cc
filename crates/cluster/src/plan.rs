//! What a node should do next with the shards, from what it sees. Pure: the keeper does it, the simulator too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::{Seen, placement};

/// How long a living node may keep a shard that should be this one's before it is taken from it.
pub const HAND_OVER_MAX: Duration = Duration::from_secs(30);

/// What a node knows when it decides.
pub struct Sight<'a> {
    pub me: &'a str,
    pub shards: u32,
    pub nodes: &'a [Seen],
    pub gone_after: Duration,
    /// Since when, in seconds of this node's own time, it has wanted a shard that another living node has.
    pub wanted: &'a BTreeMap<u32, f64>,
    pub now: f64,
}

/// What to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub open: Vec<u32>,
    pub close: Vec<u32>,
    /// This node's, and another living node still has it.
    pub wanted: Vec<u32>,
    /// Where each shard is, if anywhere: the id of the living node with the highest epoch.
    pub at: BTreeMap<u32, String>,
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
    pub fn plan(&self) -> Plan {
        let alive: Vec<&Seen> = self.nodes.iter().filter(|node| self.is_alive(node)).collect();
        let holders = holders(&alive);
        let own = alive.iter().filter(|node| node.presence.id == self.me);
        let mine: BTreeSet<u32> = own.flat_map(|node| &node.presence.shards).map(|held| held.shard).collect();
        let mut plan = Plan::default();
        for shard in 0..self.shards {
            let takers = alive.iter().filter(|node| !node.presence.leaving);
            let owner = placement::owner(shard, takers.map(|node| node.presence.id.as_str()));
            let holder = holders.get(&shard).map(|(_, node)| *node);
            if let Some(holder) = holder {
                plan.at.insert(shard, holder.to_owned());
            }
            // Taken over by another, and not noticed yet.
            if mine.contains(&shard) && holder != Some(self.me) {
                plan.close.push(shard);
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
}

/// Who has each shard: of several that say so the one with the highest epoch, for the others have lost it.
fn holders<'a>(alive: &[&'a Seen]) -> BTreeMap<u32, (u64, &'a str)> {
    let mut holders = BTreeMap::new();
    for node in alive {
        for held in &node.presence.shards {
            let one = (held.epoch, node.presence.id.as_str());
            let best = holders.entry(held.shard).or_insert(one);
            *best = one.max(*best);
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Held, Presence};

    fn node(id: &str, age_ms: i64, shards: &[(u32, u64)]) -> Seen {
        let shards = shards
            .iter()
            .map(|(shard, epoch)| Held { shard: *shard, epoch: *epoch, ..Held::default() })
            .collect();
        let presence =
            Presence { id: id.to_owned(), address: format!("at-{id}"), shards, ..Presence::default() };
        Seen { presence, age_ms }
    }

    fn plan(me: &str, nodes: &[Seen]) -> Plan {
        let gone_after = Duration::from_secs(8);
        Sight { me, shards: 8, nodes, gone_after, wanted: &BTreeMap::new(), now: 100.0 }.plan()
    }

    fn all(nodes: &[Seen], me: &str) -> Vec<u32> {
        let ids = || nodes.iter().map(|node| node.presence.id.as_str());
        (0..8).filter(|shard| placement::owner(*shard, ids()) == Some(me)).collect()
    }

    #[test]
    fn a_node_alone_opens_everything() {
        let plan = plan("a", &[node("a", 0, &[])]);
        assert_eq!(plan.open, (0..8).collect::<Vec<_>>());
        assert!(plan.close.is_empty());
    }

    #[test]
    fn what_another_living_node_has_is_waited_for_and_then_taken() {
        let held: Vec<(u32, u64)> = (0..8).map(|shard| (shard, 1)).collect();
        let nodes = [node("a", 0, &held), node("b", 0, &[])];
        let wanted = all(&nodes, "b");
        assert!(!wanted.is_empty());
        let calm = plan("b", &nodes);
        assert_eq!((calm.wanted.clone(), calm.open.clone()), (wanted.clone(), vec![]));
        assert_eq!(plan("a", &nodes).close, wanted);
        let since: BTreeMap<u32, f64> = wanted.iter().map(|shard| (*shard, 100.0)).collect();
        for (waited, taken) in [(29.9, vec![]), (30.0, wanted)] {
            let gone_after = Duration::from_secs(8);
            let now = 100.0 + waited;
            let sight = Sight { me: "b", shards: 8, nodes: &nodes, gone_after, wanted: &since, now };
            assert_eq!(sight.plan().open, taken, "after {waited} s");
        }
    }

    #[test]
    fn a_node_is_gone_when_it_was_silent_for_the_whole_time() {
        let held: Vec<(u32, u64)> = (0..8).map(|shard| (shard, 1)).collect();
        let silent = |age_ms| plan("b", &[node("a", age_ms, &held), node("b", 0, &[])]);
        assert!(silent(7999).open.is_empty());
        assert_eq!(silent(8000).open, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn a_node_that_leaves_gives_everything_away_and_takes_nothing() {
        let mut leaving = node("a", 0, &[(0, 1)]);
        leaving.presence.leaving = true;
        let alone = plan("a", std::slice::from_ref(&leaving));
        assert_eq!((alone.open, alone.close), (vec![], vec![0]));
        let both = [leaving, node("b", 0, &[])];
        assert_eq!(plan("b", &both).open, (1..8).collect::<Vec<_>>(), "0 is still at a");
    }

    #[test]
    fn a_node_started_again_at_the_same_address_replaces_the_old_one_at_once() {
        let old = node("a", 100, &[(0, 1), (1, 1)]);
        let mut new = node("b", 0, &[]);
        new.presence.address.clone_from(&old.presence.address);
        new.presence.started_at = 1.0;
        assert_eq!(plan("b", &[old, new]).open, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn the_higher_epoch_is_the_owner() {
        let nodes = [node("a", 0, &[(3, 7)]), node("b", 0, &[(3, 8)])];
        assert_eq!(plan("a", &nodes).at.get(&3).map(String::as_str), Some("b"));
        assert!(plan("a", &nodes).close.contains(&3), "a has lost it and closes it");
    }

    /// The plan for 1,000 nodes in docs/operate/cluster.md: a node that dies moves its own shards and no others.
    #[test]
    fn a_thousand_nodes_with_four_thousand_shards_lose_one() {
        const SHARDS: u32 = 4000;
        let ids: Vec<String> = (0..1000).map(|at| format!("node-{at}")).collect();
        let mut held: BTreeMap<&str, Vec<(u32, u64)>> = BTreeMap::new();
        for shard in 0..SHARDS {
            let owner = placement::owner(shard, ids.iter().map(String::as_str)).unwrap();
            held.entry(owner).or_default().push((shard, 1));
        }
        let most = held.values().map(Vec::len).max().unwrap();
        assert!(most <= 16, "a node has {most} of 4 on average");
        let dead = "node-7";
        let nodes: Vec<Seen> = ids
            .iter()
            .map(|id| {
                node(id, if id == dead { 9000 } else { 0 }, held.get(id.as_str()).map_or(&[], Vec::as_slice))
            })
            .collect();
        let mut opened = Vec::new();
        for me in ids.iter().filter(|id| *id != dead).step_by(333) {
            let gone_after = Duration::from_secs(8);
            let sight =
                Sight { me, shards: SHARDS, nodes: &nodes, gone_after, wanted: &BTreeMap::new(), now: 0.0 };
            let plan = sight.plan();
            assert!(plan.close.is_empty() && plan.wanted.is_empty(), "{me} {plan:?}");
            opened.extend(plan.open);
        }
        let lost: Vec<u32> = held.get(dead).into_iter().flatten().map(|(shard, _)| *shard).collect();
        assert!(opened.iter().all(|shard| lost.contains(shard)), "{opened:?} of {lost:?}");
    }
}
