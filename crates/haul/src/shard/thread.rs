//! The loop around the core: gather, apply, commit, let out. Also what to do when the store fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use haul_store::{Fault, Store};

use super::core::{Core, Full, Publish, Request, Source};
use super::flight::Flight;
use super::handle::Shard;
use super::outlet::Outlet;
use super::rest::{self, Rest};
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
}

impl Default for Settings {
    fn default() -> Self {
        Settings { round_calls_max: 4096, round_bytes_max: 16 << 20, rounds_in_flight_max: 32 }
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

/// How often to look at the world without being asked: stop requests, a full disk.
const IDLE_TICK: Duration = Duration::from_millis(250);
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
    /// Commands sent to the shard so far.
    pub(super) sent: AtomicUsize,
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

/// Starts a shard's thread on a loaded core.
pub(crate) fn start(
    core: Core,
    open: OpenStore,
    settings: Settings,
    publish: Box<dyn Publish + Send>,
) -> std::io::Result<(Shard, std::thread::JoinHandle<Result<(), Fault>>)> {
    start_with(core, open, settings, publish, Common::default())
}

/// What the shards of a node share: figures, and the way out.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) counters: Arc<Counters>,
    pub(super) outlet: Arc<Outlet>,
}

impl Default for Common {
    fn default() -> Self {
        Common { counters: Arc::default(), outlet: Arc::new(Outlet::new()) }
    }
}

impl Common {
    /// See [`Shard::join_lane`].
    pub(crate) fn join_lane(&self) {
        self.outlet.join();
    }
}

/// Starts one of several shards.
pub(crate) fn start_with(
    mut core: Core,
    open: OpenStore,
    settings: Settings,
    publish: Box<dyn Publish + Send>,
    common: Common,
) -> std::io::Result<(Shard, std::thread::JoinHandle<Result<(), Fault>>)> {
    let (requests, arrived) = std::sync::mpsc::channel();
    let shard = Shard {
        requests: Arc::new(requests),
        counters: common.counters,
        stopping: Arc::new(AtomicBool::new(false)),
        draining: Arc::new(AtomicBool::new(false)),
        outlet: common.outlet,
        life: Arc::default(),
        source: core.source(),
    };
    core.attach(publish.listeners(), shard.counters.clone());
    let source = core.source();
    let life = shard.life.clone();
    let flight = Flight::new(Arc::downgrade(&shard.requests), life.clone());
    life.jobs.store(core.engine().jobs(), Ordering::Relaxed);
    let (counters, stopping) = (shard.counters.clone(), shard.stopping.clone());
    let draining = shard.draining.clone();
    let outlet = shard.outlet.clone();
    let body = Loop {
        arrived,
        open,
        settings,
        publish,
        outlet,
        source,
        gauges: Gauges::default(),
        life,
        counters,
        stopping,
        draining,
        flight,
        stop_seen: false,
        taken: 0,
        rest: Rest::default(),
        careful_rounds: 0,
    };
    let thread = std::thread::Builder::new().name("haul-shard".to_owned()).spawn(move || body.run(core))?;
    Ok((shard, thread))
}

struct Loop {
    arrived: Receiver<Message>,
    open: OpenStore,
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
    /// Commands taken into rounds so far.
    taken: usize,
    rest: Rest,
    /// Rounds to come that take one request each: one of the last round was too large, and this finds out which.
    careful_rounds: usize,
}

impl Loop {
    fn run(mut self, mut core: Core) -> Result<(), Fault> {
        let mut last_look = 0.0;
        loop {
            if let Err(fault) = self.let_out(self.settings.rounds_in_flight_max - 1) {
                core = self.recover(core, &fault)?;
            }
            let first = self.next(&core);
            let clock = clock::now();
            let stop = match first {
                Ok(Message::Request(request)) => {
                    self.gather(&mut core, request, clock);
                    self.stop_seen
                }
                Ok(Message::Wake) => false,
                Ok(Message::Stop) => true,
                Err(RecvTimeoutError::Timeout) => self.stopping.load(Ordering::Acquire),
                Err(RecvTimeoutError::Disconnected) => true,
            };
            core.listen(self.publish.is_heard());
            core.wake(clock);
            if self.draining.load(Ordering::Acquire) {
                core.end_all_waits();
            }
            if core.has_work()
                && let Err(fault) = self.finish(&mut core)
            {
                core = self.recover(core, &fault)?;
            }
            if clock - last_look > IDLE_TICK.as_secs_f64() {
                last_look = clock;
                core = self.look_around(core, clock)?;
            }
            if stop {
                if let Err(fault) = self.let_out(0) {
                    // They may have been done: who is not told so would ask again elsewhere.
                    self.flight.abandon(&fault);
                    return Err(fault);
                }
                return core.close();
            }
        }
    }

