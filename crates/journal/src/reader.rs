//! The reading side: lines are reserved, read, and forgotten once they are in the store. A reservation that is not
//! finished in time gives its lines back, to the front and in their order. The read point moves only over what is finished
//! without a gap; the rest may be read again after a crash, which the store does not mind.
//!
//! The file is looked through ahead of reading, so that tenants take turns: one that has posted a million lines does not
//! keep another's ten waiting behind them. Of what lies ahead only places are kept; the lines are read when it is their turn.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::files::{self, Place};
use crate::id::{Id, Ids};
use crate::name::FullType;
use crate::record::{Parsed, Step, step};
use crate::writer::Shared;

/// Bytes read from a file at once; more where a record is longer.
const READ_BYTES: usize = 1 << 20;
/// Lines that are looked at ahead of those that are stored, about; each takes 24 bytes of memory.
const AHEAD_LINES: usize = 2_000_000;
/// Bytes of a stretch of one tenant's records that are read together, about.
const STRETCH_BYTES: u64 = 64 << 10;
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

/// Records of one tenant that follow each other.
struct Stretch {
    at: Place,
    end: u64,
    /// The number of its first line, and of the line behind its last.
    first: u64,
    next: u64,
}

impl Stretch {
    /// Whether a record with this first line is read together with it.
    fn goes_on(&self, record: &Record) -> bool {
        self.next == record.first
            && self.at.file == record.at.file
            && record.end - self.at.offset <= STRETCH_BYTES
    }
}

/// A record that was seen while looking ahead.
struct Record {
    at: Place,
    end: u64,
    first: u64,
    next: u64,
}

/// What is ahead of one tenant, in order.
#[derive(Default)]
struct Ahead {
    /// Lines that were read and not reserved yet.
    fresh: VecDeque<Entry>,
    stretches: VecDeque<Stretch>,
}

pub(crate) struct Reader {
    shared: Arc<Shared>,
    ids: Arc<Ids>,
    /// Up to where the files were looked through.
    at: Place,
    file: Option<(u64, File)>,
    ahead: BTreeMap<String, Ahead>,
    /// Whose turn was last.
    last: String,
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
            ahead: BTreeMap::new(),
            last: String::new(),
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
        while self.lines.len() < AHEAD_LINES && self.look_ahead()? {}
        let mut entries = Vec::new();
        while entries.len() < count
            && let Some((_, entry)) = self.returned.pop_first()
        {
            entries.push(entry);
        }
        if let Err(error) = self.take_turns(count, &mut entries) {
            self.give_back(entries);
            return Err(error.into());
        }
        entries.sort_unstable_by_key(|entry| entry.number);
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

    /// Takes lines until there are `count`: a few of each tenant, in turn.
    fn take_turns(&mut self, count: usize, entries: &mut Vec<Entry>) -> io::Result<()> {
        while entries.len() < count && !self.ahead.is_empty() {
            let share = (count - entries.len()).div_ceil(self.ahead.len());
            let next = self.ahead.range::<String, _>((Bound::Excluded(&self.last), Bound::Unbounded)).next();
            let Some((tenant, _)) = next else {
                self.last.clear();
                continue;
            };
            self.last.clone_from(tenant);
            let Some(mut ahead) = self.ahead.remove(&self.last) else { continue };
            let outcome = self.take_of(&mut ahead, share, entries);
            if !ahead.fresh.is_empty() || !ahead.stretches.is_empty() {
                self.ahead.insert(self.last.clone(), ahead);
            }
            outcome?;
        }
        Ok(())
    }

    fn take_of(&self, ahead: &mut Ahead, share: usize, entries: &mut Vec<Entry>) -> io::Result<()> {
        for _ in 0..share {
            while ahead.fresh.is_empty()
                && let Some(stretch) = ahead.stretches.front()
            {
                ahead.fresh.extend(self.load(stretch)?);
                ahead.stretches.pop_front();
            }
            let Some(entry) = ahead.fresh.pop_front() else { break };
            entries.push(entry);
        }
        Ok(())
    }

