//! The log's writing side: frames appended to preallocated segments. A segment is sealed when it is
//! full, and kept to be written again, or deleted, when the base contains it. Nothing is ever written behind a frame that is not
//! whole: after a failed write the segment is cut back to the last whole frame.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::bites::moment;
use super::frame::{self, Label};
use super::io::{Io, is_full, sync_folder, write_all_at};
use super::segment;
use crate::{Batch, Fault};

/// Zeros written ahead of the frames. A reserved block that has not been written yet makes its first sync write the
/// inode too, which costs as much as the data: a small frame is to land on blocks that have been written. A large one
/// does not: its own bytes cost more, and the zeros would double them.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
/// The largest frame that zeros are written for.
const SMALL_FRAME_BYTES: usize = ZEROS.len() / 8;

/// A segment that is no longer written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) number: u64,
    /// The last batch in it.
    pub(crate) sequence: u64,
    pub(crate) bytes: u64,
}

/// The segment that is written to.
struct Current {
    number: u64,
    salt: u64,
    path: PathBuf,
    file: Arc<File>,
    /// Where the next frame goes.
    end: u64,
    /// Bytes reserved on disk.
    reserved: u64,
    /// Up to where blocks have been written, as zeros or frames.
    written: u64,
    /// It was noticed that it grows.
    is_grown: bool,
}

/// Segments that the base contains, kept to be written again: their blocks are there and have been written, so that a
/// sync writes the frames and nothing else.
///
/// The first are made while the log is written, so that a log that grows comes to written blocks soon.
pub(crate) struct Spares {
    folder: PathBuf,
    most: usize,
    /// Shorter ones are not worth to be kept.
    least_bytes: u64,
    paths: Mutex<Vec<PathBuf>>,
    /// Made so far.
    made: AtomicU64,
}

/// A new segment is made only if this many times as much is free.
const MAKE_ROOM: u64 = 8;
/// A log that holds less is not in need of segments made ready.
const GROWN_BYTES: u64 = 2 << 20;

impl Spares {
    /// At most so many, of half a segment at least.
    pub(crate) fn new(folder: PathBuf, most: usize, segment_bytes: u64) -> Self {
        Self {
            folder,
            most,
            least_bytes: segment_bytes / 2,
            paths: Mutex::default(),
            made: AtomicU64::new(0),
        }
    }

    /// Makes one, unless there is one. It is known only when it is whole. `rest` is told of each part how long the disk took for it.
    pub(crate) fn make(&self, io: &dyn Io, bytes: u64, rest: &mut dyn FnMut(Duration)) -> io::Result<()> {
        if !self.paths().is_empty() || io.available(&self.folder)? < MAKE_ROOM * bytes {
            return Ok(());
        }
        // Segments are numbered from the other end.
        let path = segment::spare(&self.folder, u64::MAX - self.made.fetch_add(1, Ordering::Relaxed));
        let made = fill(io, &path, bytes, rest);
        match &made {
            Ok(()) => self.paths().push(path),
            Err(_) => drop(fs::remove_file(path)),
        }
        made
    }

    fn is_ready(&self) -> bool {
        !self.paths().is_empty()
    }

    fn paths(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a segment out of the log: it is kept if there is room for it, else deleted.
    pub(crate) fn take_in(&self, number: u64) -> io::Result<()> {
        let path = segment::path(&self.folder, number);
        let mut paths = self.paths();
        if paths.len() >= self.most || fs::metadata(&path)?.len() < self.least_bytes {
            return fs::remove_file(path);
        }
        let spare = segment::spare(&self.folder, number);
        fs::rename(path, &spare)?;
        paths.push(spare);
        Ok(())
    }

    /// Gives all of them back to the disk.
    pub(crate) fn clear(&self) {
        for path in self.paths().drain(..) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(file = %path.display(), %error, "could not delete a spare log segment");
            }
        }
    }
}

/// The log of one store.
pub(crate) struct Log {
    spares: Arc<Spares>,
    io: Arc<dyn Io>,
    segment_bytes: u64,
    sealed: VecDeque<Sealed>,
    current: Option<Current>,
    next_number: u64,
    /// The last batch appended.
    sequence: u64,
}

/// Where a log continues.
pub(crate) struct Position {
    pub(crate) sealed: VecDeque<Sealed>,
    /// The last segment's number, whether it still exists or not.
    pub(crate) number: u64,
    /// The last batch's number.
    pub(crate) sequence: u64,
}

