//! Records, both ways. A line record is `<id>|<full type>|<payload>`; a batch record is a header, exactly as many bytes as
//! it says, and a closing line. What is neither is skipped, never an error: people may edit the file.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::id::{Id, Ids, SEQUENCES};
use crate::moment::{iso, parse_iso};
use crate::name::FullType;

/// Posts of more lines are written as one batch record.
const LINES_MAX: usize = 64;
const BATCH: &[u8] = b"#:Batch ";
const END: &[u8] = b"#:EndBatch\n";

/// Payloads of one type, as they came.
#[derive(Clone, Debug)]
pub struct Post {
    /// Whose and what.
    pub full: FullType,
    /// One payload a line; or, raw, one payload.
    pub body: Bytes,
    /// The body is one payload, whatever is in it.
    pub raw: bool,
    /// Not to be run before; none: at once.
    pub due_ms: Option<u64>,
}

/// The payloads of a text: its lines, empty ones and comments left out.
pub fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    ranges(body).filter_map(|range| body.get(range))
}

fn ranges(body: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    let ends = memchr::memchr_iter(b'\n', body).chain((!body.ends_with(b"\n")).then_some(body.len()));
    ends.filter_map(move |end| {
        let line = from..end;
        from = end + 1;
        let first = body.get(line.start..line.end).and_then(<[u8]>::first);
        first.is_some_and(|byte| *byte != b'#').then_some(line)
    })
}

/// The bytes of a post, and its ids: the first of each run and how many follow each other.
pub(crate) type Encoded = (Vec<u8>, Vec<(Id, u32)>);

/// How a post is written.
pub(crate) fn encode(post: &Post, ids: &Ids, now_ms: u64) -> Encoded {
    let mut out = Vec::with_capacity(post.body.len() + 256);
    if post.raw {
        let id = ids.take(now_ms, 1);
        push_batch(&mut out, post, &post.body, &id);
        return (out, vec![(id, 1)]);
    }
    let lines: Vec<Range<usize>> = ranges(&post.body).collect();
    let mut runs = Vec::new();
    for chunk in lines.chunks(SEQUENCES as usize) {
        let (Some(first), Some(last)) = (chunk.first(), chunk.last()) else { continue };
        let id = ids.take(now_ms, chunk.len() as u32);
        if chunk.len() > LINES_MAX || post.due_ms.is_some() {
            let end = (last.end + 1).min(post.body.len());
            // A post that fits one batch is kept as it was received, comments and all.
            let whole = chunk.len() == lines.len();
            let body = if whole { Some(&post.body[..]) } else { post.body.get(first.start..end) };
            push_batch(&mut out, post, body.unwrap_or_default(), &id);
        } else {
            for (at, line) in chunk.iter().enumerate() {
                push_line(
                    &mut out,
                    post,
                    post.body.get(line.clone()).unwrap_or_default(),
                    &id.advanced(at as u32),
                );
            }
        }
        runs.push((id, chunk.len() as u32));
    }
    (out, runs)
}

fn push_line(out: &mut Vec<u8>, post: &Post, payload: &[u8], id: &Id) {
    out.extend_from_slice(format!("{id}|{}|", post.full).as_bytes());
    out.extend_from_slice(payload);
    out.push(b'\n');
}

fn push_batch(out: &mut Vec<u8>, post: &Post, body: &[u8], id: &Id) {
    let head = format!("date={},bytes={},jobtype={},id={id}", iso(id.ms), body.len(), post.full);
    out.extend_from_slice(BATCH);
    out.extend_from_slice(head.as_bytes());
    if let Some(due) = post.due_ms {
        out.extend_from_slice(format!(",dt={due}").as_bytes());
    }
    if post.raw {
        out.extend_from_slice(b",raw=1");
    }
    out.push(b'\n');
    out.extend_from_slice(body);
    if !body.ends_with(b"\n") {
        out.push(b'\n');
    }
    out.extend_from_slice(END);
}

/// A job of a record; the payload is where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    pub(crate) id: Id,
    pub(crate) full: Arc<FullType>,
    pub(crate) payload: Range<usize>,
    pub(crate) raw: bool,
    pub(crate) due_ms: Option<u64>,
}

/// What stands at a place.
#[derive(Debug)]
pub(crate) enum Step {
    /// A record; the next begins at `next`.
    Jobs { next: usize, jobs: Vec<Parsed> },
    /// Nothing: an empty line, a comment.
    Skip { next: usize },
    /// Not a job, and not meant to be nothing.
    Junk { next: usize },
    /// What is there ends before it is whole.
    Torn,
}

