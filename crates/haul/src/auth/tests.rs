//! A tenant can never read, guess or affect another's jobs, and a role can do no more than it may: every command of
//! every dialect, and every route, is tried.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use bytes::{Buf, BytesMut};
use haul_client::resp::{Decoder, Frame, Limits, encode_request};
use haul_store::{MemoryDisk, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;
use tower::ServiceExt;

use super::tokens::tests::make;
use super::{Audit, Gate, Role, needs};
use crate::dialect::tests::{REQUESTS, read};
use crate::dialect::{DataLimits, Env, ErrorFormat};
use crate::net::{Protocol, Remote};
use crate::outlets::Outlets;
use crate::resp::{Guard, Redis, Server};
use crate::shard::{self, Core, Settings};

/// In everything that tenant beta has.
const MARK: &str = "only-beta-knows";
const ROLES: [Role; 4] = [Role::View, Role::Work, Role::Operate, Role::Admin];

/// A server in memory, with the tokens of this folder.
pub(crate) fn server(folder: &std::path::Path, settings: crate::config::Raw) -> Arc<Server> {
    let config = settings.resolve(crate::config::Raw::default()).unwrap();
    let open = || Box::new(MemoryDisk::new().open()) as Box<dyn Store>;
    let outlets = Outlets::new(config.limits.subscriber_bytes_max);
    let core = Core::load(open()).unwrap();
    let publish = Box::new(outlets.clone());
    let (shard, _) = shard::start(core, Box::new(move || Ok(open())), Settings::default(), publish).unwrap();
    let gate = Arc::new(Gate::open(folder).unwrap());
    let (audit, _) = Audit::start(folder).unwrap();
    Arc::new(Server::new(&config, shard, outlets, 0, Guard { gate, audit, tls: None }))
}

/// A server in memory, with a token of each role for two tenants and one for all.
struct Rig {
    server: Arc<Server>,
    folder: tempfile::TempDir,
    tokens: Vec<(String, String)>,
    stop: watch::Sender<bool>,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let mut tokens = Vec::new();
        for tenant in ["acme", "beta"] {
            for role in ROLES {
                let name = format!("{tenant}-{role}");
                tokens.push((name.clone(), make(folder.path(), &name, role, tenant)));
            }
        }
        tokens.push(("all".to_owned(), make(folder.path(), "all", Role::Admin, "*")));
        let server = server(folder.path(), crate::config::Raw::default());
        Rig { server, folder, tokens, stop: watch::Sender::new(false) }
    }

    fn token(&self, name: &str) -> &str {
        &self.tokens.iter().find(|(known, _)| known == name).unwrap().1
    }

    /// A connection that has shown nothing.
    fn stranger(&self) -> Talk {
        let (near, far) = tokio::io::duplex(1 << 20);
        tokio::spawn(Redis::here(self.server.clone()).serve(far, Remote::none(), self.stop.subscribe()));
        Talk { stream: near, input: BytesMut::new(), decoder: Decoder::new() }
    }

    async fn connect(&self, name: &str) -> Talk {
        let mut talk = self.stranger();
        assert_eq!(talk.call(&["AUTH", self.token(name)]).await, Frame::ok());
        talk
    }

    /// An HTTP request; the status and the whole text.
    async fn http(
        &self,
        method: &Method,
        path: &str,
        token: Option<&str>,
        tenant: Option<&str>,
        body: &str,
    ) -> (StatusCode, String) {
        let mut request =
            Request::builder().method(method).uri(path).header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(tenant) = tenant {
            request = request.header("x-haul-tenant", tenant);
        }
        let request = request.extension(Remote::none()).body(Body::from(body.to_owned())).unwrap();
        let router = crate::net::web::guarded(crate::http::router(self.server.clone()), &self.server);
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        // An event stream has no end: what comes at once is enough.
        let read = axum::body::to_bytes(response.into_body(), 1 << 20);
        let bytes = tokio::time::timeout(Duration::from_secs(1), read).await;
        (status, bytes.map(|bytes| String::from_utf8_lossy(&bytes.unwrap()).into_owned()).unwrap_or_default())
    }
}

/// One connection.
struct Talk {
    stream: DuplexStream,
    input: BytesMut,
    decoder: Decoder,
}

