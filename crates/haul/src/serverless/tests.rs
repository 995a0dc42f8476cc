//! Daemons on one store in memory: what they share, what they take over, what becomes of one that loses its name.

use std::collections::BTreeMap;

use bytes::Bytes;
use haul_engine::{Command, State};
use haul_journal::{Entry, FullType, Id, Post};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::jobs::Release;
use super::*;
use crate::config::Raw;
use crate::http::rig::Rig;

const OLD: &str = "NC2oBN3-lt-0aZ~-000";
/// What a post without a body counts as: those around the jobs have none.
const SCRIPT: &str = "(script)";

struct World {
    rig: Rig,
    stops: Vec<watch::Sender<bool>>,
}

impl World {
    async fn new() -> Self {
        World { rig: Rig::new(Raw::default()).await, stops: Vec::new() }
    }

    fn jobs(&self) -> Jobs {
        Jobs { shard: self.rig.server.shard.clone(), lock_seconds: 300.0 }
    }

    async fn daemon(&mut self, folder: &std::path::Path, settings: Settings) -> Arc<Daemon> {
        let (stop, stopped) = watch::channel(false);
        self.stops.push(stop);
        let shard = self.rig.server.shard.clone();
        Daemon::start(folder.to_owned(), shard, settings, stopped).await.unwrap().0
    }

    async fn state(&self, jid: &str) -> Option<(State, String)> {
        let call = haul_engine::Call {
            tenant: Name::from("c"),
            now: clock::now(),
            clock: clock::now(),
            rules: haul_engine::Rules::NATIVE,
            command: Command::Get { jid: Name::from(jid) },
        };
        let delivery = self.rig.server.shard.ask(vec![call], Vec::new()).await.unwrap();
        let outcome = delivery.outcomes.unwrap().pop().unwrap();
        match crate::shard::texts(outcome).await.unwrap().0 {
            Ok(haul_engine::Reply::Job(Some(job))) => Some((job.state, job.worker.to_string())),
            _ => None,
        }
    }
}

fn entry(id: &str) -> Entry {
    let full = Arc::new(FullType::parse("c-t").unwrap());
    Entry::new(Id::parse(id).unwrap(), full, Bytes::from_static(b"x"), None)
}

fn post(body: impl Into<Bytes>) -> Post {
    Post { full: FullType::parse("c-t").unwrap(), body: body.into(), raw: false, due_ms: None }
}

async fn until<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    for _ in 0..3000 {
        if look().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not come about");
}

/// Counts the lines it is posted; answers 200 to each, or never.
async fn web(answers: bool) -> (String, Arc<Mutex<BTreeMap<String, usize>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let counts = Arc::new(Mutex::new(BTreeMap::new()));
    let counted = counts.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, counted.clone(), answers));
        }
    });
    (url, counts)
}

async fn answer(stream: TcpStream, counts: Arc<Mutex<BTreeMap<String, usize>>>, answers: bool) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let lines = String::from_utf8(body).unwrap();
        let scripts = lines.is_empty().then_some(SCRIPT);
        for line in lines.lines().chain(scripts) {
            *lock(&counts).entry(line.to_owned()).or_default() += 1;
        }
        if answers {
            let answer: String = lines.lines().map(|_| "200\n").collect();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
            stream.write_all(head.as_bytes()).await.unwrap();
        }
    }
}

async fn set_handler(daemon: &Daemon, url: &str) {
    set_handler_with(daemon, url, None).await;
}

