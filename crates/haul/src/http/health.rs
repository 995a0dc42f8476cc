//! Whether the server lives, and whether it is ready: commands that write are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::http::StatusCode;

use crate::resp::Server;

/// What keeps the server from being ready.
pub(super) fn obstacle(server: &Server) -> Option<&'static str> {
    if server.is_stopping() {
        return Some("stopping: what has arrived is finished");
    }
    let counters = server.shard.counters();
    if counters.loading.load(Ordering::Relaxed) {
        return Some("loading: the store failed and its state is read again");
    }
    if !server.shard.is_whole() {
        return Some("waiting: some shards are served by no node yet");
    }
    if counters.full.load(Ordering::Relaxed) {
        return Some("the disk is full: looks are served, writes are refused");
    }
    None
}

/// Alive: it answers.
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// Ready, or why not.
pub(super) async fn ready(State(server): State<Arc<Server>>) -> (StatusCode, String) {
    match obstacle(&server) {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        None => (StatusCode::OK, "ready\n".to_owned()),
    }
}

/// HTTP requests by class of status.
#[derive(Default)]
pub(crate) struct Requests([AtomicU64; 5]);

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Requests {
    pub(crate) fn count(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.0.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counted(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        CLASSES.into_iter().zip(&self.0).map(|(class, counter)| (class, counter.load(Ordering::Relaxed)))
    }
}
