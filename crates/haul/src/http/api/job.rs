//! One job: looking at it and changing it.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, Reply};

use crate::dialect::native_shape;
use crate::http::body::Path;
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{ErrorDoc, JobDoc};

/// A job.
#[utoipa::path(get, path = "/api/v1/jobs/{jid}", tag = "jobs",
    responses((status = 200, body = JobDoc), (status = "4XX", body = ErrorDoc), (status = "5XX", body = ErrorDoc)))]
pub(super) async fn get(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    let answer = caller.ask(Command::Get { jid: jid.clone() }).await?;
    let Reply::Job(Some(job)) = &answer.reply else { return Err(Problem::no_job(&jid)) };
    let mut out = Vec::with_capacity(512);
    native_shape::push_job(&mut out, job, &answer.texts);
    Ok(json(StatusCode::OK, out))
}
