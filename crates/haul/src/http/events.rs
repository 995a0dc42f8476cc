//! Events as they happen: server-sent events of a tenant, filtered, resumable over a short window.
//!
//! An ordinary event is a `message` whose data is JSON. `reset` says that the id to go on from is of another run of the
//! server, `lost` that events between have gone: in both cases what a page shows must be read again. After a `lost` that
//! comes in the middle the stream ends, and a client that comes back goes on with what is new.
//!
//! With `every` a reader is only told that something happened, at most so often: that is all a page needs to know, however
//! busy the server is.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, unfold};
use haul_engine::Kind;
use tokio::sync::watch;

use super::body::Query;
use super::caller::Caller;
use super::problem::Problem;
use super::schema::ErrorDoc;
use crate::bus::{self, Filter, Position, Read, Start};
use crate::clock;

/// A line this often keeps proxies from closing a quiet stream, and tells how far it has come.
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Values of one request's filters.
const FILTER_VALUES_MAX: usize = 100;
/// Milliseconds between two messages of a stream that only says that something happened.
const EVERY: std::ops::RangeInclusive<u64> = 100..=60_000;

/// What happens, as it happens: server-sent events.
///
/// Filters can be repeated; of each kind of filter one value must fit. An event's data is an object with `kind`, `at` and,
/// where there is one, `jid`, `queue`, `worker`, `klass`, `state`, `attempt` and what else the kind has to say.
/// `Last-Event-ID` goes on behind that event, if it is still kept; else `event: lost` or `event: reset` says to read anew.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(
        ("queue" = Option<Vec<String>>, Query, description = "Only of these queues"),
        ("jid" = Option<Vec<String>>, Query, description = "Only of these jobs"),
        ("worker" = Option<Vec<String>>, Query, description = "Only of these workers"),
        ("kind" = Option<Vec<String>>, Query, description = "Only of these kinds: put, popped, completed, ..."),
        ("every" = Option<u64>, Query, minimum = 100, maximum = 60000,
            description = "Only say that something happened, `event: changed`, at most once in so many milliseconds"),
        ("tenant" = Option<String>, Query,
            description = "As the header X-Haul-Tenant, for clients that cannot set one", min_length = 1),
        ("Last-Event-ID" = Option<String>, Header, description = "Go on behind this event"),
    ),
    responses((status = 200, content_type = "text/event-stream", body = String), (status = "4XX", body = ErrorDoc)))]
pub(crate) async fn stream(
    mut caller: Caller,
    Query(pairs): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if let Some((_, tenant)) = pairs.iter().find(|(key, _)| key == "tenant") {
        caller.choose(tenant.as_bytes())?;
    }
    let filter = filter(&caller, &pairs)?;
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    // For clients that cannot set the header.
    let last =
        last.or_else(|| pairs.iter().find(|(key, _)| key == "last_event_id").map(|(_, id)| id.as_str()));
    let last = last.filter(|text| !text.is_empty());
    let stream = caller.server.bus.subscribe(&caller.tenant, last).map_err(|_| {
        let message = format!("there are {} event streams already (event-streams-max)", bus::STREAMS_MAX);
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "TOOMANY", message)
    })?;
    if let Some(outward) = caller.server.shard.outward() {
        outward.is_listened().await;
    }
    let every = pairs.iter().find(|(key, _)| key == "every").map(|(_, text)| every(text)).transpose()?;
    let headers = [("cache-control", "no-cache, no-transform"), ("x-accel-buffering", "no")];
    Ok((headers, Sse::new(messages(stream, filter, caller, every))).into_response())
}

fn every(text: &str) -> Result<Duration, Problem> {
    let milliseconds = text.parse().ok().filter(|number| EVERY.contains(number));
    milliseconds.map(Duration::from_millis).ok_or_else(|| {
        Problem::bad(format!("every is from {} to {} milliseconds", EVERY.start(), EVERY.end()))
    })
}