    /// Gives the round to the store; lets it out at once if it is durable and none is before it.
    fn finish(&mut self, core: &mut Core) -> Result<(), Fault> {
        if self.flight.is_syncing() {
            self.let_out(0)?;
        }
        let began = clock::instant();
        let round = core.finish()?;
        self.flight.add(round, began, self.taken);
        self.life.in_flight.store(self.flight.len(), Ordering::Relaxed);
        let now = Gauges { jobs: core.engine().jobs(), waiting: core.waiting(), ..self.gauges };
        self.gauges.set(&self.counters, now);
        self.life.jobs.store(now.jobs, Ordering::Relaxed);
        self.let_out(usize::MAX)
    }

    /// Lets out the rounds that have become durable, and waits until at most so many are left.
    fn let_out(&mut self, left_max: usize) -> Result<(), Fault> {
        while let Some(landed) = self.flight.next(left_max) {
            let (round, began) = landed?;
            self.count(round.size, began.elapsed());
            self.life.in_flight.store(self.flight.len(), Ordering::Relaxed);
            let answers = round.release(&mut *self.publish);
            self.outlet.release(answers);
        }
        Ok(())
    }

    /// The next request, or a time-out when something is due by itself.
    fn next(&self, core: &Core) -> Result<Message, RecvTimeoutError> {
        match self.arrived.try_recv() {
            Ok(message) => return Ok(message),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        let wait = match core.next_wake() {
            Some(wake) => Duration::from_secs_f64((wake - clock::now()).clamp(0.0, IDLE_TICK.as_secs_f64())),
            None => IDLE_TICK,
        };
        self.arrived.recv_timeout(wait)
    }

    /// Applies what has arrived, within the bounds of a round.
    fn gather(&mut self, core: &mut Core, first: Request, clock: f64) {
        let began = clock::instant();
        let calls_max = self.flight.pace.calls(self.settings.round_calls_max);
        let (mut calls, mut bytes) = (0, 0);
        let careful = self.careful_rounds > 0;
        self.careful_rounds = self.careful_rounds.saturating_sub(1);
        let mut next = Some(first);
        while let Some(request) = next {
            calls += request.calls.len();
            bytes += request.calls.iter().map(weight).sum::<usize>();
            // Asked for each: who subscribed before this was sent hears of it.
            core.listen(self.publish.is_heard());
            core.apply(request, clock);
            if careful || calls >= calls_max || bytes >= self.settings.round_bytes_max {
                break;
            }
            next = loop {
                match self.arrived.try_recv() {
                    Ok(Message::Request(request)) => break Some(request),
                    Ok(Message::Wake) => {}
                    Ok(Message::Stop) => {
                        self.stop_seen = true;
                        break None;
                    }
                    Err(_) => break None,
                }
            };
        }
        self.taken = self.taken.wrapping_add(calls);
        self.counters.calls.fetch_add(calls as u64, Ordering::Relaxed);
        self.counters.round_sizes.add(calls as u64);
        self.flight.pace.applied(calls, began.elapsed());
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
    fn look_around(&mut self, mut core: Core, clock: f64) -> Result<Core, Fault> {
        core.sweep();
        if core.is_full() {
            match core.probe(clock) {
                Ok(true) => tracing::info!("the disk has room again: writes are served"),
                Ok(false) => {}
                Err(fault) => core = self.recover(core, &fault)?,
            }
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
            if self.rest.is_time_to_purge() {
                rest::purge();
            }
        }
        Ok(core)
    }

    /// The store failed: everything unanswered is told to try again, the memory is dropped and loaded again.
    fn recover(&mut self, core: Core, fault: &Fault) -> Result<Core, Fault> {
        self.counters.faults.fetch_add(1, Ordering::Relaxed);
        // Of several in flight the earlier ones may still come true; none after the first that failed.
        let fault = &self.let_out(0).err().unwrap_or_else(|| fault.clone());
        self.flight.abandon(fault);
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
        let (mut store, waiters) = core.abandon(&told);
        // After these the store is as it was before the round.
        let usable = matches!(fault, Fault::Full { .. } | Fault::TooLarge { .. });
        loop {
            if !usable {
                drop(store);
                store = self.reopen()?;
            }
            match Core::load(store) {
                Ok(mut core) => {
                    core.take_over(self.source.clone());
                    core.attach(self.publish.listeners(), self.counters.clone());
                    self.counters.loading.store(false, Ordering::Relaxed);
                    core.resume(waiters, full, clock::now());
                    return Ok(core);
                }
                Err(fault @ (Fault::Corrupt { .. } | Fault::Format { .. })) => return Err(fault),
                Err(fault) => {
                    tracing::error!(%fault, "the store could not be loaded; trying again");
                    std::thread::sleep(REOPEN_PAUSE);
                    store = self.reopen()?;
                }
            }
        }
    }

    fn reopen(&mut self) -> Result<Box<dyn Store>, Fault> {
        loop {
            match (self.open)() {
                Ok(store) => return Ok(store),
                Err(fault @ (Fault::Corrupt { .. } | Fault::Format { .. } | Fault::Fenced)) => {
                    return Err(fault);
                }
                Err(fault) if self.stopping.load(Ordering::Acquire) => return Err(fault),
                Err(fault) => {
                    tracing::error!(%fault, "the store could not be opened; trying again");
                    std::thread::sleep(REOPEN_PAUSE);
                }
            }
        }
    }
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
