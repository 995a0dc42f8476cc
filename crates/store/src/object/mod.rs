//! The object store: a SlateDB database for each shard, in a bucket or a folder that machines share. The map:
//!
//! - `place`: the bucket, and whether it is fit; `requests`: what was asked of it;
//! - here: one database. A batch is a `WriteBatch`; many of them share one write to the bucket.
//!
//! Opening a database makes every handle opened earlier fail ([`Fault::Fenced`]): SlateDB's writers take numbers by
//! creating objects only if they are absent. That is what keeps a shard from having two owners; nothing of ours does.

mod place;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use slatedb::config::{
    CloseOptions, DbReaderOptions, FlushOptions, FlushType, GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions, ObjectStoreCacheOptions, ScanOptions, Settings,
};
use slatedb::db_cache::moka::{MokaCache, MokaCacheOptions};
use slatedb::{CloseReason, Db, DbReadOps, DbReader, DbSnapshot, ErrorKind, WriteBatch};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use place::{Access, Listed, Place};
pub use requests::{Requests, RequestsNow};

use crate::pins::Pins;
use crate::{
    Batch, Bodies, EachHeader, EachKey, EachRecord, Fault, Pin, Record, Space, Stats, Store, Ticket,
};

/// Bodies read at once for one answer.
const READS_AT_ONCE: usize = 32;
/// Bytes asked for at once when all headers are read.
const SCAN_BYTES: usize = 4 << 20;
/// Requests for them under way at once.
const SCAN_TASKS: usize = 4;
/// How often SlateDB tries a request that failed again, on top of what the client does: about ten seconds.
const RETRIES_MAX: u32 = 12;
/// Between looks for what others changed in the database: its compaction may run elsewhere one day.
const MANIFEST_POLL: Duration = Duration::from_secs(5);
/// The longest that a reader reads.
const READER_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long objects that nothing refers to any more are kept: longer than any upload takes.
const GARBAGE_AGE: Duration = Duration::from_secs(30 * 60);

/// What SlateDB says when there is no manifest at all.
const NO_DATABASE: &str = "failed to find latest transactional object";

/// The longest that a write of the log waits for those who were answered by the one before.
const GATHER_MAX: Duration = Duration::from_millis(10);

/// How to open an [`ObjectStore`].
#[derive(Clone, Debug)]
pub struct ObjectOptions {
    /// The bucket.
    pub place: Arc<Place>,
    /// The database's folder in it.
    pub folder: String,
    /// Where its tasks run.
    pub runtime: Handle,
    /// Time from one write of the log to the next at least: bounds the requests per second. A batch that comes when
    /// that has passed does not wait.
    pub flush_interval: Duration,
    /// A handle that was known to be the writer this recently is taken to still be it when it only looks.
    pub trust: Duration,
    /// A write that is not durable, or a read that is not answered, and nothing else either for this long: the store is
    /// out of reach. Whoever waits is told, and the handle is given up.
    pub give_up: Duration,
    /// Memory for blocks of the database.
    pub cache_bytes: u64,
    /// A folder on this machine's disk that keeps what was read, and how much of it.
    pub disk_cache: Option<(PathBuf, usize)>,
}

impl ObjectOptions {
    /// The defaults.
    pub fn new(place: Arc<Place>, folder: impl Into<String>, runtime: Handle) -> Self {
        ObjectOptions {
            place,
            folder: folder.into(),
            runtime,
            flush_interval: Duration::from_millis(25),
            trust: Duration::from_secs(3),
            give_up: Duration::from_secs(30),
            cache_bytes: 256 << 20,
            disk_cache: None,
        }
    }

    fn settings(&self) -> Settings {
        let garbage =
            Some(GarbageCollectorDirectoryOptions { interval: None, min_age: GARBAGE_AGE, dry_run: false });
        let (root_folder, bytes) =
            self.disk_cache.clone().map_or((None, None), |(at, max)| (Some(at), Some(max)));
        Settings {
            // Ours decides when: see `flush_when_due`.
            flush_interval: None,
            manifest_poll_interval: MANIFEST_POLL,
            object_store_max_retries: Some(RETRIES_MAX),
            garbage_collector_options: Some(GarbageCollectorOptions {
                manifest_options: garbage,
                wal_options: garbage,
                // Never: a writer that slept long could otherwise take the number that fenced it.
                wal_fence_options: None,
                compacted_options: garbage,
                compactions_options: garbage,
                object_store_max_retries: Some(RETRIES_MAX),
                ..GarbageCollectorOptions::default()
            }),
            object_store_cache_options: ObjectStoreCacheOptions {
                root_folder: root_folder.map(|root| root.join(self.folder.replace('/', "-"))),
                max_cache_size_bytes: bytes,
                ..ObjectStoreCacheOptions::default()
            },
            ..Settings::default()
        }
    }
}

