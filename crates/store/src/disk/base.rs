//! The base: fjall, with one keyspace for headers, one for bodies (values kept apart from keys) and one
//! for the mark up to which the log is contained. The only file that knows fjall. Every value carries
//! a checksum of its own, so that damage names the record.
//!
//! Records come in sorted, in bulk, and go straight to tables: past fjall's journal and its memory, because the log keeps them
//! until the mark says that they are here. Only the mark takes the usual way.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::config::FilterPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};

use super::bites::Bites;
use super::drip::Drip;
use super::io::{Io, is_full, sync_folder};
use crate::{Fault, Space};

const MARK_KEY: &[u8] = b"log";
/// Where fjall has its tables, and the files of values that are kept apart from their keys.
const TABLES_FOLDER: &str = "tables";
const VALUES_FOLDER: &str = "blobs";
const CHECKSUM_BYTES: usize = 4;
/// Tables that wait for a compaction in one space before the next intake waits for it.
const LOOSE_TABLES_MAX: usize = 48;
/// How often it looks whether the compaction is done, and how many times: one that is stuck must not stop the store.
const LOOSE_REST: Duration = Duration::from_millis(20);
const LOOSE_LOOKS: usize = 250;

/// Headers come in any order of keys where clients make the jids, and are only ever read all together, at the start: no filters,
/// and many tables may lie loose before it is worth to merge them with everything else.
fn header_options() -> KeyspaceCreateOptions {
    let options = KeyspaceCreateOptions::default().filter_policy(FilterPolicy::disabled());
    options.compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(16)))
}

/// Bodies are put at the end and deleted near the front: small tables, so that what lies between is not merged each time.
fn body_options() -> KeyspaceCreateOptions {
    let options = KeyspaceCreateOptions::default();
    let options = options.compaction_strategy(Arc::new(Leveled::default().with_table_target_size(4 << 20)));
    options.with_kv_separation(Some(KvSeparationOptions::default().separation_threshold(512)))
}

/// Up to where the base contains the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The last segment.
    pub(crate) segment: u64,
    /// The last batch of that segment.
    pub(crate) sequence: u64,
}

/// An open fjall database.
pub(crate) struct Base {
    path: PathBuf,
    io: Arc<dyn Io>,
    database: Database,
    headers: Part,
    bodies: Part,
    marks: Keyspace,
}

/// The records of a space.
struct Part {
    keyspace: Keyspace,
    /// No key is beyond this one.
    last: Mutex<Bytes>,
}

impl Part {
    fn new(keyspace: Keyspace) -> Result<Self, fjall::Error> {
        let last = keyspace.last_key_value().map(|record| record.key()).transpose()?;
        Ok(Self { keyspace, last: Mutex::new(last.map(Bytes::from).unwrap_or_default()) })
    }
}

impl Base {
    pub(crate) fn open(path: &Path, cache_bytes: u64, io: Arc<dyn Io>) -> Result<Self, Fault> {
        let fault = |error| fault(path, "open", error);
        let database = Database::builder(path)
            .cache_size(cache_bytes)
            // With more than one, fjall 3.1 keeps its first worker for flushes by letting it send each compaction it is
            // given back to the queue: while another compacts, it spins and takes a core from the shard.
            .worker_threads(1)
            .open()
            .map_err(fault)?;
        let headers = database.keyspace("headers", header_options).and_then(Part::new).map_err(fault)?;
        let bodies = database.keyspace("bodies", body_options).and_then(Part::new).map_err(fault)?;
        let marks = database.keyspace("marks", KeyspaceCreateOptions::default).map_err(fault)?;
        Ok(Self { path: path.to_owned(), io, database, headers, bodies, marks })
    }

    fn part(&self, space: Space) -> &Part {
        match space {
            Space::Header => &self.headers,
            Space::Body => &self.bodies,
        }
    }

    pub(crate) fn body(&self, key: &[u8]) -> Result<Option<Bytes>, Fault> {
        let space = Space::Body;
        let stored = self.bodies.keyspace.get(key).map_err(|error| self.damaged(space, key, error))?;
        stored.map(|stored| self.unseal(space, key, stored.into())).transpose()
    }

