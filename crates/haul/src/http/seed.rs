//! The small interface of the older HTTP document: get, heartbeat, complete, add, queues, job. Every answer is
//! `{"results": ...}` with the time taken and the load; on an error `results` is null and `error` says why.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use haul_engine::{Command, Complete, JobView, Lock, Name, Pop, Put, PutWhen, Reply, State};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::{Json, Path, Query};
use super::caller::{Answer, Caller, json};
use super::problem::Problem;
use crate::clock;
use crate::dialect::data_of;
use crate::dialect::json::{Object, push_json_string, push_list};
use crate::dialect::native::{POP_COUNT_MAX, first_put_first};
use crate::dialect::native_shape::{push_data, push_reply};
use crate::dialect::number::push_int;
use crate::resp::Server;

/// The routes.
pub(super) fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/get/{queue}", get(get_one))
        .route("/get/{queue}/{count}", get(get_some))
        .route("/{queue}/{count}", get(get_some))
        .route("/heartbeat/{queue}", post(heartbeat))
        .route("/hearbeat/{queue}", post(heartbeat))
        .route("/complete/{queue}", post(complete))
        .route("/add/{queue}", post(add))
        .route("/queues", get(queues))
        .route("/job/{id}", get(job))
}

type Part<T> = Result<T, Problem>;

/// The results as JSON text, in their envelope.
fn envelope(began: Instant, results: Result<Vec<u8>, Problem>) -> Response {
    let mut out = Vec::with_capacity(256);
    let mut object = Object::json(&mut out);
    let status = match results {
        Ok(results) => {
            object.raw("results", &results);
            StatusCode::OK
        }
        Err(problem) => {
            object.raw("results", b"null");
            object.string("error", problem.message.as_bytes());
            problem.status
        }
    };
    let mut time = Object::json(object.key("time"));
    time.number("total", (began.elapsed().as_micros() / 10) as f64 / 100.0);
    time.end();
    let (cpu, memory) = machine_load();
    let mut load = Object::json(object.key("load"));
    load.number("cpu", (cpu * 100.0).round() / 100.0);
    load.count("memory", memory >> 20);
    load.end();
    object.end();
    json(status, out)
}

/// Runnable processes for each core over the last minute, and this process' memory in bytes; zeros where there is no
/// `/proc`.
fn machine_load() -> (f64, usize) {
    let first = |path: &str, at: usize| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().nth(at).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let pages = first("/proc/self/statm", 1) as usize;
    (first("/proc/loadavg", 0) / cores as f64, pages * rustix::param::page_size())
}

#[derive(Deserialize)]
struct Host {
    host: Option<String>,
}

async fn get_one(caller: Part<Caller>, queue: Part<Path<String>>, host: Part<Query<Host>>) -> Response {
    let began = clock::instant();
    let results = async { take(&caller?, &queue?.0, None, host?.0.host).await }.await;
    envelope(began, results)
}

async fn get_some(
    caller: Part<Caller>,
    path: Part<Path<(String, String)>>,
    host: Part<Query<Host>>,
) -> Response {
    let began = clock::instant();
    let results = async {
        let Path((queue, count)) = path?;
        let wrong =
            || Problem::bad(format!("the number of jobs must be from 0 to {POP_COUNT_MAX}, not {count}"));
        let count: usize = count.parse().map_err(|_| wrong())?;
        if count > POP_COUNT_MAX {
            return Err(wrong());
        }
        take(&caller?, &queue, Some(count), host?.0.host).await
    };
    envelope(began, results.await)
}

fn worker(caller: &Caller, host: Option<String>) -> Result<Name, Problem> {
    caller.name("host", host.unwrap_or_else(|| caller.remote.address.ip().to_string()))
}

async fn take(
    caller: &Caller,
    queue: &str,
    count: Option<usize>,
    host: Option<String>,
) -> Result<Vec<u8>, Problem> {
    let name = caller.name("queue", queue)?;
    let pop = Pop {
        worker: worker(caller, host)?,
        queues: vec![name],
        round_robin: false,
        count: count.unwrap_or(1),
        lock: Lock::Option,
        klasses: Vec::new(),
    };
    let options = [format!("{queue}-cutoff"), "cutoff".to_owned()]
        .map(|option| Command::ConfigGet { option: Name::from(option) });
    let mut answers =
        caller.ask_all([Command::Pop(pop)].into_iter().chain(options).collect()).await?.into_iter();
    let mut next = || answers.next().unwrap_or_else(|| Err(Problem::unexpected()));
    let popped = next()?;
    let Reply::Jobs(jobs) = &popped.reply else { return Err(Problem::unexpected()) };
    let mut cutoff = None;
    for option in [next()?, next()?] {
        if let Reply::Option(Some(value)) = option.reply {
            cutoff = cutoff.or_else(|| haul_engine::parse_number(value.bytes()));
        }
    }
    let now = clock::now();
    let mut out = Vec::new();
    match (count, jobs.as_slice()) {
        (None | Some(1), []) => out.extend_from_slice(b"null"),
        (None | Some(1), [job, ..]) => push_unit(&mut out, job, &popped, now, cutoff),
        (_, jobs) => push_list(&mut out, jobs, "[]", |out, job| push_unit(out, job, &popped, now, cutoff)),
    }
    Ok(out)
}

