//! Queues: what is in them, how they go, and what they may do.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, Listing, Name, Reply};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::page::{PageQuery, page};
use super::{done, finite};
use crate::clock;
use crate::dialect::json::{Object, push_list};
use crate::dialect::native_shape::push_counts;
use crate::http::body::{Json, Path, Query};
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{BacklogDoc, JobsDoc, Problems, QueueDoc, QueuesDoc, StatsDoc};

/// Jobs shown by a peek at most.
const PEEK_MAX: usize = 1000;

/// The largest number of seconds, or of jobs, a queue can be set to.
const SETTING_MAX: f64 = 1e9;

/// Queues and their counts, in the order in which they were first used.
#[utoipa::path(get, path = "/api/v1/queues", operation_id = "queues", tag = "queues", params(PageQuery),
    responses((status = 200, body = QueuesDoc), Problems))]
pub(super) async fn list(caller: Caller, Query(query): Query<PageQuery>) -> Result<Response, Problem> {
    let page = page(&caller, Listing::Queues, &query).await?;
    let Reply::AllCounts(all) = &page.rows else { return Err(Problem::unexpected()) };
    let mut out = Vec::with_capacity(160 * all.len());
    let mut object = Object::json(&mut out);
    push_list(object.key("queues"), all, "[]", push_counts);
    page.end(object);
    Ok(json(StatusCode::OK, out))
}

/// A queue's counts. One that nobody has used is empty.
#[utoipa::path(get, path = "/api/v1/queues/{queue}", operation_id = "queue", tag = "queues",
    responses((status = 200, body = QueueDoc), Problems))]
pub(super) async fn get(caller: Caller, Path(queue): Path<String>) -> Result<Response, Problem> {
    let queue = caller.name("queue", &queue)?;
    super::plain_answer(&caller.ask(Command::QueueCounts { queue }).await?)
}

/// How much waits in a queue, as one small number for autoscalers.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/backlog", operation_id = "queue_backlog", tag = "queues",
    responses((status = 200, body = BacklogDoc), Problems))]
pub(super) async fn backlog(caller: Caller, Path(queue): Path<String>) -> Result<Response, Problem> {
    let queue = caller.name("queue", &queue)?;
    let Reply::Counts(counts) = caller.ask(Command::QueueCounts { queue }).await?.reply else {
        return Err(Problem::unexpected());
    };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.count("backlog", counts.waiting + counts.stalled);
    object.count("running", counts.running);
    object.end();
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueChange {
    /// Paused: nothing is popped from it.
    paused: Option<bool>,
    /// Seconds a lock lasts; null: as the option `heartbeat` says.
    #[serde(default, with = "super::nullable")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000)]
    heartbeat: Option<Option<f64>>,
    /// Jobs of it that run at once, at most; null: any number.
    #[serde(default, with = "super::nullable")]
    #[schema(value_type = Option<u64>, maximum = 1_000_000_000)]
    concurrency: Option<Option<f64>>,
}

/// Change a queue: pause it, or set how long its locks last and how many of its jobs run at once.
#[utoipa::path(patch, path = "/api/v1/queues/{queue}", operation_id = "change_queue", tag = "queues",
    responses((status = 204), Problems))]
pub(super) async fn change(
    caller: Caller,
    Path(queue): Path<String>,
    Json(wanted): Json<QueueChange>,
) -> Result<Response, Problem> {
    let name = caller.name("queue", &queue)?;
    let mut commands = Vec::new();
    for (option, change) in [("heartbeat", wanted.heartbeat), ("max-concurrency", wanted.concurrency)] {
        let Some(value) = change else { continue };
        if value.is_some_and(|value| !(0.0..=SETTING_MAX).contains(&value)) {
            return Err(Problem::bad(format!("{option} must be a number from 0 to {SETTING_MAX}")));
        }
        if option == "max-concurrency" && value.is_some_and(|value| value.fract() != 0.0) {
            return Err(Problem::bad("concurrency must be a whole number"));
        }
        let option = caller.name("queue", format!("{queue}-{option}"))?;
        commands.push(match value {
            Some(value) => Command::ConfigSet { option, value: Name::from(value.to_string()) },
            None => Command::ConfigUnset { option },
        });
    }
    if let Some(paused) = wanted.paused {
        commands.push(Command::Pause { queues: vec![name], paused });
    }
    if commands.is_empty() {
        return Err(Problem::bad("say what to change: paused, heartbeat or concurrency"));
    }
    for answer in caller.ask_all(commands).await? {
        answer?;
    }
    Ok(done())
}

/// Forget a queue: it is listed again when it is used again. Its jobs stay.
#[utoipa::path(delete, path = "/api/v1/queues/{queue}", operation_id = "forget_queue", tag = "queues",
    responses((status = 204), Problems))]
pub(super) async fn forget(caller: Caller, Path(queue): Path<String>) -> Result<Response, Problem> {
    let queues = vec![caller.name("queue", &queue)?];
    caller.ask(Command::Forget { queues }).await?;
    Ok(done())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Day {
    /// A moment of the day, in seconds since 1970 [default: now].
    date: Option<f64>,
}

/// How long jobs waited and ran in a queue on a day (UTC).
#[utoipa::path(get, path = "/api/v1/queues/{queue}/stats", operation_id = "queue_stats", tag = "queues", params(Day),
    responses((status = 200, body = StatsDoc), Problems))]
pub(super) async fn stats(
    caller: Caller,
    Path(queue): Path<String>,
    Query(day): Query<Day>,
) -> Result<Response, Problem> {
    let queue = caller.name("queue", &queue)?;
    let date = finite("date", day.date)?.unwrap_or_else(clock::now);
    super::plain_answer(&caller.ask(Command::Stats { queue, date }).await?)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Peek {
    /// At most 1000 [default: 1].
    #[param(minimum = 0, maximum = 1000)]
    count: Option<usize>,
}

/// The jobs a pop would give, without taking them.
#[utoipa::path(get, path = "/api/v1/queues/{queue}/peek", operation_id = "peek_queue", tag = "queues", params(Peek),
    responses((status = 200, body = JobsDoc), Problems))]
pub(super) async fn peek(
    caller: Caller,
    Path(queue): Path<String>,
    Query(query): Query<Peek>,
) -> Result<Response, Problem> {
    let queue = caller.name("queue", &queue)?;
    let count = query.count.unwrap_or(1);
    if count > PEEK_MAX {
        return Err(Problem::bad(format!("count is at most {PEEK_MAX} (page-rows-max)")));
    }
    super::jobs_answer(&caller.ask(Command::Peek { queue, offset: 0, count }).await?)
}
