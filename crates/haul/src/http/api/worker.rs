//! Workers.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, Listing, Reply};

use super::done;
use super::page::{PageQuery, page};
use crate::dialect::json::Object;
use crate::dialect::native_shape::{push_names, push_reply};
use crate::http::body::{Json, Path, Query};
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{Problems, WorkerJobsDoc, WorkersDoc};

/// Workers, the most recently seen first.
#[utoipa::path(get, path = "/api/v1/workers", operation_id = "workers", tag = "workers", params(PageQuery),
    responses((status = 200, body = WorkersDoc), Problems))]
pub(super) async fn list(caller: Caller, Query(query): Query<PageQuery>) -> Result<Response, Problem> {
    let page = page(&caller, Listing::Workers, &query).await?;
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    push_reply(object.key("workers"), &page.rows, &page.texts);
    page.end(object);
    Ok(json(StatusCode::OK, out))
}

/// The jobs a worker holds: those whose lock ends first come first.
#[utoipa::path(get, path = "/api/v1/workers/{worker}", operation_id = "worker", tag = "workers", params(PageQuery),
    responses((status = 200, body = WorkerJobsDoc), Problems))]
pub(super) async fn get(
    caller: Caller,
    Path(worker): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let worker = caller.name("worker", &worker)?;
    let page = page(&caller, Listing::WorkerJobs(worker), &query).await?;
    let Reply::WorkerJobs { jobs, stalled } = &page.rows else { return Err(Problem::unexpected()) };
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    push_names(object.key("jobs"), jobs);
    push_names(object.key("stalled"), stalled);
    page.end(object);
    Ok(json(StatusCode::OK, out))
}

#[derive(serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkerChange {
    /// Take no more jobs; false takes that back.
    drain: bool,
}

/// Ask a worker to take no more jobs. It learns of it with its next sign of life.
#[utoipa::path(patch, path = "/api/v1/workers/{worker}", operation_id = "drain_worker", tag = "workers",
    responses((status = 204), Problems))]
pub(super) async fn change(
    caller: Caller,
    Path(worker): Path<String>,
    Json(wanted): Json<WorkerChange>,
) -> Result<Response, Problem> {
    let name = caller.name("worker", &worker)?;
    match caller.ask(Command::Drain { worker: name, drain: wanted.drain }).await?.reply {
        Reply::Bool(false) => {
            let message = format!("there is no worker {worker} that has registered");
            Err(Problem::new(StatusCode::NOT_FOUND, "NOWORKER", message))
        }
        _ => Ok(done()),
    }
}

/// Forget a worker. Its jobs stay locked until their locks end.
#[utoipa::path(delete, path = "/api/v1/workers/{worker}", operation_id = "forget_worker", tag = "workers",
    responses((status = 204), Problems))]
pub(super) async fn forget(caller: Caller, Path(worker): Path<String>) -> Result<Response, Problem> {
    let workers = vec![caller.name("worker", &worker)?];
    caller.ask(Command::Deregister { workers }).await?;
    Ok(done())
}