fn push_unit(out: &mut Vec<u8>, job: &JobView, answer: &Answer, now: f64, cutoff: Option<f64>) {
    let mut object = Object::json(out);
    object.string("id", job.jid.bytes());
    push_data(object.key("meta"), &data_of(job, &answer.texts));
    object.string("queue", job.queue.bytes());
    push_int(object.key("heartbeat"), (job.expires - now).round() as i64);
    if let Some(cutoff) = cutoff {
        push_int(object.key("cutoff"), cutoff.round() as i64);
    }
    object.end();
}

#[derive(Deserialize)]
struct Posted<T> {
    data: Vec<T>,
    host: Option<String>,
}

/// A posted document; read by hand so that a wrong one is told in the envelope too.
async fn posted<T: serde::de::DeserializeOwned>(
    server: &Arc<Server>,
    request: Request,
) -> Result<Posted<T>, Problem> {
    Json::from_request(request, server).await.map(|Json(posted)| posted)
}

async fn heartbeat(caller: Part<Caller>, queue: Part<Path<String>>, request: Request) -> Response {
    let began = clock::instant();
    let results = async {
        let (caller, Path(queue)) = (caller?, queue?);
        let posted: Posted<String> = posted(&caller.server, request).await?;
        let (queue, worker) = (caller.name("queue", &queue)?, worker(&caller, posted.host)?);
        let jids = caller.names("id", &posted.data)?;
        let looks = jids.iter().map(|jid| Command::Get { jid: jid.clone() }).collect();
        let mut held = Vec::new();
        for (jid, answer) in jids.iter().zip(caller.ask_all(looks).await?) {
            let Reply::Job(job) = answer?.reply else { return Err(Problem::unexpected()) };
            if job.is_some_and(|job| job.queue == queue) {
                held.push(jid.clone());
            }
        }
        let beats = Command::HeartbeatMany { worker, jids: held.clone() };
        let Reply::Each(each) = caller.ask(beats).await?.reply else { return Err(Problem::unexpected()) };
        let now = clock::now();
        let mut renewed = held.into_iter().zip(each).peekable();
        let mut out = Vec::new();
        push_list(&mut out, &jids, "[]", |out, jid| match renewed.next_if(|(held, _)| held == jid) {
            Some((_, Ok(expires))) => push_int(out, (expires - now).round() as i64),
            _ => out.extend_from_slice(b"false"),
        });
        Ok(out)
    };
    envelope(began, results.await)
}

#[derive(Deserialize)]
struct Unit {
    id: Option<String>,
    meta: Option<Box<RawValue>>,
}

async fn complete(caller: Part<Caller>, queue: Part<Path<String>>, request: Request) -> Response {
    let began = clock::instant();
    let results = async {
        let (caller, Path(queue)) = (caller?, queue?);
        let posted: Posted<Unit> = posted(&caller.server, request).await?;
        let (queue, worker) = (caller.name("queue", &queue)?, worker(&caller, posted.host)?);
        let mut commands = Vec::new();
        let mut jids = Vec::new();
        for unit in posted.data {
            let id = unit.id.ok_or_else(|| Problem::bad("each item of data needs an id"))?;
            let jid = caller.name("id", &id)?;
            jids.push(jid.clone());
            commands.push(Command::Complete(Box::new(Complete {
                jid,
                worker: Some(worker.clone()),
                queue: Some(queue.clone()),
                attempt: None,
                data: meta(&caller, unit.meta.as_deref())?,
                result: None,
                next: None,
            })));
        }
        let answers = caller.ask_all(commands).await?;
        let done: Vec<Name> =
            jids.into_iter().zip(answers).filter(|(_, answer)| answer.is_ok()).map(|(jid, _)| jid).collect();
        let mut out = Vec::new();
        push_list(&mut out, &done, "[]", |out, jid| push_json_string(out, jid.bytes()));
        Ok(out)
    };
    envelope(began, results.await)
}

