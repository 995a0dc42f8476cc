//! What one round changes: puts and deletes of whole records. Replaying a batch is idempotent, which is
//! what every recovery rests on.

use bytes::Bytes;

use crate::Fault;

/// The longest key. The shortest is one byte.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// The largest value.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// The most that the keys and values of one batch may add up to.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// Which of the two key spaces. Headers are scanned at start-up; bodies are read one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Small records, all of which are held in memory by the engine.
    Header,
    /// Data and results of jobs.
    Body,
}

/// One round's changes. A later put of the same key wins. A key is never both put and deleted in one
/// batch: the caller guarantees it (see [`Batch::is_consistent`]).
///
/// A store may hold on to the `Bytes` for a while (until they are in its base), so they should not be
/// small slices of large buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Records to write.
    pub puts: Vec<(Space, Bytes, Bytes)>,
    /// Keys to remove. Removing what is not there is no error.
    pub deletes: Vec<(Space, Bytes)>,
}

impl Batch {
    /// Adds a record.
    pub fn put(&mut self, space: Space, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.puts.push((space, key.into(), value.into()));
    }

    /// Adds a removal.
    pub fn delete(&mut self, space: Space, key: impl Into<Bytes>) {
        self.deletes.push((space, key.into()));
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty()
    }

    /// How many changes.
    pub fn len(&self) -> usize {
        self.puts.len() + self.deletes.len()
    }

    /// Bytes of the keys and values.
    pub fn bytes(&self) -> usize {
        let puts: usize = self.puts.iter().map(|(_, key, value)| key.len() + value.len()).sum();
        let deletes: usize = self.deletes.iter().map(|(_, key)| key.len()).sum();
        puts + deletes
    }

    /// Empties the batch and keeps its room.
    pub fn clear(&mut self) {
        self.puts.clear();
        self.deletes.clear();
    }

    /// Checks the limits of this module; every store refuses a batch that breaks one.
    pub fn check(&self) -> Result<(), Fault> {
        let keys = self.puts.iter().map(|(_, key, _)| key).chain(self.deletes.iter().map(|(_, key)| key));
        let too_large = |what: &str, bytes: usize, max: usize| {
            Err(Fault::TooLarge { what: format!("{what} of {bytes} bytes, allowed are 1 to {max}") })
        };
        for key in keys {
            if key.is_empty() || key.len() > KEY_BYTES_MAX {
                return too_large("a key", key.len(), KEY_BYTES_MAX);
            }
        }
        for (_, _, value) in &self.puts {
            if value.len() > VALUE_BYTES_MAX {
                return too_large("a value", value.len(), VALUE_BYTES_MAX);
            }
        }
        let bytes = self.bytes();
        if bytes > BATCH_BYTES_MAX {
            return too_large("a batch", bytes, BATCH_BYTES_MAX);
        }
        Ok(())
    }

    /// No key is both put and deleted. Costs a set of all keys: for debug assertions and tests.
    pub fn is_consistent(&self) -> bool {
        let puts: hashbrown::HashSet<(Space, &[u8])> =
            self.puts.iter().map(|(space, key, _)| (*space, key.as_ref())).collect();
        !self.deletes.iter().any(|(space, key)| puts.contains(&(*space, key.as_ref())))
    }
}
