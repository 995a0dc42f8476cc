//! Nothing acknowledged is lost: the real binary under load is killed again and again on one folder. After each start
//! every job is where its last acknowledged command left it, or where one that was under way would have put it.
//!
//! `HAUL_SEED=n` repeats a run's choices (not its timing, which is the operating system's).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

mod support;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use haul_client::resp::{Frame, encode_request};
use support::{Client, Random, Server, assert_healthy, is_gone, json, text};

/// Kills on one folder.
const LIVES: u64 = 32;
/// Connections that work at once.
const CLIENTS: u64 = 4;
/// Commands one pipeline carries at most.
const PIPELINE_MAX: u64 = 24;
/// Jobs that do not wait and stay in the folder from life to life; the others are cancelled once they were checked.
const KEPT: usize = 400;
/// A lock or a delay that does not run out within the test.
const LONG: &str = "100000";
const QUEUES: [&str; 3] = ["alpha", "beta", "gamma"];

/// Where a job is, as far as a client can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Absent,
    Waiting,
    Scheduled,
    Running { worker: String, data: String },
    Complete { result: String },
    Failed { message: String },
}

/// A job as its clients know it.
#[derive(Clone, Debug)]
struct Known {
    queue: &'static str,
    attempt: u64,
    /// After the last acknowledged command.
    place: Place,
    /// After each command that was sent and not answered yet, in order.
    sent: Vec<Place>,
}

/// What all clients know together.
#[derive(Default)]
struct World {
    jobs: HashMap<String, Known>,
    /// Jobs that pops under way may have taken, by worker.
    popping: HashMap<String, u64>,
}

/// A command sent, to be compared with its answer.
enum Sent {
    Put {
        jid: String,
        after: Place,
    },
    Pop {
        worker: String,
        count: u64,
    },
    /// A command by the holder, and where it leads to.
    Act {
        jid: String,
        attempt: u64,
        after: Place,
        answer: &'static str,
    },
}

/// What the clients of one life share.
struct Life {
    world: Mutex<World>,
    next_jid: AtomicU64,
    answered: AtomicU64,
}

/// One connection's work until the server dies.
struct Worker<'a> {
    life: &'a Life,
    name: String,
    random: Random,
    /// Jobs held, with their attempts.
    held: Vec<(String, u64)>,
    body: &'a str,
}

