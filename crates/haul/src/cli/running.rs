//! Running work: `work`, `run`, `tail`, `wait`, `drain`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use haul_client::{Job, Put, State};
use serde_json::json;

use super::failure::{Done, Failure};
use super::output;
use super::session::Session;
use super::value;
use crate::runner::{self, Classes, Connection, EXEC_KLASS, Feed, Limits, Order, Plan, RetryRule};

/// Take jobs and run a command for each
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul work mail -- ./send-mail
  haul work urgent 'mail-*' '!mail-test' --concurrency 8 --klass email,sms -- ./send
  haul work shell --exec --concurrency 4 --time-limit 2h --memory 2g
  haul work events --serve 2 --batch 200 -- python3 handler.py

The command gets the job's data on standard input and in $HAUL_DATA_FILE, facts in HAUL_*, and a folder of its own to
work in. Standard output becomes the result, standard error the log. Exit status 0 completes the job, 75 tries it again,
any other fails it into the group exit-N. Jobs go on when this worker ends: each has a guardian process.
docs/guide/running.md tells all of it.")]
pub(super) struct Work {
    /// Queues: names, patterns with *, !pattern to leave some out, @name for a stored list
    #[arg(required = true)]
    queues: Vec<String>,
    /// The command and its arguments, behind --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Run the commands that jobs of klass haul.exec bring along (`haul run` puts them): whoever can put jobs runs commands here
    #[arg(long, conflicts_with_all = ["command", "serve"])]
    exec: bool,
    /// Jobs at a time
    #[arg(long, short = 'c', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    concurrency: u64,
    /// In which order queues are asked
    #[arg(long, value_enum, default_value_t)]
    order: Order,
    /// Take only jobs of these klasses
    #[arg(long, value_name = "KLASS", value_delimiter = ',')]
    klass: Vec<String>,
    /// The worker's name [default: the machine's name and the process id]
    #[arg(long, env = "HAUL_WORKER", value_name = "NAME")]
    worker: Option<String>,
    /// Where running jobs are kept track of [default: $XDG_STATE_HOME/haul-work, or ~/.local/state/haul-work]
    #[arg(long, env = "HAUL_STATE", value_name = "DIR")]
    state: Option<PathBuf>,
    /// How long a lock lasts; it is renewed in time
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = value::interval)]
    lock: Duration,
    /// Between asking a task to end (SIGTERM) and ending it (SIGKILL)
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = value::duration)]
    grace: Duration,
    /// Go at once when told to stop; running jobs go on under their guardians
    #[arg(long)]
    detach: bool,
    /// End when there is nothing more to do
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    retry: RetryArgs,
    /// Feed jobs to N long-running processes instead of starting one for each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), requires = "command")]
    serve: Option<u64>,
    /// Jobs a long-running process has at a time
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// How long a job may run
    #[arg(long, value_name = "DURATION", value_parser = value::interval)]
    time_limit: Option<Duration>,
    /// Memory of all its processes together
    #[arg(long, value_name = "BYTES", conflicts_with = "serve", value_parser = value::bytes)]
    memory: Option<u64>,
    /// Address space of each of its processes
    #[arg(long, value_name = "BYTES", value_parser = value::bytes)]
    address_space: Option<u64>,
    /// Processor time of each of its processes, in seconds
    #[arg(long, value_name = "SECONDS")]
    cpu: Option<u64>,
    /// Size of its folder
    #[arg(long, value_name = "BYTES", conflicts_with = "serve", value_parser = value::bytes)]
    disk: Option<u64>,
    /// Size of a file it writes
    #[arg(long, value_name = "BYTES", value_parser = value::bytes)]
    file_size: Option<u64>,
    /// Open files of each of its processes
    #[arg(long, value_name = "N")]
    open_files: Option<u64>,
    /// Its processes
    #[arg(long, value_name = "N", conflicts_with = "serve")]
    processes: Option<usize>,
    /// What it may print in all
    #[arg(long, value_name = "BYTES", conflicts_with = "serve", value_parser = value::bytes)]
    output: Option<u64>,
    /// Standard output kept as the result; the rest is dropped
    #[arg(long, value_name = "BYTES", default_value = "1m", value_parser = value::bytes)]
    result_bytes_max: u64,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Trying again")]
