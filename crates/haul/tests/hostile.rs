//! Hostile and broken clients: whatever one connection sends, or does not read, the server neither falls over nor lets
//! the others wait nor grows without bound. Each limit is met at its value and one past it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use haul_client::resp::{Frame, encode_request};
use support::{Client, Random, Server, error_text, eventually, text};

const MIB: u64 = 1 << 20;
/// The SHA-1 of qless's script, which is there from the start.
const QLESS: &str = "ed7cb6988e28750518b1c1f25c98d865dc370952";

/// A server on a folder of its own.
struct Scene {
    server: Server,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new(flags: &[&str]) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        Scene { server: Server::start(folder.path(), flags), _folder: folder }
    }

    fn connect(&self) -> Client {
        self.server.connect()
    }

    /// A figure from INFO.
    fn figure(&self, name: &str) -> u64 {
        let info = text(&self.connect().call(&["INFO"])).unwrap();
        let line = info.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
        line.split(':').nth(1).unwrap().parse().unwrap()
    }
}

fn pong() -> Frame {
    Frame::Simple("PONG".into())
}

#[test]
fn a_broken_request_gets_the_words_of_redis_and_the_connection_ends() {
    let scene = Scene::new(&[]);
    let inline = [vec![b'x'; 70_000], b"\r\n".to_vec()].concat();
    let cases: [(&[u8], &str); 14] = [
        (b"*abc\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*1048577\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*99999999999999999999\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*9223372036854775807\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n+PING\r\n", "ERR Protocol error: expected '$', got '+'"),
        (b"*2\r\n$4\r\nPING\r\n:1\r\n", "ERR Protocol error: expected '$', got ':'"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", "ERR Protocol error: expected '$', got '*'"),
        (b"*1\r\n$abc\r\n", "ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$-1\r\n", "ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$16778241\r\n", "ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$9223372036854775807\r\n", "ERR Protocol error: invalid bulk length"),
        (b"GET \"open\r\n", "ERR Protocol error: unbalanced quotes in request"),
        (b"GET \"a\"b\r\n", "ERR Protocol error: unbalanced quotes in request"),
        (&inline, "ERR Protocol error: too big inline request"),
    ];
    for (bytes, expected) in cases {
        let mut client = scene.connect();
        client.send_bytes(bytes).unwrap();
        let shown = bytes[..bytes.len().min(40)].escape_ascii().to_string();
        assert_eq!(error_text(&client.read().unwrap()), expected, "{shown}");
        client.assert_closed();
        scene.server.assert_serving();
    }
}

/// Once, what stood in the pipeline before a broken request was dropped without an answer.
#[test]
fn what_came_before_a_broken_request_is_done_and_answered() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let mut out = BytesMut::new();
    encode_request(&["HAUL.PUT", "q", "k", "1", "JID", "before"], &mut out);
    out.extend_from_slice(b"*1\r\n?\r\n");
    client.send_bytes(&out).unwrap();
    assert_eq!(text(&client.read().unwrap()).as_deref(), Some("before"));
    assert_eq!(error_text(&client.read().unwrap()), "ERR Protocol error: expected '$', got '?'");
    client.assert_closed();
    assert_eq!(scene.connect().json(&["HAUL.GET", "before"])["state"], "waiting");
}

#[test]
fn inline_commands_and_frames_of_replies_are_read_as_redis_reads_them() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    for line in
        ["PING\r\n", "ping\n", "  PING  \r\n", "\r\n\r\nPING\r\n", "*0\r\nPING\r\n", "*-1\r\nPING\r\n"]
    {
        client.send_bytes(line.as_bytes()).unwrap();
        assert_eq!(client.read().unwrap(), pong(), "{line:?}");
    }
    client.send_bytes(b"ECHO \"a b\\x41\\n\" \r\n").unwrap();
    assert_eq!(text(&client.read().unwrap()).as_deref(), Some("a bA\n"));
    // RESP3's types are for replies: sent as a request each is a line with an unknown command on it.
    for line in ["%1", "~2", ">3", "#t", ",1.5", "_", "(123", "=4", "!5", "|1", "-ERR", ":1", "$4", "+OK"] {
        client.send_bytes(format!("{line}\r\n").as_bytes()).unwrap();
        let complaint = error_text(&client.read().unwrap());
        assert!(complaint.starts_with(&format!("ERR unknown command '{line}'")), "{complaint}");
    }
    assert_eq!(client.call(&["PING"]), pong());
}

