//! Rounds on their way: given to the store, not durable yet. They land in order. What is made durable by waiting for it (the
//! disk's log) is waited for at once, unless so much has come meanwhile that the shard has better things to do.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use haul_store::{Fault, Ticket};

use super::core::Round;
use super::pace::Pace;
use super::thread::{Life, Message};
use crate::clock;

/// How it went, and how long it took.
type Landed = (Result<(), Fault>, Duration);

/// All rounds of a shard that are on their way.
pub(super) struct Flight {
    rounds: VecDeque<(Round, Instant)>,
    /// Wakes the shard's thread; weak, for the thread is to end when nobody else has a handle.
    wake: Weak<Sender<Message>>,
    waiter: Option<Waiter>,
    pub(super) pace: Pace,
    life: Arc<Life>,
    /// Commands sent to the shard when the last sync began.
    sent: usize,
    /// Why none of those left will land.
    failed: Option<Fault>,
}

/// A thread that waits for one ticket after the other.
struct Waiter {
    tickets: Sender<Ticket>,
    landed: Receiver<Landed>,
}

impl Flight {
    pub(super) fn new(wake: Weak<Sender<Message>>, life: Arc<Life>) -> Self {
        let (rounds, pace) = Default::default();
        Flight { rounds, wake, waiter: None, pace, life, sent: 0, failed: None }
    }

    pub(super) fn len(&self) -> usize {
        self.rounds.len()
    }

    /// Whether a round is just being synced by the other thread: the next one can be no sooner.
    pub(super) fn is_syncing(&self) -> bool {
        self.rounds.iter().any(|(round, _)| round.pending && round.lazy)
    }

    fn synced(&mut self, took: Duration) {
        let sent = self.life.sent.load(Ordering::Relaxed);
        self.pace.synced(took, sent.wrapping_sub(self.sent));
    }

    /// Takes a round that was given to the store. `taken`: commands that were in it and those before it.
    pub(super) fn add(&mut self, mut round: Round, began: Instant, taken: usize) {
        self.sent = self.life.sent.load(Ordering::Relaxed);
        let waiting = self.sent.wrapping_sub(taken);
        let ticket = std::mem::replace(&mut round.ticket, Ticket::durable());
        let done = if ticket.is_durable() {
            Ok(())
        } else if ticket.is_lazy() && !self.pace.is_worth_a_thread(waiting) {
            let asked = clock::instant();
            let synced = ticket.wait();
            self.synced(asked.elapsed());
            synced
        } else {
            (round.pending, round.lazy) = (true, ticket.is_lazy());
            self.waiter().and_then(|waiter| waiter.tickets.send(ticket).map_err(|_| no_thread("it ended")))
        };
        // It stays here all the same: whoever waits for it must be told that it may have been done.
        self.failed = self.failed.take().or(done.err());
        self.rounds.push_back((round, began));
    }

    /// The next round that has landed; waits for one while more than `left_max` are on their way.
    pub(super) fn next(&mut self, left_max: usize) -> Option<Result<(Round, Instant), Fault>> {
        let (first, _) = self.rounds.front()?;
        if let Some(fault) = &self.failed {
            return Some(Err(fault.clone()));
        }
        if first.pending {
            let landed = &self.waiter.as_ref()?.landed;
            let ended = || (Err(no_thread("it ended")), Duration::ZERO);
            let (result, took) = match landed.try_recv() {
                Ok(landed) => landed,
                Err(TryRecvError::Empty) if self.rounds.len() <= left_max => return None,
                Err(TryRecvError::Empty) => landed.recv().unwrap_or_else(|_| ended()),
                Err(TryRecvError::Disconnected) => ended(),
            };
            if first.lazy {
                self.synced(took);
            }
            if let Err(fault) = result {
                self.failed = Some(fault.clone());
                return Some(Err(fault));
            }
        }
        self.rounds.pop_front().map(Ok)
    }

    /// None of those left will land.
    pub(super) fn abandon(&mut self, fault: &Fault) {
        self.rounds.drain(..).for_each(|(round, _)| round.abandon(fault));
        // What it still waits for is of no interest any more.
        (self.waiter, self.failed) = (None, None);
    }

    fn waiter(&mut self) -> Result<&Waiter, Fault> {
        let waiter = match self.waiter.take() {
            Some(waiter) => waiter,
            None => start(self.wake.clone()).map_err(|error| no_thread(&error.to_string()))?,
        };
        Ok(self.waiter.insert(waiter))
    }
}

fn start(wake: Weak<Sender<Message>>) -> std::io::Result<Waiter> {
    let (tickets, given) = channel::<Ticket>();
    let (land, landed) = channel();
    let wait = move || {
        for ticket in given {
            let asked = clock::instant();
            ticket.wait_and_tell(|landed| {
                // Nobody listens any more when the shard has given up what was on its way.
                let _ = land.send((landed, asked.elapsed()));
                if let Some(wake) = wake.upgrade() {
                    let _ = wake.send(Message::Wake);
                }
            });
        }
    };
    std::thread::Builder::new().name("haul-durable".to_owned()).spawn(wait)?;
    Ok(Waiter { tickets, landed })
}

fn no_thread(what: &str) -> Fault {
    Fault::Retry { what: format!("no thread waits for the store: {what}") }
}
