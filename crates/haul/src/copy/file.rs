//! A data set in one file: a line that says what it is, frames of records, and an end that says how many there were. A frame
//! is a length and a checksum (4 bytes each, little-endian) and postcard; `docs/operate/backup.md` tells more.

use std::io::{Read, Write};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use haul_store::Space;
use serde::{Deserialize, Serialize};

use super::Record;

const MAGIC: &[u8] = b"haul backup 1\n";
/// A frame is written when this much has gathered.
const FRAME_BYTES: usize = 1 << 20;
/// The longest frame that is read: one value and its neighbours.
const FRAME_BYTES_MAX: u32 = 300 << 20;

#[derive(Serialize, Deserialize)]
enum Frame {
    Start { shards: u32 },
    Records(Vec<(u32, bool, Bytes, Bytes)>),
    End { records: u64 },
}

/// Writes records, to anything.
pub(crate) struct Writer<W> {
    out: W,
    gathered: Vec<(u32, bool, Bytes, Bytes)>,
    bytes: usize,
    records: u64,
}

/// The beginning of a file.
pub(crate) fn write_start(mut out: impl Write, shards: u32) -> std::io::Result<()> {
    out.write_all(MAGIC)?;
    write(out, &Frame::Start { shards })
}

/// Its end.
pub(crate) fn write_end(out: impl Write, records: u64) -> std::io::Result<()> {
    write(out, &Frame::End { records })
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W) -> Self {
        Writer { out, gathered: Vec::new(), bytes: 0, records: 0 }
    }

    pub(crate) fn put(&mut self, record: Record) -> std::io::Result<()> {
        self.records += 1;
        self.bytes += record.key.len() + record.value.len();
        self.gathered.push((record.shard, record.space == Space::Body, record.key, record.value));
        if self.bytes >= FRAME_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.bytes = 0;
        match std::mem::take(&mut self.gathered) {
            none if none.is_empty() => Ok(()),
            records => write(&mut self.out, &Frame::Records(records)),
        }
    }

    /// Writes what has gathered; how many records there were.
    pub(crate) fn finish(mut self) -> std::io::Result<(W, u64)> {
        self.flush()?;
        Ok((self.out, self.records))
    }
}

fn write(mut out: impl Write, frame: &Frame) -> std::io::Result<()> {
    let bytes = postcard::to_stdvec(frame).map_err(std::io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&crc32fast::hash(&bytes).to_le_bytes())?;
    out.write_all(&bytes)
}

/// Reads a file from its beginning.
pub(crate) struct Reader<R> {
    input: R,
    pub(super) shards: u32,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(mut input: R) -> anyhow::Result<Self> {
        let mut magic = vec![0; MAGIC.len()];
        input.read_exact(&mut magic).context("it is too short for a backup")?;
        ensure!(magic == MAGIC, "it is no backup that this Haul can read");
        match read(&mut input)? {
            Frame::Start { shards } => Ok(Reader { input, shards }),
            _ => bail!("it does not begin as a backup does"),
        }
    }

    /// Hands out every record, and makes sure that none is missing.
    pub(crate) fn each(mut self, each: &mut dyn FnMut(Record) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut seen = 0;
        loop {
            match read(&mut self.input).context("the backup is cut off or damaged")? {
                Frame::Records(records) => {
                    for (shard, is_body, key, value) in records {
                        seen += 1;
                        let space = if is_body { Space::Body } else { Space::Header };
                        each(Record { shard, space, key, value })?;
                    }
                }
                Frame::End { records } => {
                    ensure!(records == seen, "the backup says it has {records} records and has {seen}");
                    return Ok(());
                }
                Frame::Start { .. } => bail!("the backup begins twice"),
            }
        }
    }
}

fn read(input: &mut impl Read) -> anyhow::Result<Frame> {
    let (mut length, mut sum) = ([0; 4], [0; 4]);
    input.read_exact(&mut length)?;
    input.read_exact(&mut sum)?;
    let length = u32::from_le_bytes(length);
    ensure!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes");
    let mut bytes = vec![0; length as usize];
    input.read_exact(&mut bytes)?;
    ensure!(crc32fast::hash(&bytes) == u32::from_le_bytes(sum), "a frame's checksum is wrong");
    Ok(postcard::from_bytes(&bytes)?)
}
