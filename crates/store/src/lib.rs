//! Where a shard's records are kept: one atomic, durable batch per round.
//!
//! The map:
//!
//! - [`batch`]: [`Batch`], what one round changes, and [`Space`], headers or bodies;
//! - [`fault`]: [`Fault`], what can go wrong, by what the caller should do about it;
//! - [`pins`]: [`Pin`], which keeps deleted bodies readable for a moment;
//! - [`memory`]: [`MemoryStore`], for tests and simulation, fails on demand;
//! - [`disk`]: [`DiskStore`], a round log in front of fjall (`FORMAT.md` has the bytes);
//! - `object`: `ObjectStore`, a SlateDB database in a bucket or a shared folder (feature `object`);
//! - [`ticket`]: [`Ticket`], a batch on its way;
//! - `conformance`: the suite every store must pass (tests, or feature `conformance`).
//!
//! A store knows nothing about what is inside a record. It keeps no clock: waiting is left to the
//! operating system, and nothing that is stored depends on the time.

#![forbid(unsafe_code)]

pub mod batch;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod disk;
pub mod fault;
pub mod memory;
#[cfg(feature = "object")]
pub mod object;
pub mod pins;
pub mod ticket;

use std::sync::Arc;

use ::bytes::Bytes;

pub use batch::{Batch, Record, Space};
pub use disk::{DiskOptions, DiskStore, Durability};
pub use fault::Fault;
pub use memory::{Inject, MemoryDisk, MemoryStore};
#[cfg(feature = "object")]
pub use object::{Access, Listed, ObjectOptions, ObjectReader, ObjectStore, Place, Requests, RequestsNow};
pub use pins::Pin;
pub use ticket::Ticket;

/// Receives one header: its key and its value.
pub type EachHeader<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), Fault>;

/// Receives one record: which space, its key and its value.
pub type EachRecord<'a> = &'a mut dyn FnMut(Space, &[u8], &[u8]) -> Result<(), Fault>;

/// Receives one key.
pub type EachKey<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Fault>;

/// A durable map of records with one writer.
pub trait Store: Send {
    /// Hands every header to `each`, in any order. Called once, after opening. The first error of `each`
    /// ends the scan and is returned.
    fn load(&mut self, each: EachHeader<'_>) -> Result<(), Fault>;

    /// An empty batch that is likely to have so many bytes. Its memory may be used again by batches to come.
    fn batch(&mut self, bytes: usize) -> Batch {
        Batch::with_capacity(bytes)
    }

    /// Makes the batch durable, all or nothing across a crash, in the order of the calls. Blocks.
    ///
    /// After [`Fault::Full`] nothing of the batch was kept and the handle stays usable. After any other
    /// fault the handle is poisoned: every later commit fails until the store is opened again, and
    /// whether the batch was kept is known only then.
    fn commit(&mut self, batch: Batch) -> Result<(), Fault>;

    /// Takes the batch in, to be durable in the order of the calls, without waiting for it: several may be on
    /// their way at once. What is taken in is seen by readers of bodies at once. When one ticket fails, so do
    /// all given after it, and the handle is poisoned.
    ///
    /// An empty batch asks whether this handle is still the one that writes: its ticket fails with
    /// [`Fault::Fenced`] if another took over.
    fn submit(&mut self, batch: Batch) -> Result<Ticket, Fault> {
        if !batch.is_empty() {
            self.commit(batch)?;
        }
        Ok(Ticket::durable())
    }

    /// A reader of bodies, usable from other threads, cheap to clone.
    fn bodies(&self) -> Arc<dyn Bodies>;

    /// Counters since opening, and sizes as of now.
    fn stats(&self) -> Stats;

    /// Hardly anything has been written for a while: what was put off may be done now, and memory given back. Called again
    /// and again while that lasts; returns soon.
    fn rest(&mut self) {}

    /// Writes out what is pending and releases the folder. A store that is merely dropped loses nothing
    /// that was acknowledged; its next start is only slower.
    fn close(self: Box<Self>) -> Result<(), Fault>;
}

/// Reads bodies while the store goes on committing.
pub trait Bodies: Send + Sync {
    /// While the pin lives, bodies that exist now stay readable even if a later batch deletes them.
    /// (A later batch that overwrites one is seen.)
    fn pin(&self) -> Pin;

    /// The body of that key, as of the last commit.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Fault>;

    /// The bodies of these keys, in their order; together where that saves time.
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, Fault> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// The body of that key if it is in memory, as it once was: for bodies that are never overwritten, under a pin.
    fn at_hand(&self, _key: &[u8]) -> Option<Bytes> {
        None
    }

    /// Whether somebody with time should call [`Bodies::read_on`] now.
    fn is_low(&self) -> bool {
        false
    }

    /// Reads what will probably be asked for next, so that it is at hand.
    fn read_on(&self) {}

    /// Hands every body's key to `each`, in any order: for `haul doctor`.
    fn keys(&self, each: EachKey<'_>) -> Result<(), Fault>;

    /// Hands every header, then every body, to `each`, all as of one moment between two commits, in any order.
    /// Commits go on meanwhile: for `haul backup`.
    fn copy(&self, each: EachRecord<'_>) -> Result<(), Fault>;

    /// How many records there are, roughly, where that is known without reading them: to tell how far a copy is.
    fn about(&self) -> Option<u64> {
        None
    }
}

/// What a store did since it was opened, and how much it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches committed.
    pub commits: u64,
    /// Syncs of the log that were asked of the operating system.
    pub fsyncs: u64,
    /// Bytes appended to the log.
    pub bytes_written: u64,
    /// Bytes in the log that are not in the base yet.
    pub log_bytes: u64,
    /// Bytes on disk in all: log and base.
    pub disk_bytes: u64,
    /// Bytes held in memory until they are in the base: records as they are in the log.
    pub pending_bytes: u64,
    /// Times the pending records were written to the base.
    pub checkpoints: u64,
    /// Attempts at that which failed and are tried again.
    pub checkpoint_failures: u64,
    /// Records that reached the base; the others cancelled out in memory.
    pub records_checkpointed: u64,
    /// Commits that had to wait because the log was at its limit.
    pub stalls: u64,
    /// How often the store has been opened for writing in all its life, where that is known: the writer's number.
    pub epoch: u64,
}
