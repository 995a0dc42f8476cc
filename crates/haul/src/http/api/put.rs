//! Putting jobs: one, a list, or a stream of lines.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::BytesMut;
use haul_engine::{Command, Name, Put, PutWhen, Reply};
use http_body_util::BodyExt;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::dialect::json::{Object, push_list};
use crate::dialect::native::{PutDocument, first_put_first, unique_jid};
use crate::dialect::native_shape::push_names;
use crate::http::body::{Document, Query, is_type, parse, parse_object, wrong_type};
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{Problems, PutDoc, PutStreamDoc, PutsDoc};

/// Jobs in one list at most.
pub(crate) const PUT_JOBS_MAX: usize = 10_000;
/// Lines of a stream that are put together.
const STREAM_LINES: usize = 1000;
/// Bytes of a stream that are put together, about.
const STREAM_BYTES: usize = 1 << 20;
/// Errors that the answer to a stream lists.
const STREAM_ERRORS_MAX: usize = 100;

/// What to do about a job that exists.
#[derive(Clone, Copy, Deserialize, ToSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum IfExists {
    /// Define it anew.
    Replace,
    /// Refuse the put.
    Refuse,
    /// Leave it as it is and answer its jid.
    Return,
}

/// One job or a list of them.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, clippy::large_enum_variant, reason = "described, never made")]
enum PutBody<'a> {
    One(PutDocument<'a>),
    Many(Vec<PutDocument<'a>>),
}

#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never made")]
enum PutAnswer {
    One(PutDoc),
    Many(PutsDoc),
}

#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never made")]
enum StreamAnswer {
    One(PutDoc),
    Stream(PutStreamDoc),
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PutQuery {
    /// What to do about a job that exists: `replace` it (the default for a jid), `refuse`, or `return` its jid and leave
    /// it as it is (the default for a unique key).
    #[param(inline)]
    if_exists: Option<IfExists>,
}

/// Put a job, a list of jobs, or a stream of them.
///
/// A document (`application/json`) is one job, or a list of at most 10,000 that is put whole or not at all. Lines of
/// documents (`application/x-ndjson`) are put as they arrive, each for itself; what was put stays when a later line is
/// wrong or the connection breaks, so name the jobs (`jid` or `unique`) if you may have to send them again.
///
/// `If-None-Match: *` refuses a job that exists with 412. `Idempotency-Key: k` is the same as `"unique": "k"` of one job.
#[utoipa::path(post, path = "/api/v1/jobs", operation_id = "put", tag = "jobs", params(PutQuery,
        ("If-None-Match" = Option<String>, Header, description = "`*`: refuse a job that exists", pattern = r"^\*$"),
        ("Idempotency-Key" = Option<String>, Header, description = "a unique key for one job")),
    request_body(content((PutBody = "application/json"), (String = "application/x-ndjson"))),
    responses((status = 201, description = "Put", body = PutAnswer),
        (status = 200, description = "It exists, or the lines were read", body = StreamAnswer), Problems))]
pub(super) async fn put(
    caller: Caller,
    Query(query): Query<PutQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    if is_type(&headers, "application/x-ndjson") {
        return stream(&caller, query.if_exists, request.into_body()).await;
    }
    let Document(bytes) = Document::from_request(request, &()).await?;
    if !is_type(&headers, "application/json") {
        return Err(wrong_type());
    }
    let refuse = refuses_existing(&headers)?;
    let if_exists = if refuse { Some(IfExists::Refuse) } else { query.if_exists };
    let answer = if bytes.trim_ascii_start().first() == Some(&b'[') {
        list(&caller, if_exists, parse_list(&bytes)?).await
    } else {
        one(&caller, if_exists, parse_object(&bytes)?, &headers).await
    };
    answer.map_err(|mut problem| {
        if refuse && problem.code == "EXISTS" {
            problem.status = StatusCode::PRECONDITION_FAILED;
        }
        problem
    })
}

fn parse_list(bytes: &[u8]) -> Result<Vec<PutDocument<'_>>, Problem> {
    let items: Vec<&serde_json::value::RawValue> = parse(bytes)?;
    items.into_iter().map(|item| parse_object(item.get().as_bytes())).collect()
}

