//! The disk store: a round log in front of fjall (the base). A commit appends one frame to the log and
//! syncs it: that is all it waits for. Whoever submits may leave the sync to another thread. What has not reached the base is also held in memory, and a
//! background checkpoint moves the survivors over. The map:
//!
//! - `folder`: the lock and the format; `io`: file operations that tests can make fail;
//! - `segment`, `frame`: the log's bytes; `log`: writing it; `replay`: reading it at start-up;
//! - `tail`: what is durable; `sync`: syncing by interval; `pending`: the memory; `base`: fjall; `records`: memory over base;
//! - `chunks`: the memory that batches are made and held in;
//! - `ahead`: bodies of the base read before they are asked for;
//! - `checkpoint`: from memory to base; `chores`: what nobody waits for; `bites`, `drip`: so that nobody has to wait for these.

mod ahead;
mod base;
mod bites;
mod checkpoint;
mod chores;
mod chunks;
mod drip;
mod folder;
mod frame;
mod io;
mod log;
mod pending;
mod records;
mod replay;
mod segment;
mod sync;
mod tail;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::base::Mark;
use self::checkpoint::Checkpointer;
use self::chores::Chores;
use self::chunks::Room;
use self::folder::Folder;
use self::io::{Io, RealIo};
use self::log::{Log, Spares};
use self::records::{BaseSettings, Records};
use self::replay::Replay;
use self::sync::Syncer;
use self::tail::Tail;
use crate::{Batch, Bodies, EachHeader, Fault, Stats, Store, Ticket};

/// More sealed segments than this start a checkpoint, however small they are.
const SEALED_COUNT_MAX: usize = 64;

/// A store at rest writes out what is pending from this many bytes on: less is not worth a checkpoint.
const REST_BYTES: usize = 4 << 20;

/// Segments kept to be written again at most.
const SPARES_MAX: usize = 16;

/// Batches that are not in the index yet: from so many on they are worth to wake a thread for.
const FRESH_MANY: usize = 32;

/// How fast a log that is almost full takes batches.
const PACE_BYTES_PER_SECOND: u64 = 16 << 20;
/// The most that one batch is delayed for it.
const PACE_MAX: Duration = Duration::from_millis(100);

/// When a commit may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the batch is on the disk: an acknowledged batch survives a power cut.
    Always,
    /// When the operating system has the batch; the log is synced every so often. An acknowledged batch
    /// survives a crash of the process, but a power cut may take the batches of the last interval (always
    /// the newest ones, never some from the middle).
    Interval(Duration),
}

/// How to open a [`DiskStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The data folder. It is created if it is missing.
    pub path: PathBuf,
    /// When a commit may return.
    pub durability: Durability,
    /// For a look at the data: commits are refused, and the log is left exactly as it is. The base is still
    /// opened as usual (fjall has no other way), so it may tidy up its own files, and the folder is locked.
    pub read_only: bool,
    /// The size of a log segment.
    pub segment_bytes: u64,
    /// Sealed segments of this size in all start a checkpoint. Larger: more records cancel out before they
    /// reach the base, more memory, a longer start.
    pub checkpoint_bytes: u64,
    /// The most the log may hold; a commit waits for a checkpoint rather than exceed it. Also the bound on
    /// the records held in memory.
    pub log_bytes_max: u64,
    /// The base's block cache.
    pub cache_bytes: u64,
}

impl DiskOptions {
    /// The defaults for a folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            durability: Durability::Always,
            read_only: false,
            segment_bytes: 32 << 20,
            checkpoint_bytes: 128 << 20,
            log_bytes_max: 384 << 20,
            cache_bytes: 64 << 20,
        }
    }
}

/// A store in a folder on this machine.
pub struct DiskStore {
    options: DiskOptions,
    log: Log,
    /// What is written and what of it is durable.
    tail: Arc<Tail>,
    poisoned: Option<Fault>,
    stats: Stats,
    checkpointer: Option<Checkpointer>,
    chores: Option<Chores>,
    syncer: Option<Syncer>,
    records: Arc<Records>,
    /// What the next batch is made in.
    room: Room,
    /// Last: the lock goes when everything else is closed.
    folder: Folder,
}

impl DiskStore {
    /// Locks and opens the folder and replays the log.
    pub fn open(options: DiskOptions) -> Result<Self, Fault> {
        Self::open_with(options, Arc::new(RealIo))
    }

