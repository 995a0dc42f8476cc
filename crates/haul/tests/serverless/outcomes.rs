//! How a run ends, and what follows from it.

use serde_json::{Value, json};

use crate::support::{LANGUAGES, Server, has, until};

/// Table 10.4, and what follows from each exit code (table 11).
#[test]
fn the_ends_of_processes_are_the_outcomes_of_jobs() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-time", "0"]);
    server.handler(
        "c/handler/exit",
        &json!({"lang": "sh", "body": "read code; test $code = kill && kill -9 $$; exit $code"}),
    );
    for (status, exitcode, code, state) in [
        ("0", 200, "ok", "complete"),
        ("64", 400, "failed", "failed"),
        ("65", 400, "failed", "failed"),
        ("75", 100, "abandoned", "failed"),
        ("100", 100, "abandoned", "failed"),
        ("200", 200, "ok", "complete"),
        ("255", 255, "ok", "complete"),
        ("254", 254, "ok", "complete"),
        ("150", 150, "abandoned", "failed"),
        ("199", 199, "abandoned", "failed"),
        ("1", 500, "abandoned", "failed"),
        ("63", 500, "abandoned", "failed"),
        ("66", 500, "abandoned", "failed"),
        ("99", 500, "abandoned", "failed"),
        ("kill", 500, "abandoned", "failed"),
    ] {
        let seen = server.invoke("c", "exit", status);
        assert_eq!(
            (&seen["exitcode"], &seen["code"], &seen["state"]),
            (&json!(exitcode), &json!(code), &json!(state)),
            "{status} {seen}"
        );
    }
    let missing = server.invoke("c", "nobody", "x");
    assert_eq!((&missing["exitcode"], &missing["reason"]), (&json!(500), &json!("no handler")));
    server
        .handler("c/handler/slow", &json!({"lang": "sh", "body": "sleep 30", "options": {"timeoutMs": 300}}));
    assert_eq!(server.invoke("c", "slow", "x")["reason"], "timeout");
    server.handler("c/handler/env", &json!({"lang": "sh", "body": "echo $HAUL_TENANT $HAUL_JOBTYPE $HAUL_JOB_ID; pwd; ls -A | wc -l", "options": {"keepResult": true}}));
    let ids = server.post("c", "env", "x");
    let seen = server.result("c", &ids[0])["result"].as_str().unwrap().to_owned();
    assert!(seen.starts_with(&format!("c env {}\n/", ids[0])) && seen.ends_with("\n0\n"), "{seen}");
    server.handler(
        "c/handler/program",
        &json!({"lang": "exec", "body": "wc -c", "options": {"keepResult": true}}),
    );
    assert_eq!(server.invoke("c", "program", "four")["result"], "5\n");
}

#[test]
fn handlers_are_functions_of_their_language() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-time", "0"]);
    for language in LANGUAGES.iter().filter(|language| has(language.program)) {
        let lang = language.lang;
        server.handler(&format!("{lang}/handler/follow"), &json!({"lang": "sh", "body": "cat >/dev/null"}));
        let options = json!({"keepResult": true, "network": false});
        server.handler(
            &format!("{lang}/handler/t"),
            &json!({"lang": lang, "body": language.body, "options": options}),
        );
        let fine = server.invoke(lang, "t", "fine");
        assert_eq!(
            (&fine["exitcode"], &fine["result"]),
            (&json!(200), &json!({"got": "fine"})),
            "{lang} {fine}"
        );
        for (payload, exitcode, code, why) in [
            ("failed", 400, "failed", "no good"),
            ("retry", 100, "abandoned", "not yet"),
            ("error", 500, "abandoned", "oops"),
            ("exit", 400, "failed", "exit 65"),
            ("fine", 200, "ok", ""),
        ] {
            let seen = server.invoke(lang, "t", payload);
            assert_eq!(
                (&seen["exitcode"], &seen["code"]),
                (&json!(exitcode), &json!(code)),
                "{lang} {payload} {seen}"
            );
            assert!(seen["reason"].as_str().unwrap_or_default().contains(why), "{lang} {seen}");
        }
        // Done jobs made follow-ups: two fine ones, the failed one, and where the interpreter lives on the one that exits.
        // Those to be repeated made none.
        let follow = if lang == "python" { 4.0 } else { 3.0 };
        let used = || server.ask("GET", &format!("/{lang}/handler"), "").1["usage"]["jobs"].as_f64().unwrap();
        until("follow-ups", || used() >= 6.0 + follow);
        // Another comes after all that were made before: there were no more.
        server.invoke(lang, "follow", "last");
        assert_eq!(used(), 7.0 + follow, "{lang}");
    }
}

