//! The worker: takes jobs, gives each to a guardian, and says that it lives. Everything that must outlive it is the
//! guardians' affair.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::process::Child;
use std::time::Duration;

use haul_client::{Client, Error, Job, Pop, Subscription};
use haul_guard::folder::State;
use haul_guard::guardian::{Assigned, Order as ToGuardian};
use haul_guard::plan::Plan;
use haul_guard::process::{self, Identity};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::adopt;
use super::life::{self, Facts, SIGN};
use super::patterns;
use super::program::Program;

/// The longest a pop waits for a job: its lock is counted from before the wait.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a call may take: a worker has other things to see to.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries to reach a server that is away.
const AWAY_PAUSE: Duration = Duration::from_secs(1);
/// Lines of guardians that wait to be read.
const LINES_QUEUED_MAX: usize = 1024;
/// A guardian that dies this many times before its first word is not started again.
const STILLBORN_MAX: usize = 10;

/// In which order queues are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    /// The first queue until it is empty, then the next
    #[default]
    Ordered,
    /// One job from each in turn
    RoundRobin,
}

/// What a worker does.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) plan: Plan,
    /// Names and patterns.
    pub(crate) queues: Vec<String>,
    pub(crate) order: Order,
    /// Empty: any.
    pub(crate) klasses: Vec<String>,
    pub(crate) concurrency: usize,
    /// A first signal leaves the guardians to themselves.
    pub(crate) detach: bool,
    /// End when there is nothing more to do.
    pub(crate) once: bool,
    /// Say what happens.
    pub(crate) say: fn(&str),
}

impl Work {
    /// The name a worker has unless it is given one.
    pub(crate) fn default_name() -> String {
        life::default_name()
    }
}

/// Which queues to ask next, in which order. Shared by both models.
pub(super) struct Taker {
    work: Work,
    /// What the patterns stand for, and since when.
    queues: Vec<String>,
    resolved_at: Option<std::time::Instant>,
    turn: usize,
}

/// Jobs, and since when their locks count, in seconds since boot.
pub(super) type Taken = (f64, Result<Vec<Job>, Error>);
pub(super) type Taking = Pin<Box<dyn Future<Output = Taken>>>;

impl Taker {
    pub(super) fn new(work: Work) -> Self {
        Taker { work, queues: Vec::new(), resolved_at: None, turn: 0 }
    }

    /// Looks up what patterns stand for, from time to time.
    pub(super) async fn resolve(&mut self, client: &Client) {
        let now = crate::clock::instant();
        let is_fresh =
            self.resolved_at.is_some_and(|at| patterns::is_plain(&self.work.queues) || now < at + SIGN);
        if is_fresh {
            return;
        }
        if let Ok(queues) = patterns::resolve(client, &self.work.queues).await {
            (self.queues, self.resolved_at) = (queues, Some(now));
        }
    }

    /// Asks for up to `count` jobs; none: there is no queue to ask.
    pub(super) fn take(&mut self, client: &Client, count: usize) -> Option<Taking> {
        if self.queues.is_empty() {
            return None;
        }
        let mut queues = self.queues.clone();
        let in_turn = self.work.order == Order::RoundRobin;
        if in_turn {
            let turn = self.turn % queues.len();
            queues.rotate_left(turn);
        }
        let wait = WAIT_MAX.min(self.work.plan.lock / 4);
        let mut pop = Pop::new(&self.work.plan.worker, queues).count(count).lock(self.work.plan.lock);
        pop = if self.work.once { pop } else { pop.wait(wait) };
        pop = if in_turn { pop.round_robin() } else { pop };
        pop = self.work.klasses.iter().fold(pop, Pop::klass);
        let (client, asked_at) = (client.clone(), process::uptime_seconds());
        Some(Box::pin(async move { (asked_at, client.pop(&pop).await) }))
    }

    pub(super) fn took(&mut self, count: usize) {
        self.turn = self.turn.wrapping_add(count);
    }
}

/// A guardian of ours.
struct Guardian {
    number: u64,
    child: Child,
    orders: mpsc::UnboundedSender<String>,
    job: Option<String>,
    is_ready: bool,
}

/// What a guardian says; none: it is gone.
type Word = (u64, Option<String>);

struct Worker {
    work: Work,
    client: Client,
    state: State,
    program: Program,
    guardians: Vec<Guardian>,
    next_number: u64,
    stillborn: usize,
    words: (mpsc::Sender<Word>, mpsc::Receiver<Word>),
    /// Popped, and waiting for a guardian to be ready.
    ready_jobs: VecDeque<(f64, Job)>,
    /// Guardians of earlier workers: they take room.
    foreign: Vec<Identity>,
    is_draining: bool,
    is_registered: bool,
    done: u64,
}

