//! Handlers: stored code by job type, its versions, and what came of the jobs each has run.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::Name;
use serde::Serialize;
use utoipa::ToSchema;

use super::overview::answer;
use super::page::{PageQuery, of_names};
use crate::auth::Role;
use crate::http::body::{Path, Query};
use crate::http::caller::Caller;
use crate::http::problem::Problem;
use crate::http::schema::Problems;
use crate::serverless::Tally;
use crate::serverless::handlers::Handler;

/// Versions of a handler that are told, the newest first.
const VERSIONS_MAX: usize = 100;

/// What came of the jobs that a version has run since the server was started.
#[derive(Serialize, ToSchema)]
#[schema(as = HandlerOutcomes)]
struct OutcomesDoc {
    /// Done.
    ok: u64,
    /// Ended without success.
    failed: u64,
    /// Given back by the handler, to be run again.
    retry: u64,
    /// Something went wrong around it; run again.
    error: u64,
    /// Mean milliseconds of a run.
    #[schema(required)]
    ms: Option<f64>,
}

/// One version of a handler.
#[derive(Serialize, ToSchema)]
#[schema(as = HandlerVersion)]
struct VersionDoc {
    id: String,
    /// When it was stored, in seconds since 1970.
    #[schema(required)]
    made_at: Option<f64>,
    lang: &'static str,
    outcomes: OutcomesDoc,
    /// The code; told only of one type.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before_each: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_each: Option<String>,
    /// As JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<String>,
}

/// A handler: the newest of its versions runs the jobs of its type, which are in the queue of that name.
#[derive(Serialize, ToSchema)]
#[schema(as = Handler)]
pub(super) struct HandlerDoc {
    #[serde(rename = "type")]
    jobtype: String,
    /// The newest first; in a list only the newest.
    versions: Vec<VersionDoc>,
    versions_total: usize,
}

/// Handlers, by type.
#[derive(Serialize, ToSchema)]
#[schema(as = Handlers)]
pub(super) struct HandlersDoc {
    handlers: Vec<HandlerDoc>,
    /// How many there are on all pages together.
    total: usize,
    /// The cursor of the next page; null: this is the last.
    #[schema(required)]
    next: Option<String>,
}

fn version(handler: &Handler, tally: Tally, whole: bool) -> VersionDoc {
    let part = |text: &Option<String>| text.clone().filter(|_| whole);
    let runs = tally.ok + tally.failed + tally.retry + tally.error;
    VersionDoc {
        id: handler.id.clone(),
        made_at: haul_journal::Id::parse(&handler.id).map(|id| id.ms as f64 / 1000.0),
        lang: handler.lang.word(),
        outcomes: OutcomesDoc {
            ok: tally.ok,
            failed: tally.failed,
            retry: tally.retry,
            error: tally.error,
            ms: (runs > 0).then(|| tally.run_micros as f64 / 1000.0 / runs as f64),
        },
        body: Some(handler.parts.body.clone()).filter(|_| whole),
        before: part(&handler.parts.before),
        before_each: part(&handler.parts.before_each),
        after_each: part(&handler.parts.after_each),
        options: part(&handler.parts.options),
    }
}

/// The handlers of the tenant, by type, each with its newest version.
#[utoipa::path(get, path = "/api/v1/handlers", operation_id = "handlers", tag = "handlers", params(PageQuery),
    responses((status = 200, body = HandlersDoc), Problems))]
pub(super) async fn list(caller: Caller, Query(query): Query<PageQuery>) -> Result<Response, Problem> {
    caller.permit(Role::View)?;
    let Some(daemon) = caller.server.serverless.get() else {
        of_names(&[], &query)?;
        return answer(&HandlersDoc { handlers: Vec::new(), total: 0, next: None });
    };
    daemon.reload(&caller.tenant).await?;
    let newest = daemon.handlers.list(&caller.tenant);
    let types: Vec<Name> = newest.iter().map(|handler| Name::from(handler.jobtype.as_str())).collect();
    let (rows, next) = of_names(&types, &query)?;
    let wanted = |handler: &&std::sync::Arc<Handler>| {
        rows.binary_search(&Name::from(handler.jobtype.as_str())).is_ok()
    };
    let handlers = newest.iter().filter(wanted).map(|handler| HandlerDoc {
        jobtype: handler.jobtype.clone(),
        versions: vec![version(handler, daemon.tally(&caller.tenant, handler), false)],
        versions_total: daemon.handlers.versions(&caller.tenant, &handler.jobtype).len(),
    });
    answer(&HandlersDoc { handlers: handlers.collect(), total: types.len(), next })
}

/// A handler with its code, its hundred newest versions, and what came of the jobs each has run.
#[utoipa::path(get, path = "/api/v1/handlers/{type}", operation_id = "handler", tag = "handlers",
    responses((status = 200, body = HandlerDoc), Problems))]
pub(super) async fn get(caller: Caller, Path(jobtype): Path<String>) -> Result<Response, Problem> {
    caller.permit(Role::View)?;
    let missing = || Problem::new(StatusCode::NOT_FOUND, "NOHANDLER", format!("{jobtype} has no handler"));
    let daemon = caller.server.serverless.get().ok_or_else(missing)?;
    daemon.reload(&caller.tenant).await?;
    let all = daemon.handlers.all_versions(&caller.tenant, &jobtype);
    if all.is_empty() {
        return Err(missing());
    }
    let told = all.iter().rev().take(VERSIONS_MAX).enumerate();
    let versions: Vec<VersionDoc> =
        told.map(|(at, handler)| version(handler, daemon.tally(&caller.tenant, handler), at == 0)).collect();
    answer(&HandlerDoc { jobtype, versions, versions_total: all.len() })
}
