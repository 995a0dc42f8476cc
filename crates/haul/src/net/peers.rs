//! What is counted for each machine that connects. Machines of one IPv6 network (/64) count as one: its owner has all
//! its addresses.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use super::Limits;
use super::bucket::Bucket;
use crate::clock;

/// Wrong tokens a machine may show at once; a second gives [`FAILURES_A_SECOND`] more.
pub(crate) const FAILURES_MAX: usize = 20;
const FAILURES_A_SECOND: f64 = 0.5;
/// Machines remembered beyond those connected.
const PEERS_MAX: usize = 10_000;

/// One machine.
#[derive(Debug)]
pub(crate) struct Peer {
    ip: IpAddr,
    connections: AtomicUsize,
    requests: Mutex<Bucket>,
    failures: Mutex<Bucket>,
}

impl Peer {
    fn new(ip: IpAddr, requests_max: usize) -> Self {
        let (now, rate) = (clock::instant(), requests_max as f64);
        Peer {
            ip,
            connections: AtomicUsize::new(0),
            requests: Mutex::new(Bucket::new(rate, rate, now)),
            failures: Mutex::new(Bucket::new(FAILURES_MAX as f64, FAILURES_A_SECOND, now)),
        }
    }

    /// Nobody in particular.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Peer::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1_000_000))
    }

    pub(crate) fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Counts a request; too many: how many seconds to wait.
    pub(crate) fn request(&self) -> Result<(), f64> {
        locked(&self.requests).take(clock::instant())
    }

    /// Counts a wrong token; false: there were too many.
    pub(crate) fn may_fail(&self) -> bool {
        locked(&self.failures).take(clock::instant()).is_ok()
    }

    fn is_forgettable(&self) -> bool {
        let now = clock::instant();
        self.connections.load(Ordering::Relaxed) == 0
            && locked(&self.requests).is_full(now)
            && locked(&self.failures).is_full(now)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) address: SocketAddr,
    pub(crate) peer: Arc<Peer>,
}

impl Remote {
    /// Nobody in particular.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn none() -> Self {
        Remote { address: SocketAddr::from(([127, 0, 0, 1], 1)), peer: Peer::none() }
    }
}

/// A connection that counts; dropping it stops that.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Peer>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All machines that connected lately.
#[derive(Debug)]
pub(crate) struct Peers {
    all: Mutex<HashMap<IpAddr, Arc<Peer>>>,
    connections_max: usize,
    requests_max: usize,
}

impl Peers {
    pub(crate) fn new(limits: &Limits) -> Self {
        Peers {
            all: Mutex::default(),
            connections_max: limits.peer_connections_max,
            requests_max: limits.peer_requests_max,
        }
    }

    /// Counts a connection; none: this machine has too many.
    pub(crate) fn connect(&self, address: SocketAddr) -> Option<(Remote, Counted)> {
        let ip = network(address.ip());
        let mut all = locked(&self.all);
        if all.len() >= PEERS_MAX && !all.contains_key(&ip) {
            all.retain(|_, peer| !peer.is_forgettable());
        }
        if all.len() >= 2 * PEERS_MAX {
            all.retain(|_, peer| peer.connections.load(Ordering::Relaxed) > 0);
        }
        let peer = all.entry(ip).or_insert_with(|| Arc::new(Peer::new(ip, self.requests_max))).clone();
        drop(all);
        if peer.connections.fetch_add(1, Ordering::Relaxed) >= self.connections_max {
            peer.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some((Remote { address, peer: peer.clone() }, Counted(peer)))
    }
}

fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => IpAddr::V6(Ipv6Addr::from(u128::from(ip) >> 64 << 64)),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_machine_has_so_many_connections_and_not_one_more() {
        let peers = Peers::new(&Limits { peer_connections_max: 2, ..Limits::default() });
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let first = peers.connect(at("10.0.0.1:1")).unwrap();
        let second = peers.connect(at("10.0.0.1:2")).unwrap();
        assert!(peers.connect(at("10.0.0.1:3")).is_none());
        assert!(peers.connect(at("10.0.0.2:1")).is_some(), "another machine");
        drop(first);
        let third = peers.connect(at("10.0.0.1:3"));
        assert!(third.is_some() && peers.connect(at("10.0.0.1:4")).is_none());
        drop((second, third));
    }

    #[test]
    fn one_ipv6_network_is_one_machine() {
        let peers = Peers::new(&Limits { peer_connections_max: 1, ..Limits::default() });
        let _kept = peers.connect("[2001:db8::1]:1".parse().unwrap()).unwrap();
        assert!(peers.connect("[2001:db8::2]:1".parse().unwrap()).is_none());
        assert!(peers.connect("[2001:db8:0:1::2]:1".parse().unwrap()).is_some());
    }

    #[test]
    fn a_machine_may_send_so_many_requests_a_second() {
        let peers = Peers::new(&Limits { peer_requests_max: 2, ..Limits::default() });
        let (remote, _counted) = peers.connect("10.0.0.1:1".parse().unwrap()).unwrap();
        assert!(remote.peer.request().is_ok() && remote.peer.request().is_ok());
        assert!(remote.peer.request().is_err_and(|wait| wait <= 0.5));
    }

    #[test]
    fn machines_that_left_are_forgotten() {
        let peers = Peers::new(&Limits::default());
        for number in 0..2 * PEERS_MAX as u32 {
            drop(peers.connect(SocketAddr::from((Ipv4Addr::from_bits(0x0A00_0000 + number), 1))));
        }
        assert!(locked(&peers.all).len() <= PEERS_MAX + 1);
    }
}
