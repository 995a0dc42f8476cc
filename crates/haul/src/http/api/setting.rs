//! What can be set (options, throttles), tags, and the server itself.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, Listing, Name, Reply, ThrottleView};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::page::{LIMIT, PageQuery, first, limit, page};
use super::{done, finite, names_answer};
use crate::clock;
use crate::dialect::json::{Object, push_list};
use crate::dialect::native_shape::{option_default, push_exact, push_names, push_options_of};
use crate::http::body::{Json, Path, Query, Text};
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{InfoDoc, OptionsDoc, Problems, TagsDoc, ThrottleJobsDoc, ThrottlesDoc};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OptionsQuery {
    /// Only those that begin with this.
    prefix: Option<String>,
    /// Where the page before ended: its `next`.
    #[param(pattern = "^([0-9a-f]{2})+$")]
    cursor: Option<String>,
    /// Options that are set, at most 1000 [default: 100].
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Options that have a value, by name; on the first page also those that have only their default.
#[utoipa::path(get, path = "/api/v1/config", operation_id = "options", tag = "settings", params(OptionsQuery),
    responses((status = 200, body = OptionsDoc), Problems))]
pub(super) async fn options(caller: Caller, Query(query): Query<OptionsQuery>) -> Result<Response, Problem> {
    let prefix = match query.prefix.as_deref() {
        None | Some("") => Name::new(b""),
        Some(prefix) => caller.name("prefix", prefix)?,
    };
    let is_first = query.cursor.is_none();
    let wanted = PageQuery { cursor: query.cursor, limit: query.limit };
    let page = page(&caller, Listing::Options { prefix: prefix.clone() }, &wanted).await?;
    let Reply::Options(options) = &page.rows else { return Err(Problem::unexpected()) };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    push_options_of(object.key("options"), options, is_first.then_some(prefix.bytes()));
    page.end(object);
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OptionValue {
    value: String,
}

/// An option's value.
#[utoipa::path(get, path = "/api/v1/config/{option}", operation_id = "option", tag = "settings",
    responses((status = 200, body = OptionValue), Problems))]
pub(super) async fn option(caller: Caller, Path(option): Path<String>) -> Result<Response, Problem> {
    let name = caller.name("option", &option)?;
    let Reply::Option(value) = caller.ask(Command::ConfigGet { option: name.clone() }).await?.reply else {
        return Err(Problem::unexpected());
    };
    let value = value.map(|value| value.bytes().to_vec());
    let value = value.or_else(|| option_default(&name).map(|text| text.as_bytes().to_vec()));
    let Some(value) = value else {
        let message = format!("the option {option} is not set and has no default");
        return Err(Problem::new(StatusCode::NOT_FOUND, "NOOPTION", message));
    };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.string("value", &value);
    object.end();
    Ok(json(StatusCode::OK, out))
}

/// Set an option.
#[utoipa::path(put, path = "/api/v1/config/{option}", operation_id = "set_option", tag = "settings",
    responses((status = 204), Problems))]
pub(super) async fn set_option(
    caller: Caller,
    Path(option): Path<String>,
    Json(wanted): Json<OptionValue>,
) -> Result<Response, Problem> {
    let (option, value) = (caller.name("option", &option)?, caller.name("value", &wanted.value)?);
    caller.ask(Command::ConfigSet { option, value }).await?;
    Ok(done())
}

/// Set an option back to its default.
#[utoipa::path(delete, path = "/api/v1/config/{option}", operation_id = "unset_option", tag = "settings",
    responses((status = 204), Problems))]
pub(super) async fn unset_option(caller: Caller, Path(option): Path<String>) -> Result<Response, Problem> {
    let option = caller.name("option", &option)?;
    caller.ask(Command::ConfigUnset { option }).await?;
    Ok(done())
}

fn push_throttle(object: &mut Object<'_>, throttle: &ThrottleView) {
    object.string("id", throttle.id.bytes());
    object.number("maximum", throttle.maximum);
    object.number("ttl", throttle.ttl);
}

/// The throttles that are set, by name.
#[utoipa::path(get, path = "/api/v1/throttles", operation_id = "throttles", tag = "settings", params(PageQuery),
    responses((status = 200, body = ThrottlesDoc), Problems))]
pub(super) async fn throttles(caller: Caller, Query(query): Query<PageQuery>) -> Result<Response, Problem> {
    let page = page(&caller, Listing::Throttles, &query).await?;
    let Reply::Throttles(found) = &page.rows else { return Err(Problem::unexpected()) };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    push_list(object.key("throttles"), found, "[]", |out, throttle| {
        let mut object = Object::json(out);
        push_throttle(&mut object, throttle);
        object.end();
    });
    page.end(object);
    Ok(json(StatusCode::OK, out))
}