/// A store in a bucket or a shared folder.
pub struct ObjectStore {
    shared: Arc<Shared>,
    flusher: tokio::task::JoinHandle<()>,
    sequence: u64,
    stats: Stats,
}

/// What the store, its tickets and its readers share.
struct Shared {
    db: Db,
    runtime: Handle,
    pins: Arc<Pins>,
    /// What pinned readers may still want, by the number of the batch that was last when it was taken.
    snapshots: Mutex<BTreeMap<u64, Arc<DbSnapshot>>>,
    poisoned: Mutex<Option<Fault>>,
    /// There is something to be made durable.
    wanted: Notify,
    /// When this handle was last known to be the writer. Monotonic, and it goes on while the process is stopped.
    confirmed: Mutex<Instant>,
    trust: Duration,
    /// When the store last did what was asked of it; what comes out of a cache says nothing.
    answered: Mutex<Instant>,
    give_up: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ObjectStore {
    /// Opens the database, made if missing, and fences whoever had it. Blocks: not for threads of a runtime.
    pub fn open(options: &ObjectOptions) -> Result<Self, Fault> {
        let cache = MokaCacheOptions { max_capacity: options.cache_bytes, ..MokaCacheOptions::default() };
        let build = Db::builder(options.place.path(&options.folder), options.place.objects())
            .with_settings(options.settings())
            .with_db_cache(Arc::new(MokaCache::new_with_opts(cache)), 0)
            .build();
        let asked = Instant::now();
        let db = options.runtime.block_on(build).map_err(|error| fault(&error))?;
        let epoch = db.manifest().writer_epoch();
        let shared = Arc::new(Shared {
            db,
            runtime: options.runtime.clone(),
            pins: Arc::default(),
            snapshots: Mutex::default(),
            poisoned: Mutex::new(None),
            wanted: Notify::new(),
            confirmed: Mutex::new(asked),
            trust: options.trust,
            answered: Mutex::new(Instant::now()),
            give_up: options.give_up,
        });
        let flusher = options.runtime.spawn(flush_when_due(shared.clone(), options.flush_interval));
        Ok(ObjectStore { shared, flusher, sequence: 0, stats: Stats { epoch, ..Stats::default() } })
    }

    /// Whether this handle may still answer for the shard.
    fn confirm(&self) -> Ticket {
        if self.shared.is_trusted() {
            return Ticket::durable();
        }
        let shared = self.shared.clone();
        Ticket::when(move || {
            let asked = Instant::now();
            let looked = shared.runtime.block_on(shared.patiently(shared.db.refresh_manifest()));
            looked.map_err(|fault| shared.poison(fault))?;
            shared.confirm(asked);
            Ok(())
        })
    }
}

impl Shared {
    /// A failed write leaves open what was kept: nothing more is taken in.
    fn poison(&self, fault: Fault) -> Fault {
        lock(&self.poisoned).get_or_insert(fault).clone()
    }

    /// Waits while the store does anything at all. SlateDB itself would try for many minutes where requests get no answer.
    async fn patiently<T>(&self, asked: impl Future<Output = Result<T, slatedb::Error>>) -> Result<T, Fault> {
        let mut asked = std::pin::pin!(asked);
        let mut until = Instant::now() + self.give_up;
        loop {
            if let Ok(answer) = tokio::time::timeout_at(until, asked.as_mut()).await {
                return answer.map_err(|error| fault(&error));
            }
            until = *lock(&self.answered) + self.give_up;
            if until <= Instant::now() {
                let what = format!("the store has not answered for {:?}", self.give_up);
                return Err(Fault::Retry { what });
            }
        }
    }

    fn check(&self) -> Result<(), Fault> {
        lock(&self.poisoned).clone().map_or(Ok(()), Err)
    }

    fn is_trusted(&self) -> bool {
        lock(&self.confirmed).elapsed() < self.trust
    }

    /// Waits for what the store's own threads do. Whoever submits may be a task of another runtime.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let (done, result) = std::sync::mpsc::sync_channel(1);
        self.runtime.spawn(async move { done.send(work.await) });
        let ended = || Err(Fault::Retry { what: "the store's threads have ended".to_owned() });
        result.recv().unwrap_or_else(|_| ended())
    }