impl Talk {
    async fn send(&mut self, args: &[impl AsRef<[u8]>]) {
        let mut out = BytesMut::new();
        encode_request(args, &mut out);
        self.stream.write_all(&out).await.unwrap();
    }

    async fn read(&mut self) -> Frame {
        loop {
            let (used, frame) = self.decoder.feed(&self.input, &Limits::for_replies()).unwrap();
            self.input.advance(used);
            if let Some(frame) = frame {
                return frame;
            }
            let bytes = tokio::time::timeout(Duration::from_secs(20), self.stream.read_buf(&mut self.input));
            assert!(bytes.await.unwrap().unwrap() > 0, "the connection was closed");
        }
    }

    async fn call(&mut self, args: &[impl AsRef<[u8]>]) -> Frame {
        self.send(args).await;
        self.read().await
    }

    async fn words(&mut self, line: &str) -> Frame {
        self.call(&line.split(' ').collect::<Vec<_>>()).await
    }
}

/// The requests of the table as they go over the wire, with how they are understood.
fn requests() -> Vec<(String, Vec<String>)> {
    let lines = REQUESTS.lines().filter(|line| !line.is_empty());
    // Nothing will ever come for these, and there is nothing to see while they wait.
    lines.map(|line| (line.to_owned(), wire(line))).filter(|(line, _)| !line.starts_with("k brpop")).collect()
}

fn wire(line: &str) -> Vec<String> {
    let (dialect, words) = line.split_once(' ').unwrap();
    let script = match dialect {
        "h" => return format!("HAUL.{words}").split(' ').map(str::to_owned).collect(),
        "k" => return words.split(' ').map(str::to_owned).collect(),
        "o" => return format!("FCALL {words}").split(' ').map(str::to_owned).collect(),
        "q" => "ed7cb6988e28750518b1c1f25c98d865dc370952",
        "e" => "e22308e0c17253ff34e753088c8e9954c52a6dae",
        "t" => "9c9147f2518c96647f55eb15f00b1ee40fa49cd0",
        "r" => "7f76c23b76e859b6f3f7b0ec7c0ea07bcb94a5fd",
        other => panic!("unknown dialect {other}"),
    };
    format!("EVALSHA {script} 0 {words}").split(' ').map(str::to_owned).collect()
}

/// The role the table's request needs, by the engine's command it becomes.
fn role_of(line: &str) -> Role {
    let (dialect, words) = line.split_once(' ').unwrap();
    let env = Env {
        tenant: haul_engine::Name::new(b""),
        clock: 100.0,
        limits: DataLimits::default(),
        lua_data: false,
        blueque_strict: false,
        error_format: ErrorFormat::Clean,
    };
    let words: Vec<Vec<u8>> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    needs(&read(dialect.chars().next().unwrap(), &words, &env).unwrap().call.command)
}

/// What is said to the server besides jobs; nothing of it may reach another tenant.
const OTHERS: &[&str] = &[
    "PING",
    "ECHO x",
    "INFO",
    "INFO all",
    "DBSIZE",
    "KEYS *",
    "SCAN 0 COUNT 1000",
    "SCAN 5 COUNT 1000",
    "PUBLISH news x",
    "PUBLISH ql:w:w1 x",
    "PUBSUB CHANNELS",
    "PUBSUB CHANNELS *",
    "PUBSUB NUMSUB news",
    "PUBSUB NUMPAT",
    "CONFIG GET *",
    "CONFIG SET slowlog-max-len 5",
    "CONFIG RESETSTAT",
    "SCRIPT FLUSH",
    "SCRIPT EXISTS ed7cb6988e28750518b1c1f25c98d865dc370952",
    "CLIENT ID",
    "CLIENT GETNAME",
    "CLIENT LIST",
    "COMMAND",
    "SLOWLOG GET",
    "TIME",
    "WATCH ql:j:j1 s",
    "UNWATCH",
    "SELECT 0",
    "SELECT 1",
    "SELECT 15",
    "SELECT beta",
    "SELECT default",
    "FLUSHDB",
    "FLUSHALL",
    "MONITOR",
    "DEBUG SLEEP 0",
    "SAVE",
    "SHUTDOWN",
    "REPLICAOF no one",
];

