//! The guardian: a process in a session of its own that runs one job at a time and sees it to its end, whatever becomes
//! of the worker that gave it the job. Without a worker it finishes its job, delivers the outcome and goes.
//!
//! It has one thread: the kernel ties the task's life to the thread that started it.

use std::io::Write;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use haul_client::{Client, Job};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;

use crate::clock;
use crate::folder::{Folder, Record, State};
use crate::lease::Lease;
use crate::outcome::{End, Outcome, Stop, Teller, judge};
use crate::plan::Plan;
use crate::process::{self, Identity};
use crate::supervise::{Ended, NotStarted, Supervisor};

/// The longest pause between two tries to deliver an outcome.
const DELIVERY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// What a worker tells a guardian: a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    Plan(Box<Plan>),
    Job(Box<Assigned>),
    /// The job is no longer ours.
    Lost {
        jid: String,
    },
    /// End the task, give the job back, and go.
    Stop,
}

/// A job with the moment its lock began, in seconds since boot.
#[derive(Debug, Serialize, Deserialize)]
pub struct Assigned {
    pub job: Job,
    pub locked_at: f64,
}

/// The worker's orders.
pub(crate) struct Orders {
    lines: Option<Lines<BufReader<pipe::Receiver>>>,
}

impl Orders {
    fn open() -> std::io::Result<Self> {
        let stdin = rustix::io::dup(std::io::stdin())?;
        Ok(Orders { lines: Some(BufReader::new(pipe::Receiver::from_owned_fd(stdin)?).lines()) })
    }

    /// The next order; none: the worker is gone, and every further call waits for ever. May be cancelled.
    pub(crate) async fn next(&mut self) -> Option<Order> {
        loop {
            let Some(lines) = &mut self.lines else { return std::future::pending().await };
            match lines.next_line().await {
                Ok(Some(line)) => match serde_json::from_str(&line) {
                    Ok(order) => return Some(order),
                    Err(_) => continue,
                },
                _ => {
                    self.lines = None;
                    return None;
                }
            }
        }
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.lines.is_none()
    }
}

