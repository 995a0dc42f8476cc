//! The load: connections that each send a batch, wait for its answers and send the next, until the goal is reached.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::driver::Desk;
use super::histogram::Histogram;
use super::link::{Link, Seen};
use super::reply::{self, Jids};
use crate::clock;

/// What the connections do over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Ping,
    Put,
    Pop,
    Complete,
    Cycle,
}

impl Stage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Stage::Ping => "ping",
            Stage::Put => "put",
            Stage::Pop => "pop",
            Stage::Complete => "complete",
            Stage::Cycle => "lifecycle",
        }
    }
}

/// When it is enough.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    Jobs(u64),
    Seconds(f64),
}

/// What was done, and how long each took.
#[derive(Default)]
pub(super) struct Worked {
    pub(super) seconds: f64,
    /// Jobs put, popped, completed, or brought through all three; or pings.
    pub(super) jobs: u64,
    pub(super) ping: Histogram,
    pub(super) put: Histogram,
    pub(super) pop: Histogram,
    pub(super) complete: Histogram,
}

impl Worked {
    fn add(&mut self, other: &Worked) {
        self.jobs += other.jobs;
        self.ping.add(&other.ping);
        self.put.add(&other.put);
        self.pop.add(&other.pop);
        self.complete.add(&other.complete);
    }
}

/// What is left to do, shared by all connections.
struct Budget {
    jobs: Cell<u64>,
    deadline: Option<Instant>,
}

impl Budget {
    fn new(goal: Goal, start: Instant) -> Budget {
        match goal {
            Goal::Jobs(jobs) => Budget { jobs: Cell::new(jobs), deadline: None },
            Goal::Seconds(seconds) => {
                Budget { jobs: Cell::new(u64::MAX), deadline: Some(start + Duration::from_secs_f64(seconds)) }
            }
        }
    }

    /// Commands to send next, of `batch` jobs each; 0 ends the work.
    fn take(&self, commands: usize, batch: usize) -> usize {
        if self.deadline.is_some_and(|deadline| clock::instant() >= deadline) {
            return 0;
        }
        let left = self.jobs.get();
        let commands = commands.min(usize::try_from(left.div_ceil(batch as u64)).unwrap_or(usize::MAX));
        self.jobs.set(left.saturating_sub((commands * batch) as u64));
        commands
    }
}

/// A connection and what it works on.
pub(super) struct Seat {
    link: Link,
    desk: Desk,
    /// Commands sent together.
    pipeline: usize,
    /// Jobs it has popped and not completed.
    held: Jids,
    /// The ones completed next.
    next: Jids,
    worked: Worked,
}

impl Seat {
    pub(super) async fn connect(address: &str, desk: Desk, pipeline: usize) -> anyhow::Result<Seat> {
        let link = Link::connect(address, desk.is_http()).await?;
        let (held, next, worked) = Default::default();
        Ok(Seat { link, desk, pipeline, held, next, worked })
    }

    async fn work(&mut self, stage: Stage, budget: &Budget) -> anyhow::Result<()> {
        loop {
            let commands = match stage {
                Stage::Complete => self.held.len().min(self.pipeline),
                _ => budget.take(self.pipeline, self.desk.batch()),
            };
            if commands == 0 {
                return Ok(());
            }
            self.worked.jobs += match stage {
                Stage::Ping => self.ping(commands).await?,
                Stage::Put => self.put(commands).await?,
                Stage::Pop => self.pop(commands).await?,
                Stage::Complete => self.complete(commands * self.desk.batch()).await?,
                Stage::Cycle => {
                    self.put(commands).await?;
                    self.pop(commands).await?;
                    self.complete(usize::MAX).await?
                }
            };
        }
    }

    async fn ping(&mut self, commands: usize) -> anyhow::Result<u64> {
        (0..commands).for_each(|_| self.desk.write_put(&mut self.link.out));
        timed(&mut self.link, commands, &mut self.worked.ping, |_| ()).await?;
        Ok(commands as u64)
    }

    async fn put(&mut self, commands: usize) -> anyhow::Result<u64> {
        self.desk.look_at_clock();
        (0..commands).for_each(|_| self.desk.write_put(&mut self.link.out));
        timed(&mut self.link, commands, &mut self.worked.put, |_| ()).await?;
        Ok((commands * self.desk.batch()) as u64)
    }

    async fn pop(&mut self, commands: usize) -> anyhow::Result<u64> {
        self.desk.look_at_clock();
        (0..commands).for_each(|_| self.desk.write_pop(&mut self.link.out));
        let before = self.held.len();
        let held = &mut self.held;
        timed(&mut self.link, commands, &mut self.worked.pop, |answer| reply::collect_jids(answer, held))
            .await?;
        let popped = self.held.len() - before;
        if popped < commands {
            bail!("{commands} pops gave only {popped} jobs: is somebody else working on the queues?");
        }
        Ok(popped as u64)
    }

    /// Completes what is held, at most `count`.
    async fn complete(&mut self, count: usize) -> anyhow::Result<u64> {
        self.desk.look_at_clock();
        self.next.clear();
        self.held.take_into(count, &mut self.next);
        let commands = self.desk.write_completes(&self.next, &mut self.link.out);
        let mut done = 0;
        let count = |answer: &[u8]| done += reply::count_complete(answer);
        timed(&mut self.link, commands, &mut self.worked.complete, count).await?;
        if done != self.next.len() {
            bail!("only {done} of {} jobs could be completed", self.next.len());
        }
        Ok(done as u64)
    }
}

/// An exchange, with the time from sending the batch to each answer.
async fn timed(
    link: &mut Link,
    answers: usize,
    latency: &mut Histogram,
    mut each: impl FnMut(&[u8]),
) -> anyhow::Result<()> {
    let sent = clock::instant();
    link.exchange(answers, |seen| match seen {
        Seen::Answer(answer) => each(answer),
        Seen::Arrived(0) => {}
        Seen::Arrived(count) => latency.record(sent.elapsed(), count as u64),
    })
    .await
}

/// Lets all connections work at once until the goal is reached; hands them back for the next stage.
pub(super) async fn run(seats: Vec<Seat>, stage: Stage, goal: Goal) -> anyhow::Result<(Worked, Vec<Seat>)> {
    let start = clock::instant();
    let budget = Rc::new(Budget::new(goal, start));
    let mut tasks = tokio::task::JoinSet::new();
    for mut seat in seats {
        let budget = budget.clone();
        tasks.spawn_local(async move { seat.work(stage, &budget).await.map(|()| seat) });
    }
    let mut worked = Worked::default();
    let mut seats = Vec::new();
    while let Some(seat) = tasks.join_next().await {
        let mut seat = seat??;
        worked.add(&std::mem::take(&mut seat.worked));
        seats.push(seat);
    }
    worked.seconds = start.elapsed().as_secs_f64();
    Ok((worked, seats))
}
