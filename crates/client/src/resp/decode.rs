//! Replies as a client reads them, RESP2 and RESP3 alike.
//!
//! The decoder takes every complete element off the buffer as it arrives and keeps the arrays still open, so a reply of
//! a million elements in small pieces is looked at once.

use super::number::{Header, header, parse_int};
use super::{Frame, Limits, ProtocolError};
use bytes::Bytes;
use memchr::memchr;
use std::borrow::Cow;

/// Room made for an announced array before its elements have arrived.
const ITEMS_RESERVED_MAX: usize = 1024;

/// Reads frames from a buffer that grows; keeps its place between calls.
#[derive(Debug, Default)]
pub struct Decoder {
    open: Vec<Open>,
    /// How much of the line at the start of the buffer is known to hold no line end.
    scanned: usize,
    bytes: usize,
    elements: usize,
}

/// An array whose elements are still arriving.
#[derive(Debug)]
struct Open {
    kind: Kind,
    left: usize,
    items: Vec<Frame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Array,
    Set,
    Push,
    Map,
    /// Facts about the frame that follows; read and dropped.
    Attribute,
}

enum Element {
    Leaf(Frame),
    Open { kind: Kind, count: usize },
}

/// Decodes the frame at the start of `buf`: the frame and how many bytes it took, or `None` while it is incomplete.
///
/// Each call starts at the beginning; for a stream use [`Decoder`], which goes on where it stopped.
///
/// # Errors
/// The peer broke the protocol or a limit.
pub fn decode(buf: &[u8], limits: &Limits) -> Result<Option<(Frame, usize)>, ProtocolError> {
    let (consumed, frame) = Decoder::default().feed(buf, limits)?;
    Ok(frame.map(|frame| (frame, consumed)))
}

impl Decoder {
    /// Nothing begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads from `buf` up to the end of one frame. The first number is how many bytes to drop from the buffer, whether
    /// or not a frame came out; the next call takes what then stands at its start.
    ///
    /// # Errors
    /// The peer broke the protocol or a limit; the decoder cannot be used any further.
    pub fn feed(&mut self, buf: &[u8], limits: &Limits) -> Result<(usize, Option<Frame>), ProtocolError> {
        let mut at = 0;
        loop {
            let rest = buf.get(at..).unwrap_or_default();
            let Some((element, length)) = self.element(rest, limits)? else { return Ok((at, None)) };
            self.scanned = 0;
            at += length;
            self.bytes += length;
            if self.bytes > limits.request_bytes_max {
                return Err(ProtocolError::TooBig);
            }
            let finished = match element {
                Element::Leaf(frame) => self.deliver(frame),
                Element::Open { kind, count } => self.open(kind, count, limits)?,
            };
            if let Some(frame) = finished {
                self.bytes = 0;
                self.elements = 0;
                return Ok((at, Some(frame)));
            }
        }
    }

    /// Begins an array; an empty one is finished at once.
    fn open(&mut self, kind: Kind, count: usize, limits: &Limits) -> Result<Option<Frame>, ProtocolError> {
        if self.open.len() >= limits.reply_depth_max {
            return Err(ProtocolError::TooDeep);
        }
        self.elements = self.elements.saturating_add(count);
        if self.elements > limits.arguments_max {
            return Err(ProtocolError::TooBig);
        }
        let open = Open { kind, left: count, items: Vec::with_capacity(count.min(ITEMS_RESERVED_MAX)) };
        if count == 0 {
            return Ok(open.close().and_then(|frame| self.deliver(frame)));
        }
        self.open.push(open);
        Ok(None)
    }

    /// Puts a frame into the innermost open array, closing every array this fills; the outermost frame comes out.
    fn deliver(&mut self, mut frame: Frame) -> Option<Frame> {
        while let Some(open) = self.open.last_mut() {
            open.items.push(frame);
            open.left -= 1;
            if open.left > 0 {
                return None;
            }
            frame = self.open.pop().and_then(Open::close)?;
        }
        Some(frame)
    }

