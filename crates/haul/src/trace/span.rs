//! Spans, and which of them a notice makes.

use haul_engine::{Kind as What, Name, Notice, State};

use super::context::{Context, new_span};

/// As OTLP numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Internal = 1,
    Server = 2,
    Producer = 4,
    Consumer = 5,
}

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Int(i64),
}

/// One span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) context: Context,
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Seconds since 1970.
    pub(crate) began_at: f64,
    pub(crate) ended_at: f64,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    /// Why it failed.
    pub(crate) error: Option<String>,
}

/// The span that ends with this: of a put, a wait or a run, as a child of what the job was put by.
pub(super) fn of_notice(tenant: &Name, notice: &Notice, clock: f64) -> Option<Span> {
    let parent = Context::parse(notice.trace.as_ref()?.bytes()).filter(|parent| parent.sampled)?;
    let (word, kind) = match notice.kind {
        What::Put => ("put", Kind::Producer),
        What::Popped => ("wait", Kind::Internal),
        What::Completed | What::Advanced | What::Retried | What::LockLost => ("run", Kind::Consumer),
        // Without retries left, a job fails when somebody else pops: its run ended with its lock, and was told.
        What::Failed if notice.since < notice.at => ("run", Kind::Consumer),
        What::Canceled if notice.state == Some(State::Running) => ("run", Kind::Consumer),
        _ => return None,
    };
    // A put ends when it is durable; the rest when it was said.
    let (began_at, ended_at) =
        if kind == Kind::Producer { (notice.at, notice.at.max(clock)) } else { (notice.since, notice.at) };
    let text = |name: &Name| Value::Text(name.display().into_owned());
    let mut attributes = vec![
        ("messaging.system", Value::Text("haul".to_owned())),
        ("messaging.destination.name", text(&notice.queue)),
        ("messaging.message.id", text(&notice.jid)),
        ("haul.klass", text(&notice.klass)),
    ];
    if !tenant.is_empty() {
        attributes.push(("haul.tenant", text(tenant)));
    }
    if kind != Kind::Producer {
        attributes.push(("haul.worker", text(&notice.worker)));
        attributes.push(("haul.attempt", Value::Int(i64::from(notice.attempt))));
    }
    if kind == Kind::Consumer {
        attributes.push(("haul.outcome", Value::Text(notice.kind.word().to_owned())));
    }
    Some(Span {
        context: Context { span: new_span(), ..parent },
        parent: Some(parent.span),
        name: format!("{word} {}", notice.queue.display()),
        kind,
        began_at,
        ended_at: ended_at.max(began_at),
        attributes,
        error: error(notice),
    })
}

/// The failure's group, never its message: that is the user's.
fn error(notice: &Notice) -> Option<String> {
    let detail = || notice.detail.as_ref().map_or_else(String::new, |detail| detail.display().into_owned());
    match notice.kind {
        What::Failed => Some(detail()),
        What::LockLost => Some(format!("lock lost: {}", detail())),
        _ => None,
    }
}
