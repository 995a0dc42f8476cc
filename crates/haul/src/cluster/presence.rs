//! Who is there: each node keeps an object in the bucket and writes it again every few seconds. How old one is, is told
//! by the store's own time stamps alone; no two machines' clocks are ever compared.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use haul_cluster::{Presence, Seen};
use haul_store::{Fault, Place};
use tokio::sync::watch;

const FOLDER: &str = "nodes";
/// Presences read at once.
const READS_AT_ONCE: usize = 32;
/// A node that has been gone for this many times what makes it gone leaves nothing behind.
const SWEPT_AFTER: u32 = 10;

/// Says again and again that this node lives, and looks who else does. A task of its own: a store that does not answer must
/// not keep the keeper from hearing the other nodes.
pub(super) struct Herald {
    own: watch::Sender<Presence>,
    task: tokio::task::JoinHandle<()>,
}

impl Herald {
    /// `seen` is told of every look.
    pub(super) fn start(
        place: Arc<Place>,
        register: Register,
        own: Presence,
        settings: &super::Settings,
        seen: impl Fn(Result<Vec<Seen>, Fault>) + Send + 'static,
    ) -> Self {
        let (own, said) = watch::channel(own);
        let (every, gone_after) = (settings.presence_interval, settings.gone_after());
        let task = tokio::spawn(proclaim(place, register, said, (every, gone_after), seen));
        Herald { own, task }
    }

    /// Says this from the next time on.
    pub(super) fn note(&self, own: Presence) {
        self.own.send_if_modified(|said| {
            *said = own;
            false
        });
    }

    /// Says this at once.
    pub(super) fn say(&self, own: Presence) {
        self.own.send_replace(own);
    }

    /// Says nothing more.
    pub(super) fn end(&self) {
        self.task.abort();
    }
}

async fn proclaim(
    place: Arc<Place>,
    register: Register,
    mut said: watch::Receiver<Presence>,
    (every, gone_after): (Duration, Duration),
    seen: impl Fn(Result<Vec<Seen>, Fault>) + Send + 'static,
) {
    let mut beat = tokio::time::interval(every);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let looks = tokio::select! {
            _ = beat.tick() => true,
            changed = said.changed() => match changed {
                Ok(()) => false,
                Err(_) => return,
            },
        };
        let own = said.borrow_and_update().clone();
        let turn = async {
            Register::announce(&place, &own).await?;
            register.tell(own.clone());
            if !looks {
                return Ok(None);
            }
            let nodes = register.look(&place, &own.id).await?;
            Register::sweep(&place, &nodes, gone_after * SWEPT_AFTER).await;
            Ok(Some(nodes))
        };
        // Whoever needs longer is gone to the others.
        let turn = tokio::time::timeout(gone_after, turn).await;
        match turn.unwrap_or_else(|_| Err(Fault::Retry { what: "it takes too long".to_owned() })) {
            Ok(Some(nodes)) => seen(Ok(nodes)),
            Ok(None) => {}
            Err(fault) => seen(Err(fault)),
        }
    }
}

/// Reads and writes presences; keeps those that did not change since they were read, and those that their nodes told over
/// a link meanwhile: else every node would read every other's object every few seconds. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Register {
    known: Arc<Mutex<BTreeMap<String, Known>>>,
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
    pub(crate) async fn look(&self, place: &Place, own: &str) -> Result<Vec<Seen>, Fault> {
        let listed = place.list(FOLDER).await?;
        let ids: Vec<(String, i64)> = listed
            .iter()
            .filter_map(|one| Some((one.name.strip_suffix(".json")?.to_owned(), one.modified_ms)))
            .collect();
        let now_ms = ids.iter().find(|(id, _)| id == own).map_or(0, |(_, modified)| *modified);
        self.known().retain(|id, _| ids.iter().any(|(listed, _)| listed == id));
        let changed: Vec<(String, i64)> =
            ids.iter().filter(|(id, modified_ms)| !self.is_known(id, *modified_ms)).cloned().collect();
        for some in changed.chunks(READS_AT_ONCE) {
            let names: Vec<String> = some.iter().map(|(id, _)| name(id)).collect();
            let reads = futures_util::future::join_all(names.iter().map(|name| place.read(name))).await;
            for ((id, modified_ms), read) in some.iter().zip(reads) {
                // One that cannot be read is of a newer Haul, or half written: it counts when it can be.
                if let Some(presence) = read?.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                    let known = Known { modified_ms: *modified_ms, presence, is_told: false };
                    self.known().insert(id.clone(), known);
                }
            }
        }
        let known = self.known();
        let seen = ids.iter().filter_map(|(id, _)| known.get(id));
        Ok(seen
            .map(|one| Seen { presence: one.presence.clone(), age_ms: (now_ms - one.modified_ms).max(0) })
            .collect())
    }

    /// Whether what is known is what was written at this time.
    fn is_known(&self, id: &str, modified_ms: i64) -> bool {
        let mut known = self.known();
        let Some(one) = known.get_mut(id) else { return false };
        if std::mem::take(&mut one.is_told) {
            one.modified_ms = modified_ms;
        }
        one.modified_ms == modified_ms
    }

    /// Removes what nodes long gone left behind.
    async fn sweep(place: &Place, nodes: &[Seen], after: Duration) {
        let after_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        for gone in nodes.iter().filter(|node| node.age_ms > after_ms) {
            let _ = Self::remove(place, &gone.presence.id).await;
        }
    }

    /// A node told of itself over its link: newer than what the bucket said.
    pub(crate) fn tell(&self, presence: Presence) {
        if let Some(known) = self.known().get_mut(&presence.id) {
            (known.presence, known.is_told) = (presence, true);
        }
    }

    /// What nodes told since they were looked at.
    pub(super) fn update(&self, nodes: &mut [Seen]) {
        let known = self.known();
        for seen in nodes {
            if let Some(one) = known.get(&seen.presence.id) {
                seen.presence.clone_from(&one.presence);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
        let register = Register::default();
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
