//! Requests as a server reads them: an array of bulk strings, or an inline line as a person types it.
//!
//! The parser keeps its place in [`Args`], so that a large request arriving in small pieces is looked at once.

use super::number::{Header, header};
use super::{Limits, ProtocolError};
use memchr::memchr;
use std::borrow::Cow;

/// Arguments that stay allocated between requests; a larger request gives its memory back.
const SPANS_KEPT_MAX: usize = 4096;

/// What [`parse_request`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parse {
    /// A request stands in the first `consumed` bytes. With no arguments in [`Args`], these bytes were only empty
    /// lines and empty arrays: drop them and go on.
    Complete {
        /// Bytes to drop from the buffer once the arguments have been used.
        consumed: usize,
    },
    /// The request has not arrived as a whole.
    Incomplete {
        /// How many more bytes are needed before another call can make progress; at least 1. A peer announces this:
        /// it is a hint for reading, not a size to allocate.
        needed_at_least: usize,
    },
}

/// The arguments of one request: where they stand in the buffer it was parsed from. Reusable.
#[derive(Debug, Default)]
pub struct Args {
    spans: Vec<(usize, usize)>,
    /// An inline request's arguments without their quotes and escapes; the spans then point in here.
    unescaped: Vec<u8>,
    inline: bool,
    progress: Progress,
}

/// How far a request has been parsed.
#[derive(Debug, Default, Clone, Copy)]
enum Progress {
    #[default]
    Start,
    Line {
        from: usize,
        scanned: usize,
    },
    Bulks {
        from: usize,
        position: usize,
        left: usize,
    },
    Done,
}

enum Step {
    Again,
    Blank { end: usize },
    Complete { end: usize },
    Incomplete { needed: usize },
}

/// Parses the request at the start of `buf`.
///
/// The contract of resuming: after [`Parse::Incomplete`], call again with the same `into` and a buffer that starts with
/// the same bytes and has more at its end. After [`Parse::Complete`], use the arguments, drop `consumed` bytes and call
/// again for the next request. To give a request up half-way, call [`Args::clear`].
///
/// # Errors
/// The peer broke the protocol or a limit: answer the error's text and close the connection.
pub fn parse_request(buf: &[u8], limits: &Limits, into: &mut Args) -> Result<Parse, ProtocolError> {
    let outcome = into.resume(buf, limits);
    if outcome.is_err() {
        into.clear();
    }
    outcome
}

impl Args {
    /// No arguments, nothing begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many arguments there are, the command's name included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `index`; `buf` is the buffer the request was parsed from.
    #[must_use]
    pub fn get<'a>(&'a self, buf: &'a [u8], index: usize) -> Option<&'a [u8]> {
        let (start, end) = *self.spans.get(index)?;
        self.text(buf).get(start..end)
    }