/// Works until told to stop.
pub(crate) async fn run(work: Work) -> io::Result<()> {
    let client = work.plan.connection.client(PATIENCE).map_err(io::Error::other)?;
    let state = State::open(&work.plan.state)?;
    let mut lost = listen(&work, &client).await?;
    let mut signals = Signals::new()?;
    let mut taker = Taker::new(work.clone());
    let mut worker = Worker {
        work,
        client,
        state,
        program: Program::new(),
        guardians: Vec::new(),
        next_number: 0,
        stillborn: 0,
        words: mpsc::channel(LINES_QUEUED_MAX),
        ready_jobs: VecDeque::new(),
        foreign: Vec::new(),
        is_draining: false,
        is_registered: false,
        done: 0,
    };
    worker.adopt().await;
    let mut taking: Option<Taking> = None;
    let mut tick = tokio::time::interval(SIGN);
    let mut quick = tokio::time::interval(Duration::from_millis(500));
    loop {
        let room = worker.room();
        if taking.is_none() && room > 0 && !worker.is_draining {
            taker.resolve(&worker.client).await;
            taking = taker.take(&worker.client, room);
        }
        if taking.is_none() && worker.is_draining && worker.running() == 0 {
            break;
        }
        tokio::select! {
            taken = taken(&mut taking) => if worker.received(&mut taker, taken).await {
                worker.is_draining = true;
            },
            word = worker.words.1.recv() => if let Some(word) = word {
                worker.heard(word).await;
            },
            _ = tick.tick() => worker.sign().await,
            _ = quick.tick() => worker.foreign.retain(|guardian| guardian.is_alive()),
            message = lost.next() => if let Ok(message) = message {
                worker.lose(&message.payload);
            },
            () = signals.next() => if worker.told_to_stop() {
                return Ok(());
            },
        }
    }
    worker.leave().await;
    Ok(())
}

async fn taken(taking: &mut Option<Taking>) -> Taken {
    let Some(running) = taking else { return std::future::pending().await };
    let taken = running.await;
    *taking = None;
    taken
}

/// Listens for jobs that are taken from us. A server that is away is waited for; one that refuses us is not.
pub(super) async fn listen(work: &Work, client: &Client) -> io::Result<Subscription> {
    let channel = format!("ql:w:{}", work.plan.worker);
    let mut is_told = false;
    loop {
        match client.subscribe([channel.as_str()]).await {
            Err(error) if error.is_passing() => {
                if !std::mem::replace(&mut is_told, true) {
                    let address = &work.plan.connection.address;
                    (work.say)(&format!("the server at {address} is waited for: {error}"));
                }
                tokio::time::sleep(AWAY_PAUSE).await;
            }
            listening => return listening.map_err(io::Error::other),
        }
    }
}

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

impl Worker {
    fn say(&self, text: &str) {
        (self.work.say)(text);
    }

    fn running(&self) -> usize {
        self.ready_jobs.len() + self.guardians.iter().filter(|guardian| guardian.job.is_some()).count()
    }

    /// How many more jobs can be run now.
    fn room(&self) -> usize {
        self.work.concurrency.saturating_sub(self.running() + self.foreign.len())
    }

    /// What a pop brought; true: that was the last one.
    async fn received(&mut self, taker: &mut Taker, (asked_at, jobs): Taken) -> bool {
        match jobs {
            Ok(jobs) if self.is_draining => {
                let jids: Vec<&String> = jobs.iter().map(|job| &job.jid).collect();
                if !jids.is_empty() {
                    drop(self.client.release(jids).await);
                }
            }
            Ok(jobs) => {
                let nothing = jobs.is_empty();
                taker.took(jobs.len());
                self.ready_jobs.extend(jobs.into_iter().map(|job| (asked_at, job)));
                self.assign();
                return nothing && self.work.once && self.running() == 0;
            }
            Err(error) => {
                self.say(&format!("no jobs can be taken: {error}"));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        false
    }

    /// Gives jobs to guardians that are ready, and starts as many as are missing.
    fn assign(&mut self) {
        while !self.ready_jobs.is_empty() {
            let free = self.guardians.iter_mut().find(|guardian| guardian.is_ready && guardian.job.is_none());
            let Some(guardian) = free else { break };
            let Some((locked_at, mut job)) = self.ready_jobs.pop_front() else { break };
            // Nobody there reads it, and it can be long.
            job.history.clear();
            guardian.job = Some(job.jid.clone());
            let order = ToGuardian::Job(Box::new(Assigned { job, locked_at }));
            drop(guardian.orders.send(serde_json::to_string(&order).unwrap_or_default()));
        }
        let starting = self.guardians.iter().filter(|guardian| !guardian.is_ready).count();
        for _ in starting..self.ready_jobs.len() {
            if let Err(error) = self.start() {
                self.say(&format!("a guardian could not be started: {error}"));
                break;
            }
        }
    }

    fn start(&mut self) -> io::Result<()> {
        if self.stillborn >= STILLBORN_MAX {
            return Err(io::Error::other("they end before they begin"));
        }
        let mut child = self.program.start()?;
        self.next_number += 1;
        let number = self.next_number;
        let missing = || io::Error::other("no pipe");
        let stdin: OwnedFd = child.stdin.take().ok_or_else(missing)?.into();
        let stdout: OwnedFd = child.stdout.take().ok_or_else(missing)?.into();
        let (orders, mut lines) = mpsc::unbounded_channel::<String>();
        let mut writer = pipe::Sender::from_owned_fd(stdin)?;
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if writer.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let mut reader = BufReader::new(pipe::Receiver::from_owned_fd(stdout)?).lines();
        let words = self.words.0.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = reader.next_line().await {
                drop(words.send((number, Some(line))).await);
            }
            drop(words.send((number, None)).await);
        });
        let plan = ToGuardian::Plan(Box::new(self.work.plan.clone()));
        drop(orders.send(serde_json::to_string(&plan)?));
        self.guardians.push(Guardian { number, child, orders, job: None, is_ready: false });
        Ok(())
    }

