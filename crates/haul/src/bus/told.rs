//! One event as streams show it.

use std::sync::OnceLock;

use haul_engine::{Name, Notice};

use crate::dialect::json::Object;
use crate::dialect::native_shape::push_exact;

/// Which event of which run of the server: the id of a server-sent event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) run: u64,
    pub(crate) id: u64,
}

impl Position {
    /// Reads what [`std::fmt::Display`] writes.
    pub(crate) fn parse(text: &str) -> Option<Position> {
        let (run, id) = text.split_once('-')?;
        Some(Position { run: u64::from_str_radix(run, 16).ok()?, id: id.parse().ok()? })
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{}", self.run, self.id)
    }
}

/// One event, written as JSON when the first reader needs it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) position: Position,
    pub(crate) notice: Notice,
    json: OnceLock<String>,
}

impl Told {
    pub(crate) fn new(position: Position, notice: Notice) -> Self {
        Told { position, notice, json: OnceLock::new() }
    }

    /// About what it takes in memory, its JSON included.
    pub(crate) fn bytes(&self) -> usize {
        let notice = &self.notice;
        let names = [&notice.jid, &notice.queue, &notice.worker, &notice.klass];
        let names: usize = names.iter().map(|name| name.bytes().len()).sum();
        let detail = notice.detail.as_ref().map_or(0, |detail| detail.bytes().len());
        size_of::<Told>() + 128 + 2 * (names + detail)
    }

    /// `{"kind":...,"jid":...,"queue":...,"worker":...,"at":...}`; what there is none of is left out.
    pub(crate) fn json(&self) -> &str {
        self.json.get_or_init(|| write(&self.notice))
    }
}

fn write(notice: &Notice) -> String {
    let mut out = Vec::with_capacity(256);
    let mut object = Object::json(&mut out);
    object.string("kind", notice.kind.word().as_bytes());
    let mut name = |key: &'static str, value: &Name| {
        if !value.is_empty() {
            object.string(key, value.bytes());
        }
    };
    name("jid", &notice.jid);
    name("queue", &notice.queue);
    name("worker", &notice.worker);
    name("klass", &notice.klass);
    if let Some(state) = notice.state {
        object.string("state", state.word().as_bytes());
    }
    if notice.attempt > 0 {
        object.raw("attempt", notice.attempt.to_string().as_bytes());
    }
    if let Some(detail) = &notice.detail {
        object.string(notice.kind.detail(), detail.bytes());
    }
    push_exact(object.key("at"), notice.at);
    object.end();
    // The writer replaces what is not UTF-8.
    String::from_utf8(out).unwrap_or_default()
}
