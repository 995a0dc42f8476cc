//! A shard whose disk fills up, fails, or loses its answer: what was acknowledged stays, what was not is told so, the
//! memory equals the store, and who waits goes on waiting.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use haul_client::resp::Frame;
use haul_engine::{Event, Name};
use haul_store::{Fault, Inject, MemoryDisk, Space, Store};
use tokio::sync::oneshot;

use super::core::Request;
use super::*;
use crate::dialect::scripts::Script;
use crate::dialect::{DataLimits, Env, ErrorFormat, Plan, Render, native, qless};

/// Room for what a probe and the tests write; far more than a test waits for.
const PATIENCE_TURNS: usize = 5000;
/// And how long, where nothing can be counted.
const PATIENCE: Duration = Duration::from_secs(60);

struct Nobody;

impl Publish for Nobody {
    fn publish(&mut self, _: &Name, _: Vec<Event>) {}
}

fn env() -> Env {
    Env {
        tenant: Name::new(b""),
        clock: crate::clock::now(),
        limits: DataLimits::default(),
        lua_data: false,
        blueque_strict: false,
        error_format: ErrorFormat::Clean,
    }
}

pub(super) fn plan(line: &str) -> Plan {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    native::read(words[0], &words[1..], &env()).unwrap()
}

/// As a client of qless says it.
fn qless_plan(line: &str) -> Plan {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    qless::read(Script::Qless, "", 0, &words, &env()).unwrap()
}

/// A running shard on a disk that does as it is told.
struct Rig {
    disk: MemoryDisk,
    shard: Shard,
    runtime: tokio::runtime::Runtime,
}

impl Rig {
    fn new() -> Rig {
        Rig::at(None)
    }

    /// One on a thread of its own, and one on the thread of others.
    fn both() -> [Rig; 2] {
        let lane = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let home = lane.handle().clone();
        std::thread::spawn(move || lane.block_on(std::future::pending::<()>()));
        [Rig::at(None), Rig::at(Some(home))]
    }

    fn at(home: Option<tokio::runtime::Handle>) -> Rig {
        Rig::with(home, Settings::default())
    }

    fn with(home: Option<tokio::runtime::Handle>, settings: Settings) -> Rig {
        let disk = MemoryDisk::new();
        let core = Core::load(Box::new(disk.open())).unwrap();
        let opened = disk.clone();
        let open: OpenStore = Box::new(move || Ok(Box::new(opened.open()) as Box<dyn Store>));
        let common = Common::default().at(home);
        let (shard, _) = start_with(core, open, settings, Box::new(Nobody), common).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Rig { disk, shard, runtime }
    }

    fn say(&self, line: &str) -> Result<Frame, Fault> {
        self.ask(plan(line))
    }

    fn ask(&self, plan: Plan) -> Result<Frame, Fault> {
        let Plan { call, render, .. } = plan;
        self.runtime.block_on(async {
            let outcome =
                self.shard.ask(vec![call], Vec::new()).await.unwrap().outcomes.unwrap().pop().unwrap();
            finish(render, outcome).await
        })
    }

    /// Sends a pop that waits. It is parked when this returns: what is said next is behind it.
    fn block(&self, line: &str) -> impl Future<Output = Result<Frame, Fault>> + use<> {
        let Plan { call, render, wait } = plan(line);
        let answer = self.shard.wait(call, wait.unwrap());
        self.say("LENGTH nothing").unwrap();
        async move {
            let outcome = answer.await.unwrap().outcomes.unwrap().pop().unwrap();
            finish(render, outcome).await
        }
    }