    /// The bodies from a key on, up to a number of them, or until there are so many bytes, or one that cannot be read.
    pub(crate) fn bodies_from(&self, key: &[u8], count: usize, bytes: usize) -> Vec<(Bytes, Bytes)> {
        let entries = self.bodies.keyspace.range(key..);
        let mut scan = Scan { base: self, space: Space::Body, entries, last: Bytes::new() };
        let mut found: Vec<(Bytes, Bytes)> = Vec::with_capacity(count);
        let mut sum = 0;
        while found.len() < count
            && sum < bytes
            && let Some(Ok((key, value))) = scan.record()
        {
            sum += value.len();
            found.push((key, value));
        }
        found
    }

    /// Every record as of now, in the order of the keys.
    pub(crate) fn scan(&self, space: Space) -> Scan<'_> {
        Scan { base: self, space, entries: self.part(space).keyspace.iter(), last: Bytes::new() }
    }

    /// No record of the space has a key beyond this one.
    pub(crate) fn last_key(&self, space: Space) -> Bytes {
        self.part(space).last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in changes of one space, in the order of their keys: values, and nothing for what is deleted. All of them are durable
    /// and visible when it returns, or none. Answers how many there were.
    pub(crate) fn take_in<'r>(
        &self,
        space: Space,
        records: impl Iterator<Item = (&'r [u8], Option<&'r [u8]>)>,
        bites: &mut Bites<'_>,
    ) -> Result<u64, Fault> {
        let fault = |error| fault(&self.path, "write", error);
        let Part { keyspace, last } = self.part(space);
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        // Else tables would pile up when compaction does not keep up. The log fills meanwhile and slows down those who write.
        let mut looks = 0;
        while keyspace.l0_table_count() > LOOSE_TABLES_MAX && looks < LOOSE_LOOKS {
            std::thread::sleep(LOOSE_REST);
            looks += 1;
        }
        self.io.before_base_write().map_err(|error| fault(error.into()))?;
        let folders = [TABLES_FOLDER, VALUES_FOLDER].map(|name| keyspace.path().join(name));
        let mut drip = Drip::new(self.io.as_ref(), folders.into());
        let mut tables = keyspace.start_ingestion().map_err(fault)?;
        let mut count = 0;
        let mut highest = None;
        for (key, value) in records {
            match value {
                Some(value) => {
                    tables.write(key, seal(key, value)).map_err(fault)?;
                    highest = Some(key);
                }
                None => tables.write_tombstone(key).map_err(fault)?,
            }
            count += 1;
            drip.wrote(key.len() + value.map_or(0, <[u8]>::len), bites);
            bites.step();
        }
        tables.finish().map_err(fault)?;
        if let Some(highest) = highest.filter(|highest| *highest > &**last) {
            *last = Bytes::copy_from_slice(highest);
        }
        Ok(count)
    }

    pub(crate) fn set_mark(&self, mark: Mark) -> Result<(), Fault> {
        let mut value = mark.segment.to_le_bytes().to_vec();
        value.extend_from_slice(&mark.sequence.to_le_bytes());
        let written = self.io.before_base_write().map_err(fjall::Error::from);
        let written = written.and_then(|()| self.marks.insert(MARK_KEY, seal(MARK_KEY, &value)));
        written.map_err(|error| fault(&self.path, "write the mark", error))
    }

    pub(crate) fn mark(&self) -> Result<Mark, Fault> {
        let Some(stored) =
            self.marks.get(MARK_KEY).map_err(|error| fault(&self.path, "read the mark", error))?
        else {
            return Ok(Mark::default());
        };
        let value = check(MARK_KEY, &stored).and_then(|value| value.split_first_chunk::<8>());
        let Some((segment, Ok(sequence))) = value.map(|(segment, rest)| (segment, <[u8; 8]>::try_from(rest)))
        else {
            return Err(Fault::Corrupt { what: format!("{}: the log's mark", self.path.display()) });
        };
        Ok(Mark { segment: u64::from_le_bytes(*segment), sequence: u64::from_le_bytes(sequence) })
    }

    /// Returns when everything committed is durable, the folder's names included.
    pub(crate) fn persist(&self) -> Result<(), Fault> {
        let result = self.database.persist(PersistMode::SyncAll);
        result.map_err(|error| fault(&self.path, "sync", error))?;
        // fjall syncs its files and the folders of its tables, but not the one that values kept apart are in.
        for folder in [&self.bodies.keyspace.path().join(VALUES_FOLDER), &self.path] {
            sync_folder(folder).map_err(|error| fault(folder, "sync the folder", error.into()))?;
        }
        Ok(())
    }

    /// Records, those that are about to go counted too.
    pub(crate) fn about(&self) -> u64 {
        (self.headers.keyspace.approximate_len() + self.bodies.keyspace.approximate_len()) as u64
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        self.database.disk_space().unwrap_or_default()
    }

    fn unseal(&self, space: Space, key: &[u8], stored: Bytes) -> Result<Bytes, Fault> {
        self.check(space, key, &stored)?;
        Ok(stored.slice(CHECKSUM_BYTES..))
    }

    fn check<'a>(&self, space: Space, key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], Fault> {
        check(key, stored).ok_or_else(|| Fault::Corrupt {
            what: format!("{}: {} does not match its checksum", self.path.display(), name(space, key)),
        })
    }

    fn damaged(&self, space: Space, key: &[u8], error: fjall::Error) -> Fault {
        fault(&self.path, &format!("read {}", name(space, key)), error)
    }
}

