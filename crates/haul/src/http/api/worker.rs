//! Workers.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::Command;

use super::done;
use crate::dialect::json::Object;
use crate::dialect::native_shape::push_reply;
use crate::http::body::Path;
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{Problems, WorkerJobsDoc, WorkersDoc};

/// All workers, the most recently seen first.
#[utoipa::path(get, path = "/api/v1/workers", operation_id = "workers", tag = "workers",
    responses((status = 200, body = WorkersDoc), Problems))]
pub(super) async fn list(caller: Caller) -> Result<Response, Problem> {
    let answer = caller.ask(Command::Workers).await?;
    let mut out = Vec::new();
    let mut object = Object::json(&mut out);
    push_reply(object.key("workers"), &answer.reply, &answer.texts);
    object.end();
    Ok(json(StatusCode::OK, out))
}

/// The jobs a worker holds.
#[utoipa::path(get, path = "/api/v1/workers/{worker}", operation_id = "worker", tag = "workers",
    responses((status = 200, body = WorkerJobsDoc), Problems))]
pub(super) async fn get(caller: Caller, Path(worker): Path<String>) -> Result<Response, Problem> {
    let worker = caller.name("worker", &worker)?;
    super::plain_answer(&caller.ask(Command::WorkerJobs { worker }).await?)
}

/// Forget a worker. Its jobs stay locked until their locks end.
#[utoipa::path(delete, path = "/api/v1/workers/{worker}", operation_id = "forget_worker", tag = "workers",
    responses((status = 204), Problems))]
pub(super) async fn forget(caller: Caller, Path(worker): Path<String>) -> Result<Response, Problem> {
    let workers = vec![caller.name("worker", &worker)?];
    caller.ask(Command::Deregister { workers }).await?;
    Ok(done())
}
