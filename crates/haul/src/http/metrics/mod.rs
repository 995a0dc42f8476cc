//! `/metrics` for Prometheus. Figures of the server come from counters, those of queues from one look at each tenant.
//! Every metric is described in `docs/operate/metrics.md`; a test holds the two together.

mod page;
mod queues;
mod server;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use haul_engine::{Command, Name, Overview, Reply};

use super::caller::Caller;
use super::problem::Problem;
use page::Page;

/// Tenants shown.
const TENANTS_MAX: usize = 1000;

/// Figures for Prometheus.
pub(crate) async fn show(caller: Caller) -> Result<Response, Problem> {
    let text = text(&caller).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

async fn text(caller: &Caller) -> Result<String, Problem> {
    let all = sees_all(caller);
    let tenants = if all { tenants(caller).await? } else { vec![caller.tenant.clone()] };
    let mut queues_left = caller.server.metrics_queues_max;
    let mut seen: Vec<(String, Overview)> = Vec::new();
    for tenant in tenants.iter().take(TENANTS_MAX) {
        let overview = overview(caller, tenant, queues_left).await?;
        queues_left = queues_left.saturating_sub(overview.queues.len());
        seen.push((label(tenant), overview));
    }
    let mut page = Page::default();
    if all {
        server::write(&mut page, &caller.server, tenants.len());
    }
    queues::write(&mut page, &seen);
    Ok(page.finish())
}

/// Whether the caller is shown all tenants and the server itself.
fn sees_all(caller: &Caller) -> bool {
    caller.tenant.is_empty() && caller.access.is_server_wide()
}

async fn tenants(caller: &Caller) -> Result<Vec<Name>, Problem> {
    match caller.ask(Command::Tenants).await?.reply {
        Reply::Names(names) => Ok(names),
        _ => Err(Problem::unexpected()),
    }
}

async fn overview(caller: &Caller, tenant: &Name, queues_max: usize) -> Result<Overview, Problem> {
    match caller.ask_as(tenant, Command::Overview { queues_max }).await?.reply {
        Reply::Overview(overview) => Ok(*overview),
        _ => Err(Problem::unexpected()),
    }
}

/// The tenant without a name is `default`.
fn label(tenant: &Name) -> String {
    match std::str::from_utf8(tenant.bytes()) {
        Ok("") => "default".to_owned(),
        Ok(text) => text.to_owned(),
        Err(_) => tenant.bytes().escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests;
