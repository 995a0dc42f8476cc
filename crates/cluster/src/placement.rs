//! Which shard a tenant is in, and which node a shard should be on. Both are the same on every node and for ever: the
//! hash must never change.

use haul_engine::Name;

/// The shard that holds all of a tenant's jobs.
pub fn shard_of(tenant: &Name, shards: u32) -> u32 {
    u32::try_from(hash(&[tenant.bytes()]) % u64::from(shards.max(1))).unwrap_or(0)
}

/// The node that a shard should be on: each node and shard make a number, the largest wins. A node that comes takes only
/// what it wins, a node that goes leaves only what it had.
pub fn owner<'a>(shard: u32, nodes: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    nodes.max_by_key(|node| (hash(&[node.as_bytes(), &shard.to_le_bytes()]), *node))
}

/// FNV-1a of 64 bits with a finish that mixes the high bits down.
fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(nodes: &[String]) -> Vec<&str> {
        (0..1000).map(|shard| owner(shard, nodes.iter().map(String::as_str)).unwrap()).collect()
    }

    #[test]
    fn the_hash_is_the_one_that_data_was_laid_out_with() {
        let shards: Vec<u32> = ["", "a", "tenant-7"].map(|name| shard_of(&Name::from(name), 64)).to_vec();
        assert_eq!(shards, [LAID_OUT.0, LAID_OUT.1, LAID_OUT.2]);
    }

    /// Changing these loses every tenant's jobs.
    const LAID_OUT: (u32, u32, u32) = (45, 6, 32);

    #[test]
    fn tenants_are_spread() {
        let mut counts = [0; 16];
        (0..16_000).for_each(|at| counts[shard_of(&Name::from(format!("tenant-{at}")), 16) as usize] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_node_that_comes_or_goes_moves_only_its_own() {
        let nodes: Vec<String> = (0..10).map(|at| format!("node-{at}")).collect();
        let before = spread(&nodes);
        let after = spread(&nodes[..9]);
        for (before, after) in before.iter().zip(&after) {
            assert!(before == after || *before == "node-9");
        }
        for node in &nodes {
            let share = before.iter().filter(|owner| *owner == node).count();
            assert!((60..150).contains(&share), "{node} has {share} of 1000");
        }
    }

    #[test]
    fn nobody_is_the_owner_where_nobody_is() {
        assert_eq!(owner(0, std::iter::empty()), None);
    }
}
