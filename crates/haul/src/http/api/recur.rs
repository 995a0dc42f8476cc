//! Recurring jobs.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, JobList, Jobs, Name, RankWindow, RecurChange, RecurPut, Reply};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{document, done, finite};
use crate::clock;
use crate::dialect::json::{Object, push_list};
use crate::dialect::native_shape::push_recur;
use crate::http::body::{Json, Path, Query, Text};
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{Problems, PutDoc, RecurDoc, RecursDoc};

/// Recurring jobs listed at most.
const LIST_MAX: usize = 1000;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRecurring {
    queue: Text,
    klass: Text,
    /// For each of its jobs; null if left out.
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
    jid: Option<Text>,
    /// Seconds from one job to the next.
    #[schema(exclusive_minimum = 0)]
    interval: f64,
    /// Seconds until the first [default: 0].
    offset: Option<f64>,
    priority: Option<f64>,
    retries: Option<f64>,
    /// Missed jobs made up for at most; 0: all [default: 0].
    backlog: Option<f64>,
    #[serde(default)]
    tags: Vec<Text>,
    #[serde(default)]
    throttles: Vec<Text>,
}

/// Define a recurring job, or define it anew.
#[utoipa::path(post, path = "/api/v1/recurring", operation_id = "put_recurring", tag = "recurring",
    responses((status = 201, body = PutDoc), Problems))]
pub(super) async fn put(caller: Caller, Json(wanted): Json<NewRecurring>) -> Result<Response, Problem> {
    if !wanted.interval.is_finite() || wanted.interval <= 0.0 {
        return Err(Problem::bad("interval must be greater than 0"));
    }
    let jid = wanted.jid.as_ref().map_or_else(|| Ok(clock::new_jid()), |jid| caller.name("jid", jid))?;
    let data = document(&caller, "data", wanted.data.as_deref())?;
    let recur = RecurPut {
        jid: jid.clone(),
        queue: caller.name("queue", &wanted.queue)?,
        klass: caller.name("klass", &wanted.klass)?,
        data: data.unwrap_or_else(|| bytes::Bytes::from_static(b"null")),
        interval: wanted.interval,
        offset: finite("offset", wanted.offset)?.unwrap_or(0.0),
        priority: finite("priority", wanted.priority)?.unwrap_or(0.0),
        retries: finite("retries", wanted.retries)?.unwrap_or(5.0),
        backlog: finite("backlog", wanted.backlog)?.unwrap_or(0.0),
        tags: caller.names("tags", &wanted.tags)?,
        throttles: caller.names("throttles", &wanted.throttles)?,
    };
    caller.ask(Command::Recur(Box::new(recur))).await?;
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.string("jid", jid.bytes());
    object.raw("existing", b"false");
    object.end();
    Ok(json(StatusCode::CREATED, out))
}

/// A recurring job.
#[utoipa::path(get, path = "/api/v1/recurring/{jid}", operation_id = "get_recurring", tag = "recurring",
    responses((status = 200, body = RecurDoc), Problems))]
pub(super) async fn get(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    let answer = caller.ask(Command::RecurGet { jid: jid.clone() }).await?;
    match answer.reply {
        Reply::Recur(None) => Err(haul_engine::Refusal::NoRecur { jid }.into()),
        _ => super::plain_answer(&answer),
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfQueue {
    /// Only those of this queue.
    queue: Option<String>,
}

/// Recurring jobs, the soonest of each queue first; at most 1000.
#[utoipa::path(get, path = "/api/v1/recurring", operation_id = "recurring", tag = "recurring", params(OfQueue),
    responses((status = 200, body = RecursDoc), Problems))]
pub(super) async fn list(caller: Caller, Query(query): Query<OfQueue>) -> Result<Response, Problem> {
    let queues = match &query.queue {
        Some(queue) => vec![caller.name("queue", queue)?],
        None => match caller.ask(Command::QueueNames).await?.reply {
            Reply::Names(names) => names,
            _ => return Err(Problem::unexpected()),
        },
    };
    let list = |queue: Name| {
        let range = RankWindow::Limit { offset: 0, count: Some(LIST_MAX) };
        Command::Jobs(Jobs { list: JobList::Recurring, queue, range })
    };
    let mut jids = Vec::new();
    for answer in caller.ask_all(queues.into_iter().map(list).collect()).await? {
        if let Reply::Names(names) = answer?.reply {
            jids.extend(names);
        }
    }
    jids.truncate(LIST_MAX);
    let mut found = Vec::new();
    for answer in caller.ask_all(jids.into_iter().map(|jid| Command::RecurGet { jid }).collect()).await? {
        if let Reply::Recur(Some(recur)) = answer?.reply {
            found.push(recur);
        }
    }
    let mut out = Vec::with_capacity(256 * found.len());
    let mut object = Object::json(&mut out);
    push_list(object.key("recurring"), &found, "[]", |out, recur| push_recur(out, recur));
    object.end();
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecurringChange {
    queue: Option<Text>,
    klass: Option<Text>,
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
    #[schema(exclusive_minimum = 0)]
    interval: Option<f64>,
    priority: Option<f64>,
    retries: Option<f64>,
    backlog: Option<f64>,
    throttles: Option<Vec<Text>>,
}

/// Change a recurring job. A new interval counts from its last job.
#[utoipa::path(patch, path = "/api/v1/recurring/{jid}", operation_id = "change_recurring", tag = "recurring",
    responses((status = 204), Problems))]
pub(super) async fn change(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<RecurringChange>,
) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    let interval = finite("interval", wanted.interval)?;
    if interval.is_some_and(|interval| interval <= 0.0) {
        return Err(Problem::bad("interval must be greater than 0"));
    }
    let queue = wanted.queue.as_ref().map(|queue| caller.name("queue", queue)).transpose()?;
    let klass = wanted.klass.as_ref().map(|klass| caller.name("klass", klass)).transpose()?;
    let throttles = wanted.throttles.as_ref().map(|ids| caller.names("throttles", ids)).transpose()?;
    let changes: Vec<RecurChange> = [
        interval.map(RecurChange::Interval),
        finite("priority", wanted.priority)?.map(RecurChange::Priority),
        finite("retries", wanted.retries)?.map(RecurChange::Retries),
        finite("backlog", wanted.backlog)?.map(RecurChange::Backlog),
        document(&caller, "data", wanted.data.as_deref())?.map(RecurChange::Data),
        queue.map(RecurChange::Queue),
        klass.map(RecurChange::Klass),
        throttles.map(RecurChange::Throttles),
    ]
    .into_iter()
    .flatten()
    .collect();
    caller.ask(Command::RecurUpdate { jid, changes }).await?;
    Ok(done())
}

/// End a recurring job. The jobs it has made stay.
#[utoipa::path(delete, path = "/api/v1/recurring/{jid}", operation_id = "end_recurring", tag = "recurring",
    responses((status = 204), Problems))]
pub(super) async fn end(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    match caller.ask(Command::Unrecur { jid: jid.clone() }).await?.reply {
        Reply::Bool(false) => Err(haul_engine::Refusal::NoRecur { jid }.into()),
        _ => Ok(done()),
    }
}
