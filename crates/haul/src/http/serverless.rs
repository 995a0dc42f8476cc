//! The serverless endpoints, as the older document writes them and in their clean forms. Every answer says `ok`; an error
//! is `{"ok":false,"error":"..."}`. They are not in `/openapi.json`, which describes the native interface: their bodies
//! are lines or bytes of any type, and several paths mean the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use haul_engine::{Command, JobView, Name, Reply, State, Text, What};
use haul_journal::{FullType, Post, WriteError, check_jobtype, check_tenant, lines, parse_iso};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::{Document, Path, Query, is_type};
use super::caller::{Answer, Caller, json};
use super::problem::Problem;
use crate::auth::action::{Action, Part as Fact};
use crate::auth::{self, Role};
use crate::clock;
use crate::dialect::json::{Object, push_json_string, push_list};
use crate::resp::Server;
use crate::serverless::handlers::{self, HANDLER_BYTES_MAX, Handler, Parts};
use crate::serverless::jobs::{RAN, SYSID};
use crate::serverless::{Daemon, now_ms, view};

/// Seconds a result is waited for at most.
const WAIT_MAX: f64 = 3600.0;
/// While waiting, whether the server stops is looked at this often.
const STOP_LOOK_EVERY: Duration = Duration::from_millis(250);

/// The routes.
pub(super) fn routes() -> Router<Arc<Server>> {
    let handler = get(get_handler).post(add_handler).put(add_handler).delete(delete_handler);
    Router::new()
        .route("/{client}/job/{type}/add", post(add_jobs))
        .route("/add", post(add_jobs_by_query))
        .route("/{client}/job/{type}", get(result))
        .route("/{client}/handler", get(list_handlers))
        .route("/{client}/handler/{type}", handler)
        .route("/{client}/handler/{type}/add", post(add_handler).put(add_handler))
        .route("/{client}/handler/{type}/delete", post(delete_handler).delete(delete_handler))
        .route("/{client}/handler/add/{type}", post(add_handler).put(add_handler))
        .route("/{client}/handler/add/{type}/add", post(add_handler).put(add_handler))
        .route("/{client}/handler/del/{type}", post(delete_handler).delete(delete_handler))
        .route("/{client}/handler/del/{type}/delete", post(delete_handler).delete(delete_handler))
        .route("/{client}/handler/get/{type}", get(get_handler))
        .route("/", get(alive))
        .route("/start", get(start).post(start))
        .route("/stop", get(stop).post(stop))
        .route("/quit", post(quit))
}

type Part<T> = Result<T, Problem>;

/// Whether a path is one of these: what refuses a request before it is routed says so in this form too.
pub(crate) fn is_path(path: &str) -> bool {
    let mut parts = path.trim_start_matches('/').split('/');
    match (parts.next(), parts.next()) {
        (Some("api" | "ui"), _) => false,
        (Some(_), Some("job" | "handler")) => true,
        (Some("add" | "start" | "stop" | "quit"), None) => true,
        _ => false,
    }
}

/// An error in this interface's form.
pub(crate) fn refused(problem: Problem) -> Response {
    let mut out = Vec::with_capacity(96);
    let mut object = Object::json(&mut out);
    object.raw("ok", b"false");
    object.string("error", problem.message.as_bytes());
    object.end();
    // The headers that go with such a status stay as they are everywhere.
    let plain = problem.into_response();
    let mut response = json(plain.status(), out);
    for (name, value) in plain.headers() {
        if name != axum::http::header::CONTENT_LENGTH {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
    response
}

/// The answer, or the error in this interface's form.
fn told(outcome: Result<Response, Problem>) -> Response {
    outcome.unwrap_or_else(refused)
}

impl From<WriteError> for Problem {
    fn from(error: WriteError) -> Self {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "JOURNAL", error.to_string())
    }
}

impl From<crate::serverless::jobs::StoreError> for Problem {
    fn from(error: crate::serverless::jobs::StoreError) -> Self {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "TRYAGAIN", error.to_string())
    }
}

