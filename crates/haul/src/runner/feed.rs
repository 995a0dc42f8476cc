//! Long-running children that are fed many jobs: one JSON object a line each way, described in
//! `docs/guide/workers-in-any-language.md`. The worker renews the locks and tells the outcomes; a child that dies costs
//! only the jobs it had.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use haul_client::{Client, Error, Heartbeat, Job, Json, Report};
use haul_guard::lease::Lease;
use haul_guard::outcome::{Outcome, Teller};
use haul_guard::process::{self, Identity};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::life::{Facts, SIGN};
use super::worker::{PATIENCE, Signals, Taken, Taker, Taking, Work, listen};
use crate::clock;

/// Jobs asked for at once, at most.
const POP_COUNT_MAX: usize = 1000;
/// Outcomes on their way to the server, at most; more, and no jobs are taken.
const UNTOLD_MAX: usize = 20_000;
/// A line of a child is no longer.
const LINE_BYTES_MAX: usize = 32 << 20;
/// How often locks and limits are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Before a child that died is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(200);

/// What the worker does.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    pub(crate) work: Work,
    pub(crate) children: usize,
    /// Jobs a child has at a time.
    pub(crate) batch: usize,
}

/// A job as a child reads it.
#[derive(Serialize)]
struct Line<'a> {
    id: u64,
    jid: &'a str,
    klass: &'a str,
    queue: &'a str,
    attempt: u64,
    retries_left: i64,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    data: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<&'a Json>,
}

/// What a child says of a job: it is done, unless one of the others is there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    id: Option<u64>,
    /// Several that are done.
    ids: Vec<u64>,
    result: Option<Json>,
    fail: Option<String>,
    group: Option<String>,
    retry: Option<String>,
    delay: f64,
    progress: Option<f64>,
    message: Option<String>,
    checkpoint: Option<Json>,
}

/// A job that a child has.
struct Flight {
    job: Job,
    child: u64,
    lease: Lease,
    began_at: Instant,
    asked_at: Option<Instant>,
    is_asking: bool,
}

struct Running {
    number: u64,
    child: Child,
    lines: mpsc::UnboundedSender<Vec<u8>>,
    jobs: usize,
}

/// What happened.
enum News {
    Answers(Vec<Answer>),
    /// A child ended.
    Gone(u64),
    Beat(u64, Instant, Result<Duration, Error>),
}

struct Feeder {
    feed: Feed,
    client: Client,
    own: Identity,
    running: Vec<Running>,
    flights: HashMap<u64, Flight>,
    next_id: u64,
    next_number: u64,
    news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    untold: Arc<AtomicUsize>,
    is_draining: bool,
    is_registered: bool,
    started_at: Option<Instant>,
    done: u64,
}

/// Works until told to stop.
pub(crate) async fn feed(feed: Feed) -> io::Result<()> {
    let client = feed.work.plan.connection.client(PATIENCE).map_err(io::Error::other)?;
    let mut lost = listen(&feed.work, &client).await?;
    let mut signals = Signals::new()?;
    let mut taker = Taker::new(feed.work.clone());
    let mut feeder = Feeder {
        feed,
        client,
        own: Identity::own().ok_or_else(|| io::Error::other("/proc is needed"))?,
        running: Vec::new(),
        flights: HashMap::new(),
        next_id: 0,
        next_number: 0,
        news: mpsc::channel(1024),
        untold: Arc::default(),
        is_draining: false,
        is_registered: false,
        started_at: None,
        done: 0,
    };
    let mut taking: Option<Taking> = None;
    let (mut sign, mut look) = (tokio::time::interval(SIGN), tokio::time::interval(LOOK));
    feeder.clear_leftovers();
    loop {
        feeder.start_missing()?;
        let room = feeder.room();
        if taking.is_none() && room > 0 && !feeder.is_draining {
            taker.resolve(&feeder.client).await;
            taking = taker.take(&feeder.client, room);
        }
        if taking.is_none() && feeder.is_done() {
            break;
        }
        tokio::select! {
            taken = taken(&mut taking) => feeder.received(&mut taker, taken).await,
            news = feeder.news.1.recv() => if let Some(news) = news {
                feeder.heard(news);
            },
            _ = look.tick() => feeder.look(),
            _ = sign.tick() => feeder.sign().await,
            message = lost.next() => if let Ok(message) = message {
                feeder.lose(&message.payload);
            },
            () = signals.next() => feeder.told_to_stop(),
        }
    }
    feeder.leave().await;
    Ok(())
}