/// Jobs and the rest for tenant beta, of the very names that the table uses.
async fn furnish(beta: &mut Talk) {
    let data = format!("{{\"secret\":\"{MARK}\"}}");
    for line in [
        format!("HAUL.PUT q1 {MARK} {data} JID j1 TAG t1 TAG t2"),
        format!("HAUL.PUT q1 {MARK} {data} JID j2 DEPENDS j1 THROTTLE th TAG {MARK}"),
        format!("HAUL.PUT q2 {MARK} {data} JID j3 DELAY 1000"),
        format!("HAUL.PUT {MARK} {MARK} {data} JID j5"),
        format!("HAUL.PUT q3 {MARK} {data} JID {MARK}"),
        format!("HAUL.RECUR q1 {MARK} {data} INTERVAL 500000 OFFSET 500000 JID r1"),
        format!("HAUL.POP {MARK} QUEUES q3"),
        format!("HAUL.FAIL {MARK} {MARK} group {MARK}"),
        format!("HAUL.POP w1 QUEUES {MARK}"),
        "HAUL.TRACK j1".to_owned(),
        format!("HAUL.CONFIG SET {MARK} {MARK}"),
        "HAUL.THROTTLE SET th 7".to_owned(),
        format!("SET s {MARK}"),
        format!("RPUSH l {MARK}"),
        format!("HSET h f {MARK}"),
    ] {
        let frame = beta.words(&line).await;
        assert!(!matches!(frame, Frame::Error(_)), "{line}: {frame:?}");
    }
}

