//! Handlers that are addresses: table 10.5.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::support::{Server, until};

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
            "/slow" => {
                std::thread::sleep(Duration::from_secs(2));
                (200, String::new())
            }
            "/broken" => (500, "200\n200\n200\n".to_owned()),
            "/lines" => (
                200,
                format!("J: batched|{}\n200 {} lines\nJ: batched|after\n", text.len(), text.lines().count()),
            ),
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
        ("broken", vec![(500, "status 500"), (500, "status 500"), (500, "status 500")]),
    ] {
        server.handler(
            &format!("c/handler/{path}"),
            &json!({"lang": "http", "body": url(path), "options": {"batch": true}}),
        );
        server.ask("GET", "/stop", "");
        let ids = server.post("c", path, "200\n404\n201\n");
        until("they are stored", || server.ask("GET", &format!("/c/job/{}", ids[2]), "").0 == 200);
        server.ask("GET", "/start", "");
        for (id, (exitcode, why)) in ids.iter().zip(expected) {
            let seen = server.result("c", id);
            assert_eq!(seen["exitcode"], exitcode, "{path} {seen}");
            assert!(seen["reason"].as_str().unwrap_or_default().contains(why), "{path} {seen}");
        }
    }
}

#[test]
fn http_handlers_have_a_time_limit_scripts_and_follow_up_jobs() {
    let (address, _) = echo_server();
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-time", "0", "--contexts-max", "1"]);
    let url = |path: &str| format!("http://{address}/{path}");
    server.handler(
        "c/handler/slow",
        &json!({"lang": "http", "body": url("slow"), "options": {"timeoutMs": 200}}),
    );
    let seen = server.invoke("c", "slow", "x");
    assert_eq!((&seen["exitcode"], &seen["reason"]), (&json!(500), &json!("timeout")), "{seen}");
    for key in ["before", "beforeEach"] {
        server.handler("c/handler/t", &json!({"lang": "http", "body": url("each"), key: url("broken")}));
        let seen = server.invoke("c", "t", "x");
        assert_eq!(
            (&seen["exitcode"], &seen["reason"]),
            (&json!(500), &json!(format!("{key}: status 500"))),
            "{seen}"
        );
    }
    server.handler("c/handler/t", &json!({"lang": "http", "body": url("each"), "afterEach": url("broken")}));
    assert_eq!(server.invoke("c", "t", "x")["code"], "ok");
    // Lines go together, bytes alone; both kinds of follow-ups are of one of them.
    let options = json!({"batch": true, "keepResult": true});
    server.handler("c/handler/lines", &json!({"lang": "http", "body": url("lines"), "options": options}));
    server.ask("GET", "/stop", "");
    let line = server.post("c", "lines", "one").remove(0);
    let (_, raw) = server.send("POST", "/c/job/lines/add", "application/octet-stream", b"b\nc");
    let raw: serde_json::Value = serde_json::from_slice(&raw).unwrap();
    let raw = raw["ids"][0].as_str().unwrap().to_owned();
    until("they are stored", || server.ask("GET", &format!("/c/job/{raw}"), "").0 == 200);
    server.ask("GET", "/start", "");
    assert_eq!(server.result("c", &line)["result"], "1 lines");
    assert_eq!(server.result("c", &raw)["result"], "200 2 lines\n");
    let mut made = Vec::new();
    until("the follow-ups", || {
        made = server.jobs("c", "batched").iter().map(|job| job["data"].to_string()).collect();
        made.len() >= 4
    });
    made.sort();
    assert_eq!(made, ["\"after\"", "\"after\"", "3", "4"]);
}
