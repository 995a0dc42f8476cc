//! What happens in this node's shards, told to the nodes whose clients want to know; and what happens in theirs, told to
//! ours. A node is told only while it listens.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use haul_engine::{Event, Name, Notice};
use tokio::sync::mpsc;

use super::link::Link;
use super::wire::{self, Ask, Tell};
use crate::bus::Bus;
use crate::resp::Hub;
use crate::shard::Publish;

/// A node that does not answer for this long is not waited for: its link is about to be given up.
const LISTENED_MAX: Duration = Duration::from_secs(1);

/// Both directions. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Outward {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Nodes that listen to this one, by number.
    listeners: Mutex<HashMap<u64, Listener>>,
    next: AtomicUsize,
    events_wanted: AtomicUsize,
    /// The nodes this one listens to.
    links: Mutex<Vec<Arc<Link>>>,
    /// Where what they tell goes.
    home: OnceLock<(Hub, Bus)>,
    /// What was last asked of them.
    events: AtomicBool,
    notices: AtomicBool,
}

struct Listener {
    events: bool,
    notices: bool,
    frames: mpsc::UnboundedSender<Vec<u8>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outward {
    /// What other nodes tell goes here, and is asked of them while somebody here wants it.
    pub(crate) fn attach(&self, hub: Hub, bus: Bus) {
        let (one, other) = (self.clone(), self.clone());
        hub.on_change(Box::new(move || one.ask_around()));
        bus.listeners().on_change(Box::new(move || other.ask_around()));
        let _ = self.shared.home.set((hub, bus));
    }

    /// What this node wants to be told.
    pub(super) fn interest(&self) -> Ask {
        let (events, notices) = match self.shared.home.get() {
            Some((hub, bus)) => (hub.is_heard(), bus.listeners().any_here()),
            None => (false, false),
        };
        self.shared.events.store(events, Ordering::Release);
        self.shared.notices.store(notices, Ordering::Release);
        Ask::Listen { events, notices }
    }

    /// Says so to all, if it has changed.
    fn ask_around(&self) {
        let before =
            (self.shared.events.load(Ordering::Acquire), self.shared.notices.load(Ordering::Acquire));
        let ask = self.interest();
        if let Ask::Listen { events, notices } = ask
            && (events, notices) != before
        {
            lock(&self.shared.links).iter().for_each(|link| link.say(&ask));
        }
    }

    /// Returns when every node that can be reached tells what this one wants to be told.
    pub(crate) async fn is_listened(&self) {
        let links = lock(&self.shared.links).clone();
        let pings = futures_util::future::join_all(links.iter().map(|link| link.ping()));
        let _ = tokio::time::timeout(LISTENED_MAX, pings).await;
    }

    pub(super) fn set_links(&self, links: Vec<Arc<Link>>) {
        *lock(&self.shared.links) = links;
    }

    /// A client's message, to the subscribers of the other nodes.
    pub(crate) fn publish_abroad(&self, tenant: &Name, channel: &Bytes, payload: &Bytes) {
        let links = lock(&self.shared.links).clone();
        if !links.is_empty() {
            let ask =
                Ask::Publish { tenant: tenant.clone(), channel: channel.clone(), payload: payload.clone() };
            links.iter().for_each(|link| link.say(&ask));
        }
    }

    pub(super) fn hear_message(&self, tenant: &Name, channel: &Bytes, payload: &Bytes) {
        if let Some((hub, _)) = self.shared.home.get() {
            hub.publish(tenant, channel, payload);
        }
    }

    pub(super) fn hear_events(&self, tenant: &Name, events: Vec<Event>) {
        if let Some((hub, _)) = self.shared.home.get() {
            Publish::publish(&mut hub.clone(), tenant, events);
        }
    }

    pub(super) fn hear_notices(&self, tenant: &Name, notices: Vec<Notice>) {
        if let Some((_, bus)) = self.shared.home.get() {
            bus.notice(tenant, &notices);
        }
    }

    /// A node that may listen.
    pub(super) fn join(&self, frames: mpsc::UnboundedSender<Vec<u8>>) -> u64 {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed) as u64;
        lock(&self.shared.listeners).insert(id, Listener { events: false, notices: false, frames });
        id
    }

    pub(super) fn listen(&self, id: u64, events: bool, notices: bool) {
        let mut listeners = lock(&self.shared.listeners);
        let Some(listener) = listeners.get_mut(&id) else { return };
        if let Some((_, bus)) = self.shared.home.get() {
            match (listener.notices, notices) {
                (false, true) => bus.listeners().add_abroad(),
                (true, false) => bus.listeners().remove_abroad(),
                _ => {}
            }
        }
        (listener.events, listener.notices) = (events, notices);
        let wanted = listeners.values().filter(|listener| listener.events).count();
        self.shared.events_wanted.store(wanted, Ordering::Release);
    }

    pub(super) fn leave(&self, id: u64) {
        self.listen(id, false, false);
        lock(&self.shared.listeners).remove(&id);
    }

    /// Whether another node wants to be told of events.
    pub(crate) fn is_heard(&self) -> bool {
        self.shared.events_wanted.load(Ordering::Acquire) > 0
    }

    pub(crate) fn tell_events(&self, tenant: &Name, events: &[Event]) {
        if self.is_heard() {
            let tell = Tell::Events { tenant: tenant.clone(), events: events.to_vec() };
            self.tell(&tell, |listener| listener.events);
        }
    }

    pub(crate) fn tell_notices(&self, tenant: &Name, notices: &[Notice]) {
        let tell = Tell::Notices { tenant: tenant.clone(), notices: notices.to_vec() };
        self.tell(&tell, |listener| listener.notices);
    }

    fn tell(&self, tell: &Tell, wants: impl Fn(&Listener) -> bool) {
        let listeners = lock(&self.shared.listeners);
        let mut wanting = listeners.values().filter(|listener| wants(listener)).peekable();
        if wanting.peek().is_none() {
            return;
        }
        let Ok(frame) = wire::frame(tell) else { return };
        wanting.for_each(|listener| drop(listener.frames.send(frame.clone())));
    }
}
