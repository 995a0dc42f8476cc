//! The real binary on a folder of the test's choosing, and a client that is only a socket: tests of crashes, faults and
//! hostile input need both to misbehave in ways that a proper client would not.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]
#![allow(clippy::disallowed_methods, reason = "a test that waits has a deadline")]

pub(crate) mod line;

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use haul_client::resp::{Decoder, Frame, Limits, encode_request};

/// No wait of a test is longer; reaching it is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The lines a server wrote so far, and whether there will be more.
#[derive(Default)]
struct Log {
    lines: Mutex<(Vec<String>, bool)>,
    grew: Condvar,
}

impl Log {
    fn follow(self: &Arc<Self>, from: impl Read + Send + 'static) {
        let log = Arc::clone(self);
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                log.lines.lock().unwrap().0.push(line);
                log.grew.notify_all();
            }
            log.lines.lock().unwrap().1 = true;
            log.grew.notify_all();
        });
    }

    /// Waits until a line has this in it; none: the output ended without.
    fn wait_for(&self, text: &str) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.lines.lock().unwrap();
        loop {
            if let Some(line) = state.0.iter().find(|line| line.contains(text)) {
                return Some(line.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.1 || left.is_zero() {
                return None;
            }
            state = self.grew.wait_timeout(state, left).unwrap().0;
        }
    }

    fn text(&self) -> String {
        self.lines.lock().unwrap().0.join("\n")
    }
}

/// A running server; dropping it kills it.
pub(crate) struct Server {
    child: Child,
    log: Arc<Log>,
    pub(crate) address: SocketAddr,
}

/// A server that ended instead of getting ready.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: Option<i32>,
    pub(crate) log: String,
}

impl Server {
    /// Starts on this folder and waits until it is ready.
    pub(crate) fn start(data: &Path, extra: &[&str]) -> Server {
        Self::try_start(data, extra).unwrap_or_else(|refused| panic!("the server did not start: {refused:?}"))
    }

    pub(crate) fn try_start(data: &Path, extra: &[&str]) -> Result<Server, Refused> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(["serve", "--redis", "127.0.0.1:0", "--http", "off", "--data"]).arg(data).args(extra);
        Self::spawn(command)
    }

    /// Runs any command that ends up as a server.
    pub(crate) fn spawn(mut command: Command) -> Result<Server, Refused> {
        let mut child =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let log = Arc::new(Log::default());
        log.follow(child.stderr.take().unwrap());
        let Some(ready) = log.wait_for("redis=") else {
            let code = child.wait().unwrap().code();
            return Err(Refused { code, log: log.text() });
        };
        let address = ready.split("redis=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        Ok(Server { child, log, address })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// As a power cut would, but for the disk's cache.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and waits.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn log(&self) -> String {
        self.log.text()
    }

    /// Where it serves HTTP.
    pub(crate) fn http(&self) -> String {
        let ready = self.log.wait_for("http=").unwrap();
        ready.split("http=").nth(1).unwrap().split(' ').next().unwrap().to_owned()
    }

    /// Waits until the server has logged this.
    pub(crate) fn wait_for(&self, text: &str) {
        assert!(self.log.wait_for(text).is_some(), "no line with {text:?} in:\n{}", self.log.text());
    }

    /// What it holds in memory.
    pub(crate) fn rss_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// One round trip on a connection of its own: others are served.
    pub(crate) fn assert_serving(&self) {
        assert_eq!(self.connect().call(&["PING"]), Frame::Simple("PONG".into()), "after:\n{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the server's log\n{}\n---", self.log.text());
        }
    }
}

/// What `haul doctor` says about a folder: its exit code and its words.
pub(crate) fn doctor(data: &Path) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_haul")).args(["doctor", "--data"]).arg(data).output().unwrap();
    let words = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&words).into_owned())
}

pub(crate) fn assert_healthy(data: &Path) {
    let (code, words) = doctor(data);
    assert_eq!(code, Some(0), "haul doctor found something:\n{words}");
}

/// A socket and the codec.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    input: BytesMut,
    decoder: Decoder,
    limits: Limits,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, input: BytesMut::new(), decoder: Decoder::new(), limits: Limits::for_replies() })
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn send(&mut self, args: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut out = BytesMut::new();
        encode_request(args, &mut out);
        self.send_bytes(&out)
    }

    /// The next reply; an error of kind `UnexpectedEof` when the server closed the connection.
    pub(crate) fn read(&mut self) -> io::Result<Frame> {
        loop {
            let fed = self.decoder.feed(&self.input, &self.limits);
            let (used, frame) = fed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            self.input.advance(used);
            if let Some(frame) = frame {
                return Ok(frame);
            }
            let mut buffer = [0; 16 << 10];
            let count = self.stream.read(&mut buffer)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.input.extend_from_slice(&buffer[..count]);
        }
    }

    pub(crate) fn try_call(&mut self, args: &[impl AsRef<[u8]>]) -> io::Result<Frame> {
        self.send(args)?;
        self.read()
    }

    pub(crate) fn call(&mut self, args: &[impl AsRef<[u8]>]) -> Frame {
        self.try_call(args).unwrap()
    }

    /// The error's text; anything else fails the test.
    pub(crate) fn refusal(&mut self, args: &[impl AsRef<[u8]>]) -> String {
        error_text(&self.call(args))
    }

    /// A JSON answer.
    pub(crate) fn json(&mut self, args: &[impl AsRef<[u8]>]) -> serde_json::Value {
        json(&self.call(args)).unwrap()
    }

    /// An array of names.
    pub(crate) fn names(&mut self, args: &[impl AsRef<[u8]>]) -> Vec<String> {
        match self.call(args) {
            Frame::Array(items) => items.iter().map(|item| text(item).unwrap()).collect(),
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The server has ended this connection: nothing more comes, or the reset that unread bytes cause.
    pub(crate) fn assert_closed(&mut self) {
        match self.read() {
            Err(error) if is_gone(&error) => {}
            other => panic!("the connection is still open: {other:?}"),
        }
    }
}

/// The peer is gone, in whichever way the socket says so.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

pub(crate) fn error_text(frame: &Frame) -> String {
    match frame {
        Frame::Error(text) => text.clone(),
        other => panic!("not an error: {:.200}", format!("{other:?}")),
    }
}

/// The text of a bulk or simple string.
pub(crate) fn text(frame: &Frame) -> Option<String> {
    match frame {
        Frame::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Frame::Simple(text) => Some(text.to_string()),
        _ => None,
    }
}

/// The JSON in a bulk string.
pub(crate) fn json(frame: &Frame) -> Option<serde_json::Value> {
    text(frame).map(|text| serde_json::from_str(&text).unwrap())
}

/// Tries until it holds; fails the test if it never does.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A small generator of random numbers (splitmix64): the same seed gives the same test.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// From `HAUL_SEED`, or from the clock; printed, so that a failure can be run again.
    pub(crate) fn seeded() -> Self {
        let from_clock =
            || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = std::env::var("HAUL_SEED").map_or_else(|_| from_clock(), |seed| seed.parse().unwrap());
        eprintln!("HAUL_SEED={seed}");
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to one less than `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}
