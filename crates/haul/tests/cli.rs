//! The command line against a real server: every subcommand for people and for scripts, wrong input, exit codes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::Server;

/// What a run of the command line left behind.
struct Ran {
    line: String,
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn exits(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "haul {}\n{}{}", self.line, self.out, self.err);
        self
    }

    /// Done, with these words on standard output.
    fn says(self, words: &[&str]) -> Ran {
        let ran = self.exits(0);
        for word in words {
            assert!(ran.out.contains(word), "no {word:?} in the output of haul {}:\n{}", ran.line, ran.out);
        }
        ran
    }

    /// Not done, with this exit code and these words on standard error.
    fn refuses(self, code: i32, words: &[&str]) -> Ran {
        let ran = self.exits(code);
        for word in words {
            assert!(ran.err.contains(word), "no {word:?} in what haul {} complained:\n{}", ran.line, ran.err);
        }
        ran
    }

    fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "one document on one line: haul {}\n{}", self.line, self.out);
        serde_json::from_str(&self.out).unwrap()
    }

    fn word(&self) -> String {
        self.out.trim().to_owned()
    }
}

struct Shell {
    server: Server,
    folder: tempfile::TempDir,
}

impl Shell {
    fn new() -> Shell {
        let folder = tempfile::tempdir().unwrap();
        Shell { server: Server::start(folder.path(), &[]), folder }
    }

    fn command(&self) -> Command {
        let mut command = haul();
        command.env("HAUL_SERVER", self.server.address.to_string());
        command
    }

    /// Runs a line, split as a simple shell would: at spaces, but not within single quotes.
    fn run(&self, line: &str) -> Ran {
        run(self.command(), line, "")
    }

    fn run_with(&self, line: &str, input: &str) -> Ran {
        run(self.command(), line, input)
    }

    /// Runs a line with `--json`; the document it prints.
    fn json(&self, line: &str) -> Value {
        self.run(&format!("--json {line}")).exits(0).json()
    }
}

/// Away from the environment of whoever runs the tests.
fn haul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    for name in ["HAUL_SERVER", "HAUL_TENANT", "HAUL_WORKER", "HAUL_DATA"] {
        command.env_remove(name);
    }
    command
}

fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words
}

