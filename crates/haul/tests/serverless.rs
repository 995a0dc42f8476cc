//! Stored handlers over a real socket, with real interpreters. A language that is not installed is said to be skipped.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test may fail by panicking")]
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test waits, and knows its answers"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

struct Server {
    http: String,
    child: Child,
}

impl Server {
    fn start(data: &Path, extra: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_haul"))
            .args([
                "serve",
                "--redis",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
                "--log-format",
                "text",
                "--data",
            ])
            .arg(data)
            .args(extra)
            .env_remove("HAUL_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let http = loop {
            let from = seen.len();
            assert!(log.read_line(&mut seen).unwrap() > 0, "the server did not start:\n{seen}");
            if let Some((_, rest)) = seen.get(from..).unwrap().split_once("http=") {
                break rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                eprintln!("{line}");
            }
        });
        Server { http, child }
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let split = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..split]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer[split + 4..].to_vec())
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
        let (status, text) = self.send(method, path, kind, body.as_bytes());
        (
            status,
            serde_json::from_slice(&text).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&text))),
        )
    }

    fn handler(&self, path: &str, handler: &Value) {
        let (status, answer) = self.ask("POST", &format!("/{path}/add"), &handler.to_string());
        assert_eq!(status, 200, "{answer}");
    }

    /// Posts lines; their ids.
    fn post(&self, client: &str, jobtype: &str, lines: &str) -> Vec<String> {
        let (status, answer) = self.ask("POST", &format!("/{client}/job/{jobtype}/add"), lines);
        assert_eq!(status, 200, "{answer}");
        answer["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    }

    /// What a job came to.
    fn result(&self, client: &str, id: &str) -> Value {
        let (status, answer) = self.ask("GET", &format!("/{client}/job/{id}?wait=60"), "");
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Runs one payload and says what it came to.
    fn invoke(&self, client: &str, jobtype: &str, line: &str) -> Value {
        self.result(client, &self.post(client, jobtype, line)[0])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Whether a language can be tested here; says so if not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("SKIPPED: {program} is not installed, its handlers are not tested");
    }
    found
}

fn until(what: &str, mut look: impl FnMut() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(30));
    }
}

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
        ("1", 500, "abandoned", "failed"),
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

struct Language {
    lang: &'static str,
    program: &'static str,
    /// Returns an object, prints a follow-up line, fails, retries, breaks or exits, by its payload.
    body: &'static str,
    counter: &'static str,
}

const LANGUAGES: [Language; 3] = [
    Language {
        lang: "python",
        program: "/usr/bin/python3",
        body: "import haul, sys\ndef handle(payload):\n    print('J: follow|from ' + payload)\n    if payload == 'failed': raise haul.Failed('no good')\n    if payload == 'retry': raise haul.Retry('not yet')\n    if payload == 'error': raise ValueError('oops')\n    if payload == 'exit': sys.exit(65)\n    return {'got': payload}\n",
        counter: "count = 0\ndef handle(payload):\n    global count\n    count += 1\n    return count\n",
    },
    Language {
        lang: "node",
        program: "node",
        body: "module.exports = async (payload, job) => { console.log('J: follow|from ' + payload); if (payload === 'failed') throw new haul.Failed('no good'); if (payload === 'retry') throw new haul.Retry('not yet'); if (payload === 'error') throw new Error('oops'); if (payload === 'exit') process.exit(65); return {got: payload}; };",
        counter: "let count = 0; module.exports = () => ++count;",
    },
    Language {
        lang: "php",
        program: "php",
        body: "return function ($payload) { echo \"J: follow|from $payload\\n\"; if ($payload === 'failed') throw new Haul\\Failed('no good'); if ($payload === 'retry') throw new Haul\\Retry('not yet'); if ($payload === 'error') throw new Exception('oops'); if ($payload === 'exit') exit(65); return ['got' => $payload]; };",
        counter: "$count = 0; return function ($payload) use (&$count) { return ++$count; };",
    },
];

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
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(used(), 6.0 + follow, "{lang}");
    }
}

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
    until("the chain", || server.ask("GET", "/c/handler", "").1["usage"]["jobs"] == 3);
}

