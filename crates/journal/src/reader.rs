//! The reading side: lines are reserved, read, and forgotten once they are in the store. A reservation that is not
//! finished in time gives its lines back, to the front and in their order. The read point moves only over what is finished
//! without a gap; the rest may be read again after a crash, which the store does not mind.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::files::{self, Place};
use crate::id::{Id, Ids};
use crate::name::FullType;
use crate::record::{Step, step};
use crate::writer::Shared;

/// Bytes read from a file at once; more where a record is longer.
const READ_BYTES: usize = 1 << 20;
/// Bytes of a line that is not a job that are shown in the log.
const SHOWN_BYTES: usize = 120;

/// A reservation.
pub type Token = u64;

/// One job of the journal.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its id.
    pub id: Id,
    /// Whose and what.
    pub full: Arc<FullType>,
    /// What it is about.
    pub payload: Bytes,
    /// The payload was posted as bytes, not as a line.
    pub raw: bool,
    /// Not to be run before.
    pub due_ms: Option<u64>,
    pub(crate) number: u64,
}

impl Entry {
    /// A job as the journal would give it.
    pub fn new(id: Id, full: Arc<FullType>, payload: Bytes, due_ms: Option<u64>) -> Self {
        Entry { id, full, payload, raw: false, due_ms, number: 0 }
    }
}

/// Why lines cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A reservation needs an end.
    #[error("missing timeout")]
    MissingTimeout,
    /// Each reservation is read once.
    #[error("already read")]
    AlreadyRead,
    /// There is no such reservation, or no longer.
    #[error("token expired")]
    TokenExpired,
    /// The file cannot be read.
    #[error("the journal cannot be read: {0}")]
    Disk(#[from] io::Error),
}

struct Reservation {
    entries: Vec<Entry>,
    ends_ms: u64,
    read: bool,
}

/// A line between being loaded and being in the store.
struct Line {
    /// Where its record begins.
    at: Place,
    stored: bool,
}

