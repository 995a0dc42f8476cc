//! The native interface: everything the engine can do, as JSON under `/api/v1`. `/openapi.json` describes it and is made
//! from the same lines that route it.

mod audit;
mod backup;
pub(crate) mod cluster;
mod failure;
mod handler;
mod job;
mod operation;
mod overview;
mod page;
mod put;
mod queue;
mod recur;
mod search;
mod setting;
mod tenant;
mod why;
mod work;
mod worker;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use haul_engine::{Name, Reply};
use serde_json::value::RawValue;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Text;
use super::caller::{Answer, Caller, json};
use super::problem::Problem;
use crate::dialect::args;
use crate::dialect::json::{Object, push_list};
use crate::dialect::native_shape::{push_job, push_names, push_reply};
use crate::resp::Server;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Haul",
        description = "A durable job queue: what is acknowledged is never lost, and nothing runs twice at once."
    ),
    components(schemas(super::schema::ErrorDoc))
)]
struct Api;

/// The routes and their description.
pub(super) fn routes() -> (Router<Arc<Server>>, Description) {
    let (routes, mut document) = OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(search::search, put::put))
        .routes(routes!(put::by_key))
        .routes(routes!(job::get, job::cancel))
        .routes(routes!(job::get_many))
        .routes(routes!(job::cancel_many))
        .routes(routes!(job::requeue))
        .routes(routes!(job::priority))
        .routes(routes!(job::tag))
        .routes(routes!(job::untag))
        .routes(routes!(job::track, job::untrack))
        .routes(routes!(job::tracked))
        .routes(routes!(job::log))
        .routes(routes!(job::depend, job::depend_on_none))
        .routes(routes!(job::undepend))
        .routes(routes!(job::result))
        .routes(routes!(why::why))
        .routes(routes!(work::pop))
        .routes(routes!(work::heartbeat))
        .routes(routes!(work::heartbeat_many))
        .routes(routes!(work::complete))
        .routes(routes!(work::complete_many))
        .routes(routes!(work::fail))
        .routes(routes!(work::retry))
        .routes(routes!(work::release))
        .routes(routes!(work::report))
        .routes(routes!(queue::list))
        .routes(routes!(queue::get, queue::change, queue::forget))
        .routes(routes!(queue::backlog))
        .routes(routes!(queue::stats))
        .routes(routes!(queue::peek))
        .routes(routes!(worker::list))
        .routes(routes!(worker::get, worker::change, worker::forget))
        .routes(routes!(failure::list))
        .routes(routes!(failure::retry))
        .routes(routes!(failure::move_to))
        .routes(routes!(failure::cancel))
        .routes(routes!(recur::list, recur::put))
        .routes(routes!(recur::get, recur::change, recur::end))
        .routes(routes!(recur::run))
        .routes(routes!(setting::options))
        .routes(routes!(setting::option, setting::set_option, setting::unset_option))
        .routes(routes!(setting::throttles))
        .routes(routes!(setting::throttle, setting::set_throttle, setting::delete_throttle))
        .routes(routes!(setting::release_throttle))
        .routes(routes!(setting::tags))
        .routes(routes!(setting::info))
        .routes(routes!(crate::http::events::stream))
        .routes(routes!(audit::list))
        .routes(routes!(cluster::cluster))
        .routes(routes!(backup::backup))
        .routes(routes!(overview::overview))
        .routes(routes!(overview::trend))
        .routes(routes!(overview::failures))
        .routes(routes!(handler::list))
        .routes(routes!(handler::get))
        .routes(routes!(tenant::list))
        .routes(routes!(operation::list, operation::begin))
        .routes(routes!(operation::get, operation::stop))
        .routes(routes!(crate::http::ui::session::me))
        .routes(routes!(crate::http::ui::session::login))
        .routes(routes!(crate::http::ui::session::logout))
        .split_for_parts();
    complete_description(&mut document);
    (routes, document)
}

