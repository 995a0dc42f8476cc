//! The log's reading side, at start-up. Decides between three ends of a segment: written to the end,
//! torn (the last write never became durable: dropped, with a warning), and damaged (something after
//! the bad place proves that it was durable once: refused, with file and offset).
//!
//! The proof: a frame names the last batch that was durable when it was written, and a segment is
//! started only after the one before it was synced.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::base::Mark;
use super::frame::{self, Found};
use super::io::{Io, sync_folder, write_all_at};
use super::log::{Position, Sealed};
use super::segment::{self, Header, Read};
use crate::{Batch, Fault};

/// Receives the batches in order, with their numbers.
pub(crate) type EachBatch<'a> = &'a mut dyn FnMut(u64, Batch);

/// How to replay.
pub(crate) struct Replay<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) io: &'a dyn Io,
    /// What the base contains already.
    pub(crate) mark: Mark,
    /// Leave every file as it is.
    pub(crate) read_only: bool,
}

/// A segment as it was read.
struct Segment {
    path: PathBuf,
    number: u64,
    last: bool,
    bytes: Vec<u8>,
}

impl Replay<'_> {
    /// Hands every batch after the mark to `each` and returns where the log goes on.
    pub(crate) fn run(&self, each: EachBatch<'_>) -> Result<Position, Fault> {
        let numbers = self.numbers()?;
        let mut position =
            Position { sealed: VecDeque::new(), number: self.mark.segment, sequence: self.mark.sequence };
        let last = numbers.last().copied();
        for number in numbers {
            let path = segment::path(self.folder, number);
            if number != position.number + 1 {
                let missing = segment::path(self.folder, position.number + 1);
                let what = format!("{} is missing, {} is there", missing.display(), path.display());
                return Err(Fault::Corrupt { what });
            }
            let bytes = fs::read(&path).map_err(|error| io_fault(&path, "read", &error))?;
            let segment = Segment { path, number, last: Some(number) == last, bytes };
            if let Some(sealed) = self.segment(&segment, position.sequence, each)? {
                position.sequence = sealed.sequence;
                position.sealed.push_back(sealed);
                position.number = number;
            }
        }
        Ok(position)
    }

    /// The numbers of the segments after the mark, in order. Those before it are deleted: a crash came
    /// between the checkpoint and their deletion. The marked one stays, see `checkpoint`.
    fn numbers(&self) -> Result<Vec<u64>, Fault> {
        let fault = |error: io::Error| io_fault(self.folder, "list", &error);
        let mut numbers = Vec::new();
        let entries = match fs::read_dir(self.folder) {
            Err(error) if self.read_only && error.kind() == io::ErrorKind::NotFound => return Ok(numbers),
            entries => entries.map_err(fault)?,
        };
        for entry in entries {
            let entry = entry.map_err(fault)?;
            match segment::number(&entry.file_name().to_string_lossy()) {
                Some(number) if number > self.mark.segment => numbers.push(number),
                Some(number) if number < self.mark.segment && !self.read_only => {
                    fs::remove_file(entry.path()).map_err(fault)?
                }
                Some(_) => {}
                None if segment::is_spare(&entry.file_name().to_string_lossy()) => {
                    if !self.read_only {
                        fs::remove_file(entry.path()).map_err(fault)?;
                    }
                }
                None => tracing::warn!(file = %entry.path().display(), "not a log segment: left alone"),
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Replays one segment whose first batch is the one after `before`. `None`: the segment was never
    /// begun, and is gone.
    fn segment(&self, segment: &Segment, before: u64, each: EachBatch<'_>) -> Result<Option<Sealed>, Fault> {
        let header = match Header::decode(&segment.bytes) {
            Read::Header(header) if header.number == segment.number && header.first == before + 1 => header,
            Read::Header(header) => {
                let what = format!("starts with batch {}, {} was expected", header.first, before + 1);
                return Err(segment.damaged(0, &what));
            }
            Read::Newer(found) => return Err(Fault::Format { found, known: segment::VERSION }),
            Read::Bad if segment.never_begun() => return self.discard(segment),
            Read::Bad => return Err(segment.damaged(0, "the segment's header does not match its checksum")),
        };
        let mut sequence = before;
        let mut offset = segment::HEADER_BYTES;
        loop {
            match frame::read_at(&segment.bytes, offset, header.salt) {
                Found::Frame { label, payload, end } => {
                    if label.sequence != sequence + 1 {
                        let what = format!("batch {} follows batch {sequence}", label.sequence);
                        return Err(segment.damaged(offset, &what));
                    }
                    let batch = Batch::of(payload).ok_or_else(|| {
                        segment.damaged(offset, &format!("batch {}: malformed", label.sequence))
                    })?;
                    sequence = label.sequence;
                    each(sequence, batch);
                    offset = end;
                }
                Found::End => {
                    segment.check_unproven(offset, sequence + 1, (header.salt, "it is gone"))?;
                    break;
                }
                Found::Bad(what) => {
                    segment.check_torn(offset, sequence + 1, (header.salt, what))?;
                    tracing::warn!(file = %segment.path.display(), offset, batch = sequence + 1,
                        "{what}: dropped the end of the log, which was never acknowledged as durable");
                    break;
                }
            }
        }
        if segment.last && !self.read_only {
            self.settle(segment, offset).map_err(|error| io_fault(&segment.path, "write again", &error))?;
        }
        Ok(Some(Sealed { number: segment.number, sequence, bytes: offset as u64 }))
    }

    /// Makes the last segment's whole frames durable for certain, and cuts off the rest. They are written
    /// once more: after a failed sync the system may show pages that are not on the disk and believe that
    /// they are, and only writing them makes the next sync true.
    fn settle(&self, segment: &Segment, end: usize) -> io::Result<()> {
        let file = File::options().write(true).open(&segment.path)?;
        file.set_len(end as u64)?;
        write_all_at(self.io, &file, segment.bytes.get(..end).unwrap_or_default(), 0)?;
        self.io.sync(&file)
    }

    fn discard(&self, segment: &Segment) -> Result<Option<Sealed>, Fault> {
        tracing::warn!(file = %segment.path.display(), "a log segment was never begun: removed");
        if !self.read_only {
            let removed = fs::remove_file(&segment.path).and_then(|()| sync_folder(self.folder));
            removed.map_err(|error| io_fault(&segment.path, "remove", &error))?;
        }
        Ok(None)
    }
}

impl Segment {
    /// The last one, and nothing behind the header: the crash came while it was created.
    fn never_begun(&self) -> bool {
        self.last && self.bytes.get(segment::HEADER_BYTES..).is_none_or(frame::is_zero)
    }

    /// Refuses a bad place that was durable once. `batch` is the one expected there.
    fn check_torn(&self, offset: usize, batch: u64, bad: (u64, &str)) -> Result<(), Fault> {
        if !self.last {
            let what = bad.1;
            return Err(self.damaged(offset, &format!("batch {batch}: {what}, and later segments follow")));
        }
        self.check_unproven(offset, batch, bad)
    }

    /// Refuses a place without a frame if a frame behind it proves that there was one.
    fn check_unproven(&self, offset: usize, batch: u64, bad: (u64, &str)) -> Result<(), Fault> {
        let (salt, what) = bad;
        let Some((at, label)) = frame::proof_after(&self.bytes, offset, salt, batch) else { return Ok(()) };
        let sequence = label.sequence;
        Err(self
            .damaged(offset, &format!("batch {batch}: {what}, and batch {sequence} follows at offset {at}")))
    }

    fn damaged(&self, offset: usize, what: &str) -> Fault {
        Fault::Corrupt { what: format!("{} at offset {offset}: {what}", self.path.display()) }
    }
}

fn io_fault(path: &Path, act: &str, error: &io::Error) -> Fault {
    let what = format!("{}: could not {act}: {error}", path.display());
    if super::io::is_full(error) { Fault::Full { what } } else { Fault::Retry { what } }
}
