//! Pub/sub within a tenant. A message is in every subscriber's queue before the reply of the call that caused it leaves.
//! A subscriber that lets its queue grow past the limit is cut off; nobody else notices.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use haul_engine::{Event, Name};
use tokio::sync::{Notify, mpsc};

use crate::dialect::{events, glob};
use crate::shard::Publish;

/// A message on its way to one subscriber.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The pattern that matched, for pattern subscribers.
    pub(crate) pattern: Option<Bytes>,
    pub(crate) channel: Bytes,
    pub(crate) payload: Bytes,
}

impl Message {
    fn bytes(&self) -> usize {
        64 + self.channel.len() + self.payload.len()
    }
}

/// The receiving end of one connection.
pub(crate) struct Inbox {
    pub(crate) id: u64,
    messages: mpsc::UnboundedReceiver<Message>,
    waiting: Arc<AtomicUsize>,
    cut_off: Arc<Notify>,
}

impl Inbox {
    /// Returns when the subscriber has been cut off, also while messages are still in its queue.
    pub(crate) async fn cut_off(&self) {
        self.cut_off.notified().await;
    }

    /// The next message; none: the subscriber was cut off.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let message = self.messages.recv().await?;
        self.waiting.fetch_sub(message.bytes(), Ordering::Relaxed);
        Some(message)
    }

    /// A message that is already there.
    pub(crate) fn ready(&mut self) -> Option<Message> {
        let message = self.messages.try_recv().ok()?;
        self.waiting.fetch_sub(message.bytes(), Ordering::Relaxed);
        Some(message)
    }
}

struct Subscriber {
    sender: mpsc::UnboundedSender<Message>,
    waiting: Arc<AtomicUsize>,
    cut_off: Arc<Notify>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    subscribers: HashMap<u64, Subscriber>,
    channels: HashMap<(Name, Bytes), HashSet<u64>>,
    patterns: HashMap<(Name, Bytes), HashSet<u64>>,
}

/// All subscriptions.
#[derive(Clone)]
pub(crate) struct Hub {
    state: Arc<Mutex<State>>,
    subscribers: Arc<AtomicUsize>,
    /// Called when the first subscriber comes and when the last goes.
    on_change: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
    bytes_max: usize,
}

impl Hub {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Hub { state: Arc::default(), subscribers: Arc::default(), on_change: Arc::default(), bytes_max }
    }

    /// How many there are.
    pub(crate) fn subscribers(&self) -> usize {
        self.subscribers.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new subscriber, subscribed to nothing.
    pub(crate) fn join(&self) -> Inbox {
        let (sender, messages) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let cut_off = Arc::new(Notify::new());
        let mut state = self.state();
        state.next_id += 1;
        let id = state.next_id;
        state
            .subscribers
            .insert(id, Subscriber { sender, waiting: waiting.clone(), cut_off: cut_off.clone() });
        let count = state.subscribers.len();
        drop(state);
        self.count(count);
        Inbox { id, messages, waiting, cut_off }
    }

    /// Ends a subscriber and all its subscriptions.
    pub(crate) fn leave(&self, id: u64) {
        let mut state = self.state();
        state.drop_subscriber(id);
        let count = state.subscribers.len();
        drop(state);
        self.count(count);
    }

    fn count(&self, subscribers: usize) {
        let before = self.subscribers.swap(subscribers, Ordering::AcqRel);
        if (before == 0) != (subscribers == 0)
            && let Some(call) = self.on_change.get()
        {
            call();
        }
    }

    /// Called when the first subscriber comes and when the last goes.
    pub(crate) fn on_change(&self, call: Box<dyn Fn() + Send + Sync>) {
        let _ = self.on_change.set(call);
    }

    /// Whether there is any.
    pub(crate) fn is_heard(&self) -> bool {
        self.subscribers() > 0
    }

    pub(crate) fn subscribe(&self, id: u64, tenant: &Name, channel: &Bytes, pattern: bool) {
        let mut state = self.state();
        let table = if pattern { &mut state.patterns } else { &mut state.channels };
        table.entry((tenant.clone(), channel.clone())).or_default().insert(id);
    }

    pub(crate) fn unsubscribe(&self, id: u64, tenant: &Name, channel: &Bytes, pattern: bool) {
        let mut state = self.state();
        let table = if pattern { &mut state.patterns } else { &mut state.channels };
        let key = (tenant.clone(), channel.clone());
        if let Some(ids) = table.get_mut(&key) {
            ids.remove(&id);
            if ids.is_empty() {
                table.remove(&key);
            }
        }
    }

    /// Queues a message to everybody who wants it; how many that were.
    pub(crate) fn publish(&self, tenant: &Name, channel: &Bytes, payload: &Bytes) -> usize {
        if self.subscribers.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut state = self.state();
        let mut sends: Vec<(u64, Option<Bytes>)> = Vec::new();
        if let Some(ids) = state.channels.get(&(tenant.clone(), channel.clone())) {
            sends.extend(ids.iter().map(|id| (*id, None)));
        }
        for ((whose, pattern), ids) in &state.patterns {
            if whose == tenant && glob::matches(pattern, channel) {
                sends.extend(ids.iter().map(|id| (*id, Some(pattern.clone()))));
            }
        }
        let count = sends.len();
        for (id, pattern) in sends {
            let message = Message { pattern, channel: channel.clone(), payload: payload.clone() };
            state.send(id, message, self.bytes_max);
        }
        count
    }

    /// Channels that somebody in this tenant subscribes to, with how many.
    pub(crate) fn channels(&self, tenant: &Name) -> Vec<(Bytes, usize)> {
        let state = self.state();
        let own = state.channels.iter().filter(|((whose, _), _)| whose == tenant);
        own.map(|((_, channel), ids)| (channel.clone(), ids.len())).collect()
    }

    pub(crate) fn pattern_count(&self, tenant: &Name) -> usize {
        self.state().patterns.keys().filter(|(whose, _)| whose == tenant).count()
    }
}

