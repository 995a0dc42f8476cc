//! The journal as the rest of the server sees it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::{fs, io};

use tokio::sync::oneshot;

use crate::files::{self, Place};
use crate::id::{Id, Ids};
use crate::reader::{Entry, ReadError, Reader, Token};
use crate::record::{Encoded, Post, encode};
use crate::writer::{Ack, Rotation, Shared, Work, WriteError, Writer};

/// How a journal is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub folder: PathBuf,
    /// A file of this size is followed by the next.
    pub file_bytes_max: u64,
    /// So is one this old.
    pub file_ms_max: u64,
    /// With so much not stored yet, writes are refused.
    pub backlog_bytes_max: u64,
}

impl Options {
    /// The usual limits, in this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Options {
            folder: folder.into(),
            file_bytes_max: 64 << 20,
            file_ms_max: 3_600_000,
            backlog_bytes_max: 4 << 30,
        }
    }
}

/// What opening a journal found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Bytes of an unfinished write that were cut off.
    pub torn_bytes: u64,
    /// Bytes that are not known to be stored.
    pub backlog_bytes: u64,
}

/// A durable queue of accepted jobs in front of the store.
pub struct Journal {
    ids: Arc<Ids>,
    shared: Arc<Shared>,
    reader: Mutex<Reader>,
    works: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    backlog_bytes_max: u64,
}

impl Journal {
    /// Opens or makes the journal of a folder. Nobody else may have it open.
    pub fn open(options: Options, ids: Arc<Ids>) -> io::Result<(Journal, Recovered)> {
        fs::create_dir_all(&options.folder)?;
        let mut recovered = Recovered::default();
        let numbers = files::numbers(&options.folder)?;
        let mut point = files::read_place(&options.folder);
        if let Some(last) = numbers.last() {
            recovered.torn_bytes = files::mend(&options.folder, *last, &ids)?;
        }
        for number in &numbers {
            let path = files::path(&options.folder, *number);
            let bytes = fs::metadata(&path)?.len();
            if bytes == 0 || *number < point.file {
                fs::remove_file(path)?;
                continue;
            }
            recovered.backlog_bytes += match number.cmp(&point.file) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => bytes.saturating_sub(point.offset),
                std::cmp::Ordering::Greater => bytes,
            };
        }
        let number = numbers.last().copied().unwrap_or(0).max(point.file) + 1;
        if point.file == 0 {
            point = Place { file: numbers.first().copied().unwrap_or(number), offset: 0 };
        }
        let at = Place { file: number, offset: 0 };
        let file = files::create(&options.folder, number)?;
        let shared = Arc::new(Shared::new(options.folder, at, recovered.backlog_bytes));
        let rotation = Rotation { bytes_max: options.file_bytes_max, ms_max: options.file_ms_max };
        let writer = Writer { shared: shared.clone(), file, at, rotation, began_ms: None, broken: false };
        let (works, theirs) = channel();
        let thread =
            std::thread::Builder::new().name("haul-journal".to_owned()).spawn(move || writer.run(&theirs))?;
        let reader = Mutex::new(Reader::new(shared.clone(), ids.clone(), point));
        let journal = Journal {
            ids,
            shared,
            reader,
            works: Some(works),
            thread: Some(thread),
            backlog_bytes_max: options.backlog_bytes_max,
        };
        Ok((journal, recovered))
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, work: Work) -> Result<(), WriteError> {
        let works = self.works.as_ref().ok_or(WriteError::Closed)?;
        works.send(work).map_err(|_| WriteError::Closed)
    }

    /// Appends a post without waiting. Its ids: the first of each run, and how many follow each other.
    pub fn write_buffered(&self, post: &Post, now_ms: u64) -> Result<Vec<(Id, u32)>, WriteError> {
        let (bytes, runs) = self.encode(post, now_ms)?;
        self.send(Work { bytes, now_ms, done: None })?;
        Ok(runs)
    }

    fn encode(&self, post: &Post, now_ms: u64) -> Result<Encoded, WriteError> {
        let backlog = self.backlog_bytes();
        if backlog > self.backlog_bytes_max {
            return Err(WriteError::Behind(backlog));
        }
        Ok(encode(post, &self.ids, now_ms))
    }

    /// Appends a post; answers when it is durable.
    pub async fn write(&self, post: &Post, now_ms: u64) -> Result<Vec<(Id, u32)>, WriteError> {
        let (bytes, runs) = self.encode(post, now_ms)?;
        let (done, ack) = oneshot::channel();
        self.send(Work { bytes, now_ms, done: Some(done) })?;
        ack.await.map_err(|_| WriteError::Closed)??;
        Ok(runs)
    }

    /// Appends several posts as one: all of them are durable, or none.
    pub async fn write_all(&self, posts: &[Post], now_ms: u64) -> Result<(), WriteError> {
        let mut bytes = Vec::new();
        for post in posts {
            bytes.extend_from_slice(&self.encode(post, now_ms)?.0);
        }
        let (done, ack) = oneshot::channel();
        self.send(Work { bytes, now_ms, done: Some(done) })?;
        ack.await.map_err(|_| WriteError::Closed)?
    }

    /// Tells when everything written before this call is durable; later writes are not waited for.
    pub fn wsync(&self) -> Result<Ack, WriteError> {
        let (done, ack) = oneshot::channel();
        self.send(Work { bytes: Vec::new(), now_ms: 0, done: Some(done) })?;
        Ok(ack)
    }

    /// Reserves up to `count` lines that nobody has; maybe fewer, maybe none. If they are not told to be in the store
    /// within `timeout_ms`, read or not, they are given back.
    pub fn read_reserve(&self, count: usize, timeout_ms: u64, now_ms: u64) -> Result<Token, ReadError> {
        self.reader().reserve(count, timeout_ms, now_ms)
    }

    /// The reserved lines, in the order of the file; once.
    pub fn read(&self, token: Token, now_ms: u64) -> Result<Vec<Entry>, ReadError> {
        self.reader().read(token, now_ms)
    }

    /// The lines are in the store: they are forgotten. Unknown tokens are fine.
    pub fn rsync(&self, token: Token, now_ms: u64) -> io::Result<()> {
        self.reader().rsync(token, now_ms)
    }

    /// Gives the lines back, to be read before all others.
    pub fn read_cancel(&self, token: Token) {
        self.reader().cancel(token);
    }

    /// Waits until there may be more to read.
    pub async fn grown(&self) {
        self.shared.grown.notified().await;
    }

    /// Bytes that are not known to be stored.
    pub fn backlog_bytes(&self) -> u64 {
        self.shared.backlog.load(Ordering::Acquire)
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.shared.syncs.load(Ordering::Relaxed)
    }

    /// Which file is read, and up to where everything is in the store.
    pub fn read_point(&self) -> (u64, u64) {
        let point = self.reader().point();
        (point.file, point.offset)
    }

    /// Who makes the ids.
    pub fn ids(&self) -> &Arc<Ids> {
        &self.ids
    }
}

impl Drop for Journal {
    /// What was written is on disk when this returns.
    fn drop(&mut self) {
        drop(self.works.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the journal's thread ended unexpectedly");
        }
    }
}
