//! The loop around the core: gather, apply, commit, let out. Also what to do when the store fails.
//!
//! It is a task that has one thread at a time: a thread of its own, or the one that connections live on (decision 0013).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use haul_store::{Fault, Store};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking, yield_now};
use tokio::time::timeout;

use super::core::{Core, Full, Publish, Request, Source};
use super::flight::Flight;
use super::handle::Shard;
use super::outlet::Outlet;
use super::pace::Pace;
use super::rest::Rest;
use super::tally::{Buckets, Tally};
use crate::clock;

/// Opens the store, at start and again after a fault.
pub(crate) type OpenStore = Box<dyn FnMut() -> Result<Box<dyn Store>, Fault> + Send>;

/// Bounds of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Commands gathered into one round at most, however slow the disk is: see `pace.rs`.
    pub(crate) round_calls_max: usize,
    /// Bytes of data gathered into one round at most.
    pub(crate) round_bytes_max: usize,
    /// Rounds given to the store and not durable yet at most: what hides the time a slow store takes.
    pub(crate) rounds_in_flight_max: usize,
    /// How often to look at the world without being asked: stop requests, a full disk.
    pub(crate) idle_tick: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            round_calls_max: 4096,
            round_bytes_max: 16 << 20,
            rounds_in_flight_max: 32,
            idle_tick: Duration::from_millis(250),
        }
    }
}

/// What reaches a shard's thread.
pub(crate) enum Message {
    Request(Request),
    /// There is something to look at.
    Wake,
    /// Nothing more will come.
    Stop,
}

/// Rounds of one request each after a round that was too large.
const CAREFUL_ROUNDS: usize = 1000;
/// Between attempts to open a store that failed.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// What the shard did; read by `INFO` and metrics.
pub(crate) struct Counters {
    pub(crate) calls: AtomicU64,
    pub(crate) rounds: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) commit_micros: AtomicU64,
    pub(crate) faults: AtomicU64,
    pub(crate) jobs: AtomicUsize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) full: AtomicBool,
    pub(crate) fsyncs: AtomicU64,
    pub(crate) disk_bytes: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    /// The state is being read again after a fault.
    pub(crate) loading: AtomicBool,
    pub(crate) tally: Tally,
    /// Commands of a round.
    pub(crate) round_sizes: Buckets<11>,
    /// Microseconds.
    pub(crate) commit_times: Buckets<14>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            calls: AtomicU64::default(),
            rounds: AtomicU64::default(),
            commits: AtomicU64::default(),
            records: AtomicU64::default(),
            bytes: AtomicU64::default(),
            commit_micros: AtomicU64::default(),
            faults: AtomicU64::default(),
            jobs: AtomicUsize::default(),
            waiting: AtomicUsize::default(),
            full: AtomicBool::default(),
            fsyncs: AtomicU64::default(),
            disk_bytes: AtomicU64::default(),
            log_bytes: AtomicU64::default(),
            loading: AtomicBool::default(),
            tally: Tally::default(),
            round_sizes: Buckets::new([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 4096]),
            commit_times: Buckets::new([
                100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
                1_000_000, 2_500_000,
            ]),
        }
    }
}

/// One shard's own figures.
#[derive(Default)]
pub(crate) struct Life {
    pub(crate) jobs: AtomicUsize,
    /// Rounds not durable yet.
    pub(crate) in_flight: AtomicUsize,
    /// What the last commit took.
    pub(crate) commit_micros: AtomicU64,
}

/// One shard's share in the figures that rise and fall.
#[derive(Clone, Copy, Default)]
struct Gauges {
    jobs: usize,
    waiting: usize,
    fsyncs: u64,
    disk_bytes: u64,
    log_bytes: u64,
}