    /// It was the writer when this was asked.
    fn confirm(&self, asked: Instant) {
        *lock(&self.answered) = Instant::now();
        let mut confirmed = lock(&self.confirmed);
        *confirmed = (*confirmed).max(asked);
    }

    /// Drops the snapshots that no pin looks at.
    fn snapshots(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<DbSnapshot>>> {
        let mut snapshots = lock(&self.snapshots);
        let oldest = self.pins.oldest();
        if snapshots.first_key_value().is_some_and(|(sequence, _)| *sequence < oldest) {
            *snapshots = snapshots.split_off(&oldest);
        }
        snapshots
    }

    async fn body(&self, key: &[u8]) -> Result<Option<Bytes>, slatedb::Error> {
        let key = full_key(Space::Body, key);
        if let Some(found) = self.db.get(&key).await? {
            return Ok(Some(found));
        }
        let kept: Vec<_> = self.snapshots().values().cloned().collect();
        for snapshot in kept {
            if let Some(found) = snapshot.get(&key).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl Store for ObjectStore {
    fn load(&mut self, each: EachHeader<'_>) -> Result<(), Fault> {
        let shared = &self.shared;
        shared.runtime.block_on(scan(&shared.db, Space::Header, each))
    }

    fn commit(&mut self, batch: Batch) -> Result<(), Fault> {
        self.submit(batch)?.wait()
    }

    fn submit(&mut self, batch: Batch) -> Result<Ticket, Fault> {
        debug_assert!(batch.is_consistent(), "a key is both put and deleted in one batch");
        self.shared.check()?;
        batch.check()?;
        if batch.is_empty() {
            return Ok(self.confirm());
        }
        let bytes = batch.bytes() as u64;
        self.sequence += 1;
        self.shared.pins.advance(self.sequence);
        let mut writes = WriteBatch::new();
        for Record { space, key, value } in batch.records() {
            match value {
                Some(value) => writes.put(full_key(space, key), value),
                None => writes.delete(full_key(space, key)),
            }
        }
        let shared = &self.shared;
        let asked = Instant::now();
        let writer = shared.clone();
        let taken = shared.wait(async move { writer.patiently(writer.db.write(writes)).await });
        let taken = taken.map_err(|fault| shared.poison(fault))?;
        shared.wanted.notify_one();
        self.stats.commits += 1;
        self.stats.bytes_written += bytes;
        let shared = shared.clone();
        Ok(Ticket::when(move || {
            let waiting = shared.clone();
            let durable = shared.wait(async move { waiting.patiently(taken.await_durable()).await });
            durable.map_err(|fault| shared.poison(fault))?;
            shared.confirm(asked);
            Ok(())
        }))
    }

    fn bodies(&self) -> Arc<dyn Bodies> {
        Arc::new(ObjectBodies(self.shared.clone()))
    }

    fn stats(&self) -> Stats {
        self.stats
    }

    fn close(self: Box<Self>) -> Result<(), Fault> {
        self.shared.check()?;
        self.flusher.abort();
        lock(&self.shared.snapshots).clear();
        self.shared.runtime.block_on(self.shared.db.close()).map_err(|error| fault(&error))
    }
}

impl Drop for ObjectStore {
    /// As after a crash: what is not durable yet is given up, and the tasks end.
    fn drop(&mut self) {
        self.flusher.abort();
        let shared = self.shared.clone();
        lock(&shared.snapshots).clear();
        self.shared.runtime.spawn(async move {
            if shared.db.status().close_reason != Some(CloseReason::Clean) {
                let _ = shared.db.close_with_options(CloseOptions::default().with_flush_type(None)).await;
            }
        });
    }
}

/// Writes the log when there is something to write and the last write began long enough ago. While one write is under
/// way the next gathers, so a slow store makes its own batches.
async fn flush_when_due(shared: Arc<Shared>, interval: Duration) {
    loop {
        shared.wanted.notified().await;
        let began = Instant::now();
        // A failure ends the database, which fails every ticket.
        if shared.db.flush_with_options(FlushOptions { flush_type: FlushType::Wal }).await.is_err() {
            return;
        }
        // Whoever was just answered asks again at once. Those who come within a tenth of a write's time share the next
        // write; without this they would wait for one that began a moment too early, and then for their own.
        let now = Instant::now();
        let gather = (now - began) / 10;
        tokio::time::sleep_until((began + interval).max(now + gather.min(GATHER_MAX))).await;
    }
}

struct ObjectBodies(Arc<Shared>);

impl Bodies for ObjectBodies {
    fn pin(&self) -> Pin {
        let pin = self.0.pins.pin();
        let mut snapshots = self.0.snapshots();
        if let std::collections::btree_map::Entry::Vacant(free) = snapshots.entry(pin.sequence()) {
            // A database that has ended has nothing to read either.
            if let Ok(snapshot) = self.0.db.snapshot() {
                free.insert(snapshot);
            }
        }
        pin
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Fault> {
        self.0.runtime.block_on(self.0.patiently(self.0.body(key)))
    }

    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, Fault> {
        let reads = futures_util::stream::iter(keys).map(|key| self.0.body(key)).buffered(READS_AT_ONCE);
        self.0.runtime.block_on(self.0.patiently(reads.try_collect()))
    }

    fn keys(&self, each: EachKey<'_>) -> Result<(), Fault> {
        self.0.runtime.block_on(scan(&self.0.db, Space::Body, |key: &[u8], _: &[u8]| each(key)))
    }

    fn copy(&self, each: EachRecord<'_>) -> Result<(), Fault> {
        let moment = self.0.db.snapshot().map_err(|error| fault(&error))?;
        self.0.runtime.block_on(copy(moment.as_ref(), each))
    }
}

/// Reads a database that others may be writing, as it was when this was opened.
pub struct ObjectReader {
    reader: DbReader,
    runtime: Handle,
}

impl ObjectReader {
    /// Blocks: not for threads of a runtime.
    pub fn open(options: &ObjectOptions) -> Result<Self, Fault> {
        let reading = DbReaderOptions {
            // Never: what is read is to stay as it is. What it refers to is kept meanwhile.
            manifest_poll_interval: READER_MAX,
            checkpoint_lifetime: READER_MAX * 3,
            object_store_max_retries: Some(RETRIES_MAX),
            ..DbReaderOptions::default()
        };
        let build = DbReader::builder(options.place.path(&options.folder), options.place.objects())
            .with_options(reading)
            .with_db_cache_disabled()
            .build();
        let reader = options.runtime.block_on(build).map_err(|error| fault(&error))?;
        Ok(ObjectReader { reader, runtime: options.runtime.clone() })
    }

    /// None: there is no database, since nobody has opened it for writing yet.
    pub fn open_existing(options: &ObjectOptions) -> Result<Option<Self>, Fault> {
        match Self::open(options) {
            // Not any trouble with a manifest: a damaged one must not pass for an empty shard.
            Err(Fault::Corrupt { what }) if what.contains(NO_DATABASE) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Hands every header, then every body, to `each`.
    pub fn copy(&self, each: EachRecord<'_>) -> Result<(), Fault> {
        self.runtime.block_on(copy(&self.reader, each))
    }

    /// Lets go of what was kept for it.
    pub fn close(self) -> Result<(), Fault> {
        self.runtime.block_on(self.reader.close()).map_err(|error| fault(&error))
    }
}

async fn copy(db: &impl DbReadOps, each: EachRecord<'_>) -> Result<(), Fault> {
    scan(db, Space::Header, |key, value| each(Space::Header, key, value)).await?;
    scan(db, Space::Body, |key, value| each(Space::Body, key, value)).await
}

async fn scan(
    db: &impl DbReadOps,
    space: Space,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let options = ScanOptions::default()
        .with_read_ahead_bytes(SCAN_BYTES)
        .with_max_fetch_tasks(SCAN_TASKS)
        .with_cache_blocks(false);
    let first = letter(space);
    let scan = db.scan_with_options([first]..[first + 1], &options).await;
    let mut records = scan.map_err(|error| fault(&error))?;
    while let Some(record) = records.next().await.map_err(|error| fault(&error))? {
        each(record.key.get(1..).unwrap_or_default(), &record.value)?;
    }
    Ok(())
}

/// Headers and bodies lie in one database, apart by their first byte.
fn letter(space: Space) -> u8 {
    match space {
        Space::Header => b'h',
        Space::Body => b'b',
    }
}

fn full_key(space: Space, key: &[u8]) -> Bytes {
    let mut full = BytesMut::with_capacity(key.len() + 1);
    full.put_u8(letter(space));
    full.put_slice(key);
    full.freeze()
}

/// By what the caller should do.
fn fault(error: &slatedb::Error) -> Fault {
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => Fault::Fenced,
        ErrorKind::Data => Fault::Corrupt { what: error.to_string() },
        _ => Fault::Retry { what: error.to_string() },
    }
}
