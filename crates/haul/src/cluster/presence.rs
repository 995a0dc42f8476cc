//! Who is there: each node keeps an object in the bucket and writes it again every few seconds. How old one is, is told
//! by the store's own time stamps alone; no two machines' clocks are ever compared.

use std::collections::BTreeMap;

use bytes::Bytes;
use haul_cluster::{Presence, Seen};
use haul_store::{Fault, Place};

const FOLDER: &str = "nodes";

/// Reads and writes presences; keeps those that did not change since they were read, and those that their nodes told over
/// a link meanwhile: else every node would read every other's object every few seconds.
#[derive(Default)]
pub(crate) struct Register {
    known: BTreeMap<String, Known>,
}

struct Known {
    /// When the object was last written, by the store's clock.
    modified_ms: i64,
    presence: Presence,
    /// Told since the last look.
    is_told: bool,
}

impl Register {
    /// Writes this node's own.
    pub(crate) async fn announce(place: &Place, own: &Presence) -> Result<(), Fault> {
        place.write(&name(&own.id), document(own)).await
    }

    /// Reserves this node's id.
    pub(crate) async fn reserve(place: &Place, own: &Presence) -> Result<bool, Fault> {
        place.create(&name(&own.id), document(own)).await
    }

    pub(crate) async fn remove(place: &Place, id: &str) -> Result<(), Fault> {
        place.remove(&name(id)).await
    }

    /// All nodes, this one included, whose own sign of life (just written) tells the store's time.
    pub(crate) async fn look(&mut self, place: &Place, own: &str) -> Result<Vec<Seen>, Fault> {
        let listed = place.list(FOLDER).await?;
        let ids: Vec<(String, i64)> = listed
            .iter()
            .filter_map(|one| Some((one.name.strip_suffix(".json")?.to_owned(), one.modified_ms)))
            .collect();
        let now_ms = ids.iter().find(|(id, _)| id == own).map_or(0, |(_, modified)| *modified);
        self.known.retain(|id, _| ids.iter().any(|(listed, _)| listed == id));
        let mut seen = Vec::new();
        for (id, modified_ms) in ids {
            let fresh = |known: &Known| known.modified_ms == modified_ms || known.is_told;
            if !self.known.get(&id).is_some_and(fresh) {
                let Some(bytes) = place.read(&name(&id)).await? else { continue };
                // One that cannot be read is of a newer Haul, or half written: it counts when it can be.
                let Ok(presence) = serde_json::from_slice::<Presence>(&bytes) else { continue };
                self.known.insert(id.clone(), Known { modified_ms, presence, is_told: false });
            }
            if let Some(known) = self.known.get_mut(&id) {
                (known.modified_ms, known.is_told) = (modified_ms, false);
                let age_ms = (now_ms - modified_ms).max(0);
                seen.push(Seen { presence: known.presence.clone(), age_ms });
            }
        }
        Ok(seen)
    }

    /// A node told of itself over its link: newer than what the bucket said.
    pub(crate) fn tell(&mut self, presence: Presence) {
        if let Some(known) = self.known.get_mut(&presence.id) {
            (known.presence, known.is_told) = (presence, true);
        }
    }
}

fn name(id: &str) -> String {
    format!("{FOLDER}/{id}.json")
}

fn document(own: &Presence) -> Bytes {
    serde_json::to_vec(own).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_store::Access;

    fn node(id: &str, version: &str) -> Presence {
        Presence { id: id.to_owned(), version: version.to_owned(), ..Presence::default() }
    }

    fn versions(seen: &[Seen]) -> Vec<&str> {
        seen.iter().map(|seen| seen.presence.version.as_str()).collect()
    }

    #[tokio::test]
    async fn what_a_node_told_over_its_link_is_not_read_from_the_bucket() {
        // Every node read every other's object at every look: at 1,000 nodes the largest cost of all.
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(&format!("file://{}", folder.path().display()), &Access::default()).unwrap();
        let (own, other) = (node("a", "own"), node("b", "1"));
        Register::announce(&place, &own).await.unwrap();
        Register::announce(&place, &other).await.unwrap();
        let mut register = Register::default();
        assert_eq!(versions(&register.look(&place, "a").await.unwrap()), ["own", "1"]);
        let gets = || place.requests().now().gets;
        for (is_told, version) in [(true, "2"), (false, "3"), (true, "4")] {
            // The store's time stamps may be coarse.
            std::thread::sleep(std::time::Duration::from_millis(5));
            Register::announce(&place, &node("b", version)).await.unwrap();
            if is_told {
                register.tell(node("b", version));
            }
            let before = gets();
            assert_eq!(versions(&register.look(&place, "a").await.unwrap()), ["own", version]);
            assert_eq!(gets() - before, u64::from(!is_told), "{version}");
        }
        Register::remove(&place, "b").await.unwrap();
        register.tell(node("b", "5"));
        assert_eq!(
            versions(&register.look(&place, "a").await.unwrap()),
            ["own"],
            "the bucket says who lives"
        );
    }
}