/// A pass over the records of one space.
pub(crate) struct Scan<'a> {
    base: &'a Base,
    space: Space,
    entries: fjall::Iter,
    /// The last key seen, to say where an error is.
    last: Bytes,
}

impl Scan<'_> {
    /// The next key and value.
    pub(crate) fn record(&mut self) -> Option<Result<(Bytes, Bytes), Fault>> {
        let entry = self.entries.next()?.into_inner();
        Some(entry.map_err(|error| self.fault(error)).and_then(|(key, stored)| {
            self.last = key.into();
            let value = self.base.unseal(self.space, &self.last, stored.into())?;
            Ok((self.last.clone(), value))
        }))
    }

    /// The next key; its value is not read.
    pub(crate) fn key(&mut self) -> Option<Result<Bytes, Fault>> {
        let key = self.entries.next()?.key();
        Some(key.map_err(|error| self.fault(error)).map(|key| {
            self.last = key.into();
            self.last.clone()
        }))
    }

    fn fault(&self, error: fjall::Error) -> Fault {
        let act = if self.last.is_empty() {
            format!("read the first {}", label(self.space))
        } else {
            format!("read what follows {}", name(self.space, &self.last))
        };
        fault(&self.base.path, &act, error)
    }
}

fn name(space: Space, key: &[u8]) -> String {
    format!("{} \"{}\"", label(space), key.escape_ascii())
}

fn label(space: Space) -> &'static str {
    match space {
        Space::Header => "header",
        Space::Body => "body",
    }
}

/// A value as it is stored: the checksum of key and value, then the value.
fn seal(key: &[u8], value: &[u8]) -> Bytes {
    let mut stored = Vec::with_capacity(CHECKSUM_BYTES + value.len());
    stored.extend_from_slice(&checksum(key, value).to_le_bytes());
    stored.extend_from_slice(value);
    stored.into()
}

fn check<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    let (crc, value) = stored.split_first_chunk::<CHECKSUM_BYTES>()?;
    (checksum(key, value) == u32::from_le_bytes(*crc)).then_some(value)
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(key);
    crc.update(value);
    crc.finalize()
}

/// What to do about one of fjall's errors.
fn fault(path: &Path, act: &str, error: fjall::Error) -> Fault {
    use std::io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    let what = format!("{}: could not {act}: {error}", path.display());
    match &error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => match io.kind() {
            _ if is_full(io) => Fault::Full { what },
            InvalidData | NotFound | UnexpectedEof => Fault::Corrupt { what },
            _ => Fault::Retry { what },
        },
        fjall::Error::Locked => Fault::Locked { path: path.to_owned(), pid: None },
        fjall::Error::Poisoned => Fault::Retry { what },
        _ => Fault::Corrupt { what },
    }
}
