//! The base: fjall, with one keyspace for headers, one for bodies (values kept apart from keys) and one
//! for the mark up to which the log is contained. The only file that knows fjall. Every value carries
//! a checksum of its own, so that damage names the record.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};

use super::io::{Io, is_full, sync_folder};
use crate::{Fault, Space};

const MARK_KEY: &[u8] = b"log";
const CHECKSUM_BYTES: usize = 4;
const MEMTABLE_BYTES: u64 = 32 << 20;
const JOURNAL_BYTES_MAX: u64 = 128 << 20;

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
    headers: Keyspace,
    bodies: Keyspace,
    marks: Keyspace,
}

/// Changes to the base, written as one.
pub(crate) struct Write {
    batch: fjall::OwnedWriteBatch,
    bytes: usize,
}

impl Write {
    /// Bytes of the keys and values so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Base {
    pub(crate) fn open(path: &Path, cache_bytes: u64, io: Arc<dyn Io>) -> Result<Self, Fault> {
        let fault = |error| fault(path, "open", error);
        let database = Database::builder(path)
            .cache_size(cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            // With more than one, fjall 3.1 keeps its first worker for flushes by letting it send each compaction it is
            // given back to the queue: while another compacts, it spins and takes a core from the shard.
            .worker_threads(1)
            .open()
            .map_err(fault)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let apart =
            || options().with_kv_separation(Some(KvSeparationOptions::default().separation_threshold(512)));
        let headers = database.keyspace("headers", options).map_err(fault)?;
        let bodies = database.keyspace("bodies", apart).map_err(fault)?;
        let marks = database.keyspace("marks", options).map_err(fault)?;
        Ok(Self { path: path.to_owned(), io, database, headers, bodies, marks })
    }

    fn keyspace(&self, space: Space) -> &Keyspace {
        match space {
            Space::Header => &self.headers,
            Space::Body => &self.bodies,
        }
    }

    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, Fault> {
        let stored = self.keyspace(space).get(key).map_err(|error| self.damaged(space, key, error))?;
        stored.map(|stored| self.unseal(space, key, stored.into())).transpose()
    }

    pub(crate) fn contains(&self, space: Space, key: &[u8]) -> Result<bool, Fault> {
        self.keyspace(space).contains_key(key).map_err(|error| self.damaged(space, key, error))
    }

    /// Every record as of now, in the order of the keys.
    pub(crate) fn scan(&self, space: Space) -> Scan<'_> {
        Scan { base: self, space, entries: self.keyspace(space).iter(), last: Bytes::new() }
    }

    pub(crate) fn write(&self) -> Write {
        Write { batch: self.database.batch(), bytes: 0 }
    }

    pub(crate) fn put(&self, write: &mut Write, space: Space, key: &[u8], value: &[u8]) {
        write.bytes += key.len() + value.len();
        write.batch.insert(self.keyspace(space), key, seal(key, value));
    }

    pub(crate) fn delete(&self, write: &mut Write, space: Space, key: &[u8]) {
        write.bytes += key.len();
        write.batch.remove(self.keyspace(space), key);
    }

    pub(crate) fn set_mark(&self, write: &mut Write, mark: Mark) {
        let mut value = mark.segment.to_le_bytes().to_vec();
        value.extend_from_slice(&mark.sequence.to_le_bytes());
        write.batch.insert(&self.marks, MARK_KEY, seal(MARK_KEY, &value));
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

    pub(crate) fn commit(&self, write: Write) -> Result<(), Fault> {
        self.io.before_base_write().map_err(|error| fault(&self.path, "write", error.into()))?;
        write.batch.commit().map_err(|error| fault(&self.path, "write", error))
    }

    /// Returns when everything committed is durable, the folder's names included.
    pub(crate) fn persist(&self) -> Result<(), Fault> {
        let result = self.database.persist(PersistMode::SyncAll);
        result.map_err(|error| fault(&self.path, "sync", error))?;
        sync_folder(&self.path).map_err(|error| fault(&self.path, "sync the folder", error.into()))
    }

    /// Has fjall write what it holds in memory to tables, in the background.
    pub(crate) fn unload(&self) -> Result<(), Fault> {
        for keyspace in [&self.headers, &self.bodies] {
            keyspace.rotate_memtable().map_err(|error| fault(&self.path, "write out memory", error))?;
        }
        Ok(())
    }

    /// Moves everything from memory and journal to tables, for tests that damage them.
    #[cfg(test)]
    pub(crate) fn settle(&self) -> Result<(), Fault> {
        for keyspace in [&self.headers, &self.bodies] {
            keyspace.rotate_memtable_and_wait().map_err(|error| fault(&self.path, "settle", error))?;
        }
        Ok(())
    }

    /// Records, those that are about to go counted too.
    pub(crate) fn about(&self) -> u64 {
        (self.headers.approximate_len() + self.bodies.approximate_len()) as u64
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