    fn open_with(options: DiskOptions, io: Arc<dyn Io>) -> Result<Self, Fault> {
        let folder = Folder::open(&options.path, options.read_only)?;
        if !options.read_only {
            create_log_folder(&folder)?;
        }
        let settings =
            BaseSettings { path: folder.base(), cache_bytes: options.cache_bytes, io: Arc::clone(&io) };
        let records = Arc::new(Records::open(settings)?);
        let mark = records.base().get()?.mark()?;
        let replay = Replay { folder: &folder.log(), io: io.as_ref(), mark, read_only: options.read_only };
        let position = replay.run(&mut |sequence, batch| {
            records.apply(sequence, batch, None);
        })?;
        records.pins().advance(position.sequence);
        let durable = position.sequence;
        // As many as the log may have: to write a new one costs the disk as much again as what is put into it.
        let most = options.log_bytes_max.div_ceil(options.segment_bytes.max(1)) as usize;
        let spares = Arc::new(Spares::new(folder.log(), most.min(SPARES_MAX), options.segment_bytes));
        let mut store = Self {
            log: Log::new(Arc::clone(&spares), Arc::clone(&io), options.segment_bytes, position),
            tail: Arc::new(Tail::new(Arc::clone(&io), durable)),
            poisoned: None,
            stats: Stats::default(),
            checkpointer: None,
            chores: None,
            syncer: None,
            room: Room::default(),
            records,
            folder,
            options,
        };
        if !store.options.read_only {
            store.start_threads(spares, io)?;
        }
        Ok(store)
    }

    fn start_threads(&mut self, spares: Arc<Spares>, io: Arc<dyn Io>) -> Result<(), Fault> {
        let records = || Arc::clone(&self.records);
        let bytes = self.options.segment_bytes + frame::HEADER_BYTES as u64;
        self.chores = Some(Chores::start(records(), Arc::clone(&spares), io, bytes)?);
        let easy_bytes = easy_bytes(&self.options);
        self.checkpointer = Some(Checkpointer::start(records(), self.folder.log(), spares, easy_bytes)?);
        if let Durability::Interval(every) = self.options.durability {
            self.syncer = Some(Syncer::start(Arc::clone(&self.tail), every)?);
        }
        Ok(())
    }

    fn try_submit(&mut self, mut batch: Batch) -> Result<Ticket, Fault> {
        let bytes = frame::frame_bytes(&batch) as u64;
        self.make_room(bytes)?;
        if self.log.needs_segment(bytes) {
            self.seal()?;
            self.log.start_segment(bytes)?;
        }
        self.log.append(&mut batch, self.tail.durable())?;
        let sequence = self.log.sequence();
        self.tail.wrote(self.log.file(), sequence);
        let ticket = match self.syncer {
            Some(_) => Ticket::durable(),
            None => {
                let tail = Arc::clone(&self.tail);
                Ticket::by(move || tail.sync(sequence))
            }
        };
        self.room.take_back(batch.split_rest());
        self.keep(sequence, batch);
        self.stats.commits += 1;
        self.stats.bytes_written += bytes;
        self.checkpoint_if_due()?;
        Ok(ticket)
    }

    /// Makes a batch visible, and has done for it what nobody needs to wait for.
    fn keep(&mut self, sequence: u64, batch: Batch) {
        let fresh = self.records.apply(sequence, batch, self.room.take_spent());
        let Some(chores) = &self.chores else { return };
        if fresh >= FRESH_MANY {
            chores.index();
        }
        if self.log.is_growing() {
            chores.make_segment();
        }
    }

    /// Waits until the log has room for the frame. One that is larger than all of the log may be is let
    /// into an empty one.
    fn make_room(&mut self, bytes: u64) -> Result<(), Fault> {
        self.forget_contained();
        let wait = pace(bytes, self.log.bytes(), self.options.log_bytes_max);
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        let mut stalled = false;
        while self.log.bytes() > 0 && self.log.bytes() + bytes > self.options.log_bytes_max {
            if !stalled {
                self.stats.stalls += 1;
                stalled = true;
            }
            self.seal()?;
            self.checkpoint()?;
            self.wait_for_checkpoint()?;
        }
        Ok(())
    }

    fn wait_for_checkpoint(&mut self) -> Result<(), Fault> {
        self.checkpointer.as_ref().map_or(Ok(()), Checkpointer::wait)?;
        self.forget_contained();
        Ok(())
    }

    fn forget_contained(&mut self) {
        let contained = self.checkpointer.as_ref().map_or(0, Checkpointer::contained);
        self.log.forget(contained);
    }