/// Who asks for what of whom, checked.
struct Scope {
    caller: Caller,
    daemon: Arc<Daemon>,
    client: String,
}

impl Scope {
    fn new(caller: Part<Caller>, client: &str, needed: Role) -> Result<Self, Problem> {
        let mut caller = caller?;
        check_tenant(client).map_err(|error| Problem::bad(error.to_string()))?;
        if client == SYSID {
            return Err(Problem::bad("this name is the server's own"));
        }
        caller.tenant = auth::tenant(client.as_bytes());
        if !caller.access.admits(&caller.tenant) {
            let message = format!("this token is for the tenant {} only", caller.access.scope);
            return Err(Problem::new(StatusCode::FORBIDDEN, "NOPERM", message));
        }
        caller.permit(needed)?;
        let daemon = caller.server.serverless.get().cloned();
        let daemon = daemon.ok_or_else(|| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "OFF",
                "this server has no journal: serverless is off",
            )
        })?;
        // The default tenant has several names; one of them goes into the journal.
        let client = auth::tenant_text(&caller.tenant);
        Ok(Scope { caller, daemon, client })
    }

    fn jobtype(&self, text: &str) -> Result<FullType, Problem> {
        FullType::new(&self.client, text).map_err(|error| Problem::bad(error.to_string()))
    }
}

#[derive(Deserialize)]
struct When {
    dt: Option<String>,
    client: Option<String>,
    jobtype: Option<String>,
}

async fn add_jobs(
    caller: Part<Caller>,
    path: Part<Path<(String, String)>>,
    query: Part<Query<When>>,
    request: Request,
) -> Response {
    told(
        async {
            let Path((client, jobtype)) = path?;
            add(Scope::new(caller, &client, Role::Work)?, &jobtype, query?.0.dt, request).await
        }
        .await,
    )
}

async fn add_jobs_by_query(caller: Part<Caller>, query: Part<Query<When>>, request: Request) -> Response {
    told(
        async {
            let Query(When { dt, client, jobtype }) = query?;
            let missing = |what| Problem::bad(format!("{what} is missing"));
            let (client, jobtype) =
                (client.ok_or_else(|| missing("client"))?, jobtype.ok_or_else(|| missing("jobtype"))?);
            add(Scope::new(caller, &client, Role::Work)?, &jobtype, dt, request).await
        }
        .await,
    )
}

async fn add(scope: Scope, jobtype: &str, dt: Option<String>, request: Request) -> Result<Response, Problem> {
    let full = scope.jobtype(jobtype)?;
    let raw = is_type(request.headers(), "application/octet-stream");
    let Document(body) = Document::from_request(request, &()).await?;
    let due_ms = match dt {
        None => None,
        Some(text) => Some(parse_iso(&text).ok_or_else(|| {
            Problem::bad(format!(
                "dt is a date such as 2030-01-01T00:00:00Z or milliseconds since 1970, not {text}"
            ))
        })?),
    };
    let max = scope.caller.server.limits.data.data_bytes_max;
    let longest = if raw { Some(body.len()) } else { lines(&body).map(<[u8]>::len).max() };
    match longest {
        None => return Err(Problem::bad("there is no payload")),
        Some(bytes) if bytes > max => {
            let message =
                format!("a payload of {bytes} bytes is longer than the limit data-bytes-max, {max}");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "TOOLARGE", message));
        }
        Some(_) => {}
    }
    scope.daemon.identity().await?;
    let runs = scope.daemon.journal.write(&Post { full, body, raw, due_ms }, now_ms()).await?;
    let count: usize = runs.iter().map(|(_, count)| *count as usize).sum();
    let mut out = Vec::with_capacity(40 + 22 * count);
    let mut object = Object::json(&mut out);
    object.raw("ok", b"true");
    object.count("count", count);
    let ids = runs.iter().flat_map(|(first, count)| (0..*count).map(|by| first.advanced(by)));
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    push_list(object.key("ids"), &ids, "[]", |out, id| push_json_string(out, id.as_bytes()));
    object.end();
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize)]
struct Method {
    method: Option<String>,
}

