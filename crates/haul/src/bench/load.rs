//! The load: connections that each send a batch, wait for its answers and send the next, until the goal is reached.

use std::cell::Cell;
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::driver::{Desk, sent_micros};
use super::histogram::Histogram;
use super::link::{Link, Seen};
use super::pause::Pause;
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
    /// Some put at a rate, the others wait for jobs.
    Deliver,
    /// A cycle with delays, dependencies and heartbeats.
    Mixed,
}

impl Stage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Stage::Ping => "ping",
            Stage::Put => "put",
            Stage::Pop => "pop",
            Stage::Complete => "complete",
            Stage::Cycle => "lifecycle",
            Stage::Deliver => "delivery",
            Stage::Mixed => "mixed",
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
    pub(super) heartbeat: Histogram,
    pub(super) complete: Histogram,
    /// From sending a put to reading its job as the answer to a pop that waited.
    pub(super) delivery: Histogram,
}

impl Worked {
    fn add(&mut self, other: &Worked) {
        self.jobs += other.jobs;
        self.ping.add(&other.ping);
        self.put.add(&other.put);
        self.pop.add(&other.pop);
        self.heartbeat.add(&other.heartbeat);
        self.complete.add(&other.complete);
        self.delivery.add(&other.delivery);
    }
}

/// What is left to do, shared by all connections.
struct Budget {
    start: Instant,
    jobs: Cell<u64>,
    deadline: Option<Instant>,
    /// Jobs worked on so far.
    done: Cell<u64>,
    /// Jobs put and not yet delivered.
    under_way: Cell<u64>,
    /// Connections that put.
    producers: Cell<usize>,
    /// When the last job was worked on.
    last: Cell<Duration>,
}

impl Budget {
    fn new(goal: Goal, start: Instant) -> Budget {
        let (jobs, deadline) = match goal {
            Goal::Jobs(jobs) => (jobs, None),
            Goal::Seconds(seconds) => (u64::MAX, Some(start + Duration::from_secs_f64(seconds))),
        };
        let (done, under_way, producers, last) = Default::default();
        Budget { start, jobs: Cell::new(jobs), deadline, done, under_way, producers, last }
    }

    fn count(&self, jobs: u64) {
        self.done.set(self.done.get() + jobs);
        self.last.set(self.start.elapsed());
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
    /// In the delivery workload: seconds until its first put, and between its puts; none: it waits for jobs.
    pace: Option<(f64, f64)>,
    /// Jobs it has popped and not completed.
    held: Jids,
    /// The ones completed next.
    next: Jids,
    worked: Worked,
}

impl Seat {
    pub(super) async fn connect(address: &str, desk: Desk, pipeline: usize) -> anyhow::Result<Seat> {
        let mut link = Link::connect(address, desk.speech()).await?;
        let commands = desk.write_hello(&mut link.out);
        link.exchange(commands, |_| ()).await?;
        let (held, next, worked) = Default::default();
        Ok(Seat { link, desk, pipeline, pace: None, held, next, worked })
    }

    /// It puts a job every so many seconds, the first one after `first`, while others wait for them.
    pub(super) fn paced(self, first: f64, seconds: f64) -> Seat {
        Seat { pace: Some((first, seconds)), ..self }
    }

    async fn work(&mut self, stage: Stage, budget: &Budget) -> anyhow::Result<()> {
        match (stage, self.pace) {
            (Stage::Deliver, Some(pace)) => return self.produce(pace, budget).await,
            (Stage::Deliver, None) => return self.receive(budget).await,
            _ => {}
        }
        loop {
            let commands = match stage {
                Stage::Complete => self.held.len().min(self.pipeline),
                _ => budget.take(self.pipeline, self.desk.batch()),
            };
            if commands == 0 {
                return Ok(());
            }
            let jobs = match stage {
                Stage::Deliver => 0,
                Stage::Ping => self.ping(commands).await?,
                Stage::Put => self.put(commands).await?,
                Stage::Pop => self.pop(commands).await?,
                Stage::Complete => self.complete(commands * self.desk.batch()).await?,
                Stage::Cycle => {
                    self.put(commands).await?;
                    self.pop(commands).await?;
                    self.complete(usize::MAX).await?
                }
                Stage::Mixed => self.mixed(commands).await?,
            };
            self.worked.jobs += jobs;
            budget.count(jobs);
        }
    }