impl Gauges {
    fn set(&mut self, counters: &Counters, now: Gauges) {
        counters.jobs.fetch_add(now.jobs.wrapping_sub(self.jobs), Ordering::Relaxed);
        counters.waiting.fetch_add(now.waiting.wrapping_sub(self.waiting), Ordering::Relaxed);
        counters.fsyncs.fetch_add(now.fsyncs.wrapping_sub(self.fsyncs), Ordering::Relaxed);
        counters.disk_bytes.fetch_add(now.disk_bytes.wrapping_sub(self.disk_bytes), Ordering::Relaxed);
        counters.log_bytes.fetch_add(now.log_bytes.wrapping_sub(self.log_bytes), Ordering::Relaxed);
        *self = now;
    }
}

impl Drop for Loop {
    /// What this shard holds is counted elsewhere from now on.
    fn drop(&mut self) {
        self.gauges.set(&self.counters, Gauges::default());
    }
}

/// How a shard ends.
pub(crate) type Ending = JoinHandle<Result<(), Fault>>;

/// Starts a shard on a loaded core, on a thread of its own.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn start(
    core: Core,
    open: OpenStore,
    settings: Settings,
    publish: Box<dyn Publish + Send>,
) -> std::io::Result<(Shard, Ending)> {
    start_with(core, open, settings, publish, Common::default())
}

/// What the shards of a node share: figures, the way out, and where they live.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) counters: Arc<Counters>,
    pub(super) outlet: Arc<Outlet>,
    /// None: each on a thread of its own.
    home: Option<Handle>,
}

impl Default for Common {
    fn default() -> Self {
        Common { counters: Arc::default(), outlet: Arc::new(Outlet::new()), home: None }
    }
}

impl Common {
    /// Has the answers to this thread's tasks delivered by a task of its own; called in a runtime with one thread.
    pub(crate) fn join_lane(&self) {
        self.outlet.join();
    }

    /// Shards that are started with this live in that runtime, which has one thread and outlasts them.
    pub(crate) fn at(self, home: Option<Handle>) -> Self {
        Common { home, ..self }
    }
}

/// Starts one of several shards.
pub(crate) fn start_with(
    mut core: Core,
    open: OpenStore,
    settings: Settings,
    publish: Box<dyn Publish + Send>,
    common: Common,
) -> std::io::Result<(Shard, Ending)> {
    let (requests, arrived) = unbounded_channel();
    let shard = Shard {
        requests,
        counters: common.counters,
        stopping: Arc::new(AtomicBool::new(false)),
        draining: Arc::new(AtomicBool::new(false)),
        life: Arc::default(),
        source: core.source(),
    };
    core.attach(publish.listeners(), shard.counters.clone());
    shard.life.jobs.store(core.engine().jobs(), Ordering::Relaxed);
    let body = Loop {
        arrived,
        open: Some(open),
        settings,
        publish,
        outlet: common.outlet,
        source: core.source(),
        gauges: Gauges::default(),
        life: shard.life.clone(),
        counters: shard.counters.clone(),
        stopping: shard.stopping.clone(),
        draining: shard.draining.clone(),
        flight: Flight::new(shard.requests.downgrade(), Pace::new(common.home.is_none())),
        stop_seen: false,
        gathered: Gathered::default(),
        lingers_since: None,
        owes_turn: false,
        worked_until: None,
        rest: Rest::default(),
        careful_rounds: 0,
    };
    let ending = match common.home {
        Some(home) => home.spawn(body.run(core)),
        None => spawn_alone(body.run(core))?,
    };
    Ok((shard, ending))
}

/// Gives a task a thread of its own.
fn spawn_alone(
    task: impl Future<Output = Result<(), Fault>> + Send + 'static,
) -> std::io::Result<JoinHandle<Result<(), Fault>>> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let (done, ended) = oneshot::channel::<()>();
    let ending = runtime.spawn(async move {
        let _done = done;
        task.await
    });
    let body = move || drop(runtime.block_on(ended));
    std::thread::Builder::new().name("haul-shard".to_owned()).spawn(body)?;
    Ok(ending)
}

