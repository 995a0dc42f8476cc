//! One task while it runs: its output, its limits, its lock, its end.

use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use haul_client::{Client, Error, Heartbeat, Job, Json, Report};
use rustix::process::Signal;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use crate::clock;
use crate::folder::{Folder, Record};
use crate::guardian::{Order, Orders};
use crate::lease::Lease;
use crate::outcome::{EXEC_KLASS, Stop, last_class};
use crate::output::{Output, Said};
use crate::plan::Plan;
use crate::process::{self, Identity};
use crate::stage;

/// How often limits are looked at that the kernel does not watch for us.
const LOOK: Duration = Duration::from_millis(100);
/// How often strays are looked for, and the folder measured.
const TIDY: Duration = Duration::from_secs(1);
/// Between two reports of what the task says.
const REPORT: Duration = Duration::from_secs(1);
/// Without a worker that is told of cancels, the lock is renewed at least this often, to hear of them.
const ORPHAN_BEAT: Duration = Duration::from_secs(5);
/// Read at a time.
const READ_BYTES: usize = 16 << 10;
/// A checkpoint up to this long is in the environment too.
const ENVIRONMENT_BYTES_MAX: usize = 32 << 10;

type Call<T> = Option<Pin<Box<dyn Future<Output = (Instant, Result<T, Error>)>>>>;

/// How a task ended, and what it left.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stop: Option<Stop>,
    pub(crate) said: Option<(u16, String)>,
    pub(crate) output: Output,
    /// What the server does not have of what it said.
    pub(crate) report: Option<Report>,
}

/// Why a task did not start.
pub(crate) enum NotStarted {
    /// There is no such command, or it may not be run: the status a shell would have, and why.
    Command {
        status: ExitStatus,
        words: String,
    },
    Fault(io::Error),
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        NotStarted::Fault(error)
    }
}

fn not_run(command: &Command, error: io::Error) -> NotStarted {
    let status = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOENT) => 127,
        Some(rustix::io::Errno::ACCESS | rustix::io::Errno::NOEXEC) => 126,
        _ => return NotStarted::Fault(error),
    };
    let words = format!("{} cannot be run: {error}", command.get_program().to_string_lossy());
    NotStarted::Command { status: ExitStatus::from_raw(status << 8), words }
}

/// What the task said last.
#[derive(Clone, Default)]
struct News {
    percent: Option<f64>,
    message: Option<String>,
    checkpoint: Option<Json>,
}

pub(crate) struct Supervisor<'a> {
    plan: &'a Plan,
    client: &'a Client,
    job: &'a Job,
    folder: &'a Folder,
    child: Child,
    pid: i32,
    /// Some child of ours has ended.
    ends: tokio::signal::unix::Signal,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
    output: Output,
    lease: Lease,
    began_at: Instant,
    /// Why it is to end, and since when.
    stop: Option<(Stop, Instant)>,
    looked_at: Instant,
    tidied_at: Instant,
    beat: Call<Duration>,
    /// The last renewal that did not succeed.
    asked_at: Option<Instant>,
    report: Call<()>,
    reported_at: Option<Instant>,
    news: News,
    /// How much there is to report: of news, and bytes of the log.
    said: (u64, u64),
    /// How much is on its way, and how much has arrived.
    sent: (u64, u64),
    arrived: (u64, u64),
    class: Option<(u16, String)>,
}

impl<'a> Supervisor<'a> {
    /// Starts the task.
    pub(crate) fn start(
        plan: &'a Plan,
        client: &'a Client,
        job: &'a Job,
        folder: &'a Folder,
        record: &Record,
        lease: Lease,
    ) -> Result<Self, NotStarted> {
        let ends = signal(SignalKind::child())?;
        let mut command = command(plan, job, folder, record)?;
        let mut child = command.spawn().map_err(|error| not_run(&command, error))?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        if let Some(task) = Identity::of(pid) {
            folder.record_task(task)?;
        }
        let stdout = child.stdout.take().map(|out| pipe::Receiver::from_owned_fd(out.into())).transpose()?;
        let stderr = child.stderr.take().map(|err| pipe::Receiver::from_owned_fd(err.into())).transpose()?;
        let now = clock::instant();
        Ok(Supervisor {
            plan,
            client,
            job,
            folder,
            child,
            pid,
            ends,
            stdout,
            stderr,
            output: Output::new(folder.log(), plan.limits.result_bytes, plan.lines),
            lease,
            began_at: now,
            stop: None,
            looked_at: now,
            tidied_at: now,
            beat: None,
            asked_at: None,
            report: None,
            reported_at: None,
            news: News::default(),
            said: (0, 0),
            sent: (0, 0),
            arrived: (0, 0),
            class: None,
        })
    }