struct RetryArgs {
    /// Try again after these: exit statuses, `exit` (any status), `signal`, `limit`; 75 always
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    retry_on: Vec<String>,
    /// The first delay before another try; it doubles each time, less up to half of it by chance
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = value::duration)]
    backoff: Duration,
    /// The longest delay
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = value::duration)]
    backoff_max: Duration,
    /// What exit statuses mean
    #[arg(long, value_enum, default_value_t)]
    exit_classes: ExitClasses,
    /// Do not look for lines beginning with ::haul on standard error
    #[arg(long)]
    no_lines: bool,
}

/// As [`Classes`], in words.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum ExitClasses {
    /// 0 is done, everything else is not
    #[default]
    Plain,
    /// 0 and 200-255 done, 100-199 and 75 again, 64 and 65 failed, all others again
    Serverless,
}

impl From<ExitClasses> for Classes {
    fn from(classes: ExitClasses) -> Self {
        match classes {
            ExitClasses::Plain => Classes::Plain,
            ExitClasses::Serverless => Classes::Serverless,
        }
    }
}

impl RetryArgs {
    fn rule(&self) -> Result<RetryRule, Failure> {
        let mut rule =
            RetryRule { backoff: self.backoff, backoff_max: self.backoff_max, ..RetryRule::default() };
        for word in &self.retry_on {
            match word.as_str() {
                "exit" => rule.any_status = true,
                "signal" => rule.signals = true,
                "limit" => rule.limits = true,
                number => rule.statuses.push(
                    number.parse().ok().filter(|status| (1..=255).contains(status)).ok_or_else(|| {
                        Failure::Usage(format!(
                            "--retry-on takes exit statuses, exit, signal and limit, not {number}"
                        ))
                    })?,
                ),
            }
        }
        Ok(rule)
    }
}

impl LimitArgs {
    fn limits(&self) -> Limits {
        Limits {
            time: self.time_limit,
            memory_bytes: self.memory,
            address_bytes: self.address_space,
            cpu_seconds: self.cpu,
            file_bytes: self.file_size,
            disk_bytes: self.disk,
            files: self.open_files,
            processes: self.processes,
            output_bytes: self.output,
            result_bytes: usize::try_from(self.result_bytes_max).unwrap_or(usize::MAX),
        }
    }
}

impl Work {
    pub(super) async fn run(self, session: &Session) -> Done {
        if !self.exec && self.command.is_empty() {
            return Err(Failure::Usage(
                "say what to run: haul work QUEUE -- COMMAND, or --exec for jobs that bring their own"
                    .to_owned(),
            ));
        }
        let plan = Plan {
            connection: session.connection(),
            worker: self.worker.clone().unwrap_or_else(runner::Work::default_name),
            state: self.state.clone().unwrap_or_else(default_state),
            command: (!self.exec).then(|| self.command.clone()),
            lock: self.lock,
            grace: self.grace,
            limits: self.limits.limits(),
            retry: self.retry.rule()?,
            classes: self.retry.exit_classes.into(),
            lines: !self.retry.no_lines,
        };
        let klasses = if self.exec { vec![EXEC_KLASS.to_owned()] } else { self.klass.clone() };
        let work = runner::Work {
            plan,
            queues: self.queues.clone(),
            order: self.order,
            klasses,
            concurrency: usize::try_from(self.concurrency).unwrap_or(1),
            detach: self.detach,
            once: self.once,
            say,
        };
        say(&format!("worker {} takes jobs from {}", work.plan.worker, work.queues.join(", ")));
        let outcome = match self.serve {
            None => runner::run(work).await,
            Some(children) => {
                let (children, batch) =
                    (usize::try_from(children).unwrap_or(1), usize::try_from(self.batch).unwrap_or(1));
                runner::feed(Feed { work, children, batch }).await
            }
        };
        // The server's refusals are told as everywhere.
        outcome.map_err(|error| match error.downcast::<haul_client::Error>() {
            Ok(error) => error.into(),
            Err(error) => Failure::Usage(format!("the worker cannot go on: {error}")),
        })
    }
}

