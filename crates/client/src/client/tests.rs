//! The client against a fake server: order, broken connections, timeouts, connections of its own. And every call's words.

use super::*;
use crate::fake::{Fake, texts, within};
use crate::job::State;
use serde_json::json;

fn quick() -> Options {
    Options {
        request_timeout: Duration::from_secs(10),
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
        ..Options::default()
    }
}

/// A client and the server's end of its connection.
async fn pair(fake: &Fake, options: Options) -> (Client, crate::fake::Peer) {
    let (client, peer) = tokio::join!(Client::connect(&fake.address, options), fake.accept());
    (client.unwrap(), peer)
}

fn spawn_call(
    client: &Client,
    idempotent: bool,
    word: &'static str,
) -> tokio::task::JoinHandle<Result<Frame, Error>> {
    let client = client.clone();
    tokio::spawn(async move {
        if idempotent { client.call_idempotent(&[word]).await } else { client.call(&[word]).await }
    })
}

#[tokio::test]
async fn a_connection_says_who_it_is_first() {
    let fake = Fake::start().await;
    let address = format!("haul://s3cret@{}/acme", fake.address);
    let connecting = tokio::spawn(async move { Client::connect(&address, quick()).await });
    let mut peer = fake.accept().await;
    assert_eq!(peer.line().await, "AUTH s3cret");
    peer.reply(Frame::ok()).await;
    assert_eq!(peer.line().await, "SELECT acme");
    peer.reply(Frame::ok()).await;
    within(connecting).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_refused_token_is_reported_at_once() {
    let fake = Fake::start().await;
    let served = fake.serve(|_| Some(Frame::Error("WRONGPASS no".into())));
    let options = Options { token: Some("t".into()), ..quick() };
    let error = Client::connect(&served.address, options.clone()).await.unwrap_err();
    assert_eq!(error.code(), Some("WRONGPASS"));
    // A client that connects later tells every caller, without waiting for the timeout.
    let client = Client::lazy(&served.address, options).unwrap();
    assert_eq!(within(client.queues()).await.unwrap_err().code(), Some("WRONGPASS"));
}

#[tokio::test]
async fn calls_travel_together_and_answers_find_their_callers() {
    let fake = Fake::start().await;
    let (client, mut peer) = pair(&fake, quick()).await;
    let words = ["a", "b", "c", "d"];
    let calls: Vec<_> = words.iter().map(|word| spawn_call(&client, false, word)).collect();
    let mut arrived = Vec::new();
    // All of them arrive before any is answered.
    for _ in &words {
        arrived.push(within(peer.line()).await);
    }
    for word in &arrived {
        peer.reply_text(word).await;
    }
    for (call, word) in calls.into_iter().zip(words) {
        assert_eq!(within(call).await.unwrap().unwrap(), Frame::bulk(word));
    }
}

#[tokio::test]
async fn an_answer_whose_caller_has_gone_goes_to_nobody_else() {
    let fake = Fake::start().await;
    let (client, mut peer) = pair(&fake, quick()).await;
    let gone = spawn_call(&client, false, "gone");
    assert_eq!(within(peer.line()).await, "gone");
    gone.abort();
    let _ = gone.await;
    let stays = spawn_call(&client, false, "stays");
    assert_eq!(within(peer.line()).await, "stays");
    peer.reply_text("for gone").await;
    peer.reply_text("for stays").await;
    assert_eq!(within(stays).await.unwrap().unwrap(), Frame::bulk("for stays"));
}

#[tokio::test]
async fn when_the_connection_breaks_only_what_is_safe_is_sent_again() {
    let fake = Fake::start().await;
    let (client, mut peer) = pair(&fake, quick()).await;
    let first = spawn_call(&client, true, "safe-1");
    assert_eq!(within(peer.line()).await, "safe-1");
    let unsafe_call = spawn_call(&client, false, "unsafe");
    assert_eq!(within(peer.line()).await, "unsafe");
    let second = spawn_call(&client, true, "safe-2");
    assert_eq!(within(peer.line()).await, "safe-2");
    drop(peer);
    assert!(matches!(within(unsafe_call).await.unwrap(), Err(Error::Disconnected)));
    let mut peer = within(fake.accept()).await;
    for word in ["safe-1", "safe-2"] {
        assert_eq!(within(peer.line()).await, word);
        peer.reply_text(word).await;
    }
    assert_eq!(within(first).await.unwrap().unwrap(), Frame::bulk("safe-1"));
    assert_eq!(within(second).await.unwrap().unwrap(), Frame::bulk("safe-2"));
}

#[tokio::test]
async fn what_was_not_sent_is_sent_on_the_next_connection() {
    let fake = Fake::start().await;
    let (client, peer) = pair(&fake, quick()).await;
    // More than the system takes while nobody reads: whatever comes after it stays with the client.
    let filler = vec![b'x'; 64 * 1024 * 1024];
    let large = {
        let client = client.clone();
        tokio::spawn(async move { client.call(&[b"LARGE".as_slice(), &filler]).await })
    };
    // The large one has begun to arrive before the small one is made.
    within(peer.readable()).await;
    let small = spawn_call(&client, false, "small");
    tokio::task::yield_now().await;
    drop(peer);
    assert!(matches!(within(large).await.unwrap(), Err(Error::Disconnected)));
    let mut peer = within(fake.accept()).await;
    assert_eq!(within(peer.line()).await, "small");
    peer.reply_text("done").await;
    assert_eq!(within(small).await.unwrap().unwrap(), Frame::bulk("done"));
}

#[tokio::test]
async fn a_silent_server_is_left_after_the_timeout() {
    let fake = Fake::start().await;
    let options = Options { request_timeout: Duration::from_millis(100), ..quick() };
    let (client, mut silent) = pair(&fake, options).await;
    let error = within(client.call(&["a"])).await.unwrap_err();
    assert!(matches!(error, Error::Timeout | Error::Disconnected), "{error}");
    assert_eq!(within(silent.line()).await, "a");
    let call = spawn_call(&client, false, "b");
    let mut peer = within(fake.accept()).await;
    assert_eq!(within(peer.line()).await, "b");
    peer.reply_text("c").await;
    assert_eq!(within(call).await.unwrap().unwrap(), Frame::bulk("c"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_as_the_cause() {
    let address = Fake::start().await.address;
    let options = Options { request_timeout: Duration::from_millis(50), ..quick() };
    assert!(matches!(Client::connect(&address, options.clone()).await, Err(Error::Io(_))));
    let client = Client::lazy(&address, options).unwrap();
    let error = within(client.call(&["a"])).await.unwrap_err();
    assert!(matches!(error, Error::Io(_) | Error::Timeout), "{error}");
}

#[tokio::test]
async fn bytes_that_are_no_answer_break_the_connection() {
    let fake = Fake::start().await;
    let (client, mut peer) = pair(&fake, quick()).await;
    let call = spawn_call(&client, false, "a");
    within(peer.line()).await;
    peer.raw(b"HTTP/1.1 400 Bad Request\r\n").await;
    assert!(matches!(within(call).await.unwrap(), Err(Error::Disconnected)));
    assert!(within(peer.request()).await.is_none());
}

#[tokio::test]
async fn try_again_is_tried_again_and_other_refusals_are_not() {
    let mut left = 2;
    let served = Fake::start().await.serve(move |words| {
        if words[0] == "HAUL.CANCEL" {
            return Some(Frame::Error("NEEDED j2 depends on j1".into()));
        }
        left -= 1;
        Some(if left >= 0 { Frame::Error("TRYAGAIN".into()) } else { Frame::bulk("jid") })
    });
    let client = Client::connect(&served.address, quick()).await.unwrap();
    assert_eq!(client.put(&Put::new("q", "k", &1)).await.unwrap(), "jid");
    assert_eq!(served.seen("HAUL.PUT").len(), 3);
    assert!(client.cancel(["j1"]).await.unwrap_err().is_needed());
    assert_eq!(served.seen("HAUL.CANCEL").len(), 1);
}

#[tokio::test]
async fn a_waiting_pop_holds_up_nobody() {
    let fake = Fake::start().await;
    let (client, mut shared) = pair(&fake, quick()).await;
    let pop = Pop::new("w", ["q"]).wait(Duration::from_secs(5));
    let popping = {
        let (client, pop) = (client.clone(), pop.clone());
        tokio::spawn(async move { client.pop(&pop).await })
    };
    let mut own = within(fake.accept()).await;
    assert_eq!(within(own.line()).await, "HAUL.POP w WAIT 5 QUEUES q");
    let call = spawn_call(&client, false, "meanwhile");
    assert_eq!(within(shared.line()).await, "meanwhile");
    shared.reply_text("yes").await;
    within(call).await.unwrap().unwrap();
    own.reply(texts(&[r#"{"jid":"j","klass":"k","state":"running","attempt":1}"#])).await;
    assert_eq!(within(popping).await.unwrap().unwrap()[0].jid, "j");
    // The next one uses the same connection again.
    let popping = {
        let client = client.clone();
        tokio::spawn(async move { client.pop(&pop).await })
    };
    assert_eq!(within(own.line()).await, "HAUL.POP w WAIT 5 QUEUES q");
    own.reply(Frame::Array(vec![])).await;
    assert!(within(popping).await.unwrap().unwrap().is_empty());
}

#[tokio::test]
async fn a_pop_given_up_closes_its_connection() {
    let fake = Fake::start().await;
    let (client, _shared) = pair(&fake, quick()).await;
    let popping =
        tokio::spawn(async move { client.pop(&Pop::new("w", ["q"]).wait(Duration::from_secs(5))).await });
    let mut own = within(fake.accept()).await;
    within(own.line()).await;
    popping.abort();
    assert!(within(own.request()).await.is_none());
}

#[tokio::test]
async fn a_subscription_returns_after_a_broken_connection() {
    let fake = Fake::start().await;
    let (client, _shared) = pair(&fake, quick()).await;
    let mut subscription = client.subscribe(["news"]).await.unwrap();
    let mut peer = within(fake.accept()).await;
    assert_eq!(within(peer.line()).await, "SUBSCRIBE news");
    peer.reply(texts(&["subscribe", "news", "1"])).await;
    peer.reply(texts(&["message", "news", "one"])).await;
    assert_eq!(within(subscription.next()).await.unwrap().payload, "one");
    assert_eq!(subscription.reconnects(), 0);
    drop(peer);
    let (message, ()) = tokio::join!(within(subscription.next()), async {
        let mut peer = within(fake.accept()).await;
        assert_eq!(within(peer.line()).await, "SUBSCRIBE news");
        peer.reply(texts(&["message", "news", "two"])).await;
    });
    assert_eq!(message.unwrap().payload, "two");
    assert_eq!(subscription.reconnects(), 1);
}

#[tokio::test]
async fn a_silent_subscription_is_probed_and_then_left() {
    let fake = Fake::start().await;
    let options = Options { request_timeout: Duration::from_millis(50), ..quick() };
    let (client, _shared) = pair(&fake, options).await;
    let mut subscription = client.subscribe(["news"]).await.unwrap();
    let listening = tokio::spawn(async move { subscription.next().await });
    let mut peer = within(fake.accept()).await;
    assert_eq!(within(peer.line()).await, "SUBSCRIBE news");
    assert_eq!(within(peer.line()).await, "PING");
    peer.reply(texts(&["pong", ""])).await;
    assert_eq!(within(peer.line()).await, "PING");
    // No answer this time.
    let mut next = within(fake.accept()).await;
    assert_eq!(within(next.line()).await, "SUBSCRIBE news");
    next.reply(texts(&["message", "news", "two"])).await;
    assert_eq!(within(listening).await.unwrap().unwrap().payload, "two");
}

/// Answers of the documented form, by command.
fn documented(words: &[String]) -> Option<Frame> {
    let job = || Frame::bulk(r#"{"jid":"j","klass":"k","state":"waiting"}"#);
    let queue = r#"{"name":"q","waiting":3,"paused":true}"#;
    let listing = || Frame::bulk(r#"{"total":9,"jobs":["j"]}"#);
    let two = (words[0].as_str(), words.get(1).map(String::as_str));
    Some(match two {
        ("HAUL.PUT" | "HAUL.MOVE" | "HAUL.RECUR" | "HAUL.FAIL", _) => Frame::bulk("j"),
        ("HAUL.MPUT" | "HAUL.JOBS" | "HAUL.TAGS" | "HAUL.TAG" | "HAUL.UNTAG", _) => texts(&["a", "b"]),
        ("HAUL.GET", Some("none")) | ("HAUL.RESULT", Some("none")) => Frame::Nil,
        ("HAUL.GET" | "HAUL.GETRECUR", _) => job(),
        ("HAUL.MGET", _) => Frame::Array(vec![job(), Frame::Nil]),
        ("HAUL.RESULT", _) => Frame::bulk("text"),
        ("HAUL.POP" | "HAUL.PEEK", _) => Frame::Array(vec![job()]),
        ("HAUL.MHEARTBEAT", _) => texts(&["60", "NOTHELD"]),
        ("HAUL.MCOMPLETE", _) => texts(&["complete", "NOJOB"]),
        ("HAUL.COMPLETE", _) => Frame::bulk("complete"),
        ("HAUL.RETRY", _) => Frame::Int(-1),
        ("HAUL.HEARTBEAT", _) => Frame::Int(60),
        ("HAUL.QUEUES", Some("OFFSET")) => Frame::bulk(format!("[{queue}]")),
        ("HAUL.QUEUES", Some(_)) => Frame::bulk(queue),
        ("HAUL.FAILED", Some("OFFSET")) => Frame::bulk(r#"{"group":4}"#),
        ("HAUL.FAILED" | "HAUL.TAGGED", _) => listing(),
        ("HAUL.WORKERS", Some("OFFSET")) => Frame::bulk("[]"),
        ("HAUL.STATS" | "HAUL.WORKERS", _) => Frame::bulk("{}"),
        ("HAUL.TRACKED", _) => {
            Frame::bulk(r#"{"jobs":[{"jid":"j","klass":"k","state":"waiting"}],"expired":["x"]}"#)
        }
        ("HAUL.CONFIG", Some("GET")) if words.len() == 2 => Frame::bulk(r#"{"heartbeat":60}"#),
        ("HAUL.CONFIG", Some("GET")) => Frame::bulk("60"),
        ("HAUL.THROTTLE", Some("GET")) => Frame::bulk(r#"{"id":"t"}"#),
        ("HAUL.THROTTLE", Some("LOCKS" | "PENDING")) => texts(&["j"]),
        ("HAUL.UNRECUR", _) => Frame::Int(0),
        _ => Frame::Int(1),
    })
}

async fn documented_client() -> (Client, crate::fake::Served) {
    let served = Fake::start().await.serve(documented);
    (Client::connect(&served.address, quick()).await.unwrap(), served)
}

#[tokio::test]
async fn putting_and_working_calls_read_the_documented_answers() {
    let (client, served) = documented_client().await;
    assert_eq!(client.put(&Put::new("q", "k", &json!({}))).await.unwrap(), "j");
    assert_eq!(client.put_many(&[Put::new("q", "k", &1), Put::new("q", "k", &2)]).await.unwrap(), ["a", "b"]);
    assert!(client.put_many(&[]).await.unwrap().is_empty());
    assert_eq!(client.move_job(&Move::new("j", "q")).await.unwrap(), "j");
    let recur = Recur::new(Put::new("q", "k", &1), Duration::from_secs(1));
    assert_eq!(client.recur(&recur).await.unwrap(), "j");
    assert!(!client.unrecur("j").await.unwrap());
    assert_eq!(client.get_recur("j").await.unwrap().unwrap()["jid"], "j");
    let job = client.pop(&Pop::new("w", ["q"])).await.unwrap().remove(0);
    assert_eq!(client.heartbeat(&Heartbeat::job("w", &job)).await.unwrap(), Duration::from_secs(60));
    let renewed = client.heartbeat_many("w", ["a", "b"]).await.unwrap();
    assert_eq!(*renewed[0].as_ref().unwrap(), Duration::from_secs(60));
    assert!(renewed[1].as_ref().unwrap_err().is_not_held());
    assert_eq!(client.complete(&Complete::job("w", &job)).await.unwrap(), State::Complete);
    let completed = client.complete_many("w", ["a", "b"]).await.unwrap();
    assert_eq!(*completed[0].as_ref().unwrap(), State::Complete);
    assert!(completed[1].as_ref().unwrap_err().is_no_job());
    client.fail(&Fail::job("w", &job, "g", "m")).await.unwrap();
    assert_eq!(client.retry(&Retry::job("w", &job)).await.unwrap(), None);
    client.release(["a", "b"]).await.unwrap();
    assert_eq!(served.seen("HAUL.RELEASE"), ["HAUL.RELEASE a b"]);
    assert_eq!(served.seen("HAUL.MHEARTBEAT"), ["HAUL.MHEARTBEAT w a b"]);
}

#[tokio::test]
async fn looking_calls_read_the_documented_answers() {
    let (client, served) = documented_client().await;
    let range = Range { offset: 5, count: 10 };
    assert_eq!(client.get("j").await.unwrap().unwrap().jid, "j");
    assert!(client.get("none").await.unwrap().is_none());
    let many = client.get_many(["j", "none"]).await.unwrap();
    assert!(many[0].is_some() && many[1].is_none());
    assert_eq!(client.result("j").await.unwrap().as_deref(), Some("text"));
    assert_eq!(client.result("none").await.unwrap(), None);
    assert_eq!(client.peek("q", 3).await.unwrap().len(), 1);
    assert_eq!(client.queues().await.unwrap()[0].waiting, 3);
    assert!(client.queue("q").await.unwrap().paused);
    let jobs = Jobs::new(State::Running).queue("q").range(range);
    assert_eq!(client.jobs(&jobs).await.unwrap(), ["a", "b"]);
    assert_eq!(client.length("q").await.unwrap(), 1);
    client.stats("q", Some(7)).await.unwrap();
    assert_eq!(client.failed_groups().await.unwrap()["group"], 4);
    assert_eq!(client.failed("g", range).await.unwrap().total, 9);
    client.workers().await.unwrap();
    client.worker("w").await.unwrap();
    assert_eq!(client.tracked().await.unwrap().expired, ["x"]);
    assert_eq!(client.tagged("t", range).await.unwrap().jobs, ["j"]);
    assert_eq!(client.tags(Range::default()).await.unwrap().len(), 2);
    let expected = [
        "HAUL.GET j",
        "HAUL.GET none",
        "HAUL.MGET j none",
        "HAUL.RESULT j",
        "HAUL.RESULT none",
        "HAUL.PEEK q COUNT 3",
        "HAUL.QUEUES OFFSET 0 COUNT 1000",
        "HAUL.QUEUES q",
        "HAUL.JOBS running QUEUE q OFFSET 5 COUNT 10",
        "HAUL.LENGTH q",
        "HAUL.STATS q DATE 7",
        "HAUL.FAILED OFFSET 0 COUNT 1000",
        "HAUL.FAILED g OFFSET 5 COUNT 10",
        "HAUL.WORKERS OFFSET 0 COUNT 1000",
        "HAUL.WORKERS w",
        "HAUL.TRACKED OFFSET 0 COUNT 1000",
        "HAUL.TAGGED t OFFSET 5 COUNT 10",
        "HAUL.TAGS OFFSET 0 COUNT 25",
    ];
    assert_eq!(served.seen(""), expected);
}

#[tokio::test]
async fn managing_calls_read_the_documented_answers() {
    let (client, served) = documented_client().await;
    let throttle = Throttle { id: "t".into(), max: 4, ttl: Some(Duration::from_secs(9)) };
    assert_eq!(client.cancel(["a", "b"]).await.unwrap(), 1);
    assert_eq!(client.unfail("q", "g", 7).await.unwrap(), 1);
    client.priority("j", -3).await.unwrap();
    assert_eq!(client.tag("j", ["x", "y"]).await.unwrap(), ["a", "b"]);
    assert_eq!(client.untag("j", ["x"]).await.unwrap(), ["a", "b"]);
    assert!(client.track("j").await.unwrap());
    assert!(client.untrack("j").await.unwrap());
    client.log("j", "hello there").await.unwrap();
    client.log_with("j", "m", &json!({"a": 1})).await.unwrap();
    client.depends_on("j", ["a", "b"]).await.unwrap();
    client.depends_off("j", ["a"]).await.unwrap();
    client.depends_off_all("j").await.unwrap();
    client.pause(["q", "r"]).await.unwrap();
    client.unpause(["q"]).await.unwrap();
    client.forget(["q"]).await.unwrap();
    client.deregister(["w"]).await.unwrap();
    assert_eq!(client.config().await.unwrap()["heartbeat"], 60);
    assert_eq!(client.config_get("heartbeat").await.unwrap().as_deref(), Some("60"));
    client.config_set("heartbeat", "30").await.unwrap();
    client.config_unset("heartbeat").await.unwrap();
    client.throttle_set(&throttle).await.unwrap();
    assert_eq!(client.throttle_get("t").await.unwrap().unwrap()["id"], "t");
    assert_eq!(client.throttle_locks("t").await.unwrap(), ["j"]);
    assert_eq!(client.throttle_pending("t").await.unwrap(), ["j"]);
    client.throttle_release("t", ["j"]).await.unwrap();
    client.throttle_delete("t").await.unwrap();
    let expected = [
        "HAUL.CANCEL a b",
        "HAUL.UNFAIL q g COUNT 7",
        "HAUL.PRIORITY j -3",
        "HAUL.TAG j x y",
        "HAUL.UNTAG j x",
        "HAUL.TRACK j",
        "HAUL.UNTRACK j",
        "HAUL.LOG j hello there",
        r#"HAUL.LOG j m {"a":1}"#,
        "HAUL.DEPENDS j ON a b",
        "HAUL.DEPENDS j OFF a",
        "HAUL.DEPENDS j OFF ALL",
        "HAUL.PAUSE q r",
        "HAUL.UNPAUSE q",
        "HAUL.FORGET q",
        "HAUL.DEREGISTER w",
        "HAUL.CONFIG GET",
        "HAUL.CONFIG GET heartbeat",
        "HAUL.CONFIG SET heartbeat 30",
        "HAUL.CONFIG UNSET heartbeat",
        "HAUL.THROTTLE SET t 4 TTL 9",
        "HAUL.THROTTLE GET t",
        "HAUL.THROTTLE LOCKS t",
        "HAUL.THROTTLE PENDING t",
        "HAUL.THROTTLE RELEASE t j",
        "HAUL.THROTTLE DELETE t",
    ];
    assert_eq!(served.seen(""), expected);
}