/// What the open round has taken in.
#[derive(Clone, Copy, Default)]
struct Gathered {
    calls: usize,
    bytes: usize,
    /// Since when.
    began: Option<Instant>,
    /// Nobody else has come.
    is_all: bool,
}

struct Loop {
    arrived: UnboundedReceiver<Message>,
    /// Away while the store is opened again.
    open: Option<OpenStore>,
    settings: Settings,
    publish: Box<dyn Publish + Send>,
    outlet: Arc<Outlet>,
    source: Source,
    gauges: Gauges,
    life: Arc<Life>,
    counters: Arc<Counters>,
    stopping: Arc<AtomicBool>,
    draining: Arc<AtomicBool>,
    /// Rounds on their way to be durable.
    flight: Flight,
    stop_seen: bool,
    gathered: Gathered,
    /// Since when it has changes that nobody waits for.
    lingers_since: Option<Instant>,
    /// On a lane: the other tasks are to have a turn before the next round.
    owes_turn: bool,
    /// The thread's processor time when the last round was given to the store.
    worked_until: Option<Duration>,
    rest: Rest,
    /// Rounds to come that take one request each: one of the last round was too large, and this finds out which.
    careful_rounds: usize,
}

impl Loop {
    async fn run(mut self, mut core: Core) -> Result<(), Fault> {
        let (mut last_look, mut stop) = (0.0, false);
        loop {
            let is_open = match self.settle(&mut core, stop).await {
                Ok(is_open) => is_open,
                Err(fault) => {
                    core = self.recover(core, &fault).await?;
                    false
                }
            };
            if stop {
                return self.end(core).await;
            }
            let wait = self.patience(&core);
            let first = self.next(wait, is_open).await;
            let clock = clock::now();
            stop = match first {
                Some(Message::Request(request)) => {
                    self.gather(&mut core, request, clock);
                    self.stop_seen
                }
                Some(Message::Wake) => false,
                Some(Message::Stop) => true,
                None => self.stopping.load(Ordering::Acquire),
            };
            core.listen(self.publish.is_heard());
            core.wake(clock);
            if self.draining.load(Ordering::Acquire) {
                core.end_all_waits();
            }
            // Also when the clock was set back.
            if (clock - last_look).abs() > self.settings.idle_tick.as_secs_f64() {
                last_look = clock;
                if let Err(fault) = self.look_around(&mut core, clock) {
                    core = self.recover(core, &fault).await?;
                }
            }
        }
    }

    /// Lets out what has become durable, and gives the open round to the store unless it may still grow; whether it was left open.
    async fn settle(&mut self, core: &mut Core, stop: bool) -> Result<bool, Fault> {
        self.flight.land(self.settings.rounds_in_flight_max - 1).await?;
        let mut is_open = core.has_work();
        if !is_open {
            self.gathered = Gathered::default();
        } else if !stop && self.may_linger(core) {
            // For the next round it is as if nobody had come yet.
            (self.gathered.began, self.gathered.is_all) = (None, false);
            is_open = false;
        } else if stop || !self.may_grow() {
            self.finish(core).await?;
            self.owes_turn = !self.flight.pace.is_alone();
            is_open = false;
        }
        self.let_out();
        Ok(is_open)
    }

    /// Whether the open round can wait for the next one: nobody is answered by it. A worker that finds nothing and waits costs no
    /// sync of its own then.
    fn may_linger(&mut self, core: &Core) -> bool {
        if core.is_awaited() || self.is_round_full() {
            return false;
        }
        self.lingers_since.get_or_insert_with(clock::instant).elapsed() < self.settings.idle_tick
    }

    /// Whether the open round is to take in who comes: the one before is just being synced, so it can be no sooner; or, on a
    /// lane, somebody has just come.
    fn may_grow(&self) -> bool {
        !self.is_round_full() && (self.flight.is_syncing() || self.is_gathering())
    }

