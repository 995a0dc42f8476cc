//! The one loop that takes connections, for both ports: within the limits, through TLS where that is asked for, and at
//! the end it waits until they are done.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::peers::{Counted, Remote};
use super::tls::Tls;
use crate::resp::Server;

/// How long a client may take to say that it wants TLS, and to shake hands.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the connections may take to finish when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// What a TLS connection begins with.
const TLS_RECORD: u8 = 0x16;

/// What is spoken on a port.
pub(crate) trait Protocol: Clone + Send + 'static {
    /// What one who comes too many is told.
    const TOO_MANY: &'static [u8];
    /// What one is told who does not use TLS on a port that needs it.
    const NEEDS_TLS: &'static [u8];

    /// Where the next connection lives; none: here.
    fn lane(&self) -> Option<&Handle> {
        None
    }

    /// Serves one connection to its end. Told to stop, it finishes what has arrived.
    fn serve<S>(
        self,
        stream: S,
        remote: Remote,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static;
}

/// A connection that counts.
struct Place {
    server: Arc<Server>,
    _counted: Counted,
    /// Gone with the last connection.
    _open: mpsc::Sender<()>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.server.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves connections until told to stop, and then those there are to their end.
pub(crate) async fn accept<P: Protocol>(
    listener: TcpListener,
    server: Arc<Server>,
    protocol: P,
    mut stop: watch::Receiver<bool>,
) {
    let (open, mut all_done) = mpsc::channel(1);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => match admit(&server, address, open.clone()) {
                    Some((remote, place)) => {
                        let connection = Connection { remote, place, stop: stop.clone() };
                        let tls = server.tls.clone();
                        connection.start(stream, tls, &protocol);
                    }
                    None => refuse(stream, server.tls.is_some(), P::TOO_MANY),
                },
                Err(error) => {
                    // Out of file descriptors, mostly: the ones in use go on.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            _ = stop.changed() => break,
        }
    }
    drop((listener, open));
    if timeout(STOP_TIMEOUT, all_done.recv()).await.is_err() {
        tracing::warn!("connections that did not finish in time are cut off");
    }
}

fn admit(
    server: &Arc<Server>,
    address: std::net::SocketAddr,
    open: mpsc::Sender<()>,
) -> Option<(Remote, Place)> {
    server.connections_seen.fetch_add(1, Ordering::Relaxed);
    let has_room = server.connections.fetch_add(1, Ordering::Relaxed) < server.limits.connections_max;
    let counted = if has_room { server.peers.connect(address) } else { None };
    let Some((remote, counted)) = counted else {
        server.connections.fetch_sub(1, Ordering::Relaxed);
        server.connections_refused.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    Some((remote, Place { server: server.clone(), _counted: counted, _open: open }))
}

/// Says why, where it can be understood.
fn refuse(mut stream: TcpStream, is_tls: bool, words: &'static [u8]) {
    if is_tls {
        return;
    }
    tokio::spawn(async move {
        let _ = timeout(HANDSHAKE_TIMEOUT, stream.write_all(words)).await;
    });
}

struct Connection {
    remote: Remote,
    place: Place,
    stop: watch::Receiver<bool>,
}

impl Connection {
    fn start<P: Protocol>(self, stream: TcpStream, tls: Option<Arc<Tls>>, protocol: &P) {
        let (lane, protocol) = (protocol.lane(), protocol.clone());
        let Some(lane) = lane else {
            tokio::spawn(self.run(stream, tls, protocol));
            return;
        };
        // The lane's runtime must be the one that watches the socket.
        let stream = stream.into_std();
        lane.spawn(async move {
            match stream.and_then(TcpStream::from_std) {
                Ok(stream) => self.run(stream, tls, protocol).await,
                Err(error) => tracing::warn!(%error, "a connection could not be served"),
            }
        });
    }

    async fn run<P: Protocol>(self, stream: TcpStream, tls: Option<Arc<Tls>>, protocol: P) {
        let Connection { remote, place, stop } = self;
        let _ = stream.set_nodelay(true);
        match tls {
            // The plain stream keeps its type: nothing is in the way of the hot path.
            None => protocol.serve(stream, remote, stop).await,
            Some(tls) => match handshake::<P>(stream, &tls).await {
                Some(stream) => protocol.serve(stream, remote, stop).await,
                None => tracing::debug!(peer = %remote.address, "no TLS came about"),
            },
        }
        drop(place);
    }
}

async fn handshake<P: Protocol>(
    mut stream: TcpStream,
    tls: &Tls,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let mut first = [0];
    let begun = timeout(HANDSHAKE_TIMEOUT, stream.peek(&mut first)).await.ok()?.ok()?;
    if begun == 1 && first != [TLS_RECORD] {
        let _ = timeout(HANDSHAKE_TIMEOUT, stream.write_all(P::NEEDS_TLS)).await;
        let _ = stream.shutdown().await;
        return None;
    }
    timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await.ok()?.ok()
}
