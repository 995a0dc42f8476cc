//! What operators did.

use std::path::PathBuf;

use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::auth::{Role, audit};
use crate::http::body::Query;
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::{AuditDoc, Problems};

/// Entries shown at most.
const COUNT_MAX: usize = 1000;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// How many, at most 1000.
    #[param(default = 100, minimum = 0, maximum = 1000)]
    count: Option<usize>,
}

/// What operators did, the newest last: the tenant's, or with a token for the tenant * everybody's. Needs the role admin.
#[utoipa::path(get, path = "/api/v1/audit", operation_id = "audit", tag = "settings", params(Wanted),
    responses((status = 200, body = AuditDoc), Problems))]
pub(super) async fn list(caller: Caller, Query(wanted): Query<Wanted>) -> Result<Response, Problem> {
    caller.permit(Role::Admin)?;
    let count = wanted.count.unwrap_or(100);
    if count > COUNT_MAX {
        return Err(Problem::bad(format!("count is at most {COUNT_MAX}")));
    }
    let is_everybodys = caller.access.is_server_wide() && caller.tenant.is_empty();
    let tenant = (!is_everybodys).then(|| caller.tenant.clone());
    let folder = PathBuf::from(&caller.server.data_path);
    let read = tokio::task::spawn_blocking(move || audit::last(&folder, count, tenant.as_ref()));
    let lines = match read.await {
        Ok(Ok(lines)) => lines,
        Ok(Err(error)) => {
            let message = format!("the audit log cannot be read: {error}");
            return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "AUDIT", message));
        }
        Err(_) => return Err(Problem::stopping()),
    };
    Ok(json(StatusCode::OK, format!("{{\"entries\":[{}]}}", lines.join(",")).into_bytes()))
}
