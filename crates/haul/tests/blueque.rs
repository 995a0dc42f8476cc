//! Blueque's transactions are whole: a server killed at any moment shows, when it is started again, all of each or
//! nothing of it, and nothing that was acknowledged is lost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

mod support;

use std::collections::HashMap;
use std::io;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use haul_client::resp::Frame;
use support::{Client, Random, Server, assert_healthy, eventually, is_gone, text};

/// Kills on one folder.
const LIVES: usize = 12;
/// Listeners at work at once.
const LISTENERS: usize = 3;

/// The steps in the life of a task. Each is one transaction, or one of the two writes of taking it.
const STEPS: [&str; 7] = ["", "pending", "taken", "reserved", "started", "complete", "gone"];

fn exec(client: &mut Client, commands: &[&[&str]]) -> io::Result<Vec<Frame>> {
    client.send(&["MULTI"])?;
    for command in commands {
        client.send(command)?;
    }
    client.send(&["EXEC"])?;
    for _ in 0..=commands.len() {
        assert!(matches!(client.read()?, Frame::Simple(_)));
    }
    match client.read()? {
        Frame::Array(answers) => Ok(answers),
        other => panic!("{other:?}"),
    }
}

/// One task, from its enqueueing to its deletion; `reached` is told of each step that was acknowledged.
fn live(client: &mut Client, task: &str, listener: &str, mut reached: impl FnMut(usize)) -> io::Result<()> {
    // A queue of its own: this listener and no other takes it.
    let queue = listener;
    let hash = format!("blueque_task_{task}");
    let (pending, reserved) =
        (format!("blueque_pending_tasks_{queue}"), format!("blueque_reserved_tasks_{queue}_{listener}"));
    let (started, complete) =
        (format!("blueque_started_tasks_{queue}"), format!("blueque_complete_tasks_{queue}"));
    let member = format!("{listener} 7 {task}");
    exec(
        client,
        &[
            &[
                "HSET",
                &hash,
                "status",
                "pending",
                "queue",
                queue,
                "parameters",
                "p",
                "created",
                "1",
                "updated",
                "1",
            ],
            &["ZINCRBY", "blueque_queues", "0", queue],
            &["LPUSH", &pending, task],
        ],
    )?;
    reached(1);
    assert_eq!(text(&client.try_call(&["RPOPLPUSH", &pending, &reserved])?).as_deref(), Some(task));
    reached(2);
    client.try_call(&["HSET", &hash, "status", "reserved", "node", listener, "updated", "2"])?;
    reached(3);
    exec(
        client,
        &[&["SADD", &started, &member], &["HSET", &hash, "status", "started", "pid", "7", "updated", "3"]],
    )?;
    reached(4);
    let done = exec(
        client,
        &[
            &["LREM", &reserved, "1", task],
            &["SREM", &started, &member],
            &["HSET", &hash, "status", "complete", "result", "r", "updated", "4"],
            &["LPUSH", &complete, task],
        ],
    )?;
    assert_eq!(done[..3], [Frame::Int(1), Frame::Int(1), Frame::Int(1)]);
    reached(5);
    let gone = exec(client, &[&["DEL", &hash], &["LREM", &complete, "1", task]])?;
    assert_eq!(gone, [Frame::Int(1), Frame::Int(1)]);
    reached(6);
    Ok(())
}

/// The step a task is at, from everything its keys show; fails if they do not agree.
fn step_of(client: &mut Client, task: &str, listener: &str) -> usize {
    let queue = listener;
    let mut has = |command: &str, key: String| {
        let args: &[&str] = if command == "LRANGE" { &[command, &key, "0", "-1"] } else { &[command, &key] };
        client.names(args).iter().any(|name| name == task || name.ends_with(&format!(" {task}")))
    };
    let seen = [
        has("LRANGE", format!("blueque_pending_tasks_{queue}")),
        has("LRANGE", format!("blueque_reserved_tasks_{queue}_{listener}")),
        has("SMEMBERS", format!("blueque_started_tasks_{queue}")),
        has("LRANGE", format!("blueque_complete_tasks_{queue}")),
    ];
    let fields = client.names(&["HGETALL", &format!("blueque_task_{task}")]);
    let status = fields.get(1).cloned().unwrap_or_default();
    match (seen, status.as_str(), fields.len() / 2) {
        ([true, false, false, false], "pending", 5) => 1,
        ([false, true, false, false], "pending", 5) => 2,
        ([false, true, false, false], "reserved", 6) => 3,
        ([false, true, true, false], "started", 7) => 4,
        ([false, false, false, true], "complete", 8) => 5,
        ([false, false, false, false], "", 0) => 6,
        other => panic!("half a transaction of {task}: {other:?} {fields:?}"),
    }
}