async fn add_handler(
    caller: Part<Caller>,
    path: Part<Path<(String, String)>>,
    query: Part<Query<Method>>,
    request: Request,
) -> Response {
    told(
        async {
            let Path((client, jobtype)) = path?;
            let scope = Scope::new(caller, &client, Role::Operate)?;
            check_type(&jobtype)?;
            let is_json = is_type(request.headers(), "application/json");
            let Document(body) = Document::from_request(request, &()).await?;
            if body.len() > HANDLER_BYTES_MAX {
                let message = format!("a handler has at most {HANDLER_BYTES_MAX} bytes");
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "TOOLARGE", message));
            }
            let parts = if is_json {
                Parts::read(&body).map_err(Problem::bad)?
            } else {
                let text = std::str::from_utf8(&body).map_err(|_| Problem::bad("a handler is text"))?;
                let lang = query?.0.method.unwrap_or_default();
                Parts { lang, body: text.to_owned(), ..Parts::default() }
            };
            scope.daemon.identity().await?;
            let id = scope.daemon.journal.ids().take(now_ms(), 1).to_string();
            let handler = parts.check(&jobtype, &id).map_err(Problem::bad)?;
            let text = serde_json::to_string(&handler.parts).map_err(|_| Problem::unexpected())?;
            let option = handlers::option(&jobtype, &id);
            scope.daemon.jobs.set_option(&scope.caller.tenant, option, Some(Name::from(text))).await?;
            scope.daemon.reload(&scope.caller.tenant).await?;
            scope.caller.audit(action("handler-add", &jobtype, &id));
            tracing::info!(tenant = scope.client, jobtype, id, lang = handler.lang.word(), "handler added");
            let mut out = Vec::new();
            let mut object = Object::json(&mut out);
            object.raw("ok", b"true");
            object.string("id", id.as_bytes());
            object.end();
            Ok(json(StatusCode::OK, out))
        }
        .await,
    )
}

/// What the audit log says of a change of handlers.
fn action(what: &'static str, jobtype: &str, version: &str) -> Option<Action> {
    Action::new(
        what,
        [("jobtype", Fact::Name(Name::from(jobtype))), ("version", Fact::Name(Name::from(version)))],
    )
}

/// The name of a type that can have a handler: some would make paths mean two things.
fn check_type(jobtype: &str) -> Result<(), Problem> {
    check_jobtype(jobtype).map_err(|error| Problem::bad(error.to_string()))?;
    if matches!(jobtype, "add" | "del" | "get") {
        return Err(Problem::bad(format!("a job type of a handler cannot be called {jobtype}")));
    }
    Ok(())
}

async fn delete_handler(caller: Part<Caller>, path: Part<Path<(String, String)>>) -> Response {
    told(
        async {
            let Path((client, jobtype)) = path?;
            let scope = Scope::new(caller, &client, Role::Operate)?;
            check_type(&jobtype)?;
            // Another node may have been given one a moment ago.
            scope.daemon.reload(&scope.caller.tenant).await?;
            let versions = scope.daemon.handlers.versions(&scope.caller.tenant, &jobtype);
            for id in &versions {
                let option = handlers::option(&jobtype, id);
                scope.daemon.jobs.set_option(&scope.caller.tenant, option, None).await?;
            }
            scope.daemon.reload(&scope.caller.tenant).await?;
            scope.caller.audit(action("handler-delete", &jobtype, &versions.len().to_string()));
            let mut out = Vec::new();
            let mut object = Object::json(&mut out);
            object.raw("ok", b"true");
            object.count("count", versions.len());
            object.end();
            Ok(json(StatusCode::OK, out))
        }
        .await,
    )
}