pub(crate) struct Reader {
    shared: Arc<Shared>,
    ids: Arc<Ids>,
    at: Place,
    file: Option<(u64, File)>,
    fresh: VecDeque<Entry>,
    returned: BTreeMap<u64, Entry>,
    reserved: HashMap<Token, Reservation>,
    next_token: Token,
    /// Lines from number `first` on.
    lines: VecDeque<Line>,
    first: u64,
    point: Place,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, ids: Arc<Ids>, point: Place) -> Self {
        Reader {
            shared,
            ids,
            at: point,
            file: None,
            fresh: VecDeque::new(),
            returned: BTreeMap::new(),
            reserved: HashMap::new(),
            next_token: 1,
            lines: VecDeque::new(),
            first: 0,
            point,
        }
    }

    pub(crate) fn point(&self) -> Place {
        self.point
    }

    pub(crate) fn reserve(&mut self, count: usize, timeout_ms: u64, now_ms: u64) -> Result<Token, ReadError> {
        if timeout_ms == 0 {
            return Err(ReadError::MissingTimeout);
        }
        self.expire(now_ms);
        let mut entries = Vec::new();
        while entries.len() < count {
            if let Some((_, entry)) = self.returned.pop_first() {
                entries.push(entry);
            } else if let Some(entry) = self.fresh.pop_front() {
                entries.push(entry);
            } else if !self.load()? {
                break;
            }
        }
        let token = self.next_token;
        self.next_token += 1;
        self.reserved.insert(token, Reservation { entries, ends_ms: now_ms + timeout_ms, read: false });
        Ok(token)
    }

    pub(crate) fn read(&mut self, token: Token, now_ms: u64) -> Result<Vec<Entry>, ReadError> {
        self.expire(now_ms);
        let reservation = self.reserved.get_mut(&token).ok_or(ReadError::TokenExpired)?;
        if std::mem::replace(&mut reservation.read, true) {
            return Err(ReadError::AlreadyRead);
        }
        Ok(reservation.entries.clone())
    }

    pub(crate) fn rsync(&mut self, token: Token, now_ms: u64) -> io::Result<()> {
        self.expire(now_ms);
        let Some(reservation) = self.reserved.remove(&token) else { return Ok(()) };
        for entry in reservation.entries {
            let index = usize::try_from(entry.number - self.first).unwrap_or(usize::MAX);
            if let Some(line) = self.lines.get_mut(index) {
                line.stored = true;
            }
        }
        while self.lines.front().is_some_and(|line| line.stored) {
            self.lines.pop_front();
            self.first += 1;
        }
        self.advance()
    }

    pub(crate) fn cancel(&mut self, token: Token) {
        let entries = self.reserved.remove(&token).map(|reservation| reservation.entries);
        self.give_back(entries.unwrap_or_default());
    }

    fn give_back(&mut self, entries: Vec<Entry>) {
        self.returned.extend(entries.into_iter().map(|entry| (entry.number, entry)));
    }

    fn expire(&mut self, now_ms: u64) {
        let ended: Vec<Token> = self
            .reserved
            .iter()
            .filter(|(_, held)| held.ends_ms <= now_ms)
            .map(|(token, _)| *token)
            .collect();
        ended.into_iter().for_each(|token| self.cancel(token));
    }

    /// Moves the read point to the first line that is not in the store, and removes files that lie behind it.
    fn advance(&mut self) -> io::Result<()> {
        let point = self.lines.front().map_or(self.at, |line| line.at);
        if point <= self.point {
            return Ok(());
        }
        files::write_place(&self.shared.folder, point)?;
        let mut backlog = 0;
        for number in files::numbers(&self.shared.folder)? {
            let path = files::path(&self.shared.folder, number);
            if number < point.file {
                fs::remove_file(path)?;
            } else {
                let bytes = fs::metadata(path)?.len();
                backlog += if number == point.file { bytes.saturating_sub(point.offset) } else { bytes };
            }
        }
        self.shared.backlog.store(backlog, Ordering::Release);
        self.point = point;
        Ok(())
    }

    /// Loads more lines; false if there are none.
    fn load(&mut self) -> io::Result<bool> {
        loop {
            let durable = self.shared.durable();
            if self.at >= durable {
                return Ok(false);
            }
            let Some(end) = self.open_next(durable)? else { return Ok(false) };
            if self.at.offset < end && self.load_from(end)? {
                return Ok(true);
            }
            if self.at.file >= durable.file && self.at.offset >= end {
                return Ok(false);
            }
        }
    }

    /// Opens the file to read from; where it ends. At the end of one, that is the next there is.
    fn open_next(&mut self, durable: Place) -> io::Result<Option<u64>> {
        let numbers = files::numbers(&self.shared.folder)?;
        loop {
            let Some(number) = numbers.iter().copied().find(|number| *number >= self.at.file) else {
                return Ok(None);
            };
            if number != self.at.file {
                self.at = Place { file: number, offset: 0 };
            }
            if self.file.as_ref().is_none_or(|(open, _)| *open != number) {
                self.file = Some((number, File::open(files::path(&self.shared.folder, number))?));
            }
            let Some((_, file)) = &self.file else { return Ok(None) };
            let end = if number == durable.file { durable.offset } else { file.metadata()?.len() };
            if self.at.offset < end || number >= durable.file {
                return Ok(Some(end));
            }
            self.at = Place { file: number + 1, offset: 0 };
        }
    }

    /// Loads lines from the open file; false if a piece of it held none.
    fn load_from(&mut self, end: u64) -> io::Result<bool> {
        let Some((_, file)) = &self.file else { return Ok(false) };
        let left = usize::try_from(end - self.at.offset).unwrap_or(usize::MAX);
        let mut length = READ_BYTES.min(left);
        loop {
            let text = Bytes::from(files::read_at(file, self.at.offset, length)?);
            let (consumed, entries) = self.take_records(&text);
            if consumed > 0 {
                self.at.offset += consumed as u64;
                let found = !entries.is_empty();
                for (at, entry) in entries {
                    self.lines.push_back(Line { at, stored: false });
                    self.fresh.push_back(entry);
                }
                return Ok(found);
            }
            if length >= left {
                tracing::warn!(
                    file = self.at.file,
                    offset = self.at.offset,
                    bytes = left,
                    "journal: a file ends within a record"
                );
                self.at.offset = end;
                return Ok(false);
            }
            length = length.saturating_mul(4).min(left);
        }
    }

    /// The records that are whole, and how many bytes they take.
    fn take_records(&self, text: &Bytes) -> (usize, Vec<(Place, Entry)>) {
        let (mut at, mut entries) = (0, Vec::new());
        let mut number = self.first + self.lines.len() as u64;
        while at < text.len() {
            match step(text, at, &self.ids) {
                Step::Jobs { next, jobs } => {
                    for job in jobs {
                        let payload = text.slice(job.payload);
                        let (id, full) = (job.id, job.full);
                        entries.push((
                            Place { file: self.at.file, offset: self.at.offset + at as u64 },
                            Entry { id, full, payload, raw: job.raw, due_ms: job.due_ms, number },
                        ));
                        number += 1;
                    }
                    at = next;
                }
                Step::Skip { next } => at = next,
                Step::Junk { next } => {
                    let line = text.get(at..next).unwrap_or_default();
                    let shown = String::from_utf8_lossy(line.get(..SHOWN_BYTES).unwrap_or(line)).into_owned();
                    tracing::warn!(
                        file = self.at.file,
                        offset = self.at.offset + at as u64,
                        line = shown.trim_end(),
                        "journal: not a job"
                    );
                    at = next;
                }
                Step::Torn => break,
            }
        }
        (at, entries)
    }
}
