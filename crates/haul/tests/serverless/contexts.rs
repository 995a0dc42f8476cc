//! What handlers run in, and for how long.

use serde_json::{Value, json};

use crate::support::{LANGUAGES, Server, has, until};

#[test]
fn contexts_stay_warm_until_superseded_and_end_at_their_limit() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--context-jobs-max", "6"]);
    for language in LANGUAGES.iter().filter(|language| has(language.program)) {
        let lang = language.lang;
        let handler = json!({"lang": lang, "body": language.counter, "options": {"keepResult": true}});
        server.handler(&format!("{lang}/handler/count"), &handler);
        let counts: Vec<i64> =
            (0..8).map(|_| server.invoke(lang, "count", "x")["result"].as_i64().unwrap()).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5, 6, 1, 2], "{lang}");
        server.handler(&format!("{lang}/handler/count"), &handler);
        assert_eq!(server.invoke(lang, "count", "x")["result"], 1, "a new version starts anew: {lang}");
    }
}

#[test]
fn before_and_after_scripts_run_where_they_should() {
    if !has("/usr/bin/python3") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-time", "0"]);
    let handler = json!({"lang": "python", "before": "seen = ['before']", "beforeEach": "seen.append('each')",
        "body": "def handle(payload):\n    seen.append(payload)\n    return list(seen)\n", "afterEach": "seen.append('after')",
        "options": {"keepResult": true}});
    server.handler("c/handler/t", &handler);
    assert_eq!(server.invoke("c", "t", "a")["result"], json!(["before", "each", "a"]));
    assert_eq!(server.invoke("c", "t", "b")["result"], json!(["before", "each", "a", "after", "each", "b"]));
    for (key, script) in
        [("before", "raise ValueError('early')"), ("beforeEach", "1/0"), ("body", "def handle(:")]
    {
        let mut wrong = handler.clone();
        wrong[key] = json!(script);
        server.handler("c/handler/t", &wrong);
        let seen = server.invoke("c", "t", "x");
        assert_eq!((&seen["exitcode"], &seen["code"]), (&json!(500), &json!("abandoned")), "{key} {seen}");
    }
    let mut after = handler.clone();
    after["afterEach"] = json!("raise ValueError('late')");
    server.handler("c/handler/t", &after);
    assert_eq!(server.invoke("c", "t", "x")["code"], "ok");
    assert_eq!(
        server.invoke("c", "t", "y")["result"],
        json!(["before", "each", "y"]),
        "the context was ended"
    );
    // Types that name one engine share a context.
    let shared = |body: &str, before: &str| json!({"lang": "python", "eid": "e", "before": before, "body": body, "options": {"keepResult": true}});
    server
        .handler("c/handler/one", &shared("def handle(p):\n    bag.append(p)\n    return bag\n", "bag = []"));
    server.handler("c/handler/two", &shared("def handle(p):\n    return bag + [p]\n", "bag = ['new']"));
    assert_eq!(server.invoke("c", "one", "x")["result"], json!(["x"]));
    assert_eq!(server.invoke("c", "two", "y")["result"], json!(["x", "y"]));
}

/// Neither types nor tenants share a context, whatever they are called.
#[test]
fn contexts_are_not_shared_unless_a_tenants_types_say_so() {
    if !has("/usr/bin/python3") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let count = "import builtins\ndef handle(p):\n    builtins.seen = getattr(builtins, 'seen', 0) + 1\n    return builtins.seen\n";
    let handler = |eid: Option<&str>| json!({"lang": "python", "body": count, "eid": eid, "options": {"keepResult": true}});
    for (path, eid) in [
        ("a/handler/t", None),
        ("a/handler/u", None),
        ("a/handler/v", Some("e")),
        ("a/handler/w", Some("e")),
        ("b/handler/v", Some("e")),
    ] {
        server.handler(path, &handler(eid));
    }
    let seen = |tenant: &str, jobtype: &str| server.invoke(tenant, jobtype, "x")["result"].as_i64().unwrap();
    assert_eq!([seen("a", "t"), seen("a", "t"), seen("a", "u")], [1, 2, 1]);
    assert_eq!([seen("a", "v"), seen("a", "w"), seen("b", "v")], [1, 2, 1]);
}

/// A job whose context dies is that job's end alone: those behind it run in another, and count no retry.
#[test]
fn the_rest_of_a_batch_outlives_its_context() {
    if !has("/usr/bin/python3") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-time", "0", "--contexts-max", "1"]);
    let body = "import ctypes, os, time\ndef handle(p):\n    if p == 'die': os._exit(1)\n    if p == 'kill': ctypes.string_at(0)\n    if p == 'hang': time.sleep(60)\n    return os.getpid()\n";
    server.handler(
        "c/handler/t",
        &json!({"lang": "python", "body": body, "options": {"timeoutMs": 5000, "batchSize": 10}}),
    );
    server.ask("GET", "/stop", "");
    let ids = server.post("c", "t", "a\ndie\nb\nkill\nc\nhang\nd\n");
    until("all are stored", || server.ask("GET", &format!("/c/job/{}", ids[6]), "").0 == 200);
    server.ask("GET", "/start", "");
    let seen: Vec<Value> = ids.iter().map(|id| server.result("c", id)).collect();
    let codes: Vec<&str> = seen.iter().map(|seen| seen["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["ok", "abandoned", "ok", "abandoned", "ok", "abandoned", "ok"]);
    assert!(seen[1]["reason"].as_str().unwrap().starts_with("exit 1"), "{}", seen[1]);
    assert_eq!(seen[5]["reason"], "timeout");
    assert!(seen.iter().all(|seen| seen["retry_count"] == 0));
}

/// Scripts around the jobs, where each job is a process of its own.
#[test]
fn before_and_after_scripts_of_processes() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-time", "0", "--contexts-max", "1"]);
    let handler = json!({"lang": "sh", "before": "echo before > log", "beforeEach": "echo each >> log",
        "body": "cat >> log; cat log", "afterEach": "echo after >> log", "options": {"keepResult": true}});
    server.handler("c/handler/t", &handler);
    assert_eq!(server.invoke("c", "t", "a")["result"], "before\neach\na\n");
    assert_eq!(server.invoke("c", "t", "b")["result"], "before\neach\na\nafter\neach\nb\n");
    for key in ["before", "beforeEach"] {
        let mut wrong = handler.clone();
        wrong[key] = json!("exit 3");
        server.handler("c/handler/t", &wrong);
        let seen = server.invoke("c", "t", "x");
        assert_eq!((&seen["exitcode"], &seen["code"]), (&json!(500), &json!("abandoned")), "{seen}");
        assert_eq!(seen["reason"], format!("{key}: exit 3"));
    }
    let mut wrong = handler;
    wrong["afterEach"] = json!("exit 3");
    server.handler("c/handler/t", &wrong);
    assert_eq!(server.invoke("c", "t", "x")["code"], "ok");
    assert_eq!(server.invoke("c", "t", "y")["result"], "before\neach\ny\n", "the context was ended");
}

/// Threads of all contexts of a tenant counted against one limit: node, which has many, did not get its own and hung.
#[test]
fn many_contexts_of_one_tenant_can_start_at_once() {
    if !has("node") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--context-jobs-max", "1", "--contexts-max", "8"]);
    let handler = json!({"lang": "node", "body": "module.exports = () => 1;", "options": {"batchSize": 1}});
    server.handler("c/handler/t", &handler);
    for id in server.post("c", "t", &"x\n".repeat(40)) {
        assert_eq!(server.result("c", &id)["code"], "ok");
    }
}
