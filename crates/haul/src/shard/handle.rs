//! The handle to a shard: what connections hold. Requests go in, deliveries come back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use haul_engine::{BodyId, Call, Name};
use haul_store::{Bodies, Fault};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::core::{Delivery, Fetch, Outcome, Request, Source};
use super::thread::{Counters, Life, Message};
use crate::dialect::Texts;

/// Bytes of data one answer carries at most, a body counted as often as it is named: enough for the data and the
/// result of one job at the largest limits there are.
const REPLY_BYTES_MAX: usize = 512 << 20;

/// Bytes of bodies after which no more are read ahead of the replies they belong to.
const AHEAD_BYTES_MAX: usize = 1 << 20;

/// Bodies asked for together; what they add up to is looked at after each lot.
const READ_AT_ONCE: usize = 32;

/// The shard's thread has ended and nothing was done: the server is stopping, or the shard is another node's now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// A shard, from outside. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shard {
    pub(super) requests: UnboundedSender<Message>,
    pub(super) counters: Arc<Counters>,
    pub(super) stopping: Arc<AtomicBool>,
    pub(super) draining: Arc<AtomicBool>,
    pub(super) life: Arc<Life>,
    pub(super) source: Source,
}

impl Shard {
    /// Sends calls that are applied together; the answer comes when they are durable.
    pub(crate) async fn ask(
        &self,
        calls: Vec<Call>,
        watched: Vec<(Name, Name, u64)>,
    ) -> Result<Delivery, Gone> {
        self.send(calls, watched, None).await
    }

    /// Sends one call that waits for something to be there.
    pub(crate) fn wait(
        &self,
        call: Call,
        seconds: f64,
    ) -> impl Future<Output = Result<Delivery, Gone>> + Send + use<> {
        self.send(vec![call], Vec::new(), Some(seconds))
    }

    pub(crate) fn send(
        &self,
        calls: Vec<Call>,
        watched: Vec<(Name, Name, u64)>,
        wait: Option<f64>,
    ) -> impl Future<Output = Result<Delivery, Gone>> + Send + use<> {
        let (done, answer) = oneshot::channel();
        let sent = self.requests.send(Message::Request(Request { calls, watched, wait, done: done.into() }));
        async move {
            sent.map_err(|_| Gone)?;
            answer.await.map_err(|_| Gone)
        }
    }

    /// Figures for `INFO` and metrics.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Reads all that is durable, while the shard goes on.
    pub(crate) fn reader(&self) -> Arc<dyn Bodies> {
        self.source.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Figures of this shard alone.
    pub(crate) fn life(&self) -> &Life {
        &self.life
    }

    /// Answers everybody who waits, and lets nobody wait any more.
    pub(crate) fn end_waits(&self) {
        self.draining.store(true, Ordering::Release);
        let _ = self.requests.send(Message::Wake);
    }

    /// Asks the thread to finish what has arrived and end. Who waits is not answered: see [`Gone`].
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let _ = self.requests.send(Message::Stop);
    }
}

/// Reads missing bodies of the first outcomes in one go, at least of the first one: a trip to another thread costs
/// more than a read. The bound keeps large ones from being in memory together.
pub(crate) async fn read_ahead(mut outcomes: VecDeque<Outcome>) -> Result<VecDeque<Outcome>, Fault> {
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = 0;
        for outcome in &mut outcomes {
            bytes += outcome.read();
            if bytes >= AHEAD_BYTES_MAX {
                break;
            }
        }
        outcomes
    });
    read.await.map_err(|error| Fault::Retry { what: error.to_string() })
}

/// Reads what bodies a reply still lacks.
pub(crate) async fn texts(mut outcome: Outcome) -> Result<(Reply, Texts), Fault> {
    outcome.lacks_bodies();
    match outcome {
        Outcome::Fault(fault) => Err(fault),
        Outcome::Done { reply, bodies } if bodies.missing.is_empty() => {
            let bytes = bodies.found.iter().map(|(_, body)| body.len()).sum();
            check_reply(bytes)?;
            Ok((reply, Texts::new(bodies.found)))
        }
        Outcome::Done { reply, bodies } => {
            let read = tokio::task::spawn_blocking(move || read_missing(bodies));
            let found = read.await.map_err(|error| Fault::Retry { what: error.to_string() })??;
            Ok((reply, Texts::new(found)))
        }
    }
}

impl Outcome {
    /// Whether bodies must be read, beyond those that the store has at hand. Called in a runtime.
    pub(crate) fn lacks_bodies(&mut self) -> bool {
        match self {
            Outcome::Done { bodies, .. } => bodies.take_at_hand(),
            Outcome::Fault(_) => false,
        }
    }

    /// Reads the bodies that are missing; answers how many bytes are at hand then.
    pub(crate) fn read(&mut self) -> usize {
        let Outcome::Done { bodies, .. } = self else { return 0 };
        match read_missing(std::mem::take(bodies)) {
            Ok(found) => {
                let bytes = found.iter().map(|(_, body)| body.len()).sum();
                bodies.found = found;
                bytes
            }
            Err(fault) => {
                *self = Outcome::Fault(fault);
                0
            }
        }
    }
}

impl Fetch {
    /// Takes what the store has at hand; whether more is missing.
    fn take_at_hand(&mut self) -> bool {
        let Some(source) = &self.source else { return false };
        let store = source.read().unwrap_or_else(PoisonError::into_inner);
        let found = &mut self.found;
        self.missing.retain(|id| match store.at_hand(&id.key()) {
            Some(body) => {
                found.push((*id, body));
                false
            }
            None => true,
        });
        if store.is_low() {
            let store = store.clone();
            tokio::task::spawn_blocking(move || store.read_on());
        }
        drop(store);
        let lacks = !self.missing.is_empty();
        if !lacks {
            (self.pin, self.source) = (None, None);
        }
        lacks
    }
}

/// Reads each missing body once, however often the answer names it.
fn read_missing(mut bodies: Fetch) -> Result<Vec<(BodyId, Bytes)>, Fault> {
    let Some(source) = &bodies.source else { return Ok(bodies.found) };
    let store = source.read().unwrap_or_else(PoisonError::into_inner).clone();
    let mut bytes = bodies.found.iter().map(|(_, body)| body.len()).sum();
    bodies.missing.sort_unstable();
    let wanted: Vec<&[BodyId]> = bodies.missing.chunk_by(|one, next| one == next).collect();
    for some in wanted.chunks(READ_AT_ONCE) {
        let ids = || some.iter().filter_map(|same| same.first());
        let keys: Vec<Bytes> = ids().map(|id| Bytes::copy_from_slice(&id.key())).collect();
        for ((same, id), body) in some.iter().zip(ids()).zip(store.get_many(&keys)?) {
            let body = body.ok_or_else(|| Fault::Corrupt {
                what: format!("body {} of a job is missing; run haul doctor", id.0),
            })?;
            bytes += body.len() * same.len();
            check_reply(bytes)?;
            bodies.found.push((*id, body));
        }
    }
    drop(bodies.pin);
    Ok(bodies.found)
}

fn check_reply(bytes: usize) -> Result<(), Fault> {
    if bytes <= REPLY_BYTES_MAX {
        return Ok(());
    }
    let what = format!(
        "the data of one answer, beyond {REPLY_BYTES_MAX} bytes (reply-bytes-max); ask for fewer jobs"
    );
    Err(Fault::TooLarge { what })
}

type Reply = Result<haul_engine::Reply, haul_engine::Refusal>;
