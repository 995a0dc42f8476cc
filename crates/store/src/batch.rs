//! What one round changes: puts and deletes of whole records. Replaying a batch is idempotent, which is
//! what every recovery rests on.

use bytes::{Bytes, BytesMut};

use crate::Fault;

/// The longest key. The shortest is one byte.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// The largest value.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// The most that the keys and values of one batch may add up to.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// Which of the two key spaces. Headers are scanned at start-up; bodies are read one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Small records, all of which are held in memory by the engine.
    Header,
    /// Data and results of jobs.
    Body,
}

/// One round's changes. A later put of the same key wins. A key is never both put and deleted in one
/// batch: the caller guarantees it (see [`Batch::is_consistent`]).
///
/// The records lie behind each other in one buffer, as they do in a log's frame: a round has thousands of small ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Room for a frame's header, then the records; nothing at all without records.
    buffer: BytesMut,
    len: usize,
    /// Bytes of the keys and values.
    bytes: usize,
    /// The first that broke a limit; it is not in the buffer.
    refused: Option<Refused>,
}

/// What broke a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused {
    what: &'static str,
    bytes: usize,
    max: usize,
}

/// Bytes that a batch leaves free before its records: the header of a frame goes there.
pub(crate) const ROOM_BYTES: usize = 32;

const PUT_HEADER: u8 = 1;
const PUT_BODY: u8 = 2;
const DELETE_HEADER: u8 = 3;
const DELETE_BODY: u8 = 4;

/// A change of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it is.
    pub space: Space,
    /// Its key.
    pub key: &'a [u8],
    /// Its value; none: it is deleted.
    pub value: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// The record at the start of these bytes, and what follows it. `None`: they are malformed.
    pub(crate) fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (kind, rest) = bytes.split_first()?;
        let (key_bytes, rest) = rest.split_first_chunk::<2>()?;
        let key_bytes = usize::from(u16::from_le_bytes(*key_bytes));
        let space = match *kind {
            PUT_HEADER | DELETE_HEADER => Space::Header,
            PUT_BODY | DELETE_BODY => Space::Body,
            _ => return None,
        };
        if matches!(*kind, DELETE_HEADER | DELETE_BODY) {
            let (key, rest) = rest.split_at_checked(key_bytes)?;
            return Some((Record { space, key, value: None }, rest));
        }
        let (value_bytes, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(key_bytes)?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_bytes) as usize)?;
        Some((Record { space, key, value: Some(value) }, rest))
    }
}

impl Batch {
    /// An empty batch with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self::within(BytesMut::with_capacity(bytes))
    }

    /// An empty batch in memory that is there already; nothing may be in it.
    pub(crate) fn within(buffer: BytesMut) -> Self {
        debug_assert!(buffer.is_empty(), "what is in it would become part of the batch");
        Self { buffer, ..Self::default() }
    }

    /// Adds a record.
    pub fn put(&mut self, space: Space, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        if value.len() > VALUE_BYTES_MAX {
            return self.refuse("a value", value.len(), VALUE_BYTES_MAX);
        }
        let kind = if space == Space::Header { PUT_HEADER } else { PUT_BODY };
        if self.start(kind, key, value.len()) {
            self.buffer.extend_from_slice(&(value.len() as u32).to_le_bytes());
            self.buffer.extend_from_slice(key);
            self.buffer.extend_from_slice(value);
        }
    }

    /// Adds a removal. Removing what is not there is no error.
    pub fn delete(&mut self, space: Space, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        let kind = if space == Space::Header { DELETE_HEADER } else { DELETE_BODY };
        if self.start(kind, key, 0) {
            self.buffer.extend_from_slice(key);
        }
    }

    /// Begins a record; false: it breaks a limit.
    fn start(&mut self, kind: u8, key: &[u8], value_bytes: usize) -> bool {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            self.refuse("a key", key.len(), KEY_BYTES_MAX);
            return false;
        }
        let bytes = self.bytes + key.len() + value_bytes;
        if bytes > BATCH_BYTES_MAX {
            self.refuse("a batch", bytes, BATCH_BYTES_MAX);
            return false;
        }
        if self.buffer.is_empty() {
            self.buffer.extend_from_slice(&[0; ROOM_BYTES]);
        }
        self.len += 1;
        self.bytes = bytes;
        let [low, high] = (key.len() as u16).to_le_bytes();
        self.buffer.extend_from_slice(&[kind, low, high]);
        true
    }

    fn refuse(&mut self, what: &'static str, bytes: usize, max: usize) {
        self.refused = self.refused.or(Some(Refused { what, bytes, max }));
    }

    /// The records, in the order in which they were added.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut rest = self.buffer.get(ROOM_BYTES..).unwrap_or_default();
        std::iter::from_fn(move || {
            let (record, after) = Record::first(rest)?;
            rest = after;
            Some(record)
        })
    }

    /// A batch of records that another one had, as they lay in its buffer. `None`: they are malformed.
    pub(crate) fn of(records: &[u8]) -> Option<Self> {
        let (mut len, mut bytes, mut rest) = (0, 0, records);
        while !rest.is_empty() {
            let (record, after) = Record::first(rest)?;
            len += 1;
            bytes += record.key.len() + record.value.map_or(0, <[u8]>::len);
            rest = after;
        }
        let mut buffer = BytesMut::with_capacity(ROOM_BYTES + records.len());
        buffer.extend_from_slice(&[0; ROOM_BYTES]);
        buffer.extend_from_slice(records);
        Some(Self { buffer, len, bytes, refused: None })
    }

    /// The room for a header and the records behind it.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Takes the memory behind the records away, for the next batch.
    pub(crate) fn split_rest(&mut self) -> BytesMut {
        self.buffer.split_off(self.buffer.len())
    }

    /// How long the buffer is.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The room and the records, to be kept.
    pub(crate) fn into_buffer(self) -> Bytes {
        self.buffer.freeze()
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.refused.is_none()
    }

    /// How many changes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks the limits of this module; every store refuses a batch that breaks one.
    pub fn check(&self) -> Result<(), Fault> {
        match self.refused {
            None => Ok(()),
            Some(Refused { what, bytes, max }) => {
                Err(Fault::TooLarge { what: format!("{what} of {bytes} bytes, allowed are 1 to {max}") })
            }
        }
    }

    /// No key is both put and deleted. Costs a set of all keys: for debug assertions and tests.
    pub fn is_consistent(&self) -> bool {
        let (puts, deletes): (Vec<_>, Vec<_>) = self.records().partition(|record| record.value.is_some());
        let puts: hashbrown::HashSet<_> = puts.iter().map(|record| (record.space, record.key)).collect();
        !deletes.iter().any(|record| puts.contains(&(record.space, record.key)))
    }
}