    /// Says it until it is taken; every refusal on the way must be `FULL`.
    fn insist(&self, line: &str) {
        for _ in 0..PATIENCE_TURNS {
            match self.say(line) {
                Ok(_) => return,
                Err(fault) => assert!(matches!(fault, Fault::Full { .. }), "{fault}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("the disk stays full");
    }
}

async fn finish(render: Render, outcome: Outcome) -> Result<Frame, Fault> {
    super::texts(outcome).await.map(|(reply, texts)| render.frame(reply, &texts))
}

fn bulk(text: &str) -> Result<Frame, Fault> {
    Ok(Frame::bulk(text.to_owned()))
}

fn shows(answer: &Result<Frame, Fault>, part: &str) -> bool {
    format!("{answer:?}").replace('\\', "").contains(part)
}

/// Jobs of one call are ready at one moment, and of those the one with the highest jid is first: the last put was taken first.
#[test]
fn jobs_that_are_put_together_are_taken_in_their_order() {
    let rig = Rig::new();
    let jobs = (0..40).map(|at| format!(r#"{{"queue":"q","klass":"k","data":"<{at}>"}}"#));
    let named = r#"{"queue":"other","klass":"k","data":"named","jid":"mine"}"#.to_owned();
    let jobs: Vec<String> = jobs.chain([named]).collect();
    let jids = rig.say(&format!("MPUT {}", jobs.join(" "))).unwrap();
    assert!(format!("{jids:?}").contains("mine"));
    let popped = format!("{:?}", rig.say("POP w COUNT 40 QUEUES q").unwrap());
    let places: Vec<_> = (0..40).map(|at| popped.find(&format!("<{at}>")).unwrap()).collect();
    assert!(places.is_sorted(), "{popped}");
}

/// A worker that waits was seen, which is stored: each one that found nothing cost a sync, although nobody was told anything.
#[test]
fn workers_that_find_nothing_and_wait_cost_no_commit_of_their_own() {
    let settings = Settings { idle_tick: Duration::from_secs(3600), ..Settings::default() };
    let rig = Rig::with(None, settings);
    let commits = || rig.shard.counters().commits.load(Ordering::Relaxed);
    rig.say("PUT other k {}").unwrap();
    let before = commits();
    let mut waiting = Vec::new();
    for worker in 0..5 {
        let calls = rig.shard.counters().calls.load(Ordering::Relaxed);
        let Plan { call, wait, .. } = plan(&format!("POP w{worker} WAIT 60 QUEUES q"));
        waiting.push(rig.shard.wait(call, wait.unwrap()));
        while rig.shard.counters().calls.load(Ordering::Relaxed) == calls {
            std::thread::yield_now();
        }
    }
    assert_eq!(commits(), before);
    // Whoever is answered is answered with all that came before.
    assert!(shows(&rig.say("WORKERS"), "w4"));
    assert_eq!(commits(), before + 1);
    assert!(rig.disk.records().iter().any(|(_, key, _)| key.ends_with(b"w4")));
}

#[test]
fn what_nobody_waits_for_is_kept_all_the_same() {
    for rig in Rig::both() {
        let Plan { call, wait, .. } = plan("POP w1 WAIT 60 QUEUES q");
        let _waiting = rig.shard.wait(call, wait.unwrap());
        let is_kept = || rig.disk.records().iter().any(|(_, key, _)| key.ends_with(b"w1"));
        let turns = (0..PATIENCE_TURNS).find(|_| {
            std::thread::sleep(Duration::from_millis(2));
            is_kept()
        });
        assert!(turns.is_some());
    }
}

#[test]
fn data_handed_in_again_is_written_again_only_if_it_is_other_data() {
    let rig = Rig::new();
    let (long, other) = (format!("\"{}\"", "d".repeat(500)), format!("\"{}\"", "e".repeat(500)));
    let bodies =
        || rig.disk.records().into_iter().filter(|record| record.0 == Space::Body).collect::<Vec<_>>();
    for (beat, end) in [(&long, &long), (&long, &other), (&other, &long), (&other, &other)] {
        rig.say(&format!("PUT q k {long} JID j1")).unwrap();
        let first = bodies();
        rig.say("POP w QUEUES q").unwrap();
        rig.ask(qless_plan(&format!("heartbeat 1 j1 w {beat}"))).unwrap();
        assert!(shows(&rig.say("GET j1"), beat));
        assert_eq!(bodies() == first, beat == &long);
        let second = bodies();
        rig.ask(qless_plan(&format!("complete 1 j1 w q {end}"))).unwrap();
        assert!(shows(&rig.say("GET j1"), end));
        assert_eq!(bodies() == second, beat == end);
        assert_eq!(bodies().len(), 1);
        rig.say("CANCEL j1").unwrap();
    }
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_takes_writes_again_when_it_has_room() {
    Rig::both().iter().for_each(fill_up);
}

fn fill_up(rig: &Rig) {
    let long = format!("\"{}\"", "d".repeat(5000));
    assert_eq!(rig.say(&format!("PUT q k {long} JID j1")), bulk("j1"));
    let kept = rig.disk.records();
    // One for the put below, two for the shard's own looks whether there is room again.
    (0..3).for_each(|_| rig.disk.inject(Inject::Full));

    assert!(matches!(rig.say("PUT q k 2 JID j2"), Err(Fault::Full { .. })));
    for line in ["PUT q k 3 JID j3", "POP w QUEUES q", "CANCEL j1", "CONFIG SET heartbeat 5", "TAG j1 t"] {
        assert!(matches!(rig.say(line), Err(Fault::Full { .. })), "{line}");
    }
    assert!(shows(&rig.say("GET j1"), &long));
    assert_eq!(rig.say("GET j2"), Ok(Frame::Nil));
    assert!(shows(&rig.say("QUEUES q"), "\"waiting\":1,\"running\":0"));
    assert_eq!(rig.say("JOBS waiting QUEUE q"), Ok(Frame::Array(vec![Frame::bulk("j1")])));
    assert!(shows(&rig.say("PEEK q"), &long));
    assert_eq!(rig.disk.records(), kept);

    rig.insist("PUT q k 4 JID j4");
    assert!(shows(&rig.say("QUEUES q"), "\"waiting\":2,\"running\":0"));
    assert!(shows(&rig.say("GET j1"), &long));
}

#[test]
fn a_blocked_pop_outlasts_a_full_disk() {
    let rig = Rig::new();
    let blocked = rig.block("POP w WAIT 60 QUEUES q");
    rig.disk.inject(Inject::Full);
    rig.disk.inject(Inject::Full);
    assert!(matches!(rig.say("PUT other k 1"), Err(Fault::Full { .. })));
    rig.insist("PUT q k 1 JID j");
    assert!(shows(&rig.runtime.block_on(blocked), "\"jid\":\"j\""));
}

#[test]
fn a_sync_that_fails_is_told_as_try_again_and_the_next_command_is_served() {
    let injects = [Inject::Fail, Inject::Lose { kept: false }, Inject::Lose { kept: true }];
    for (inject, rig) in injects.into_iter().flat_map(|inject| Rig::both().map(|rig| (inject, rig))) {
        assert_eq!(rig.say("PUT q k 1 JID before"), bulk("before"));
        let blocked = rig.block("POP w WAIT 60 QUEUES later");
        rig.disk.inject(inject);
        assert!(matches!(rig.say("PUT q k 1 JID lost"), Err(Fault::Retry { .. })), "{inject:?}");
        // The memory is what the store has, whichever that is.
        let there = rig.say("GET lost").unwrap() != Frame::Nil;
        assert_eq!(there, inject == Inject::Lose { kept: true });
        assert!(shows(&rig.say("GET before"), "\"state\":\"waiting\""));
        assert_eq!(rig.say("PUT later k 1 JID next"), bulk("next"));
        assert!(shows(&rig.runtime.block_on(blocked), "\"jid\":\"next\""));
        assert!(shows(&rig.say("GET next"), "\"state\":\"running\""));
    }
}

#[test]
fn who_has_left_a_blocked_pop_gets_no_job() {
    let rig = Rig::new();
    drop(rig.block("POP dead WAIT 60 QUEUES q"));
    assert_eq!(rig.say("PUT q k 1 JID j"), bulk("j"));
    assert!(shows(&rig.say("GET j"), "\"state\":\"waiting\""));
    // Left before the shard came to look at it.
    let mut core = Core::load(Box::new(rig.disk.open())).unwrap();
    let Plan { call, wait, .. } = plan("POP dead WAIT 60 QUEUES q");
    let (done, answer) = oneshot::channel();
    drop(answer);
    core.apply(Request { calls: vec![call], watched: Vec::new(), wait, done: done.into() }, 0.0);
    let finished = core.finish().unwrap();
    assert!(finished.size.is_none());
    finished.release(&mut Nobody).into_iter().for_each(|answer| answer.send());
    assert_eq!(core.waiting(), 0);
}

/// Has a core do it now, and lets its answers out.
pub(super) fn tell(core: &mut Core, plan: Plan, clock: f64) -> oneshot::Receiver<Delivery> {
    let Plan { call, wait, .. } = plan;
    let (done, answer) = oneshot::channel();
    core.apply(Request { calls: vec![call], watched: Vec::new(), wait, done: done.into() }, clock);
    wake(core, clock);
    answer
}

fn wake(core: &mut Core, clock: f64) {
    core.wake(clock);
    core.finish().unwrap().release(&mut Nobody).into_iter().for_each(|answer| answer.send());
}

#[test]
fn who_waits_in_vain_bars_nobody_who_wants_something_else() {
    let mut core = Core::load(Box::new(MemoryDisk::new().open())).unwrap();
    let key = |name, words: &[&[u8]]| crate::dialect::keys::read(name, words, &env()).unwrap();
    let lines = ["KLASS a", "KLASS b", "KLASS b", "KLASS a KLASS b"];
    let lines = lines.map(|klasses| plan(&format!("POP w WAIT 60 {klasses} QUEUES q")));
    let mut waiting = lines.map(|plan| tell(&mut core, plan, 0.0));
    let mut list = tell(&mut core, key("blpop", &[b"q", b"60"]), 0.0);
    let mut served = |core: &mut Core, what: Plan| {
        drop(tell(core, what, 1.0));
        waiting.each_mut().map(|answer| answer.try_recv().is_ok())
    };
    assert_eq!(served(&mut core, plan("PUT q b 1 JID j1")), [false, true, false, false]);
    assert_eq!(served(&mut core, key("rpush", &[b"q", b"x"])), [false; 4]);
    assert!(list.try_recv().is_ok());
    let both = [plan("PUT q b 1 JID j2"), plan("PUT q b 1 JID j3")].map(|put| served(&mut core, put));
    assert_eq!(both, [[false, false, true, false], [false, false, false, true]]);
    assert_eq!(core.waiting(), 1);

    // Something is there, and is not for those who wait: nobody may ever tell when that ends, so it is looked for each second.
    drop(tell(&mut core, plan("PUT q b 1 JID j4"), 1.0));
    for clock in [1.0, 2.0, 3.0] {
        wake(&mut core, clock);
        assert_eq!(core.next_wake(), Some(clock + 1.0));
    }
    assert!(plan("POP w WAIT 60 COUNT 0 QUEUES q").wait.is_none(), "there is nothing to wait for");
}

#[test]
fn a_shard_whose_store_cannot_be_loaded_again_ends_when_it_is_to_end() {
    let disk = MemoryDisk::new();
    let core = Core::load(Box::new(disk.open())).unwrap();
    let open: OpenStore = Box::new(|| Err(Fault::Retry { what: "no disk".to_owned() }));
    let (shard, ending) = start(core, open, Settings::default(), Box::new(Nobody)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        disk.inject(Inject::Fail);
        let outcome = shard.ask(vec![plan("PUT q k 1").call], Vec::new()).await;
        assert!(matches!(outcome.unwrap().outcomes.unwrap().pop(), Some(Outcome::Fault(_))));
        // It tries to open the store over and over. Whoever waits for it is waited for before it is told to stop.
        let asked = shard.ask(vec![plan("LENGTH q").call], Vec::new());
        shard.end_waits();
        assert!(tokio::time::timeout(PATIENCE, asked).await.unwrap().is_err());
        assert!(tokio::time::timeout(PATIENCE, ending).await.unwrap().unwrap().is_err());
    });
}

#[test]
fn blocked_pops_of_clients_that_left_are_swept() {
    let disk = MemoryDisk::new();
    let mut core = Core::load(Box::new(disk.open())).unwrap();
    let mut answers = Vec::new();
    for _ in 0..10 {
        let Plan { call, wait, .. } = plan("POP w WAIT 60 QUEUES a b");
        let (done, answer) = oneshot::channel();
        core.apply(Request { calls: vec![call], watched: Vec::new(), wait, done: done.into() }, 0.0);
        answers.push(answer);
    }
    assert_eq!(core.waiting(), 10);
    answers.truncate(3);
    core.sweep();
    assert_eq!(core.waiting(), 3);
}

/// Everybody in the round hears of the fault, readers too: what they read was never durable.
#[test]
fn a_fault_reaches_everybody_in_its_round_and_nobody_after_it() {
    for inject in [Inject::Fail, Inject::Full, Inject::Lose { kept: true }, Inject::Lose { kept: false }] {
        let disk = MemoryDisk::new();
        let mut core = Core::load(Box::new(disk.open())).unwrap();
        let apply = |core: &mut Core, line: &str| {
            let Plan { call, wait, .. } = plan(line);
            let (done, answer) = oneshot::channel();
            core.apply(Request { calls: vec![call], watched: Vec::new(), wait, done: done.into() }, 0.0);
            answer
        };
        let mut waiter = apply(&mut core, "POP w WAIT 60 QUEUES later");
        let mut answers =
            ["PUT q k 1 JID j", "GET j", "POP w QUEUES q", "QUEUES"].map(|line| apply(&mut core, line));
        disk.inject(inject);
        core.wake(0.0);
        let Err(fault) = core.finish() else { panic!("it was not refused") };
        let before = core.engine().jobs();
        assert_eq!(before, 1, "in memory it had happened");
        let (_, waiters) = core.abandon(&fault);
        for answer in &mut answers {
            let outcomes = answer.try_recv().unwrap().outcomes.unwrap();
            assert!(matches!(&outcomes[..], [Outcome::Fault(told)] if *told == fault), "{inject:?}");
        }
        assert!(waiter.try_recv().is_err(), "who waits hears nothing");

        let mut core = Core::load(Box::new(disk.open())).unwrap();
        core.resume(waiters, None, 0.0);
        assert_eq!(core.engine().jobs(), usize::from(inject == Inject::Lose { kept: true }));
        assert_eq!(core.engine().audit(), []);
        let mut put = apply(&mut core, "PUT later k 1 JID next");
        core.wake(0.0);
        core.finish().unwrap().release(&mut Nobody).into_iter().for_each(|answer| answer.send());
        assert!(put.try_recv().is_ok());
        let woken = waiter.try_recv().unwrap().outcomes.unwrap();
        assert!(matches!(&woken[..], [Outcome::Done { .. }]));
    }
}

#[test]
fn under_any_mixture_of_faults_the_acknowledged_is_there_and_the_refused_is_not() {
    Rig::both().iter().for_each(mix_faults);
}

fn mix_faults(rig: &Rig) {
    let mut state = 7_u64;
    let mut random = move |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    for number in 0..300 {
        let inject = match random(6) {
            0 => Inject::Fail,
            1 => Inject::Lose { kept: true },
            2 => Inject::Lose { kept: false },
            3 if number % 50 == 0 => Inject::Full,
            _ => Inject::Succeed,
        };
        rig.disk.inject(inject);
        let jid = format!("j{number}");
        let line = format!("PUT q k \"{}\" JID {jid}", "x".repeat(random(3000) as usize));
        match (rig.say(&line), inject) {
            (Ok(_), Inject::Succeed) | (Err(Fault::Retry { .. }), Inject::Lose { kept: true }) => {
                there.push(jid)
            }
            (Err(Fault::Retry { .. }), Inject::Fail | Inject::Lose { kept: false }) => absent.push(jid),
            (Err(Fault::Full { .. }), Inject::Full) => {
                absent.push(jid);
                rig.insist("CONFIG SET option value");
            }
            (answer, inject) => panic!("{answer:?} for {inject:?}"),
        }
    }
    let core = Core::load(Box::new(rig.disk.open())).unwrap();
    assert_eq!(core.engine().jobs(), there.len());
    assert_eq!(core.engine().audit(), []);
    let store: Arc<dyn haul_store::Bodies> = core.bodies();
    for id in core.engine().bodies() {
        assert!(store.get(&id.key()).unwrap().is_some(), "body {} is missing", id.0);
    }
}

/// A store that takes rounds in at once and makes them durable when this returns.
struct Slow {
    inner: haul_store::MemoryStore,
    land: Arc<dyn Fn() -> Result<(), Fault> + Send + Sync>,
    /// To wait is what makes them durable, as on a disk.
    lazy: bool,
}

impl Store for Slow {
    fn load(&mut self, each: haul_store::EachHeader<'_>) -> Result<(), Fault> {
        self.inner.load(each)
    }

    fn commit(&mut self, batch: haul_store::Batch) -> Result<(), Fault> {
        self.submit(batch)?.wait()
    }

    fn submit(&mut self, batch: haul_store::Batch) -> Result<haul_store::Ticket, Fault> {
        if batch.is_empty() {
            return Ok(haul_store::Ticket::durable());
        }
        self.inner.commit(batch)?;
        let land = self.land.clone();
        let land = move || land();
        Ok(if self.lazy { haul_store::Ticket::by(land) } else { haul_store::Ticket::when(land) })
    }

    fn bodies(&self) -> Arc<dyn haul_store::Bodies> {
        self.inner.bodies()
    }

    fn stats(&self) -> haul_store::Stats {
        self.inner.stats()
    }

    fn close(self: Box<Self>) -> Result<(), Fault> {
        Ok(())
    }
}

/// A shard on a slow store, and what makes its rounds land.
fn slow_rig(lazy: bool) -> (Rig, std::sync::mpsc::Sender<Result<(), Fault>>) {
    let (land, landings) = std::sync::mpsc::channel();
    let landings = std::sync::Mutex::new(landings);
    let landing = move || landings.lock().unwrap().recv().unwrap();
    let (disk, shard) = slow_shard(lazy, Arc::new(landing), Settings::default(), Common::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (Rig { disk, shard, runtime }, land)
}

fn slow_shard(
    lazy: bool,
    land: Arc<dyn Fn() -> Result<(), Fault> + Send + Sync>,
    settings: Settings,
    common: Common,
) -> (MemoryDisk, Shard) {
    let disk = MemoryDisk::new();
    let opened = disk.clone();
    let mut open: OpenStore = Box::new(move || {
        Ok(Box::new(Slow { inner: opened.open(), land: land.clone(), lazy }) as Box<dyn Store>)
    });
    let core = Core::load(open().unwrap()).unwrap();
    let (shard, _) = start_with(core, open, settings, Box::new(Nobody), common).unwrap();
    (disk, shard)
}

impl Rig {
    /// Sends a line, and the next once this one is applied: each is a round of its own.
    fn begin(&self, line: &str) -> impl Future<Output = Result<Delivery, Gone>> + use<> {
        let before = self.shard.counters().calls.load(Ordering::Relaxed);
        let answer = self.shard.send(vec![plan(line).call], Vec::new(), None);
        while self.shard.counters().calls.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
        answer
    }
}

#[test]
fn several_rounds_are_on_their_way_and_nothing_leaves_before_it_is_durable() {
    let (rig, land) = slow_rig(false);
    let (one, two) = (rig.begin("PUT q k {} JID one"), rig.begin("PUT q k {} JID two"));
    // It changes nothing, and yet it has seen what is not durable.
    let look = rig.begin("LENGTH q");
    let mut answers = Box::pin(async { (one.await, two.await, look.await) });
    rig.runtime.block_on(async {
        let early = tokio::time::timeout(Duration::from_millis(50), &mut answers).await;
        assert!(early.is_err(), "an answer left before its round was durable");
        land.send(Ok(())).unwrap();
        let early = tokio::time::timeout(Duration::from_millis(50), &mut answers).await;
        assert!(early.is_err(), "the look left before the second round was durable");
        land.send(Ok(())).unwrap();
        let (one, two, look) = answers.await;
        for delivery in [one, two, look] {
            let outcome = delivery.unwrap().outcomes.unwrap().pop().unwrap();
            assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
        }
    });
}

#[test]
fn when_a_round_fails_so_do_all_behind_it_and_the_shard_goes_on() {
    // What went wrong: the thread waited for a second landing of the round that had failed, and nobody was answered.
    for behind in 0..3 {
        let (rig, land) = slow_rig(false);
        let first = rig.begin("PUT q k {} JID first");
        let others: Vec<_> = (0..behind).map(|at| rig.begin(&format!("PUT q k {{}} JID j{at}"))).collect();
        land.send(Err(Fault::Retry { what: "lost".to_owned() })).unwrap();
        rig.runtime.block_on(async {
            let behind = futures_util::future::join_all(others).await;
            for delivery in std::iter::once(first.await).chain(behind) {
                let outcome = delivery.unwrap().outcomes.unwrap().pop().unwrap();
                assert!(matches!(outcome, Outcome::Fault(Fault::Retry { .. })), "{outcome:?}");
            }
        });
        // Those that were taken in behind it have landings of their own, which nobody waits for any more.
        (0..=behind).for_each(|_| land.send(Ok(())).unwrap());
        assert!(matches!(rig.say("PUT q k {} JID again"), Ok(Frame::Bulk(_))));
    }
}

#[test]
fn a_disk_is_synced_by_the_shard_and_a_sync_that_fails_is_told() {
    let (rig, land) = slow_rig(true);
    for (landing, is_done) in
        [(Ok(()), true), (Err(Fault::Retry { what: "lost".to_owned() }), false), (Ok(()), true)]
    {
        let answer = rig.begin("PUT q k {} JID j");
        land.send(landing).unwrap();
        let outcome = rig.runtime.block_on(answer).unwrap().outcomes.unwrap().pop().unwrap();
        match outcome {
            Outcome::Done { reply, .. } => assert!(is_done && reply.is_ok()),
            Outcome::Fault(fault) => assert!(!is_done && matches!(fault, Fault::Retry { .. }), "{fault:?}"),
        }
    }
}

#[test]
fn while_a_round_is_synced_the_next_is_applied_if_many_wait() {
    const LESSONS: usize = 100;
    for fails in [false, true] {
        let (rig, land) = slow_rig(true);
        // It learns what a sync takes: next to nothing.
        for at in 0..LESSONS {
            land.send(Ok(())).unwrap();
            rig.say(&format!("PUT q k {{}} JID lesson{at}")).unwrap();
        }
        let answer = rig.begin("PUT q k {} JID second");
        let jids = 0..3 * super::pace::CALLS_MIN;
        let many: Vec<_> = jids
            .map(|at| rig.shard.send(vec![plan(&format!("PUT q k {{}} JID j{at}")).call], Vec::new(), None))
            .collect();
        land.send(Ok(())).unwrap();
        rig.runtime.block_on(answer).unwrap();
        // One round is being synced, the next is applied and can go no further; the third waits.
        let applied = || rig.shard.counters().calls.load(Ordering::Relaxed) as usize;
        while applied() < LESSONS + 1 + 2 * super::pace::CALLS_MIN {
            std::thread::yield_now();
        }
        assert_eq!(applied(), LESSONS + 1 + 2 * super::pace::CALLS_MIN);
        land.send(if fails { Err(Fault::Retry { what: "lost".to_owned() }) } else { Ok(()) }).unwrap();
        (0..2).for_each(|_| land.send(Ok(())).unwrap());
        let outcomes = rig.runtime.block_on(futures_util::future::join_all(many));
        let outcomes =
            outcomes.into_iter().map(|delivery| delivery.unwrap().outcomes.unwrap().pop().unwrap());
        let lost = outcomes.filter(|outcome| matches!(outcome, Outcome::Fault(Fault::Retry { .. }))).count();
        // Neither round is let out, nor done: the third comes upon what is there without them.
        assert_eq!(lost, if fails { 2 * super::pace::CALLS_MIN } else { 0 });
    }
}

#[test]
fn who_comes_together_shares_a_round_on_a_lane_and_a_stop_answers_everybody() {
    let [_, rig] = Rig::both();
    // It learns what a sync takes, which is next to nothing here.
    (0..10).for_each(|at| drop(rig.say(&format!("PUT q k {{}} JID first{at}")).unwrap()));
    let sends =
        (0..500).map(|at| rig.shard.send(vec![plan(&format!("PUT q k 1 JID j{at}")).call], Vec::new(), None));
    let answers: Vec<_> = sends.collect();
    rig.shard.stop();
    let answers = rig.runtime.block_on(futures_util::future::join_all(answers));
    assert!(answers.iter().all(Result::is_ok), "what came before the stop is answered");
    assert!(matches!(
        rig.runtime.block_on(rig.shard.ask(vec![plan("LENGTH q").call], Vec::new())),
        Err(Gone)
    ));
    let core = Core::load(Box::new(rig.disk.open())).unwrap();
    assert_eq!(core.engine().jobs(), 510);
}

#[test]
fn a_round_left_open_on_a_lane_is_never_left_alone() {
    // Syncs of many lengths, so that a round has waited long enough at any point of the shard's way.
    let syncs = AtomicU64::new(0);
    let sync = move || {
        let length = Duration::from_micros(syncs.fetch_add(1, Ordering::Relaxed) % 64);
        let began = crate::clock::instant();
        while began.elapsed() < length {
            std::hint::spin_loop();
        }
        Ok(())
    };
    let lane = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let common = Common::default().at(Some(lane.handle().clone()));
    let settings = Settings { idle_tick: Duration::from_secs(24 * 3600), ..Settings::default() };
    let (_, shard) = slow_shard(true, Arc::new(sync), settings, common);
    let asked = async {
        for at in 0..3000 {
            let call = plan(&format!("PUT q k 1 JID j{at}")).call;
            shard.ask(vec![call], Vec::new()).await.unwrap();
        }
    };
    let done = lane.block_on(async { tokio::time::timeout(PATIENCE, asked).await });
    assert!(done.is_ok(), "a round waits for the next look at the world");
}
