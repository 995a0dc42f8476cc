//! A segment's name and its first bytes. `FORMAT.md` draws them.

use std::path::{Path, PathBuf};

/// Bytes before the first frame.
pub(crate) const HEADER_BYTES: usize = 40;

/// The version of the segment's and the frames' layout.
pub(crate) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"HAULLOG\n";
const SUFFIX: &str = ".log";
const SPARE_SUFFIX: &str = ".spare";

/// The first bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) number: u64,
    /// Starts every checksum in this segment.
    pub(crate) salt: u64,
    /// The number of its first batch.
    pub(crate) first: u64,
}

/// What the first bytes of a segment are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Header(Header),
    /// Made by a newer Haul.
    Newer(u32),
    Bad,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let fields = MAGIC
            .into_iter()
            .chain(VERSION.to_le_bytes())
            .chain(self.number.to_le_bytes())
            .chain(self.salt.to_le_bytes())
            .chain(self.first.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
        if let Some((head, crc)) = bytes.split_last_chunk_mut::<4>() {
            *crc = crc32fast::hash(head).to_le_bytes();
        }
        bytes
    }

    pub(crate) fn decode(segment: &[u8]) -> Read {
        Self::decode_checked(segment).unwrap_or(Read::Bad)
    }

    fn decode_checked(segment: &[u8]) -> Option<Read> {
        let (head, crc) = segment.get(..HEADER_BYTES)?.split_last_chunk::<4>()?;
        let rest = head.strip_prefix(&MAGIC)?;
        if crc32fast::hash(head) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (salt, rest) = rest.split_first_chunk::<8>()?;
        let (first, _) = rest.split_first_chunk::<8>()?;
        let version = u32::from_le_bytes(*version);
        if version > VERSION {
            return Some(Read::Newer(version));
        }
        Some(Read::Header(Self {
            number: u64::from_le_bytes(*number),
            salt: u64::from_le_bytes(*salt),
            first: u64::from_le_bytes(*first),
        }))
    }
}

pub(crate) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016x}{SUFFIX}"))
}

/// What a segment that is done with is called until it is used again.
pub(crate) fn spare(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016x}{SPARE_SUFFIX}"))
}

pub(crate) fn is_spare(name: &str) -> bool {
    name.ends_with(SPARE_SUFFIX)
}

/// The number in a segment's file name; nothing if it is not one.
pub(crate) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    if digits.len() == 16 { u64::from_str_radix(digits, 16).ok() } else { None }
}