#[test]
fn results_chain() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.handler(
        "c/handler/first",
        &json!({"lang": "sh", "body": "echo '# not this'; cat", "options": {"chain": "second"}}),
    );
    server
        .handler("c/handler/second", &json!({"lang": "sh", "body": "cat > /dev/null; echo J: third\\|done"}));
    server.handler("c/handler/third", &json!({"lang": "sh", "body": "cat"}));
    server.post("c", "first", "hello");
    until("the chain", || server.usage("c")["jobs"] == 3);
    // Only after ok.
    server.handler(
        "c/handler/bad",
        &json!({"lang": "sh", "body": "cat; exit 65", "options": {"chain": "never"}}),
    );
    assert_eq!(server.invoke("c", "bad", "x")["code"], "failed");
    let passed = json!({"lang": "sh", "body": "printf 'a\\nb'", "options": {"chain": "kept"}});
    server.handler("c/handler/lines", &passed);
    assert_eq!(server.invoke("c", "lines", "x")["code"], "ok");
    until("the chained job", || server.jobs("c", "kept").len() == 1);
    assert_eq!(server.jobs("c", "kept")[0]["data"], "a\nb");
    assert_eq!(server.jobs("c", "never").len(), 0);
}

/// Lines that make jobs count when the job is done, well or badly; those of a job to be repeated are dropped.
#[test]
fn follow_up_jobs_come_from_done_jobs_only() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.handler(
        "c/handler/t",
        &json!({"lang": "sh", "body": "read code; echo \"J: f|a $code\"; echo \"#J: f|b $code\"; echo \"j: f|c\"; exit $code"}),
    );
    for (status, code) in [("0", "ok"), ("65", "failed")] {
        assert_eq!(server.invoke("c", "t", status)["code"], code);
    }
    for status in ["75", "1"] {
        let id = server.post("c", "t", status).remove(0);
        until("it is to be repeated", || {
            server.ask("GET", &format!("/c/job/{id}"), "").1["retry_count"] == 1
        });
    }
    let made = || {
        let mut made: Vec<String> =
            server.jobs("c", "f").iter().map(|job| job["data"].as_str().unwrap().to_owned()).collect();
        made.sort();
        made
    };
    until("all follow-ups are stored", || made().len() >= 4);
    assert_eq!(made(), ["a 0", "a 65", "b 0", "b 65"]);
    // As many as are allowed, and one more.
    for (count, code) in [(1000, "ok"), (1001, "error")] {
        let body = format!("cat >/dev/null; for at in $(seq {count}); do echo \"J: many|$at\"; done");
        server.handler("c/handler/many-lines", &json!({"lang": "sh", "body": body}));
        let id = server.post("c", "many-lines", "x").remove(0);
        until("it has run", || server.ask("GET", &format!("/c/job/{id}"), "").1["code"] == code);
    }
    until("the follow-ups", || server.jobs("c", "many").len() == 1000);
}

/// A job is given up when it was repeated as often as it may be, with its last exit code.
#[test]
fn retries_are_counted_and_have_an_end() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-delay", "10"]);
    server.handler("c/handler/t", &json!({"lang": "sh", "body": "exit 75", "options": {"maxRetries": 2}}));
    let seen = server.invoke("c", "t", "x");
    assert_eq!(
        (&seen["code"], &seen["exitcode"], &seen["retry_count"]),
        (&json!("abandoned"), &json!(100), &json!(2)),
        "{seen}"
    );
    assert_eq!(server.usage("c")["jobs"], 3);
    server.handler("c/handler/never", &json!({"lang": "sh", "body": "exit 1", "options": {"maxRetries": 0}}));
    assert_eq!(server.invoke("c", "never", "x")["retry_count"], 0);
    let body = "test -e mark && exit 0; touch mark; exit 75";
    server.handler("c/handler/once", &json!({"lang": "sh", "body": body}));
    let seen = server.invoke("c", "once", "x");
    assert_eq!((&seen["code"], &seen["retry_count"]), (&json!("ok"), &json!(1)), "{seen}");
}

/// The scoreboard has the exit code, the code, the end and the duration of every job that has ended.
#[test]
fn the_scoreboard_keeps_every_end() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-time", "0"]);
    let body = "read code; echo said $code; sleep 0.05; echo oh dear >&2; exit $code";
    server.handler("c/handler/t", &json!({"lang": "sh", "body": body, "options": {"keepResult": true}}));
    for (status, exitcode, code) in [("0", 200, "ok"), ("65", 400, "failed"), ("1", 500, "abandoned")] {
        let seen = server.invoke("c", "t", status);
        assert_eq!((&seen["exitcode"], &seen["code"]), (&json!(exitcode), &json!(code)), "{seen}");
        assert!(seen["ms"].as_f64().unwrap() >= 50.0, "{seen}");
        assert!(seen["done_dt"].is_string());
        if code != "abandoned" {
            assert_eq!(seen["result"], format!("said {status}\n"), "{seen}");
        }
        if code != "ok" {
            assert_eq!(seen["reason"], format!("exit {status}: oh dear"), "{seen}");
        }
    }
}

