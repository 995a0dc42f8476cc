//! The HTTP side. `api` is the native interface under `/api/v1`, `seed` the small one of the older HTTP document;
//! both turn requests into the engine's commands and replies into JSON.
//!
//! `caller` is who asks and how a command of theirs is sent, `problem` how errors are told, `body` how documents are
//! read, `schema` what `/openapi.json` says of the answers.

mod api;
mod body;
mod caller;
mod problem;
mod schema;
mod seed;
mod ui;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::resp::Server;

pub(crate) use body::Text;

/// Bytes of a request's document at most.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Serves until told to stop.
pub(crate) async fn serve(listener: TcpListener, server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    let router = router(server);
    let stopped = async move {
        let _ = stop.changed().await;
    };
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    if let Err(error) = axum::serve(listener, service).with_graceful_shutdown(stopped).await {
        tracing::error!(%error, "the HTTP side ended");
    }
}

/// Every route there is.
fn router(server: Arc<Server>) -> Router {
    let (api, document) = api::routes();
    let document = document.to_json().unwrap_or_default();
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route(
            "/openapi.json",
            get(move || async move { caller::json(StatusCode::OK, document.into_bytes()) }),
        )
        .merge(api)
        .merge(seed::routes())
        .route("/ui/", get(ui::page))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .fallback(problem::no_route)
        .method_not_allowed_fallback(problem::wrong_method)
        .with_state(server)
}

/// Ready means: commands that write are served.
async fn ready(State(server): State<Arc<Server>>) -> (StatusCode, &'static str) {
    if server.shard.counters().full.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the disk is full\n");
    }
    (StatusCode::OK, "ready\n")
}