    /// Puts at its pace, however long the answers take: a server that falls behind is seen as latency.
    async fn produce(&mut self, (first, pace): (f64, f64), budget: &Budget) -> anyhow::Result<()> {
        budget.producers.set(budget.producers.get() + 1);
        let pause = Pause::new()?;
        let mut next = budget.start.elapsed().as_secs_f64() + first;
        while budget.take(1, 1) > 0 {
            let due = Duration::from_secs_f64(next);
            next += pace;
            // One that is late because the answer before it was late is counted from when it should have been sent.
            let in_time = pause.until(budget.start + due).await?;
            let sent = if in_time { budget.start.elapsed() } else { due };
            let micros = u64::try_from(sent.as_micros()).unwrap_or(u64::MAX);
            self.desk.write_stamped_put(micros, &mut self.link.out);
            budget.under_way.set(budget.under_way.get() + 1);
            timed(&mut self.link, 1, &mut self.worked.put, |_| ()).await?;
        }
        budget.producers.set(budget.producers.get() - 1);
        Ok(())
    }

    /// Waits for a job, completes it, waits again, until all that was put has come.
    async fn receive(&mut self, budget: &Budget) -> anyhow::Result<()> {
        // Whoever puts has begun by then.
        tokio::task::yield_now().await;
        while budget.producers.get() > 0 || budget.under_way.get() > 0 {
            let (is_over, done) = (budget.producers.get() == 0, budget.done.get());
            self.desk.write_waiting_pop(&mut self.link.out);
            let (held, mut sent) = (&mut self.held, None);
            self.link
                .exchange(1, |seen| {
                    if let Seen::Answer(answer) = seen {
                        reply::collect_jids(answer, held);
                        sent = sent_micros(answer);
                    }
                })
                .await?;
            let Some(sent) = sent else {
                // It waited for as long as a pop does, long after the last put, and nobody else was given a job either.
                if is_over && budget.done.get() == done && budget.under_way.get() > 0 {
                    let left = budget.under_way.get();
                    bail!("{left} jobs never came: is the queue paused, or somebody else working on it?");
                }
                continue;
            };
            let took = budget.start.elapsed().saturating_sub(Duration::from_micros(sent));
            self.worked.delivery.record(took, 1);
            budget.under_way.set(budget.under_way.get().saturating_sub(1));
            let jobs = self.complete(usize::MAX).await?;
            self.worked.jobs += jobs;
            budget.count(jobs);
        }
        Ok(())
    }

    /// Puts, pops what there is, renews the locks, completes.
    async fn mixed(&mut self, commands: usize) -> anyhow::Result<u64> {
        (0..commands).for_each(|_| self.desk.write_mixed_put(&mut self.link.out));
        timed(&mut self.link, commands, &mut self.worked.put, |_| ()).await?;
        (0..commands).for_each(|_| self.desk.write_pop(&mut self.link.out));
        let held = &mut self.held;
        timed(&mut self.link, commands, &mut self.worked.pop, |answer| reply::collect_jids(answer, held))
            .await?;
        let beats = self.desk.write_heartbeats(&self.held, &mut self.link.out);
        timed(&mut self.link, beats, &mut self.worked.heartbeat, |_| ()).await?;
        self.complete(usize::MAX).await
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
    let mut look = tokio::time::interval(Duration::from_secs(1));
    loop {
        let seat = tokio::select! {
            seat = tasks.join_next() => seat,
            _ = look.tick() => {
                progress(stage, Some(&budget));
                continue;
            }
        };
        let Some(seat) = seat else { break };
        let mut seat = seat??;
        worked.add(&std::mem::take(&mut seat.worked));
        seats.push(seat);
    }
    // Those who wait for a job go on for a while when there are no more: that is nobody's work.
    let seconds =
        if stage == Stage::Deliver && worked.jobs > 0 { budget.last.get() } else { start.elapsed() };
    worked.seconds = seconds.as_secs_f64();
    progress(stage, None);
    Ok((worked, seats))
}

/// Says on a terminal how far it is; none: that line is wiped.
#[expect(clippy::print_stderr, reason = "for the person who waits")]
fn progress(stage: Stage, budget: Option<&Budget>) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    match budget {
        Some(budget) => {
            let (done, seconds) = (budget.done.get(), budget.start.elapsed().as_secs_f64());
            eprint!(
                "\r{}: {done} in {seconds:.0} s, {:.0}/s ",
                stage.name(),
                done as f64 / seconds.max(0.001)
            );
        }
        None => eprint!("\r{:60}\r", ""),
    }
}