    /// Until the task and everything it started has ended.
    pub(crate) async fn run(&mut self, orders: &mut Orders) -> Ended {
        let status = loop {
            if let Some(status) = self.step(orders).await {
                break status;
            }
        };
        // Its children end with it, and so does what they still had to say.
        process::kill_descendants();
        self.read_rest();
        let said = self.output.finish();
        self.heard(said);
        let report = (self.said != self.arrived || self.output.is_result_cut()).then(|| self.news_report());
        let fresh = Output::new(self.folder.log(), 0, false);
        let output = std::mem::replace(&mut self.output, fresh);
        let stop = self.stop.map(|(why, _)| why);
        Ended { status, stop, said: self.class.take(), output, report }
    }

    /// Does what is due and waits for one thing to happen; the status if that was the task's end.
    async fn step(&mut self, orders: &mut Orders) -> Option<ExitStatus> {
        let now = clock::instant();
        self.hold_to_limits(now);
        self.hold_to_lock(now);
        self.press(now);
        self.call_server(now, orders.is_orphan());
        let wake = self.wake_at(now, orders.is_orphan());
        let (mut first, mut second) = ([0; READ_BYTES], [0; READ_BYTES]);
        tokio::select! {
            _ = self.ends.recv() => return self.child.try_wait().ok().flatten(),
            count = read(&mut self.stdout, &mut first) => match count {
                0 => self.stdout = None,
                count => self.output.result_part(first.get(..count).unwrap_or_default()),
            },
            count = read(&mut self.stderr, &mut second) => match count {
                0 => self.stderr = None,
                count => {
                    let said = self.output.log_part(second.get(..count).unwrap_or_default());
                    self.heard(said);
                }
            },
            (sent_at, answer) = finished(&mut self.beat) => self.beaten(sent_at, answer),
            (_, answer) = finished(&mut self.report) => {
                if answer.is_ok() {
                    self.arrived = self.sent;
                }
                self.answered(answer.err());
            }
            order = orders.next() => self.obey(order),
            () = tokio::time::sleep_until(wake.into()) => {}
        }
        None
    }

    fn obey(&mut self, order: Option<Order>) {
        match order {
            Some(Order::Lost { jid }) if jid == self.job.jid => self.end(Stop::Lost),
            Some(Order::Stop) => self.end(Stop::Interrupted),
            _ => {}
        }
    }