fn meta(caller: &Caller, raw: Option<&RawValue>) -> Result<Option<bytes::Bytes>, Problem> {
    super::api::document(caller, "meta", raw)
}

async fn add(caller: Part<Caller>, queue: Part<Path<String>>, request: Request) -> Response {
    let began = clock::instant();
    let results = async {
        let (caller, Path(queue)) = (caller?, queue?);
        let posted: Posted<Box<RawValue>> = posted(&caller.server, request).await?;
        let queue = caller.name("queue", &queue)?;
        let puts: Vec<Option<(Put, bool)>> =
            posted.data.iter().map(|item| to_put(&caller, &queue, item)).collect();
        let can_be: Vec<bool> = puts.iter().map(Option::is_some).collect();
        let puts = first_put_first(puts.into_iter().flatten().collect());
        let jids: Vec<Name> = puts.iter().map(|put| put.jid.clone()).collect();
        let commands = puts.into_iter().map(|put| Command::Put(Box::new(put))).collect();
        let mut answers = caller.ask_all(commands).await?.into_iter();
        let mut out = Vec::new();
        let mut jids = jids.iter();
        push_list(&mut out, &can_be, "[]", |out, can_be| {
            match can_be.then(|| jids.next().zip(answers.next())).flatten() {
                Some((jid, Ok(_))) => push_json_string(out, jid.bytes()),
                _ => out.extend_from_slice(b"false"),
            }
        });
        Ok(out)
    };
    envelope(began, results.await)
}

/// A job to be put, and whether its jid was made for it; none if it cannot be one.
fn to_put(caller: &Caller, queue: &Name, item: &RawValue) -> Option<(Put, bool)> {
    let unit: Unit = serde_json::from_str(item.get()).ok()?;
    // `"meta": null` is a meta, a missing one is none: serde tells them apart only in the text.
    let has_null = || {
        let members: Option<serde_json::Map<String, serde_json::Value>> =
            serde_json::from_str(item.get()).ok();
        members.is_some_and(|members| members.contains_key("meta"))
    };
    let data = match meta(caller, unit.meta.as_deref()).ok()? {
        Some(data) => data,
        None if has_null() => bytes::Bytes::from_static(b"null"),
        None => return None,
    };
    let is_unnamed = unit.id.is_none();
    let put = Put {
        jid: unit.id.map_or_else(|| Some(clock::new_jid()), |id| caller.name("id", &id).ok())?,
        queue: queue.clone(),
        worker: None,
        klass: Some(queue.clone()),
        data: Some(data),
        delay: 0.0,
        priority: Some(0.0),
        tags: Some(Vec::new()),
        retries: Some(5.0),
        depends: Vec::new(),
        throttles: Vec::new(),
        when: PutWhen::Always,
        trace: caller.trace.clone(),
    };
    Some((put, is_unnamed))
}

async fn queues(caller: Part<Caller>) -> Response {
    let began = clock::instant();
    let results = async {
        let answer = caller?.ask(Command::AllQueueCounts).await?;
        let mut out = Vec::new();
        push_reply(&mut out, &answer.reply, &answer.texts);
        Ok(out)
    };
    envelope(began, results.await)
}

async fn job(caller: Part<Caller>, id: Part<Path<String>>) -> Response {
    let began = clock::instant();
    let results = async {
        let caller = caller?;
        let jid = caller.name("id", &id?.0)?;
        let answer = caller.ask(Command::Get { jid: jid.clone() }).await?;
        let Reply::Job(Some(job)) = &answer.reply else { return Err(Problem::no_job(&jid)) };
        let mut out = Vec::new();
        let mut object = Object::json(&mut out);
        object.string("id", job.jid.bytes());
        object.string("state", state_word(job.state).as_bytes());
        match job.queue.is_empty() {
            true => object.raw("queue", b"null"),
            false => object.string("queue", job.queue.bytes()),
        }
        push_data(object.key("meta"), &data_of(job, &answer.texts));
        object.end();
        Ok(out)
    };
    envelope(began, results.await)
}

/// The four states this interface knows.
fn state_word(state: State) -> &'static str {
    match state {
        State::Waiting | State::Scheduled | State::Depends | State::Throttled => "waiting",
        State::Running | State::Stalled => "pending",
        State::Failed => "failed",
        State::Complete => "complete",
    }
}