fn refuses_existing(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers.get(header::IF_NONE_MATCH).map(header::HeaderValue::as_bytes) {
        None => Ok(false),
        Some(b"*") => Ok(true),
        Some(_) => Err(Problem::bad("If-None-Match takes * only: refuse a job that exists")),
    }
}

fn read(caller: &Caller, document: &PutDocument<'_>, if_exists: Option<IfExists>) -> Result<Put, Problem> {
    let lists = document.tags.iter().chain(&document.depends).chain(&document.throttles);
    let names = [&document.queue, &document.klass].into_iter().chain(&document.jid).chain(&document.unique);
    if names.chain(lists).any(String::is_empty) {
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "BADARG", "a name is empty"));
    }
    let mut put = document.to_put(caller.server.limits.data).map_err(Problem::bad)?;
    match if_exists {
        Some(IfExists::Replace) => put.when = PutWhen::Always,
        Some(IfExists::Refuse | IfExists::Return) => put.when = PutWhen::New,
        None => {}
    }
    put.trace = put.trace.or_else(|| caller.trace.clone());
    Ok(put)
}

/// Whether a job that exists is answered instead of refused.
fn returns(document: &PutDocument<'_>, if_exists: Option<IfExists>) -> bool {
    match if_exists {
        Some(IfExists::Return) => true,
        Some(_) => false,
        None => document.unique.is_some() && !document.nx,
    }
}

async fn one(
    caller: &Caller,
    if_exists: Option<IfExists>,
    mut document: PutDocument<'_>,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    if let Some(key) = headers.get("idempotency-key") {
        let key = std::str::from_utf8(key.as_bytes()).ok().filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| Problem::bad("Idempotency-Key is not text"))?;
        if document.unique.as_ref().is_some_and(|unique| unique != key) {
            return Err(Problem::bad("Idempotency-Key and unique differ"));
        }
        document.unique = Some(key.to_owned());
    }
    let put = read(caller, &document, if_exists)?;
    let jid = put.jid.clone();
    let (status, existing) = match caller.ask(Command::Put(Box::new(put))).await {
        Ok(_) => (StatusCode::CREATED, false),
        Err(problem) if problem.code == "EXISTS" && returns(&document, if_exists) => (StatusCode::OK, true),
        Err(problem) => return Err(problem),
    };
    let mut out = Vec::with_capacity(80);
    let mut object = Object::json(&mut out);
    object.string("jid", jid.bytes());
    object.raw("existing", if existing { b"true" } else { b"false" });
    object.end();
    Ok(json(status, out))
}

async fn list(
    caller: &Caller,
    if_exists: Option<IfExists>,
    documents: Vec<PutDocument<'_>>,
) -> Result<Response, Problem> {
    if documents.len() > PUT_JOBS_MAX {
        return Err(Problem::bad(format!(
            "a list of {} jobs is longer than the limit put-jobs-max, {PUT_JOBS_MAX}; send several, or lines (application/x-ndjson)",
            documents.len()
        )));
    }
    let mut puts = Vec::with_capacity(documents.len());
    let mut returned = false;
    for (at, document) in documents.iter().enumerate() {
        returned |= returns(document, if_exists);
        let put = read(caller, document, if_exists).map_err(|mut problem| {
            problem.message = format!("job {}: {}", at + 1, problem.message);
            problem
        })?;
        puts.push((put, document.is_unnamed()));
    }
    let puts = first_put_first(puts);
    let jids: Vec<Name> = if returned { put_new(caller, puts).await? } else { put_all(caller, puts).await? };
    let mut out = Vec::with_capacity(48 * jids.len());
    let mut object = Object::json(&mut out);
    push_names(object.key("jids"), &jids);
    object.end();
    Ok(json(StatusCode::CREATED, out))
}

/// All or none.
async fn put_all(caller: &Caller, puts: Vec<Put>) -> Result<Vec<Name>, Problem> {
    match caller.ask(Command::PutMany(puts)).await?.reply {
        Reply::Names(jids) => Ok(jids),
        _ => Err(Problem::unexpected()),
    }
}

