//! What is in the log but not in the base yet, in memory: a layer that commits go to, and a frozen one
//! that a checkpoint is writing out. The last value of a key is all that is kept, so what is put and
//! deleted between two checkpoints never reaches the base.
//!
//! Ghosts: bodies that are deleted but may still be asked for under a pin. Either the layer below still
//! has the value (then the look-up goes on downwards), or it is kept here until the last such pin goes.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::{Batch, Space};

/// A body's state in a layer.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Its value.
    Here(Bytes),
    /// Deleted by the batch of that number.
    Gone(u64),
}

/// The changes of a run of batches, last one wins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layer {
    /// `None`: deleted.
    pub(crate) headers: HashMap<Bytes, Option<Bytes>>,
    pub(crate) bodies: HashMap<Bytes, Body>,
    /// Bytes of the keys and values.
    pub(crate) bytes: usize,
}

/// Entries that an emptied layer keeps room for, of each kind.
const SPARE_ENTRIES_MAX: usize = 1 << 20;

impl Layer {
    fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.bodies.is_empty() && self.bytes == 0
    }

    /// Empties it and keeps its memory, within a bound.
    pub(crate) fn clear(&mut self) {
        self.headers.clear();
        self.headers.shrink_to(SPARE_ENTRIES_MAX);
        self.bodies.clear();
        self.bodies.shrink_to(SPARE_ENTRIES_MAX);
        self.bytes = 0;
    }

    /// Gives the memory back that it does not need.
    fn shrink(&mut self) {
        self.headers.shrink_to_fit();
        self.bodies.shrink_to_fit();
    }

    fn set_header(&mut self, key: Bytes, value: Option<Bytes>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        let length = key.len();
        if let Some(old) = self.headers.insert(key, value) {
            self.bytes -= length + old.map_or(0, |old| old.len());
        }
    }

    /// Returns the value that was here before.
    fn set_body(&mut self, key: Bytes, body: Body) -> Option<Bytes> {
        let length = key.len();
        self.bytes += length + body_bytes(&body);
        let old = self.bodies.insert(key, body)?;
        self.bytes -= length + body_bytes(&old);
        match old {
            Body::Here(value) => Some(value),
            Body::Gone(_) => None,
        }
    }
}

fn body_bytes(body: &Body) -> usize {
    match body {
        Body::Here(value) => value.len(),
        Body::Gone(_) => 0,
    }
}

/// A deleted body's value and the batch that deleted it.
#[derive(Clone, Debug)]
struct Ghost {
    by: u64,
    value: Bytes,
}

/// Where a look-up in memory ended.
pub(crate) enum Looked {
    /// Here is the value.
    Found(Bytes),
    /// Deleted, for everybody.
    Gone,
    /// Look in the base.
    Below,
}

/// The layers and the ghosts.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) active: Layer,
    pub(crate) frozen: Option<Arc<Layer>>,
    /// An empty layer that still has the memory of the last one: growing a table anew costs more than filling it.
    spare: Layer,
    ghosts: HashMap<Bytes, Ghost>,
}

impl Pending {
    /// Applies a durable batch. `oldest` is the oldest living pin.
    pub(crate) fn apply(&mut self, sequence: u64, batch: Batch, oldest: u64) {
        if !self.ghosts.is_empty() {
            self.ghosts.retain(|_, ghost| ghost.by > oldest);
        }
        for (space, key, value) in batch.puts {
            match space {
                Space::Header => self.active.set_header(key, Some(value)),
                Space::Body => drop(self.active.set_body(key, Body::Here(value))),
            }
        }
        for (space, key) in batch.deletes {
            match space {
                Space::Header => self.active.set_header(key, None),
                Space::Body => {
                    let value = self.active.set_body(key.clone(), Body::Gone(sequence));
                    if let Some(value) = value.filter(|_| sequence > oldest) {
                        self.ghosts.insert(key, Ghost { by: sequence, value });
                    }
                }
            }
        }
    }