    /// The element at the start of `buf` and its length.
    fn element(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<(Element, usize)>, ProtocolError> {
        let Some(kind) = buf.first() else { return Ok(None) };
        match kind {
            b'$' | b'!' | b'=' => self.bulk(*kind, buf, limits),
            b'*' => Self::aggregate(Kind::Array, buf),
            b'~' => Self::aggregate(Kind::Set, buf),
            b'>' => Self::aggregate(Kind::Push, buf),
            b'%' => Self::aggregate(Kind::Map, buf),
            b'|' => Self::aggregate(Kind::Attribute, buf),
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => self.line(*kind, buf, limits),
            other => Err(ProtocolError::UnknownType(*other)),
        }
    }

    fn aggregate(kind: Kind, buf: &[u8]) -> Result<Option<(Element, usize)>, ProtocolError> {
        let (value, next) = match header(buf, 1) {
            Header::Incomplete => return Ok(None),
            Header::Invalid => return Err(ProtocolError::InvalidMultibulkLength),
            Header::Value { value, next } => (value, next),
        };
        if value == -1 && kind == Kind::Array {
            return Ok(Some((Element::Leaf(Frame::NilArray), next)));
        }
        let count = usize::try_from(value).map_err(|_| ProtocolError::InvalidMultibulkLength)?;
        let pairs = matches!(kind, Kind::Map | Kind::Attribute);
        let count = if pairs { count.saturating_mul(2) } else { count };
        Ok(Some((Element::Open { kind, count }, next)))
    }

    fn bulk(&self, kind: u8, buf: &[u8], limits: &Limits) -> Result<Option<(Element, usize)>, ProtocolError> {
        let (value, next) = match header(buf, 1) {
            Header::Incomplete => return Ok(None),
            Header::Invalid => return Err(ProtocolError::InvalidBulkLength),
            Header::Value { value, next } => (value, next),
        };
        if value == -1 && kind == b'$' {
            return Ok(Some((Element::Leaf(Frame::Nil), next)));
        }
        let length = usize::try_from(value).map_err(|_| ProtocolError::InvalidBulkLength)?;
        if length > limits.argument_bytes_max {
            return Err(ProtocolError::InvalidBulkLength);
        }
        let end = next + length;
        if self.bytes + end + 2 > limits.request_bytes_max {
            return Err(ProtocolError::TooBig);
        }
        match buf.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::MissingTerminator),
        }
        let bytes = buf.get(next..end).unwrap_or_default();
        let frame = match kind {
            b'!' => Frame::Error(String::from_utf8_lossy(bytes).into_owned()),
            // A verbatim string names its format in four bytes (`txt:`) first.
            b'=' => Frame::Bulk(Bytes::copy_from_slice(bytes.get(4..).unwrap_or_default())),
            _ => Frame::Bulk(Bytes::copy_from_slice(bytes)),
        };
        Ok(Some((Element::Leaf(frame), end + 2)))
    }

    fn line(
        &mut self,
        kind: u8,
        buf: &[u8],
        limits: &Limits,
    ) -> Result<Option<(Element, usize)>, ProtocolError> {
        // The type and the carriage return are not part of the text.
        let bytes_max = limits.inline_bytes_max + 2;
        let found = memchr(b'\n', buf.get(self.scanned..).unwrap_or_default());
        let end = found.map_or(buf.len(), |found| self.scanned + found);
        if end > bytes_max {
            return Err(ProtocolError::TooBigInline);
        }
        if found.is_none() {
            self.scanned = end;
            return Ok(None);
        }
        let text = buf.get(1..end).unwrap_or_default();
        let text = text.strip_suffix(b"\r").ok_or(ProtocolError::MissingTerminator)?;
        Ok(Some((Element::Leaf(leaf(kind, text)?), end + 1)))
    }
}

impl Open {
    /// The finished frame; `None` for an attribute.
    fn close(self) -> Option<Frame> {
        Some(match self.kind {
            Kind::Array => Frame::Array(self.items),
            Kind::Set => Frame::Set(self.items),
            Kind::Push => Frame::Push(self.items),
            Kind::Map => Frame::Map(pairs(self.items)),
            Kind::Attribute => return None,
        })
    }
}

fn pairs(items: Vec<Frame>) -> Vec<(Frame, Frame)> {
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    pairs
}

fn leaf(kind: u8, text: &[u8]) -> Result<Frame, ProtocolError> {
    let invalid = ProtocolError::InvalidNumber;
    Ok(match kind {
        b'+' => Frame::Simple(simple(text)),
        b'-' => Frame::Error(String::from_utf8_lossy(text).into_owned()),
        b':' => Frame::Int(parse_int(text).ok_or(invalid)?),
        b',' => {
            let value = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            Frame::Double(value.ok_or(invalid)?)
        }
        b'#' => match text {
            b"t" => Frame::Bool(true),
            b"f" => Frame::Bool(false),
            _ => return Err(invalid),
        },
        // A number too big for an integer: its digits.
        b'(' => Frame::Bulk(Bytes::copy_from_slice(text)),
        _ => Frame::Nil,
    })
}

/// The usual answers cost no memory.
fn simple(text: &[u8]) -> Cow<'static, str> {
    match text {
        b"OK" => Cow::Borrowed("OK"),
        b"PONG" => Cow::Borrowed("PONG"),
        b"QUEUED" => Cow::Borrowed("QUEUED"),
        other => Cow::Owned(String::from_utf8_lossy(other).into_owned()),
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