#[test]
fn an_inline_command_has_at_most_64_kib() {
    let scene = Scene::new(&[]);
    let line = |bytes: usize| [b"ECHO ".to_vec(), vec![b'x'; bytes - 5], b"\r\n".to_vec()].concat();
    let mut client = scene.connect();
    client.send_bytes(&line(64 << 10)).unwrap();
    assert_eq!(text(&client.read().unwrap()).unwrap().len(), (64 << 10) - 5);
    client.send_bytes(&line((64 << 10) + 1)).unwrap();
    assert_eq!(error_text(&client.read().unwrap()), "ERR Protocol error: too big inline request");
    client.assert_closed();
}

#[test]
fn a_command_has_at_most_arguments_max_arguments() {
    let scene = Scene::new(&["--arguments-max", "16"]);
    let mut client = scene.connect();
    let mget = |count: usize| [vec!["HAUL.MGET"], vec!["j"; count - 1]].concat();
    assert_eq!(client.call(&mget(16)), Frame::Array(vec![Frame::Nil; 15]));
    client.send(&mget(17)).unwrap();
    assert_eq!(error_text(&client.read().unwrap()), "ERR Protocol error: invalid multibulk length");
    client.assert_closed();
    scene.server.assert_serving();
}

#[test]
fn a_million_arguments_are_taken_and_an_announced_million_costs_nothing() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let mut args = vec!["HAUL.MGET"];
    args.resize(1_048_576, "j");
    let Frame::Array(jobs) = client.call(&args) else { panic!("not an array") };
    assert_eq!(jobs.len(), args.len() - 1);
    drop((jobs, args));
    let before = scene.server.rss_bytes();
    let mut announcers: Vec<Client> = (0..200).map(|_| scene.connect()).collect();
    for announcer in &mut announcers {
        announcer.send_bytes(b"*1048576\r\n$16778240\r\n").unwrap();
    }
    scene.server.assert_serving();
    let grown = scene.server.rss_bytes().saturating_sub(before);
    assert!(grown < 100 * MIB, "{grown} bytes for announcements");
}

#[test]
fn a_name_has_at_most_name_bytes_max_bytes() {
    let scene = Scene::new(&["--name-bytes-max", "32"]);
    let mut client = scene.connect();
    let (at, past) = ("n".repeat(32), "n".repeat(33));
    assert_eq!(text(&client.call(&["HAUL.PUT", &at, &at, "1", "JID", &at, "TAG", &at])).as_ref(), Some(&at));
    let refused: [&[&str]; 9] = [
        &["HAUL.PUT", &past, "k", "1"],
        &["HAUL.PUT", "q", &past, "1"],
        &["HAUL.PUT", "q", "k", "1", "JID", &past],
        &["HAUL.PUT", "q", "k", "1", "TAG", &past],
        &["HAUL.POP", &past, "QUEUES", "q"],
        &["HAUL.POP", "w", "QUEUES", &past],
        &["HAUL.CONFIG", "SET", &past, "1"],
        &["SET", &past, "1"],
        &["EVALSHA", QLESS, "0", "put", "1", "w", "q", &past, "k", "{}", "0"],
    ];
    for args in refused {
        let refusal = client.refusal(args);
        assert!(refusal.contains("name-bytes-max, 32"), "{args:?}: {refusal}");
    }
    assert_eq!(client.json(&["HAUL.QUEUES"]).as_array().unwrap().len(), 1);
}

