//! What happens, for those who want to know: event streams that can be resumed over a short window, and waits for one
//! job. Fed by the shard once a round is durable; costs nothing while nobody listens.
//!
//! A stream has no queue of its own: it reads the tenant's ring at its own pace. One that is too slow finds that what it
//! wants has gone, is told so, and costs nobody anything.

mod filter;
mod ring;
mod told;
mod watch;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use haul_engine::{Name, Notice};

pub(crate) use filter::Filter;
use ring::Ring;
pub(crate) use told::{Position, Told};
pub(crate) use watch::Watch;
use watch::Watches;

use crate::clock;

/// Streams at once.
pub(crate) const STREAMS_MAX: usize = 1000;
/// How long a tenant's events are kept after its last stream ended, for it to come back.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Between looks for rings nobody came back to.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// All streams and waits. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bus {
    shared: Arc<Shared>,
}

struct Shared {
    /// Whoever wants notices: streams, rings still kept, waits, traces. The shard looks at it before every call.
    listeners: Listeners,
    /// Ids begin with it: one from before a restart is recognised.
    run: u64,
    streams: AtomicUsize,
    rings: Mutex<Rings>,
    watches: Watches,
}

/// How many want notices, here and at other nodes.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<Counts>);

#[derive(Default)]
struct Counts {
    here: AtomicUsize,
    abroad: AtomicUsize,
    on_change: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Listeners {
    pub(crate) fn any(&self) -> bool {
        self.any_here() || self.0.abroad.load(Ordering::Acquire) > 0
    }

    /// Whether anybody at this node does.
    pub(crate) fn any_here(&self) -> bool {
        self.0.here.load(Ordering::Acquire) > 0
    }

    pub(crate) fn add(&self) {
        if self.0.here.fetch_add(1, Ordering::AcqRel) == 0 {
            self.0.changed();
        }
    }

    pub(crate) fn remove(&self) {
        if self.0.here.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed();
        }
    }

    pub(crate) fn add_abroad(&self) {
        self.0.abroad.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove_abroad(&self) {
        self.0.abroad.fetch_sub(1, Ordering::AcqRel);
    }

    /// Called when the first at this node comes and when the last goes.
    pub(crate) fn on_change(&self, call: Box<dyn Fn() + Send + Sync>) {
        let _ = self.0.on_change.set(call);
    }
}

impl Counts {
    fn changed(&self) {
        if let Some(call) = self.on_change.get() {
            call();
        }
    }
}

struct Rings {
    /// Ids grow over all tenants, so that a ring that was dropped and made again never reuses one.
    last_id: u64,
    of: HashMap<Name, Kept>,
    swept_at: Instant,
}

struct Kept {
    ring: Arc<RwLock<Ring>>,
    readers: usize,
    left_at: Instant,
}

/// There are as many streams as are allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Bus {
    /// A bus of the run that began at `started_at`, in seconds since 1970.
    pub(crate) fn new(started_at: f64) -> Self {
        let rings = Rings { last_id: 0, of: HashMap::new(), swept_at: clock::instant() };
        let listeners = Listeners::default();
        Bus {
            shared: Arc::new(Shared {
                watches: Watches::new(listeners.clone()),
                listeners,
                run: (started_at * 1000.0) as u64,
                streams: AtomicUsize::new(0),
                rings: Mutex::new(rings),
            }),
        }
    }

    pub(crate) fn listeners(&self) -> Listeners {
        self.shared.listeners.clone()
    }

    /// How many streams are open.
    pub(crate) fn streams(&self) -> usize {
        self.shared.streams.load(Ordering::Relaxed)
    }