fn push_handler(out: &mut Vec<u8>, client: &str, handler: &Handler) {
    let mut object = Object::json(out);
    object.string("id", handler.id.as_bytes());
    object.string("type", format!("{client}-{}", handler.jobtype).as_bytes());
    let made = haul_journal::Id::parse(&handler.id).map_or_else(String::new, |id| haul_journal::iso(id.ms));
    object.string("dt", made.as_bytes());
    let parts = &handler.parts;
    object.string("lang", parts.lang.as_bytes());
    object.string("body", parts.body.as_bytes());
    for (key, value) in [
        ("eid", &parts.eid),
        ("before", &parts.before),
        ("beforeEach", &parts.before_each),
        ("afterEach", &parts.after_each),
        ("options", &parts.options),
    ] {
        if let Some(value) = value {
            object.string(key, value.as_bytes());
        }
    }
    object.end();
}

async fn get_handler(caller: Part<Caller>, path: Part<Path<(String, String)>>) -> Response {
    told(
        async {
            let Path((client, jobtype)) = path?;
            let scope = Scope::new(caller, &client, Role::View)?;
            check_type(&jobtype)?;
            scope.daemon.reload(&scope.caller.tenant).await?;
            let handler = scope.daemon.handlers.newest(&scope.caller.tenant, &jobtype);
            let missing =
                || Problem::new(StatusCode::NOT_FOUND, "NOHANDLER", format!("{jobtype} has no handler"));
            let handler = handler.ok_or_else(missing)?;
            let mut out = Vec::new();
            push_handler(&mut out, &scope.client, &handler);
            Ok(json(StatusCode::OK, out))
        }
        .await,
    )
}

async fn list_handlers(caller: Part<Caller>, path: Part<Path<String>>) -> Response {
    told(
        async {
            let Path(client) = path?;
            let scope = Scope::new(caller, &client, Role::View)?;
            scope.daemon.reload(&scope.caller.tenant).await?;
            let handlers = scope.daemon.handlers.list(&scope.caller.tenant);
            let mut out = Vec::new();
            let mut object = Object::json(&mut out);
            object.raw("ok", b"true");
            push_list(object.key("handlers"), &handlers, "[]", |out, handler| {
                push_handler(out, &scope.client, handler);
            });
            let usage = scope.daemon.usage(&scope.caller.tenant);
            let mut used = Object::json(object.key("usage"));
            used.number("jobs", usage.jobs as f64);
            used.number("run_ms", (usage.run_micros / 1000) as f64);
            used.number("shared_ms", (usage.shared_micros / 1000) as f64);
            used.end();
            object.end();
            Ok(json(StatusCode::OK, out))
        }
        .await,
    )
}

#[derive(Deserialize)]
struct Wait {
    wait: Option<f64>,
}

/// What a job came to; waits for it if asked.
async fn result(
    caller: Part<Caller>,
    path: Part<Path<(String, String)>>,
    query: Part<Query<Wait>>,
) -> Response {
    told(
        async {
            let Path((client, id)) = path?;
            let scope = Scope::new(caller, &client, Role::View)?;
            let wait = query?.0.wait.unwrap_or(0.0);
            if !(0.0..=WAIT_MAX).contains(&wait) {
                return Err(Problem::bad(format!("wait is from 0 to {WAIT_MAX} seconds")));
            }
            let jid = scope.caller.name("id", &id)?;
            let deadline = clock::now() + wait;
            let mut watch = scope.caller.server.bus.changed(&scope.caller.tenant, &jid);
            loop {
                let answer = scope.caller.ask(Command::Get { jid: jid.clone() }).await?;
                let late = clock::now() >= deadline;
                match &answer.reply {
                    Reply::Job(Some(job)) if late || matches!(job.state, State::Complete | State::Failed) => {
                        return Ok(json(StatusCode::OK, entry(&scope.client, job, &answer)));
                    }
                    // Accepted a moment ago, it may still be in the journal.
                    Reply::Job(None) if late => return Err(Problem::no_job(&jid)),
                    _ => {}
                }
                if scope.caller.server.is_stopping() {
                    return Err(Problem::stopping());
                }
                let left = Duration::from_secs_f64((deadline - clock::now()).max(0.0));
                let _ = tokio::time::timeout(left.min(STOP_LOOK_EVERY), watch.next()).await;
            }
        }
        .await,
    )
}