#[test]
fn data_has_at_most_data_bytes_max_bytes() {
    let scene = Scene::new(&["--data-bytes-max", "100"]);
    let mut client = scene.connect();
    let document = |bytes: usize| format!("\"{}\"", "d".repeat(bytes - 2));
    let (at, past) = (document(100), document(101));
    client.call(&["HAUL.PUT", "q", "k", &at, "JID", "j"]);
    assert_eq!(client.json(&["HAUL.GET", "j"])["data"].to_string(), at);
    client.call(&["HAUL.POP", "w", "QUEUES", "q"]);
    let refused: [&[&str]; 6] = [
        &["HAUL.PUT", "q", "k", &past, "JID", "past"],
        &["HAUL.HEARTBEAT", "w", "j", "DATA", &past],
        &["HAUL.COMPLETE", "w", "j", "RESULT", &past],
        &["HAUL.FAIL", "w", "j", "group", &past],
        &["HAUL.RECUR", "q", "k", &past, "INTERVAL", "1"],
        &["EVALSHA", QLESS, "0", "put", "1", "w", "q", "past", "k", &past, "0"],
    ];
    for args in refused {
        let refusal = client.refusal(args);
        assert!(refusal.contains("data-bytes-max, 100"), "{args:?}: {refusal}");
    }
    assert_eq!(client.call(&["HAUL.GET", "past"]), Frame::Nil);
    // The wire itself lets a little more through, for documents that carry data; beyond that the connection ends.
    let echo = "e".repeat(1124);
    assert_eq!(text(&client.call(&["ECHO", &echo])).as_ref(), Some(&echo));
    client.send(&["ECHO", &"e".repeat(1125)]).unwrap();
    assert_eq!(error_text(&client.read().unwrap()), "ERR Protocol error: invalid bulk length");
    client.assert_closed();
}

#[test]
fn data_of_16_mib_goes_in_and_out_by_default() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let data = format!("\"{}\"", "d".repeat((16 << 20) - 2));
    assert_eq!(text(&client.call(&["HAUL.PUT", "q", "k", &data, "JID", "j"])).as_deref(), Some("j"));
    assert_eq!(client.json(&["HAUL.GET", "j"])["data"].as_str().unwrap().len(), (16 << 20) - 2);
    let refusal = client.refusal(&["HAUL.PUT", "q", "k", &format!("{data} "), "JID", "past"]);
    assert!(refusal.contains("data-bytes-max"), "{refusal}");
    scene.server.assert_serving();
}

#[test]
fn a_request_has_at_most_64_mib() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let part = "p".repeat(16 << 20);
    client.send(&["HAUL.MGET", &part, &part, &part, "p"]).unwrap();
    assert!(error_text(&client.read().unwrap()).contains("name-bytes-max"));
    // One more argument, and the request is larger than 64 MiB: the answer does not wait for the rest of it.
    client.send_bytes(b"*5\r\n$9\r\nHAUL.MGET\r\n").unwrap();
    for _ in 0..3 {
        client.send_bytes(format!("${}\r\n{part}\r\n", part.len()).as_bytes()).unwrap();
    }
    client.send_bytes(format!("${}\r\n", part.len()).as_bytes()).unwrap();
    assert_eq!(error_text(&client.read().unwrap()), "ERR Protocol error: too big request");
    client.assert_closed();
    scene.server.assert_serving();
}

#[test]
fn json_nests_at_most_1000_deep() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let (at, past) = (nested(1000), nested(1001));
    assert_eq!(text(&client.call(&["HAUL.PUT", "q", "k", &at, "JID", "j"])).as_deref(), Some("j"));
    let job = text(&client.call(&["HAUL.GET", "j"])).unwrap();
    assert!(job.contains(&at));
    let by_qless = text(&client.call(&["EVALSHA", QLESS, "0", "get", "1", "j"])).unwrap();
    assert!(by_qless.contains("[[[["));
    for args in [
        &["HAUL.PUT", "q", "k", &past, "JID", "past"][..],
        &["HAUL.MPUT", &format!("{{\"queue\":\"q\",\"klass\":\"k\",\"jid\":\"past\",\"data\":{past}}}")],
        &["EVALSHA", QLESS, "0", "put", "1", "w", "q", "past", "k", &past, "0"],
    ] {
        let refusal = client.refusal(args);
        assert!(refusal.contains("too many nested data structures"), "{refusal}");
    }
    // Far deeper, in every place that reads JSON: the stack holds.
    let abyss = "[".repeat(1_000_000);
    client.refusal(&["HAUL.PUT", "q", "k", &abyss]);
    client.refusal(&["HAUL.MPUT", &abyss]);
    client.refusal(&["HAUL.MPUT", &format!("{{\"data\":{abyss}")]);
    client.refusal(&["EVALSHA", QLESS, "0", "put", "1", "w", "q", "j2", "k", "{}", "0", "tags", &abyss]);
    client.refusal(&["EVALSHA", QLESS, "0", "heartbeat", "1", "j", "w", &abyss]);
    assert_eq!(client.call(&["HAUL.GET", "past"]), Frame::Nil);
    scene.server.assert_serving();
}

