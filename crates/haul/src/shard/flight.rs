//! Rounds on their way: given to the store, not durable yet. They land in order. What is made durable by waiting for it (the
//! disk's log) is waited for at once, unless so much has come meanwhile that the shard has better things to do.

use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use haul_store::{Fault, Ticket};

use super::core::Round;
use super::pace::Pace;
use super::thread::Message;
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
    /// Why none of those left will land.
    failed: Option<Fault>,
}

/// A thread that waits for one ticket after the other.
struct Waiter {
    tickets: Sender<Ticket>,
    landed: Receiver<Landed>,
}

impl Flight {
    pub(super) fn new(wake: Weak<Sender<Message>>) -> Self {
        Flight { rounds: VecDeque::new(), wake, waiter: None, pace: Pace::default(), failed: None }
    }

    pub(super) fn len(&self) -> usize {
        self.rounds.len()
    }

    /// Whether a round is just being synced by the other thread: the next one can be no sooner.
    pub(super) fn is_syncing(&self) -> bool {
        self.rounds.iter().any(|(round, _)| round.pending && round.lazy)
    }

    /// Takes a round that was given to the store, while so many commands wait for the next.
    pub(super) fn add(&mut self, mut round: Round, began: Instant, waiting: usize) {
        let ticket = std::mem::replace(&mut round.ticket, Ticket::durable());
        let done = if ticket.is_durable() {
            Ok(())
        } else if ticket.is_lazy() && !self.pace.is_worth_a_thread(waiting) {
            let asked = clock::instant();
            let synced = ticket.wait();
            self.pace.synced(asked.elapsed());
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
                self.pace.synced(took);
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
            let landed = ticket.wait();
            if land.send((landed, asked.elapsed())).is_err() {
                return;
            }
            if let Some(wake) = wake.upgrade() {
                let _ = wake.send(Message::Wake);
            }
        }
    };
    std::thread::Builder::new().name("haul-durable".to_owned()).spawn(wait)?;
    Ok(Waiter { tickets, landed })
}

fn no_thread(what: &str) -> Fault {
    Fault::Retry { what: format!("no thread waits for the store: {what}") }
}