/// What stands at `at`. `ids` makes those that a foreign file lacks.
pub(crate) fn step(text: &[u8], at: usize, ids: &Ids) -> Step {
    let rest = text.get(at..).unwrap_or_default();
    let Some(length) = memchr::memchr(b'\n', rest) else { return Step::Torn };
    let (line, next) = (at..at + length, at + length + 1);
    match rest.get(..length).unwrap_or_default() {
        [] | [b' ', ..] => Step::Skip { next },
        head if head.starts_with(BATCH) => match Header::parse(head.get(BATCH.len()..).unwrap_or_default()) {
            Some(header) => batch(text, next, &header, ids),
            None => Step::Junk { next },
        },
        b"#:EndBatch" => Step::Junk { next },
        [b'#', ..] => Step::Skip { next },
        _ => match line_record(text, line, ids) {
            Some(job) => Step::Jobs { next, jobs: vec![job] },
            None => Step::Junk { next },
        },
    }
}

fn line_record(text: &[u8], line: Range<usize>, ids: &Ids) -> Option<Parsed> {
    let bytes = text.get(line.clone())?;
    let first = memchr::memchr(b'|', bytes)?;
    let second = first + 1 + memchr::memchr(b'|', bytes.get(first + 1..)?)?;
    let word = |range: Range<usize>| std::str::from_utf8(bytes.get(range)?).ok();
    let stamp = word(0..first)?;
    let id = match Id::parse(stamp) {
        Some(id) => id,
        None if stamp.len() >= 10 => ids.take_for(parse_iso(stamp)?, 1),
        None => return None,
    };
    let full = Arc::new(FullType::parse(word(first + 1..second)?).ok()?);
    Some(Parsed { id, full, payload: line.start + second + 1..line.end, raw: false, due_ms: None })
}

struct Header {
    ms: u64,
    bytes: usize,
    full: FullType,
    id: Option<Id>,
    due_ms: Option<u64>,
    raw: bool,
}

impl Header {
    fn parse(text: &[u8]) -> Option<Self> {
        let (mut ms, mut bytes, mut full, mut id, mut due_ms, mut raw) =
            (None, None, None, None, None, false);
        for pair in std::str::from_utf8(text).ok()?.split(',') {
            let (key, value) = pair.split_once('=')?;
            match key {
                "date" => ms = Some(parse_iso(value)?),
                "bytes" => bytes = Some(value.parse().ok()?),
                "jobtype" => full = Some(FullType::parse(value).ok()?),
                "id" => id = Some(Id::parse(value)?),
                "dt" => due_ms = Some(value.parse().ok()?),
                "raw" => raw = value == "1",
                _ => {}
            }
        }
        Some(Header { ms: ms?, bytes: bytes?, full: full?, id, due_ms, raw })
    }
}

fn batch(text: &[u8], body_at: usize, header: &Header, ids: &Ids) -> Step {
    let Some(body_end) = body_at.checked_add(header.bytes).filter(|end| *end <= text.len()) else {
        return Step::Torn;
    };
    let body = text.get(body_at..body_end).unwrap_or_default();
    let mut end = body_end;
    if !body.ends_with(b"\n") {
        match text.get(end) {
            None => return Step::Torn,
            Some(b'\n') => end += 1,
            Some(_) => return Step::Junk { next: body_at },
        }
    }
    let closing = text.get(end..).unwrap_or_default();
    if !closing.starts_with(END) {
        return if END.starts_with(closing) { Step::Torn } else { Step::Junk { next: body_at } };
    }
    let ranges: Vec<Range<usize>> = if header.raw {
        std::iter::once(body_at..body_end).collect()
    } else {
        ranges(body).map(|range| range.start + body_at..range.end + body_at).collect()
    };
    let first = match &header.id {
        Some(id) => id.clone(),
        None => ids.take_for(header.ms, ranges.len() as u32),
    };
    let full = Arc::new(header.full.clone());
    let job = |(at, payload): (usize, Range<usize>)| Parsed {
        id: first.advanced(at as u32),
        full: full.clone(),
        payload,
        raw: header.raw,
        due_ms: header.due_ms,
    };
    Step::Jobs { next: end + END.len(), jobs: ranges.into_iter().enumerate().map(job).collect() }
}