async fn taken(taking: &mut Option<Taking>) -> Taken {
    let Some(running) = taking else { return std::future::pending().await };
    let taken = running.await;
    *taking = None;
    taken
}

impl Feeder {
    fn say(&self, text: &str) {
        (self.feed.work.say)(text);
    }

    fn is_done(&self) -> bool {
        self.is_draining && self.flights.is_empty() && self.untold.load(Ordering::Acquire) == 0
    }

    /// How many jobs the children have room for. Asked for in handfuls: one at a time would cost a round trip each.
    fn room(&self) -> usize {
        let free: usize = self.running.iter().map(|child| self.feed.batch.saturating_sub(child.jobs)).sum();
        let handful = (self.feed.batch * self.running.len() / 4).max(1);
        let untold = self.untold.load(Ordering::Acquire);
        if free < handful || untold > UNTOLD_MAX { 0 } else { free.min(POP_COUNT_MAX) }
    }

    /// Fails only if the command cannot be run at all.
    fn start_missing(&mut self) -> io::Result<()> {
        if self.is_draining && self.flights.is_empty() {
            return Ok(());
        }
        let now = clock::instant();
        while self.running.len() < self.feed.children {
            let is_too_soon = self.started_at.is_some_and(|at| now < at + RESTART_PAUSE);
            if is_too_soon && self.next_number >= self.feed.children as u64 {
                break;
            }
            self.started_at = Some(now);
            if let Err(error) = self.start() {
                if self.running.is_empty() && self.next_number == 1 {
                    return Err(io::Error::other(format!("its command cannot be run: {error}")));
                }
                self.say(&format!("a child could not be started: {error}"));
                break;
            }
        }
        Ok(())
    }

    /// Where a child works: named by the worker, so that nobody else's child is meant.
    fn folder(&self, number: u64) -> PathBuf {
        let Identity { pid, start } = self.own;
        self.feed.work.plan.state.join("children").join(format!("{pid}-{start}-{number}"))
    }