/// A server that answers posts as their path says, and counts its connections.
fn echo_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            counted.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || answer_all(stream));
        }
    });
    (address, connections)
}

fn answer_all(stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let text = String::from_utf8_lossy(&body).into_owned();
        let path = first.split(' ').nth(1).unwrap();
        let (status, answer) = match path {
            "/batch" => (200, text.lines().map(|line| format!("# about {line}\n{line}\n")).collect()),
            "/short" => (200, "200\n".to_owned()),
            "/odd" => (200, "200\nwhat\n200\n".to_owned()),
            _ => (text.trim().parse::<u16>().unwrap_or(200), format!("J: follow|{text}got {text}")),
        };
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", answer.len());
        writer.write_all(format!("{head}{answer}").as_bytes()).unwrap();
    }
}

/// Table 10.5.
#[test]
fn http_handlers_follow_the_table() {
    let (address, connections) = echo_server();
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-time", "0", "--contexts-max", "1"]);
    let url = |path: &str| format!("http://{address}/{path}");
    server.handler(
        "c/handler/each",
        &json!({"lang": "http", "body": url("each"), "options": {"keepResult": true}}),
    );
    for (payload, exitcode, code) in [
        ("200", 200, "ok"),
        ("201", 201, "ok"),
        ("404", 404, "failed"),
        ("503", 503, "abandoned"),
        ("302", 302, "abandoned"),
    ] {
        let seen = server.invoke("c", "each", payload);
        assert_eq!((&seen["exitcode"], &seen["code"]), (&json!(exitcode), &json!(code)), "{seen}");
    }
    assert_eq!(server.invoke("c", "each", "hello")["result"], "got hello\n");
    assert!(connections.load(Ordering::SeqCst) <= 3, "connections are kept");
    let gone = json!({"lang": "http", "body": "http://127.0.0.1:9/"});
    server.handler("c/handler/gone", &gone);
    assert_eq!(server.invoke("c", "gone", "x")["exitcode"], 500);
    for (path, expected) in [
        ("batch", vec![(200, ""), (404, ""), (201, "")]),
        ("short", vec![(200, ""), (500, "no response"), (500, "no response")]),
        ("odd", vec![(200, ""), (500, "invalid response"), (500, "invalid response")]),
    ] {
        server.handler(
            &format!("c/handler/{path}"),
            &json!({"lang": "http", "body": url(path), "options": {"batch": true}}),
        );
        server.ask("GET", "/stop", "");
        let ids = server.post("c", path, "200\n404\n201\n");
        std::thread::sleep(Duration::from_millis(300));
        server.ask("GET", "/start", "");
        for (id, (exitcode, why)) in ids.iter().zip(expected) {
            let seen = server.result("c", id);
            assert_eq!(seen["exitcode"], exitcode, "{path} {seen}");
            assert!(seen["reason"].as_str().unwrap_or_default().contains(why), "{path} {seen}");
        }
    }
}

