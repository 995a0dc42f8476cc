//! A server that does nothing but what no durable server can do without: it reads commands, appends some bytes for each to a file,
//! syncs that once for all who came together, and answers. It lives on a thread of its own, connections and disk, as a shard on
//! a lane does.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, BufMut, BytesMut};
use haul_client::resp::encode_request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::{LocalSet, spawn_local, yield_now};

use super::append::Tape;
use super::server::{Spent, own_cpu_seconds};
use crate::clock;

/// Room for commands before each read.
const READ_BYTES: usize = 16 << 10;

/// The server, from outside. It lasts as long as the process.
pub(super) struct Synced {
    pub(super) address: String,
    figures: Arc<Figures>,
}

#[derive(Default)]
struct Figures {
    syncs: AtomicU64,
    bytes: AtomicU64,
    cpu_micros: AtomicU64,
}

impl Synced {
    /// What was used up to now.
    pub(super) fn spent(&self) -> Spent {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed) as f64;
        let cpu_seconds = read(&self.figures.cpu_micros) / 1e6;
        Spent {
            cpu_seconds,
            fsyncs: Some(read(&self.figures.syncs)),
            bytes: Some(read(&self.figures.bytes)),
            // It is a thread of this process.
            own_cpu_seconds: own_cpu_seconds() - cpu_seconds,
        }
    }
}

/// Those who wait for the next sync.
#[derive(Default)]
struct Round {
    commands: Cell<usize>,
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
    came: Notify,
}

/// Starts it; each command writes so many bytes.
pub(super) fn start(folder: &Path, payload_bytes: usize) -> anyhow::Result<Synced> {
    let tape = Tape::new(folder)?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?.to_string();
    let figures = Arc::new(Figures::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let counted = figures.clone();
    let body = move || {
        let round = Rc::new(Round::default());
        LocalSet::new().block_on(&runtime, async {
            spawn_local(accept(listener, round.clone()));
            sync(tape, &round, payload_bytes, &counted).await
        })
    };
    std::thread::Builder::new().name("haul-synced".to_owned()).spawn(body)?;
    Ok(Synced { address, figures })
}

async fn accept(listener: std::net::TcpListener, round: Rc<Round>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        spawn_local(serve(stream, round.clone()));
    }
}

/// Takes in who comes while somebody comes, syncs, lets all go.
async fn sync(mut tape: Tape, round: &Round, payload_bytes: usize, figures: &Figures) -> std::io::Result<()> {
    loop {
        round.came.notified().await;
        let mut seen = 0;
        while seen < round.commands.get() {
            seen = round.commands.get();
            yield_now().await;
        }
        if seen == 0 {
            continue;
        }
        let bytes = vec![b'x'; round.commands.take() * payload_bytes];
        tape.append(&bytes)?;
        figures.syncs.fetch_add(1, Ordering::Relaxed);
        figures.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let cpu = u64::try_from(clock::thread_time().as_micros()).unwrap_or(u64::MAX);
        figures.cpu_micros.store(cpu, Ordering::Relaxed);
        for waiter in round.waiting.take() {
            // A client that left has no use for an answer.
            let _ = waiter.send(());
        }
    }
}

async fn serve(mut stream: TcpStream, round: Rc<Round>) -> std::io::Result<()> {
    let mut ping = BytesMut::new();
    encode_request(&["PING"], &mut ping);
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    loop {
        input.reserve(READ_BYTES);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        let commands = input.len() / ping.len();
        if commands == 0 {
            continue;
        }
        input.advance(commands * ping.len());
        let (done, synced) = oneshot::channel();
        round.commands.set(round.commands.get() + commands);
        round.waiting.borrow_mut().push(done);
        round.came.notify_one();
        if synced.await.is_err() {
            return Ok(());
        }
        (0..commands).for_each(|_| output.put_slice(b"+PONG\r\n"));
        stream.write_all(&output).await?;
        output.clear();
    }
}
