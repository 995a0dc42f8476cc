//! Replies, and how they and requests are written.

use super::number::{double_text, write_decimal};
use bytes::{BufMut, Bytes, BytesMut};
use std::borrow::Cow;

/// Which version of the protocol a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// What a connection speaks until it says `HELLO 3`.
    #[default]
    Resp2,
    /// With maps, sets, doubles, booleans, one nil, and pushes.
    Resp3,
}

/// One reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// Nothing, in place of a string.
    Nil,
    /// Nothing, in place of an array. RESP3 has only one nil, which reads back as [`Frame::Nil`].
    NilArray,
    /// An integer.
    Int(i64),
    /// A double; in RESP2 a bulk string.
    Double(f64),
    /// A boolean; in RESP2 1 or 0.
    Bool(bool),
    /// A short text on one line.
    Simple(Cow<'static, str>),
    /// An error; its first word is a code.
    Error(String),
    /// Bytes of any kind.
    Bulk(Bytes),
    /// Frames in order.
    Array(Vec<Frame>),
    /// Pairs; in RESP2 an array of keys and values in turn.
    Map(Vec<(Frame, Frame)>),
    /// Pairs in order; in RESP2 one flat array, in RESP3 an array of arrays of two.
    Pairs(Vec<(Frame, Frame)>),
    /// Frames without an order; in RESP2 an array.
    Set(Vec<Frame>),
    /// Something nobody asked for on this connection, such as a published message; in RESP2 an array.
    Push(Vec<Frame>),
}

impl Frame {
    /// `+OK`.
    #[must_use]
    pub const fn ok() -> Self {
        Self::Simple(Cow::Borrowed("OK"))
    }

    /// A bulk string.
    pub fn bulk(text: impl Into<Bytes>) -> Self {
        Self::Bulk(text.into())
    }

    /// Appends the frame's bytes. A line break inside an error or a simple string becomes a space.
    pub fn encode(&self, protocol: Protocol, out: &mut BytesMut) {
        let resp3 = protocol == Protocol::Resp3;
        match self {
            Self::Nil | Self::NilArray if resp3 => out.put_slice(b"_\r\n"),
            Self::Nil => out.put_slice(b"$-1\r\n"),
            Self::NilArray => out.put_slice(b"*-1\r\n"),
            Self::Int(value) => write_int(*value, out),
            Self::Double(value) if resp3 => write_line(b',', &double_text(*value), out),
            Self::Double(value) => write_bulk(double_text(*value).as_bytes(), out),
            Self::Bool(value) if resp3 => out.put_slice(if *value { b"#t\r\n" } else { b"#f\r\n" }),
            Self::Bool(value) => write_int(i64::from(*value), out),
            Self::Simple(text) => write_simple(text, out),
            Self::Error(text) => write_error(text, out),
            Self::Bulk(bytes) => write_bulk(bytes, out),
            Self::Array(items) => encode_items(b'*', items, protocol, out),
            Self::Set(items) => encode_items(if resp3 { b'~' } else { b'*' }, items, protocol, out),
            Self::Push(items) => encode_items(if resp3 { b'>' } else { b'*' }, items, protocol, out),
            Self::Pairs(pairs) => {
                write_length(b'*', if resp3 { pairs.len() } else { pairs.len() * 2 }, out);
                for (first, second) in pairs {
                    if resp3 {
                        write_length(b'*', 2, out);
                    }
                    first.encode(protocol, out);
                    second.encode(protocol, out);
                }
            }
            Self::Map(pairs) => {
                let (kind, length) = if resp3 { (b'%', pairs.len()) } else { (b'*', pairs.len() * 2) };
                write_length(kind, length, out);
                for (key, value) in pairs {
                    key.encode(protocol, out);
                    value.encode(protocol, out);
                }
            }
        }
    }
}