    /// How many wait for a job.
    pub(crate) fn watches(&self) -> usize {
        self.shared.watches.len()
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.shared.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream of a tenant's events from now on, or from behind the one with this id.
    pub(crate) fn subscribe(&self, tenant: &Name, last: Option<&str>) -> Result<Stream, TooMany> {
        if self.shared.streams.fetch_add(1, Ordering::AcqRel) >= STREAMS_MAX {
            self.shared.streams.fetch_sub(1, Ordering::AcqRel);
            return Err(TooMany);
        }
        let mut rings = self.rings();
        let newest = rings.last_id;
        let kept = rings.of.entry(tenant.clone()).or_insert_with(|| {
            self.shared.listeners.add();
            let ring = Arc::new(RwLock::new(Ring::new(newest)));
            Kept { ring, readers: 0, left_at: clock::instant() }
        });
        kept.readers += 1;
        let ring = kept.ring.clone();
        drop(rings);
        self.shared.listeners.add();
        let (start, wake) = {
            let ring = ring::read(&ring);
            let newest = Position { run: self.shared.run, id: ring.newest() };
            let start = match last {
                None => Start::Now(newest),
                Some(text) => match Position::parse(text) {
                    Some(at) if at.run == self.shared.run && ring.holds_after(at.id) => Start::After(at),
                    Some(at) if at.run == self.shared.run => Start::Lost(newest),
                    _ => Start::Reset(newest),
                },
            };
            (start, ring.wake())
        };
        Ok(Stream { bus: self.clone(), tenant: tenant.clone(), ring, at: start.position(), start, wake })
    }

    /// A wait for the next thing that happens to a job; whatever happens after this returned ends it.
    pub(crate) fn changed(&self, tenant: &Name, jid: &Name) -> Watch {
        self.shared.watches.watch(tenant, jid)
    }

    /// Takes in what a round told, now that it is durable.
    pub(crate) fn notice(&self, tenant: &Name, notices: &[Notice]) {
        self.shared.watches.wake(tenant, notices);
        let now = clock::instant();
        let mut rings = self.rings();
        if now.duration_since(rings.swept_at) >= SWEEP_EVERY {
            rings.swept_at = now;
            rings.of.retain(|_, kept| {
                let stays = kept.readers > 0 || now.duration_since(kept.left_at) < KEPT_FOR;
                if !stays {
                    self.shared.listeners.remove();
                }
                stays
            });
        }
        let first = rings.last_id + 1;
        let Some(kept) = rings.of.get(tenant) else { return };
        let ring = kept.ring.clone();
        rings.last_id += notices.len() as u64;
        drop(rings);
        ring::write(&ring).push(self.shared.run, first, notices, now);
    }

    fn leave(&self, tenant: &Name) {
        if let Some(kept) = self.rings().of.get_mut(tenant) {
            kept.readers -= 1;
            kept.left_at = clock::instant();
        }
        self.shared.listeners.remove();
        self.shared.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With what happens next.
    Now(Position),
    /// Behind the event that was named.
    After(Position),
    /// What followed the event that was named is no longer kept.
    Lost(Position),
    /// The event that was named is of another run of the server.
    Reset(Position),
}

impl Start {
    fn position(self) -> Position {
        match self {
            Start::Now(at) | Start::After(at) | Start::Lost(at) | Start::Reset(at) => at,
        }
    }
}

/// One reader of a tenant's events.
pub(crate) struct Stream {
    bus: Bus,
    tenant: Name,
    ring: Arc<RwLock<Ring>>,
    at: Position,
    start: Start,
    wake: tokio::sync::watch::Receiver<u64>,
}

/// What a reader finds.
#[derive(Debug)]
pub(crate) enum Read {
    /// Events, in order.
    Events(Vec<Arc<Told>>),
    /// It was too slow: events between have gone. It goes on with the newest.
    Lost,
}

impl Stream {
    pub(crate) fn start(&self) -> Start {
        self.start
    }

    /// Up to which event it has read.
    pub(crate) fn position(&self) -> Position {
        self.at
    }

    /// The next events, when there are any; those that do not pass the filter are skipped.
    pub(crate) async fn next(&mut self, filter: &Filter) -> Read {
        loop {
            self.wake.borrow_and_update();
            let (batch, newest) = {
                let ring = ring::read(&self.ring);
                (ring.after(self.at.id), ring.newest())
            };
            match batch {
                None => {
                    self.at.id = newest;
                    return Read::Lost;
                }
                Some(batch) => {
                    let Some(last) = batch.last() else {
                        // The sender lives in the ring, which this holds.
                        let _ = self.wake.changed().await;
                        continue;
                    };
                    self.at.id = last.position.id;
                    let wanted: Vec<Arc<Told>> =
                        batch.into_iter().filter(|told| filter.passes(&told.notice)).collect();
                    if !wanted.is_empty() {
                        return Read::Events(wanted);
                    }
                }
            }
            // Much that is not wanted must not keep others from running.
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.bus.leave(&self.tenant);
    }
}

#[cfg(test)]
mod tests;