impl Worker<'_> {
    fn run(&mut self, mut client: Client) -> io::Result<()> {
        loop {
            let mut out = BytesMut::new();
            let sent: Vec<Sent> =
                (0..self.random.between(1, PIPELINE_MAX)).map(|_| self.next(&mut out)).collect();
            client.send_bytes(&out)?;
            for sent in sent {
                let answer = client.read()?;
                self.heard(&sent, &answer);
                self.life.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn next(&mut self, out: &mut BytesMut) -> Sent {
        match self.random.below(10) {
            0..=3 => self.put(out),
            4 | 5 => self.pop(out),
            _ if self.held.is_empty() => self.put(out),
            _ => self.act(out),
        }
    }

    fn put(&mut self, out: &mut BytesMut) -> Sent {
        let jid = format!("j{}", self.life.next_jid.fetch_add(1, Ordering::Relaxed));
        let queue = QUEUES[self.random.below(3) as usize];
        let later = self.random.below(5) == 0;
        let data = format!("{{\"jid\":\"{jid}\",\"body\":\"{}\"}}", self.body);
        let delay = if later { LONG } else { "0" };
        encode_request(
            &["HAUL.PUT", queue, "klass", &data, "JID", &jid, "DELAY", delay, "RETRIES", LONG],
            out,
        );
        let after = if later { Place::Scheduled } else { Place::Waiting };
        let known = Known { queue, attempt: 0, place: Place::Absent, sent: vec![after.clone()] };
        self.life.world.lock().unwrap().jobs.insert(jid.clone(), known);
        Sent::Put { jid, after }
    }

    fn pop(&mut self, out: &mut BytesMut) -> Sent {
        let count = self.random.between(1, 4);
        *self.life.world.lock().unwrap().popping.entry(self.name.clone()).or_default() += count;
        let mut args = vec!["HAUL.POP".to_owned(), self.name.clone(), "COUNT".to_owned(), count.to_string()];
        args.extend(["LOCK", LONG, "QUEUES"].map(str::to_owned));
        args.extend(QUEUES.map(str::to_owned));
        encode_request(&args, out);
        Sent::Pop { worker: self.name.clone(), count }
    }

    /// Something with a job that this connection holds. All but a heartbeat give it away.
    fn act(&mut self, out: &mut BytesMut) -> Sent {
        let at = self.random.below(self.held.len() as u64) as usize;
        let (jid, attempt) = self.held[at].clone();
        let mark = format!("m{}", self.random.next());
        let (name, data) = (self.name.clone(), format!("\"{mark}\""));
        let (after, answer) = match self.random.below(8) {
            0 | 1 => {
                encode_request(&["HAUL.HEARTBEAT", &name, &jid, "LOCK", LONG, "DATA", &data], out);
                (Place::Running { worker: name, data }, "int")
            }
            2 | 3 => {
                encode_request(&["HAUL.COMPLETE", &name, &jid, "RESULT", &mark], out);
                (Place::Complete { result: mark }, "complete")
            }
            4 => {
                encode_request(&["HAUL.FAIL", &name, &jid, "oops", &mark], out);
                (Place::Failed { message: mark }, "jid")
            }
            5 => {
                encode_request(&["HAUL.RETRY", &name, &jid], out);
                (Place::Waiting, "int")
            }
            6 => {
                encode_request(&["HAUL.RETRY", &name, &jid, "DELAY", LONG], out);
                (Place::Scheduled, "int")
            }
            _ => {
                encode_request(&["HAUL.CANCEL", &jid], out);
                (Place::Absent, "int")
            }
        };
        if !matches!(after, Place::Running { .. }) {
            self.held.swap_remove(at);
        }
        self.life.world.lock().unwrap().jobs.get_mut(&jid).unwrap().sent.push(after.clone());
        Sent::Act { jid, attempt, after, answer }
    }

    /// Writes down what the answer says.
    fn heard(&mut self, sent: &Sent, answer: &Frame) {
        let mut world = self.life.world.lock().unwrap();
        match sent {
            Sent::Put { jid, after } => {
                assert_eq!(text(answer).as_deref(), Some(jid.as_str()), "{answer:?}");
                let known = world.jobs.get_mut(jid).unwrap();
                // A pop may have been answered before the put that made the job.
                if known.attempt == 0 && known.place == Place::Absent {
                    known.place = after.clone();
                    known.sent.clear();
                }
            }
            Sent::Pop { worker, count } => {
                let Frame::Array(jobs) = answer else { panic!("not jobs: {answer:?}") };
                assert!(jobs.len() as u64 <= *count);
                *world.popping.get_mut(worker).unwrap() -= count;
                for job in jobs {
                    let job = json(job).unwrap();
                    let (jid, attempt) = (job["jid"].as_str().unwrap(), job["attempt"].as_u64().unwrap());
                    assert_eq!(job["worker"], worker.as_str());
                    let known = world.jobs.get_mut(jid).unwrap();
                    assert_eq!(
                        attempt,
                        known.attempt + 1,
                        "{jid} was handed out twice, or an attempt is missing"
                    );
                    known.attempt = attempt;
                    known.place = Place::Running { worker: worker.clone(), data: job["data"].to_string() };
                    known.sent.clear();
                    self.held.push((jid.to_owned(), attempt));
                }
            }
            Sent::Act { jid, attempt, after, answer: expected } => {
                let fits = match *expected {
                    "int" => matches!(answer, Frame::Int(_)),
                    "jid" => text(answer).as_ref() == Some(jid),
                    word => text(answer).as_deref() == Some(word),
                };
                assert!(fits, "{jid} to {after:?}: {answer:?}");
                let known = world.jobs.get_mut(jid).unwrap();
                // Another worker may have got the job, and the answer, in between.
                if known.attempt == *attempt {
                    known.place = after.clone();
                    if let Some(at) = known.sent.iter().position(|sent| sent == after) {
                        known.sent.drain(..=at);
                    }
                }
            }
        }
    }
}

/// Where the server says the job is.
fn observed(job: Option<&serde_json::Value>) -> Place {
    let Some(job) = job else { return Place::Absent };
    let of = |field: &serde_json::Value| field.as_str().unwrap_or_default().to_owned();
    match job["state"].as_str().unwrap() {
        "waiting" => Place::Waiting,
        "scheduled" => Place::Scheduled,
        "running" => Place::Running { worker: of(&job["worker"]), data: job["data"].to_string() },
        "complete" => Place::Complete { result: of(&job["result"]) },
        "failed" => Place::Failed { message: of(&job["failure"]["message"]) },
        other => panic!("a job nobody made {other}: {job}"),
    }
}

/// Checks every job, and takes what the server says as the truth from here on.
fn check(world: &mut World, client: &mut Client) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    let mut taken: HashMap<String, u64> = HashMap::new();
    let jids: Vec<String> = world.jobs.keys().cloned().collect();
    for some in jids.chunks(500) {
        let mut args = vec!["HAUL.MGET".to_owned()];
        args.extend_from_slice(some);
        let Frame::Array(jobs) = client.call(&args) else { panic!("not jobs") };
        assert_eq!(jobs.len(), some.len());
        for (jid, job) in some.iter().zip(&jobs) {
            let job = json(job);
            let place = observed(job.as_ref());
            let known = world.jobs.get_mut(jid).unwrap();
            let attempt = job.as_ref().map_or(known.attempt, |job| job["attempt"].as_u64().unwrap());
            if place != known.place && !known.sent.contains(&place) {
                // The one thing a client does not know when it sends it: what a pop takes.
                let could_wait = known.place == Place::Waiting || known.sent.contains(&Place::Waiting);
                match &place {
                    Place::Running { worker, .. } if could_wait && attempt == known.attempt + 1 => {
                        *taken.entry(worker.clone()).or_default() += 1;
                    }
                    _ => panic!("{jid} is {place:?}, attempt {attempt}; its clients know {known:?}"),
                }
            }
            if let Some(job) = &job
                && !matches!(place, Place::Complete { .. })
            {
                assert_eq!(job["queue"], known.queue, "{jid}");
            }
            known.attempt = attempt;
            known.place = place.clone();
            known.sent.clear();
            places.insert(jid.clone(), place);
        }
    }
    for (worker, count) in taken {
        let asked = world.popping.get(&worker).copied().unwrap_or(0);
        assert!(count <= asked, "{worker} holds {count} jobs it was not told of, and had asked for {asked}");
    }
    world.popping.clear();
    world.jobs.retain(|_, known| known.place != Place::Absent);
    places.retain(|_, place| *place != Place::Absent);
    places
}

/// Every job is in exactly one list, the one of its state, and the counts are the lists' lengths.
fn check_lists(places: &BTreeMap<String, Place>, client: &mut Client) {
    let mut listed: BTreeMap<String, &str> = BTreeMap::new();
    let mut list = |word: &'static str, jids: Vec<String>| {
        let count = jids.len();
        for jid in jids {
            assert_eq!(listed.insert(jid.clone(), word), None, "{jid} is in two places, one is {word}");
        }
        count
    };
    let all = "100000000";
    for queue in QUEUES {
        let counts = client.json(&["HAUL.QUEUES", queue]);
        for word in ["waiting", "running", "stalled", "scheduled", "depends", "throttled"] {
            let jids = client.names(&["HAUL.JOBS", word, "QUEUE", queue, "COUNT", all]);
            assert_eq!(counts[word].as_u64(), Some(list(word, jids) as u64), "{word} of {queue}: {counts}");
        }
    }
    list("complete", client.names(&["HAUL.JOBS", "complete", "COUNT", all]));
    let failed = client.json(&["HAUL.FAILED", "oops", "COUNT", all]);
    let jids: Vec<String> =
        failed["jobs"].as_array().unwrap().iter().map(|jid| jid.as_str().unwrap().into()).collect();
    assert_eq!(failed["total"].as_u64(), Some(list("failed", jids) as u64));
    let expected: BTreeMap<String, &str> =
        places.iter().map(|(jid, place)| (jid.clone(), word(place))).collect();
    assert_eq!(listed, expected);
}