impl Log {
    pub(crate) fn new(spares: Arc<Spares>, io: Arc<dyn Io>, segment_bytes: u64, position: Position) -> Self {
        Self {
            spares,
            io,
            segment_bytes,
            sealed: position.sealed,
            current: None,
            next_number: position.number + 1,
            sequence: position.sequence,
        }
    }

    pub(crate) fn spares(&self) -> &Spares {
        &self.spares
    }

    /// The last batch's number.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Bytes in all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed_bytes() + self.current.as_ref().map_or(0, |current| current.end)
    }

    pub(crate) fn sealed_bytes(&self) -> u64 {
        self.sealed.iter().map(|sealed| sealed.bytes).sum()
    }

    pub(crate) fn sealed_count(&self) -> usize {
        self.sealed.len()
    }

    /// The newest sealed segment.
    pub(crate) fn last_sealed(&self) -> Option<Sealed> {
        self.sealed.back().copied()
    }

    /// The file that is written to.
    pub(crate) fn file(&self) -> Option<Arc<File>> {
        self.current.as_ref().map(|current| Arc::clone(&current.file))
    }

    /// Whether the next frame needs a new segment, or is better off in one that is ready.
    pub(crate) fn needs_segment(&self, frame_bytes: u64) -> bool {
        self.current.as_ref().is_none_or(|current| {
            let empty = current.end == segment::HEADER_BYTES as u64;
            let end = current.end + frame_bytes;
            let slow = || end > current.written && current.end > GROWN_BYTES && self.spares.is_ready();
            !empty && (end > self.segment_bytes || slow())
        })
    }

    /// Whether it is time to make a segment ready.
    pub(crate) fn is_growing(&mut self) -> bool {
        let Some(current) = &mut self.current else { return false };
        let growing = !current.is_grown && current.end > GROWN_BYTES;
        current.is_grown |= growing;
        growing
    }

    /// Ends the current segment. It must have been synced: a segment after it says that it is whole.
    pub(crate) fn seal(&mut self) {
        let Some(current) = self.current.take() else { return };
        // Gives the unused reservation back; if that fails, the rest is zeros, which say the same.
        if let Err(error) = current.file.set_len(current.end) {
            tracing::warn!(segment = %current.path.display(), %error, "could not trim a log segment");
        }
        self.sealed.push_back(Sealed { number: current.number, sequence: self.sequence, bytes: current.end });
    }

    /// Starts a segment with room for at least `frame_bytes`. `Full` leaves no trace.
    pub(crate) fn start_segment(&mut self, frame_bytes: u64) -> Result<(), Fault> {
        let header = segment::Header {
            number: self.next_number,
            salt: RandomState::new().build_hasher().finish(),
            first: self.sequence + 1,
        };
        let path = segment::path(&self.spares.folder, header.number);
        let end = segment::HEADER_BYTES as u64;
        let reserved = self.segment_bytes.max(end + frame_bytes) + frame::HEADER_BYTES as u64;
        let spare = self.spares.paths().pop();
        match create(self.io.as_ref(), spare.as_deref(), &path, (&header, reserved)) {
            Ok((file, written)) => {
                let file = Arc::new(file);
                let (number, salt) = (header.number, header.salt);
                let is_grown = false;
                self.current = Some(Current { number, salt, path, file, end, reserved, written, is_grown });
                self.next_number += 1;
                Ok(())
            }
            Err(error) => {
                let removed = fs::remove_file(&path);
                let gone =
                    removed.is_ok() || removed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
                Err(write_fault(&path, "start a log segment", &error, gone))
            }
        }
    }

    /// Appends the batch as the next one, without syncing it. On `Full` the log is as before.
    pub(crate) fn append(&mut self, batch: &mut Batch, durable: u64) -> Result<(), Fault> {
        let Some(current) = &mut self.current else {
            return Err(Fault::Retry { what: "the log has no open segment".to_owned() });
        };
        let label = Label { sequence: self.sequence + 1, durable };
        let length = frame::frame_bytes(batch) as u64;
        let frame = frame::encode(batch, current.salt, label);
        let ahead = current.write_ahead(self.io.as_ref(), frame.len());
        let written = ahead.and_then(|()| write_all_at(self.io.as_ref(), &current.file, frame, current.end));
        if let Err(error) = written {
            let rewound = current.rewind(self.io.as_ref());
            return Err(write_fault(&current.path, "append to the log", &error, rewound));
        }
        current.end += length;
        current.written = current.written.max(current.end + frame::HEADER_BYTES as u64);
        self.sequence += 1;
        Ok(())
    }

    /// Strikes the segments off that the base contains.
    pub(crate) fn forget(&mut self, through: u64) {
        while self.sealed.front().is_some_and(|sealed| sealed.number <= through) {
            self.sealed.pop_front();
        }
    }
}