/// What the derived description cannot say: documents take no members but those described (entries of a history and of the
/// audit log have more, by their kind), and names are not empty.
fn complete_description(document: &mut Description) {
    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::{AdditionalProperties, Schema};
    for (name, schema) in document.components.iter_mut().flat_map(|components| &mut components.schemas) {
        let RefOr::T(Schema::Object(object)) = schema else { continue };
        if name == "Name" {
            object.min_length = Some(1);
        }
        if !["Entry", "AuditEntry"].contains(&name.as_str()) && !object.properties.is_empty() {
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        }
    }
}

/// It is done; nothing to say.
fn done() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

fn finite(what: &str, value: Option<f64>) -> Result<Option<f64>, Problem> {
    match value {
        Some(value) if !value.is_finite() => Err(Problem::bad(format!("{what} must be a number"))),
        value => Ok(value),
    }
}

/// At least one name.
fn some_names(caller: &Caller, what: &str, list: &[Text]) -> Result<Vec<Name>, Problem> {
    if list.is_empty() {
        return Err(Problem::bad(format!("{what} is empty")));
    }
    caller.names(what, list)
}

/// A text within the limit for data.
fn bounded(caller: &Caller, what: &str, text: Bytes) -> Result<Bytes, Problem> {
    let max = caller.server.limits.data.data_bytes_max;
    if text.len() > max {
        let message =
            format!("{what} of {} bytes is longer than the limit data-bytes-max, {max}", text.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "TOOLARGE", message));
    }
    Ok(text)
}

/// A JSON value to keep, as it was written.
pub(super) fn document(
    caller: &Caller,
    what: &str,
    raw: Option<&RawValue>,
) -> Result<Option<Bytes>, Problem> {
    let Some(raw) = raw else { return Ok(None) };
    let text = raw.get().as_bytes();
    args::kind(text).map_err(|error| Problem::bad(format!("{what} cannot be kept: {error}")))?;
    bounded(caller, what, Bytes::copy_from_slice(text)).map(Some)
}

/// An answer that is written the same for `HAUL.*`.
fn plain_answer(answer: &Answer) -> Result<Response, Problem> {
    let mut out = Vec::with_capacity(256);
    push_reply(&mut out, &answer.reply, &answer.texts);
    Ok(json(StatusCode::OK, out))
}

fn jobs_answer(answer: &Answer) -> Result<Response, Problem> {
    let Reply::Jobs(jobs) = &answer.reply else { return Err(Problem::unexpected()) };
    let mut out = Vec::with_capacity(64 + 384 * jobs.len());
    let mut object = Object::json(&mut out);
    push_list(object.key("jobs"), jobs, "[]", |out, job| push_job(out, job, &answer.texts));
    object.end();
    Ok(json(StatusCode::OK, out))
}

fn names_answer(key: &'static str, answer: &Answer) -> Result<Response, Problem> {
    let Reply::Names(names) = &answer.reply else { return Err(Problem::unexpected()) };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    push_names(object.key(key), names);
    object.end();
    Ok(json(StatusCode::OK, out))
}

fn count_answer(answer: &Answer) -> Result<Response, Problem> {
    let Reply::Int(count) = answer.reply else { return Err(Problem::unexpected()) };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.number("jobs", count as f64);
    object.end();
    Ok(json(StatusCode::OK, out))
}

fn changed_answer(answer: &Answer) -> Result<Response, Problem> {
    let Reply::Bool(changed) = answer.reply else { return Err(Problem::unexpected()) };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.raw("changed", if changed { b"true" } else { b"false" });
    object.end();
    Ok(json(StatusCode::OK, out))
}

/// A field that may be left out, null, or a value: three different things.
mod nullable {
    use serde::{Deserialize, Deserializer};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Option<f64>>, D::Error> {
        Option::<f64>::deserialize(input).map(Some)
    }
}