#[test]
fn at_most_connections_max_connections_are_served() {
    let scene = Scene::new(&["--connections-max", "3"]);
    let mut served: Vec<Client> = (0..3).map(|_| scene.connect()).collect();
    served.iter_mut().for_each(|client| assert_eq!(client.call(&["PING"]), pong()));
    let mut refused = scene.connect();
    assert_eq!(error_text(&refused.read().unwrap()), "ERR max number of clients reached");
    refused.assert_closed();
    served.iter_mut().for_each(|client| assert_eq!(client.call(&["PING"]), pong()));
    drop(served.pop());
    eventually("room for another connection", || {
        let mut client = scene.connect();
        client.send(&["PING"]).is_ok() && client.read().is_ok_and(|answer| answer == pong())
    });
}

/// Connections that come and block and leave once cost memory until their time-out, a day later.
#[test]
fn who_leaves_a_blocked_pop_gets_no_job_and_is_forgotten() {
    let scene = Scene::new(&[]);
    let waiting = |count: u64| eventually("the blocked pops", || scene.figure("blocked_clients") == count);
    let queues: Vec<String> = (0..1000).map(|number| format!("queue-{number}")).collect();
    let mut blocked: Vec<Client> = (0..50).map(|_| scene.connect()).collect();
    for client in &mut blocked {
        let mut args = ["HAUL.POP", "dead", "WAIT", "86400", "QUEUES", "q"].map(str::to_owned).to_vec();
        args.extend_from_slice(&queues);
        client.send(&args).unwrap();
    }
    waiting(50);
    drop(blocked);
    waiting(0);
    let mut client = scene.connect();
    client.call(&["HAUL.PUT", "q", "k", "1", "JID", "j"]);
    let job = client.json(&["HAUL.GET", "j"]);
    assert_eq!((&job["state"], &job["attempt"]), (&"waiting".into(), &0.into()));

    let mut living = scene.connect();
    living.send(&["HAUL.POP", "dead", "WAIT", "60", "QUEUES", "empty"]).unwrap();
    waiting(1);
    drop(living);
    let mut living = scene.connect();
    living.send(&["HAUL.POP", "alive", "WAIT", "60", "QUEUES", "empty"]).unwrap();
    waiting(1);
    client.call(&["HAUL.PUT", "empty", "k", "1", "JID", "next"]);
    let Frame::Array(jobs) = living.read().unwrap() else { panic!("not jobs") };
    assert_eq!(support::json(&jobs[0]).unwrap()["worker"], "alive");
}

#[test]
fn a_wait_and_a_count_have_limits() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let refusal = client.refusal(&["HAUL.POP", "w", "WAIT", "86401", "QUEUES", "q"]);
    assert!(refusal.contains("wait-seconds-max"), "{refusal}");
    assert_eq!(client.call(&["HAUL.POP", "w", "COUNT", "10000", "QUEUES", "q"]), Frame::Array(Vec::new()));
    let refusal = client.refusal(&["HAUL.POP", "w", "COUNT", "10001", "QUEUES", "q"]);
    assert!(refusal.contains("pop-count-max"), "{refusal}");
    for wrong in ["-1", "1.5", "1e300", "nan", "inf", "", "x"] {
        assert!(
            client.refusal(&["HAUL.POP", "w", "COUNT", wrong, "QUEUES", "q"]).starts_with("BADARG"),
            "{wrong}"
        );
    }
    for wrong in ["nan", "inf", "", "x", "1e999"] {
        assert!(
            client.refusal(&["HAUL.POP", "w", "WAIT", wrong, "QUEUES", "q"]).starts_with("BADARG"),
            "{wrong}"
        );
        assert!(
            client.refusal(&["HAUL.POP", "w", "LOCK", wrong, "QUEUES", "q"]).starts_with("BADARG"),
            "{wrong}"
        );
    }
    scene.server.assert_serving();
}

