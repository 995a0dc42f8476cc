//! The HTTP side: whether the server lives and is ready. (The job API is served here too, once it is.)

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::resp::Server;

/// Serves until told to stop.
pub(crate) async fn serve(listener: TcpListener, server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(server);
    let stopped = async move {
        let _ = stop.changed().await;
    };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
        tracing::error!(%error, "the HTTP side ended");
    }
}

/// Ready means: commands that write are served.
async fn ready(State(server): State<Arc<Server>>) -> (StatusCode, &'static str) {
    if server.shard.counters().full.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the disk is full\n");
    }
    (StatusCode::OK, "ready\n")
}
