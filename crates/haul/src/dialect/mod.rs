//! Dialects: translations between what clients say and the engine's commands. All quirks of wording and format, no
//! semantics, no sockets.
//!
//! - `args`: reading arguments; `json`, `number`: the formats.
//! - `scripts`: which script a client loaded, and so which dialect it speaks.
//! - `qless`: the call envelope and the commands of qless and reqless; `shape`: how their answers are written;
//!   `refusal`: their error texts; `events`: their pub/sub messages.
//! - `older`: the one-script-per-command API. `native`: Haul's own commands. `keys`: plain Redis commands on keys;
//!   `tasks`: the writes among them that Blueque's clients need.

pub(crate) mod args;
pub(crate) mod events;
pub(crate) mod glob;
pub(crate) mod json;
pub(crate) mod keys;
pub(crate) mod native;
pub(crate) mod native_shape;
pub(crate) mod number;
pub(crate) mod older;
pub(crate) mod plain;
pub(crate) mod qless;
pub(crate) mod refusal;
pub(crate) mod scripts;
pub(crate) mod shape;
pub(crate) mod tasks;
#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use haul_client::resp::{Frame, Protocol, write_array_header, write_bulk};
use haul_engine::{BodyId, Call, Command, JobView, Name, Refusal, Reply, Rules, Text};

/// What every dialect needs to know besides the arguments.
#[derive(Clone, Debug)]
pub(crate) struct Env {
    pub(crate) tenant: Name,
    /// Server time in seconds.
    pub(crate) clock: f64,
    pub(crate) limits: DataLimits,
    /// Heartbeat and fail store data as the Lua scripts would re-encode it.
    pub(crate) lua_data: bool,
    /// Blueque's keys are as exact as Redis's: calls that only its first description knows are refused.
    pub(crate) blueque_strict: bool,
    pub(crate) error_format: ErrorFormat,
}

/// How script errors are wrapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ErrorFormat {
    /// `ERR user_script:1: <message>`: what every client understands.
    #[default]
    Clean,
    /// As Redis 6.2 words it.
    Redis6,
    /// As Redis 7 words it.
    Redis7,
}

/// Limits on what users hand in; a value at a limit is taken, one past it refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataLimits {
    /// A jid, queue, klass, worker, tag, group, option or key.
    pub(crate) name_bytes_max: usize,
    /// Data, a result, a failure's message.
    pub(crate) data_bytes_max: usize,
}

impl Default for DataLimits {
    fn default() -> Self {
        DataLimits { name_bytes_max: 1024, data_bytes_max: 16 << 20 }
    }
}

/// A request understood: what to ask the engine, and how to write what it answers.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) call: Call,
    pub(crate) render: Render,
    /// If there is nothing yet, wait this many seconds for it.
    pub(crate) wait: Option<f64>,
}

/// How an answer is written.
#[derive(Clone, Debug)]
pub(crate) enum Render {
    Qless(shape::Writer),
    Older(older::Shape),
    Native(native_shape::Shape),
    Key(keys::Shape),
}

impl Render {
    /// The answer in the client's words.
    pub(crate) fn frame(self, outcome: Result<Reply, Refusal>, texts: &Texts) -> Frame {
        match self {
            Render::Qless(writer) => writer.frame(outcome, texts),
            Render::Older(shape) => shape.frame(outcome, texts),
            Render::Native(shape) => shape.frame(outcome, texts),
            Render::Key(shape) => shape.frame(outcome, texts),
        }
    }
}

impl Render {
    /// The answer as bytes; the same as the frame's, without making one where answers are many.
    pub(crate) fn write(self, outcome: Result<Reply, Refusal>, texts: &Texts, sheet: &mut Sheet<'_>) {
        match self {
            Render::Qless(writer) => writer.write(outcome, texts, sheet),
            Render::Native(shape) => shape.write(outcome, texts, sheet),
            other => sheet.frame(&other.frame(outcome, texts)),
        }
    }
}

/// Where answers are written.
pub(crate) struct Sheet<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) out: &'a mut BytesMut,
    /// Room for a text whose length goes before it.
    pub(crate) text: &'a mut Vec<u8>,
}

impl Sheet<'_> {
    pub(crate) fn frame(&mut self, frame: &Frame) {
        frame.encode(self.protocol, self.out);
    }

    fn array(&mut self, length: usize) {
        write_array_header(length, self.out);
    }

    fn bulk(&mut self, bytes: &[u8]) {
        write_bulk(bytes, self.out);
    }

    /// A text that is written by `push`.
    fn text(&mut self, push: impl FnOnce(&mut Vec<u8>)) {
        self.text.clear();
        // Enough for most jobs.
        self.text.reserve(1024);
        push(self.text);
        write_bulk(self.text, self.out);
    }
}

impl Env {
    /// A call with the caller's time.
    pub(crate) fn call(&self, now: f64, rules: Rules, command: Command) -> Call {
        Call { tenant: self.tenant.clone(), now, clock: self.clock, rules, command }
    }
}

/// A job's data as JSON: data of a client that need not write JSON is a string, unless it is JSON.
pub(crate) fn data_of<'a>(job: &'a JobView, texts: &'a Texts) -> Cow<'a, [u8]> {
    let bytes = texts.bytes(&job.data);
    if !job.opaque || json::check(bytes).is_ok() {
        return Cow::Borrowed(bytes);
    }
    let mut string = Vec::with_capacity(bytes.len() + 2);
    json::push_json_string(&mut string, bytes);
    Cow::Owned(string)
}

/// The bodies a reply needs, fetched.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// Sorted by id.
    found: Vec<(BodyId, Bytes)>,
}

impl Texts {
    pub(crate) fn new(mut found: Vec<(BodyId, Bytes)>) -> Self {
        found.sort_unstable_by_key(|(id, _)| *id);
        Texts { found }
    }

    /// The bytes of a text. That a body was found was checked when it was fetched.
    pub(crate) fn bytes<'a>(&'a self, text: &'a Text) -> &'a [u8] {
        match text {
            Text::Short(name) => name.bytes(),
            Text::Long(id) => match self.found.binary_search_by_key(id, |(id, _)| *id) {
                Ok(at) => self.found.get(at).map_or(b"", |(_, bytes)| bytes),
                Err(_) => b"",
            },
        }
    }
}