/// Runs until the worker is gone or says stop, and no job is left.
pub fn run() -> ExitCode {
    // It is executed from a file without a proper name.
    let _ = rustix::thread::set_name(c"haul-guard");
    let _ = rustix::process::setsid();
    // Whoever leaves its parent becomes our child, so that no process of a task can get away.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map(|runtime| runtime.block_on(guard())) {
        Ok(Some(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

async fn guard() -> Option<()> {
    let mut orders = Orders::open().ok()?;
    let Some(Order::Plan(plan)) = orders.next().await else { return None };
    let patience = (plan.lock / 6).clamp(Duration::from_millis(100), Duration::from_secs(5));
    let client = plan.connection.client(patience).ok()?;
    let state = State::open(&plan.state).ok()?;
    let (own, boot_id) = (Identity::own()?, process::boot_id());
    let mut guardian = Guardian { plan, client, state, orders, own, boot_id, is_stopping: false, jobs: 0 };
    loop {
        tell_worker("ready");
        match guardian.orders.next().await {
            Some(Order::Job(assigned)) => guardian.see_through(*assigned).await,
            Some(Order::Stop) | None => return Some(()),
            Some(_) => {}
        }
        if guardian.is_stopping || guardian.orders.is_orphan() {
            return Some(());
        }
    }
}

/// A worker that is gone hears nothing, which is its affair.
fn tell_worker(line: &str) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

struct Guardian {
    plan: Box<Plan>,
    client: Client,
    state: State,
    orders: Orders,
    own: Identity,
    boot_id: String,
    is_stopping: bool,
    /// How many it was given.
    jobs: u64,
}

impl Guardian {
    /// One job, from its folder to the server's word that its end is known.
    async fn see_through(&mut self, assigned: Assigned) {
        let Assigned { job, locked_at } = assigned;
        let age = Duration::from_secs_f64((process::uptime_seconds() - locked_at).clamp(0.0, 1e9));
        let now = clock::instant();
        let lease = Lease::new(self.plan.lock, self.plan.grace, now.checked_sub(age).unwrap_or(now));
        let teller = Teller::of(&self.plan.worker, &job);
        let (folder, outcome) = match self.prepare(&job) {
            Ok((folder, record)) => {
                let outcome = self.attempt(&job, &folder, &record, lease).await;
                (Some(folder), outcome)
            }
            Err(error) => (None, self.fault(&job, &error)),
        };
        let word = self.deliver(&teller, folder.as_ref(), &outcome).await;
        if let Some(folder) = folder.filter(|_| word.is_some()) {
            folder.remove();
        }
        tell_worker(&format!("done {} {}", job.jid, word.unwrap_or("kept")));
    }

    fn prepare(&mut self, job: &Job) -> std::io::Result<(Folder, Record)> {
        self.jobs += 1;
        let guardian = self.own;
        let record = Record {
            jid: job.jid.clone(),
            attempt: job.attempt,
            worker: self.plan.worker.clone(),
            queue: job.queue.clone().unwrap_or_default(),
            boot_id: self.boot_id.clone(),
            guardian,
            task: None,
            mark: format!("{}-{}-{}", guardian.pid, guardian.start, self.jobs),
            lock_ends: job.expires,
        };
        let folder = self.state.create(&record)?;
        std::fs::write(folder.data(), job.data.text())?;
        Ok((folder, record))
    }

    /// Runs the task and judges its end.
    async fn attempt(&mut self, job: &Job, folder: &Folder, record: &Record, lease: Lease) -> Outcome {
        let supervisor = Supervisor::start(&self.plan, &self.client, job, folder, record, lease);
        let mut supervisor = match supervisor {
            Ok(supervisor) => supervisor,
            Err(NotStarted::Command { status, words }) => return self.unrun(job, status, words),
            Err(NotStarted::Fault(error)) => return self.fault(job, &error),
        };
        let Ended { status, stop, said, output, report } = supervisor.run(&mut self.orders).await;
        self.is_stopping |= stop == Some(Stop::Interrupted);
        let mut log = String::from_utf8_lossy(output.shown()).into_owned();
        if log.is_empty() {
            // Some tools complain on standard output.
            log = output.result();
        }
        if let Some(mut report) = report.filter(|_| stop != Some(Stop::Lost)) {
            if output.is_result_cut() {
                let cut = format!(
                    "the result was cut: {} of {} bytes are kept",
                    output.result().len(),
                    output.result_bytes
                );
                report = report.message(cut);
            }
            // What it printed last is worth one try, not a delay of its end.
            drop(self.client.report(&report).await);
        }
        let end = End {
            status,
            stop,
            said,
            result: output.result(),
            log,
            retries_used: retries_used(job),
            jitter: clock::jitter(),
        };
        judge(&self.plan, end)
    }

    /// The command cannot be run: as if a shell had tried, but the reason is what is told.
    fn unrun(&self, job: &Job, status: ExitStatus, words: String) -> Outcome {
        let (stop, said, result, log) = (None, None, String::new(), String::new());
        let (retries_used, jitter) = (retries_used(job), clock::jitter());
        match judge(&self.plan, End { status, stop, said, result, log, retries_used, jitter }) {
            Outcome::Fail { group, .. } => Outcome::Fail { group, message: words },
            Outcome::Retry { delay, group, .. } => Outcome::Retry { delay, group, message: words },
            other => other,
        }
    }

    /// We could not even begin: our fault, not the job's, unless it names no command.
    fn fault(&self, job: &Job, error: &std::io::Error) -> Outcome {
        if error.kind() == std::io::ErrorKind::InvalidInput {
            return Outcome::Fail { group: "no-command".to_owned(), message: error.to_string() };
        }
        let used = retries_used(job);
        let delay =
            self.plan.retry.backoff.saturating_mul(1 << used.min(10)).min(self.plan.retry.backoff_max);
        let message = format!("the worker could not start it: {error}");
        Outcome::Retry { delay, group: "worker-fault".to_owned(), message }
    }

    /// Tells the server until it has answered. The outcome is on disk first: a guardian that dies here leaves it to the
    /// next worker. None: we are told to stop, and it stays there.
    async fn deliver(
        &mut self,
        teller: &Teller,
        folder: Option<&Folder>,
        outcome: &Outcome,
    ) -> Option<&'static str> {
        if let Some(folder) = folder {
            drop(folder.keep_outcome(outcome, false));
        }
        let mut pause = Duration::from_millis(50);
        let mut is_synced = false;
        loop {
            if let Ok(word) = teller.tell(&self.client, outcome).await {
                return Some(word);
            }
            // The server is away: this may take long enough for the machine to go down meanwhile.
            if let Some(folder) = folder.filter(|_| !is_synced) {
                is_synced = folder.keep_outcome(outcome, true).is_ok();
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                order = self.orders.next() => if matches!(order, Some(Order::Stop)) {
                    self.is_stopping = true;
                    return None;
                },
            }
            pause = (pause * 2).min(DELIVERY_PAUSE_MAX);
        }
    }
}

fn retries_used(job: &Job) -> u32 {
    u32::try_from(job.retries.saturating_sub(job.remaining)).unwrap_or(0)
}
