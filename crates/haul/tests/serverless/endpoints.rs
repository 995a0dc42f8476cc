//! Every path, in each of its spellings; what it takes and what it refuses.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Server, until};

#[test]
fn both_spellings_of_every_endpoint() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    assert_eq!(server.send("GET", "/", "", b"").1, b"OK\n");
    let handler = json!({"lang": "sh", "body": "cat", "unknown": "dropped"}).to_string();
    for (at, path) in ["handler/add/t/add", "handler/t/add", "handler/add/t", "handler/t"].iter().enumerate()
    {
        for method in ["POST", "PUT"] {
            let (status, answer) = server.ask(method, &format!("/client/{path}"), &handler);
            assert_eq!((status, &answer["ok"]), (200, &json!(true)), "{path} {at}");
            assert!(answer["id"].is_string());
        }
    }
    let (_, last) = server.ask("POST", "/client/handler/add/t/add?method=sh", "echo text form");
    for path in ["handler/get/t", "handler/t"] {
        let (status, answer) = server.ask("GET", &format!("/client/{path}"), "");
        assert_eq!(status, 200);
        assert_eq!(
            (&answer["id"], &answer["body"], &answer["lang"]),
            (&last["id"], &json!("echo text form"), &json!("sh"))
        );
        assert_eq!(answer["type"], "client-t");
        assert!(answer["dt"].as_str().unwrap().ends_with('Z'));
    }
    let (_, list) = server.ask("GET", "/client/handler", "");
    assert_eq!(list["handlers"].as_array().unwrap().len(), 1);
    let (status, answer) = server.ask("POST", "/client/handler/del/t/delete", "");
    assert_eq!((status, &answer["count"]), (200, &json!(9)));
    let deletes = [
        ("DELETE", "handler/t/delete"),
        ("POST", "handler/t/delete"),
        ("DELETE", "handler/del/t"),
        ("DELETE", "handler/t"),
    ];
    for (method, path) in deletes {
        let (status, answer) = server.ask(method, &format!("/client/{path}"), "");
        assert_eq!((status, &answer["count"]), (200, &json!(0)), "{path}");
    }
    assert_eq!(server.ask("GET", "/client/handler/t", "").0, 404);
    let wrong = [
        ("POST", "/client/handler/t/add", "{}", 400, "lang and body required"),
        ("POST", "/client/handler/t/add", "only text", 400, "lang and body required"),
        ("POST", "/cli-ent/job/t/add", "x", 400, "a tenant"),
        ("POST", "/client/job/a,b/add", "x", 400, "a job type"),
        ("POST", "/client/job/t/add", "", 400, "no payload"),
        ("POST", "/client/job/t/add", "# nothing\n\n", 400, "no payload"),
        ("POST", "/client/job/t/add?dt=soon", "x", 400, "dt is"),
        ("POST", "/client/handler/add/add", "{}", 400, "cannot be called add"),
        ("GET", "/client/job/NC2oBN3-lt-0aZ~-000", "", 404, ""),
    ];
    for (method, path, body, expected, why) in wrong {
        let (status, answer) = server.ask(method, path, body);
        assert_eq!((status, &answer["ok"]), (expected, &json!(false)), "{path} {answer}");
        assert!(answer["error"].as_str().unwrap().contains(why), "{answer}");
    }
    let (status, answer) = server.ask("POST", "/add?client=client&jobtype=t", "x\n# c\n\ny");
    assert_eq!((status, &answer["count"], answer["ids"].as_array().unwrap().len()), (200, &json!(2), 2));
}

#[test]
fn lines_bytes_and_deferred_jobs() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.handler(
        "c/handler/cat",
        &json!({"lang": "sh", "body": "od -An -c | tr -d ' '", "options": {"keepResult": true}}),
    );
    let ids = server.post("c", "cat", "one\n# comment\n\ntwo\r\nthree");
    assert_eq!(ids.len(), 3);
    assert!(ids.windows(2).all(|two| two[0] < two[1]));
    let results: Vec<Value> = ids.iter().map(|id| server.result("c", id)["result"].clone()).collect();
    assert_eq!(results, [json!("one\\n\n"), json!("two\\r\\n\n"), json!("three\\n\n")]);
    let (_, raw) = server.send("POST", "/c/job/cat/add", "application/octet-stream", b"a#\nb\xff");
    let raw: Value = serde_json::from_slice(&raw).unwrap();
    assert_eq!(server.result("c", raw["ids"][0].as_str().unwrap())["result"], "a#\\nb377\n");
    let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() + 1500;
    let began = Instant::now();
    let (_, later) = server.ask("POST", &format!("/c/job/cat/add?dt={soon}"), "later");
    assert_eq!(server.result("c", later["ids"][0].as_str().unwrap())["code"], "ok");
    assert!(began.elapsed() >= Duration::from_millis(1400));
}