/// What a hostile handler tries; each must fail, and another tenant must not notice.
#[test]
fn a_hostile_handler_is_contained() {
    if !has("/usr/bin/python3") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-time", "0"]);
    let pid = server.child.id();
    let folder = data.path().display();
    let tries = [
        ("open('/etc/passwd').read()", "PermissionError"),
        ("open('/proc/self/environ').read()", "PermissionError"),
        (&*format!("import os; os.listdir('{folder}')"), "PermissionError"),
        (&*format!("open('{folder}/journal/journal.000001').read()"), "PermissionError"),
        ("import os; os.listdir('/tmp')", "PermissionError"),
        ("open('/tmp/left-behind', 'w')", "PermissionError"),
        (&*format!("import os; os.kill({pid}, 9)"), "Error"),
        ("import socket; socket.create_connection(('127.0.0.1', 4285), 1)", "Error"),
        (
            "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))",
            "Error",
        ),
        ("bytearray(4 << 30)", "MemoryError"),
        (
            "import os\n    for at in range(10000):\n        if os.fork() == 0:\n            import time; time.sleep(60); os._exit(0)",
            "BlockingIOError",
        ),
        ("open('x', 'wb').write(b'x' * (100 << 20))", "Error"),
        ("import os; os.setuid(0)", "PermissionError"),
    ];
    for (code, error) in tries {
        let body = format!("def handle(payload):\n    {code}\n    return 'got away with it'\n");
        server.handler("evil/handler/t", &json!({"lang": "python", "body": body}));
        let seen = server.invoke("evil", "t", "x");
        assert_eq!(seen["code"], "abandoned", "{code}: {seen}");
        assert!(
            seen["reason"].as_str().unwrap().contains(error) || seen["reason"] == "killed",
            "{code}: {seen}"
        );
    }
    let busy = json!({"lang": "python", "body": "def handle(p):\n    while True: pass\n", "options": {"cpuMs": 500}});
    server.handler("evil/handler/busy", &busy);
    assert_eq!(server.invoke("evil", "busy", "x")["reason"], "timeout");
    server.handler(
        "evil/handler/forge",
        &json!({"lang": "sh", "body": "echo 'J: good-t|forged'; echo 'J: ../x|y'"}),
    );
    assert_eq!(server.invoke("evil", "forge", "x")["code"], "ok");
    server.handler(
        "good/handler/t",
        &json!({"lang": "python", "body": "def handle(p):\n    return p\n", "options": {"keepResult": true}}),
    );
    assert_eq!(server.invoke("good", "t", "fine")["result"], "fine");
    let (_, handlers) = server.ask("GET", "/good/handler", "");
    assert_eq!(handlers["usage"]["jobs"], 1, "nothing was forged");
}

/// One tenant with very many jobs does not delay another's ten by more than two batches.
#[test]
fn a_large_backlog_of_one_tenant_does_not_delay_another() {
    if !has("/usr/bin/python3") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--contexts-max", "1"]);
    let handler = json!({"lang": "python", "body": "import time\ndef handle(p):\n    time.sleep(0.01)\n"});
    server.handler("big/handler/t", &handler);
    server.handler("small/handler/t", &handler);
    let backlog = server.post("big", "t", &"x\n".repeat(20_000));
    until("the backlog is stored", || {
        server.ask("GET", &format!("/big/job/{}", backlog[19_999]), "").0 == 200
    });
    let used = |tenant: &str| {
        server.ask("GET", &format!("/{tenant}/handler"), "").1["usage"]["jobs"].as_u64().unwrap()
    };
    until("the large backlog runs", || used("big") > 10);
    let before = used("big");
    let ids = server.post("small", "t", &"y\n".repeat(10));
    for id in &ids {
        assert_eq!(server.result("small", id)["code"], "ok");
    }
    // Their two batches, each behind at most one of the other's, and what ran while they were posted and asked for.
    let between = used("big") - before;
    assert!(between <= 40, "{between} jobs of the large backlog ran meanwhile");
}

/// Nothing acknowledged is lost, whenever the server is killed.
#[test]
fn what_was_acknowledged_survives_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let mut server = Server::start(data.path(), &[]);
        server.handler(
            "c/handler/t",
            &json!({"lang": "sh", "body": "echo J: next\\|x", "options": {"batchSize": 20}}),
        );
        for at in 0..30 {
            acknowledged.extend(server.post(
                "c",
                "t",
                &format!("{round} {at}\n").repeat(if at % 2 == 0 { 1 } else { 80 }),
            ));
        }
        server.child.kill().unwrap();
    }
    let server = Server::start(data.path(), &["--handlers", "accept"]);
    for id in &acknowledged {
        let (status, answer) = server.ask("GET", &format!("/c/job/{id}?wait=20"), "");
        assert_eq!(status, 200, "{id} is lost: {answer}");
        if acknowledged.len() > 400 {
            // Once the journal is read all of them are there: the rest is looked at without waiting.
            break;
        }
    }
    for id in acknowledged {
        let (status, answer) = server.ask("GET", &format!("/c/job/{id}"), "");
        assert_eq!(status, 200, "{id} is lost: {answer}");
    }
}
