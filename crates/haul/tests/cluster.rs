//! Several nodes on one store: real processes, killed, stopped, paused and joined by others, while clients of all of them
//! put, pop and complete. Nothing acknowledged is lost, no job is held by two workers, every job ends.
//!
//! - here: what any node does for any client, and the storm;
//! - `cuts`: nodes that are paused, or cut off from each other or from the store;
//! - `handlers`: stored handlers and the journal on several nodes;
//! - `backups`: copies of what is being served.
//!
//! `HAUL_SEED=n` repeats a run's choices. `HAUL_STORE_URL` names another store than a folder (see `tests/object/run`), and
//! `HAUL_CLUSTER_SECONDS` how long the storm lasts.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may fail by panicking, and one that waits has a deadline"
)]

#[path = "cluster/backups.rs"]
mod backups;
#[path = "cluster/cuts.rs"]
mod cuts;
#[path = "cluster/handlers.rs"]
mod handlers;
mod support;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_client::resp::Frame;
use rustix::process::{Pid, Signal, kill_process};
use support::line::{Cut, Line};
use support::{Client, Random, Server, eventually, json, text};

/// Tenants, which are spread over the shards.
const TENANTS: u64 = 6;
/// Clients that work at once.
const CLIENTS: u64 = 6;
/// A lock that does not run out within the test: a second holder is a fault of ours.
const LONG: &str = "100000";

/// A store that no other test uses.
struct Store {
    url: String,
    folder: tempfile::TempDir,
}

/// How a node is started beside what a test says of it.
const BARE: &[&str] = &["--http", "off", "--handlers", "off"];
/// The same with all that a node can do.
const WHOLE: &[&str] = &["--http", "127.0.0.1:0"];

impl Store {
    fn new() -> Store {
        let folder = tempfile::tempdir().unwrap();
        let url = match std::env::var("HAUL_STORE_URL") {
            Ok(base) => format!("{base}/{}", folder.path().file_name().unwrap().display()),
            Err(_) => format!("file://{}", folder.path().join("store").display()),
        };
        Store { url, folder }
    }

    fn node(&self, name: &str, extra: &[&str]) -> Server {
        self.start(name, &[BARE, &["--node", "127.0.0.1:0"], extra].concat())
    }

    /// With HTTP, handlers and a journal.
    fn whole_node(&self, name: &str, extra: &[&str]) -> Server {
        self.start(name, &[WHOLE, &["--node", "127.0.0.1:0"], extra].concat())
    }