    /// Looks for a body from the newest layer down.
    pub(crate) fn look(&self, key: &[u8], oldest: u64) -> Looked {
        for layer in [Some(&self.active), self.frozen.as_deref()].into_iter().flatten() {
            match layer.bodies.get(key) {
                Some(Body::Here(value)) => return Looked::Found(value.clone()),
                Some(Body::Gone(by)) if *by <= oldest => return Looked::Gone,
                Some(Body::Gone(by)) => {
                    if let Some(ghost) = self.ghosts.get(key).filter(|ghost| ghost.by == *by) {
                        return Looked::Found(ghost.value.clone());
                    }
                }
                None => {}
            }
        }
        Looked::Below
    }

    /// The ghost of a body that is neither in a layer nor in the base any more.
    pub(crate) fn ghost(&self, key: &[u8], oldest: u64) -> Option<Bytes> {
        self.ghosts.get(key).filter(|ghost| ghost.by > oldest).map(|ghost| ghost.value.clone())
    }

    /// Keeps the value of a body that is about to go from the base. A newer ghost stays.
    pub(crate) fn haunt(&mut self, key: &Bytes, by: u64, value: Bytes) {
        if self.ghosts.get(key).is_none_or(|ghost| ghost.by < by) {
            self.ghosts.insert(key.clone(), Ghost { by, value });
        }
    }

    /// Turns the active layer into the frozen one. The caller made sure that there is none.
    pub(crate) fn freeze(&mut self) {
        debug_assert!(self.frozen.is_none(), "one checkpoint at a time");
        let next = std::mem::take(&mut self.spare);
        self.frozen = Some(Arc::new(std::mem::replace(&mut self.active, next)));
    }

    /// Takes back an emptied layer for the next [`Pending::freeze`].
    pub(crate) fn keep_spare(&mut self, layer: Layer) {
        debug_assert!(layer.is_empty(), "what is in it would come back to life");
        self.spare = layer;
    }

    /// Gives the memory back that was kept for the next layers.
    pub(crate) fn shrink(&mut self) {
        self.spare = Layer::default();
        self.active.shrink();
        self.ghosts.shrink_to_fit();
    }

    /// Whether a layer has something to say about this header of the base.
    pub(crate) fn covers_header(&self, key: &[u8]) -> bool {
        let covers = |layer: &Layer| layer.headers.contains_key(key);
        covers(&self.active) || self.frozen.as_deref().is_some_and(covers)
    }

    /// The bodies that a layer has something to say about.
    pub(crate) fn covered_bodies(&self) -> impl Iterator<Item = &Bytes> {
        self.active.bodies.keys().chain(self.frozen.iter().flat_map(|layer| layer.bodies.keys()))
    }

    /// The headers that the layers add.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        let frozen = self.frozen.iter().flat_map(|layer| &layer.headers);
        let frozen = frozen.filter(|(key, _)| !self.active.headers.contains_key(*key));
        self.active.headers.iter().chain(frozen).filter_map(|(key, value)| Some((key, value.as_ref()?)))
    }

    /// The keys of the bodies that the layers add.
    pub(crate) fn body_keys(&self) -> impl Iterator<Item = &Bytes> {
        let frozen = self.frozen.iter().flat_map(|layer| &layer.bodies);
        let frozen = frozen.filter(|(key, _)| !self.active.bodies.contains_key(*key));
        let all = self.active.bodies.iter().chain(frozen);
        all.filter(|(_, body)| matches!(body, Body::Here(_))).map(|(key, _)| key)
    }

    /// The active layer and the frozen one, copied; values are shared.
    pub(crate) fn contents(&self) -> [Layer; 2] {
        [self.active.clone(), self.frozen.as_deref().cloned().unwrap_or_default()]
    }

    /// Bytes of records held, ghosts aside.
    pub(crate) fn bytes(&self) -> usize {
        self.active.bytes + self.frozen.as_ref().map_or(0, |layer| layer.bytes)
    }
}