/// Those that do not exist yet.
async fn put_new(caller: &Caller, puts: Vec<Put>) -> Result<Vec<Name>, Problem> {
    let jids = puts.iter().map(|put| put.jid.clone()).collect();
    let commands = puts.into_iter().map(|put| Command::Put(Box::new(put))).collect();
    for answer in caller.ask_all(commands).await? {
        match answer {
            Err(problem) if problem.code != "EXISTS" => return Err(problem),
            _ => {}
        }
    }
    Ok(jids)
}

/// What became of a stream so far.
#[derive(Default)]
struct Tally {
    put: usize,
    refused: usize,
    errors: Vec<(usize, &'static str, String)>,
    line: usize,
}

impl Tally {
    fn refuse(&mut self, line: usize, problem: &Problem) {
        self.refused += 1;
        if self.errors.len() < STREAM_ERRORS_MAX {
            self.errors.push((line, problem.code, problem.message.clone()));
        }
    }

    fn answer(&self) -> Response {
        let mut out = Vec::with_capacity(128);
        let mut object = Object::json(&mut out);
        object.count("put", self.put);
        object.count("refused", self.refused);
        push_list(object.key("errors"), &self.errors, "[]", |out, (line, code, message)| {
            let mut object = Object::json(out);
            object.count("line", *line);
            object.string("code", code.as_bytes());
            object.string("message", message.as_bytes());
            object.end();
        });
        object.end();
        json(StatusCode::OK, out)
    }
}

async fn stream(caller: &Caller, if_exists: Option<IfExists>, mut body: Body) -> Result<Response, Problem> {
    let line_max = caller.server.limits.wire.request_bytes_max;
    let (mut buffer, mut tally) = (BytesMut::new(), Tally::default());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::bad(format!("the stream broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        buffer.extend_from_slice(&data);
        if buffer.len() < STREAM_BYTES {
            continue;
        }
        match memchr::memrchr(b'\n', &buffer) {
            Some(end) => put_lines(caller, if_exists, &buffer.split_to(end + 1), &mut tally).await?,
            None if buffer.len() > line_max => {
                let message = format!("a line is longer than {line_max} bytes (request-bytes-max)");
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "TOOLARGE", message));
            }
            None => {}
        }
    }
    put_lines(caller, if_exists, &buffer, &mut tally).await?;
    Ok(tally.answer())
}

async fn put_lines(
    caller: &Caller,
    if_exists: Option<IfExists>,
    text: &[u8],
    tally: &mut Tally,
) -> Result<(), Problem> {
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    for chunk in lines.chunks(STREAM_LINES) {
        let (mut puts, mut asked) = (Vec::new(), Vec::new());
        for line in chunk {
            tally.line += 1;
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let document: Result<PutDocument<'_>, Problem> = parse_object(line);
            match document.and_then(|document| Ok((read(caller, &document, if_exists)?, document))) {
                Ok((put, document)) => {
                    asked.push((tally.line, returns(&document, if_exists)));
                    puts.push((put, document.is_unnamed()));
                }
                Err(problem) => tally.refuse(tally.line, &problem),
            }
        }
        if puts.is_empty() {
            continue;
        }
        let commands = first_put_first(puts).into_iter().map(|put| Command::Put(Box::new(put))).collect();
        for ((line, returned), answer) in asked.into_iter().zip(caller.ask_all(commands).await?) {
            match answer {
                Ok(_) => tally.put += 1,
                Err(problem) if returned && problem.code == "EXISTS" => {}
                Err(problem) => tally.refuse(line, &problem),
            }
        }
    }
    // The piece behind the last line end is empty and no line.
    tally.line = tally.line.saturating_sub(usize::from(text.ends_with(b"\n")));
    Ok(())
}

/// Which job a unique key stands for.
#[utoipa::path(get, path = "/api/v1/unique/{key}", operation_id = "unique_job", tag = "jobs",
    responses((status = 200, body = crate::http::schema::JobDoc), Problems))]
pub(super) async fn by_key(
    caller: Caller,
    crate::http::body::Path(key): crate::http::body::Path<String>,
) -> Result<Response, Problem> {
    let jid = unique_jid(&caller.name("key", &key)?);
    super::job::answer_job(&caller, jid).await
}
