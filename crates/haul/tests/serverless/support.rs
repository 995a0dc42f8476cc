//! A real server, asked over its socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) struct Server {
    pub(crate) http: String,
    pub(crate) child: Child,
}

impl Server {
    pub(crate) fn start(data: &Path, extra: &[&str]) -> Server {
        Server::with(Command::new(env!("CARGO_BIN_EXE_haul")), data, extra)
    }

    /// Started through another program.
    pub(crate) fn with(mut command: Command, data: &Path, extra: &[&str]) -> Server {
        let mut child = command
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

    pub(crate) fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, Vec<u8>) {
        self.send_with("", method, path, kind, body)
    }

    pub(crate) fn send_as(
        &self,
        tenant: &str,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> (u16, Vec<u8>) {
        self.send_with(&format!("x-haul-tenant: {tenant}\r\n"), method, path, kind, body)
    }

    pub(crate) fn send_with(
        &self,
        headers: &str,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // The server may refuse before it has all of it.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let split = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..split]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer[split + 4..].to_vec())
    }

    /// How much a tenant's jobs have used.
    pub(crate) fn usage(&self, client: &str) -> Value {
        self.ask("GET", &format!("/{client}/handler"), "").1["usage"].clone()
    }

    /// All jobs of a queue, as the native interface tells them.
    pub(crate) fn jobs(&self, client: &str, queue: &str) -> Vec<Value> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/api/v1/jobs?queue={queue}&limit=1000{cursor}");
            let (_, text) = self.send_as(client, "GET", &path, "", b"");
            let page: Value = serde_json::from_slice(&text).unwrap();
            found.extend(page["jobs"].as_array().unwrap().iter().cloned());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return found,
            }
        }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
        let (status, text) = self.send(method, path, kind, body.as_bytes());
        (
            status,
            serde_json::from_slice(&text).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&text))),
        )
    }

    pub(crate) fn handler(&self, path: &str, handler: &Value) {
        let (status, answer) = self.ask("POST", &format!("/{path}/add"), &handler.to_string());
        assert_eq!(status, 200, "{answer}");
    }

    /// Posts lines; their ids.
    pub(crate) fn post(&self, client: &str, jobtype: &str, lines: &str) -> Vec<String> {
        let (status, answer) = self.ask("POST", &format!("/{client}/job/{jobtype}/add"), lines);
        assert_eq!(status, 200, "{answer}");
        answer["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    }

    /// What a job came to.
    pub(crate) fn result(&self, client: &str, id: &str) -> Value {
        let (status, answer) = self.ask("GET", &format!("/{client}/job/{id}?wait=60"), "");
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Runs one payload and says what it came to.
    pub(crate) fn invoke(&self, client: &str, jobtype: &str, line: &str) -> Value {
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
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("SKIPPED: {program} is not installed, its handlers are not tested");
    }
    found
}

pub(crate) fn until(what: &str, mut look: impl FnMut() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(30));
    }
}

pub(crate) struct Language {
    pub(crate) lang: &'static str,
    pub(crate) program: &'static str,
    /// Returns an object, prints a follow-up line, fails, retries, breaks or exits, by its payload.
    pub(crate) body: &'static str,
    pub(crate) counter: &'static str,
}

pub(crate) const LANGUAGES: [Language; 3] = [
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

/// Posts lines to a server that may die meanwhile; the ids, if it said so.
pub(crate) fn try_post(address: &str, path: &str, body: &str) -> Option<Vec<String>> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200"), "{text}");
    let answer: Value = serde_json::from_str(body).ok()?;
    Some(answer["ids"].as_array()?.iter().map(|id| id.as_str().unwrap().to_owned()).collect())
}