/// Everything beta can see of its own.
async fn snapshot(beta: &mut Talk) -> String {
    let mut text = String::new();
    for line in [
        "KEYS *",
        "HAUL.QUEUES",
        "HAUL.MGET j1 j2 j3 j4 j5 r1 only-beta-knows",
        "HAUL.GETRECUR r1",
        "HAUL.WORKERS",
        "HAUL.WORKERS w1",
        "HAUL.FAILED",
        "HAUL.TRACKED",
        "HAUL.TAGS OFFSET 0 COUNT 100",
        "HAUL.CONFIG GET",
        "HAUL.THROTTLE GET th",
        "HAUL.THROTTLE LOCKS th",
        "GET s",
        "LRANGE l 0 -1",
        "HGETALL h",
        "PUBSUB CHANNELS *",
    ] {
        let mut frame = beta.words(line).await;
        if let Frame::Array(items) = &mut frame {
            items.sort_by_key(|item| format!("{item:?}"));
        }
        text.push_str(&format!("{line}: {frame:?}\n"));
    }
    // How long ago a worker was heard of is time's doing, nobody's; and so is how long a throttle still lasts.
    let text = ["silent", "gone"].iter().fold(text, |text, life| text.replace(life, "alive"));
    let mut parts = text.split("ttl");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, rest| {
        let digit = |letter: char| letter.is_ascii_digit();
        let (before, after) = rest.split_at(rest.find(digit).unwrap_or(0));
        text + "ttl" + before + after.trim_start_matches(digit)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_of_one_tenant_reads_or_changes_what_another_has() {
    let rig = Rig::new();
    let mut beta = rig.connect("beta-admin").await;
    furnish(&mut beta).await;
    let mut listener = rig.connect("beta-view").await;
    assert!(matches!(listener.words("PSUBSCRIBE *").await, Frame::Array(_)));
    let before = snapshot(&mut beta).await;
    assert!(before.contains(MARK));
    let mut acme = rig.connect("acme-admin").await;
    let others = OTHERS.iter().map(|line| ((*line).to_owned(), line.split(' ').map(str::to_owned).collect()));
    for (line, words) in requests().into_iter().chain(others.collect::<Vec<(String, Vec<String>)>>()) {
        let reply = format!("{:?}", acme.call(&words).await);
        assert!(!reply.contains(MARK), "{line} tells what is beta's: {reply}");
        let after = snapshot(&mut beta).await;
        assert!(before == after, "{line} changed what is beta's: {before}\n---\n{after}");
        for verb in [["MULTI"].as_slice(), &words.iter().map(String::as_str).collect::<Vec<_>>(), &["EXEC"]] {
            let reply = format!("{:?}", acme.call(verb).await);
            assert!(!reply.contains(MARK), "{line} in a transaction tells what is beta's: {reply}");
        }
    }
    assert!(snapshot(&mut beta).await == before);
    // Nothing of all this was heard by beta: the next thing it hears is its own.
    beta.words("PUBLISH own x").await;
    let heard = format!("{:?}", listener.read().await);
    assert!(heard.contains("own"), "{heard}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_needs_its_role_and_a_refused_one_changes_nothing() {
    let rig = Rig::new();
    let mut all = Vec::new();
    for role in ROLES {
        all.push((role, rig.connect(&format!("beta-{role}")).await));
    }
    let mut admin = rig.connect("beta-admin").await;
    furnish(&mut admin).await;
    for (line, words) in requests() {
        let needed = role_of(&line);
        for (role, talk) in &mut all {
            let mut before = String::new();
            if *role < needed {
                // The first look tidies up what has fallen due.
                drop(snapshot(&mut admin).await);
                before = snapshot(&mut admin).await;
            }
            let reply = format!("{:?}", talk.call(&words).await);
            if *role < needed {
                assert!(
                    reply.contains(&format!("NOPERM this needs the role {needed}")),
                    "{role} {line}: {reply}"
                );
                let after = snapshot(&mut admin).await;
                assert!(before == after, "{role} {line} changed something: {before}\n---\n{after}");
            } else {
                assert!(!reply.contains("NOPERM") && !reply.contains("NOAUTH"), "{role} {line}: {reply}");
            }
        }
    }
    for (line, needed) in [("PUBLISH c x", Role::Work), ("FLUSHDB", Role::Admin), ("FLUSHALL", Role::Admin)] {
        for (role, talk) in &mut all {
            let reply = format!("{:?}", talk.words(line).await);
            assert_eq!(*role < needed, reply.contains("NOPERM"), "{role} {line}: {reply}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_nothing_is_answered_but_how_to_show_one() {
    let rig = Rig::new();
    let mut stranger = rig.stranger();
    let others = OTHERS.iter().map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    for words in requests().into_iter().map(|(_, words)| words).chain(others) {
        if words.len() > 10 {
            continue;
        }
        assert_eq!(
            stranger.call(&words).await,
            Frame::Error("NOAUTH Authentication required.".into()),
            "{words:?}"
        );
    }
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    for line in ["AUTH x", "AUTH default x", "HELLO 3 AUTH acme-work x"] {
        assert_eq!(stranger.words(line).await, Frame::Error(wrong.into()), "{line}");
    }
    let token = rig.token("acme-work").to_owned();
    assert_eq!(
        stranger.call(&["AUTH", "beta-work", &token]).await,
        Frame::Error(wrong.into()),
        "another's name"
    );
    assert!(
        matches!(stranger.words("HELLO 3").await, Frame::Error(text) if text.starts_with("NOAUTH HELLO"))
    );
    assert!(matches!(stranger.call(&["HELLO", "3", "AUTH", "acme-work", &token]).await, Frame::Map(_)));
    assert_eq!(stranger.words("PING").await, Frame::Simple("PONG".into()));
    assert_eq!(stranger.words("RESET").await, Frame::Simple("RESET".into()));
    assert_eq!(stranger.words("PING").await, Frame::Error("NOAUTH Authentication required.".into()));
    // Too much of it, before a token is shown, ends the connection.
    let mut flood = rig.stranger();
    flood.send(&["AUTH"; 11]).await;
    assert!(matches!(flood.read().await, Frame::Error(text) if text.contains("Protocol error")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_one_tenant_stays_there_and_one_for_all_chooses() {
    let rig = Rig::new();
    let mut acme = rig.connect("acme-work").await;
    assert_eq!(acme.words("SELECT 0").await, Frame::ok());
    assert_eq!(acme.words("SELECT acme").await, Frame::ok());
    for tenant in ["1", "beta", "default"] {
        let refused = acme.words(&format!("SELECT {tenant}")).await;
        assert_eq!(refused, Frame::Error("NOPERM this token is for the tenant acme only".into()), "{tenant}");
    }
    assert!(!format!("{:?}", acme.words("HAUL.PUT q k {} JID a1").await).contains("rror"));
    let mut all = rig.connect("all").await;
    assert_eq!(all.words("HAUL.GET a1").await, Frame::Nil);
    assert_eq!(all.words("SELECT acme").await, Frame::ok());
    assert!(matches!(all.words("HAUL.GET a1").await, Frame::Bulk(_)));
    assert!(format!("{:?}", all.words("INFO").await).contains("haul_jobs"));
    assert!(!format!("{:?}", acme.words("INFO").await).contains("haul_jobs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_token_ends_open_connections_subscriptions_and_waits() {
    let rig = Rig::new();
    let mut idle = rig.connect("acme-work").await;
    let mut listener = rig.connect("acme-work").await;
    listener.words("SUBSCRIBE news").await;
    let mut waiter = rig.connect("acme-work").await;
    waiter.send(&["HAUL.POP", "w", "WAIT", "600", "QUEUES", "q"]).await;
    let mut other = rig.connect("acme-admin").await;
    assert_eq!(idle.words("PING").await, Frame::Simple("PONG".into()));
    super::tokens::Change::begin(rig.folder.path()).unwrap().remove("acme-work").unwrap();
    let watching = tokio::spawn(rig.server.gate.clone().watch(Box::new(|_, _| ())));
    let no_more = Frame::Error("NOAUTH Authentication required.".into());
    assert_eq!(listener.read().await, no_more);
    assert_eq!(waiter.read().await, no_more);
    assert_eq!(idle.words("PING").await, no_more);
    assert_eq!(other.words("PING").await, Frame::Simple("PONG".into()), "the others stay");
    watching.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_do_and_try_is_written_down() {
    let rig = Rig::new();
    let mut work = rig.connect("acme-work").await;
    let mut operate = rig.connect("acme-operate").await;
    work.words("HAUL.PUT q k {\"password\":1} JID j1").await;
    work.words("HAUL.CANCEL j1").await;
    operate.words("HAUL.CANCEL j1").await;
    operate.words("HAUL.PRIORITY none 5").await;
    operate.words("MULTI").await;
    operate.words("HAUL.PAUSE q").await;
    operate.words("EXEC").await;
    let (all, token) = (Method::DELETE, rig.token("acme-operate").to_owned());
    drop(rig.http(&all, "/api/v1/jobs/j9", Some(&token), None, "").await);
    let denied = rig.http(&Method::GET, "/api/v1/audit", Some(&token), None, "").await;
    assert_eq!(denied.0, StatusCode::FORBIDDEN, "{}", denied.1);
    rig.server.audit.stop();
    let lines = loop {
        let lines = super::audit::last(rig.folder.path(), 10, None).unwrap();
        if lines.len() >= 4 {
            break lines.join("\n");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    for (token, action, outcome) in [
        ("acme-work", "cancel", "NOPERM"),
        ("acme-operate", "cancel", "done"),
        ("acme-operate", "priority", "NOJOB"),
        ("acme-operate", "pause", "done"),
    ] {
        let fits = |line: &&str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["token"] == token
                && line["action"] == action
                && line["outcome"] == outcome
                && line["tenant"] == "acme"
        };
        assert!(lines.lines().any(|line| fits(&line)), "{token} {action} {outcome} is not in {lines}");
    }
    assert!(!lines.contains("password") && !lines.contains("haul_"));
}

/// Every route there is, as its description lists them: the method, the path, an example of its document.
fn routes() -> Vec<(Method, String, String)> {
    let description: serde_json::Value = serde_json::from_str(&crate::http::description()).unwrap();
    let mut all = Vec::new();
    // The page and its login are open to everybody: see the test of their own.
    let paths = description["paths"].as_object().unwrap();
    for (path, methods) in paths.iter().filter(|(path, _)| !path.starts_with("/ui/")) {
        let mut path = path.clone();
        for (part, name) in
            [("jid", "j1"), ("queue", "q1"), ("worker", "w1"), ("tag", "t1"), ("group", "group")]
        {
            path = path.replace(&format!("{{{part}}}"), name);
        }
        while let (Some(start), Some(end)) = (path.find('{'), path.find('}')) {
            path.replace_range(start..=end, "th");
        }
        for method in methods.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            for body in ["", "{}", "[]", BODY] {
                all.push((method.clone(), path.clone(), body.to_owned()));
            }
        }
    }
    // Those that are not in the description.
    for path in ["/metrics", "/api/v1/nowhere", "/", "/queues", "/job/j1", "/get/q1", "/get/q1/5", "/q1/5"] {
        all.push((Method::GET, path.to_owned(), String::new()));
    }
    for path in ["/add/q1", "/heartbeat/q1", "/complete/q1", "/fail/q1"] {
        for body in ["{}", "[]", BODY, "[{\"id\":\"j1\",\"data\":{}}]", "{\"id\":\"j1\",\"data\":{}}"] {
            all.push((Method::POST, path.to_owned(), body.to_owned()));
        }
    }
    all
}

/// Has most of what documents have.
const BODY: &str = r#"{"jid":"j1","jids":["j1","j2"],"queue":"q1","queues":["q1"],"klass":"k","data":{},"worker":"w1",
    "attempt":1,"group":"group","message":"m","count":5,"priority":1,"tags":["t1"],"option":"o","value":"5","maximum":1,
    "workers":["w1"],"interval":50,"paused":true,"depends":["j1"]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn no_route_lets_one_tenant_read_or_change_what_another_has() {
    let rig = Rig::new();
    let mut beta = rig.connect("beta-admin").await;
    furnish(&mut beta).await;
    let before = snapshot(&mut beta).await;
    let (acme, view) = (rig.token("acme-admin").to_owned(), rig.token("beta-view").to_owned());
    for (method, path, body) in routes() {
        let line = format!("{method} {path} {body:.40}");
        for token in [None, Some("haul_wrong")] {
            let (status, text) = rig.http(&method, &path, token, None, &body).await;
            let wanted = [StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS];
            assert!(wanted.contains(&status), "{line}: {status} {text}");
        }
        let (status, text) = rig.http(&method, &path, Some(&acme), Some("beta"), &body).await;
        let refused = status.is_client_error() && !text.contains(MARK);
        assert!(refused, "{line} in beta's name: {status} {text}");
        let (status, text) = rig.http(&method, &path, Some(&acme), None, &body).await;
        assert!(!text.contains(MARK), "{line} tells what is beta's: {status} {text}");
        assert!(before == snapshot(&mut beta).await, "{line} changed what is beta's");
        let (status, text) = rig.http(&method, &path, Some(&view), None, &body).await;
        assert!(status != StatusCode::UNAUTHORIZED, "{line}: {text}");
        assert!(before == snapshot(&mut beta).await, "{line} let the role view change something");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_open_and_a_token_logs_in() {
    let rig = Rig::new();
    let mut beta = rig.connect("beta-admin").await;
    furnish(&mut beta).await;
    for path in ["/ui", "/ui/", "/ui/job?jid=j1", "/ui/app.js"] {
        let (status, text) = rig.http(&Method::GET, path, None, None, "").await;
        assert!(status.is_success() || status.is_redirection(), "{path}: {status}");
        assert!(!text.contains(MARK), "{path} tells what is beta's");
    }
    let login = async |document: String| rig.http(&Method::POST, "/ui/login", None, None, &document).await.0;
    assert_eq!(login("{}".to_owned()).await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(login(r#"{"token":"haul_wrong"}"#.to_owned()).await, StatusCode::UNAUTHORIZED);
    let token = rig.token("beta-view").to_owned();
    assert_eq!(login(format!(r#"{{"token":"{token}"}}"#)).await, StatusCode::NO_CONTENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_needs_no_token_and_figures_of_all_need_one_for_all() {
    let rig = Rig::new();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(rig.http(&Method::GET, path, None, None, "").await.0, StatusCode::OK);
    }
    let token = rig.token("acme-admin").to_owned();
    assert_eq!(rig.http(&Method::GET, "/metrics", None, None, "").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(rig.http(&Method::GET, "/metrics", Some(&token), None, "").await.0, StatusCode::FORBIDDEN);
    let all = rig.token("all").to_owned();
    assert_ne!(rig.http(&Method::GET, "/metrics", Some(&all), None, "").await.0, StatusCode::FORBIDDEN);
    let path = "/api/v1/jobs/none";
    assert_eq!(rig.http(&Method::GET, path, Some(&token), Some("acme"), "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(rig.http(&Method::GET, path, Some(&token), Some("beta"), "").await.0, StatusCode::FORBIDDEN);
    assert_eq!(rig.http(&Method::GET, path, Some(&all), Some("beta"), "").await.0, StatusCode::NOT_FOUND);
}
