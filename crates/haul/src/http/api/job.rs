//! One job: looking at it and changing it.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use haul_engine::{Command, JobView, Listing, Name, Put, PutWhen, Reply, State};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::page::{PageQuery, page};
use super::{document, done, finite, names_answer};
use crate::clock;
use crate::dialect::json::{Object, push_list};
use crate::dialect::native_shape::{push_job, push_names};
use crate::http::body::{Json, Path, Query, Text};
use crate::http::caller::{Answer, Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{ChangedDoc, CountDoc, JobDoc, JobsDoc, Problems, PutDoc, TagsDoc, TrackedDoc};

/// Seconds a result is waited for at most.
const RESULT_WAIT_MAX: f64 = 3600.0;
/// How soon who waits for a job notices that the server stops.
const STOP_LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

/// A job.
#[utoipa::path(get, path = "/api/v1/jobs/{jid}", operation_id = "get_job", tag = "jobs",
    responses((status = 200, body = JobDoc), Problems))]
pub(super) async fn get(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    answer_job(&caller, jid).await
}

pub(super) async fn answer_job(caller: &Caller, jid: Name) -> Result<Response, Problem> {
    let (job, answer) = find(caller, jid).await?;
    let mut out = Vec::with_capacity(512);
    push_job(&mut out, &job, &answer.texts);
    Ok(json(StatusCode::OK, out))
}

pub(super) async fn find(caller: &Caller, jid: Name) -> Result<(Box<JobView>, Answer), Problem> {
    let mut answer = caller.ask(Command::Get { jid: jid.clone() }).await?;
    match std::mem::replace(&mut answer.reply, Reply::Done) {
        Reply::Job(Some(job)) => Ok((job, answer)),
        _ => Err(Problem::no_job(&jid)),
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Jids {
    jids: Vec<Text>,
}

/// Several jobs by jid; those that do not exist are left out.
#[utoipa::path(post, path = "/api/v1/jobs/get", operation_id = "get_jobs", tag = "jobs",
    responses((status = 200, body = JobsDoc), Problems))]
pub(super) async fn get_many(caller: Caller, Json(wanted): Json<Jids>) -> Result<Response, Problem> {
    let jids = super::some_names(&caller, "jids", &wanted.jids)?;
    let answer = caller.ask(Command::GetMany { jids }).await?;
    super::jobs_answer(&answer)
}

/// Cancel a job, also one that runs: its worker is told, and the lock is gone.
#[utoipa::path(delete, path = "/api/v1/jobs/{jid}", operation_id = "cancel_job", tag = "jobs",
    responses((status = 204), Problems))]
pub(super) async fn cancel(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    match caller.ask(Command::Cancel { jids: vec![jid.clone()] }).await?.reply {
        Reply::Int(0) => Err(Problem::no_job(&jid)),
        _ => Ok(done()),
    }
}

/// Cancel several jobs, all or none. Jobs that others wait for can only be cancelled together with those.
#[utoipa::path(post, path = "/api/v1/jobs/cancel", operation_id = "cancel_jobs", tag = "jobs",
    responses((status = 200, body = CountDoc), Problems))]
pub(super) async fn cancel_many(caller: Caller, Json(wanted): Json<Jids>) -> Result<Response, Problem> {
    let jids = super::some_names(&caller, "jids", &wanted.jids)?;
    super::count_answer(&caller.ask(Command::Cancel { jids }).await?)
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Requeue {
    /// Into which queue; its own, or the one it failed in, if left out.
    queue: Option<Text>,
    delay: Option<f64>,
    priority: Option<f64>,
    retries: Option<f64>,
    tags: Option<Vec<Text>>,
    /// New data; what it has if left out.
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
    #[serde(default)]
    depends: Vec<Text>,
}

/// Put a job again: back into its queue or into another, from any state. A running one is taken from its worker.
#[utoipa::path(post, path = "/api/v1/jobs/{jid}/requeue", operation_id = "requeue_job", tag = "jobs",
    responses((status = 200, body = PutDoc), Problems))]
pub(super) async fn requeue(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<Requeue>,
) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    let queue = match &wanted.queue {
        Some(queue) => caller.name("queue", queue)?,
        None => own_queue(&find(&caller, jid.clone()).await?.0)?,
    };
    let tags = wanted.tags.as_ref().map(|tags| caller.names("tags", tags)).transpose()?;
    let put = Put {
        jid: jid.clone(),
        queue,
        worker: None,
        klass: None,
        data: document(&caller, "data", wanted.data.as_deref())?,
        delay: finite("delay", wanted.delay)?.unwrap_or(0.0),
        priority: finite("priority", wanted.priority)?,
        tags,
        retries: finite("retries", wanted.retries)?,
        depends: caller.names("depends", &wanted.depends)?,
        throttles: Vec::new(),
        when: PutWhen::Exists,
        trace: None,
    };
    caller.ask(Command::Put(Box::new(put))).await?;
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.string("jid", jid.bytes());
    object.raw("existing", b"true");
    object.end();
    Ok(json(StatusCode::OK, out))
}

