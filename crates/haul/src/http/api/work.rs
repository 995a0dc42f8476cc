//! Working: popping jobs and saying what became of them.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, Complete, Fail, Heartbeat, Lock, Name, Next, Pop, Reply, Report, Retry};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{document, done, finite};
use crate::dialect::json::{Object, push_list};
use crate::dialect::native::{POP_COUNT_MAX, WAIT_SECONDS_MAX};
use crate::dialect::native_shape::push_exact;
use crate::http::body::{Json, Path, Text, whole};
use crate::http::caller::{Answer, Caller, json};
use crate::http::problem::{Problem, push_error};
use crate::http::schema::{JobsDoc, LockDoc, NewStateDoc, OutcomesDoc, Problems, RemainingDoc};

/// In which order queues are looked at.
#[derive(Clone, Copy, Deserialize, ToSchema, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// All from the first that has any, then the next.
    Ordered,
    /// One from each in turn.
    RoundRobin,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PopDocument {
    /// Who takes them: a name for this worker, the same in all its calls.
    worker: Text,
    /// From which queues, in this order.
    #[schema(min_items = 1)]
    queues: Vec<Text>,
    /// At most this many [default: 1].
    #[schema(minimum = 0, maximum = 10_000)]
    #[serde(default, deserialize_with = "whole")]
    count: Option<usize>,
    /// If there is none, wait this many seconds for one [default: 0].
    #[schema(minimum = 0, maximum = 86_400)]
    wait: Option<f64>,
    /// Seconds until the lock ends unless renewed [default: the queue's `heartbeat`].
    lock: Option<f64>,
    /// `ordered` (the default) or `round-robin`.
    order: Option<Order>,
    /// Only jobs of these klasses [default: any].
    #[serde(default)]
    klasses: Vec<Text>,
}

/// Take jobs, waiting for them if asked to. Answers an empty list if there are none.
#[utoipa::path(post, path = "/api/v1/pop", operation_id = "pop", tag = "work",
    responses((status = 200, body = JobsDoc), Problems))]
pub(super) async fn pop(caller: Caller, Json(wanted): Json<PopDocument>) -> Result<Response, Problem> {
    let count = wanted.count.unwrap_or(1);
    if count > POP_COUNT_MAX {
        return Err(Problem::bad(format!("count is larger than the limit pop-count-max, {POP_COUNT_MAX}")));
    }
    let wait = finite("wait", wanted.wait)?.unwrap_or(0.0);
    if !(0.0..=WAIT_SECONDS_MAX).contains(&wait) {
        return Err(Problem::bad(format!("wait is from 0 to {WAIT_SECONDS_MAX} seconds (wait-seconds-max)")));
    }
    let pop = Pop {
        worker: caller.name("worker", &wanted.worker)?,
        queues: super::some_names(&caller, "queues", &wanted.queues)?,
        round_robin: wanted.order == Some(Order::RoundRobin),
        count,
        lock: lock(wanted.lock)?,
        klasses: caller.names("klasses", &wanted.klasses)?,
    };
    let answer = if wait > 0.0 && count > 0 {
        let answer = caller.wait(Command::Pop(pop), wait).await?;
        let nothing = matches!(&answer.reply, Reply::Jobs(jobs) if jobs.is_empty());
        if nothing && caller.server.is_stopping() {
            return Err(Problem::stopping());
        }
        answer
    } else {
        caller.ask(Command::Pop(pop)).await?
    };
    super::jobs_answer(&answer)
}

fn lock(seconds: Option<f64>) -> Result<Lock, Problem> {
    Ok(finite("lock", seconds)?.map_or(Lock::Option, Lock::Seconds))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Beat {
    worker: Text,
    /// The attempt it must be: guards against a lock lost and won again.
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    attempt: Option<u32>,
    /// Seconds from now [default: the queue's `heartbeat`].
    lock: Option<f64>,
    /// New data for the job, a checkpoint for the next attempt.
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
}

/// Renew a lock. 409 if it is lost.
#[utoipa::path(post, path = "/api/v1/jobs/{jid}/heartbeat", operation_id = "heartbeat_job", tag = "work",
    responses((status = 200, body = LockDoc), Problems))]
pub(super) async fn heartbeat(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<Beat>,
) -> Result<Response, Problem> {
    let beat = Heartbeat {
        jid: caller.name("jid", &jid)?,
        worker: caller.name("worker", &wanted.worker)?,
        attempt: wanted.attempt,
        lock: lock(wanted.lock)?,
        data: document(&caller, "data", wanted.data.as_deref())?,
    };
    let Reply::Number(expires) = caller.ask(Command::Heartbeat(beat)).await?.reply else {
        return Err(Problem::unexpected());
    };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    push_exact(object.key("expires"), expires);
    object.end();
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BeatMany {
    worker: Text,
    #[schema(min_items = 1)]
    jids: Vec<Text>,
}

/// Renew several locks, each for itself.
#[utoipa::path(post, path = "/api/v1/heartbeat", operation_id = "heartbeat", tag = "work",
    responses((status = 200, body = OutcomesDoc), Problems))]