fn filter(caller: &Caller, pairs: &[(String, String)]) -> Result<Filter, Problem> {
    if pairs.len() > FILTER_VALUES_MAX {
        return Err(Problem::bad(format!(
            "a stream takes at most {FILTER_VALUES_MAX} filters (event-filters-max)"
        )));
    }
    let mut filter = Filter::default();
    for (key, value) in pairs {
        match key.as_str() {
            "queue" => filter.queues.push(caller.name("queue", value)?),
            "jid" => filter.jids.push(caller.name("jid", value)?),
            "worker" => filter.workers.push(caller.name("worker", value)?),
            "kind" => filter.kinds.push(Kind::of_word(value).ok_or_else(|| unknown_kind(value))?),
            "last_event_id" | "tenant" | "every" => {}
            other => {
                let message = format!("events are filtered by queue, jid, worker and kind, not by {other}");
                return Err(Problem::bad(message));
            }
        }
    }
    Ok(filter)
}

fn unknown_kind(value: &str) -> Problem {
    let known: Vec<&str> = haul_engine::KINDS.iter().map(|kind| kind.word()).collect();
    Problem::bad(format!("there is no kind of event {value:?}; there are {}", known.join(", ")))
}

/// A stream on its way out.
struct Sending {
    stream: bus::Stream,
    filter: Filter,
    /// The server's stop, which would wait for streams.
    stopping: watch::Receiver<bool>,
    /// Who reads, and word of changes to who may.
    caller: Caller,
    tokens: watch::Receiver<u64>,
    ready: VecDeque<Event>,
    ended: bool,
    /// At most one message in this time, which says only that something happened; and when the last one was.
    every: Option<Duration>,
    told_at: Option<std::time::Instant>,
}

fn messages(
    stream: bus::Stream,
    filter: Filter,
    caller: Caller,
    every: Option<Duration>,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let first = match stream.start() {
        Start::Now(at) | Start::After(at) => at_position(at),
        Start::Lost(at) => lost(at),
        Start::Reset(at) => again("reset", at, "the server has been started since; read anew what you show"),
    };
    let ready = VecDeque::from([first.retry(Duration::from_secs(2))]);
    let (stopping, tokens) = (caller.server.stopping(), caller.server.gate.changes());
    let sending =
        Sending { stream, filter, stopping, caller, tokens, ready, ended: false, every, told_at: None };
    unfold(sending, |mut sending| async move {
        let event = sending.next().await?;
        Some((Ok(event), sending))
    })
}

impl Sending {
    /// The next message; none: the stream ends.
    async fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.ready.pop_front() {
            return Some(event);
        }
        if self.ended || *self.stopping.borrow() {
            return None;
        }
        // A token that was taken away ends the stream too.
        self.tokens.mark_unchanged();
        self.caller.access = self.caller.server.gate.renew(&self.caller.access)?;
        let read = tokio::select! {
            read = self.stream.next(&self.filter) => read,
            () = tokio::time::sleep(ALIVE_EVERY) => return Some(at_position(self.stream.position())),
            _ = self.stopping.changed() => return None,
            _ = self.tokens.changed() => return Some(at_position(self.stream.position())),
        };
        match read {
            Read::Events(list) if self.every.is_some() => {
                let since = self.told_at.map(|at| at.elapsed());
                let rest = self.every.zip(since).map(|(every, since)| every.saturating_sub(since));
                tokio::time::sleep(rest.unwrap_or_default()).await;
                self.told_at = Some(clock::instant());
                let data = format!("{{\"events\":{}}}", list.len());
                Some(Event::default().event("changed").id(self.stream.position().to_string()).data(data))
            }
            Read::Events(list) => {
                let written = |told: std::sync::Arc<bus::Told>| {
                    Event::default().id(told.position.to_string()).data(told.json())
                };
                self.ready.extend(list.into_iter().map(written));
                self.ready.pop_front()
            }
            Read::Lost => {
                self.ended = true;
                Some(lost(self.stream.position()))
            }
        }
    }
}

/// No event, only how far the stream has come: what a filter held back need not be kept for it.
fn at_position(at: Position) -> Event {
    Event::default().comment("").id(at.to_string())
}

fn lost(at: Position) -> Event {
    again("lost", at, "events have gone before they were read; read anew what you show")
}

fn again(name: &str, at: Position, message: &str) -> Event {
    let mut out = Vec::with_capacity(128);
    let mut object = crate::dialect::json::Object::json(&mut out);
    object.string("message", message.as_bytes());
    object.end();
    Event::default().event(name).id(at.to_string()).data(String::from_utf8_lossy(&out))
}

#[cfg(test)]
mod tests;