/// The queue a job is in, failed in, or was last put into.
pub(super) fn own_queue(job: &JobView) -> Result<Name, Problem> {
    let failed = job.failure.as_ref().map(|failure| &failure.queue);
    let put = job.history.iter().rev().find_map(|entry| match &entry.what {
        haul_engine::What::Put(queue) => Some(queue),
        _ => None,
    });
    let known = [Some(&job.queue), failed, put].into_iter().flatten().find(|queue| !queue.is_empty());
    known.cloned().ok_or_else(|| Problem::bad("say into which queue"))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPriority {
    priority: f64,
}

/// Change a job's priority.
#[utoipa::path(put, path = "/api/v1/jobs/{jid}/priority", operation_id = "set_priority", tag = "jobs",
    responses((status = 204), Problems))]
pub(super) async fn priority(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<NewPriority>,
) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    caller.ask(Command::Priority { jid, priority: wanted.priority }).await?;
    Ok(done())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTags {
    tags: Vec<Text>,
}

/// Add tags to a job. Answers all it has.
#[utoipa::path(post, path = "/api/v1/jobs/{jid}/tags", operation_id = "tag_job", tag = "jobs",
    responses((status = 200, body = TagsDoc), Problems))]
pub(super) async fn tag(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<NewTags>,
) -> Result<Response, Problem> {
    let (jid, tags) = (caller.name("jid", &jid)?, caller.names("tags", &wanted.tags)?);
    names_answer("tags", &caller.ask(Command::Tag { jid, tags }).await?)
}

/// Take a tag off a job. Answers those it still has.
#[utoipa::path(delete, path = "/api/v1/jobs/{jid}/tags/{tag}", operation_id = "untag_job", tag = "jobs",
    responses((status = 200, body = TagsDoc), Problems))]
pub(super) async fn untag(
    caller: Caller,
    Path((jid, tag)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let (jid, tags) = (caller.name("jid", &jid)?, vec![caller.name("tag", &tag)?]);
    names_answer("tags", &caller.ask(Command::Untag { jid, tags }).await?)
}

/// Track a job: its events are told to everybody who listens.
#[utoipa::path(put, path = "/api/v1/jobs/{jid}/track", operation_id = "track_job", tag = "jobs",
    responses((status = 200, body = ChangedDoc), Problems))]
pub(super) async fn track(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    super::changed_answer(&caller.ask(Command::Track { jid }).await?)
}

/// Track a job no more.
#[utoipa::path(delete, path = "/api/v1/jobs/{jid}/track", operation_id = "untrack_job", tag = "jobs",
    responses((status = 200, body = ChangedDoc), Problems))]
pub(super) async fn untrack(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    super::changed_answer(&caller.ask(Command::Untrack { jid }).await?)
}

/// Tracked jobs, in the order in which they were tracked.
#[utoipa::path(get, path = "/api/v1/tracked", operation_id = "tracked_jobs", tag = "jobs", params(PageQuery),
    responses((status = 200, body = TrackedDoc), Problems))]
pub(super) async fn tracked(caller: Caller, Query(query): Query<PageQuery>) -> Result<Response, Problem> {
    let page = page(&caller, Listing::Tracked, &query).await?;
    let Reply::Tracked { jobs, expired } = &page.rows else { return Err(Problem::unexpected()) };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    push_list(object.key("jobs"), jobs, "[]", |out, job| push_job(out, job, &page.texts));
    push_names(object.key("expired"), expired);
    page.end(object);
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    message: String,
    /// An object or a list, kept with the message.
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
}

/// Write a line into a job's history.
#[utoipa::path(post, path = "/api/v1/jobs/{jid}/log", operation_id = "log_job", tag = "jobs",
    responses((status = 204), Problems))]
pub(super) async fn log(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<Log>,
) -> Result<Response, Problem> {
    let (jid, message) = (caller.name("jid", &jid)?, caller.name("message", &wanted.message)?);
    let data = document(&caller, "data", wanted.data.as_deref())?;
    if data.as_ref().is_some_and(|data| !matches!(data.first(), Some(b'{' | b'['))) {
        return Err(Problem::bad("data must be an object or a list"));
    }
    caller.ask(Command::Log { jid, message, data }).await?;
    Ok(done())
}