fn run(mut command: Command, line: &str, input: &str) -> Ran {
    command.args(words(line)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end without reading all of it.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    Ran {
        line: line.to_owned(),
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn jobs_are_put_with_everything_they_can_have() {
    let shell = Shell::new();
    let jid = shell.run(r#"put mail email '{"to":"a@b.c"}'"#).exits(0).word();
    assert_eq!(jid.len(), 32);
    assert_eq!(shell.json(&format!("job {jid}"))["data"], json!({"to": "a@b.c"}));

    shell.run("put mail email --jid j0").says(&["j0\n"]);
    let full = "put mail email '[1, 2]' --jid j1 --priority -3 --delay 2h --retries 9 --tag a --tag b --throttle smtp --nx";
    assert_eq!(shell.json(full), json!({"jid": "j1"}));
    let job = shell.json("job j1");
    assert_eq!(
        (&job["state"], &job["priority"], &job["retries"]),
        (&json!("scheduled"), &json!(-3), &json!(9))
    );
    assert_eq!((&job["tags"], &job["throttles"]), (&json!(["a", "b"]), &json!(["smtp"])));
    shell.run("put mail email --jid j1 --nx").refuses(1, &["EXISTS", "job j1 exists already", "haul job"]);
    shell.run("put mail email --jid j2 --depends j0").says(&["j2"]);
    assert_eq!(shell.json("job j2")["dependencies"], json!(["j0"]));

    shell.run_with("put mail email - --jid j3", "{\"from\":\n\"stdin\"}\n").says(&["j3"]);
    assert_eq!(shell.json("job j3")["data"], json!({"from": "stdin"}));
    let file = shell.folder.path().join("letter.json");
    std::fs::write(&file, "{\"from\":\"file\"}").unwrap();
    shell.run(&format!("put mail email @{} --jid j4", file.display())).says(&["j4"]);
    assert_eq!(shell.json("job j4")["data"], json!({"from": "file"}));
    shell.run("put mail email -5 --jid j5").says(&["j5"]);
    assert_eq!(shell.json("job j5")["data"], json!(-5));
}

#[test]
fn many_jobs_are_put_from_lines() {
    let shell = Shell::new();
    let line = |n: usize| format!("{{\"queue\":\"bulk\",\"klass\":\"k\",\"data\":{n},\"jid\":\"b{n}\"}}\n");
    let input: String = (0..2500).map(line).collect();
    let ran = shell.run_with("put --many", &input).exits(0);
    let jids: Vec<String> = (0..2500).map(|n| format!("b{n}")).collect();
    assert_eq!(ran.out.lines().collect::<Vec<_>>(), jids);
    shell.run("length bulk").says(&["2500"]);

    let full = r#"{"queue":"q","klass":"k","jid":"m1","priority":2,"delay":60,"retries":1,"tags":["t"],"depends":[],"throttles":["h"],"nx":true}"#;
    let ran = shell.run_with("--json put --many", &format!("\n{full}\n")).exits(0);
    assert_eq!(ran.json(), json!({"jid": "m1"}));
    assert_eq!(shell.json("job m1")["state"], "scheduled");

    let ran = shell.run_with("put --many", &format!("{}{full}\n", line(9999)));
    ran.refuses(1, &["EXISTS", "lines 1 to 2 were refused together", "tail -n +1"]);
    shell.run("job b9999").refuses(1, &["NOJOB"]);
    let ran = shell.run_with("put --many", &format!("{}nonsense\n", line(1)));
    ran.refuses(2, &["line 2: not a job", "nothing from line 1 on was"]);
    shell.run_with("put --many", "\n").refuses(4, &["no job on standard input"]);
}

#[test]
fn jobs_are_popped_and_finished() {
    let shell = Shell::new();
    for jid in ["a", "b", "c", "d", "e"] {
        shell.run(&format!("put mail email '{{\"n\":1}}' --jid {jid}")).exits(0);
    }
    shell.run("pop mail --worker w1").says(&[
        "JID",
        "ATTEMPT",
        r#"a    email  mail          0        1  1m    {"n":1}"#,
    ]);
    let popped = shell.json("pop none mail --worker w1 --count 3 --lock 10m --round-robin");
    let jids: Vec<&str> = popped.as_array().unwrap().iter().map(|job| job["jid"].as_str().unwrap()).collect();
    assert_eq!(jids, ["b", "c", "d"]);
    shell.run("job a").says(&["running", "held by w1 for another"]);

    shell.run("heartbeat a --worker w1 --lock 5m --data 7 --attempt 1").says(&["a is held for another 5m"]);
    assert_eq!(shell.json("heartbeat a --worker w1"), json!({"jid": "a", "seconds": 60}));
    shell.run("heartbeat a b --worker w1").says(&["a", "held for 1m"]);
    let both = shell.run("--json heartbeat a nope --worker w1").refuses(1, &["NOJOB"]);
    assert_eq!(both.json(), json!([{"jid": "a", "seconds": 60}, {"jid": "nope", "refused": "NOJOB"}]));
    shell.run("heartbeat a b --worker w1 --lock 1m").refuses(2, &["single job"]);
    shell.run("heartbeat a --worker w2").refuses(1, &["NOTHELD job a is held by w1", "--worker"]);
    shell.run("heartbeat a --worker w1 --attempt 2").refuses(1, &["NOTHELD"]);

    shell.run("complete a --worker w1 --result 'all sent' --data '{}' --attempt 1").says(&["a is complete"]);
    shell.run("result a").says(&["all sent\n"]);
    assert_eq!(shell.json("result a"), json!({"jid": "a", "result": "all sent"}));
    shell.run("complete a --worker w1").refuses(1, &["NOTRUNNING"]);
    assert_eq!(
        shell.json("complete b --worker w1 --next archive --delay 1h"),
        json!({"jid": "b", "state": "scheduled"})
    );
    shell.run("result b").refuses(4, &["no result: it is scheduled"]);
    shell.run("--json result b").refuses(4, &["NOTHING"]);
    shell.run("result nope").refuses(1, &["NOJOB"]);
    let ran = shell.run("complete c nope --worker w1").refuses(1, &["1 of 2 jobs were refused (NOJOB)"]);
    assert!(ran.out.contains("c     complete\n"), "{}", ran.out);
    shell.run("complete d x --worker w1 --result r").refuses(2, &["single job"]);
    shell.run("jobs complete").says(&["a", "c", "complete"]);

    shell.run("release d").says(&["d    next in line"]);
    shell.run("job d").says(&["stalled", "the next pop takes it"]);
    shell.run("release d nope").refuses(1, &["2 of 2"]);
    shell.run("release nope").refuses(1, &["NOJOB there is no job nope"]);
    let again = shell.json("pop mail --wait 1s");
    assert!(again[0]["worker"].as_str().unwrap().starts_with("cli@"));
    assert_eq!(shell.json("release d"), json!([{"jid": "d", "released": true}]));
}

#[test]
fn a_pop_without_a_job_is_told_by_its_exit_code() {
    let shell = Shell::new();
    assert_eq!(shell.run("pop mail slow").refuses(4, &["no job to take in mail, slow"]).out, "");
    assert_eq!(shell.run("--json pop mail").exits(4).json(), json!([]));
    shell.run("pop mail --wait 0.01").exits(4);
    shell.run("peek mail").refuses(4, &["no job is next in mail"]);
    assert_eq!(shell.run("--json peek mail").exits(4).json(), json!([]));
    shell.run("put mail email --jid j1").exits(0);
    shell.run("peek mail --count 5").says(&["j1", "waiting"]);
    assert_eq!(shell.json("peek mail")[0]["jid"], "j1");
}

#[test]
fn failed_jobs_are_listed_and_put_back() {
    let shell = Shell::new();
    for jid in ["a", "b", "c"] {
        shell.run(&format!("put mail email --jid {jid} --retries 1")).exits(0);
    }
    shell.run("failed").says(&["no job has failed"]);
    shell.run("pop mail --worker w1 --count 3").exits(0);
    shell
        .run("fail a smtp-down 'connection refused' --worker w1 --attempt 1")
        .says(&["a has failed with smtp-down"]);
    shell.run_with("fail b smtp-down - --worker w1 --data '[1]'", "line one\nline two").exits(0);
    assert_eq!(shell.json("fail c other boom --worker w1")["state"], "failed");
    shell.run("fail c other boom --worker w1").refuses(1, &["NOTRUNNING"]);

    shell.run("failed").says(&["GROUP", "other         1", "smtp-down     2"]);
    assert_eq!(shell.json("failed"), json!({"other": 1, "smtp-down": 2}));
    shell.run("failed smtp-down").says(&["connection refused", "line one", "w1"]);
    shell.run("failed smtp-down --count 1").says(&["1 of 2 jobs"]);
    let listed = shell.json("failed smtp-down --count 1 --offset 1");
    assert_eq!((&listed["total"], listed["jobs"].as_array().unwrap().len()), (&json!(2), 1));
    shell.run("job b").says(&["given up; `haul retry b`", "smtp-down", "line two"]);

    shell.run("retry a --delay 1h").says(&["a is back in mail"]);
    shell.run("job a").says(&["scheduled", "due in", "last failure"]);
    shell.run("retry a").refuses(1, &["NOTFAILED job a has not failed: it is scheduled", "haul job a"]);
    shell.run("retry nope").refuses(1, &["NOJOB"]);
    shell.run("retry").exits(2);
    shell.run("retry --group smtp-down").exits(2);
    assert_eq!(shell.json("retry --group smtp-down --queue slow"), json!({"put_back": 1, "left": 0}));
    assert_eq!(shell.json("job b")["queue"], "slow");
    shell.run("unfail other mail --count 5").says(&["1 job put back into mail"]);
    shell.run("unfail other mail").says(&["no job has failed with other"]);

    shell.run("pop mail --worker w1").exits(0);
    shell.run("retry c").refuses(1, &["NOTFAILED", "haul release c", "--worker"]);
    shell.run("retry c --worker w2").refuses(1, &["NOTHELD"]);
    shell.run("retry c --worker w1").says(&["c is given back; it can be tried again 0 more times"]);
    shell.run("pop mail --worker w1").exits(0);
    assert_eq!(shell.json("retry c --worker w1 --attempt 3"), json!({"jid": "c", "retries_left": null}));
}

#[test]
fn a_job_is_shown_with_its_reasons_and_history() {
    let shell = Shell::new();
    shell.run("put mail email '{\"to\":\"a@b.c\"}' --jid j1 --tag vip").exits(0);
    shell.run("job j1").says(&[
        "state     waiting",
        "ready; no worker",
        "vip",
        r#"{"to":"a@b.c"}"#,
        "put  queue mail",
    ]);
    shell.run("pause mail").exits(0);
    shell.run("job j1").says(&["the queue is paused; `haul unpause mail`"]);
    shell.run("put mail email --jid j2 --depends j1").exits(0);
    shell.run("job j2").says(&["waits for 1 other job", "waits for  j1"]);
    shell.run("job j1").says(&["waited for by  j2"]);

    shell.run("throttle set one 1").exits(0);
    shell.run("put slow k --jid t1 --throttle one").exits(0);
    shell.run("pop slow").exits(0);
    shell.run("put slow k --jid t2 --throttle one").exits(0);
    shell.run("pop slow").exits(4);
    shell.run("job t2").says(&["throttled", "throttle one is full: 1 of 1 run"]);

    shell.run("job nope").refuses(1, &["haul: NOJOB there is no job nope", "cancelled"]);
    let refused = shell.run("job nope --json").exits(1);
    let error: Value = serde_json::from_str(&refused.err).unwrap();
    assert_eq!((&error["error"]["code"], refused.out.as_str()), (&json!("NOJOB"), ""));
}

#[test]
fn jobs_are_listed_by_state() {
    let shell = Shell::new();
    for queue in ["one", "two"] {
        for n in 0..3 {
            shell.run(&format!("put {queue} k --jid {queue}{n}")).exits(0);
        }
    }
    shell.run("put one k --jid later --delay 1d").exits(0);
    let jids = |line: &str| -> Vec<String> {
        let jobs = shell.json(line);
        jobs.as_array().unwrap().iter().map(|job| job["jid"].as_str().unwrap().to_owned()).collect()
    };
    let mut all = jids("jobs waiting");
    assert_eq!(jids("jobs waiting --offset 2 --count 2"), all[2..4]);
    all.sort();
    assert_eq!(all, ["one0", "one1", "one2", "two0", "two1", "two2"]);
    assert_eq!(jids("jobs waiting --queue two").len(), 3);
    assert_eq!(jids("jobs scheduled"), ["later"]);
    shell.run("jobs scheduled").says(&["later", "KLASS", "scheduled"]);
    shell.run("jobs running").says(&["no job is running"]);
    shell.run("jobs failed").refuses(2, &["haul failed"]);
    shell.run("jobs recurring").refuses(2, &["haul recur list"]);
    shell.run("jobs resting").refuses(2, &["one of waiting"]);
}

#[test]
fn jobs_are_changed_from_outside() {
    let shell = Shell::new();
    shell.run("put mail k --jid a").exits(0);
    shell.run("put mail k --jid b --depends a").exits(0);
    shell.run("put mail k --jid c").exits(0);

    shell.run("priority a 7").says(&["a has priority 7"]);
    assert_eq!(shell.json("priority a -7"), json!({"jid": "a", "priority": -7}));
    shell.run("priority nope 1").refuses(1, &["NOJOB"]);
    shell.run("priority a high").exits(2);

    shell.run("log a 'half done'").says(&["noted"]);
    assert_eq!(
        shell.json("log a more --data '{\"worker\":1,\"bytes\":2}'"),
        json!({"jid": "a", "logged": "more"})
    );
    shell.run("job a").says(&["half done", "bytes 2"]);
    shell.run("log a x --data 5").refuses(1, &["BADARG", "object or array"]);

    shell.run("depends b --on c").says(&["b waits for a, c"]);
    assert_eq!(shell.json("depends b --off a")["dependencies"], json!(["c"]));
    shell.run("depends b --off-all").says(&["b waits for no other job: it is waiting"]);
    shell.run("depends b --on a").refuses(1, &["NOTDEPENDS", "haul move"]);
    shell.run("depends b").exits(2);
    shell.run("depends b --on a --off c").exits(2);

    shell.run("move b slow --priority 2 --delay 1h --retries 3 --tag x --depends a").says(&["b is in slow"]);
    let job = shell.json("job b");
    assert_eq!(
        (&job["state"], &job["queue"], &job["tags"]),
        (&json!("depends"), &json!("slow"), &json!(["x"]))
    );
    assert_eq!(shell.json("move c slow"), json!({"jid": "c", "queue": "slow"}));
    shell.run("move nope slow").refuses(1, &["NOJOB"]);

    shell.run("cancel a").refuses(1, &["NEEDED", "cancel"]);
    shell.run("cancel a b nope").says(&["2 jobs cancelled; 1 of those named"]);
    assert_eq!(shell.json("cancel c"), json!({"cancelled": 1}));
    shell.run("cancel c").refuses(1, &["NOJOB", "nothing to cancel"]);
}

#[test]
fn jobs_are_tagged_and_tracked() {
    let shell = Shell::new();
    shell.run("put mail k --jid a").exits(0);
    shell.run("put mail k --jid b --tag hot").exits(0);
    shell.run("tags").says(&["no tag"]);
    shell.run("tag a hot cold").says(&["a has the tags hot, cold"]);
    assert_eq!(shell.json("untag a cold"), json!({"jid": "a", "tags": ["hot"]}));
    assert_eq!(shell.json("tag a hot")["tags"], json!(["hot"]));
    shell.run("tags").says(&["hot\n"]);
    assert_eq!(shell.json("tags"), json!(["hot"]));
    shell.run("tags hot").says(&["a", "b", "waiting"]);
    shell.run("tags hot --count 1").says(&["1 of 2 jobs"]);
    assert_eq!(shell.json("tags hot")["total"], 2);
    shell.run("untag a hot").says(&["a has no tags"]);
    shell.run("tag nope x").refuses(1, &["NOJOB"]);

    shell.run("tracked").says(&["no job is tracked"]);
    shell.run("track a").says(&["a is tracked\n"]);
    assert_eq!(shell.json("track a"), json!({"jid": "a", "tracked": true, "changed": false}));
    shell.run("track nope").refuses(1, &["NOJOB"]);
    shell.run("track b").exits(0);
    shell.run("cancel b").exits(0);
    shell.run("tracked").says(&["a", "gone: b"]);
    assert_eq!(shell.json("tracked")["jobs"][0]["jid"], "a");
    shell.run("untrack a").says(&["a is no longer tracked"]);
    assert_eq!(shell.json("untrack a"), json!({"jid": "a", "tracked": false, "changed": false}));
}

#[test]
fn jobs_recur() {
    let shell = Shell::new();
    shell.run("recur list").says(&["there is no recurring job"]);
    let line = "recur add mail poll '{\"box\":1}' --every 90s --jid r1 --offset 1h --priority -1 --retries 2 --backlog 3 --tag t --throttle h";
    shell.run(line).says(&["r1\n"]);
    assert!(shell.json("recur add other poll --every 1d")["jid"].is_string());
    shell.run("recur list").says(&["r1", "1m 30s", "mail", "other"]);
    assert_eq!(shell.json("recur list --queue mail")[0]["interval"], 90);
    shell.run("recur show r1").says(&["runs       every 1m 30s", r#"{"box":1}"#, "in 1h"]);
    assert_eq!(shell.json("recur show r1")["tags"], json!(["t"]));
    assert_eq!(shell.json("recur remove r1"), json!({"jid": "r1", "removed": true}));
    shell.run("recur remove r1").refuses(1, &["NORECUR there is no recurring job r1", "recur list"]);
    shell.run("recur show r1").refuses(1, &["NORECUR"]);
    shell.run("recur add mail poll --every 0").refuses(2, &["longer than nothing"]);
    shell.run("recur add mail poll").exits(2);
}

#[test]
fn queues_and_workers_are_managed() {
    let shell = Shell::new();
    shell.run("queues").says(&["there is no queue yet"]);
    shell.run("workers").says(&["no worker"]);
    shell.run("put mail k --jid a").exits(0);
    shell.run("pop mail --worker w1").exits(0);
    shell.run("put mail k --jid b").exits(0);

    shell.run("queues").says(&["QUEUE  WAITING  RUNNING", "mail         1        1"]);
    assert_eq!(shell.json("queues")[0]["running"], 1);
    shell.run("queues mail").says(&["mail"]);
    assert_eq!(shell.json("queues mail")["name"], "mail");
    shell.run("length mail").says(&["2\n"]);
    assert_eq!(shell.json("length mail"), json!({"queue": "mail", "length": 2}));

    shell.run("pause mail other").says(&["paused: mail, other"]);
    shell.run("queues").says(&["yes"]);
    shell.run("pop mail").exits(4);
    assert_eq!(shell.json("pause mail"), json!({"paused": ["mail"]}));
    shell.run("unpause mail").says(&["unpaused: mail"]);
    assert_eq!(shell.json("unpause other"), json!({"unpaused": ["other"]}));
    shell.run("pop mail --worker w2").exits(0);

    shell.run("workers").says(&["WORKER", "w1      alive        1        0"]);
    assert_eq!(shell.json("workers").as_array().unwrap().len(), 2);
    shell.run("workers w1").says(&["a", "running"]);
    shell.run("workers nobody").says(&["nobody holds no job"]);
    assert_eq!(shell.json("workers w1"), json!({"jobs": ["a"], "stalled": []}));
    shell.run("deregister w1").says(&["deregistered: w1"]);
    assert_eq!(shell.json("deregister w2"), json!({"deregistered": ["w2"]}));

    shell.run("complete a --worker w1").exits(0);
    shell.run("stats mail").says(&["waited     2", "ran        1", "0 failures, 0 retries"]);
    assert_eq!(shell.json("stats mail")["run"]["count"], 1);
    assert_eq!(shell.json("stats mail --date 2001-01-01")["run"]["count"], 0);
    shell.run("stats mail --date yesterday").refuses(2, &["2024-05-31"]);

    shell.run("forget mail").says(&["forgotten: mail"]);
    assert_eq!(shell.json("forget other"), json!({"forgotten": ["other"]}));
    assert_eq!(shell.json("queues"), json!([]));
}

#[test]
fn options_and_throttles_are_set() {
    let shell = Shell::new();
    shell.run("config get").says(&["OPTION", "heartbeat               60"]);
    assert_eq!(shell.json("config get")["heartbeat"], "60");
    shell.run("config set heartbeat 120").says(&["heartbeat is 120"]);
    shell.run("config get heartbeat").says(&["120\n"]);
    assert_eq!(shell.json("config set mail-heartbeat 7"), json!({"option": "mail-heartbeat", "value": "7"}));
    assert_eq!(shell.json("config get heartbeat"), json!({"option": "heartbeat", "value": "120"}));
    shell.run("config unset heartbeat").says(&["heartbeat is 60 again"]);
    assert_eq!(shell.json("config unset mail-heartbeat"), json!({"option": "mail-heartbeat", "value": null}));
    shell.run("config get mail-heartbeat").refuses(4, &["is not set"]);

    shell.run("throttle set smtp 1 --ttl 1h").says(&["maximum  1", "ends     in"]);
    assert_eq!(shell.json("throttle set smtp 1")["maximum"], 1);
    shell.run("throttle get smtp").says(&["running  0"]);
    shell.run("throttle get nothing").says(&["any number", "not set"]);
    for jid in ["a", "b"] {
        shell.run(&format!("put mail k --jid {jid} --throttle smtp")).exits(0);
    }
    shell.run("throttle locks smtp").says(&["no job runs under smtp"]);
    shell.run("pop mail --count 2").exits(0);
    shell.run("throttle locks smtp").says(&["a\n"]);
    shell.run("throttle pending smtp").says(&["b\n"]);
    assert_eq!(shell.json("throttle locks smtp"), json!(["a"]));
    assert_eq!(shell.json("throttle pending smtp"), json!(["b"]));
    shell.run("throttle release smtp a").says(&["a no longer count"]);
    assert_eq!(shell.json("throttle release smtp a"), json!({"id": "smtp", "released": ["a"]}));
    shell.run("throttle delete smtp").says(&["throttle smtp is gone"]);
    assert_eq!(shell.json("throttle delete smtp"), json!({"id": "smtp", "deleted": true}));
    shell.run("throttle set smtp many").exits(2);
}

/// A listener and the lines it has printed.
struct Listener {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Listener {
    fn start(shell: &Shell, line: &str) -> Listener {
        let mut command = shell.command();
        let mut child = command.args(words(line)).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Listener { child, lines }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Something happens again and again until the listener, which may not be listening yet, has heard it.
fn stir(shell: &Shell, listener: &mut Listener) -> String {
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| listener.lines.next().unwrap().unwrap());
        while !heard.is_finished() {
            shell.run("put mail k --jid j1").exits(0);
        }
        heard.join().unwrap()
    })
}

#[test]
fn events_are_printed_until_enough_or_interrupted() {
    let shell = Shell::new();
    let mut people = Listener::start(&shell, "events");
    let line = stir(&shell, &mut people);
    assert!(line.ends_with("put         j1  queue mail"), "{line}");
    let pid = rustix::process::Pid::from_raw(i32::try_from(people.child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(people.child.wait().unwrap().code(), Some(0));

    let mut scripts = Listener::start(&shell, "--json events --count 1");
    let event: Value = serde_json::from_str(&stir(&shell, &mut scripts)).unwrap();
    assert_eq!((&event["channel"], &event["payload"]["event"]), (&json!("ql:log"), &json!("put")));
    assert_eq!(scripts.child.wait().unwrap().code(), Some(0));
}

#[test]
fn tenants_are_kept_apart() {
    let shell = Shell::new();
    shell.run("--tenant 3 put mail k --jid mine").exits(0);
    shell.run("job mine").refuses(1, &["NOJOB"]);
    shell.run("job mine --tenant 3").says(&["mine"]);
    shell.run("--tenant 99 queues").refuses(1, &["DB index", "from 0 to 15"]);
    shell.run("--tenant acme put mail k --jid named").exits(0);
    shell.run("--tenant acme job named").says(&["named"]);
    shell.run("job named").refuses(1, &["NOJOB"]);
    shell.run("--tenant a/b queues").refuses(1, &["a tenant has"]);
}

#[test]
fn ping_tells_what_answers() {
    let shell = Shell::new();
    shell.run("ping").says(&[
        &format!("haul {} at {}", env!("CARGO_PKG_VERSION"), shell.server.address),
        "durability  always",
    ]);
    let told = shell.json("ping");
    assert_eq!(
        (&told["version"], &told["durability"]),
        (&json!(env!("CARGO_PKG_VERSION")), &json!("always"))
    );
    assert!(told["uptime_seconds"].is_number());
    let address = shell.server.address.to_string();
    assert!(shell.server.stop().success());
    run(haul(), &format!("--server {address} ping"), "").refuses(3, &[&address, "haul serve"]);
}

#[test]
fn a_server_that_is_not_there_is_told_with_what_to_do() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for line in ["queues", "put mail k", "pop mail --wait 1s", "events", "job j1"] {
        let ran = run(haul(), &format!("--server {nobody} {line}"), "");
        ran.refuses(3, &[&format!("no server at {nobody}"), "haul serve", "HAUL_SERVER"]);
    }
    let told = run(haul(), &format!("--json --server {nobody} queues"), "").exits(3);
    let error: Value = serde_json::from_str(&told.err).unwrap();
    assert_eq!(error["error"]["code"], "UNREACHABLE");
    run(haul(), "--server nowhere:port queues", "").refuses(2, &["--server"]);
}

#[test]
fn wrong_usage_is_refused_before_anything_is_sent() {
    let shell = Shell::new();
    let lines = [
        "",
        "nonsense",
        "put",
        "put mail",
        "put mail k hello",
        "put mail k @/no/such/file",
        "put mail k --delay soon",
        "put mail k --delay -1",
        "put mail k --priority high",
        "put mail k --retries -1",
        "put mail k --nx",
        "put mail k --many",
        "pop",
        "pop mail --count many",
        "pop mail --lock 0",
        "complete",
        "complete a --delay 5m",
        "complete a --data nonsense",
        "fail a group",
        "release",
        "cancel",
        "retry a --group g --queue q",
        "retry a --attempt 1",
        "pause",
        "tag a",
        "config",
        "config set heartbeat",
        "throttle set a",
        "log a",
        "result",
        "completions",
        "completions tcsh",
        "queues --jsonn",
    ];
    for line in lines {
        let ran = shell.run(line).exits(2);
        assert!(!ran.err.is_empty(), "haul {line} says nothing");
    }
    assert_eq!(shell.json("queues"), json!([]));
    shell.run("put mail k hello").refuses(2, &["not JSON", "needs quotes"]);
    shell.run("put mail k --delay soon").refuses(2, &["write it as 90, 90s, 5m, 2h or 1d"]);
}

/// Names of the subcommands, from the help.
fn subcommands(line: &str) -> Vec<String> {
    let help = run(haul(), &format!("{line}--help"), "").exits(0).out;
    let rows =
        help.lines().skip_while(|row| !row.ends_with(':')).take_while(|row| !row.starts_with("Options:"));
    let names = rows.filter_map(|row| row.strip_prefix("  ")?.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_subcommand_helps_with_examples() {
    let all = subcommands("");
    assert!(all.len() > 35, "{all:?}");
    let nested = ["recur", "config", "throttle"].map(|name| {
        let inner = subcommands(&format!("{name} "));
        assert!(inner.len() >= 3, "{name}: {inner:?}");
        inner.into_iter().map(move |verb| format!("{name} {verb}"))
    });
    for name in all.iter().cloned().chain(nested.into_iter().flatten()) {
        let help = run(haul(), &format!("{name} --help"), "").exits(0).out;
        assert!(help.contains("\nExamples:\n  haul "), "haul {name} --help:\n{help}");
    }
    run(haul(), "--help", "").says(&[
        "Exit codes:",
        "0  done",
        "1  refused",
        "2  wrong usage",
        "3  ",
        "4  nothing",
    ]);
}

#[test]
fn shells_are_given_completions() {
    for (shell, words) in
        [("bash", "complete -F _haul"), ("zsh", "#compdef haul"), ("fish", "complete -c haul")]
    {
        run(haul(), &format!("completions {shell}"), "").says(&[words, "heartbeat"]);
    }
}

#[test]
fn the_limits_of_machine_and_disk_are_measured_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let measured =
        |line: &str| run(haul(), &format!("--json bench --folder {at} {line}"), "").exits(0).json();
    let report =
        measured("--driver synced-ping --connections 3 --pipeline 4 --jobs 1200 --payload 10")["phases"][0]
            .clone();
    assert_eq!((&report["name"], &report["jobs"]), (&json!("ping"), &json!(1200)));
    assert_eq!(report["bytes_written_per_job"], json!(10.0));
    // No more syncs than lots of 4, and no fewer than if all three came together each time.
    let syncs = report["fsyncs_per_job"].as_f64().unwrap() * 1200.0;
    assert!((100.0..=300.5).contains(&syncs), "{report}");
    let report = measured("--driver append --batch 5 --payload 20 --duration 0.1")["phases"][0].clone();
    assert_eq!((&report["bytes_written_per_job"], &report["fsyncs_per_job"]), (&json!(20.0), &json!(0.2)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    for driver in ["synced-ping", "append"] {
        let line = format!("bench --driver {driver} --folder {at}/none --duration 0.1");
        run(haul(), &line, "").refuses(1, &["could not be made"]);
    }
    let line = format!("bench --driver synced-ping --folder {at} --tenants a,b");
    run(haul(), &line, "").refuses(1, &["--tenants"]);
}

#[test]
fn a_measurement_of_jobs_that_never_come_ends() {
    // The workers waited for the last job for ever.
    let shell = Shell::new();
    shell.run("pause bench-0").exits(0);
    let line = "bench --workload delivery --connections 2 --rate 50 --duration 0.2";
    shell.run(line).refuses(1, &["never came", "paused"]);
}