    /// Asks the task to end; the first reason stands.
    fn end(&mut self, why: Stop) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some((why, clock::instant()));
        process::signal_group(self.pid, Signal::TERM);
        process::signal_group(self.pid, Signal::CONT);
    }

    /// Who does not end when asked is ended.
    fn press(&mut self, now: Instant) {
        if self.kill_at().is_some_and(|at| now >= at) {
            process::signal_group(self.pid, Signal::KILL);
            for pid in process::descendants(std::process::id().try_into().unwrap_or(0)) {
                process::signal(pid, Signal::KILL);
            }
        }
    }

    fn kill_at(&self) -> Option<Instant> {
        let (why, since) = self.stop?;
        let patient = since + self.plan.grace;
        // Nothing may be left of it when the lock can be given away.
        Some(if why == Stop::NotRenewed { patient.min(self.lease.kill_at()) } else { patient })
    }

    fn hold_to_lock(&mut self, now: Instant) {
        if now >= self.lease.stop_at() {
            self.end(Stop::NotRenewed);
        }
    }

    fn hold_to_limits(&mut self, now: Instant) {
        let limits = &self.plan.limits;
        let over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used > limit);
        if limits.time.is_some_and(|limit| now >= self.began_at + limit) {
            self.end(Stop::Time);
        }
        if over(limits.output_bytes, self.output.bytes) {
            self.end(Stop::OutputBytes);
        }
        let own = std::process::id().try_into().unwrap_or(0);
        if now >= self.looked_at + LOOK && (limits.memory_bytes.is_some() || limits.processes.is_some()) {
            self.looked_at = now;
            let pids = process::descendants(own);
            if limits.processes.is_some_and(|most| pids.len() > most) {
                self.end(Stop::Processes);
            }
            if over(limits.memory_bytes, process::memory_bytes(&pids)) {
                self.end(Stop::Memory);
            }
        }
        if now >= self.tidied_at + TIDY {
            self.tidied_at = now;
            process::reap_strays(own, self.pid);
            if let Some(most) = limits.disk_bytes
                && self.folder.work_bytes(most) > most
            {
                self.end(Stop::Disk);
            }
        }
    }

    fn call_server(&mut self, now: Instant, is_orphan: bool) {
        if self.beat.is_none() && now >= self.beat_at(is_orphan) && !self.is_lost() {
            let beat = Heartbeat::job(&self.plan.worker, self.job).lock(self.plan.lock);
            let client = self.client.clone();
            self.beat = Some(Box::pin(async move { (now, client.heartbeat(&beat).await) }));
        }
        if self.report.is_none() && self.report_at().is_some_and(|at| now >= at) && !self.is_lost() {
            let report = self.news_report();
            self.sent = self.said;
            self.reported_at = Some(now);
            let client = self.client.clone();
            self.report = Some(Box::pin(async move { (now, client.report(&report).await) }));
        }
    }

    /// Everything the server does not have yet.
    fn news_report(&self) -> Report {
        let mut report = Report::job(&self.plan.worker, self.job);
        if self.said.0 > self.arrived.0 {
            let News { percent, message, checkpoint } = self.news.clone();
            report = percent.into_iter().fold(report, Report::percent);
            report = message.into_iter().fold(report, Report::message);
            report = checkpoint.into_iter().fold(report, Report::checkpoint);
        }
        if self.said.1 > self.arrived.1 {
            report = report.output(self.output.shown(), self.output.log_bytes);
        }
        report
    }

    fn beat_at(&self, is_orphan: bool) -> Instant {
        let due = self.lease.beat_at(self.asked_at);
        match is_orphan {
            true => due.min(self.asked_at.unwrap_or(self.lease.renewed_at()) + ORPHAN_BEAT),
            false => due,
        }
    }

    /// When there is news to report, and it may be.
    fn report_at(&self) -> Option<Instant> {
        (self.said != self.arrived).then(|| self.reported_at.map_or(self.began_at, |at| at + REPORT))
    }

    fn is_lost(&self) -> bool {
        matches!(self.stop, Some((Stop::Lost, _)))
    }

    fn beaten(&mut self, sent_at: Instant, answer: Result<Duration, Error>) {
        match answer {
            Ok(_) => {
                self.asked_at = None;
                self.lease.renewed(sent_at);
            }
            Err(error) => {
                self.asked_at = Some(clock::instant());
                self.answered(Some(error));
            }
        }
    }

    fn answered(&mut self, error: Option<Error>) {
        if error.is_some_and(|error| error.is_lock_lost()) {
            self.end(Stop::Lost);
        }
    }

    fn wake_at(&self, now: Instant, is_orphan: bool) -> Instant {
        let limits = &self.plan.limits;
        let looks =
            (limits.memory_bytes.is_some() || limits.processes.is_some()).then(|| self.looked_at + LOOK);
        let due = [
            Some(self.tidied_at + TIDY),
            looks,
            limits.time.map(|limit| self.began_at + limit).filter(|at| *at > now),
            Some(self.beat_at(is_orphan)).filter(|_| self.beat.is_none()),
            Some(self.lease.stop_at()).filter(|at| *at > now),
            self.report_at().filter(|_| self.report.is_none()),
            self.kill_at().map(|at| at.max(now + LOOK)),
        ];
        let soonest = due.into_iter().flatten().min().unwrap_or(now + TIDY);
        soonest.max(now + Duration::from_millis(1))
    }

    fn heard(&mut self, said: Vec<Said>) {
        self.class = last_class(&said).or(self.class.take());
        self.said = (self.said.0 + said.len() as u64, self.output.log_bytes);
        for said in said {
            match said {
                Said::Progress { percent, message } => {
                    self.news.percent = percent.or(self.news.percent);
                    self.news.message = message.or(self.news.message.take());
                }
                Said::Checkpoint(checkpoint) => self.news.checkpoint = Some(checkpoint),
                Said::Outcome { .. } => {}
            }
        }
    }

    /// What is left in the pipes; nobody writes to them any more.
    fn read_rest(&mut self) {
        let mut buffer = [0; READ_BYTES];
        while let Some(count) =
            self.stdout.as_ref().and_then(|pipe| pipe.try_read(&mut buffer).ok()).filter(|count| *count > 0)
        {
            self.output.result_part(buffer.get(..count).unwrap_or_default());
        }
        while let Some(count) =
            self.stderr.as_ref().and_then(|pipe| pipe.try_read(&mut buffer).ok()).filter(|count| *count > 0)
        {
            let said = self.output.log_part(buffer.get(..count).unwrap_or_default());
            self.heard(said);
        }
    }
}