#[test]
fn a_transaction_holds_at_most_transaction_calls_max_commands() {
    const CALLS_MAX: usize = 100_000;
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let mut queue = |count: usize| {
        let mut out = BytesMut::new();
        encode_request(&["MULTI"], &mut out);
        (0..count).for_each(|_| encode_request(&["PING"], &mut out));
        encode_request(&["EXEC"], &mut out);
        client.send_bytes(&out).unwrap();
        let mut answers: Vec<Frame> = (0..count + 2).map(|_| client.read().unwrap()).collect();
        (answers.pop().unwrap(), answers.pop().unwrap())
    };
    let (exec, last) = queue(CALLS_MAX);
    assert_eq!((exec, last), (Frame::Array(vec![pong(); CALLS_MAX]), Frame::Simple("QUEUED".into())));
    let (exec, last) = queue(CALLS_MAX + 1);
    assert!(error_text(&last).contains("transaction-calls-max"), "{last:?}");
    assert!(error_text(&exec).starts_with("EXECABORT"), "{exec:?}");
}

/// Once, a transaction could hold its number of commands times the size of a request.
#[test]
fn a_transaction_holds_at_most_as_many_bytes_as_a_request() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let before = scene.server.rss_bytes();
    let part = "p".repeat(1 << 20);
    client.call(&["MULTI"]);
    let mut complaint = None;
    for _ in 0..200 {
        if let Frame::Error(text) = client.call(&["ECHO", &part]) {
            complaint.get_or_insert(text);
        }
    }
    assert!(complaint.unwrap().contains("request-bytes-max"));
    assert!(client.refusal(&["EXEC"]).starts_with("EXECABORT"));
    let grown = scene.server.rss_bytes().saturating_sub(before);
    assert!(grown < 150 * MIB, "{grown} bytes");
    assert_eq!(client.call(&["PING"]), pong());
}

#[test]
fn a_connection_watches_a_bounded_number_of_keys() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let many = |count: usize| [vec!["WATCH"], vec!["key"; count]].concat();
    assert_eq!(client.call(&many(100_000)), Frame::ok());
    assert!(client.refusal(&many(1)).contains("transaction-calls-max"));
    assert_eq!(client.call(&["UNWATCH"]), Frame::ok());
    assert!(client.refusal(&["WATCH", &"k".repeat(2000)]).contains("name-bytes-max"));
}

#[test]
fn a_connection_has_at_most_subscriptions_max_subscriptions() {
    const SUBSCRIPTIONS_MAX: usize = 10_000;
    let scene = Scene::new(&[]);
    for (word, count) in [("SUBSCRIBE", SUBSCRIPTIONS_MAX), ("PSUBSCRIBE", SUBSCRIPTIONS_MAX)] {
        let mut client = scene.connect();
        let mut args = vec![word.to_owned()];
        args.extend((0..=count).map(|number| format!("channel-{number}")));
        client.send(&args).unwrap();
        for number in 1..=count {
            let Frame::Array(confirmation) = client.read().unwrap() else { panic!("not a confirmation") };
            assert_eq!(confirmation[2], Frame::Int(number as i64));
        }
        assert!(error_text(&client.read().unwrap()).contains("subscriptions-max"));
        // One that is there already is no new one.
        client.send(&[word, "channel-0"]).unwrap();
        assert!(matches!(client.read().unwrap(), Frame::Array(_)));
        assert!(client.refusal(&[word, &"c".repeat(2000)]).contains("name-bytes-max"));
    }
    scene.server.assert_serving();
}

#[test]
fn a_subscriber_that_does_not_read_is_cut_off_and_nobody_else_notices() {
    let scene = Scene::new(&["--subscriber-bytes-max", "4194304"]);
    let mut deaf = scene.connect();
    deaf.send(&["SUBSCRIBE", "news"]).unwrap();
    assert!(matches!(deaf.read().unwrap(), Frame::Array(_)));
    let mut keen = scene.connect();
    keen.send(&["SUBSCRIBE", "news"]).unwrap();
    assert!(matches!(keen.read().unwrap(), Frame::Array(_)));
    let mut speaker = scene.connect();
    let before = scene.server.rss_bytes();
    let payload = "n".repeat(1 << 20);
    let mut published = 0;
    while speaker.call(&["PUBLISH", "news", &payload]) == Frame::Int(2) {
        published += 1;
        let Frame::Array(message) = keen.read().unwrap() else { panic!("not a message") };
        assert_eq!(text(&message[2]).unwrap().len(), payload.len());
        assert!(published < 200, "the deaf one is still there");
    }
    for _ in 0..50 {
        assert_eq!(speaker.call(&["PUBLISH", "news", &payload]), Frame::Int(1));
        keen.read().unwrap();
    }
    let grown = scene.server.rss_bytes().saturating_sub(before);
    assert!(grown < 150 * MIB, "{grown} bytes");
    // At once, not when a write times out: what was under way may still come, then the end.
    eventually("the connection's end", || scene.figure("connected_clients") == 3);
    let mut rest = Vec::new();
    match deaf.stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert!((rest.len() as u64) < 40 * MIB);
}