fn word(place: &Place) -> &'static str {
    match place {
        Place::Absent => "absent",
        Place::Waiting => "waiting",
        Place::Scheduled => "scheduled",
        Place::Running { .. } => "running",
        Place::Complete { .. } => "complete",
        Place::Failed { .. } => "failed",
    }
}

/// Cancels most of what nobody will touch again, so that the folder grows slowly. What is complete stays so.
fn tidy(world: &mut World, client: &mut Client) {
    let idle = |known: &Known| !matches!(known.place, Place::Waiting | Place::Complete { .. });
    let mut jids: Vec<String> =
        world.jobs.iter().filter(|(_, known)| idle(known)).map(|(jid, _)| jid.clone()).collect();
    jids.sort_unstable();
    jids.truncate(jids.len().saturating_sub(KEPT));
    if jids.is_empty() {
        return;
    }
    let mut args = vec!["HAUL.CANCEL".to_owned()];
    args.extend_from_slice(&jids);
    assert_eq!(client.call(&args), Frame::Int(jids.len() as i64));
    jids.iter().for_each(|jid| drop(world.jobs.remove(jid)));
}

/// What a scenario is about.
struct Scenario<'a> {
    flags: &'a [&'a str],
    /// Padding of each job's data.
    body: &'a str,
    /// Commands answered before the kill, at most.
    answers_max: u64,
}

