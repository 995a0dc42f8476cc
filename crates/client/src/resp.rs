//! The Redis protocol (RESP2 and RESP3): frames in memory, no sockets, no commands.
//!
//! A server reads requests with [`parse_request`] (nothing is copied: [`Args`] says where the arguments stand in
//! the buffer) and answers with [`Frame::encode`]. A client writes with [`encode_request`] and reads with
//! [`Decoder`]. Parsing is total: any bytes give a request, a demand for more, or a [`ProtocolError`], and memory
//! grows with what has been received, never with what a peer announced.

mod decode;
mod frame;
mod number;
mod request;

pub use decode::{Decoder, decode};
pub use frame::{
    Frame, Protocol, encode_request, write_array_header, write_bulk, write_error, write_int, write_simple,
};
pub use request::{Args, Parse, parse_request};

const MIB: usize = 1024 * 1024;

/// Limits on what a peer may send. A value at the limit is accepted, one past it is a [`ProtocolError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Arguments of one request; for a reply, elements of all its arrays together.
    pub arguments_max: usize,
    /// Bytes of one argument or bulk string. Above the limit of a job's data, which is checked by meaning.
    pub argument_bytes_max: usize,
    /// Bytes of one whole request or reply, framing included.
    pub request_bytes_max: usize,
    /// Bytes of an inline request, or of a simple string or error, without its line end.
    pub inline_bytes_max: usize,
    /// Arrays within arrays in one reply.
    pub reply_depth_max: usize,
}

impl Default for Limits {
    /// What a server accepts.
    fn default() -> Self {
        Self {
            arguments_max: 1_048_576,
            argument_bytes_max: 16 * MIB + 1024,
            request_bytes_max: 64 * MIB,
            inline_bytes_max: 64 * 1024,
            reply_depth_max: 32,
        }
    }
}

impl Limits {
    /// What a client accepts: one job's JSON text carries data and result, and one pop carries many jobs.
    #[must_use]
    pub fn for_replies() -> Self {
        Self { argument_bytes_max: 256 * MIB, request_bytes_max: 1024 * MIB, ..Self::default() }
    }
}

/// The peer broke the protocol; the connection cannot be used any further.
///
/// The texts of the first five are Redis's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// `*` without a usable number.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// `$` without a usable number.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// An argument of a request is not a bulk string.
    #[error("Protocol error: expected '$', got '{}'", .0.escape_ascii())]
    ExpectedBulk(u8),
    /// An inline request, or a line of a reply, beyond [`Limits::inline_bytes_max`].
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    /// An inline request with an open quote, or text right after a closing one.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// A request or reply beyond [`Limits::request_bytes_max`] or a reply beyond [`Limits::arguments_max`].
    #[error("Protocol error: too big request")]
    TooBig,
    /// A bulk string does not end where its length says.
    #[error("Protocol error: expected CRLF after bulk string")]
    MissingTerminator,
    /// A reply of a type that neither RESP2 nor RESP3 has.
    #[error("Protocol error: unknown reply type '{}'", .0.escape_ascii())]
    UnknownType(u8),
    /// A reply's integer, double or boolean cannot be read.
    #[error("Protocol error: invalid number in reply")]
    InvalidNumber,
    /// A reply beyond [`Limits::reply_depth_max`].
    #[error("Protocol error: reply nested too deeply")]
    TooDeep,
}