    fn is_gathering(&self) -> bool {
        let Gathered { began, is_all, .. } = self.gathered;
        began.is_some_and(|began| !is_all && began.elapsed() < self.flight.pace.gathering_max())
    }

    fn is_round_full(&self) -> bool {
        let Gathered { calls, bytes, .. } = self.gathered;
        calls >= self.flight.pace.calls(self.settings.round_calls_max)
            || bytes >= self.settings.round_bytes_max
            || (self.careful_rounds > 0 && calls > 0)
    }

    /// Gives the round to the store. What was durable before it is let out afterwards, unless this thread has to wait.
    async fn finish(&mut self, core: &mut Core) -> Result<(), Fault> {
        if self.flight.is_syncing() {
            self.flight.land(0).await?;
        }
        let Gathered { calls, .. } = std::mem::take(&mut self.gathered);
        self.lingers_since = None;
        self.careful_rounds = self.careful_rounds.saturating_sub(1);
        if calls > 0 {
            self.counters.round_sizes.add(calls as u64);
        }
        let pace = &mut self.flight.pace;
        if pace.is_alone() {
            let worked = clock::thread_time();
            let before = self.worked_until.replace(worked).unwrap_or(worked);
            pace.worked(calls, worked.saturating_sub(before));
        }
        if !pace.is_worth_a_thread() {
            self.let_out();
        }
        let began = clock::instant();
        let round = core.finish()?;
        if self.flight.add(round, began) && self.flight.pace.is_alone() {
            // What it took to sync is not work that a sync could be done beside.
            self.worked_until = Some(clock::thread_time());
        }
        self.life.in_flight.store(self.flight.len(), Ordering::Relaxed);
        let now = Gauges { jobs: core.engine().jobs(), waiting: core.waiting(), ..self.gauges };
        self.gauges.set(&self.counters, now);
        self.life.jobs.store(now.jobs, Ordering::Relaxed);
        self.flight.land(usize::MAX).await
    }

    /// Lets out the rounds that have become durable.
    fn let_out(&mut self) {
        while let Some((round, began)) = self.flight.take_landed() {
            self.count(round.size, began.elapsed());
            self.life.in_flight.store(self.flight.len(), Ordering::Relaxed);
            let answers = round.release(&mut *self.publish);
            self.outlet.release(answers);
        }
    }

    /// Lets out everything, and closes the store.
    async fn end(mut self, core: Core) -> Result<(), Fault> {
        let landed = self.flight.land(0).await;
        self.let_out();
        if let Err(fault) = landed {
            // They may have been done: who is not told so would ask again elsewhere.
            self.flight.abandon(&fault);
            return Err(fault);
        }
        spawn_blocking(move || core.close()).await.unwrap_or_else(|error| Err(no_thread(&error)))
    }

    /// How long nothing happens by itself.
    fn patience(&self, core: &Core) -> Duration {
        let tick = self.settings.idle_tick;
        match core.next_wake() {
            Some(wake) => Duration::from_secs_f64((wake - clock::now()).clamp(0.0, tick.as_secs_f64())),
            None => tick,
        }
    }

    /// The next message; none when something is due by itself, or when nobody comes to a round that was left open for them.
    async fn next(&mut self, wait: Duration, is_open: bool) -> Option<Message> {
        if std::mem::take(&mut self.owes_turn) && !self.arrived.is_empty() {
            // Whoever sends from elsewhere must not keep the tasks of this thread waiting.
            yield_now().await;
        }
        match self.arrived.try_recv() {
            Ok(message) => return Some(message),
            Err(TryRecvError::Disconnected) => return Some(Message::Stop),
            Err(TryRecvError::Empty) => {}
        }
        if is_open && !self.flight.is_syncing() {
            // The other tasks of this thread read what has arrived meanwhile. Not asked of the clock again: it may say by now that
            // the round is to wait no longer, and nobody else would end it.
            yield_now().await;
            let next = self.arrived.try_recv().ok();
            self.gathered.is_all = next.is_none();
            return next;
        }
        let arrived = timeout(wait, self.arrived.recv()).await;
        arrived.ok().map(|message| message.unwrap_or(Message::Stop))
    }

