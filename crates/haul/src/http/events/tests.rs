//! Event streams over a socket.

use tokio::io::BufReader;
use tokio::net::TcpStream;

use crate::config::Raw;
use crate::http::rig::{Rig, line};

/// One message: its id, its name, its data.
#[derive(Debug, Default, PartialEq)]
struct Message {
    id: String,
    name: String,
    data: String,
}

/// The next message that has data; none: the stream has ended.
async fn message(stream: &mut BufReader<TcpStream>) -> Option<Message> {
    let mut message = Message::default();
    loop {
        let line = line(stream).await?;
        match line.split_once(": ").unwrap_or((line.as_str(), "")) {
            ("id", id) => message.id = id.to_owned(),
            ("event", name) => message.name = name.to_owned(),
            ("data", data) => message.data = data.to_owned(),
            ("", _) if !message.data.is_empty() => return Some(message),
            // The first stretch of a chunked answer ends as the whole does.
            ("0", _) => return None,
            _ => {}
        }
    }
}

/// Reads up to the first message without data: from here on the stream hears everything.
async fn opened(stream: &mut BufReader<TcpStream>) -> String {
    loop {
        let line = line(stream).await.unwrap();
        if let Some(id) = line.strip_prefix("id: ") {
            return id.to_owned();
        }
    }
}

#[tokio::test]
async fn a_life_is_told_and_filters_hold() {
    let rig = Rig::new(Raw::default()).await;
    let mut all = rig.open("GET /api/v1/events").await;
    let mut some = rig.open("GET /api/v1/events?kind=completed&kind=failed&queue=q&worker=w").await;
    opened(&mut all).await;
    opened(&mut some).await;
    rig.say("PUT other k {} JID x").await;
    rig.say("PUT q k {} JID j").await;
    rig.say("POP w QUEUES q").await;
    rig.say("COMPLETE w j").await;
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(message(&mut all).await.unwrap().data);
    }
    let short = |data: &String| data.split(",\"klass\"").next().unwrap().to_owned();
    assert_eq!(
        told.iter().map(short).collect::<Vec<_>>(),
        [
            "{\"kind\":\"put\",\"jid\":\"x\",\"queue\":\"other\"",
            "{\"kind\":\"put\",\"jid\":\"j\",\"queue\":\"q\"",
            "{\"kind\":\"popped\",\"jid\":\"j\",\"queue\":\"q\",\"worker\":\"w\"",
            "{\"kind\":\"completed\",\"jid\":\"j\",\"queue\":\"q\",\"worker\":\"w\"",
        ]
    );
    assert_eq!(message(&mut some).await.unwrap().data, told[3]);
}

#[tokio::test]
async fn a_client_that_comes_back_misses_nothing_or_is_told() {
    let rig = Rig::new(Raw::default()).await;
    let mut stream = rig.open("GET /api/v1/events").await;
    opened(&mut stream).await;
    rig.say("PUT q k {} JID a").await;
    let first = message(&mut stream).await.unwrap();
    drop(stream);
    rig.say("PUT q k {} JID b").await;
    let mut stream = rig.open(&format!("GET /api/v1/events\nLast-Event-ID: {}", first.id)).await;
    let second = message(&mut stream).await.unwrap();
    assert!(second.data.contains("\"jid\":\"b\"") && second.name.is_empty());
    let mut stream = rig.open("GET /api/v1/events\nLast-Event-ID: 1f-7").await;
    assert_eq!(message(&mut stream).await.unwrap().name, "reset");
    rig.say("PUT q k {} JID c").await;
    assert!(message(&mut stream).await.unwrap().data.contains("\"jid\":\"c\""));
    let (run, _) = first.id.split_once('-').unwrap();
    let mut stream = rig.open(&format!("GET /api/v1/events?last_event_id={run}-999")).await;
    assert_eq!(message(&mut stream).await.unwrap().name, "lost");
}

#[tokio::test]
async fn tenants_hear_their_own() {
    let rig = Rig::new(Raw::default()).await;
    let mut stream = rig.open("GET /api/v1/events\nX-Haul-Tenant: acme").await;
    opened(&mut stream).await;
    rig.say("PUT q k {} JID a").await;
    rig.say_as("acme", "PUT q k {} JID b").await;
    assert!(message(&mut stream).await.unwrap().data.contains("\"jid\":\"b\""));
}

/// A reader that does not read costs a socket; when it reads again it is told, and its stream ends.
#[tokio::test]
async fn a_reader_that_falls_behind_is_told_and_dropped() {
    let rig = Rig::new(Raw::default()).await;
    let mut stream = rig.open("GET /api/v1/events").await;
    opened(&mut stream).await;
    let long = "j".repeat(900);
    let jobs: Vec<String> = (0..500)
        .map(|_| format!("{{\"queue\":\"{long}\",\"klass\":\"{long}\",\"jid\":\"{long}\"}}"))
        .collect();
    let line = format!("MPUT {}", jobs.join(" "));
    // More than the sockets hold, and then more than is kept.
    for _ in 0..60 {
        rig.say(&line).await;
    }
    let mut last = Message::default();
    while let Some(message) = message(&mut stream).await {
        last = message;
    }
    assert_eq!(last.name, "lost");
}

#[tokio::test]
async fn wrong_filters_are_refused_and_a_stop_ends_streams() {
    let rig = Rig::new(Raw::default()).await;
    for path in ["/api/v1/events?kind=nothing", "/api/v1/events?color=red"] {
        let answer = rig.get(path).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
    }
    let many: Vec<String> = (0..101).map(|number| format!("jid=j{number}")).collect();
    assert_eq!(rig.get(&format!("/api/v1/events?{}", many.join("&"))).await.status, 400);
    let mut stream = rig.open(&format!("GET /api/v1/events?{}", many[..100].join("&"))).await;
    opened(&mut stream).await;
    rig.server.begin_stop();
    assert_eq!(message(&mut stream).await, None);
}