/// Who may do what: a token of a tenant, and none.
#[test]
fn tokens_are_asked_for() {
    let data = tempfile::tempdir().unwrap();
    let token = |name: &str, role: &str| {
        let made = std::process::Command::new(env!("CARGO_BIN_EXE_haul"))
            .args(["token", "add", name, "--role", role, "--tenant", "acme", "--data"])
            .arg(data.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let text = String::from_utf8(made.stdout).unwrap();
        let token = text.split_whitespace().find(|word| word.len() > 20).unwrap().to_owned();
        format!("authorization: Bearer {token}\r\n")
    };
    let (work, view) = (token("worker", "work"), token("looker", "view"));
    let server = Server::start(data.path(), &[]);
    for (headers, method, path, expected) in [
        ("", "POST", "/acme/job/t/add", 401),
        ("", "GET", "/acme/handler/t", 401),
        (&*work, "POST", "/acme/job/t/add", 200),
        (&*work, "POST", "/other/job/t/add", 403),
        (&*view, "POST", "/acme/job/t/add", 403),
        (&*work, "POST", "/acme/handler/t/add", 403),
        (&*work, "POST", "/stop", 403),
        (&*view, "GET", "/acme/handler", 200),
    ] {
        let (status, answer) = server.send_with(headers, method, path, "text/plain", b"x");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(status, expected, "{method} {path} {answer}");
        let ok: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(ok["ok"], expected == 200, "{answer}");
    }
}

#[test]
fn what_is_too_large_is_refused_at_one_past_the_limit() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--data-bytes-max", "1000", "--handlers", "accept"]);
    for (bytes, status) in [(1000, 200), (1001, 413)] {
        let line = "x".repeat(bytes);
        assert_eq!(server.ask("POST", "/c/job/t/add", &format!("short\n{line}\n")).0, status, "{bytes}");
        let raw = server.send("POST", "/c/job/t/add", "application/octet-stream", line.as_bytes());
        assert_eq!(raw.0, status, "{bytes}");
    }
    for (bytes, status) in [(4 << 20, 200), ((4 << 20) + 1, 413)] {
        let path = "/c/handler/t/add?method=sh";
        assert_eq!(server.send("POST", path, "text/plain", &vec![b'#'; bytes]).0, status, "{bytes}");
    }
    for (wait, status) in [("3600", 404), ("3600.1", 400), ("-1", 400)] {
        let path = format!("/c/job/NC2oBN3-lt-0aZ~-000?wait={wait}");
        if status == 400 {
            assert_eq!(server.ask("GET", &path, "").0, status, "{wait}");
        }
    }
}

/// A journal that holds as much as it may refuses more; looks go on.
#[test]
fn a_full_journal_refuses_with_503() {
    let data = tempfile::tempdir().unwrap();
    // The journal's folder is a file: it cannot be written at all.
    let server = Server::start(data.path(), &[]);
    assert_eq!(server.ask("POST", "/c/job/t/add", "x").0, 200);
    drop(server);
    std::fs::remove_dir_all(data.path().join("journal")).unwrap();
    std::fs::write(data.path().join("journal"), "in the way").unwrap();
    let server = Server::start(data.path(), &[]);
    let (status, answer) = server.ask("POST", "/c/job/t/add", "x");
    assert_eq!((status, &answer["ok"]), (503, &json!(false)), "{answer}");
    drop(server);
    std::fs::remove_file(data.path().join("journal")).unwrap();
    let server = Server::start(data.path(), &["--journal-bytes-max", "1", "--handlers", "accept"]);
    // Refused while something is not stored yet; and accepted again afterwards.
    until("the journal to be full for a moment", || {
        server.ask("POST", "/c/job/t/add", &"x\n".repeat(20_000));
        let (status, answer) = server.ask("POST", "/c/job/t/add", "x");
        status == 503 && answer["error"].as_str().unwrap().contains("journal-bytes-max")
    });
    until("room in the journal", || server.ask("POST", "/c/job/t/add", "x").0 == 200);
}

#[test]
fn start_and_stop_concern_running_only() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.handler("c/handler/t", &json!({"lang": "sh", "body": "cat"}));
    assert_eq!(server.ask("GET", "/stop", "").0, 200);
    let ids = server.post("c", "t", "x");
    until("it is stored", || server.ask("GET", &format!("/c/job/{}", ids[0]), "").0 == 200);
    let (_, waiting) = server.ask("GET", &format!("/c/job/{}?wait=1", ids[0]), "");
    assert_eq!((&waiting["state"], &waiting["lock"]), (&json!("waiting"), &json!("")));
    assert_eq!(server.ask("GET", "/start", "").0, 200);
    assert_eq!(server.result("c", &ids[0])["state"], "complete");
    let mut server = server;
    assert_eq!(server.ask("POST", "/quit", "").0, 200);
    assert!(server.child.wait().unwrap().success());
}

/// What the older document calls dt and lock, and the rest of a job's line.
#[test]
fn a_job_is_told_in_the_words_of_the_older_document() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.handler("c/handler/t", &json!({"lang": "sh", "body": "cat"}));
    let (_, later) = server.ask("POST", "/c/job/t/add?dt=2090-01-01T00:00:00Z", "later");
    let id = later["ids"][0].as_str().unwrap();
    until("it is stored", || server.ask("GET", &format!("/c/job/{id}"), "").0 == 200);
    let seen = server.ask("GET", &format!("/c/job/{id}"), "").1;
    assert_eq!((&seen["dt"], &seen["lock"]), (&json!("2090-01-01T00:00:00.000Z"), &json!("")));
    let done = server.invoke("c", "t", "x");
    assert_eq!((&done["lock"], &done["retry_count"]), (&json!("__done"), &json!(0)));
    let (dt, done_dt) = (done["dt"].as_str().unwrap(), done["done_dt"].as_str().unwrap());
    assert!(dt.starts_with('3') && done_dt.starts_with('2') && dt[1..4] == done_dt[1..4], "{done}");
    assert!(done["create_dt"].as_str().unwrap() <= done_dt);
    assert!(done["ms"].is_number());
}