fn say(text: &str) {
    output::complain(&format!("haul work: {text}"));
}

fn default_state() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = named("XDG_STATE_HOME").or_else(|| named("HOME").map(|home| home.join(".local/state")));
    state.unwrap_or_else(|| PathBuf::from(".")).join("haul-work")
}

/// Put a command as a job, follow it, and exit with its status
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul run shell -- make test
  haul run nightly --priority 5 --retries 2 -- ./backup --full
  haul run shell --no-follow -- sleep 3600

A worker started with --exec runs it: haul work shell --exec. Its log comes on standard error while it runs, its standard
output at the end. The exit status is the command's; 128 and the signal's number if it was killed, 124 at its time limit.")]
pub(super) struct Run {
    /// The queue
    queue: String,
    /// The command and its arguments, behind --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// The job's id [default: a new one]
    #[arg(long)]
    jid: Option<String>,
    /// A larger one runs sooner
    #[arg(long, value_name = "N", default_value_t = 0)]
    priority: i64,
    /// How often it is tried again
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Not before this long from now
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    delay: Option<Duration>,
    /// Print the jid and do not wait
    #[arg(long)]
    no_follow: bool,
}

impl Run {
    pub(super) async fn run(self, session: &Session) -> Done {
        let mut put = Put::new(&self.queue, EXEC_KLASS, &json!({ "argv": self.command }));
        put = put.priority(self.priority).retries(self.retries);
        put = self.jid.iter().fold(put, Put::jid);
        put = self.delay.into_iter().fold(put, Put::delay);
        let jid = session.client.put(&put).await?;
        if self.no_follow {
            return session.out.say(&json!({ "jid": jid }), &jid);
        }
        output::complain(&format!("haul run: job {jid}"));
        let job = follow(session, &jid, Show::Log).await?;
        finish(session, &job)
    }
}

/// Follow a running job's log
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul tail job-1
  haul tail job-1 --no-follow

Shows the last part of the log and what is added to it until the job ends. `haul wait` exits with the job's status.")]
pub(super) struct Tail {
    /// The job
    jid: String,
    /// Show what there is and do not wait
    #[arg(long)]
    no_follow: bool,
}

impl Tail {
    pub(super) async fn run(self, session: &Session) -> Done {
        if self.no_follow {
            let job = session.job(&self.jid).await?;
            return session
                .out
                .say(&json!({"jid": job.jid, "output": job.output}), &job.output.unwrap_or_default());
        }
        follow(session, &self.jid, Show::Output).await.map(drop)
    }
}

/// Wait for a job's end and exit with its status
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul wait job-1 && echo done
  haul wait job-1 --timeout 10m

Prints the result. Exits with 0 if the job is complete, with the command's status if it failed into exit-N, with 128 and
the signal's number for signal-NAME, with 124 for time-limit, with 1 for any other failure, and with 4 at the timeout.")]
pub(super) struct Wait {
    /// The job
    jid: String,
    /// Give up after this long
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    timeout: Option<Duration>,
}

impl Wait {
    pub(super) async fn run(self, session: &Session) -> Done {
        let waiting = follow(session, &self.jid, Show::Nothing);
        let job = match self.timeout {
            None => waiting.await?,
            Some(timeout) => tokio::time::timeout(timeout, waiting)
                .await
                .map_err(|_| Failure::Nothing(format!("job {} has not ended", self.jid)))??,
        };
        finish(session, &job)
    }
}

