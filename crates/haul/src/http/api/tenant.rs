//! The tenants there are, for those who may choose.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, Reply, Totals};
use serde::Serialize;
use utoipa::ToSchema;

use super::overview::answer;
use super::page::{PageQuery, of_names};
use crate::auth::tenant_text;
use crate::dialect::plain::to_text;
use crate::http::body::Query;
use crate::http::caller::Caller;
use crate::http::problem::Problem;
use crate::http::schema::Problems;

/// A tenant: a world of its own.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenant)]
struct TenantDoc {
    name: String,
    jobs: usize,
    queues: usize,
    workers: usize,
    /// Job types that have a handler.
    handlers: usize,
}

/// Tenants, by name.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenants)]
pub(super) struct TenantsDoc {
    tenants: Vec<TenantDoc>,
    /// How many there are on all pages together.
    total: usize,
    /// The cursor of the next page; null: this is the last.
    #[schema(required)]
    next: Option<String>,
}

/// The tenants that have anything. Needs a token for all tenants.
#[utoipa::path(get, path = "/api/v1/tenants", operation_id = "tenants", tag = "settings", params(PageQuery),
    responses((status = 200, body = TenantsDoc), Problems))]
pub(super) async fn list(caller: Caller, Query(query): Query<PageQuery>) -> Result<Response, Problem> {
    if !caller.access.is_server_wide() {
        let message = "this concerns all tenants and needs a token for the tenant *";
        return Err(Problem::new(StatusCode::FORBIDDEN, "NOPERM", message));
    }
    let Reply::Names(mut names) = caller.ask(Command::Tenants).await?.reply else {
        return Err(Problem::unexpected());
    };
    names.retain(|name| name.bytes() != crate::serverless::jobs::SYSID.as_bytes());
    names.sort_unstable();
    let (rows, next) = of_names(&names, &query)?;
    let mut tenants = Vec::with_capacity(rows.len());
    for name in &rows {
        let Reply::Totals(Totals { jobs, queues, workers, .. }) =
            caller.ask_as(name, Command::Totals).await?.reply
        else {
            return Err(Problem::unexpected());
        };
        let daemon = caller.server.serverless.get();
        let handlers = daemon.map_or(0, |daemon| daemon.handlers.list(name).len());
        let name = if name.is_empty() { tenant_text(name) } else { to_text(name.bytes()).into_owned() };
        tenants.push(TenantDoc { name, jobs, queues, workers, handlers });
    }
    answer(&TenantsDoc { tenants, total: names.len(), next })
}

#[cfg(test)]
mod tests {
    use crate::config::Raw;
    use crate::http::rig::Rig;

    #[tokio::test]
    async fn tenants_come_by_name_with_what_they_have() {
        let rig = Rig::new(Raw::default()).await;
        for tenant in ["", "acme", "zoo"] {
            rig.say_as(tenant, "PUT q k {} JID a").await;
        }
        rig.say_as("acme", "PUT other k {} JID b").await;
        let first = rig.get("/api/v1/tenants?limit=2").await.text;
        let found: serde_json::Value = serde_json::from_str(&first).unwrap();
        let row = |at: usize| {
            let row = &found["tenants"][at];
            (row["name"].as_str().unwrap().to_owned(), row["jobs"].as_u64(), row["queues"].as_u64())
        };
        assert_eq!(row(0), ("default".to_owned(), Some(1), Some(1)));
        assert_eq!(row(1), ("acme".to_owned(), Some(2), Some(2)));
        assert_eq!(found["total"], 3);
        let path = format!("/api/v1/tenants?limit=2&cursor={}", found["next"].as_str().unwrap());
        let last = rig.get(&path).await.text;
        assert!(last.contains("\"name\":\"zoo\"") && last.contains("\"next\":null"), "{last}");
    }
}