#[test]
fn transactions_are_whole_after_kills() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::seeded();
    let mut number = 0;
    for life in 0..LIVES {
        let server = Server::start(folder.path(), &[]);
        let acknowledged = Mutex::new(HashMap::new());
        let answers = AtomicUsize::new(0);
        let enough = random.between(1, 300) as usize;
        std::thread::scope(|scope| {
            for index in 0..LISTENERS {
                let (mut client, acknowledged, answers) = (server.connect(), &acknowledged, &answers);
                scope.spawn(move || {
                    let listener = format!("host_{life}_{index}");
                    for task in 0.. {
                        let task = format!("{listener}_t{task}");
                        acknowledged.lock().unwrap().insert(task.clone(), (listener.clone(), 0));
                        let ended = live(&mut client, &task, &listener, |step| {
                            acknowledged.lock().unwrap().insert(task.clone(), (listener.clone(), step));
                            answers.fetch_add(1, Ordering::Relaxed);
                        });
                        if let Err(error) = ended {
                            assert!(is_gone(&error), "{error}");
                            return;
                        }
                    }
                });
            }
            eventually("enough answers", || answers.load(Ordering::Relaxed) >= enough);
            server.kill();
        });
        assert_healthy(folder.path());
        let server = Server::start(folder.path(), &[]);
        let mut client = server.connect();
        for (task, (listener, step)) in acknowledged.into_inner().unwrap() {
            let found = step_of(&mut client, &task, &listener);
            // What was sent last may have been done without its answer arriving; a task never made looks like one gone.
            let never_made = step == 0 && found == 6;
            assert!(
                found == step || found == step + 1 || never_made,
                "{task}: {} is {}",
                STEPS[step],
                STEPS[found]
            );
            number += 1;
        }
        assert!(server.stop().success());
    }
    eprintln!("{number} tasks in {LIVES} lives");
}

#[test]
fn a_strict_server_answers_as_redis_does() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--blueque-strict"]);
    let mut client = server.connect();
    client.call(&["LPUSH", "blueque_pending_tasks_q", "t"]);
    client.call(&["RPOPLPUSH", "blueque_pending_tasks_q", "blueque_reserved_tasks_q_n"]);
    client.call(&["SADD", "blueque_started_tasks_q", "n 1 t"]);
    client.call(&["MULTI"]);
    let refusal = client.refusal(&["LREM", "blueque_reserved_tasks_q_n", "t"]);
    assert_eq!(refusal, "ERR wrong number of arguments for 'lrem' command");
    assert_eq!(client.refusal(&["EXEC"]), "EXECABORT Transaction discarded because of previous errors.");
    let done = exec(
        &mut client,
        &[
            &["LREM", "blueque_reserved_tasks_q_n", "1", "t"],
            &["LREM", "blueque_started_tasks_q", "1", "n 1 t"],
            &["ZREM", "blueque_started_tasks_q", "n 1 t"],
            &["HMSET", "blueque_task_t", "status", "complete"],
            &["LPUSH", "blueque_complete_tasks_q", "t"],
        ],
    );
    let wrong = Frame::Error("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned());
    let wanted = [Frame::Int(1), wrong.clone(), wrong, Frame::ok(), Frame::Int(1)];
    assert_eq!(done.unwrap(), wanted);
}

#[test]
fn tasks_of_blueque_are_run_by_haul_work_and_jobs_of_haul_by_listeners() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let mut client = server.connect();
    for (task, parameters) in [("good", "{\"n\":1}"), ("bad", "not JSON")] {
        let hash = format!("blueque_task_{task}");
        let made = ["HSET", &hash, "status", "pending", "queue", "q", "parameters", parameters];
        let enqueued = exec(
            &mut client,
            &[&made, &["ZINCRBY", "blueque_queues", "0", "q"], &["LPUSH", "blueque_pending_tasks_q", task]],
        );
        assert_eq!(enqueued.unwrap().len(), 3);
    }
    let worked = Command::new(env!("CARGO_BIN_EXE_haul"))
        .args(["work", "q", "--once", "--worker", "w1", "--state"])
        .arg(folder.path().join("state"))
        .args(["--", "sh", "-c", "read data; echo got $data; [ $HAUL_JID = good ]"])
        .env("HAUL_SERVER", server.address.to_string())
        .stderr(Stdio::null())
        .status();
    assert!(worked.unwrap().success());
    let mut field =
        |task: &str, name: &str| client.names(&["HMGET", &format!("blueque_task_{task}"), name]).remove(0);
    assert_eq!(
        (field("good", "status").as_str(), field("good", "result").as_str()),
        ("complete", "got {\"n\":1}\n")
    );
    assert_eq!(field("bad", "status"), "failed");
    let error = field("bad", "error");
    assert!(error.contains("exit status 1") && error.contains("got \"not JSON\""), "{error}");
    // The reverse.
    client.call(&["HAUL.PUT", "q", "k", "{\"m\":2}", "JID", "job"]);
    let taken = client.call(&["RPOPLPUSH", "blueque_pending_tasks_q", "blueque_reserved_tasks_q_h"]);
    assert_eq!(text(&taken).as_deref(), Some("job"));
    assert_eq!(client.names(&["HMGET", "blueque_task_job", "parameters"]), ["{\"m\":2}"]);
    let done = exec(
        &mut client,
        &[
            &["LREM", "blueque_reserved_tasks_q_h", "1", "job"],
            &["HSET", "blueque_task_job", "status", "complete", "result", "by a listener"],
            &["LPUSH", "blueque_complete_tasks_q", "job"],
        ],
    );
    assert_eq!(done.unwrap().len(), 3);
    let job = client.json(&["HAUL.GET", "job"]);
    assert_eq!(
        (job["state"].as_str(), job["result"].as_str()),
        (Some("complete"), Some("by a listener")),
        "{job}"
    );
}