    /// Ends and removes what workers left that were killed.
    fn clear_leftovers(&self) {
        let folder = self.feed.work.plan.state.join("children");
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let mut parts = name.split('-');
            let pid = parts.next().and_then(|pid| pid.parse().ok());
            let start = parts.next().and_then(|start| start.parse().ok());
            let Some((pid, start)) = pid.zip(start) else { continue };
            if !(Identity { pid, start }).is_alive() {
                process::kill_marked(None, &name);
                drop(std::fs::remove_dir_all(entry.path()));
            }
        }
    }

    fn start(&mut self) -> io::Result<()> {
        let plan = &self.feed.work.plan;
        self.next_number += 1;
        let number = self.next_number;
        let folder = self.folder(number);
        std::fs::create_dir_all(&folder)?;
        let (program, args) =
            plan.command.as_deref().and_then(<[String]>::split_first).ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        haul_guard::stage::prepare(&mut command, &plan.limits);
        let mut child = command
            .args(args)
            .env(haul_guard::stage::MARK, folder.file_name().unwrap_or_default())
            .env("HAUL_WORKER", &plan.worker)
            .env("HAUL_FOLDER", &folder)
            .env("HAUL_BATCH", self.feed.batch.to_string())
            .env_remove("HAUL_TOKEN")
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("no pipe");
        let stdin: OwnedFd = child.stdin.take().ok_or_else(missing)?.into();
        let stdout: OwnedFd = child.stdout.take().ok_or_else(missing)?.into();
        let (lines, waiting) = mpsc::unbounded_channel();
        tokio::spawn(write_lines(pipe::Sender::from_owned_fd(stdin)?, waiting));
        tokio::spawn(read_lines(pipe::Receiver::from_owned_fd(stdout)?, number, self.news.0.clone()));
        self.running.push(Running { number, child, lines, jobs: 0 });
        Ok(())
    }

    async fn received(&mut self, taker: &mut Taker, (asked_at, jobs): Taken) {
        match jobs {
            Err(error) => {
                self.say(&format!("no jobs can be taken: {error}"));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(jobs) if self.is_draining => {
                let jids: Vec<&String> = jobs.iter().map(|job| &job.jid).collect();
                if !jids.is_empty() {
                    drop(self.client.release(jids).await);
                }
            }
            Ok(jobs) => {
                if jobs.is_empty() && self.feed.work.once && self.flights.is_empty() {
                    self.is_draining = true;
                }
                taker.took(jobs.len());
                let now = clock::instant();
                let age = Duration::from_secs_f64((process::uptime_seconds() - asked_at).clamp(0.0, 1e9));
                self.hand_out(jobs, now, now.checked_sub(age).unwrap_or(now));
            }
        }
    }

    /// Each job to the child that has the fewest.
    fn hand_out(&mut self, jobs: Vec<Job>, now: Instant, locked_at: Instant) {
        let plan = &self.feed.work.plan;
        let mut batches: HashMap<u64, Vec<u8>> = HashMap::new();
        for mut job in jobs {
            let Some(child) = self.running.iter_mut().min_by_key(|child| child.jobs) else { return };
            child.jobs += 1;
            self.next_id += 1;
            job.history = Vec::new();
            let line = Line {
                id: self.next_id,
                jid: &job.jid,
                klass: &job.klass,
                queue: job.queue.as_deref().unwrap_or_default(),
                attempt: job.attempt,
                retries_left: job.remaining,
                tags: &job.tags,
                data: &job.data,
                checkpoint: job.checkpoint.as_ref(),
            };
            push_line(batches.entry(child.number).or_default(), &line);
            let lease = Lease::new(plan.lock, plan.grace, locked_at);
            let flight =
                Flight { job, child: child.number, lease, began_at: now, asked_at: None, is_asking: false };
            self.flights.insert(self.next_id, flight);
        }
        for child in &self.running {
            if let Some(batch) = batches.remove(&child.number) {
                drop(child.lines.send(batch));
            }
        }
    }

    fn heard(&mut self, news: News) {
        match news {
            News::Answers(answers) => answers.into_iter().for_each(|answer| self.answered(answer)),
            News::Gone(number) => self.gone(number),
            News::Beat(id, sent_at, outcome) => {
                let Some(flight) = self.flights.get_mut(&id) else { return };
                flight.is_asking = false;
                match outcome {
                    Ok(_) => {
                        flight.asked_at = None;
                        flight.lease.renewed(sent_at);
                    }
                    Err(error) if error.is_lock_lost() => self.forget(id),
                    Err(_) => flight.asked_at = Some(clock::instant()),
                }
            }
        }
    }

    fn answered(&mut self, answer: Answer) {
        for id in &answer.ids {
            self.finish(*id, Outcome::Complete { result: String::new() });
        }
        let Some(id) = answer.id else { return };
        let is_report = answer.progress.is_some() || answer.checkpoint.is_some();
        if let Some(message) = answer.fail {
            let group = answer.group.unwrap_or_else(|| "failed".to_owned());
            self.finish(id, Outcome::Fail { group, message });
        } else if let Some(message) = answer.retry {
            let group = answer.group.unwrap_or_else(|| "retried".to_owned());
            let delay = Duration::try_from_secs_f64(answer.delay).unwrap_or_default();
            self.finish(id, Outcome::Retry { delay, group, message });
        } else if is_report {
            self.report(id, answer);
        } else {
            let result = answer.result.map_or_else(String::new, |result| text_of(&result));
            self.finish(id, Outcome::Complete { result });
        }
    }

    fn report(&self, id: u64, answer: Answer) {
        let Some(flight) = self.flights.get(&id) else { return };
        let mut report = Report::job(&self.feed.work.plan.worker, &flight.job);
        report = answer.progress.into_iter().fold(report, Report::percent);
        report = answer.message.into_iter().fold(report, Report::message);
        report = answer.checkpoint.into_iter().fold(report, Report::checkpoint);
        let client = self.client.clone();
        tokio::spawn(async move { drop(client.report(&report).await) });
    }

    /// The job is no longer the child's; its outcome is told until the server has answered.
    fn finish(&mut self, id: u64, outcome: Outcome) {
        let Some(flight) = self.flights.remove(&id) else { return };
        if let Some(child) = self.running.iter_mut().find(|child| child.number == flight.child) {
            child.jobs = child.jobs.saturating_sub(1);
        }
        self.done += 1;
        let teller = Teller::of(&self.feed.work.plan.worker, &flight.job);
        let (client, untold) = (self.client.clone(), Arc::clone(&self.untold));
        untold.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            while teller.tell(&client, &outcome).await.is_err() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            untold.fetch_sub(1, Ordering::AcqRel);
        });
    }

    /// The job is somebody else's: the child is told, and its answer will mean nothing.
    fn forget(&mut self, id: u64) {
        let Some(flight) = self.flights.remove(&id) else { return };
        if let Some(child) = self.running.iter_mut().find(|child| child.number == flight.child) {
            child.jobs = child.jobs.saturating_sub(1);
            let mut line = Vec::new();
            push_line(&mut line, &serde_json::json!({ "cancel": id }));
            drop(child.lines.send(line));
        }
    }

    /// A child is gone: its jobs are tried again.
    fn gone(&mut self, number: u64) {
        let Some(at) = self.running.iter().position(|child| child.number == number) else { return };
        let mut child = self.running.swap_remove(at);
        process::signal_group(child.child.id().try_into().unwrap_or(0), Signal::KILL);
        let status = child.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        drop(std::fs::remove_dir_all(self.folder(number)));
        let ids: Vec<u64> =
            self.flights.iter().filter(|(_, flight)| flight.child == number).map(|(id, _)| *id).collect();
        if !self.is_draining || !ids.is_empty() {
            self.say(&format!("a child ended ({status}) with {} jobs", ids.len()));
        }
        for id in ids {
            let message = format!("the long-running child that had it ended: {status}");
            self.finish(
                id,
                Outcome::Retry { delay: Duration::ZERO, group: "child-died".to_owned(), message },
            );
        }
    }

    /// Renews locks that are due, and ends children that hold a job for too long.
    fn look(&mut self) {
        let now = clock::instant();
        let limit = self.feed.work.plan.limits.time;
        let mut late = Vec::new();
        for (id, flight) in &mut self.flights {
            if now >= flight.lease.stop_at() {
                late.push((*id, flight.child, None));
            } else if limit.is_some_and(|limit| now >= flight.began_at + limit) {
                let words = "it ran longer than its time limit";
                late.push((*id, flight.child, Some(("time-limit".to_owned(), words.to_owned()))));
            } else if !flight.is_asking && now >= flight.lease.beat_at(flight.asked_at) {
                flight.is_asking = true;
                let beat =
                    Heartbeat::job(&self.feed.work.plan.worker, &flight.job).lock(self.feed.work.plan.lock);
                let (client, news, id) = (self.client.clone(), self.news.0.clone(), *id);
                tokio::spawn(async move {
                    let answer = client.heartbeat(&beat).await;
                    drop(news.send(News::Beat(id, now, answer)).await);
                });
            }
        }
        for (id, child, failure) in late {
            if let Some((group, message)) = failure {
                self.finish(id, Outcome::Fail { group, message });
            }
            self.kill(child);
        }
    }

    /// By force; what becomes of its jobs is seen to when it is gone.
    fn kill(&self, number: u64) {
        if let Some(child) = self.running.iter().find(|child| child.number == number) {
            process::signal_group(child.child.id().try_into().unwrap_or(0), Signal::KILL);
        }
    }

    async fn sign(&mut self) {
        let work = &self.feed.work;
        let facts = Facts {
            queues: work.queues.clone(),
            klasses: work.klasses.clone(),
            capacity: self.feed.children * self.feed.batch,
            model: "long-running",
        };
        let Ok(document) = facts.document(self.flights.len()) else { return };
        let answer =
            self.client.register(&work.plan.worker, &document, !self.is_registered, self.is_draining).await;
        if let Ok(drain) = answer {
            self.is_registered = true;
            self.is_draining |= drain;
        }
    }

    fn lose(&mut self, payload: &[u8]) {
        let event = serde_json::from_slice::<serde_json::Value>(payload).unwrap_or_default();
        let Some(jid) = event.get("jid").and_then(|jid| jid.as_str()) else { return };
        let found = self.flights.iter().find(|(_, flight)| flight.job.jid == jid).map(|(id, _)| *id);
        if let Some(id) = found {
            self.forget(id);
        }
    }

    fn told_to_stop(&mut self) {
        if !self.is_draining {
            self.is_draining = true;
            self.say(&format!("no more jobs are taken; {} are waited for", self.flights.len()));
            return;
        }
        let numbers: Vec<u64> = self.running.iter().map(|child| child.number).collect();
        numbers.into_iter().for_each(|number| self.kill(number));
    }

    /// Their input ends, and they have the grace to end themselves.
    async fn leave(&mut self) {
        for mut child in std::mem::take(&mut self.running) {
            drop(child.lines);
            let deadline = clock::instant() + self.feed.work.plan.grace;
            while child.child.try_wait().ok().flatten().is_none() {
                if clock::instant() > deadline {
                    process::signal_group(child.child.id().try_into().unwrap_or(0), Signal::KILL);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            drop(std::fs::remove_dir_all(self.folder(child.number)));
        }
        drop(self.client.deregister([&self.feed.work.plan.worker]).await);
        self.say(&format!("{} jobs were done", self.done));
    }
}

fn push_line(out: &mut Vec<u8>, value: &impl Serialize) {
    // Data is kept as it was written, line breaks and all; in JSON they can only stand between its parts.
    let from = out.len();
    if serde_json::to_writer(&mut *out, value).is_ok() {
        let written = out.iter_mut().skip(from);
        written.filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        out.push(b'\n');
    }
}

/// A text is itself, anything else is its JSON.
fn text_of(result: &Json) -> String {
    result.to::<String>().unwrap_or_else(|_| result.text().to_owned())
}

async fn write_lines(mut pipe: pipe::Sender, mut waiting: mpsc::UnboundedReceiver<Vec<u8>>) {
    let mut batches = Vec::new();
    while waiting.recv_many(&mut batches, 64).await > 0 {
        if pipe.write_all(&batches.concat()).await.is_err() {
            return;
        }
        batches.clear();
    }
}

async fn read_lines(mut pipe: pipe::Receiver, number: u64, news: mpsc::Sender<News>) {
    let mut buffer: Vec<u8> = Vec::with_capacity(64 << 10);
    loop {
        buffer.reserve(64 << 10);
        match pipe.read_buf(&mut buffer).await {
            Ok(count) if count > 0 && buffer.len() <= LINE_BYTES_MAX => {}
            _ => break,
        }
        let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else { continue };
        let rest = buffer.split_off(end + 1);
        let lines = buffer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        // What is no answer is noise: a library may print what it likes.
        let answers: Vec<Answer> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        buffer = rest;
        if news.send(News::Answers(answers)).await.is_err() {
            return;
        }
    }
    drop(news.send(News::Gone(number)).await);
}