impl Current {
    /// Writes zeros where a small frame and those after it will stand, within the reservation.
    fn write_ahead(&mut self, io: &dyn Io, frame_bytes: usize) -> io::Result<()> {
        let room = usize::try_from(self.reserved.saturating_sub(self.written)).unwrap_or(usize::MAX);
        if frame_bytes > SMALL_FRAME_BYTES || self.end + frame_bytes as u64 <= self.written || room == 0 {
            return Ok(());
        }
        let zeros = ZEROS.get(..room).unwrap_or(&ZEROS);
        write_all_at(io, &self.file, zeros, self.written)?;
        self.written += zeros.len() as u64;
        Ok(())
    }

    /// Cuts off what a failed write left behind. The reservation is renewed if it can be; if not, the
    /// segment grows as it is written.
    fn rewind(&mut self, io: &dyn Io) -> bool {
        if let Err(error) = self.file.set_len(self.end) {
            tracing::error!(segment = %self.path.display(), offset = self.end, %error, "could not cut off a failed write");
            return false;
        }
        self.written = self.end;
        if io.allocate(&self.file, self.reserved).is_err() {
            self.reserved = self.end;
        }
        true
    }
}

/// Makes a segment, out of a spare one if there is one; answers up to where its blocks have been written. It has its name
/// only when its header is durable.
fn create(
    io: &dyn Io,
    spare: Option<&Path>,
    path: &Path,
    segment: (&segment::Header, u64),
) -> io::Result<(File, u64)> {
    if let Some(spare) = spare {
        let reused = reuse(io, spare, segment).and_then(|made| fs::rename(spare, path).map(|()| made));
        if let Ok(made) = reused {
            sync_parent(path)?;
            return Ok(made);
        }
        // It is of no use then: a new one is.
        let _ = fs::remove_file(spare);
    }
    let (header, reserved) = segment;
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    io.allocate(&file, reserved)?;
    write_all_at(io, &file, &header.encode(), 0)?;
    file.sync_all()?;
    sync_parent(path)?;
    Ok((file, segment::HEADER_BYTES as u64))
}

/// Makes a file of so many zeros, durable. In parts, each synced, with rests between them: the disk is to be free for the log most of
/// the time, or whoever waits for a sync would wait for all of this.
fn fill(io: &dyn Io, path: &Path, bytes: u64, rest: &mut dyn FnMut(Duration)) -> io::Result<()> {
    let file = File::options().write(true).create_new(true).open(path)?;
    io.allocate(&file, bytes)?;
    let mut offset = 0;
    while offset < bytes {
        let began = moment();
        let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
        let zeros = ZEROS.get(..left).unwrap_or(&ZEROS);
        write_all_at(io, &file, zeros, offset)?;
        offset += zeros.len() as u64;
        io.sync(&file)?;
        rest(moment().saturating_sub(began));
    }
    file.sync_all()?;
    sync_parent(path)
}

fn reuse(io: &dyn Io, spare: &Path, segment: (&segment::Header, u64)) -> io::Result<(File, u64)> {
    let (header, reserved) = segment;
    let file = File::options().read(true).write(true).open(spare)?;
    let bytes = file.metadata()?.len();
    if bytes > reserved {
        file.set_len(reserved)?;
    } else {
        io.allocate(&file, reserved)?;
    }
    let mut first = header.encode().to_vec();
    first.resize(first.len() + frame::HEADER_BYTES, 0);
    write_all_at(io, &file, &first, 0)?;
    file.sync_all()?;
    Ok((file, bytes.min(reserved).max(first.len() as u64)))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_folder)
}

/// `clean`: the log is as it was before the failed write.
fn write_fault(path: &Path, act: &str, error: &io::Error, clean: bool) -> Fault {
    let what = format!("{}: could not {act}: {error}", path.display());
    if is_full(error) && clean { Fault::Full { what } } else { Fault::Retry { what } }
}