/// A result is kept up to 16777215 bytes; of a longer one so much is kept, and that is said.
#[test]
fn results_are_kept_up_to_their_limit() {
    const MAX: usize = 16_777_215;
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let options = json!({"keepResult": true, "cpuMs": 60_000, "batchSize": 10});
    let body = "head -c $(cat) /dev/zero | tr '\\0' x";
    server.handler("c/handler/sh", &json!({"lang": "sh", "body": body, "options": options}));
    let mut langs = vec!["sh"];
    if has("/usr/bin/python3") {
        let body = "def handle(payload):\n    return 'x' * int(payload)\n";
        server.handler("c/handler/python", &json!({"lang": "python", "body": body, "options": options}));
        langs.push("python");
    }
    for lang in langs {
        for (bytes, kept, truncated) in [(MAX, MAX, Value::Null), (MAX + 1, MAX, json!(true))] {
            let seen = server.invoke("c", lang, &bytes.to_string());
            assert_eq!(seen["code"], "ok", "{lang} {bytes} {}", seen["reason"]);
            assert_eq!(seen["result"].as_str().unwrap().len(), kept, "{lang} {bytes}");
            assert_eq!(seen["truncated"], truncated, "{lang} {bytes}");
        }
    }
    // What a job prints may be one byte longer than what is kept, and no more.
    let id = server.post("c", "sh", &(MAX + 2).to_string()).remove(0);
    until("it has run", || server.ask("GET", &format!("/c/job/{id}"), "").1["reason"] == "too much output");
    // A batch that returns very much is settled in parts: all jobs end well.
    if has("/usr/bin/python3") {
        server.ask("GET", "/stop", "");
        let ids = server.post("c", "python", &format!("{}\n", 12 << 20).repeat(10));
        until("they are stored", || server.ask("GET", &format!("/c/job/{}", ids[9]), "").0 == 200);
        server.ask("GET", "/start", "");
        for id in &ids {
            assert_eq!(server.result("c", id)["result"].as_str().unwrap().len(), 12 << 20);
        }
    }
    // Bytes that are no text are not lost.
    server.handler(
        "c/handler/bytes",
        &json!({"lang": "sh", "body": "printf '\\377\\000'", "options": {"keepResult": true}}),
    );
    assert_eq!(server.invoke("c", "bytes", "x")["result"], json!({"$hex": "ff00"}));
}

/// A look at a job waits for its end, as long as it was told to and no longer.
#[test]
fn a_result_can_be_waited_for() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.handler(
        "c/handler/t",
        &json!({"lang": "sh", "body": "sleep 1; cat", "options": {"keepResult": true}}),
    );
    let id = server.post("c", "t", "x").remove(0);
    let path = format!("/c/job/{id}");
    let early = server.ask("GET", &format!("{path}?wait=0.2"), "");
    assert!(early.0 == 404 || early.1["state"] != "complete", "{early:?}");
    assert_eq!(server.ask("GET", &format!("{path}?wait=60"), "").1["result"], "x\n");
    assert_eq!(server.ask("GET", "/c/job/NC2oBN3-lt-0aZ~-000?wait=0.2", "").0, 404);
    assert_eq!(server.ask("GET", &format!("/other/job/{id}"), "").0, 404, "another tenant has no such job");
}

/// Every job is charged its own time, its share of the batch's, and its share of its context's `before`; the tenant all of it.
#[test]
fn costs_are_accounted() {
    if !has("/usr/bin/python3") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--context-jobs-max", "10"]);
    let handler = json!({"lang": "python", "before": "import time\ntime.sleep(0.4)", "beforeEach": "time.sleep(0.1)",
        "body": "def handle(p):\n    time.sleep(0.05)\n"});
    server.handler("c/handler/t", &handler);
    for _ in 0..2 {
        let seen = server.invoke("c", "t", "x");
        assert!(seen["ms"].as_f64().unwrap() >= 50.0, "{seen}");
        // A tenth of the first, all of the second.
        assert!(seen["shared_ms"].as_f64().unwrap() >= 40.0 + 100.0, "{seen}");
        assert!(seen["shared_ms"].as_f64().unwrap() < 400.0, "{seen}");
    }
    let usage = server.usage("c");
    assert_eq!(usage["jobs"], 2);
    assert!(usage["run_ms"].as_f64().unwrap() >= 100.0, "{usage}");
    assert!(usage["shared_ms"].as_f64().unwrap() >= 400.0 + 2.0 * 100.0, "{usage}");
    assert_eq!(server.usage("other")["jobs"], 0);
}
