//! What is done with a connection of this port.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::conn::Conn;
use super::lanes::Lanes;
use super::server::Server;
use crate::net::{Protocol, Remote};

/// The Redis protocol.
#[derive(Clone)]
pub(crate) struct Redis {
    server: Arc<Server>,
    lanes: Option<Arc<Lanes>>,
}

impl Redis {
    /// On threads of its own.
    pub(crate) fn on(lanes: Arc<Lanes>, server: Arc<Server>) -> Self {
        Redis { server, lanes: Some(lanes) }
    }

    /// On the threads of whoever serves.
    #[cfg(test)]
    pub(crate) fn here(server: Arc<Server>) -> Self {
        Redis { server, lanes: None }
    }
}

impl Protocol for Redis {
    const TOO_MANY: &'static [u8] = b"-ERR max number of clients reached\r\n";
    const NEEDS_TLS: &'static [u8] =
        b"-ERR this port speaks TLS: connect with TLS (rediss://, haul --tls)\r\n";

    fn lane(&self) -> Option<&Handle> {
        self.lanes.as_ref().map(|lanes| lanes.next())
    }

    async fn serve<S>(self, stream: S, remote: Remote, stop: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
    {
        let id = self.server.next_connection.fetch_add(1, Ordering::Relaxed) + 1;
        let address = remote.address;
        let end = Conn::new(self.server, stream, remote, id).run(stop).await;
        tracing::debug!(peer = %address, ?end, "connection ended");
    }
}