/// A job's line of the scoreboard.
fn entry(client: &str, job: &JobView, answer: &Answer) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    let mut object = Object::json(&mut out);
    object.raw("ok", b"true");
    object.string("id", job.jid.bytes());
    object.string("type", format!("{client}-{}", job.klass).as_bytes());
    object.string("state", job.state.word().as_bytes());
    let ran = ran(job).map(|ran| answer.texts.bytes(ran));
    let kept: BTreeMap<&str, &RawValue> =
        ran.and_then(|ran| serde_json::from_slice(ran).ok()).unwrap_or_default();
    let is_failed = job.state == State::Failed;
    for (key, value) in &kept {
        // How a job that was given up ended is told by its group.
        if !(is_failed && matches!(*key, "code" | "exitcode")) {
            object.key_bytes(key.as_bytes()).extend_from_slice(value.get().as_bytes());
        }
    }
    if let Some(failure) = &job.failure {
        let group = failure.group.display();
        if let Some((code, exitcode)) = group.split_once('-') {
            object.string("code", code.as_bytes());
            if let Ok(exitcode) = exitcode.parse::<u16>() {
                object.count("exitcode", usize::from(exitcode));
            }
        }
        object.string("reason", answer.texts.bytes(&failure.message));
    }
    let done_ms = kept.get("done_dt").and_then(|text| parse_iso(text.get().trim_matches('"')));
    let seen = view::seen(job, done_ms);
    object.string("dt", haul_journal::iso(seen.dt_ms).as_bytes());
    object.string("lock", seen.lock.as_bytes());
    object.string("create_dt", haul_journal::iso(seen.create_ms).as_bytes());
    if let Some(done_ms) = seen.done_ms.filter(|_| done_ms.is_none()) {
        object.string("done_dt", haul_journal::iso(done_ms).as_bytes());
    }
    if !kept.contains_key("retry_count") {
        object.count("retry_count", seen.retries as usize);
    }
    object.end();
    out
}

/// What a job that has ended came to: its result, or the last such line of its history.
fn ran(job: &JobView) -> Option<&Text> {
    let line = |entry: &'_ haul_engine::Entry| matches!(&entry.what, What::Log(log) if log.0.bytes() == RAN.as_bytes());
    match job.state {
        State::Complete => job.result.as_ref(),
        State::Failed => match &job.history.iter().rev().find(|entry| line(entry))?.what {
            What::Log(log) => log.1.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

async fn alive(caller: Part<Caller>) -> Response {
    told(caller.map(|_| "OK\n".into_response()))
}

/// What concerns the whole server.
fn whole_server(caller: Part<Caller>) -> Result<Scope, Problem> {
    let scope = Scope::new(caller, "default", Role::Admin)?;
    if !scope.caller.access.is_server_wide() {
        let message = "this concerns all tenants and needs a token for the tenant *";
        return Err(Problem::new(StatusCode::FORBIDDEN, "NOPERM", message));
    }
    Ok(scope)
}

fn set_running(caller: Part<Caller>, on: bool) -> Response {
    told(whole_server(caller).map(|scope| {
        scope.daemon.set_running(on);
        json(StatusCode::OK, b"{\"ok\":true}".to_vec())
    }))
}

async fn start(caller: Part<Caller>) -> Response {
    set_running(caller, true)
}

async fn stop(caller: Part<Caller>) -> Response {
    set_running(caller, false)
}

async fn quit(caller: Part<Caller>) -> Response {
    told(whole_server(caller).and_then(|_| {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
            .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "QUIT", error.to_string()))?;
        Ok(json(StatusCode::OK, b"{\"ok\":true}".to_vec()))
    }))
}
