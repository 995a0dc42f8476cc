//! Keeps this node's place among the others: says that it lives, looks who else does, opens the shards that are its own and
//! closes those that are not. One task decides, in turn, and waits for nothing else; what takes long runs beside it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use haul_cluster::{Held, Plan, Presence, Seen, Sight};
use haul_store::{Fault, ObjectOptions, ObjectStore, Place, Store as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::Settings;
use super::link::Link;
use super::listen::{self, Asked};
use super::meta::Meta;
use super::outward::Outward;
use super::presence::{Herald, Register};
use super::route::{Route, Routes, Shards};
use super::tls::Seal;
use super::wire::Ask;
use crate::clock;
use crate::outlets::Outlets;
use crate::shard::{self, Core, OpenStore, Shard};

/// After a shard could not be opened.
const OPEN_AGAIN: Duration = Duration::from_secs(2);
/// For the shards of a node that stops to be closed.
const LEAVE_MAX: Duration = Duration::from_secs(30);

/// What wakes the keeper before its time.
enum Word {
    /// Another node told of itself.
    Presence(Presence),
    /// The store was asked who is there.
    Looked(Result<Vec<Seen>, Fault>),
    Opened(u32, Result<Open, Fault>),
    /// A shard's thread has ended.
    Ended(u32, Result<(), Fault>),
    Leave(tokio::sync::oneshot::Sender<()>),
}

/// Wakes the keeper.
#[derive(Clone)]
pub(super) struct Poke(mpsc::UnboundedSender<Word>);

impl Poke {
    pub(super) fn tell(&self, presence: Presence) {
        let _ = self.0.send(Word::Presence(presence));
    }
}

/// A shard that is here.
struct Open {
    shard: Shard,
    epoch: u64,
}

/// What the rest of the server knows of the nodes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Keeper {
    words: mpsc::UnboundedSender<Word>,
    shared: Arc<Shared>,
}

struct Shared {
    me: String,
    shards: u32,
    place: Arc<Place>,
    /// As last seen.
    nodes: Mutex<Vec<Seen>>,
    /// The store answered the last time.
    reached: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper {
    /// This node's id.
    pub(crate) fn me(&self) -> &str {
        &self.shared.me
    }

    pub(crate) fn shards(&self) -> u32 {
        self.shared.shards
    }

    pub(crate) fn place(&self) -> &Place {
        &self.shared.place
    }

    /// All nodes as last seen, with the milliseconds since their last sign of life.
    pub(crate) fn nodes(&self) -> Vec<(Presence, i64)> {
        lock(&self.shared.nodes).iter().map(|seen| (seen.presence.clone(), seen.age_ms)).collect()
    }

    /// Whether the bucket answered lately.
    pub(crate) fn is_reached(&self) -> bool {
        self.shared.reached.load(Ordering::Relaxed)
    }

    /// Gives all shards away and leaves.
    pub(crate) async fn leave(&self) {
        let (done, left) = tokio::sync::oneshot::channel();
        if self.words.send(Word::Leave(done)).is_ok() {
            let _ = left.await;
        }
    }
}

/// What a node is started with.
pub(crate) struct Start {
    pub(crate) place: Arc<Place>,
    pub(crate) meta: Meta,
    pub(crate) options: ObjectOptions,
    pub(crate) settings: Settings,
    pub(crate) rounds: shard::Settings,
    pub(crate) presence: Presence,
    pub(crate) listener: TcpListener,
    pub(crate) outlets: Outlets,
    pub(crate) common: shard::Common,
}

/// Joins the other nodes.
pub(crate) async fn start(start: Start) -> anyhow::Result<Shards> {
    let Start { place, meta, options, settings, rounds, mut presence, listener, outlets, common } = start;
    let outward = outlets.outward.clone();
    let routes = Arc::new(Routes::new(meta.shards, settings.patience, outward.clone(), common));
    presence.id = new_id();
    presence.started_at = clock::now();
    while !Register::reserve(&place, &presence).await.context("this node cannot be announced")? {
        presence.id = new_id();
    }
    let seal = Seal::new(&meta.secret)?;
    let (words, heard) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        me: presence.id.clone(),
        shards: meta.shards,
        place: place.clone(),
        nodes: Mutex::default(),
        reached: AtomicBool::new(true),
    });
    let asked = Asked {
        routes: routes.clone(),
        outward: outward.clone(),
        seal: seal.clone(),
        poke: Poke(words.clone()),
    };
    tokio::spawn(listen::serve(listener, asked));
    let register = Register::default();
    let looked = words.clone();
    let seen = move |nodes| drop(looked.send(Word::Looked(nodes)));
    let herald = Herald::start(place, register.clone(), presence.clone(), &settings, seen);
    let keeping = Keeping {
        shared: shared.clone(),
        meta,
        seal,
        options,
        settings,
        rounds,
        own: presence,
        routes: routes.clone(),
        outlets,
        outward,
        register,
        herald,
        links: BTreeMap::new(),
        open: BTreeMap::new(),
        busy: BTreeMap::new(),
        wanted: BTreeMap::new(),
        words: words.clone(),
    };
    tokio::spawn(keeping.run(heard));
    Ok(Shards::Many { routes, keeper: Keeper { words, shared } })
}