#[test]
fn who_does_not_read_its_replies_costs_little_and_stalls_nobody() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let data = format!("\"{}\"", "d".repeat(4 << 20));
    client.call(&["HAUL.PUT", "q", "k", &data, "JID", "big"]);
    client.call(&["HAUL.GET", "big"]);
    let before = scene.server.rss_bytes();
    let mut out = BytesMut::new();
    (0..1000).for_each(|_| encode_request(&["HAUL.GET", "big"], &mut out));
    let deaf: Vec<Client> = (0..4)
        .map(|_| {
            let mut deaf = scene.connect();
            deaf.send_bytes(&out).unwrap();
            deaf
        })
        .collect();
    for number in 0..200 {
        let jid = format!("j{number}");
        assert_eq!(text(&client.call(&["HAUL.PUT", "q", "k", "1", "JID", &jid])), Some(jid));
    }
    let grown = scene.server.rss_bytes().saturating_sub(before);
    assert!(grown < 300 * MIB, "{grown} bytes for {} deaf clients", deaf.len());
}

/// Once, all of a transaction's replies, and every copy of a body named twice, were in memory together.
#[test]
fn small_requests_for_large_answers_cost_little() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let data = format!("\"{}\"", "d".repeat(8 << 20));
    client.call(&["HAUL.PUT", "q", "k", &data, "JID", "big"]);
    client.call(&["HAUL.GET", "big"]);
    let before = scene.server.rss_bytes();
    let refusal = client.refusal(&[vec!["HAUL.MGET"], vec!["big"; 100_000]].concat());
    assert!(refusal.contains("reply-bytes-max"), "{refusal}");
    let mut out = BytesMut::new();
    encode_request(&["MULTI"], &mut out);
    (0..40).for_each(|_| encode_request(&["HAUL.GET", "big"], &mut out));
    encode_request(&["EXEC"], &mut out);
    client.send_bytes(&out).unwrap();
    for _ in 0..41 {
        client.read().unwrap();
    }
    // A little of it has been read along with the answers before.
    let mut left = 40 * (8 << 20) - (64 << 10);
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        left -= client.stream.read(&mut buffer).unwrap().min(left);
    }
    let grown = scene.server.rss_bytes().saturating_sub(before);
    assert!(grown < 200 * MIB, "{grown} bytes");
    scene.server.assert_serving();
}