    async fn heard(&mut self, (number, line): Word) {
        let Some(at) = self.guardians.iter().position(|guardian| guardian.number == number) else { return };
        match line {
            Some(line) => {
                let Some(guardian) = self.guardians.get_mut(at) else { return };
                if line == "ready" {
                    guardian.is_ready = true;
                    self.stillborn = 0;
                } else if line.starts_with("done ") {
                    guardian.job = None;
                    guardian.is_ready = false;
                    self.done += 1;
                }
            }
            None => {
                let mut gone = self.guardians.swap_remove(at);
                drop(gone.child.wait());
                self.stillborn += usize::from(!gone.is_ready && gone.job.is_none());
                if let Some(jid) = gone.job {
                    self.say(&format!("the guardian of job {jid} is gone"));
                    self.adopt().await;
                }
            }
        }
        self.assign();
    }

    /// Looks after what others, or dead guardians of ours, have left.
    async fn adopt(&mut self) {
        let ours: Vec<i32> =
            self.guardians.iter().filter_map(|guardian| guardian.child.id().try_into().ok()).collect();
        let found = adopt::look(&self.client, &self.state, &ours).await;
        for (jid, word) in &found.told {
            self.say(&format!("job {jid} of a guardian that is gone: {word}"));
        }
        for (guardian, jid, worker) in found.living {
            if !self.foreign.contains(&guardian) {
                self.say(&format!(
                    "job {jid} of worker {worker} goes on under its guardian, process {}",
                    guardian.pid
                ));
                self.foreign.push(guardian);
            }
        }
    }

    /// A sign of life; and whatever is to be done from time to time.
    async fn sign(&mut self) {
        let facts = Facts {
            queues: self.work.queues.clone(),
            klasses: self.work.klasses.clone(),
            capacity: self.work.concurrency,
            model: "process",
        };
        let Ok(document) = facts.document(self.running() + self.foreign.len()) else { return };
        let (is_new, draining) = (!self.is_registered, self.is_draining);
        if let Ok(drain) = self.client.register(&self.work.plan.worker, &document, is_new, draining).await {
            self.is_registered = true;
            if drain && !self.is_draining {
                self.say("asked to drain: no more jobs are taken");
                self.is_draining = true;
            }
        }
        self.adopt().await;
    }

    /// A message on the worker's own channel: a job is no longer ours.
    fn lose(&mut self, payload: &[u8]) {
        let Ok(event) = serde_json::from_slice::<serde_json::Value>(payload) else { return };
        let Some(jid) = event.get("jid").and_then(|jid| jid.as_str()) else { return };
        self.ready_jobs.retain(|(_, job)| job.jid != jid);
        let holder = self.guardians.iter().find(|guardian| guardian.job.as_deref() == Some(jid));
        if let Some(guardian) = holder {
            let order = ToGuardian::Lost { jid: jid.to_owned() };
            drop(guardian.orders.send(serde_json::to_string(&order).unwrap_or_default()));
        }
    }

    /// A signal. The first: no more jobs, the running ones are waited for or left to their guardians; the second: they are
    /// stopped. True: go at once.
    fn told_to_stop(&mut self) -> bool {
        if self.work.detach {
            self.say(&format!("going; {} jobs go on under their guardians", self.running()));
            return true;
        }
        if !self.is_draining {
            self.is_draining = true;
            self.say(&format!(
                "no more jobs are taken; {} are waited for (a second signal stops them)",
                self.running()
            ));
            return false;
        }
        self.say("stopping the running jobs; they are given back");
        let stop = serde_json::to_string(&ToGuardian::Stop).unwrap_or_default();
        for guardian in &self.guardians {
            drop(guardian.orders.send(stop.clone()));
        }
        false
    }

    /// Nothing is left to do.
    async fn leave(&mut self) {
        // Their orders end, and so do they.
        for mut guardian in std::mem::take(&mut self.guardians) {
            drop(guardian.orders);
            drop(tokio::task::spawn_blocking(move || drop(guardian.child.wait())).await);
        }
        if self.foreign.is_empty() {
            drop(self.client.deregister([&self.work.plan.worker]).await);
        }
        self.say(&format!("{} jobs were done", self.done));
    }
}