fn new_id() -> String {
    clock::random_id().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// What is being done with a shard.
#[derive(Clone, Copy, PartialEq)]
enum Busy {
    Opening,
    Closing,
    /// Not before, in seconds of this node's own time.
    Pausing(f64),
}

struct Keeping {
    shared: Arc<Shared>,
    meta: Meta,
    seal: Seal,
    options: ObjectOptions,
    settings: Settings,
    rounds: shard::Settings,
    own: Presence,
    routes: Arc<Routes>,
    outlets: Outlets,
    outward: Outward,
    register: Register,
    herald: Herald,
    links: BTreeMap<String, Arc<Link>>,
    open: BTreeMap<u32, Open>,
    busy: BTreeMap<u32, Busy>,
    wanted: BTreeMap<u32, f64>,
    words: mpsc::UnboundedSender<Word>,
}

impl Keeping {
    async fn run(mut self, mut heard: mpsc::UnboundedReceiver<Word>) {
        while let Some(word) = heard.recv().await {
            if let Word::Leave(done) = word {
                self.leave(&mut heard).await;
                let _ = done.send(());
                return;
            }
            self.hear(word);
        }
    }

    fn hear(&mut self, word: Word) {
        match word {
            Word::Presence(presence) => self.hear_of(presence),
            Word::Looked(nodes) => self.look(nodes),
            Word::Opened(shard, Ok(open)) => {
                self.busy.remove(&shard);
                tracing::info!(shard, epoch = open.epoch, "the shard is open here");
                self.routes.set(shard, Route::Here(open.shard.clone()));
                self.open.insert(shard, open);
                self.announce();
            }
            Word::Opened(shard, Err(fault)) => {
                tracing::error!(shard, %fault, "the shard could not be opened; trying again");
                self.busy.insert(shard, Busy::Pausing(clock::now() + OPEN_AGAIN.as_secs_f64()));
            }
            Word::Ended(shard, result) => {
                self.routes.set(shard, Route::Nowhere);
                self.open.remove(&shard);
                match result {
                    Ok(()) => {
                        self.busy.remove(&shard);
                        tracing::info!(shard, "the shard is closed here");
                    }
                    Err(fault) => {
                        tracing::warn!(shard, %fault, "the shard has ended here");
                        self.busy.insert(shard, Busy::Pausing(clock::now() + OPEN_AGAIN.as_secs_f64()));
                    }
                }
                self.announce();
            }
            Word::Leave(_) => {}
        }
    }

    /// Another node told of itself: acts if that concerns more than its figures.
    fn hear_of(&mut self, presence: Presence) {
        self.register.tell(presence.clone());
        let mut nodes = lock(&self.shared.nodes).clone();
        let placed_as_before = match nodes.iter_mut().find(|seen| seen.presence.id == presence.id) {
            Some(seen) => {
                let same = seen.presence.is_placed_as(&presence);
                // Its age stays: whether it lives, the store decides.
                seen.presence = presence;
                same
            }
            // Not in the bucket's list yet, or this node looked before it came.
            None => {
                nodes.push(Seen { presence, age_ms: 0 });
                false
            }
        };
        if placed_as_before {
            *lock(&self.shared.nodes) = nodes;
        } else {
            self.respond(nodes);
        }
    }

    /// Acts on what was seen.
    fn look(&mut self, looked: Result<Vec<Seen>, Fault>) {
        let was = self.shared.reached.swap(looked.is_ok(), Ordering::Relaxed);
        match looked {
            Ok(mut nodes) => {
                if !was {
                    tracing::info!("the store answers again");
                }
                self.register.update(&mut nodes);
                self.respond(nodes);
            }
            Err(fault) if was => tracing::error!(%fault, "the store does not answer"),
            Err(_) => {}
        }
        self.own.shards = self.held();
        self.herald.note(self.own.clone());
        self.tell_nodes();
    }

    /// Over the links: whoever is told need not read the bucket.
    fn tell_nodes(&self) {
        let presence = Ask::Presence(self.own.clone());
        self.links.values().for_each(|link| link.say(&presence));
    }

    /// Says at once, to the bucket and to every node, what this one owns now, or is about to.
    fn say(&mut self) {
        self.own.shards = self.held();
        self.tell_nodes();
        self.herald.say(self.own.clone());
    }

    /// Says it, and does what follows for this node.
    fn announce(&mut self) {
        self.say();
        let mut nodes = lock(&self.shared.nodes).clone();
        if let Some(own) = nodes.iter_mut().find(|seen| seen.presence.id == self.own.id) {
            own.presence = self.own.clone();
        }
        self.respond(nodes);
    }

    /// Does what follows; what is being opened is said at once, so that no other node opens it too.
    fn respond(&mut self, nodes: Vec<Seen>) {
        if self.act(nodes) {
            self.say();
        }
    }

    fn held(&self) -> Vec<Held> {
        let held = self.open.iter().map(|(shard, open)| {
            let life = open.shard.life();
            Held {
                shard: *shard,
                epoch: open.epoch,
                jobs: life.jobs.load(Ordering::Relaxed),
                in_flight: life.in_flight.load(Ordering::Relaxed),
                commit_ms: life.commit_micros.load(Ordering::Relaxed) as f64 / 1000.0,
            }
        });
        let opening = self.busy.iter().filter(|(_, busy)| **busy == Busy::Opening);
        // The lowest epoch: whoever has it open is the owner.
        held.chain(opening.map(|(shard, _)| Held { shard: *shard, ..Held::default() })).collect()
    }

    /// Does what follows from what is seen; whether it began to open a shard.
    fn act(&mut self, mut nodes: Vec<Seen>) -> bool {
        // Of itself a node knows best.
        if let Some(own) = nodes.iter_mut().find(|seen| seen.presence.id == self.own.id) {
            own.presence = self.own.clone();
        }
        self.keep_links(&nodes);
        let now = clock::now();
        let sight = Sight {
            me: &self.own.id,
            shards: self.meta.shards,
            nodes: &nodes,
            gone_after: self.settings.gone_after(),
            wanted: &self.wanted,
            now,
        };
        let Plan { open, close, wanted, at } = sight.plan();
        self.wanted.retain(|shard, _| wanted.contains(shard));
        for shard in wanted {
            self.wanted.entry(shard).or_insert(now);
        }
        for shard in 0..self.meta.shards {
            let link = at.get(&shard).and_then(|node| self.links.get(node));
            self.routes.point(shard, link);
        }
        *lock(&self.shared.nodes) = nodes;
        self.busy.retain(|_, busy| !matches!(busy, Busy::Pausing(until) if *until <= now));
        for shard in close {
            if !self.busy.contains_key(&shard) {
                self.close(shard);
            }
        }
        let mut began = false;
        for shard in open {
            if !self.busy.contains_key(&shard) && !self.open.contains_key(&shard) {
                self.begin_open(shard);
                began = true;
            }
        }
        began
    }

    /// A link to every node that lives.
    fn keep_links(&mut self, nodes: &[Seen]) {
        let gone_after = i64::try_from(self.settings.gone_after().as_millis()).unwrap_or(i64::MAX);
        let others =
            || nodes.iter().filter(|seen| seen.presence.id != self.own.id && seen.age_ms < gone_after);
        let alive: Vec<(String, String)> =
            others().map(|seen| (seen.presence.id.clone(), seen.presence.address.clone())).collect();
        let before = self.links.len();
        self.links.retain(|id, _| alive.iter().any(|(node, _)| node == id));
        let mut changed = self.links.len() != before;
        for (id, address) in alive {
            if !self.links.contains_key(&id) {
                let link = Link::start(address, self.seal.clone(), self.outward.clone());
                self.links.insert(id, Arc::new(link));
                changed = true;
            }
        }
        if changed {
            self.outward.set_links(self.links.values().cloned().collect());
        }
    }

    fn begin_open(&mut self, shard: u32) {
        self.busy.insert(shard, Busy::Opening);
        let options = ObjectOptions { folder: Meta::folder(shard), ..self.options.clone() };
        let (outlets, rounds) = (self.outlets.clone(), self.rounds);
        let (common, words) = (self.routes.common.clone(), self.words.clone());
        let failed = words.clone();
        let runtime = tokio::runtime::Handle::current();
        let body = move || {
            let (opened, ending) = match open_shard(&options, rounds, outlets, common) {
                Ok((open, ending)) => (Ok(open), Some(ending)),
                Err(fault) => (Err(fault), None),
            };
            let _ = words.send(Word::Opened(shard, opened));
            if let Some(ending) = ending {
                let ended =
                    runtime.block_on(ending).unwrap_or_else(|_| Err(retry("its thread ended by a bug")));
                let _ = words.send(Word::Ended(shard, ended));
            }
        };
        // A thread of its own: it stays as long as the shard does.
        if let Err(error) = std::thread::Builder::new().name(format!("haul-open-{shard}")).spawn(body) {
            let _ = failed.send(Word::Opened(shard, Err(retry(&error.to_string()))));
        }
    }

    /// What has arrived is finished; who comes, and who waits, asks the next owner.
    fn close(&mut self, shard: u32) {
        let Some(open) = self.open.get(&shard) else { return };
        self.busy.insert(shard, Busy::Closing);
        self.routes.set(shard, Route::Nowhere);
        open.shard.stop();
    }

    fn close_all(&mut self) {
        let all: Vec<u32> =
            self.open.keys().filter(|shard| !self.busy.contains_key(*shard)).copied().collect();
        all.into_iter().for_each(|shard| self.close(shard));
    }

    async fn leave(&mut self, heard: &mut mpsc::UnboundedReceiver<Word>) {
        self.own.leaving = true;
        let deadline = tokio::time::Instant::from_std(clock::instant()) + LEAVE_MAX;
        self.announce();
        self.close_all();
        while !self.open.is_empty() || self.busy.values().any(|busy| *busy == Busy::Opening) {
            match tokio::time::timeout_at(deadline, heard.recv()).await {
                Ok(Some(word)) => {
                    self.hear(word);
                    // One that was just being opened.
                    self.close_all();
                }
                Ok(None) => break,
                Err(_) => {
                    tracing::warn!(
                        "not all shards could be closed in time; the next owner only starts slower"
                    );
                    break;
                }
            }
        }
        self.herald.end();
        let removed = Register::remove(&self.shared.place, &self.own.id);
        // Without, the others see that it is gone when it has been silent for long enough.
        let _ = tokio::time::timeout(self.settings.gone_after(), removed).await;
    }
}

/// Opens a shard and loads it. Blocks.
fn open_shard(
    options: &ObjectOptions,
    rounds: shard::Settings,
    outlets: Outlets,
    common: shard::Common,
) -> Result<(Open, shard::Ending), Fault> {
    let store = ObjectStore::open(options)?;
    let epoch = store.stats().epoch;
    let core = Core::load(Box::new(store))?;
    // After a fault the keeper decides who opens the shard: to open it here again might take it from its new owner.
    let never: OpenStore = Box::new(|| Err(Fault::Fenced));
    let started = shard::start_with(core, never, rounds, Box::new(outlets), common);
    let (shard, ending) = started.map_err(|error| retry(&error.to_string()))?;
    Ok((Open { shard, epoch }, ending))
}

fn retry(what: &str) -> Fault {
    Fault::Retry { what: what.to_owned() }
}
