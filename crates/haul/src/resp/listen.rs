//! Accepts connections, up to a limit, and stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::conn::{Conn, End};
use super::lanes::Lanes;
use super::server::Server;

/// A bound address.
pub(crate) struct Listener {
    listener: TcpListener,
}

impl Listener {
    pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Listener { listener: TcpListener::bind(address).await? })
    }

    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Serves connections until told to stop.
pub(crate) async fn serve(listener: Listener, server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    let lanes = match Lanes::start(&server.shard) {
        Ok(lanes) => lanes,
        Err(error) => return tracing::error!(%error, "no thread for connections could be started"),
    };
    loop {
        tokio::select! {
            accepted = listener.listener.accept() => match accepted {
                Ok((stream, peer)) => admit(&server, lanes.next(), stream, peer, stop.clone()),
                Err(error) => {
                    // Out of file descriptors, mostly: the ones in use go on.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
            _ = stop.changed() => return,
        }
    }
}

fn admit(
    server: &Arc<Server>,
    lane: &Handle,
    mut stream: TcpStream,
    peer: SocketAddr,
    mut stop: watch::Receiver<bool>,
) {
    server.connections_seen.fetch_add(1, Ordering::Relaxed);
    if server.connections.fetch_add(1, Ordering::Relaxed) >= server.limits.connections_max {
        server.connections.fetch_sub(1, Ordering::Relaxed);
        server.connections_refused.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let _ = stream.write_all(b"-ERR max number of clients reached\r\n").await;
        });
        return;
    }
    let _ = stream.set_nodelay(true);
    let id = server.next_connection.fetch_add(1, Ordering::Relaxed) + 1;
    let server = server.clone();
    let stream = stream.into_std();
    lane.spawn(async move {
        let end = match stream.and_then(TcpStream::from_std) {
            Ok(stream) => {
                let mut conn = Conn::new(server.clone(), stream, id);
                tokio::select! {
                    biased;
                    end = conn.run() => end,
                    _ = stop.changed() => End::Stopping,
                }
            }
            Err(error) => error.into(),
        };
        server.connections.fetch_sub(1, Ordering::Relaxed);
        tracing::debug!(%peer, ?end, "connection ended");
    });
}