    /// One that can be cut off from the others, and from the store if that is a service.
    fn node_on_lines(&self, name: &str, extra: &[&str]) -> Node {
        let here = free_address();
        let from_nodes = Line::new(here);
        let to_store = service().map(|(_, address)| Line::new(address));
        let (here, there) = (here.to_string(), from_nodes.address.to_string());
        let mut words = vec!["--node".to_owned(), here, "--node-advertise".to_owned(), there];
        if let (Some(line), Some((endpoint, address))) = (&to_store, service()) {
            let through = endpoint.replace(&address.to_string(), &line.address.to_string());
            words.extend(["--store-endpoint".to_owned(), through]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Node { server: self.start(name, &[BARE, &words, extra].concat()), from_nodes, to_store }
    }

    fn start(&self, name: &str, words: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(["serve", "--redis", "127.0.0.1:0", "--presence-interval", "500", "--store", &self.url]);
        command.arg("--data").arg(self.folder.path().join(name)).args(words);
        Server::spawn(command).unwrap_or_else(|refused| panic!("the node did not start: {refused:?}"))
    }
}

/// Where the store's service is, as it is named and as an address; none: the store is a folder.
fn service() -> Option<(String, SocketAddr)> {
    let endpoint = std::env::var("HAUL_STORE_ENDPOINT").ok()?;
    let address = endpoint.split("://").nth(1)?.split('/').next()?.parse().ok()?;
    Some((endpoint, address))
}

/// An address that nobody listens at.
fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A node whose lines can be cut.
struct Node {
    server: Server,
    /// How the other nodes reach it.
    from_nodes: Line,
    /// How it reaches the store, if that is a service.
    to_store: Option<Line>,
}

fn nodes(client: &mut Client) -> serde_json::Value {
    client.json(&["HAUL.NODES"])
}

/// Every shard has an owner, this many nodes are there, and none of it has changed for a while.
fn settled(client: &mut Client, count: usize) -> bool {
    let mut look = || {
        let document = nodes(client);
        let owned = |shard: &serde_json::Value| (shard["node"].clone(), shard["epoch"].clone());
        let shards: Vec<_> = document["shards"].as_array().unwrap().iter().map(owned).collect();
        let whole = shards.iter().all(|(node, epoch)| node.is_string() && *epoch != 0);
        (document["nodes"].as_array().unwrap().len() == count && whole).then_some(shards)
    };
    let before = look();
    before.is_some() && {
        std::thread::sleep(Duration::from_millis(1200));
        look() == before
    }
}

fn call(client: &mut Client, line: &str) -> Frame {
    client.call(&line.split(' ').collect::<Vec<_>>())
}

#[test]
fn any_node_serves_any_tenant() {
    let store = Store::new();
    let (one, two) = (store.node("one", &["--shards", "4"]), store.node("two", &[]));
    let (mut first, mut second) = (one.connect(), two.connect());
    eventually("both nodes are there", || settled(&mut first, 2) && settled(&mut second, 2));
    let owners: HashSet<String> = nodes(&mut first)["shards"]
        .as_array()
        .unwrap()
        .iter()
        .map(|shard| shard["node"].as_str().unwrap().to_owned())
        .collect();
    assert!(!owners.is_empty());
    for tenant in 0..TENANTS {
        for client in [&mut first, &mut second] {
            assert_eq!(call(client, &format!("SELECT {tenant}")), Frame::ok());
        }
        let put = call(&mut first, &format!("HAUL.PUT q k {{}} JID job-{tenant}"));
        assert_eq!(text(&put).unwrap(), format!("job-{tenant}"));
        // The other node sees it, a second tenant of the same name does not exist, and data beyond 48 bytes comes too.
        let long = "x".repeat(5000);
        call(&mut second, &format!("HAUL.PUT big k \"{long}\" JID big-{tenant}"));
        let job = json(&call(&mut first, &format!("HAUL.GET big-{tenant}"))).unwrap();
        assert_eq!(job["data"].as_str().unwrap().len(), 5000);
        let popped = call(&mut second, &format!("HAUL.POP w LOCK {LONG} QUEUES q"));
        let Frame::Array(jobs) = popped else { panic!("{popped:?}") };
        assert_eq!(json(&jobs[0]).unwrap()["jid"], format!("job-{tenant}"));
        assert_eq!(text(&call(&mut first, &format!("HAUL.COMPLETE w job-{tenant}"))).unwrap(), "complete");
        assert!(matches!(call(&mut second, &format!("HAUL.COMPLETE w job-{tenant}")), Frame::Error(_)));
    }
}

#[test]
fn a_blocked_pop_a_subscription_and_a_transaction_cross_nodes() {
    let store = Store::new();
    let (one, two) = (store.node("one", &["--shards", "4"]), store.node("two", &[]));
    let (mut first, mut second) = (one.connect(), two.connect());
    eventually("both nodes are there", || settled(&mut first, 2) && settled(&mut second, 2));
    for tenant in 0..TENANTS {
        let mut waiting = one.connect();
        let mut listening = one.connect();
        let mut calm = two.connect();
        for client in [&mut waiting, &mut listening, &mut second, &mut calm] {
            call(client, &format!("SELECT {tenant}"));
        }
        call(&mut listening, "SUBSCRIBE ql:log news");
        listening.read().unwrap();
        waiting.send(&["HAUL.POP", "w", "WAIT", "60", "LOCK", LONG, "QUEUES", "later"]).unwrap();
        // Behind it: whatever is answered now was sent later.
        call(&mut calm, "HAUL.LENGTH later");
        call(&mut second, &format!("HAUL.PUT later k {{}} JID later-{tenant}"));
        let Frame::Array(jobs) = waiting.read().unwrap() else { panic!("no jobs") };
        assert_eq!(json(&jobs[0]).unwrap()["jid"], format!("later-{tenant}"));
        let told = format!("{:?}", listening.read().unwrap());
        assert!(told.contains(&format!("later-{tenant}")), "{told}");
        call(&mut second, "PUBLISH news hello");
        let heard = loop {
            let frame = format!("{:?}", listening.read().unwrap());
            if frame.contains("news") {
                break frame;
            }
        };
        assert!(heard.contains("hello"), "{heard}");
        transaction(&mut second, &mut calm);
    }
}

/// WATCH, MULTI and EXEC; and an EXEC that finds its key changed.
fn transaction(client: &mut Client, other: &mut Client) {
    for (disturbed, done) in [(false, true), (true, false)] {
        call(client, "DEL counter");
        call(client, "WATCH counter");
        if disturbed {
            call(other, "SET counter 7");
        }
        call(client, "MULTI");
        call(client, "SET counter 1");
        call(client, "GET counter");
        let answer = call(client, "EXEC");
        assert_eq!(matches!(answer, Frame::Array(_)), done, "{answer:?}");
    }
}

#[test]
fn a_node_that_is_asked_to_stop_hands_its_shards_over() {
    let store = Store::new();
    let (one, two) = (store.node("one", &["--shards", "4"]), store.node("two", &[]));
    let mut client = two.connect();
    eventually("both nodes are there", || settled(&mut client, 2));
    let mut put = 0;
    let stop = std::thread::spawn(move || one.stop());
    while !stop.is_finished() {
        call(&mut client, &format!("SELECT {}", put % TENANTS));
        // A client that retries sees no error but "try again".
        match call(&mut client, &format!("HAUL.PUT q k {{}} JID stop-{put}")) {
            Frame::Error(text) => assert!(text.starts_with("TRYAGAIN"), "{text}"),
            _ => put += 1,
        }
    }
    assert!(stop.join().unwrap().success());
    eventually("one node is left, with all shards", || settled(&mut client, 1));
    for at in 0..put {
        call(&mut client, &format!("SELECT {}", at % TENANTS));
        assert!(json(&call(&mut client, &format!("HAUL.GET stop-{at}"))).is_some(), "stop-{at} is lost");
    }
}

/// What all clients know together.
#[derive(Default)]
struct World {
    /// Acknowledged puts, with their tenant.
    put: HashMap<String, u64>,
    /// Who was given a job.
    holder: HashMap<String, String>,
    completed: HashSet<String>,
}

struct Storm {
    world: Mutex<World>,
    addresses: Mutex<Vec<SocketAddr>>,
    ended: AtomicBool,
    /// Puts have ended: what is there is worked off.
    draining: AtomicBool,
    next: AtomicU64,
    acknowledged: AtomicU64,
    last: Mutex<Instant>,
    longest: Mutex<Duration>,
}

impl Storm {
    fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last.lock().unwrap();
        let gap = last.elapsed();
        *last = Instant::now();
        let mut longest = self.longest.lock().unwrap();
        *longest = (*longest).max(gap);
    }
}

/// One client: it goes from node to node as they fail.
struct Worker {
    storm: Arc<Storm>,
    name: String,
    random: Random,
    held: Vec<(u64, String)>,
}

impl Worker {
    fn run(mut self) {
        while !self.storm.ended.load(Ordering::Relaxed) {
            let addresses = self.storm.addresses.lock().unwrap().clone();
            if addresses.is_empty() {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            let address = addresses[self.random.below(addresses.len() as u64) as usize];
            let Ok(mut client) = Client::connect(address) else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            client.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let _ = self.work(&mut client);
        }
    }

    /// Until the connection fails. What was under way then is asked for: a pop may have given a job without saying so.
    fn work(&mut self, client: &mut Client) -> io::Result<()> {
        self.held.clear();
        for tenant in 0..TENANTS {
            client.try_call(&["SELECT", &tenant.to_string()])?;
            let frame = client.try_call(&["HAUL.WORKERS", &self.name])?;
            let Some(worker) =
                text(&frame).and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
            else {
                return Ok(());
            };
            for list in ["jobs", "stalled"] {
                for jid in worker[list].as_array().into_iter().flatten() {
                    self.hold(tenant, jid.as_str().unwrap().to_owned());
                }
            }
        }
        while !self.storm.ended.load(Ordering::Relaxed) {
            self.turn(client)?;
        }
        Ok(())
    }

    fn hold(&mut self, tenant: u64, jid: String) {
        let mut world = self.storm.world.lock().unwrap();
        let before = world.holder.insert(jid.clone(), self.name.clone());
        assert!(before.is_none_or(|before| before == self.name), "{jid} is held twice");
        assert!(!world.completed.contains(&jid), "{jid} was complete and was given out again");
        drop(world);
        if !self.held.contains(&(tenant, jid.clone())) {
            self.held.push((tenant, jid));
        }
    }

    fn turn(&mut self, client: &mut Client) -> io::Result<()> {
        let tenant = self.random.below(TENANTS);
        let draining = self.storm.draining.load(Ordering::Relaxed);
        match self.random.below(3) {
            0 if !draining => {
                client.try_call(&["SELECT", &tenant.to_string()])?;
                let jid = format!("j{}", self.storm.next.fetch_add(1, Ordering::Relaxed));
                let frame = client.try_call(&["HAUL.PUT", "q", "k", "{}", "JID", &jid])?;
                if self.is_answered(&frame) {
                    self.storm.world.lock().unwrap().put.insert(jid, tenant);
                }
            }
            1 => {
                client.try_call(&["SELECT", &tenant.to_string()])?;
                let words =
                    ["HAUL.POP", &self.name, "COUNT", "2", "WAIT", "0.2", "LOCK", LONG, "QUEUES", "q"];
                let frame = client.try_call(&words)?;
                if !self.is_answered(&frame) {
                    // It may hold jobs now without knowing.
                    return Err(io::ErrorKind::Other.into());
                }
                let Frame::Array(jobs) = frame else { panic!("{frame:?}") };
                for job in jobs {
                    let jid = json(&job).unwrap()["jid"].as_str().unwrap().to_owned();
                    self.hold(tenant, jid);
                }
            }
            _ => {
                let Some((tenant, jid)) = self.held.pop() else { return Ok(()) };
                client.try_call(&["SELECT", &tenant.to_string()])?;
                let frame = client.try_call(&["HAUL.COMPLETE", &self.name, &jid])?;
                if self.is_answered(&frame) {
                    self.storm.world.lock().unwrap().completed.insert(jid);
                } else {
                    return Err(io::ErrorKind::Other.into());
                }
            }
        }
        Ok(())
    }

    /// An error other than "try again" is a fault of ours, but for a completion that was done without saying so.
    fn is_answered(&self, frame: &Frame) -> bool {
        match frame {
            Frame::Error(text) => {
                assert!(
                    text.starts_with("TRYAGAIN")
                        || text.starts_with("NOTRUNNING")
                        || text.starts_with("ERR stopping"),
                    "{text}"
                );
                false
            }
            _ => {
                self.storm.acknowledge();
                true
            }
        }
    }
}

/// Does one thing to one node.
fn strike(store: &Store, running: &mut [Option<Node>], storm: &Storm, random: &mut Random) -> &'static str {
    let at = random.below(running.len() as u64) as usize;
    let a_while = Duration::from_millis(random.between(500, 4000));
    let cut = if random.below(2) == 0 { Cut::Silent } else { Cut::Broken };
    let what = match (running[at].take(), random.below(6)) {
        (None, _) => {
            running[at] = Some(store.node_on_lines(&format!("node-{at}"), &[]));
            "join"
        }
        (Some(node), 0) => {
            node.server.kill();
            "kill"
        }
        (Some(node), 1) if running.iter().flatten().count() > 0 => {
            storm.addresses.lock().unwrap().retain(|address| *address != node.server.address);
            assert!(node.server.stop().success());
            "leave"
        }
        (Some(node), 2) => {
            node.from_nodes.cut(cut);
            std::thread::sleep(a_while);
            node.from_nodes.cut(Cut::Not);
            running[at] = Some(node);
            "not reached by others"
        }
        (Some(node), 3) => {
            running[at] = Some(node);
            let all = || running.iter().flatten();
            all().for_each(|node| node.from_nodes.cut(cut));
            std::thread::sleep(a_while);
            all().for_each(|node| node.from_nodes.cut(Cut::Not));
            "all apart"
        }
        (Some(Node { server, from_nodes, to_store: Some(to_store) }), 4) => {
            to_store.cut(cut);
            std::thread::sleep(a_while);
            to_store.cut(Cut::Not);
            running[at] = Some(Node { server, from_nodes, to_store: Some(to_store) });
            "cut off from the store"
        }
        (Some(node), _) => {
            let pid = Pid::from_raw(node.server.pid() as i32).unwrap();
            kill_process(pid, Signal::STOP).unwrap();
            std::thread::sleep(a_while);
            kill_process(pid, Signal::CONT).unwrap();
            running[at] = Some(node);
            "pause"
        }
    };
    *storm.addresses.lock().unwrap() = addresses(running);
    what
}

fn addresses(running: &[Option<Node>]) -> Vec<SocketAddr> {
    running.iter().flatten().map(|node| node.server.address).collect()
}

#[test]
fn nothing_acknowledged_is_lost_while_nodes_come_and_go() {
    let seconds = std::env::var("HAUL_CLUSTER_SECONDS").map_or(20, |text| text.parse().unwrap());
    let mut random = Random::seeded();
    let store = Store::new();
    let mut running = vec![Some(store.node_on_lines("node-0", &["--shards", "4"]))];
    running.extend((1..3).map(|at| Some(store.node_on_lines(&format!("node-{at}"), &[]))));
    let storm = Arc::new(Storm {
        world: Mutex::default(),
        addresses: Mutex::new(addresses(&running)),
        ended: AtomicBool::new(false),
        draining: AtomicBool::new(false),
        next: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
        last: Mutex::new(Instant::now()),
        longest: Mutex::default(),
    });
    let workers: Vec<_> = (0..CLIENTS)
        .map(|at| {
            let random = Random::new(random.next());
            let (name, storm) = (format!("w{at}"), storm.clone());
            let worker = Worker { storm, name, random, held: Vec::new() };
            std::thread::spawn(move || worker.run())
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut struck = Vec::new();
    while Instant::now() < until {
        // However slow the store is: what is struck before it serves again shows nothing.
        let before = storm.acknowledged.load(Ordering::Relaxed);
        eventually("something is served", || storm.acknowledged.load(Ordering::Relaxed) > before + 20);
        std::thread::sleep(Duration::from_millis(random.between(200, 2500)));
        struck.push(strike(&store, &mut running, &storm, &mut random));
        // At least one lives.
        if running.iter().all(Option::is_none) {
            struck.push(strike(&store, &mut running, &storm, &mut random));
        }
    }
    calm_down(&store, &mut running, &storm);
    storm.ended.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let world = storm.world.lock().unwrap();
    eprintln!(
        "{} acknowledged, {} jobs, struck {struck:?}, longest without an answer {:?}",
        storm.acknowledged.load(Ordering::Relaxed),
        world.put.len(),
        storm.longest.lock().unwrap()
    );
    assert!(storm.acknowledged.load(Ordering::Relaxed) > 100, "hardly anything was served");
}

/// All nodes are there again; what is left is worked off, and every acknowledged job is complete.
fn calm_down(store: &Store, running: &mut [Option<Node>], storm: &Storm) {
    for (at, slot) in running.iter_mut().enumerate() {
        slot.get_or_insert_with(|| store.node_on_lines(&format!("node-{at}"), &[]));
    }
    *storm.addresses.lock().unwrap() = addresses(running);
    storm.draining.store(true, Ordering::Relaxed);
    let mut client = running[0].as_ref().unwrap().server.connect();
    let jobs: Vec<(String, u64)> =
        storm.world.lock().unwrap().put.iter().map(|(jid, tenant)| (jid.clone(), *tenant)).collect();
    for (jid, tenant) in jobs {
        eventually(&format!("{jid} ends"), || {
            client.call(&["SELECT", &tenant.to_string()]);
            match client.call(&["HAUL.GET", &jid]) {
                Frame::Error(text) => {
                    assert!(text.starts_with("TRYAGAIN"), "{text}");
                    false
                }
                frame => {
                    let job = json(&frame).unwrap_or_else(|| panic!("{jid} of tenant {tenant} is lost"));
                    job["state"] == "complete"
                }
            }
        });
    }
}
