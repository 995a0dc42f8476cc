//! What both ports share: who connects, how many, how fast, and through what. What they say is in `resp` and `http`.
//!
//! - `accept`: the one loop that takes connections, within the limits, and waits for them at the end.
//! - `peers`: what is counted for each machine that connects; `bucket`: how a rate is.
//! - `tls`: certificates from files, read again when they change.
//! - `web`: an HTTP connection, and the limits on its requests.

mod accept;
mod bucket;
mod peers;
mod tls;
pub(crate) mod web;

pub(crate) use accept::{Protocol, accept};
#[cfg(test)]
pub(crate) use peers::FAILURES_MAX;
pub(crate) use peers::{Peer, Peers, Remote};
pub(crate) use tls::{Tls, TlsFiles};

/// Limits of both ports, and of HTTP requests.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Connections of one machine at once.
    pub(crate) peer_connections_max: usize,
    /// HTTP requests of one machine in a second.
    pub(crate) peer_requests_max: usize,
    /// Bytes of a request's line and headers together.
    pub(crate) header_bytes_max: usize,
    /// Bytes of a request's path and query.
    pub(crate) url_bytes_max: usize,
    /// Bytes of a request's document.
    pub(crate) body_bytes_max: usize,
    /// Seconds for a request to arrive: its headers, and then its document.
    pub(crate) request_seconds_max: usize,
    /// Sites whose pages may ask from a browser.
    pub(crate) cors_origins: Vec<String>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            peer_connections_max: 10_000,
            peer_requests_max: 100_000,
            header_bytes_max: 64 << 10,
            url_bytes_max: 16 << 10,
            body_bytes_max: 64 << 20,
            request_seconds_max: 60,
            cors_origins: Vec::new(),
        }
    }
}