    /// All arguments in order; `buf` is the buffer the request was parsed from.
    pub fn iter<'a>(&'a self, buf: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let text = self.text(buf);
        self.spans.iter().map(move |(start, end)| text.get(*start..*end).unwrap_or_default())
    }

    /// All arguments in order, without an allocation if `few` has room for them; `buf` is the buffer the request was
    /// parsed from.
    pub fn list<'a, 'few>(&'a self, buf: &'a [u8], few: &'few mut [&'a [u8]]) -> Cow<'few, [&'a [u8]]> {
        match few.get_mut(..self.spans.len()) {
            Some(list) => {
                list.iter_mut().zip(self.iter(buf)).for_each(|(slot, argument)| *slot = argument);
                Cow::Borrowed(list)
            }
            None => Cow::Owned(self.iter(buf).collect()),
        }
    }

    /// Forgets the arguments and any request half parsed.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT_MAX);
        self.unescaped.clear();
        self.inline = false;
        self.progress = Progress::Start;
    }

    fn text<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        if self.inline { &self.unescaped } else { buf }
    }

    fn resume(&mut self, buf: &[u8], limits: &Limits) -> Result<Parse, ProtocolError> {
        let mut skipped = 0;
        loop {
            let step = match self.progress {
                Progress::Done => {
                    self.clear();
                    Step::Again
                }
                Progress::Start => self.start(buf, skipped, limits)?,
                Progress::Line { from, scanned } => self.line(buf, (from, scanned), limits)?,
                Progress::Bulks { from, position, left } => {
                    self.bulks(buf, (from, position, left), limits)?
                }
            };
            match step {
                Step::Again => {}
                Step::Blank { end } => {
                    self.clear();
                    skipped = end;
                }
                Step::Complete { end } => {
                    self.progress = Progress::Done;
                    return Ok(Parse::Complete { consumed: end });
                }
                // Blank lines are given back at once, so that a peer sending only those costs no memory.
                Step::Incomplete { .. } if skipped > 0 => {
                    self.clear();
                    return Ok(Parse::Complete { consumed: skipped });
                }
                Step::Incomplete { needed } => return Ok(Parse::Incomplete { needed_at_least: needed }),
            }
        }
    }

    fn start(&mut self, buf: &[u8], at: usize, limits: &Limits) -> Result<Step, ProtocolError> {
        match buf.get(at) {
            None => return Ok(Step::Incomplete { needed: 1 }),
            Some(b'*') => {}
            Some(_) => {
                self.progress = Progress::Line { from: at, scanned: at };
                return Ok(Step::Again);
            }
        }
        let (count, next) = match header(buf, at + 1) {
            Header::Incomplete => return Ok(Step::Incomplete { needed: 1 }),
            Header::Invalid => return Err(ProtocolError::InvalidMultibulkLength),
            Header::Value { value, next } if value <= 0 => return Ok(Step::Blank { end: next }),
            Header::Value { value, next } => (value, next),
        };
        match usize::try_from(count) {
            Ok(left) if left <= limits.arguments_max => {
                self.progress = Progress::Bulks { from: at, position: next, left };
                Ok(Step::Again)
            }
            _ => Err(ProtocolError::InvalidMultibulkLength),
        }
    }

    fn bulks(
        &mut self,
        buf: &[u8],
        (from, mut position, mut left): (usize, usize, usize),
        limits: &Limits,
    ) -> Result<Step, ProtocolError> {
        while left > 0 {
            let Some((start, end)) = bulk_span(buf, position, limits)? else {
                self.progress = Progress::Bulks { from, position, left };
                return Ok(Step::Incomplete { needed: 1 });
            };
            let after = end + 2;
            if after - from > limits.request_bytes_max {
                return Err(ProtocolError::TooBig);
            }
            match buf.get(end..after) {
                None => {
                    self.progress = Progress::Bulks { from, position, left };
                    return Ok(Step::Incomplete { needed: after.saturating_sub(buf.len()).max(1) });
                }
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::MissingTerminator),
            }
            self.spans.push((start, end));
            position = after;
            left -= 1;
        }
        Ok(Step::Complete { end: position })
    }

    fn line(
        &mut self,
        buf: &[u8],
        (from, scanned): (usize, usize),
        limits: &Limits,
    ) -> Result<Step, ProtocolError> {
        let Some(found) = memchr(b'\n', buf.get(scanned..).unwrap_or_default()) else {
            // One more than the limit may still turn out to be the carriage return.
            if buf.len().saturating_sub(from) > limits.inline_bytes_max + 1 {
                return Err(ProtocolError::TooBigInline);
            }
            self.progress = Progress::Line { from, scanned: buf.len() };
            return Ok(Step::Incomplete { needed: 1 });
        };
        let end = scanned + found;
        let line = buf.get(from..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > limits.inline_bytes_max {
            return Err(ProtocolError::TooBigInline);
        }
        self.inline = true;
        self.split(line)?;
        if self.spans.is_empty() {
            return Ok(Step::Blank { end: end + 1 });
        }
        Ok(Step::Complete { end: end + 1 })
    }

    /// Splits an inline request at white space, with quotes and escapes as Redis's `sdssplitargs`.
    fn split(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        let mut rest = line;
        loop {
            rest = trim_start(rest);
            if rest.is_empty() {
                return Ok(());
            }
            let start = self.unescaped.len();
            rest = self.token(rest)?;
            self.spans.push((start, self.unescaped.len()));
        }
    }

    /// Takes one argument off the front of `rest`, which does not start with white space.
    fn token<'a>(&mut self, mut rest: &'a [u8]) -> Result<&'a [u8], ProtocolError> {
        loop {
            rest = match rest {
                [] => return Ok(rest),
                [byte, ..] if is_space(*byte) => return Ok(rest),
                [b'"', tail @ ..] => self.double_quoted(tail)?,
                [b'\'', tail @ ..] => self.single_quoted(tail)?,
                [byte, tail @ ..] => {
                    self.unescaped.push(*byte);
                    tail
                }
            };
        }
    }

    fn double_quoted<'a>(&mut self, mut rest: &'a [u8]) -> Result<&'a [u8], ProtocolError> {
        loop {
            let (byte, tail) = match rest {
                [b'"', tail @ ..] => return after_quote(tail),
                [b'\\', b'x', high, low, tail @ ..]
                    if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
                {
                    (hex(*high) << 4 | hex(*low), tail)
                }
                [b'\\', byte, tail @ ..] => (unescape(*byte), tail),
                [byte, tail @ ..] => (*byte, tail),
                [] => return Err(ProtocolError::UnbalancedQuotes),
            };
            self.unescaped.push(byte);
            rest = tail;
        }
    }

    fn single_quoted<'a>(&mut self, mut rest: &'a [u8]) -> Result<&'a [u8], ProtocolError> {
        loop {
            let (byte, tail) = match rest {
                [b'\'', tail @ ..] => return after_quote(tail),
                [b'\\', b'\'', tail @ ..] => (b'\'', tail),
                [byte, tail @ ..] => (*byte, tail),
                [] => return Err(ProtocolError::UnbalancedQuotes),
            };
            self.unescaped.push(byte);
            rest = tail;
        }
    }
}