/// Sends `count` copies of a request from one connection and reads all the answers, while another connection makes
/// its round trips: they go on while the flood does.
fn flood(scene: &Scene, request: &[&str], count: usize, answer_bytes: usize) {
    let mut one = BytesMut::new();
    encode_request(request, &mut one);
    let chunk = one.repeat(1000);
    let stream = TcpStream::connect(scene.server.address).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut writer = stream;
    let before = scene.server.rss_bytes();
    std::thread::scope(|scope| {
        scope.spawn(move || (0..count / 1000).for_each(|_| writer.write_all(&chunk).unwrap()));
        let done = over.clone();
        scope.spawn(move || {
            let mut left = count * answer_bytes;
            let mut buffer = vec![0; 1 << 16];
            while left > 0 {
                left -= reader.read(&mut buffer).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let mut client = scene.connect();
        let mut round_trips = 0_u64;
        while !over.load(Ordering::Acquire) {
            let jid = format!("flood-{round_trips}");
            assert_eq!(text(&client.call(&["HAUL.PUT", "q", "k", "1", "JID", &jid])), Some(jid));
            round_trips += 1;
        }
        eprintln!("{round_trips} round trips during {count} times {request:?}");
        assert!(round_trips > 10, "only {round_trips} round trips during the flood");
    });
    let grown = scene.server.rss_bytes().saturating_sub(before);
    assert!(grown < 200 * MIB, "{grown} bytes");
}

#[test]
fn millions_of_pipelined_pings_do_not_keep_others_waiting() {
    flood(&Scene::new(&[]), &["PING"], 2_000_000, "+PONG\r\n".len());
}

#[test]
fn hundreds_of_thousands_of_pipelined_gets_do_not_keep_others_waiting() {
    flood(&Scene::new(&[]), &["HAUL.GET", "none"], 500_000, "$-1\r\n".len());
}

#[test]
fn bytes_that_come_one_by_one_are_put_together() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    let mut out = BytesMut::new();
    encode_request(&["HAUL.PUT", "q", "k", "{\"a\":1}", "JID", "slow"], &mut out);
    encode_request(&["HAUL.GET", "slow"], &mut out);
    for byte in &out {
        client.send_bytes(&[*byte]).unwrap();
    }
    assert_eq!(text(&client.read().unwrap()).as_deref(), Some("slow"));
    assert_eq!(support::json(&client.read().unwrap()).unwrap()["data"]["a"], 1);
}

#[test]
fn silent_and_half_open_connections_bother_nobody() {
    let scene = Scene::new(&[]);
    let before = scene.server.rss_bytes();
    let silent: Vec<Client> = (0..400).map(|_| scene.connect()).collect();
    let half: Vec<Client> = (0..400)
        .map(|_| {
            let mut client = scene.connect();
            client.send_bytes(b"*3\r\n$8\r\nHAUL.GET\r\n$10\r\nhal").unwrap();
            client
        })
        .collect();
    let mut shut = scene.connect();
    shut.send(&["PING"]).unwrap();
    shut.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(shut.read().unwrap(), pong());
    shut.assert_closed();
    scene.server.assert_serving();
    let grown = scene.server.rss_bytes().saturating_sub(before);
    assert!(grown < 100 * MIB, "{grown} bytes for {} connections", silent.len() + half.len());
    drop((silent, half));
    eventually("their end", || scene.figure("connected_clients") == 1);
}

/// Once, connections could use up the file descriptors that the store needs.
#[test]
fn connections_leave_file_descriptors_for_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    let script = format!(
        "ulimit -n 700 && exec {} serve --redis 127.0.0.1:0 --http off --log-bytes-max 300000 --data {}",
        env!("CARGO_BIN_EXE_haul"),
        folder.path().display()
    );
    command.args(["-c", &script]);
    let server = Server::spawn(command).unwrap();
    assert!(server.log().contains("too few file descriptors"), "{}", server.log());
    let mut client = server.connect();
    let crowd: Vec<TcpStream> = (0..900).map_while(|_| TcpStream::connect(server.address).ok()).collect();
    assert!(crowd.len() > 600);
    // Enough for several segments of the log and several checkpoints.
    let data = format!("\"{}\"", "d".repeat(20_000));
    for number in 0..100 {
        let jid = format!("j{number}");
        assert_eq!(text(&client.call(&["HAUL.PUT", "q", "k", &data, "JID", &jid])), Some(jid));
    }
}

#[test]
fn garbage_never_brings_the_server_down() {
    let scene = Scene::new(&["--data-bytes-max", "4096"]);
    let mut random = Random::seeded();
    let words: [&[u8]; 16] = [
        b"*1\r\n",
        b"*3\r\n",
        b"$4\r\n",
        b"PING\r\n",
        b"\r\n",
        b"$0\r\n\r\n",
        b"HAUL.PUT",
        b"EVALSHA",
        b"\"",
        b"'",
        b"*-1\r\n",
        b"$-1\r\n",
        b"MULTI\r\n",
        b"EXEC\r\n",
        b"SUBSCRIBE a\r\n",
        b"\0\xff\xfe",
    ];
    for _ in 0..300 {
        let mut bytes = Vec::new();
        for _ in 0..random.between(1, 40) {
            match random.below(3) {
                0 => bytes.extend_from_slice(words[random.below(16) as usize]),
                1 => bytes.extend(random.next().to_le_bytes()),
                _ => encode(&mut random, &mut bytes),
            }
        }
        let mut client = scene.connect();
        client.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may close before it has read everything.
        let _ = client.send_bytes(&bytes);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let mut answers = Vec::new();
        if let Err(error) = client.stream.read_to_end(&mut answers) {
            assert!(support::is_gone(&error), "{error}: {}", bytes.escape_ascii());
        }
    }
    scene.server.assert_serving();
}

/// A well-formed request of random words.
fn encode(random: &mut Random, bytes: &mut Vec<u8>) {
    const NAMES: [&str; 12] = [
        "HAUL.PUT",
        "HAUL.POP",
        "HAUL.COMPLETE",
        "HAUL.MPUT",
        "SET",
        "LRANGE",
        "ZRANGE",
        "SCAN",
        "WATCH",
        "HELLO",
        "CLIENT",
        "haul.throttle",
    ];
    const WORDS: [&str; 12] =
        ["q", "1", "-1", "{}", "[", "WAIT", "0.01", "QUEUES", "\u{fe0f}", "9e99", "", "COUNT"];
    let mut args = vec![NAMES[random.below(12) as usize]];
    args.extend((0..random.below(8)).map(|_| WORDS[random.below(12) as usize]));
    let mut out = BytesMut::new();
    encode_request(&args, &mut out);
    bytes.extend_from_slice(&out);
}

/// Once, a pop in qless's words for any number of children of a short interval never came back.
#[test]
fn a_recurring_job_of_a_nanosecond_stalls_nobody() {
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    client.call(&["HAUL.RECUR", "q", "k", "1", "INTERVAL", "0.000000001", "JID", "mill"]);
    let now = "1900000000";
    for (verb, args) in [("pop", vec!["q", "w", "9000000000000000"]), ("peek", vec!["q", "9000000000000000"])]
    {
        let answer = client.call(&[vec!["EVALSHA", QLESS, "0", verb, now], args].concat());
        assert!(matches!(answer, Frame::Bulk(_)), "{verb}");
    }
    scene.server.assert_serving();
    let large = format!("\"{}\"", "d".repeat(4 << 20));
    client.call(&["HAUL.RECUR", "large", "k", &large, "INTERVAL", "0.001"]);
    let before = scene.server.rss_bytes();
    let answer = client.call(&["HAUL.POP", "w", "COUNT", "10000", "QUEUES", "large"]);
    assert!(matches!(answer, Frame::Array(_)), "{answer:?}");
    let grown = scene.server.rss_bytes().saturating_sub(before);
    assert!(grown < 1000 * MIB, "{grown} bytes");
}

/// Once, each tag of a command was compared with every tag of the job.
#[test]
fn a_hundred_thousand_tags_links_or_throttles_stall_nobody() {
    const COUNT: usize = 100_000;
    let scene = Scene::new(&[]);
    let mut client = scene.connect();
    client.call(&["HAUL.PUT", "q", "k", "1", "JID", "j"]);
    let tags: Vec<String> = (0..COUNT).map(|number| format!("t{number}")).collect();
    let with = |head: &[&str]| [head.iter().map(|&word| word.to_owned()).collect(), tags.clone()].concat();
    assert_eq!(client.names(&with(&["HAUL.TAG", "j"])).len(), COUNT);
    assert_eq!(client.names(&with(&["HAUL.TAG", "j"])).len(), COUNT);
    assert_eq!(client.names(&with(&["HAUL.UNTAG", "j"])).len(), 0);
    // A chain: each job waits for the one before it. Then all of it goes, and one that all others wait for.
    let mut out = BytesMut::new();
    encode_request(&["HAUL.PUT", "q", "k", "1", "JID", "t0"], &mut out);
    for number in 1..COUNT / 5 {
        let (jid, before) = (&tags[number], &tags[number - 1]);
        encode_request(&["HAUL.PUT", "q", "k", "1", "JID", jid, "DEPENDS", before], &mut out);
    }
    client.send_bytes(&out).unwrap();
    (0..COUNT / 5).for_each(|number| assert_eq!(text(&client.read().unwrap()).as_ref(), Some(&tags[number])));
    let all = [&["HAUL.CANCEL".to_owned()], &tags[..COUNT / 5]].concat();
    assert_eq!(client.call(&all), Frame::Int(COUNT as i64 / 5));
    client.call(&["HAUL.RECUR", "q", "k", "1", "INTERVAL", "1000", "JID", "r"]);
    client.call(&with(&["EVALSHA", QLESS, "0", "recur.tag", "1", "r"]));
    client.call(&with(&["EVALSHA", QLESS, "0", "recur.untag", "1", "r"]));
    scene.server.assert_serving();
}