impl State {
    fn send(&mut self, id: u64, message: Message, bytes_max: usize) {
        let Some(subscriber) = self.subscribers.get(&id) else { return };
        let bytes = message.bytes();
        let waiting = subscriber.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if waiting > bytes_max || subscriber.sender.send(message).is_err() {
            // Ends the connection, which may be stuck in a write to a client that does not read.
            subscriber.cut_off.notify_one();
            self.drop_subscriber(id);
        }
    }

    fn drop_subscriber(&mut self, id: u64) {
        self.subscribers.remove(&id);
        for table in [&mut self.channels, &mut self.patterns] {
            table.retain(|_, ids| {
                ids.remove(&id);
                !ids.is_empty()
            });
        }
    }
}

impl Publish for Hub {
    fn is_heard(&self) -> bool {
        self.subscribers.load(Ordering::Acquire) > 0
    }

    fn publish(&mut self, tenant: &Name, events: Vec<Event>) {
        if self.subscribers.load(Ordering::Acquire) == 0 {
            return;
        }
        for message in events.iter().flat_map(events::messages) {
            Hub::publish(self, tenant, &message.channel, &message.payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_subscriber_may_have_bytes_max_waiting_and_not_one_more() {
        let (tenant, channel) = (Name::new(b""), Bytes::from_static(b"news"));
        let message =
            Message { pattern: None, channel: channel.clone(), payload: Bytes::from_static(b"12345678") };
        let hub = Hub::new(2 * message.bytes());
        let (mut slow, mut quick) = (hub.join(), hub.join());
        hub.subscribe(slow.id, &tenant, &channel, false);
        hub.subscribe(quick.id, &tenant, &channel, false);
        for _ in 0..2 {
            assert_eq!(hub.publish(&tenant, &channel, &message.payload), 2);
            assert!(quick.ready().is_some());
        }
        // What was read makes room again.
        assert!(slow.ready().is_some());
        assert_eq!(hub.publish(&tenant, &channel, &message.payload), 2);
        assert!(quick.ready().is_some());
        assert_eq!(
            hub.publish(&tenant, &channel, &Bytes::new()),
            2,
            "the one that is too much is still counted"
        );
        slow.cut_off().await;
        assert_eq!(hub.publish(&tenant, &channel, &message.payload), 1);
        assert!(quick.ready().is_some());
    }
}
