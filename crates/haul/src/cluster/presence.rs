//! Who is there: each node keeps an object in the bucket and writes it again every few seconds. How old one is, is told
//! by the store's own time stamps alone; no two machines' clocks are ever compared.

use std::collections::BTreeMap;

use bytes::Bytes;
use haul_cluster::{Presence, Seen};
use haul_store::{Fault, Place};

const FOLDER: &str = "nodes";

/// Reads and writes presences; keeps those that did not change since they were read.
#[derive(Default)]
pub(crate) struct Register {
    known: BTreeMap<String, (i64, Presence)>,
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
            let fresh = self.known.get(&id).is_some_and(|(at, _)| *at == modified_ms);
            if !fresh {
                let Some(bytes) = place.read(&name(&id)).await? else { continue };
                // One that cannot be read is of a newer Haul, or half written: it counts when it can be.
                let Ok(presence) = serde_json::from_slice::<Presence>(&bytes) else { continue };
                self.known.insert(id.clone(), (modified_ms, presence));
            }
            if let Some((at, presence)) = self.known.get(&id) {
                seen.push(Seen { presence: presence.clone(), age_ms: (now_ms - at).max(0) });
            }
        }
        Ok(seen)
    }

    /// A node told of itself over its link: newer than what the bucket said.
    pub(crate) fn tell(&mut self, presence: Presence) {
        if let Some((_, known)) = self.known.get_mut(&presence.id) {
            *known = presence;
        }
    }
}

fn name(id: &str) -> String {
    format!("{FOLDER}/{id}.json")
}

fn document(own: &Presence) -> Bytes {
    serde_json::to_vec(own).unwrap_or_default().into()
}