    /// Applies what has arrived, within the bounds of a round.
    fn gather(&mut self, core: &mut Core, first: Request, clock: f64) {
        let before = self.gathered.calls;
        if !self.flight.pace.is_alone() {
            self.gathered.began.get_or_insert_with(clock::instant);
        }
        let mut next = Some(first);
        while let Some(request) = next {
            self.gathered.calls += request.calls.len();
            self.gathered.bytes += request.calls.iter().map(weight).sum::<usize>();
            // Asked for each: who subscribed before this was sent hears of it.
            core.listen(self.publish.is_heard());
            core.apply(request, clock);
            if self.is_round_full() {
                break;
            }
            next = match self.arrived.try_recv() {
                Ok(Message::Request(request)) => Some(request),
                Ok(Message::Stop) => {
                    self.stop_seen = true;
                    None
                }
                Ok(Message::Wake) | Err(_) => None,
            };
        }
        let calls = self.gathered.calls - before;
        self.counters.calls.fetch_add(calls as u64, Ordering::Relaxed);
    }

    fn count(&self, size: Option<super::core::RoundSize>, took: Duration) {
        self.counters.rounds.fetch_add(1, Ordering::Relaxed);
        if let Some(size) = size {
            self.counters.commits.fetch_add(1, Ordering::Relaxed);
            self.counters.records.fetch_add(size.records as u64, Ordering::Relaxed);
            self.counters.bytes.fetch_add(size.bytes as u64, Ordering::Relaxed);
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            self.life.commit_micros.store(micros, Ordering::Relaxed);
            self.counters.commit_micros.fetch_add(micros, Ordering::Relaxed);
            self.counters.commit_times.add(micros);
        }
    }

    /// Figures, whether a full disk has room again, and what is left for quiet times.
    fn look_around(&mut self, core: &mut Core, clock: f64) -> Result<(), Fault> {
        core.sweep();
        if core.is_full() && core.probe(clock)? {
            tracing::info!("the disk has room again: writes are served");
        }
        let stats = core.stats();
        self.counters.full.store(core.is_full(), Ordering::Relaxed);
        let now = Gauges {
            jobs: core.engine().jobs(),
            waiting: core.waiting(),
            fsyncs: stats.fsyncs,
            disk_bytes: stats.disk_bytes,
            log_bytes: stats.log_bytes,
        };
        self.gauges.set(&self.counters, now);
        if self.rest.is_quiet(clock, stats.bytes_written) {
            core.rest();
        }
        Ok(())
    }

    /// The store failed: everything unanswered is told to try again, the memory is dropped and loaded again.
    async fn recover(&mut self, core: Core, fault: &Fault) -> Result<Core, Fault> {
        self.counters.faults.fetch_add(1, Ordering::Relaxed);
        // Of several in flight the earlier ones may still come true; none after the first that failed.
        let fault = &self.flight.land(0).await.err().unwrap_or_else(|| fault.clone());
        self.let_out();
        self.flight.abandon(fault);
        (self.gathered, self.lingers_since, self.worked_until) = (Gathered::default(), None, None);
        if *fault == Fault::Fenced {
            // Nothing was applied for those who wait or have just come: they may ask the new owner.
            core.abandon(fault);
            return Err(Fault::Fenced);
        }
        self.counters.loading.store(true, Ordering::Relaxed);
        tracing::error!(%fault, "a round could not be made durable: the state is loaded again from the store");
        let told = match fault {
            Fault::TooLarge { .. } if core.open_requests() > 1 => {
                self.careful_rounds = CAREFUL_ROUNDS;
                Fault::Retry { what: "another request of the same round was too large".to_owned() }
            }
            fault => fault.clone(),
        };
        let full = matches!(fault, Fault::Full { .. })
            .then(|| Full { fault: fault.clone(), bytes: core.round_bytes() });
        let next_body = core.engine().next_body();
        let (store, waiters) = core.abandon(&told);
        // After these the store is as it was before the round.
        let usable = matches!(fault, Fault::Full { .. } | Fault::TooLarge { .. });
        let mut core = self.reload(store, usable).await?;
        core.take_over(self.source.clone(), next_body);
        core.attach(self.publish.listeners(), self.counters.clone());
        self.counters.loading.store(false, Ordering::Relaxed);
        core.resume(waiters, full, clock::now());
        Ok(core)
    }

