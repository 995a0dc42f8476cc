//! What the real binary logs: JSON that is JSON, a line a request at debug, and neither secrets nor data.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
    http: String,
    seen: Vec<serde_json::Value>,
}

impl Server {
    fn start(data: &std::path::Path, extra: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_haul"))
            .args([
                "serve",
                "--redis",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
                "--log-format",
                "json",
                "--data",
            ])
            .arg(data)
            .args(extra)
            .env_remove("HAUL_LOG")
            .env("HAUL_OTLP_HEADERS", "authorization=Bearer topsecret")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut server = Server { child, log, http: String::new(), seen: Vec::new() };
        let ready = server.until("haul is ready");
        server.http = ready["fields"]["http"].as_str().unwrap().to_owned();
        server
    }

    /// Reads lines, each of which must be JSON, up to one with this message.
    fn until(&mut self, message: &str) -> serde_json::Value {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "the log ended before {message:?}");
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert!(value["timestamp"].is_string() && value["level"].is_string(), "{line}");
            self.seen.push(value.clone());
            if value["fields"]["message"] == message {
                return value;
            }
        }
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn stop(mut self) -> Vec<serde_json::Value> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.until("stopped");
        assert!(self.child.wait().unwrap().success());
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const PUT: &str = "{\"queue\":\"q\",\"klass\":\"k\",\"data\":{\"card\":\"4111-hidden\"}}";

fn put() -> String {
    format!(
        "POST /api/v1/jobs?if_exists=replace HTTP/1.1\r\nhost: h\r\nauthorization: Bearer mytoken\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{PUT}",
        PUT.len()
    )
}

#[test]
fn json_lines_are_json_and_hold_neither_secrets_nor_data() {
    let data = tempfile::tempdir().unwrap();
    // Nobody listens there: that is logged once, without the headers.
    let mut server =
        Server::start(data.path(), &["--log-level", "debug", "--otlp-endpoint", "http://127.0.0.1:9"]);
    let answer = server.ask(&put());
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let line = server.until("request");
    let fields = &line["fields"];
    assert_eq!((fields["method"].as_str(), fields["route"].as_str()), (Some("POST"), Some("/api/v1/jobs")));
    assert_eq!(fields["status"].as_u64(), Some(201));
    let id = fields["request"].as_str().unwrap();
    assert!(answer.contains(&format!("x-request-id: {id}")), "{answer}");
    let text = format!("{:?}", server.stop());
    assert!(text.contains("spans cannot be sent"), "{text}");
    for hidden in ["topsecret", "mytoken", "4111-hidden", "if_exists"] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
    }
}

#[test]
fn at_info_requests_are_not_logged() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.ask(&put());
    let text = format!("{:?}", server.stop());
    assert!(!text.contains("/api/v1/jobs"), "{text}");
}