/// How much was read; 0: nothing more comes. Without a pipe it waits for ever.
async fn read(pipe: &mut Option<pipe::Receiver>, buffer: &mut [u8]) -> usize {
    let Some(pipe) = pipe else { return std::future::pending().await };
    tokio::io::AsyncReadExt::read(pipe, buffer).await.unwrap_or(0)
}

async fn finished<T>(call: &mut Call<T>) -> (Instant, Result<T, Error>) {
    let Some(running) = call else { return std::future::pending().await };
    let answer = running.await;
    *call = None;
    answer
}

/// The task.
fn command(plan: &Plan, job: &Job, folder: &Folder, record: &Record) -> io::Result<Command> {
    let exec = || (job.klass == EXEC_KLASS).then(|| job.data.to::<ExecData>().ok()).flatten();
    let argv = plan.command.clone().or_else(|| exec().map(|data| data.argv)).filter(|argv| !argv.is_empty());
    let argv = argv.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "its data names no command: {\"argv\": [\"command\", ...]} is expected",
        )
    })?;
    let (program, args) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    stage::prepare(&mut command, &plan.limits);
    command.args(args).current_dir(folder.work());
    command.stdin(std::fs::File::open(folder.data())?).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
        .env(stage::MARK, &record.mark)
        .env("HAUL_JID", &job.jid)
        .env("HAUL_QUEUE", &record.queue)
        .env("HAUL_KLASS", &job.klass)
        .env("HAUL_ATTEMPT", job.attempt.to_string())
        .env("HAUL_RETRIES_LEFT", job.remaining.to_string())
        .env("HAUL_PRIORITY", job.priority.to_string())
        .env("HAUL_TAGS", job.tags.join(","))
        .env("HAUL_WORKER", &plan.worker)
        .env("HAUL_DATA_FILE", folder.data())
        .env("HAUL_FOLDER", folder.work())
        // A task that is to talk to the server is given a token of its own, not the worker's.
        .env_remove("HAUL_TOKEN")
        .env_remove("HAUL_TRACE")
        .env_remove("HAUL_CHECKPOINT")
        .env_remove("HAUL_CHECKPOINT_FILE");
    if let Some(trace) = &job.trace {
        command.env("HAUL_TRACE", trace).env("TRACEPARENT", trace);
    }
    if let Some(checkpoint) = &job.checkpoint {
        let path = folder.data().with_file_name("checkpoint");
        std::fs::write(&path, checkpoint.text())?;
        command.env("HAUL_CHECKPOINT_FILE", path);
        if checkpoint.text().len() <= ENVIRONMENT_BYTES_MAX {
            command.env("HAUL_CHECKPOINT", checkpoint.text());
        }
    }
    Ok(command)
}

/// The data of a job that brings its own command.
#[derive(serde::Deserialize)]
struct ExecData {
    argv: Vec<String>,
}