/// A throttle, and the jobs under it: the first hundred that run, the first hundred held back, and how many there are.
#[utoipa::path(get, path = "/api/v1/throttles/{id}", operation_id = "throttle", tag = "settings",
    responses((status = 200, body = ThrottleJobsDoc), Problems))]
pub(super) async fn throttle(caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    let name = caller.name("id", &id)?;
    let Reply::Throttle(throttle) = caller.ask(Command::ThrottleGet { id: name.clone() }).await?.reply else {
        return Err(Problem::unexpected());
    };
    if throttle.ttl < -1.0 {
        return Err(Problem::new(StatusCode::NOT_FOUND, "NOTHROTTLE", format!("there is no throttle {id}")));
    }
    let locks = first(&caller, Listing::ThrottleLocks(name.clone()), LIMIT).await?;
    let pending = first(&caller, Listing::ThrottlePending(name), LIMIT).await?;
    let (Reply::Names(running), Reply::Names(held)) = (&locks.rows, &pending.rows) else {
        return Err(Problem::unexpected());
    };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    push_throttle(&mut object, &throttle);
    push_names(object.key("locks"), running);
    object.count("locks_total", locks.total);
    push_names(object.key("pending"), held);
    object.count("pending_total", pending.total);
    object.end();
    Ok(json(StatusCode::OK, out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewThrottle {
    /// 0: no limit.
    #[schema(minimum = 0)]
    maximum: f64,
    /// Seconds after which it ends by itself.
    ttl: Option<f64>,
}

/// Set a throttle.
#[utoipa::path(put, path = "/api/v1/throttles/{id}", operation_id = "set_throttle", tag = "settings",
    responses((status = 204), Problems))]
pub(super) async fn set_throttle(
    caller: Caller,
    Path(id): Path<String>,
    Json(wanted): Json<NewThrottle>,
) -> Result<Response, Problem> {
    if wanted.maximum.fract() != 0.0 || !(0.0..=9e15).contains(&wanted.maximum) {
        return Err(Problem::bad("maximum must be a whole number from 0"));
    }
    let (id, ttl) = (caller.name("id", &id)?, finite("ttl", wanted.ttl)?.unwrap_or(0.0));
    caller.ask(Command::ThrottleSet { id, maximum: wanted.maximum, ttl }).await?;
    Ok(done())
}

/// Delete a throttle: what it held back goes on.
#[utoipa::path(delete, path = "/api/v1/throttles/{id}", operation_id = "delete_throttle", tag = "settings",
    responses((status = 204), Problems))]
pub(super) async fn delete_throttle(caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = caller.name("id", &id)?;
    caller.ask(Command::ThrottleDelete { id }).await?;
    Ok(done())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    jids: Vec<Text>,
}

/// Take a throttle's locks from jobs, so that others may run beside them.
#[utoipa::path(post, path = "/api/v1/throttles/{id}/release", operation_id = "release_throttle", tag = "settings",
    responses((status = 204), Problems))]
pub(super) async fn release_throttle(
    caller: Caller,
    Path(id): Path<String>,
    Json(wanted): Json<Release>,
) -> Result<Response, Problem> {
    let (id, jids) = (caller.name("id", &id)?, super::some_names(&caller, "jids", &wanted.jids)?);
    caller.ask(Command::ThrottleRelease { id, jids }).await?;
    Ok(done())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TagsQuery {
    /// At most 1000 [default: 25].
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The tags used most, by at least two jobs.
#[utoipa::path(get, path = "/api/v1/tags", operation_id = "tags", tag = "jobs", params(TagsQuery),
    responses((status = 200, body = TagsDoc), Problems))]
pub(super) async fn tags(caller: Caller, Query(query): Query<TagsQuery>) -> Result<Response, Problem> {
    let count = limit(query.limit, 25)?;
    names_answer("tags", &caller.ask(Command::TopTags { offset: 0, count: Some(count) }).await?)
}

/// The server and the tenant, in a few figures.
#[utoipa::path(get, path = "/api/v1/info", operation_id = "info", tag = "settings",
    responses((status = 200, body = InfoDoc), Problems))]
pub(super) async fn info(caller: Caller) -> Result<Response, Problem> {
    let Reply::Totals(totals) = caller.ask(Command::Totals).await?.reply else {
        return Err(Problem::unexpected());
    };
    let now = clock::now();
    let tenant = if caller.tenant.is_empty() { "default".into() } else { caller.tenant.display() };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    object.string("version", env!("CARGO_PKG_VERSION").as_bytes());
    object.string("durability", caller.server.durability.as_bytes());
    push_exact(object.key("now"), now);
    push_exact(object.key("uptime"), now - caller.server.started_at);
    object.string("tenant", tenant.as_bytes());
    object.count("jobs", totals.jobs);
    object.count("queues", totals.queues);
    object.count("workers", totals.workers);
    object.end();
    Ok(json(StatusCode::OK, out))
}
