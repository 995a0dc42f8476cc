//! Asking another node: one connection to it, kept up while the node lives. Whoever asks learns one of three things: the
//! answer, that nothing was done, or that nobody knows whether it was.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use haul_engine::{Call, Name};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::outward::Outward;
use super::tls::{Line, Seal};
use super::wire::{self, Ask, Tell};
use crate::shard::Delivery;

/// Between attempts to connect.
const RETRY: Duration = Duration::from_millis(200);
/// For a connection to be made and greeted.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Between signs that the connection lives.
const PING_EVERY: Duration = Duration::from_secs(1);
/// Without a word for this long, it does not.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// What came of a question.
pub(crate) enum Told {
    Answer(Delivery),
    /// Nothing was done.
    NotDone,
    /// The connection broke, or the node is no longer the one to ask: it may have been done, or not.
    Unknown,
}

/// A link to one node. It ends when dropped.
pub(crate) struct Link {
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    next_id: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// While there is a connection.
    sender: Option<mpsc::UnboundedSender<Vec<u8>>>,
    asked: HashMap<u64, Asked>,
}

struct Asked {
    /// None: a ping.
    shard: Option<u32>,
    told: oneshot::Sender<Told>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message; false: there is no connection.
    fn send(&self, ask: &Ask) -> bool {
        let Ok(frame) = wire::frame(ask) else { return false };
        self.state().sender.as_ref().is_some_and(|sender| sender.send(frame).is_ok())
    }

    fn settle(&self, id: u64, told: Told) {
        if let Some(asked) = self.state().asked.remove(&id) {
            let _ = asked.told.send(told);
        }
    }
}

impl Link {
    /// Connects, again and again.
    pub(super) fn start(address: String, seal: Seal, outward: Outward) -> Self {
        let shared = Arc::<Shared>::default();
        let task = tokio::spawn(keep_up(address, seal, outward, shared.clone()));
        Link { shared, task }
    }

    /// Asks; cancelled, nobody waits for the answer over there either.
    pub(crate) async fn ask(
        &self,
        shard: u32,
        calls: Vec<Call>,
        watched: Vec<(Name, Name, u64)>,
        wait: Option<f64>,
    ) -> Told {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        self.question(id, Some(shard), &Ask::Calls { id, shard, calls, watched, wait }).await
    }

    /// Everything sent before has arrived when this returns.
    pub(crate) async fn ping(&self) {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        self.question(id, None, &Ask::Ping { id }).await;
    }

    async fn question(&self, id: u64, shard: Option<u32>, ask: &Ask) -> Told {
        let (told, answer) = oneshot::channel();
        self.shared.state().asked.insert(id, Asked { shard, told });
        let _given_up = GivenUp { id, shared: &self.shared };
        if !self.shared.send(ask) {
            return Told::NotDone;
        }
        answer.await.unwrap_or(Told::Unknown)
    }

    /// Says something that has no answer.
    pub(super) fn say(&self, ask: &Ask) {
        self.shared.send(ask);
    }

    /// The shard is elsewhere now: who asked this node for it will not hear of it.
    pub(crate) fn forget(&self, shard: u32) {
        let mut state = self.shared.state();
        let gone: Vec<u64> =
            state.asked.iter().filter(|(_, asked)| asked.shard == Some(shard)).map(|(id, _)| *id).collect();
        for id in gone {
            if let Some(asked) = state.asked.remove(&id) {
                let _ = asked.told.send(Told::Unknown);
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        *self.shared.state() = State::default();
    }
}

/// Tells the other node when nobody waits for an answer any more.
struct GivenUp<'a> {
    id: u64,
    shared: &'a Shared,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if self.shared.state().asked.remove(&self.id).is_some() {
            self.shared.send(&Ask::Cancel { id: self.id });
        }
    }
}

async fn keep_up(address: String, seal: Seal, outward: Outward, shared: Arc<Shared>) {
    let mut said = None;
    loop {
        let error = match timeout(CONNECT_MAX, connect(&address, &seal)).await {
            Ok(Ok(stream)) => {
                said = None;
                talk(stream, &outward, &shared).await
            }
            Ok(Err(error)) => error,
            Err(_) => std::io::Error::other("no answer"),
        };
        // What was asked may have been done; what was not sent was not (`Link::question`).
        *shared.state() = State::default();
        let error = error.to_string();
        if said.as_ref() != Some(&error) {
            tracing::warn!(node = address, error, "no link to the node; trying again");
            said = Some(error);
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn connect(address: &str, seal: &Seal) -> std::io::Result<Line> {
    seal.connect(TcpStream::connect(address).await?).await
}

/// Until the connection ends.
async fn talk(stream: Line, outward: &Outward, shared: &Shared) -> std::io::Error {
    let (read, mut write) = tokio::io::split(stream);
    let mut read = BufReader::new(read);
    let (sender, mut frames) = mpsc::unbounded_channel::<Vec<u8>>();
    // First what is to be told, so that a look that follows is behind it.
    if let Ok(listen) = wire::frame(&outward.interest()) {
        let _ = sender.send(listen);
    }
    shared.state().sender = Some(sender);
    let writing = async {
        let mut beat = tokio::time::interval(PING_EVERY);
        loop {
            let frame = tokio::select! {
                frame = frames.recv() => frame,
                _ = beat.tick() => wire::frame(&Ask::Ping { id: u64::MAX }).ok(),
            };
            let Some(frame) = frame else { return std::io::Error::other("closed") };
            if let Err(error) = wire::send(&mut write, &frame, frames.is_empty()).await {
                return error;
            }
        }
    };
    let reading = async {
        loop {
            match timeout(SILENCE_MAX, wire::read::<Tell>(&mut read)).await {
                Ok(Ok(tell)) => hear(tell, outward, shared),
                Ok(Err(error)) => return error,
                Err(_) => return std::io::Error::other("it has fallen silent"),
            }
        }
    };
    tokio::select! {
        error = writing => error,
        error = reading => error,
    }
}

fn hear(tell: Tell, outward: &Outward, shared: &Shared) {
    match tell {
        Tell::Answer { id, outcomes } => {
            let outcomes = outcomes.map(|all| all.into_iter().map(Into::into).collect());
            shared.settle(id, Told::Answer(Delivery { outcomes }));
        }
        Tell::NotHere { id } | Tell::Pong { id } => shared.settle(id, Told::NotDone),
        Tell::Events { tenant, events } => outward.hear_events(&tenant, events),
        Tell::Notices { tenant, notices } => outward.hear_notices(&tenant, notices),
    }
}