async fn set_handler_with(daemon: &Daemon, url: &str, before: Option<&str>) {
    let options = "{\"batch\":true,\"batchSize\":50}";
    let text = serde_json::json!({"lang": "http", "body": url, "before": before, "options": options});
    let option = handlers::option("t", OLD);
    daemon.jobs.set_option(&Name::from("c"), option, Some(Name::from(text.to_string()))).await.unwrap();
    daemon.reload(&Name::from("c")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_on_one_store_share_the_work_and_run_nothing_twice() {
    let mut world = World::new().await;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (url, counts) = web(true).await;
    let one = world.daemon(folders[0].path(), Settings::default()).await;
    let other = world.daemon(folders[1].path(), Settings::default()).await;
    set_handler(&one, &url).await;
    other.reload(&Name::from("c")).await.unwrap();
    for (daemon, from) in [(&one, 0), (&other, 5000)] {
        let lines: String = (from..from + 5000).map(|at| format!("{at}\n")).collect();
        daemon.journal.write(&post(lines), now_ms()).await.unwrap();
    }
    assert_ne!(one.identity().await.unwrap(), other.identity().await.unwrap());
    let tenant = Name::from("c");
    until("10,000 jobs", || async {
        one.usage(&tenant).jobs + other.usage(&tenant).jobs >= 10_000 && lock(&one.held).is_empty()
    })
    .await;
    let counts = lock(&counts).clone();
    assert_eq!(counts.len(), 10_000);
    assert!(counts.values().all(|count| *count == 1));
    assert!(one.usage(&tenant).jobs > 0 && other.usage(&tenant).jobs > 0, "both have worked");
}

/// What was synced and not stored is read by the next start; what was stored and not forgotten is stored once.
#[tokio::test]
async fn the_journal_is_read_again_after_a_crash_and_the_store_does_not_mind() {
    let mut world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let ids = Arc::new(Ids::new(Sysid::parse("lt-0aZ~").unwrap()));
    let (journal, _) = Journal::open(Options::new(folder.path().join("journal")), ids).unwrap();
    let runs = journal.write(&post("a\nb\n"), now_ms()).await.unwrap();
    let (first, second) = (runs[0].0.to_string(), runs[0].0.advanced(1).to_string());
    drop(journal);
    // The first is in the store already, and done: the crash came before the journal was told.
    let jobs = world.jobs();
    jobs.add(&[entry(&first)], &[]).await.unwrap();
    let sysid = Name::from("S");
    jobs.take(&Name::from("c"), "t", 1, &sysid).await.unwrap();
    let done = Release::Archive { result: Bytes::from_static(b"1") };
    jobs.release(&Name::from("c"), vec![(Name::from(first.as_str()), done)], &sysid).await.unwrap();
    let accept = Settings { run: false, ..Settings::default() };
    let daemon = world.daemon(folder.path(), accept).await;
    until("all is read", || async { daemon.journal.backlog_bytes() == 0 }).await;
    assert_eq!(world.state(&first).await.unwrap().0, State::Complete);
    assert_eq!(world.state(&second).await.unwrap().0, State::Waiting);
}

#[tokio::test]
async fn a_job_is_given_back_by_its_owner_only() {
    let world = World::new().await;
    let (jobs, tenant) = (world.jobs(), Name::from("c"));
    jobs.add(&[entry(OLD)], &[]).await.unwrap();
    assert_eq!(jobs.take(&tenant, "t", 5, &Name::from("S")).await.unwrap().len(), 1);
    jobs.release(&tenant, vec![(Name::from(OLD), Release::Unget)], &Name::from("T")).await.unwrap();
    assert_eq!(world.state(OLD).await, Some((State::Running, "S".to_owned())));
    jobs.release(&tenant, vec![(Name::from(OLD), Release::Unget)], &Name::from("S")).await.unwrap();
    let again = jobs.take(&tenant, "t", 5, &Name::from("T")).await.unwrap();
    assert_eq!((again.len(), again[0].retries), (1, 0));
}

/// A deferred job was made long ago and is still not late: it went missing because its id was looked at.
#[tokio::test]
async fn what_nobody_ran_and_what_failed_is_removed_by_its_age() {
    let world = World::new().await;
    let (jobs, tenant, now) = (world.jobs(), Name::from("c"), clock::now());
    jobs.add(&[entry(OLD)], &[]).await.unwrap();
    assert_eq!(jobs.expire_unrun(&tenant, "t", now - 10.0).await.unwrap(), 0);
    assert!(world.state(OLD).await.is_some());
    assert_eq!(jobs.expire_unrun(&tenant, "t", now + 10.0).await.unwrap(), 1);
    assert_eq!(world.state(OLD).await, None);
    jobs.add(&[entry(OLD)], &[]).await.unwrap();
    jobs.take(&tenant, "t", 5, &Name::from("S")).await.unwrap();
    let bury = Release::Bury { group: "failed-404".to_owned(), message: Bytes::new(), entry: None };
    jobs.release(&tenant, vec![(Name::from(OLD), bury)], &Name::from("S")).await.unwrap();
    assert_eq!(jobs.purge_failed(&tenant, now - 10.0, 100).await.unwrap(), 0);
    assert_eq!(jobs.purge_failed(&tenant, now + 10.0, 100).await.unwrap(), 1);
    assert_eq!(world.state(OLD).await, None);
}

#[tokio::test]
async fn a_sysid_is_reserved_renewed_and_given_back() {
    let world = World::new().await;
    let jobs = world.jobs();
    let first = Sysid::parse("lt-0aZ~").unwrap();
    assert_eq!(sysid::reserve(&jobs, first.clone()).await.unwrap(), first);
    let second = sysid::reserve(&jobs, first.clone()).await.unwrap();
    assert_ne!(second, first, "it is taken");
    assert!(jobs.renew_sysid(first.as_str(), 1800.0).await.unwrap());
    jobs.drop_old_sysids().await.unwrap();
    assert!(jobs.renew_sysid(first.as_str(), 0.001).await.unwrap());
    until("its time to end", || async {
        jobs.drop_old_sysids().await.unwrap();
        !jobs.renew_sysid(first.as_str(), 0.001).await.unwrap()
    })
    .await;
    jobs.release_sysid(second.as_str()).await.unwrap();
    assert!(!jobs.renew_sysid(second.as_str(), 1800.0).await.unwrap());
}

/// Nothing goes on under a name that is lost: what ran ends, its jobs wait for their locks, and another name is reserved.
#[tokio::test]
async fn a_daemon_that_has_lost_its_sysid_stops_what_it_runs() {
    let mut world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (url, counts) = web(false).await;
    let daemon = world.daemon(folder.path(), Settings { contexts_max: 1, ..Settings::default() }).await;
    set_handler(&daemon, &url).await;
    let runs = daemon.journal.write(&post("a\n"), now_ms()).await.unwrap();
    daemon.wake.notify_one();
    until("it runs", || async { lock(&counts).len() == 1 }).await;
    let old = daemon.identity().await.unwrap();
    daemon.jobs.release_sysid(old.as_str()).await.unwrap();
    sysid::renew_row(&daemon).await;
    assert_ne!(daemon.identity().await.unwrap(), old);
    assert!(lock(&daemon.held).is_empty());
    let jid = runs[0].0.to_string();
    assert_eq!(world.state(&jid).await, Some((State::Running, old.as_str().to_owned())));
    // There is room again, though the first never answered.
    daemon.journal.write(&post("b\n"), now_ms()).await.unwrap();
    until("another runs", || async { lock(&counts).len() == 2 }).await;
}

/// A context that is used stays; one that is idle too long ends, and the next batch starts another.
#[tokio::test]
async fn an_idle_context_ends() {
    let mut world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (url, counts) = web(true).await;
    let idle = Duration::from_millis(1500);
    let settings = Settings { context_idle: idle, contexts_max: 1, ..Settings::default() };
    let daemon = world.daemon(folder.path(), settings).await;
    set_handler_with(&daemon, &url, Some(&url)).await;
    let tenant = Name::from("c");
    let run = async |jobs: u64| {
        daemon.journal.write(&post(format!("{jobs}\n")), now_ms()).await.unwrap();
        until("it has run", || async { daemon.usage(&tenant).jobs == jobs }).await;
        lock(&counts).get(SCRIPT).copied()
    };
    assert_eq!(run(1).await, Some(1));
    assert_eq!(run(2).await, Some(1), "the same context");
    tokio::time::sleep(idle + runner::LOOK_EVERY * 2).await;
    assert_eq!(run(3).await, Some(2), "another one");
}
