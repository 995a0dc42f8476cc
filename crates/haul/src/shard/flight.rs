//! Rounds on their way: given to the store, not durable yet. They land in order. What is made durable by waiting for it (the
//! disk's log) is waited for at once, unless there is so much to do meanwhile that another thread is worth it.

use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use haul_store::{Fault, Ticket};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender, unbounded_channel};

use super::core::Round;
use super::pace::Pace;
use super::thread::Message;
use crate::clock;

/// How it went, and how long it took.
type Landed = (Result<(), Fault>, Duration);

/// All rounds of a shard that are on their way.
pub(super) struct Flight {
    rounds: VecDeque<(Round, Instant)>,
    /// So many of the first have landed.
    landed: usize,
    /// Wakes the shard; weak, for it is to end when nobody else has a handle.
    wake: WeakUnboundedSender<Message>,
    waiter: Option<Waiter>,
    pub(super) pace: Pace,
    /// Why none of those left will land.
    failed: Option<Fault>,
}

/// A thread that waits for one ticket after the other.
struct Waiter {
    tickets: Sender<Ticket>,
    landed: UnboundedReceiver<Landed>,
}

impl Flight {
    pub(super) fn new(wake: WeakUnboundedSender<Message>, pace: Pace) -> Self {
        Flight { rounds: VecDeque::new(), landed: 0, wake, waiter: None, pace, failed: None }
    }

    pub(super) fn len(&self) -> usize {
        self.rounds.len()
    }

    /// Whether a round is just being synced by the other thread: the next one can be no sooner.
    pub(super) fn is_syncing(&self) -> bool {
        self.rounds.iter().skip(self.landed).any(|(round, _)| round.pending && round.lazy)
    }

    /// Takes a round that was given to the store; whether this thread has synced it.
    pub(super) fn add(&mut self, mut round: Round, began: Instant) -> bool {
        let ticket = std::mem::replace(&mut round.ticket, Ticket::durable());
        let here = ticket.is_lazy() && !self.pace.is_worth_a_thread();
        let done = if ticket.is_durable() {
            Ok(())
        } else if here {
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
        here
    }

    /// Notes which rounds have landed; waits while more than `left_max` are on their way.
    pub(super) async fn land(&mut self, left_max: usize) -> Result<(), Fault> {
        while let Some((first, _)) = self.rounds.get(self.landed) {
            if let Some(fault) = &self.failed {
                return Err(fault.clone());
            }
            if first.pending {
                let lazy = first.lazy;
                let left = self.rounds.len() - self.landed;
                let Some(waiter) = &mut self.waiter else { return Ok(()) };
                let landed = match waiter.landed.try_recv() {
                    Ok(landed) => Some(landed),
                    Err(TryRecvError::Empty) if left <= left_max => return Ok(()),
                    Err(TryRecvError::Empty) => waiter.landed.recv().await,
                    Err(TryRecvError::Disconnected) => None,
                };
                let (result, took) = landed.unwrap_or_else(|| (Err(no_thread("it ended")), Duration::ZERO));
                if lazy {
                    self.pace.synced(took);
                }
                if let Err(fault) = result {
                    self.failed = Some(fault.clone());
                    return Err(fault);
                }
            }
            self.landed += 1;
        }
        Ok(())
    }

    /// The next round that has landed.
    pub(super) fn take_landed(&mut self) -> Option<(Round, Instant)> {
        self.landed = self.landed.checked_sub(1)?;
        self.rounds.pop_front()
    }

    /// None of those left will land.
    pub(super) fn abandon(&mut self, fault: &Fault) {
        self.rounds.drain(..).for_each(|(round, _)| round.abandon(fault));
        // What it still waits for is of no interest any more.
        (self.landed, self.waiter, self.failed) = (0, None, None);
    }

    fn waiter(&mut self) -> Result<&Waiter, Fault> {
        let waiter = match self.waiter.take() {
            Some(waiter) => waiter,
            None => start(self.wake.clone()).map_err(|error| no_thread(&error.to_string()))?,
        };
        Ok(self.waiter.insert(waiter))
    }
}

fn start(wake: WeakUnboundedSender<Message>) -> std::io::Result<Waiter> {
    let (tickets, given) = channel::<Ticket>();
    let (land, landed) = unbounded_channel();
    let wait = move || {
        for ticket in given {
            let asked = clock::instant();
            let result = ticket.wait();
            // Nobody listens any more when the shard has given up what was on its way.
            let _ = land.send((result, asked.elapsed()));
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