    /// Loads the state again, from the store or, if that is of no use, from one that is opened anew: on a thread where nobody else
    /// has to wait for it.
    async fn reload(&mut self, store: Box<dyn Store>, usable: bool) -> Result<Core, Fault> {
        let Some(mut open) = self.open.take() else { return Err(Fault::Fenced) };
        // Draining comes first: until then somebody may wait for this shard who must end before it is told to stop.
        let (stopping, draining) = (self.stopping.clone(), self.draining.clone());
        let gives_up = move || stopping.load(Ordering::Acquire) || draining.load(Ordering::Acquire);
        let loading = spawn_blocking(move || {
            let store = Some(store).filter(|_| usable);
            (load_again(store, &mut open, &gives_up), open)
        });
        let (core, open) = loading.await.map_err(|error| no_thread(&error))?;
        self.open = Some(open);
        core
    }
}

fn load_again(
    mut store: Option<Box<dyn Store>>,
    open: &mut OpenStore,
    gives_up: &impl Fn() -> bool,
) -> Result<Core, Fault> {
    loop {
        let opened = match store.take() {
            Some(store) => store,
            None => reopen(open, gives_up)?,
        };
        match Core::load(opened) {
            Err(fault) if !matches!(fault, Fault::Corrupt { .. } | Fault::Format { .. }) && !gives_up() => {
                tracing::error!(%fault, "the store could not be loaded; trying again");
                std::thread::sleep(REOPEN_PAUSE);
            }
            loaded => return loaded,
        }
    }
}

fn reopen(open: &mut OpenStore, gives_up: &impl Fn() -> bool) -> Result<Box<dyn Store>, Fault> {
    loop {
        match open() {
            Ok(store) => return Ok(store),
            Err(fault @ (Fault::Corrupt { .. } | Fault::Format { .. } | Fault::Fenced)) => {
                return Err(fault);
            }
            Err(fault) if gives_up() => return Err(fault),
            Err(fault) => {
                tracing::error!(%fault, "the store could not be opened; trying again");
                std::thread::sleep(REOPEN_PAUSE);
            }
        }
    }
}

fn no_thread(error: &tokio::task::JoinError) -> Fault {
    Fault::Retry { what: format!("no thread for the store: {error}") }
}

/// Bytes of data a call brings.
fn weight(call: &haul_engine::Call) -> usize {
    use haul_engine::Command;
    match &call.command {
        Command::Put(put) => put.data.as_ref().map_or(0, bytes::Bytes::len),
        Command::PutMany(puts) => {
            puts.iter().filter_map(|put| put.data.as_ref()).map(bytes::Bytes::len).sum()
        }
        Command::Complete(complete) => complete.data.as_ref().map_or(0, bytes::Bytes::len),
        Command::Heartbeat(beat) => beat.data.as_ref().map_or(0, bytes::Bytes::len),
        Command::Report(report) => {
            report.output.iter().chain(&report.checkpoint).map(bytes::Bytes::len).sum()
        }
        Command::Fail(fail) => fail.message.len(),
        _ => 0,
    }
}
