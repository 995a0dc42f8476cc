//! What is left when the server dies: the failure matrix of chapter 13.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::support::{Server, until};

/// Nothing acknowledged is lost and no follow-up job, whenever the server is killed under load.
#[test]
fn what_was_acknowledged_survives_kills_under_load() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--handler-lock", "1s", "--contexts-max", "3"];
    let handler =
        json!({"lang": "sh", "body": "echo \"J: next|$HAUL_JOB_ID\"", "options": {"batchSize": 20}});
    let acknowledged = Mutex::new(BTreeSet::new());
    for round in 0..4_u64 {
        let mut server = Server::start(data.path(), &flags);
        server.handler("c/handler/t", &handler);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for poster in 0..3 {
                let (server, stop, acknowledged) = (&server.http, &stop, &acknowledged);
                scope.spawn(move || {
                    // Lines, batches, and bytes, until the server is gone in the middle of one.
                    for at in (0..).take_while(|_| !stop.load(Ordering::SeqCst)) {
                        let count = [1, 70, 3][(at + poster) % 3];
                        let Some(ids) =
                            crate::support::try_post(server, "/c/job/t/add", &"x\n".repeat(count))
                        else {
                            return;
                        };
                        acknowledged.lock().unwrap().extend(ids);
                    }
                });
            }
            // Sooner or later in the life of its jobs.
            let before = acknowledged.lock().unwrap().len();
            until("some are acknowledged", || acknowledged.lock().unwrap().len() > before + 100);
            std::thread::sleep(std::time::Duration::from_millis(70 * round));
            server.child.kill().unwrap();
            stop.store(true, Ordering::SeqCst);
        });
        server.child.wait().unwrap();
    }
    let acknowledged = acknowledged.into_inner().unwrap();
    let server = Server::start(data.path(), &flags);
    for id in &acknowledged {
        let seen = server.result("c", id);
        assert_eq!(seen["code"], "ok", "{id}: {seen}");
    }
    // They have no handler, and wait: each knows whose it is.
    until("the journal is read", || {
        let parents: BTreeSet<String> =
            server.jobs("c", "next").iter().map(|job| job["data"].as_str().unwrap().to_owned()).collect();
        acknowledged.iter().all(|id| parents.contains(id))
    });
}

/// Killed while a job runs: its lock ends, and the next daemon repeats it under its own name.
#[test]
fn a_running_job_is_taken_over_when_its_lock_has_ended() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--handler-lock", "2s"];
    let mut server = Server::start(data.path(), &flags);
    // The folder a handler runs in is its own: that it was run before is seen by its retries and history only.
    server.handler("c/handler/t", &json!({"lang": "sh", "body": "sleep 3"}));
    let id = server.post("c", "t", "x").remove(0);
    let look = |server: &Server| server.ask("GET", &format!("/c/job/{id}"), "").1;
    until("it runs", || look(&server)["state"] == "running");
    let first = look(&server)["lock"].as_str().unwrap().to_owned();
    let contexts = std::fs::read_link(data.path().join("contexts")).unwrap();
    assert!(contexts.is_dir());
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert!(contexts.is_dir(), "nobody is left to remove it");
    let server = Server::start(data.path(), &flags);
    until("the next server removes what a killed one has left", || !contexts.exists());
    until("another has it", || {
        let lock = look(&server)["lock"].as_str().unwrap_or_default().to_owned();
        lock != first && lock != "__done" && !lock.is_empty()
    });
    // Renewed while it runs, longer than its lock lasts: it is not taken from the second, and counts as no retry.
    let done = server.result("c", &id);
    assert_eq!((&done["code"], &done["retry_count"]), (&json!("ok"), &json!(0)), "{done}");
}

/// A clean stop gives back what runs, at once.
#[test]
fn a_clean_stop_gives_back_what_it_has() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path(), &[]);
    server.handler("c/handler/t", &json!({"lang": "sh", "body": "test -n \"$(cat)\" && sleep 40"}));
    let id = server.post("c", "t", "x").remove(0);
    let look = |server: &Server| server.ask("GET", &format!("/c/job/{id}"), "").1;
    until("it runs", || look(&server)["state"] == "running");
    assert_eq!(server.ask("POST", "/quit", "").0, 200);
    assert!(server.child.wait().unwrap().success());
    let server = Server::start(data.path(), &["--handlers", "accept"]);
    let seen = look(&server);
    assert_eq!((&seen["lock"], &seen["retry_count"]), (&json!(""), &json!(0)), "{seen}");
}

/// The stated limit of a local journal: with its disk, what was not stored yet is lost, and nothing else.
#[test]
fn a_lost_journal_loses_what_was_not_stored_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path(), &[]);
    server.handler("c/handler/t", &json!({"lang": "sh", "body": "cat"}));
    let id = server.post("c", "t", "x").remove(0);
    assert_eq!(server.result("c", &id)["code"], "ok");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    std::fs::remove_dir_all(data.path().join("journal")).unwrap();
    let server = Server::start(data.path(), &[]);
    assert_eq!(server.result("c", &id)["code"], "ok");
    assert_eq!(server.invoke("c", "t", "y")["code"], "ok");
}