/// Where the bulk string whose `$` stands at `position` begins and ends; `None` if its header is not there yet.
fn bulk_span(buf: &[u8], position: usize, limits: &Limits) -> Result<Option<(usize, usize)>, ProtocolError> {
    let (length, next) = match buf.get(position..).unwrap_or_default() {
        // Most arguments are short: these two are only quicker than what follows.
        [b'$', one @ b'0'..=b'9', b'\r', b'\n', ..] => (usize::from(one - b'0'), position + 4),
        [b'$', ten @ b'1'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
            (usize::from(ten - b'0') * 10 + usize::from(one - b'0'), position + 5)
        }
        [b'$', ..] => match header(buf, position + 1) {
            Header::Incomplete => return Ok(None),
            Header::Invalid => return Err(ProtocolError::InvalidBulkLength),
            Header::Value { value, next } => match usize::try_from(value) {
                Ok(length) => (length, next),
                Err(_) => return Err(ProtocolError::InvalidBulkLength),
            },
        },
        [] => return Ok(None),
        [other, ..] => return Err(ProtocolError::ExpectedBulk(*other)),
    };
    if length > limits.argument_bytes_max {
        return Err(ProtocolError::InvalidBulkLength);
    }
    Ok(Some((next, next + length)))
}

fn after_quote(tail: &[u8]) -> Result<&[u8], ProtocolError> {
    match tail.first() {
        Some(byte) if !is_space(*byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(tail),
    }
}

fn trim_start(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|byte| is_space(**byte)).count();
    text.get(spaces..).unwrap_or_default()
}

/// C's `isspace`: Rust's own leaves out the vertical tab.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
