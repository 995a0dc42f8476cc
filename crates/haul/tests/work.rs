//! `haul work` with real processes: tasks that outlive their worker, guardians that are killed, limits, and a contest of
//! two workers while everything around them is killed. `HAUL_LONG=1` runs the long versions; `HAUL_BIN` names a binary whose
//! workers are to be tested, such as one built for release, which carries its guardian.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may fail by panicking"
)]
#![allow(clippy::disallowed_methods, reason = "a test that waits has a deadline")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Client, Random, Server, assert_healthy, eventually};

fn long() -> bool {
    std::env::var_os("HAUL_LONG").is_some()
}

/// What workers and their guardians are.
fn binary() -> PathBuf {
    std::env::var_os("HAUL_BIN").map_or_else(|| env!("CARGO_BIN_EXE_haul").into(), PathBuf::from)
}

/// A server on a port that stays the same when it is started anew, and a folder for everything.
struct Rig {
    folder: tempfile::TempDir,
    server: Option<Server>,
    address: String,
    /// How many workers there were.
    workers: AtomicUsize,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&folder.path().join("data"), &[]);
        let address = server.address.to_string();
        Rig { folder, server: Some(server), address, workers: AtomicUsize::new(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn kill_server(&mut self) {
        self.server.take().unwrap().kill();
    }

    /// On the address it had.
    fn start_server(&mut self) {
        let address = &self.address;
        let start = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
            command.args(["serve", "--redis", address, "--http", "off", "--data"]).arg(self.path("data"));
            Server::spawn(command)
        };
        let mut started = start();
        for _ in 0..50 {
            if started.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            started = start();
        }
        self.server = Some(started.unwrap());
    }

    fn client(&self) -> Client {
        Client::connect(self.address.parse().unwrap()).unwrap()
    }

    fn put(&self, jid: &str, data: &Value) {
        self.client().call(&["HAUL.PUT", "q", "k", &data.to_string(), "JID", jid]);
    }

    fn job(&self, jid: &str) -> Value {
        self.client().json(&["HAUL.GET", jid])
    }

    fn state_of(&self, jid: &str) -> String {
        self.job(jid)["state"].as_str().unwrap().to_owned()
    }

    /// Waits until the job has ended, and gives it.
    fn ended(&self, jid: &str) -> Value {
        eventually(&format!("{jid} ends"), || matches!(self.state_of(jid).as_str(), "complete" | "failed"));
        self.job(jid)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn haul(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).env("HAUL_SERVER", &self.address).env_remove("HAUL_WORKER").stdin(Stdio::null());
        command
    }

    fn work(&self, state: &str, options: &[&str], task: &Path) -> Worker {
        self.work_by(&binary(), &self.address, state, options, task)
    }

    /// By another binary, or through another address.
    fn work_by(&self, binary: &Path, address: &str, state: &str, options: &[&str], task: &Path) -> Worker {
        let log = self.path(&format!("worker-{}.log", self.workers.fetch_add(1, Ordering::Relaxed)));
        let mut command = Command::new(binary);
        command.args(["work", "q", "--state"]).arg(self.path(state)).args(options).arg("--").arg(task);
        command.env("HAUL_SERVER", address).env_remove("HAUL_WORKER");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        Worker { child: command.spawn().unwrap(), log }
    }

    /// Runs one job under these options and says how it ended.
    fn outcome(&self, jid: &str, options: &[&str], script: &str) -> Value {
        self.put(jid, &json!({}));
        let task = self.script(jid, script);
        let _worker = self.work("state", options, &task);
        self.ended(jid)
    }

    fn job_folders(&self, state: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path(state).join("jobs")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    fn record(&self, state: &str) -> Value {
        let folders = self.job_folders(state);
        record_in(folders.first().unwrap()).unwrap()
    }

    /// The guardian and the task of the only job that runs.
    fn pids(&self, state: &str) -> (i32, i32) {
        eventually("a task runs", || {
            let folders = self.job_folders(state);
            folders
                .first()
                .and_then(|folder| record_in(folder))
                .is_some_and(|record| !record["task"].is_null())
        });
        let record = self.record(state);
        (record["guardian"]["pid"].as_i64().unwrap() as i32, record["task"]["pid"].as_i64().unwrap() as i32)
    }
}

/// What is noted of a running job: `job.json`, and `task.json` as `task`.
fn record_in(folder: &Path) -> Option<Value> {
    let read = |name: &str| serde_json::from_slice(&fs::read(folder.join(name)).ok()?).ok();
    let mut record: Value = read("job.json")?;
    record["task"] = read("task.json").unwrap_or_default();
    Some(record)
}

/// A worker; dropped, it is killed, and its guardians follow when their jobs are done.
struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    fn signal(&self, signal: rustix::process::Signal) {
        send(self.child.id() as i32, signal);
    }

    /// Waits until it has said this.
    fn says(&self, text: &str) {
        eventually(text, || fs::read_to_string(&self.log).unwrap_or_default().contains(text));
    }

    fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const KILL: rustix::process::Signal = rustix::process::Signal::KILL;
const TERM: rustix::process::Signal = rustix::process::Signal::TERM;

fn send(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn whats(job: &Value) -> Vec<String> {
    job["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["what"].as_str().unwrap().to_owned())
        .collect()
}

fn count(job: &Value, what: &str) -> usize {
    whats(job).iter().filter(|found| *found == what).count()
}

/// A task of some seconds that notes its beginning and its end, so that running it twice shows.
fn slow_task(rig: &Rig, seconds: f64) -> PathBuf {
    let notes = rig.path("notes");
    rig.script(
        "slow",
        &format!(
            "echo begin >> {0}; sleep {seconds}; echo end >> {0}; echo \"result of $HAUL_JID\"",
            notes.display()
        ),
    )
}

fn notes(rig: &Rig) -> String {
    fs::read_to_string(rig.path("notes")).unwrap_or_default()
}

#[test]
fn a_task_gets_its_data_and_facts_and_leaves_result_and_log() {
    let rig = Rig::new();
    let script = "data=$(cat); [ \"$data\" = \"$(cat $HAUL_DATA_FILE)\" ] && echo \"$HAUL_JID $HAUL_QUEUE $HAUL_KLASS $HAUL_ATTEMPT $data $(basename $PWD)\"; echo a log >&2; echo '::haul progress 55 nearly' >&2";
    rig.put("j", &json!({"a": 1}));
    let task = rig.script("task", script);
    let mut worker = rig.work("state", &["--once"], &task);
    let job = rig.ended("j");
    assert_eq!(job["state"], "complete", "{job}");
    assert_eq!(job["result"], "j q k 1 {\"a\":1} work\n");
    assert_eq!(job["output"], "a log\n");
    assert_eq!(worker.wait(), Some(0));
    assert_eq!(rig.job_folders("state").len(), 0, "the folder is removed");
}

#[test]
fn ends_are_told_by_name() {
    let rig = Rig::new();
    for (jid, options, script, group) in [
        ("exit", &[][..], "echo oops >&2; exit 3", "exit-3"),
        ("signal", &[], "kill -SEGV $$", "signal-SEGV"),
        ("class", &[], "echo '::haul outcome 404 no such page' >&2", "outcome-404"),
        ("missing", &[], "exec /no/such/command", "exit-126"),
    ] {
        let job = rig.outcome(jid, options, script);
        let found = job["failure"]["group"].as_str().unwrap().replace("exit-127", "exit-126");
        assert_eq!(found, group, "{job}");
    }
    assert!(rig.job("exit")["failure"]["message"].as_str().unwrap().contains("oops"));
    let job = rig.outcome("again", &["--backoff", "0.05"], "[ $HAUL_ATTEMPT = 2 ] || exit 75; echo done");
    assert_eq!((job["state"].as_str(), job["attempt"].as_u64()), (Some("complete"), Some(2)), "{job}");
}

#[test]
fn a_command_that_cannot_be_run_is_named() {
    let rig = Rig::new();
    let locked = rig.script("locked", "true");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o644)).unwrap();
    for (jid, command, group) in
        [("missing", Path::new("/no/such/command"), "exit-127"), ("locked", &locked, "exit-126")]
    {
        rig.put(jid, &json!({}));
        let _worker = rig.work("state", &[], command);
        let job = rig.ended(jid);
        assert_eq!(job["failure"]["group"], group, "{job}");
        let message = job["failure"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{} cannot be run: ", command.display())), "{message}");
    }
    let mut fed = rig.work("fed", &["--serve", "1"], Path::new("/no/such/command"));
    assert_eq!(fed.wait(), Some(2));
    fed.says("its command cannot be run");
}

#[test]
fn a_task_beyond_its_limits_is_contained_and_named() {
    let rig = Rig::new();
    let strays = rig.path("strays");
    let forks = format!(
        "for i in 1 2 3; do (setsid sleep 300 & echo $! >> {0}); done; (trap '' TERM; sleep 300) & echo $! >> {0}; sleep 300",
        strays.display()
    );
    let grace = ["--grace", "0.3s"];
    for (jid, options, script, group) in [
        ("time", &["--time-limit", "0.5s"][..], "trap '' TERM; while :; do sleep 0.1; done", "time-limit"),
        ("forks", &["--time-limit", "4s"], forks.as_str(), "time-limit"),
        ("flood", &["--output", "2m"], "yes", "output-limit"),
        ("noise", &["--output", "2m"], "yes >&2", "output-limit"),
        (
            "disk",
            &["--disk", "1m"],
            "while :; do n=$((n+1)); head -c 300000 /dev/zero > f$n; sleep 0.05; done",
            "disk-limit",
        ),
        ("file", &["--file-size", "100k"], "exec head -c 300000 /dev/zero > f", "file-size-limit"),
        (
            "memory",
            &["--memory", "64m"],
            "x=$(head -c 30000000 /dev/zero | tr '\\0' x); while :; do y=$y$x; sleep 0.02; done",
            "memory-limit",
        ),
        (
            "processes",
            &["--processes", "20"],
            "for i in $(seq 40); do sleep 300 & done; wait",
            "process-limit",
        ),
        ("cpu", &["--cpu", "1"], "while :; do :; done", "cpu-limit"),
    ] {
        let job = rig.outcome(jid, &[options, &grace[..]].concat(), script);
        assert_eq!(job["failure"]["group"], group, "{jid}: {job}");
    }
    for pid in fs::read_to_string(&strays).unwrap().lines() {
        assert!(!is_alive(pid.parse().unwrap()), "process {pid} of a task got away");
    }
    let flood = rig.job("flood");
    assert!(flood["failure"]["message"].as_str().unwrap().len() < 8000);
}

#[test]
fn a_result_is_bounded_and_says_so() {
    let rig = Rig::new();
    let job = rig.outcome("j", &["--result-bytes-max", "10"], "echo 0123456789abcdef");
    assert_eq!(job["result"], "0123456789");
    assert_eq!(job["progress"]["message"], "the result was cut: 10 of 17 bytes are kept");
}

/// A copy of the binary that says it is of another version.
fn another_version(rig: &Rig, name: &str, version: &str) -> PathBuf {
    let mut bytes = fs::read(binary()).unwrap();
    let (own, other) = (env!("CARGO_PKG_VERSION").as_bytes(), version.as_bytes());
    assert_eq!(own.len(), other.len(), "so that nothing else moves");
    let places: Vec<usize> = memchr::memmem::find_iter(&bytes, own).collect();
    assert!(!places.is_empty(), "the binary says its version");
    places.into_iter().for_each(|at| bytes[at..at + other.len()].copy_from_slice(other));
    let path = rig.path(name);
    // Beside and renamed, as installers do: the old file lives on in the processes that run it.
    fs::write(path.with_extension("new"), bytes).unwrap();
    fs::set_permissions(path.with_extension("new"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(path.with_extension("new"), &path).unwrap();
    path
}

/// One task through every way a worker can end, with a lock shorter than the task.
#[test]
fn a_task_outlives_its_worker_however_that_ends() {
    let seconds = if long() { 60.0 } else { 30.0 };
    let lock = if long() { "20s" } else { "12s" };
    let mut rig = Rig::new();
    let task = slow_task(&rig, seconds);
    rig.put("j", &json!({}));
    let options = ["--lock", lock, "--grace", "0.2s"];
    let binary = another_version(&rig, "haul", "0.0.9");
    let first = rig.work_by(&binary, &rig.address, "state", &options, &task);
    let (guardian, leader) = rig.pids("state");
    // Killed.
    drop(first);
    // Replaced by a newer binary, which is told to go and leaves the task alone.
    another_version(&rig, "haul", "9.9.9");
    let named = [&options[..], &["--worker", "newer", "--detach"]].concat();
    let mut second = rig.work_by(&binary, &rig.address, "state", &named, &task);
    second.says("goes on under its guardian");
    let pid = second.child.id();
    let workers = || rig.client().json(&["HAUL.WORKERS"]);
    let newer = || workers().as_array().unwrap().iter().any(|worker| worker["facts"]["pid"] == pid);
    eventually("the newer one is there", newer);
    second.signal(TERM);
    assert_eq!(second.wait(), Some(0));
    // The server is away for a part of it.
    rig.kill_server();
    std::thread::sleep(Duration::from_millis(400));
    rig.start_server();
    // The third is told to stop, and has nothing of its own to wait for.
    let mut third = rig.work("state", &options, &task);
    third.says("goes on under its guardian");
    third.signal(TERM);
    assert_eq!(third.wait(), Some(0));
    assert_eq!(rig.state_of("j"), "running");
    assert_eq!(rig.pids("state"), (guardian, leader), "the same processes all the time");
    let _last = rig.work("state", &options, &task);
    let job = rig.ended("j");
    assert_eq!(job["result"], "result of j\n", "{job}");
    assert_eq!(
        (notes(&rig).as_str(), count(&job, "popped"), count(&job, "timed-out")),
        ("begin\nend\n", 1, 0),
        "{job}"
    );
    eventually("the folder goes", || rig.job_folders("state").is_empty());
}

#[test]
fn a_worker_waits_for_a_server_that_is_not_there_yet() {
    let mut rig = Rig::new();
    rig.put("j", &json!({}));
    rig.kill_server();
    let task = rig.script("task", "echo done");
    let worker = rig.work("state", &[], &task);
    let fed = rig.work("fed", &["--serve", "1"], &task);
    worker.says("is waited for");
    fed.says("is waited for");
    drop(fed);
    rig.start_server();
    assert_eq!(rig.ended("j")["result"], "done\n");
}

#[test]
fn an_outcome_waits_for_a_server_that_is_away_and_arrives_once() {
    let mut rig = Rig::new();
    let task = slow_task(&rig, 1.0);
    rig.put("j", &json!({}));
    let worker = rig.work("state", &[], &task);
    let (guardian, _) = rig.pids("state");
    rig.kill_server();
    let outcome =
        || rig.job_folders("state").first().is_some_and(|folder| folder.join("outcome.json").exists());
    eventually("the outcome is on disk", outcome);
    // Nobody is left of those who ran it; the next worker finds it.
    drop(worker);
    send(guardian, KILL);
    eventually("the guardian is gone", || !is_alive(guardian));
    rig.start_server();
    let _next = rig.work("state", &[], &task);
    let job = rig.ended("j");
    assert_eq!(
        (job["result"].as_str(), notes(&rig).as_str()),
        (Some("result of j\n"), "begin\nend\n"),
        "{job}"
    );
    eventually("the folder goes", || rig.job_folders("state").is_empty());
}

/// Sits between a worker and its server. Told to cut, it ends everything at the next completion: `arrives` says whether
/// the server still hears of it.
struct Between {
    address: String,
    cut: Arc<Mutex<Option<bool>>>,
    was_cut: Arc<AtomicUsize>,
}

impl Between {
    fn new(server: &str) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let between = Between { address, cut: Arc::default(), was_cut: Arc::default() };
        let (cut, was_cut, server) =
            (Arc::clone(&between.cut), Arc::clone(&between.was_cut), server.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let is_quiet = Arc::new(AtomicUsize::new(0));
                let quiet = Arc::clone(&is_quiet);
                std::thread::spawn(move || {
                    let mut part = [0; 1 << 16];
                    while let Ok(count @ 1..) = from.read(&mut part) {
                        let is_over = quiet.load(Ordering::SeqCst) > 0;
                        if is_over || to.write_all(&part[..count]).is_err() {
                            break;
                        }
                    }
                    drop(to.shutdown(std::net::Shutdown::Both));
                });
                let (cut, was_cut) = (Arc::clone(&cut), Arc::clone(&was_cut));
                std::thread::spawn(move || relay(client, server, &cut, (&is_quiet, &was_cut)));
            }
        });
        between
    }
}

fn relay(
    mut client: TcpStream,
    mut server: TcpStream,
    cut: &Mutex<Option<bool>>,
    (is_quiet, was_cut): (&AtomicUsize, &AtomicUsize),
) {
    let mut part = [0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut part) {
        let is_completion = memchr::memmem::find(&part[..count], b"HAUL.COMPLETE").is_some();
        let ending = if is_completion { cut.lock().unwrap().take() } else { None };
        if ending.is_some() {
            is_quiet.store(1, Ordering::SeqCst);
        }
        if ending != Some(false) && server.write_all(&part[..count]).is_err() {
            break;
        }
        if ending.is_some() {
            was_cut.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
    drop(server.shutdown(std::net::Shutdown::Both));
}

#[test]
fn a_server_killed_at_the_moment_of_completion_does_not_make_it_twice_or_never() {
    let mut rig = Rig::new();
    let task = slow_task(&rig, 0.1);
    let between = Between::new(&rig.address);
    let _worker = rig.work_by(&binary(), &between.address, "state", &[], &task);
    // The completion did not arrive; it arrived, and the answer did not.
    for (round, arrives) in [(1, false), (2, true)] {
        *between.cut.lock().unwrap() = Some(arrives);
        let jid = format!("j{round}");
        rig.put(&jid, &json!({}));
        eventually("the completion is on its way", || between.was_cut.load(Ordering::SeqCst) == round);
        if arrives {
            eventually("it arrives", || rig.state_of(&jid) == "complete");
        }
        rig.kill_server();
        rig.start_server();
        let job = rig.ended(&jid);
        assert_eq!(
            (job["state"].as_str(), count(&job, "done"), count(&job, "popped")),
            (Some("complete"), 1, 1),
            "{job}"
        );
        assert_eq!(job["result"], format!("result of {jid}\n"));
        eventually("the folder goes", || rig.job_folders("state").is_empty());
    }
    assert_eq!(notes(&rig), "begin\nend\nbegin\nend\n");
}

/// A task that leaves children in its session and in one of their own, and notes their pids.
fn forking_task(rig: &Rig) -> PathBuf {
    let strays = rig.path("strays");
    let script = "[ $HAUL_ATTEMPT = 1 ] && { sleep 300 & echo $! >> STRAYS; setsid sleep 300 & echo $! >> STRAYS; echo all >> STRAYS; wait; }; echo second";
    rig.script("forking", &script.replace("STRAYS", &strays.display().to_string()))
}

fn strays(rig: &Rig) -> Vec<i32> {
    let noted = || fs::read_to_string(rig.path("strays")).unwrap_or_default();
    eventually("the task has its children", || noted().ends_with("all\n"));
    noted().lines().filter_map(|line| line.parse().ok()).collect()
}

#[test]
fn a_killed_guardian_takes_its_task_with_it_and_the_job_is_tried_again() {
    let rig = Rig::new();
    let task = forking_task(&rig);
    rig.put("j", &json!({}));
    let _worker = rig.work("state", &[], &task);
    let (guardian, leader) = rig.pids("state");
    let strays = strays(&rig);
    send(guardian, KILL);
    eventually("the task ends with its guardian", || !is_alive(leader));
    let job = rig.ended("j");
    assert_eq!((job["result"].as_str(), job["attempt"].as_u64()), (Some("second\n"), Some(2)), "{job}");
    assert!(strays.iter().all(|pid| !is_alive(*pid)), "children of the first attempt live: {strays:?}");
    assert_eq!(count(&job, "retried: guardian-died"), 1, "{job}");
}

#[test]
fn what_a_killed_worker_and_guardian_left_is_ended_by_the_next_worker() {
    let rig = Rig::new();
    let task = forking_task(&rig);
    rig.put("j", &json!({}));
    let worker = rig.work("state", &[], &task);
    let (guardian, leader) = rig.pids("state");
    let strays = strays(&rig);
    drop(worker);
    send(guardian, KILL);
    eventually("the task ends with its guardian", || !is_alive(leader));
    let _next = rig.work("state", &[], &task);
    let job = rig.ended("j");
    assert_eq!((job["result"].as_str(), job["attempt"].as_u64()), (Some("second\n"), Some(2)), "{job}");
    assert!(strays.iter().all(|pid| !is_alive(*pid)), "children of the first attempt live: {strays:?}");
}

#[test]
fn a_pid_used_again_fools_nobody() {
    let rig = Rig::new();
    let task = slow_task(&rig, 30.0);
    rig.put("j", &json!({}));
    let worker = rig.work("state", &["--lock", "3s"], &task);
    let (guardian, leader) = rig.pids("state");
    drop(worker);
    send(guardian, KILL);
    eventually("the task ends with its guardian", || !is_alive(leader));
    // Both pids now seem to be those of a process that lives: this one.
    let folder = rig.job_folders("state")[0].clone();
    let mut record = rig.record("state");
    record["guardian"]["pid"] = json!(std::process::id());
    record["task"]["pid"] = json!(std::process::id());
    fs::write(folder.join("task.json"), record["task"].to_string()).unwrap();
    fs::write(folder.join("job.json"), record.to_string()).unwrap();
    let quick = rig.script("quick", "echo quick");
    let _next = rig.work("state", &["--lock", "3s"], &quick);
    let job = rig.ended("j");
    assert_eq!(job["result"], "quick\n", "{job}");
    eventually("the folder goes", || rig.job_folders("state").is_empty());
}

#[test]
fn a_canceled_job_is_stopped_at_once() {
    let rig = Rig::new();
    let task = rig.script("task", "trap '' TERM; sleep 300 & wait; sleep 300");
    rig.put("j", &json!({}));
    let _worker = rig.work("state", &["--grace", "0.2s"], &task);
    let (_, leader) = rig.pids("state");
    rig.client().call(&["HAUL.CANCEL", "j"]);
    eventually("the task ends", || !is_alive(leader));
    eventually("the folder goes", || rig.job_folders("state").is_empty());
}

#[test]
fn a_task_whose_lock_cannot_be_renewed_is_gone_before_the_lock_is() {
    let mut rig = Rig::new();
    let task = rig.script(
        "task",
        &format!(
            "trap '' TERM; while :; do date +%s.%N >> {}; sleep 0.05; done",
            rig.path("notes").display()
        ),
    );
    rig.put("j", &json!({}));
    let worker = rig.work("state", &["--lock", "8s", "--grace", "0.5s"], &task);
    let (_, leader) = rig.pids("state");
    let expires = rig.job("j")["expires"].as_f64().unwrap();
    rig.kill_server();
    eventually("the task is stopped", || !is_alive(leader));
    drop(worker);
    rig.start_server();
    // Its guardian may have told already that it was stopped: then it has no lock any more.
    let job = rig.job("j");
    let expires = job["expires"].as_f64().unwrap_or(expires);
    let seen: f64 = notes(&rig).lines().last().unwrap().parse().unwrap();
    assert!(seen < expires, "it still ran at {seen}: {job}");
    let quick = rig.script("quick", "echo quick");
    let _next = rig.work("state", &[], &quick);
    let job = rig.ended("j");
    assert_eq!(job["result"], "quick\n", "{job}");
}

#[test]
fn a_first_signal_drains_and_a_second_stops() {
    let rig = Rig::new();
    let task = slow_task(&rig, 1.5);
    rig.put("j", &json!({}));
    let mut worker = rig.work("state", &[], &task);
    rig.pids("state");
    worker.signal(TERM);
    worker.says("no more jobs are taken");
    rig.put("later", &json!({}));
    assert_eq!(worker.wait(), Some(0));
    assert_eq!((rig.state_of("j"), rig.state_of("later")), ("complete".to_owned(), "waiting".to_owned()));
    let endless = slow_task(&rig, 300.0);
    let mut worker = rig.work("state", &["--grace", "0.2s"], &endless);
    rig.pids("state");
    worker.signal(TERM);
    worker.says("no more jobs are taken");
    worker.signal(TERM);
    assert_eq!(worker.wait(), Some(0));
    let job = rig.job("later");
    assert_eq!(job["failure"]["group"], "interrupted", "{job}");
    assert!(matches!(job["state"].as_str(), Some("scheduled" | "waiting")), "{job}");
}

#[test]
fn workers_register_and_drain_when_asked() {
    let rig = Rig::new();
    let go = rig.path("go");
    let task = rig.script("task", &format!("until [ -e {} ]; do sleep 0.05; done", go.display()));
    rig.put("j", &json!({}));
    let mut worker = rig.work("state", &["--worker", "w1", "--concurrency", "3", "--klass", "k,l"], &task);
    rig.pids("state");
    let workers = || rig.client().json(&["HAUL.WORKERS"]);
    let found = || workers().as_array().unwrap().iter().find(|worker| worker["name"] == "w1").cloned();
    eventually("it registers", || found().is_some_and(|worker| worker["facts"]["pid"].is_number()));
    let w1 = found().unwrap();
    assert_eq!((w1["state"].as_str(), w1["facts"]["capacity"].as_u64()), (Some("alive"), Some(3)), "{w1}");
    assert_eq!(w1["facts"]["queues"], json!(["q"]));
    assert!(rig.haul(&["drain", "w1"]).status().unwrap().success());
    assert!(!rig.haul(&["drain", "nobody"]).stderr(Stdio::null()).status().unwrap().success());
    assert_eq!(found().unwrap()["state"], "draining");
    worker.says("asked to drain");
    fs::write(go, "").unwrap();
    assert_eq!(worker.wait(), Some(0));
    assert_eq!((found(), rig.state_of("j").as_str()), (None, "complete"));
}

#[test]
fn a_checkpoint_is_given_to_the_next_attempt() {
    let rig = Rig::new();
    let script = "if [ -z \"$HAUL_CHECKPOINT\" ]; then echo '::haul checkpoint {\"row\": 7}' >&2; sleep 1.5; exit 75; fi; echo \"$HAUL_CHECKPOINT\"";
    let job = rig.outcome("j", &["--backoff", "0.05"], script);
    assert_eq!(job["result"], "{\"row\": 7}\n", "{job}");
}

#[test]
fn run_follows_a_command_and_exits_with_its_status() {
    let rig = Rig::new();
    let mut worker = rig.haul(&["work", "sh", "--exec", "--state"]);
    let child = worker.arg(rig.path("state")).stderr(Stdio::null()).spawn().unwrap();
    let _worker = Worker { child, log: PathBuf::new() };
    let ran = rig.haul(&["run", "sh", "--", "sh", "-c", "echo log >&2; echo out"]).output().unwrap();
    assert_eq!((ran.status.code(), String::from_utf8(ran.stdout).unwrap().as_str()), (Some(0), "out\n"));
    assert!(String::from_utf8(ran.stderr).unwrap().contains("log\n"));
    let ran = rig.haul(&["run", "sh", "--jid", "r", "--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(ran.status.code(), Some(7));
    assert_eq!(rig.haul(&["wait", "r"]).output().unwrap().status.code(), Some(7));
    let put = rig.haul(&[
        "run",
        "sh",
        "--jid",
        "t",
        "--no-follow",
        "--",
        "sh",
        "-c",
        "for i in 1 2 3; do echo line $i >&2; sleep 0.4; done",
    ]);
    drop({ put }.output().unwrap());
    let tail = rig.haul(&["tail", "t"]).output().unwrap();
    assert_eq!(String::from_utf8(tail.stdout).unwrap(), "line 1\nline 2\nline 3\n");
}

#[test]
fn queues_are_chosen_by_pattern_and_klass() {
    let rig = Rig::new();
    let mut client = rig.client();
    for (queue, klass, jid) in
        [("mail-a", "k", "1"), ("mail-b", "k", "2"), ("mail-x", "k", "3"), ("mail-a", "other", "4")]
    {
        client.call(&["HAUL.PUT", queue, klass, "{}", "JID", jid]);
    }
    let task = rig.script("task", "true");
    let mut work = rig.haul(&[
        "work",
        "mail-*",
        "!mail-x",
        "--klass",
        "k",
        "--once",
        "--order",
        "round-robin",
        "--state",
    ]);
    let status = work.arg(rig.path("state")).arg("--").arg(&task).stderr(Stdio::null()).status().unwrap();
    assert!(status.success());
    let states: Vec<String> = ["1", "2", "3", "4"].iter().map(|jid| rig.state_of(jid)).collect();
    assert_eq!(states, ["complete", "complete", "waiting", "waiting"]);
}

#[test]
fn long_running_children_are_fed_and_a_crash_costs_only_their_jobs() {
    let rig = Rig::new();
    let mut client = rig.client();
    for n in 0..300 {
        client.call(&["HAUL.PUT", "q", "k", &format!("{{\"n\":{n}}}"), "JID", &format!("j{n}")]);
    }
    let script = r#"
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case "$line" in
    *'"n":13}'*'"attempt":1'*|*'"attempt":1,'*'"n":13}'*) exit 9;;
    *'"n":14}'*) echo "{\"id\":$id,\"fail\":\"no\",\"group\":\"g\"}";;
    *'"n":15}'*) echo "{\"id\":$id,\"result\":{\"a\":1}}";;
    *) echo "{\"ids\":[$id]}";;
  esac
done"#;
    let task = rig.script("child", script);
    let mut worker = rig.work("state", &["--serve", "2", "--batch", "20", "--once"], &task);
    assert_eq!(worker.wait(), Some(0));
    for n in 0..300 {
        let job = rig.job(&format!("j{n}"));
        let wanted = if n == 14 { "failed" } else { "complete" };
        assert_eq!(job["state"], wanted, "{job}");
    }
    assert_eq!(rig.job("j15")["result"], "{\"a\":1}");
    assert_eq!(rig.job("j13")["attempt"], 2);
}

/// Two workers with state folders of their own, as on two machines, while workers, guardians and tasks are killed. Each
/// task holds a lock while it runs, so that running a job twice at once shows.
#[test]
fn two_workers_compete_while_everything_is_killed() {
    let jobs = if long() { 1000 } else { 150 };
    let rig = Rig::new();
    let mut random = Random::seeded();
    let mut client = rig.client();
    for n in 0..jobs {
        client.call(&["HAUL.PUT", "q", "k", "{}", "JID", &format!("j{n}"), "RETRIES", "1000"]);
    }
    let locks = rig.path("locks");
    fs::create_dir(&locks).unwrap();
    let script = format!(
        "exec 9> {0}/$HAUL_JID; flock -n 9 || echo $HAUL_JID >> {0}/twice; sleep 0.0$((RANDOM % 9))5",
        locks.display()
    );
    let task = rig.script("task", &script);
    let options = [
        "--lock",
        "3s",
        "--grace",
        "0.2s",
        "--concurrency",
        "4",
        "--retry-on",
        "signal",
        "--backoff",
        "0.01",
    ];
    let mut workers: Vec<Worker> = vec![rig.work("one", &options, &task), rig.work("two", &options, &task)];
    let deadline = Instant::now() + Duration::from_secs(if long() { 1800 } else { 300 });
    let left = |client: &mut Client| -> usize {
        let counts = client.json(&["HAUL.QUEUES", "q"]);
        ["waiting", "running", "stalled", "scheduled"]
            .iter()
            .map(|key| counts[*key].as_u64().unwrap() as usize)
            .sum()
    };
    while left(&mut client) > 0 {
        assert!(Instant::now() < deadline, "{} jobs are left", left(&mut client));
        std::thread::sleep(Duration::from_millis(random.between(50, 200)));
        let at = random.below(2) as usize;
        let state = ["one", "two"][at];
        match random.below(6) {
            0 => {
                workers[at].signal(KILL);
                workers[at] = rig.work(state, &options, &task);
            }
            1 | 2 => kill_some(&rig, state, "guardian", &mut random),
            _ => kill_some(&rig, state, "task", &mut random),
        }
    }
    let twice = fs::read_to_string(locks.join("twice")).unwrap_or_default();
    assert_eq!(twice, "", "jobs ran twice at once");
    let mut killed = 0;
    for n in 0..jobs {
        let job = rig.job(&format!("j{n}"));
        assert_eq!(job["state"], "complete", "{job}");
        // The history tells of every attempt, and why each but the last was cut off.
        let cut_off =
            whats(&job).iter().filter(|what| *what == "timed-out" || what.starts_with("retried: ")).count();
        assert_eq!(count(&job, "popped") as u64, job["attempt"].as_u64().unwrap(), "{job}");
        assert_eq!(cut_off, count(&job, "popped") - 1, "{job}");
        killed += cut_off;
    }
    eprintln!("{jobs} jobs, {killed} attempts were cut off");
    drop(workers);
    drop(client);
    let Rig { folder, server, .. } = rig;
    server.unwrap().stop();
    assert_healthy(&folder.path().join("data"));
}

fn kill_some(rig: &Rig, state: &str, which: &str, random: &mut Random) {
    let folders = rig.job_folders(state);
    if folders.is_empty() {
        return;
    }
    let folder = &folders[random.below(folders.len() as u64) as usize];
    let pid = record_in(folder).and_then(|record| record[which]["pid"].as_i64());
    if let Some(pid) = pid.filter(|pid| *pid > 1) {
        send(pid as i32, KILL);
    }
}