/// Make a job that waits for others wait for more.
#[utoipa::path(post, path = "/api/v1/jobs/{jid}/dependencies", operation_id = "add_dependencies", tag = "jobs",
    responses((status = 204), Problems))]
pub(super) async fn depend(
    caller: Caller,
    Path(jid): Path<String>,
    Json(wanted): Json<Jids>,
) -> Result<Response, Problem> {
    let (jid, jids) = (caller.name("jid", &jid)?, super::some_names(&caller, "jids", &wanted.jids)?);
    caller.ask(Command::Depends { jid, on: Some(true), jids, all: false }).await?;
    Ok(done())
}

/// Make a job wait for none of the others any more.
#[utoipa::path(delete, path = "/api/v1/jobs/{jid}/dependencies", operation_id = "drop_dependencies", tag = "jobs",
    responses((status = 204), Problems))]
pub(super) async fn depend_on_none(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    caller.ask(Command::Depends { jid, on: Some(false), jids: Vec::new(), all: true }).await?;
    Ok(done())
}

/// Make a job wait for another one no more.
#[utoipa::path(delete, path = "/api/v1/jobs/{jid}/dependencies/{other}", operation_id = "drop_dependency", tag = "jobs",
    responses((status = 204), Problems))]
pub(super) async fn undepend(
    caller: Caller,
    Path((jid, other)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let (jid, jids) = (caller.name("jid", &jid)?, vec![caller.name("jid", &other)?]);
    caller.ask(Command::Depends { jid, on: Some(false), jids, all: false }).await?;
    Ok(done())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wait {
    /// Seconds to wait for the job's end, at most 3600 [default: 0].
    #[param(minimum = 0, maximum = 3600)]
    wait: Option<f64>,
}

/// A job's result, as it was given: JSON if it is JSON, else plain bytes.
///
/// 204 while the job has not ended, or ended without one; 409 if it failed. The header `X-Haul-State` says how the job
/// is.
#[utoipa::path(get, path = "/api/v1/jobs/{jid}/result", operation_id = "job_result", tag = "jobs", params(Wait),
    responses((status = 200, description = "The result", content(
            (serde_json::Value = "application/json"), (String = "application/octet-stream"))),
        (status = 204, description = "None, or none yet"), Problems))]
pub(super) async fn result(
    caller: Caller,
    Path(jid): Path<String>,
    Query(query): Query<Wait>,
) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    let wait = finite("wait", query.wait)?.unwrap_or(0.0);
    if !(0.0..=RESULT_WAIT_MAX).contains(&wait) {
        return Err(Problem::bad(format!("wait is from 0 to {RESULT_WAIT_MAX} seconds (result-wait-max)")));
    }
    let deadline = clock::now() + wait;
    // Made before the first look: nothing that happens after it goes unheard.
    let mut watch = caller.server.bus.changed(&caller.tenant, &jid);
    loop {
        let (job, answer) = find(&caller, jid.clone()).await?;
        let ended = matches!(job.state, State::Complete | State::Failed);
        if ended || clock::now() >= deadline {
            return Ok(told(&job, &answer));
        }
        while clock::now() < deadline {
            if caller.server.is_stopping() {
                return Err(Problem::stopping());
            }
            let left = std::time::Duration::from_secs_f64((deadline - clock::now()).max(0.0));
            if tokio::time::timeout(left.min(STOP_LOOK_EVERY), watch.next()).await.is_ok() {
                break;
            }
        }
    }
}

fn told(job: &JobView, answer: &Answer) -> Response {
    let state = ("x-haul-state", job.state.word());
    if job.state == State::Failed {
        let failure = job.failure.as_ref();
        let group = failure.map_or_else(String::new, |failure| failure.group.to_string());
        let text = failure.map_or_else(String::new, |failure| {
            String::from_utf8_lossy(answer.texts.bytes(&failure.message)).into_owned()
        });
        let problem =
            Problem::new(StatusCode::CONFLICT, "FAILED", format!("the job failed: {group}: {text}"));
        return ([state], problem).into_response();
    }
    match &job.result {
        None => (StatusCode::NO_CONTENT, [state]).into_response(),
        Some(result) => {
            let bytes = answer.texts.bytes(result).to_vec();
            let is_json = crate::dialect::args::kind(&bytes).is_ok();
            let kind = if is_json { "application/json" } else { "application/octet-stream" };
            (StatusCode::OK, [state, (header::CONTENT_TYPE.as_str(), kind)], bytes).into_response()
        }
    }
}