    fn checkpoint_if_due(&mut self) -> Result<(), Fault> {
        let bytes = self.log.sealed_bytes();
        if bytes >= self.options.checkpoint_bytes || self.log.sealed_count() > SEALED_COUNT_MAX {
            self.forget_contained();
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Starts a checkpoint of all sealed segments, unless one is under way. The layer may also hold batches
    /// of the current segment: writing them early is harmless, they are replayed over it. For that they must be
    /// durable: the base is not to know of a batch that the log may lose.
    fn checkpoint(&mut self) -> Result<(), Fault> {
        let Some(last) = self.log.last_sealed() else { return Ok(()) };
        let is_new =
            |checkpointer: &Checkpointer| !checkpointer.is_busy() && last.number > checkpointer.contained();
        if !self.checkpointer.as_ref().is_some_and(is_new) {
            return Ok(());
        }
        self.sync()?;
        self.records.pending_mut().freeze();
        if let Some(checkpointer) = &self.checkpointer {
            checkpointer.submit(Mark { segment: last.number, sequence: last.sequence });
        }
        Ok(())
    }

    /// Ends the current segment, synced.
    fn seal(&mut self) -> Result<(), Fault> {
        self.sync()?;
        self.log.seal();
        Ok(())
    }

    /// Returns when all that was written is durable.
    fn sync(&mut self) -> Result<(), Fault> {
        self.tail.sync(self.log.sequence())
    }

    /// Writes everything to the base.
    fn flush(&mut self) -> Result<(), Fault> {
        if self.options.read_only {
            return Ok(());
        }
        self.seal()?;
        // At most two: one that was under way, and the rest.
        while self.log.bytes() > 0 {
            self.checkpoint()?;
            self.wait_for_checkpoint()?;
        }
        Ok(())
    }
}

impl Store for DiskStore {
    fn load(&mut self, each: EachHeader<'_>) -> Result<(), Fault> {
        self.records.load(each)
    }

    fn batch(&mut self, bytes: usize) -> Batch {
        Batch::within(self.room.give(bytes, self.records.chunks()))
    }

    fn commit(&mut self, batch: Batch) -> Result<(), Fault> {
        self.submit(batch)?.wait()
    }

    fn submit(&mut self, mut batch: Batch) -> Result<Ticket, Fault> {
        debug_assert!(batch.is_consistent(), "a key is both put and deleted in one batch");
        if batch.is_empty() {
            self.room.take_back(batch.split_rest());
            return Ok(Ticket::durable());
        }
        if self.options.read_only {
            return Err(Fault::ReadOnly);
        }
        if let Some(fault) = self.poisoned.clone().or_else(|| self.tail.failed()) {
            return Err(fault);
        }
        batch.check()?;
        let result = self.try_submit(batch);
        if let Err(fault) = &result
            && !matches!(fault, Fault::Full { .. })
        {
            self.poisoned = Some(fault.clone());
        }
        result
    }

    fn bodies(&self) -> Arc<dyn Bodies> {
        Arc::clone(&self.records) as Arc<dyn Bodies>
    }

    fn stats(&self) -> Stats {
        let counts = self.checkpointer.as_ref().map(Checkpointer::counts).unwrap_or_default();
        let log_bytes = self.log.bytes();
        let base_bytes = self.records.base_bytes();
        Stats {
            fsyncs: self.tail.fsyncs(),
            log_bytes,
            disk_bytes: log_bytes + base_bytes,
            pending_bytes: self.records.pending_bytes() as u64,
            checkpoints: counts.checkpoints,
            checkpoint_failures: counts.failures,
            records_checkpointed: counts.records,
            ..self.stats
        }
    }

    fn rest(&mut self) {
        if self.poisoned.is_some() || self.checkpointer.as_ref().is_none_or(Checkpointer::is_busy) {
            return;
        }
        self.forget_contained();
        if self.records.pending_bytes() < REST_BYTES {
            self.records.pending_mut().shrink();
            self.records.chunks().clear();
            self.log.spares().clear();
            return;
        }
        if let Err(fault) = self.seal().and_then(|()| self.checkpoint()) {
            self.poisoned = Some(fault);
        }
    }

    fn close(mut self: Box<Self>) -> Result<(), Fault> {
        match self.poisoned.take().or_else(|| self.tail.failed()) {
            Some(fault) => Err(fault),
            None => self.flush(),
        }
    }
}

impl Drop for DiskStore {
    /// Ends the threads, then closes the base, which readers may otherwise keep open.
    fn drop(&mut self) {
        self.syncer = None;
        self.chores = None;
        self.checkpointer = None;
        self.log.spares().clear();
        self.records.shut();
    }
}

/// How long a frame waits: past half of its limit the log takes them more slowly, the fuller the more, so
/// that a base that cannot keep up shows as many small delays and not as one long halt.
fn pace(frame_bytes: u64, log_bytes: u64, log_bytes_max: u64) -> Duration {
    let half = log_bytes_max / 2;
    let over = log_bytes.saturating_sub(half).min(half);
    let full = frame_bytes.saturating_mul(1_000_000) / PACE_BYTES_PER_SECOND;
    let micros = full.saturating_mul(over) / half.max(1);
    Duration::from_micros(micros).min(PACE_MAX)
}

/// What may be pending while a checkpoint goes easy: with more the log fills faster than that empties it, and nobody who writes is
/// to be slowed down by a checkpoint that rests.
fn easy_bytes(options: &DiskOptions) -> usize {
    (options.checkpoint_bytes + options.segment_bytes).min(options.log_bytes_max / 2) as usize
}

fn create_log_folder(folder: &Folder) -> Result<(), Fault> {
    let created = std::fs::create_dir_all(folder.log()).and_then(|()| io::sync_folder(folder.path()));
    created.map_err(|error| unusable(folder.path(), &error))
}

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::Unusable { path: path.to_owned(), what: error.to_string() }
}