fn live_and_die(scenario: &Scenario<'_>) {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::seeded();
    let life =
        Arc::new(Life { world: Mutex::default(), next_jid: AtomicU64::new(0), answered: AtomicU64::new(0) });
    for round in 0..LIVES {
        let server = Server::start(folder.path(), scenario.flags);
        let mut client = server.connect();
        {
            let mut world = life.world.lock().unwrap();
            let places = check(&mut world, &mut client);
            check_lists(&places, &mut client);
            tidy(&mut world, &mut client);
        }
        let enough = life.answered.load(Ordering::Relaxed) + random.between(1, scenario.answers_max);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (life, random, client) = (&life, Random::new(random.next()), server.connect());
                scope.spawn(move || {
                    let name = format!("life{round}-worker{number}");
                    let mut worker = Worker { life, name, random, held: Vec::new(), body: scenario.body };
                    let error = worker.run(client).unwrap_err();
                    assert!(is_gone(&error), "the connection ended otherwise than by the kill: {error}");
                });
            }
            support::eventually("enough answers", || life.answered.load(Ordering::Relaxed) >= enough);
            server.kill();
        });
        if round % 5 == 4 {
            assert_healthy(folder.path());
        }
    }
    let server = Server::start(folder.path(), scenario.flags);
    let mut client = server.connect();
    let places = check(&mut life.world.lock().unwrap(), &mut client);
    check_lists(&places, &mut client);
    assert!(server.stop().success());
    assert_healthy(folder.path());
    eprintln!("{} commands answered in {LIVES} lives", life.answered.load(Ordering::Relaxed));
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    live_and_die(&Scenario { flags: &[], body: "", answers_max: 3000 });
}

#[test]
fn nothing_acknowledged_is_lost_by_kills_amid_checkpoints() {
    // The log is full again and again, so most kills come while it is folded into the base.
    let body = "x".repeat(2000);
    live_and_die(&Scenario { flags: &["--log-bytes-max", "300000"], body: &body, answers_max: 2500 });
}

#[test]
fn a_clean_stop_answers_or_drops_but_never_half_does() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.connect();
    let mut out = BytesMut::new();
    for number in 0..500 {
        encode_request(&["HAUL.PUT", "q", "k", "1", "JID", &format!("j{number}")], &mut out);
    }
    client.send_bytes(&out).unwrap();
    assert_eq!(text(&client.read().unwrap()).as_deref(), Some("j0"));
    assert!(server.stop().success());
    let mut answered = 1;
    while client.read().is_ok() {
        answered += 1;
    }
    assert_healthy(folder.path());
    let server = Server::start(folder.path(), &[]);
    let kept = server.connect().json(&["HAUL.QUEUES", "q"])["waiting"].as_u64().unwrap();
    assert!(kept >= answered, "{answered} answered, {kept} kept");
}
