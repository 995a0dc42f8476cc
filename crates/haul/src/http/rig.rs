//! A server in this process on a store in memory, asked over HTTP as anybody would.

use std::net::SocketAddr;
use std::sync::Arc;

use haul_client::resp::Frame;
use haul_store::{MemoryDisk, Store};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::config::Raw;
use crate::dialect::{DataLimits, Env, ErrorFormat, Plan, native};
use crate::outlets::Outlets;
use crate::resp::Server;
use crate::shard::{self, Core, OpenStore, Settings};

/// Far longer than anything a test waits for.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) server: Arc<Server>,
    /// Kept: without it the server would stop.
    _stop: watch::Sender<bool>,
}

/// A status, and the text that came with it.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) text: String,
}

impl Rig {
    pub(crate) async fn new(raw: Raw) -> Rig {
        Rig::with(raw, |outlets| outlets).await
    }

    pub(crate) async fn with(raw: Raw, change: impl FnOnce(Outlets) -> Outlets) -> Rig {
        let disk = MemoryDisk::new();
        let core = Core::load(Box::new(disk.open())).unwrap();
        let opened = disk.clone();
        let open: OpenStore = Box::new(move || Ok(Box::new(opened.open()) as Box<dyn Store>));
        let mut config = raw.resolve(Raw::default()).unwrap();
        // Nothing is kept beside the jobs.
        config.data = "/nowhere".into();
        let outlets = change(Outlets::new(1 << 20));
        let (shard, _) = shard::start(core, open, Settings::default(), Box::new(outlets.clone())).unwrap();
        let guard = crate::resp::Guard {
            gate: Arc::new(crate::auth::Gate::open(std::path::Path::new("/nowhere")).unwrap()),
            audit: crate::auth::Audit::none(),
            tls: None,
        };
        let server = Arc::new(Server::new(&config, shard, outlets, 0, guard));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(super::serve(listener, server.clone(), stopped));
        Rig { address, server, _stop: stop }
    }

    /// Says a native command, as `PUT q k {} JID j`, for a tenant.
    pub(crate) async fn say_as(&self, tenant: &str, line: &str) -> Frame {
        let env = Env {
            tenant: tenant.into(),
            clock: crate::clock::now(),
            limits: DataLimits::default(),
            lua_data: false,
            blueque_strict: false,
            error_format: ErrorFormat::Clean,
        };
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let Plan { call, render, .. } = native::read(words[0], &words[1..], &env).unwrap();
        let delivery = self.server.shard.ask(vec![call], Vec::new()).await.unwrap();
        let outcome = delivery.outcomes.unwrap().pop().unwrap();
        let (reply, texts) = crate::shard::texts(outcome).await.unwrap();
        render.frame(reply, &texts)
    }

    pub(crate) async fn say(&self, line: &str) -> Frame {
        self.say_as("", line).await
    }

    /// Opens a request whose answer is read line by line: `METHOD path`, headers a line each, an empty line, the document.
    pub(crate) async fn open(&self, request: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
        let (first, headers) = head.split_once('\n').unwrap_or((head, ""));
        let headers: String = headers.lines().map(|line| format!("{line}\r\n")).collect();
        let text = format!("{first} HTTP/1.1\r\nhost: haul\r\n{headers}\r\n{body}");
        stream.write_all(text.as_bytes()).await.unwrap();
        BufReader::new(stream)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}\nconnection: close")).await
    }

    pub(crate) async fn ask(&self, request: &str) -> Answer {
        let mut stream = self.open(request).await;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, headers: head.to_owned(), text: body.to_owned() }
    }
}

/// The next line, without its end; none: the stream has ended.
pub(crate) async fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_line(&mut line)).await;
    match read.unwrap().unwrap() {
        0 => None,
        _ => Some(line.trim_end().to_owned()),
    }
}
