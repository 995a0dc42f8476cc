//! What a worker says of itself to the server, and how often.

use std::time::Duration;

use haul_client::{Error, Json};
use serde_json::json;

/// Between two signs of life.
pub(super) const SIGN: Duration = Duration::from_secs(5);

/// What stays the same while a worker lives.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) queues: Vec<String>,
    pub(super) klasses: Vec<String>,
    pub(super) capacity: usize,
    /// `process` or `long-running`.
    pub(super) model: &'static str,
}

impl Facts {
    pub(super) fn document(&self, running: usize) -> Result<Json, Error> {
        let machine = rustix::system::uname();
        Json::of(&json!({
            "host": machine.nodename().to_string_lossy(),
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "queues": self.queues,
            "klasses": self.klasses,
            "capacity": self.capacity,
            "running": running,
            "model": self.model,
        }))
    }
}

/// The name a worker has unless it is given one.
pub(super) fn default_name() -> String {
    let machine = rustix::system::uname();
    format!("{}-{}", machine.nodename().to_string_lossy(), std::process::id())
}