pub(super) async fn heartbeat_many(
    caller: Caller,
    Json(wanted): Json<BeatMany>,
) -> Result<Response, Problem> {
    let jids = super::some_names(&caller, "jids", &wanted.jids)?;
    let worker = caller.name("worker", &wanted.worker)?;
    let answer = caller.ask(Command::HeartbeatMany { worker, jids: jids.clone() }).await?;
    let Reply::Each(each) = answer.reply else { return Err(Problem::unexpected()) };
    let mut out = Vec::with_capacity(64 * jids.len());
    let mut object = Object::json(&mut out);
    let pairs: Vec<_> = jids.iter().zip(each).collect();
    push_list(object.key("outcomes"), &pairs, "[]", |out, (jid, outcome)| {
        push_outcome(out, jid, outcome.as_ref().map_err(Problem::from).err().as_ref(), |object| {
            if let Ok(expires) = outcome {
                push_exact(object.key("expires"), *expires);
            }
        });
    });
    object.end();
    Ok(json(StatusCode::OK, out))
}

fn push_outcome(out: &mut Vec<u8>, jid: &Name, problem: Option<&Problem>, more: impl Fn(&mut Object<'_>)) {
    let mut object = Object::json(out);
    object.string("jid", jid.bytes());
    match problem {
        None => {
            object.raw("ok", b"true");
            more(&mut object);
        }
        Some(problem) => {
            object.raw("ok", b"false");
            push_error(object.key("error"), problem.code, &problem.message);
        }
    }
    object.end();
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompleteDocument {
    worker: Text,
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    attempt: Option<u32>,
    /// Kept with the job. A string is kept as its text, anything else as JSON.
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
    /// Move on to this queue instead of finishing.
    next: Option<Text>,
    /// Seconds; with `next`.
    delay: Option<f64>,
    /// Jobs to wait for; with `next`.
    #[serde(default)]
    depends: Vec<Text>,
}

impl CompleteDocument {
    fn command(&self, caller: &Caller, jid: Name) -> Result<Command, Problem> {
        let delay = finite("delay", self.delay)?;
        if self.next.is_none() && (delay.is_some() || !self.depends.is_empty()) {
            return Err(Problem::bad("delay and depends go with next"));
        }
        let next = self.next.as_ref().map(|queue| caller.name("next", queue)).transpose()?;
        let depends = caller.names("depends", &self.depends)?;
        Ok(Command::Complete(Box::new(Complete {
            jid,
            worker: Some(caller.name("worker", &self.worker)?),
            queue: None,
            attempt: self.attempt,
            data: document(caller, "data", self.data.as_deref())?,
            result: self.result.as_deref().map(|raw| result_text(caller, raw)).transpose()?,
            next: next.map(|queue| Next { queue, delay: delay.unwrap_or(0.0), depends }),
        })))
    }
}

/// A string's own text, or the JSON as it is.
fn result_text(caller: &Caller, raw: &RawValue) -> Result<bytes::Bytes, Problem> {
    let text = match serde_json::from_str::<String>(raw.get()) {
        Ok(text) => text.into_bytes(),
        Err(_) => raw.get().as_bytes().to_vec(),
    };
    super::bounded(caller, "result", text.into())
}

/// Complete a job, or move it on to the next queue. 409 if the lock is lost.
#[utoipa::path(post, path = "/api/v1/jobs/{jid}/complete", operation_id = "complete_job", tag = "work",
    responses((status = 200, body = NewStateDoc), Problems))]
pub(super) async fn complete(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<CompleteDocument>,
) -> Result<Response, Problem> {
    let command = wanted.command(&caller, caller.name("jid", &jid)?)?;
    let Reply::State(state) = caller.ask(command).await?.reply else { return Err(Problem::unexpected()) };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.string("state", state.word().as_bytes());
    object.end();
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompleteMany {
    worker: Text,
    #[schema(min_items = 1, max_items = 10_000)]
    jobs: Vec<CompleteItem>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompleteItem {
    jid: Text,
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    attempt: Option<u32>,
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
}

/// Complete several jobs, each for itself.
#[utoipa::path(post, path = "/api/v1/complete", operation_id = "complete", tag = "work",
    responses((status = 200, body = OutcomesDoc), Problems))]
