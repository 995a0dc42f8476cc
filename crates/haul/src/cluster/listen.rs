//! Being asked by another node: its calls go to the shard they name, if that is here, as any client's would.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::io::{BufReader, ReadHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::keeper::Poke;
use super::outward::Outward;
use super::route::Routes;
use super::tls::{Line, Seal};
use super::wire::{self, Ask, Said, Tell};
use crate::shard::{Delivery, Gone};

/// For the greeting.
const GREETING_MAX: Duration = Duration::from_secs(3);
/// A node that says nothing for this long, not even that it lives, is cut off.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Nodes connected at once.
const NODES_MAX: usize = 4096;

/// What an asked node needs.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) routes: Arc<Routes>,
    pub(super) outward: Outward,
    pub(super) seal: Seal,
    pub(super) poke: Poke,
}

/// Serves other nodes until dropped.
pub(super) async fn serve(listener: TcpListener, asked: Asked) {
    let mut nodes = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) if nodes.len() < NODES_MAX => {
                nodes.spawn(node(stream, asked.clone()));
            }
            Ok(_) => tracing::warn!("too many nodes are connected (nodes-max is {NODES_MAX})"),
            Err(error) => {
                tracing::warn!(%error, "a node could not be let in");
                tokio::time::sleep(GREETING_MAX).await;
            }
        }
        while nodes.try_join_next().is_some() {}
    }
}

async fn node(stream: TcpStream, asked: Asked) {
    let peer = stream.peer_addr().map(|address| address.to_string()).unwrap_or_default();
    let line = match timeout(GREETING_MAX, asked.seal.accept(stream)).await {
        Ok(Ok(line)) => line,
        Ok(Err(error)) => return tracing::warn!(peer, %error, "a node was turned away"),
        Err(_) => return tracing::warn!(peer, "a node was turned away: it did not say in time who it is"),
    };
    let (read, mut write) = tokio::io::split(line);
    let (frames, mut ready) = mpsc::unbounded_channel::<Vec<u8>>();
    let id = asked.outward.join(frames.clone());
    let writing = async {
        while let Some(frame) = ready.recv().await {
            if wire::send(&mut write, &frame, ready.is_empty()).await.is_err() {
                return;
            }
        }
    };
    let mut reading =
        Reading { id, asked: asked.clone(), frames, tasks: JoinSet::new(), waits: HashMap::new() };
    tokio::select! {
        () = writing => {}
        () = reading.run(BufReader::new(read)) => {}
    }
    asked.outward.leave(id);
}

/// One node's questions.
struct Reading {
    id: u64,
    asked: Asked,
    frames: mpsc::UnboundedSender<Vec<u8>>,
    /// Dropped, everything that waits on the node's behalf is given up.
    tasks: JoinSet<u64>,
    waits: HashMap<u64, AbortHandle>,
}

impl Reading {
    async fn run(&mut self, mut read: BufReader<ReadHalf<Line>>) {
        loop {
            match timeout(SILENCE_MAX, wire::read::<Ask>(&mut read)).await {
                Ok(Ok(ask)) => self.hear(ask),
                Ok(Err(_)) | Err(_) => return,
            }
            while let Some(done) = self.tasks.try_join_next() {
                done.into_iter().for_each(|id| drop(self.waits.remove(&id)));
            }
        }
    }

    fn hear(&mut self, ask: Ask) {
        match ask {
            Ask::Calls { id, shard, calls, watched, wait } => match self.asked.routes.here(shard) {
                // Given to the shard here, so that a node's questions reach it in their order.
                Some(shard) => self.answer(id, wait.is_some(), shard.send(calls, watched, wait)),
                None => self.tell(&Tell::NotHere { id }),
            },
            Ask::Cancel { id } => {
                self.waits.remove(&id).into_iter().for_each(|task| task.abort());
            }
            Ask::Listen { events, notices } => self.asked.outward.listen(self.id, events, notices),
            Ask::Publish { tenant, channel, payload } => {
                self.asked.outward.hear_message(&tenant, &channel, &payload);
            }
            Ask::Presence(presence) => self.asked.poke.tell(presence),
            Ask::Ping { id } => self.tell(&Tell::Pong { id }),
        }
    }

    fn answer(
        &mut self,
        id: u64,
        waits: bool,
        answer: impl Future<Output = Result<Delivery, Gone>> + Send + 'static,
    ) {
        let frames = self.frames.clone();
        let task = self.tasks.spawn(async move {
            let tell = match answer.await {
                Err(Gone) => Tell::NotHere { id },
                Ok(delivery) => Tell::Answer { id, outcomes: whole(delivery).await },
            };
            if let Ok(frame) = wire::frame(&tell) {
                let _ = frames.send(frame);
            }
            id
        });
        if waits {
            self.waits.insert(id, task);
        }
    }

    fn tell(&self, tell: &Tell) {
        if let Ok(frame) = wire::frame(tell) {
            let _ = self.frames.send(frame);
        }
    }
}

/// All outcomes with all their bodies.
async fn whole(delivery: Delivery) -> Option<Vec<Said>> {
    let mut outcomes = VecDeque::from(delivery.outcomes?);
    let mut said = Vec::with_capacity(outcomes.len());
    while let Some(first) = outcomes.front_mut() {
        if first.lacks_bodies() {
            let count = outcomes.len();
            outcomes = match crate::shard::read_ahead(outcomes).await {
                Ok(outcomes) => outcomes,
                Err(fault) => (0..count).map(|_| crate::shard::Outcome::Fault(fault.clone())).collect(),
            };
        }
        said.extend(outcomes.pop_front().map(Said::from));
    }
    Some(said)
}