    /// Reads the lines of a stretch.
    fn load(&self, stretch: &Stretch) -> io::Result<Vec<Entry>> {
        let file = File::open(files::path(&self.shared.folder, stretch.at.file))?;
        let length = usize::try_from(stretch.end - stretch.at.offset).unwrap_or(usize::MAX);
        let text = Bytes::from(files::read_at(&file, stretch.at.offset, length)?);
        let (mut at, mut number, mut entries) = (0, stretch.first, Vec::new());
        while at < text.len() {
            match step(&text, at, &self.ids) {
                Step::Jobs { next, jobs } => {
                    for Parsed { id, full, payload, raw, due_ms } in jobs {
                        entries.push(Entry { id, full, payload: text.slice(payload), raw, due_ms, number });
                        number += 1;
                    }
                    at = next;
                }
                Step::Skip { next } | Step::Junk { next } => at = next,
                Step::Torn => break,
            }
        }
        Ok(entries)
    }

    /// Looks through some more of the files; false if there is no more.
    fn look_ahead(&mut self) -> io::Result<bool> {
        loop {
            let durable = self.shared.durable();
            if self.at >= durable {
                return Ok(false);
            }
            let Some(end) = self.open_next(durable)? else { return Ok(false) };
            if self.at.offset < end && self.look_through(end)? {
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

    /// Notes what a piece of the open file holds; false if it held no line.
    fn look_through(&mut self, end: u64) -> io::Result<bool> {
        let left = usize::try_from(end - self.at.offset).unwrap_or(usize::MAX);
        let mut length = READ_BYTES.min(left);
        loop {
            let Some((_, file)) = &self.file else { return Ok(false) };
            let text = files::read_at(file, self.at.offset, length)?;
            let before = self.lines.len();
            let consumed = self.note_records(&text);
            if consumed > 0 {
                self.at.offset += consumed as u64;
                return Ok(self.lines.len() > before);
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
    /// Notes the whole records of a text that begins where looking ahead has come to; how many bytes they take.
    fn note_records(&mut self, text: &[u8]) -> usize {
        let mut at = 0;
        while at < text.len() {
            let offset = self.at.offset + at as u64;
            match step(text, at, &self.ids) {
                Step::Jobs { next, jobs } => {
                    if let Some(job) = jobs.first() {
                        let place = Place { file: self.at.file, offset };
                        let first = self.first + self.lines.len() as u64;
                        let end = self.at.offset + next as u64;
                        let record = Record { at: place, end, first, next: first + jobs.len() as u64 };
                        self.note(job.full.tenant(), &record);
                    }
                    at = next;
                }
                Step::Skip { next } => at = next,
                Step::Junk { next } => {
                    let line = text.get(at..next).unwrap_or_default();
                    let shown = String::from_utf8_lossy(line.get(..SHOWN_BYTES).unwrap_or(line)).into_owned();
                    tracing::warn!(
                        file = self.at.file,
                        offset,
                        line = shown.trim_end(),
                        "journal: not a job"
                    );
                    at = next;
                }
                Step::Torn => break,
            }
        }
        at
    }

    fn note(&mut self, tenant: &str, record: &Record) {
        let lines = record.next - record.first;
        self.lines.extend((0..lines).map(|_| Line { at: record.at, stored: false }));
        if !self.ahead.contains_key(tenant) {
            self.ahead.insert(tenant.to_owned(), Ahead::default());
        }
        let Some(ahead) = self.ahead.get_mut(tenant) else { return };
        match ahead.stretches.back_mut() {
            Some(last) if last.goes_on(record) => (last.end, last.next) = (record.end, record.next),
            _ => {
                let Record { at, end, first, next } = *record;
                ahead.stretches.push_back(Stretch { at, end, first, next });
            }
        }
    }
}
