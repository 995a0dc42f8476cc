//! The HTTP side. `api` is the native interface under `/api/v1`, `seed` the small one of the older HTTP document;
//! both turn requests into the engine's commands and replies into JSON.
//!
//! `caller` is who asks and how a command of theirs is sent, `problem` how errors are told, `body` how documents are
//! read, `schema` what `/openapi.json` says of the answers. `ui` is the page, `trends` how the figures went lately,
//! `operations` what is done to many jobs at once.

mod api;
mod body;
mod caller;
mod events;
mod health;
mod log;
mod metrics;
mod operations;
pub(crate) mod problem;
#[cfg(test)]
pub(crate) mod rig;
mod schema;
mod seed;
pub(crate) mod serverless;
mod trends;
mod ui;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub(crate) use api::cluster::ClusterDoc;
pub(crate) use health::Requests;
pub(crate) use operations::Operations;
pub(crate) use trends::Trends;

use crate::net::accept;
use crate::net::web::Web;
use crate::resp::Server;

pub(crate) use body::Text;

/// Serves until told to stop.
pub(crate) async fn serve(listener: TcpListener, server: Arc<Server>, stop: watch::Receiver<bool>) {
    let watching = tokio::spawn(trends::watch(server.clone()));
    let web = Web::new(router(server.clone()), &server);
    accept(listener, server.clone(), web, stop).await;
    let _ = watching.await;
    trends::keep_file(&server).await;
}

/// What `/openapi.json` says.
#[cfg(test)]
pub(crate) fn description() -> String {
    api::routes().1.to_json().unwrap_or_default()
}

/// Every route there is.
pub(crate) fn router(server: Arc<Server>) -> Router {
    let (api, document) = api::routes();
    let document = document.to_json().unwrap_or_default();
    Router::new()
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::show))
        .route(
            "/openapi.json",
            get(move || async move { caller::json(StatusCode::OK, document.into_bytes()) }),
        )
        .merge(api)
        .merge(seed::routes())
        .merge(serverless::routes())
        .route("/ui", get(ui::home))
        .route("/ui/", get(ui::page))
        .route("/ui/{*path}", get(ui::asset))
        .fallback(problem::no_route)
        .method_not_allowed_fallback(problem::wrong_method)
        .layer(axum::middleware::from_fn_with_state(server.clone(), log::request))
        .with_state(server)
}