/// Where a followed job's log goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    Nothing,
    /// To standard error: standard output is the result's.
    Log,
    Output,
}

/// Until the job has ended.
async fn follow(session: &Session, jid: &str, show: Show) -> Result<Job, Failure> {
    const PAUSE_MIN: Duration = Duration::from_millis(50);
    const PAUSE_MAX: Duration = Duration::from_millis(500);
    let (mut shown, mut attempt, mut pause) = (0, 0, PAUSE_MIN);
    loop {
        let job = match session.client.get(jid).await {
            Ok(job) => job.ok_or_else(|| Failure::no_job(jid))?,
            // The server is being started anew, say: jobs outlive that, and so does whoever waits for one.
            Err(error) if error.is_passing() => {
                tokio::time::sleep(PAUSE_MAX).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if job.attempt != attempt {
            (attempt, shown) = (job.attempt, 0);
        }
        if let Some(text) = job.output.as_deref().filter(|_| show != Show::Nothing) {
            let total = job.output_bytes.unwrap_or(0);
            let fresh = usize::try_from(total.saturating_sub(shown)).unwrap_or(usize::MAX).min(text.len());
            let from =
                (text.len() - fresh..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
            let part = text.get(from..).unwrap_or_default();
            match show {
                Show::Log => drop(std::io::stderr().lock().write_all(part.as_bytes())),
                _ if !part.is_empty() => {
                    let mut out = std::io::stdout().lock();
                    out.write_all(part.as_bytes()).and_then(|()| out.flush())?;
                }
                _ => {}
            }
            shown = shown.max(total);
        }
        if matches!(job.state, State::Complete | State::Failed) {
            return Ok(job);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The result, and the exit status that tells how it ended.
fn finish(session: &Session, job: &Job) -> Done {
    if session.out.json {
        session.out.value(job)?;
    } else if let Some(result) = &job.result {
        session.out.text(result)?;
    }
    match job.failure.as_ref().filter(|_| job.state == State::Failed) {
        None => Ok(()),
        Some(failure) => {
            let first = failure.message.lines().next().unwrap_or_default();
            Err(Failure::Ended {
                exit: runner::exit_code(&failure.group),
                message: format!("job {} failed: {}: {first}", job.jid, failure.group),
            })
        }
    }
}

/// Ask workers to take no more jobs and to end when theirs are done
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul drain host-1-4711
  haul drain host-1-4711 --undo

A worker hears of it with its next sign of life, within some seconds. `haul workers` shows it as draining.")]
pub(super) struct Drain {
    /// The workers
    #[arg(required = true)]
    workers: Vec<String>,
    /// Let them take jobs again, if they have not ended yet
    #[arg(long)]
    undo: bool,
}

impl Drain {
    pub(super) async fn run(self, session: &Session) -> Done {
        for worker in &self.workers {
            if !session.client.drain(worker, !self.undo).await? {
                return Err(Failure::Refused {
                    code: "NOWORKER",
                    message: format!("there is no worker {worker}"),
                    next: "`haul workers` lists those there are".to_owned(),
                });
            }
        }
        let word = if self.undo { "takes jobs again" } else { "drains" };
        session.out.say(
            &json!({"workers": self.workers, "drain": !self.undo}),
            &format!("{}: {word}", self.workers.join(", ")),
        )
    }
}

/// Of [`Session`], for guardians.
impl Session {
    fn connection(&self) -> Connection {
        let tls = self.options.tls.as_ref();
        Connection {
            address: self.address.clone(),
            database: self.options.database.clone(),
            token: self.options.token.clone(),
            is_tls: tls.is_some(),
            ca: tls.and_then(|tls| tls.ca.clone()),
            identity: tls.and_then(|tls| tls.identity.clone()),
            server_name: tls.and_then(|tls| tls.server_name.clone()),
        }
    }
}