pub(super) async fn complete_many(
    caller: Caller,
    Json(wanted): Json<CompleteMany>,
) -> Result<Response, Problem> {
    if wanted.jobs.is_empty() || wanted.jobs.len() > POP_COUNT_MAX {
        return Err(Problem::bad(format!("jobs are from 1 to {POP_COUNT_MAX} (pop-count-max)")));
    }
    let (mut jids, mut commands) = (Vec::new(), Vec::new());
    for item in wanted.jobs {
        let jid = caller.name("jid", &item.jid)?;
        let one = CompleteDocument {
            worker: wanted.worker.clone(),
            attempt: item.attempt,
            result: item.result,
            data: None,
            next: None,
            delay: None,
            depends: Vec::new(),
        };
        commands.push(one.command(&caller, jid.clone())?);
        jids.push(jid);
    }
    let answers = caller.ask_all(commands).await?;
    let mut out = Vec::with_capacity(64 * jids.len());
    let mut object = Object::json(&mut out);
    let pairs: Vec<(Name, Result<Answer, Problem>)> = jids.into_iter().zip(answers).collect();
    push_list(object.key("outcomes"), &pairs, "[]", |out, (jid, answer)| {
        push_outcome(out, jid, answer.as_ref().err(), |object| {
            if let Ok(Answer { reply: Reply::State(state), .. }) = answer {
                object.string("state", state.word().as_bytes());
            }
        });
    });
    object.end();
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FailDocument {
    worker: Text,
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    attempt: Option<u32>,
    /// Failures of one kind share a group.
    group: Text,
    /// Why, a trace perhaps.
    message: String,
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
}

/// Fail a job: it goes to a failure group and does not run again unless asked to. 409 if the lock is lost.
#[utoipa::path(post, path = "/api/v1/jobs/{jid}/fail", operation_id = "fail_job", tag = "work",
    responses((status = 204), Problems))]
pub(super) async fn fail(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<FailDocument>,
) -> Result<Response, Problem> {
    let fail = Fail {
        jid: caller.name("jid", &jid)?,
        worker: Some(caller.name("worker", &wanted.worker)?),
        attempt: wanted.attempt,
        group: caller.name("group", &wanted.group)?,
        message: super::bounded(&caller, "message", wanted.message.into())?,
        data: document(&caller, "data", wanted.data.as_deref())?,
    };
    caller.ask(Command::Fail(Box::new(fail))).await?;
    Ok(done())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryDocument {
    worker: Text,
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    attempt: Option<u32>,
    /// Seconds until it may run again [default: 0].
    delay: Option<f64>,
    /// The group it fails into when no retries are left; with `message`.
    group: Option<Text>,
    message: Option<String>,
}

/// Give a job back to be tried again; without retries left it fails. 409 if the lock is lost.
#[utoipa::path(post, path = "/api/v1/jobs/{jid}/retry", operation_id = "retry_job", tag = "work",
    responses((status = 200, body = RemainingDoc), Problems))]
pub(super) async fn retry(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<RetryDocument>,
) -> Result<Response, Problem> {
    if wanted.group.is_some() != wanted.message.is_some() {
        return Err(Problem::bad("group and message go together"));
    }
    let message = wanted.message.map(|text| super::bounded(&caller, "message", text.into()));
    let retry = Retry {
        jid: caller.name("jid", &jid)?,
        queue: None,
        worker: caller.name("worker", &wanted.worker)?,
        attempt: wanted.attempt,
        delay: finite("delay", wanted.delay)?.unwrap_or(0.0),
        group: wanted.group.as_ref().map(|group| caller.name("group", group)).transpose()?,
        message: message.transpose()?,
    };
    let Reply::Number(remaining) = caller.ask(Command::Retry(Box::new(retry))).await?.reply else {
        return Err(Problem::unexpected());
    };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.number("remaining", remaining);
    object.end();
    Ok(json(StatusCode::OK, out))
}

/// Take a job from the worker that holds it, without waiting for the lock to end.
#[utoipa::path(post, path = "/api/v1/jobs/{jid}/release", operation_id = "release_job", tag = "work",
    responses((status = 204), Problems))]
pub(super) async fn release(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jids = vec![caller.name("jid", &jid)?];
    caller.ask(Command::Timeout { jids }).await?;
    Ok(done())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportDocument {
    worker: Text,
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    attempt: Option<u32>,
    /// How far it is.
    #[schema(minimum = 0, maximum = 100)]
    percent: Option<f64>,
    /// What it is doing.
    message: Option<Text>,
    /// The last part of its output.
    output: Option<String>,
    /// How long the output was in all up to there, in bytes.
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_u64)]
    output_bytes: Option<u64>,
    /// What the next attempt is to begin with.
    #[schema(value_type = Option<serde_json::Value>)]
    checkpoint: Option<Box<RawValue>>,
}

/// Say how far a running job is, and what it printed last. What is left out stays as it is. 409 if the lock is lost.
#[utoipa::path(post, path = "/api/v1/jobs/{jid}/report", operation_id = "report_job", tag = "work",
    responses((status = 204), Problems))]
pub(super) async fn report(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<ReportDocument>,
) -> Result<Response, Problem> {
    let percent = finite("percent", wanted.percent)?;
    if percent.is_some_and(|percent| !(0.0..=100.0).contains(&percent)) {
        return Err(Problem::bad("percent is from 0 to 100"));
    }
    let output = wanted.output.map(|text| super::bounded(&caller, "output", text.into()));
    let report = Report {
        jid: caller.name("jid", &jid)?,
        worker: caller.name("worker", &wanted.worker)?,
        attempt: wanted.attempt,
        percent,
        message: wanted.message.map(|text| caller.name("message", text)).transpose()?,
        output: output.transpose()?,
        output_bytes: wanted.output_bytes,
        checkpoint: document(&caller, "checkpoint", wanted.checkpoint.as_deref())?,
    };
    caller.ask(Command::Report(Box::new(report))).await?;
    Ok(done())
}