impl From<i64> for Frame {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<Vec<Frame>> for Frame {
    fn from(items: Vec<Frame>) -> Self {
        Self::Array(items)
    }
}

impl From<Bytes> for Frame {
    fn from(bytes: Bytes) -> Self {
        Self::Bulk(bytes)
    }
}

impl From<String> for Frame {
    fn from(text: String) -> Self {
        Self::Bulk(text.into())
    }
}

/// Appends a request: an array of bulk strings.
pub fn encode_request(args: &[impl AsRef<[u8]>], out: &mut BytesMut) {
    const FRAMING_BYTES: usize = 16;
    let bytes: usize = args.iter().map(|arg| arg.as_ref().len() + FRAMING_BYTES).sum();
    out.reserve(bytes + FRAMING_BYTES);
    write_array_header(args.len(), out);
    for arg in args {
        write_bulk(arg.as_ref(), out);
    }
}

/// Appends an integer reply.
pub fn write_int(value: i64, out: &mut BytesMut) {
    write_decimal(b':', value, out);
}

/// Appends a bulk string.
pub fn write_bulk(bytes: &[u8], out: &mut BytesMut) {
    write_length(b'$', bytes.len(), out);
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

/// Appends the head of an array; `length` frames must follow.
pub fn write_array_header(length: usize, out: &mut BytesMut) {
    write_length(b'*', length, out);
}

/// Appends an error; line breaks become spaces.
pub fn write_error(text: &str, out: &mut BytesMut) {
    write_line(b'-', text, out);
}

/// Appends a simple string; line breaks become spaces.
pub fn write_simple(text: &str, out: &mut BytesMut) {
    write_line(b'+', text, out);
}

fn encode_items(kind: u8, items: &[Frame], protocol: Protocol, out: &mut BytesMut) {
    write_length(kind, items.len(), out);
    for item in items {
        item.encode(protocol, out);
    }
}

fn write_length(kind: u8, length: usize, out: &mut BytesMut) {
    write_decimal(kind, i64::try_from(length).unwrap_or(i64::MAX), out);
}

fn write_line(kind: u8, text: &str, out: &mut BytesMut) {
    out.put_u8(kind);
    if memchr::memchr2(b'\r', b'\n', text.as_bytes()).is_none() {
        out.put_slice(text.as_bytes());
    } else {
        out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    }
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(frame: &Frame, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        frame.encode(protocol, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn each_kind_of_frame_has_its_bytes_in_both_protocols() {
        let one = || vec![Frame::Int(1)];
        let cases = [
            (Frame::Nil, "$-1\r\n", "_\r\n"),
            (Frame::NilArray, "*-1\r\n", "_\r\n"),
            (Frame::Int(-7), ":-7\r\n", ":-7\r\n"),
            (Frame::Double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (Frame::Double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
            (Frame::Bool(true), ":1\r\n", "#t\r\n"),
            (Frame::Bool(false), ":0\r\n", "#f\r\n"),
            (Frame::ok(), "+OK\r\n", "+OK\r\n"),
            (Frame::Error("ERR a\r\nb".into()), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (Frame::bulk("a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
            (Frame::Array(one()), "*1\r\n:1\r\n", "*1\r\n:1\r\n"),
            (Frame::Set(one()), "*1\r\n:1\r\n", "~1\r\n:1\r\n"),
            (Frame::Push(one()), "*1\r\n:1\r\n", ">1\r\n:1\r\n"),
            (Frame::Map(vec![(Frame::Int(1), Frame::Nil)]), "*2\r\n:1\r\n$-1\r\n", "%1\r\n:1\r\n_\r\n"),
        ];
        for (frame, resp2, resp3) in cases {
            assert_eq!(text(&frame, Protocol::Resp2), resp2);
            assert_eq!(text(&frame, Protocol::Resp3), resp3);
        }
    }

    #[test]
    fn a_request_is_an_array_of_bulk_strings() {
        let mut out = BytesMut::new();
        encode_request(&["GET", ""], &mut out);
        assert_eq!(&out[..], b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n");
    }
}
