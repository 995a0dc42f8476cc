//! A warm context: an interpreter that was started once, has loaded the code once, and is fed jobs over a pipe.
//!
//! A request is a line of words, then as many bytes as it says: `L type bytes` loads a type, `B type` begins a batch,
//! `J id raw bytes flush` is a job, `A` ends the batch. Each is answered by `kind exitcode micros output result reason`,
//! the last three being lengths (-1: no result), then those bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::process::{Complaints, Folder, Start, end, find, kill, limits};
use super::watch::{Excess, Limits, processes};
use super::{Batch, Maker, Ran};
use crate::serverless::handlers::{Handler, Lang};
use crate::serverless::jobs::Job;
use crate::serverless::outcome::{OUTPUT_BYTES_MAX, Outcome, RESULT_BYTES_MAX, of_status};

const PYTHON: &str = include_str!("../harness/python.py");
const NODE: &str = include_str!("../harness/node.js");
const PHP: &str = include_str!("../harness/php.php");
/// An answer's first line has no more bytes.
const HEAD_BYTES_MAX: u64 = 200;
/// What a whole interpreter may use in its life: the time of each job is watched apart.
const LIFE_CPU: Duration = Duration::from_secs(3600);
/// Bytes that the jobs of one batch may print and return together; those behind are run again in another batch.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// How long an interpreter that said its last word may take to end.
const END_WAIT: Duration = Duration::from_secs(2);

pub(super) struct Warm {
    maker: Arc<Maker>,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    complaints: Complaints,
    /// What was run once for all jobs of this context: loading, and `before`.
    once_micros: u64,
    /// How many processes there are while nothing runs.
    processes: usize,
    /// Last: the process must be gone first.
    folder: Folder,
}

/// One answer.
struct Said {
    exitcode: u16,
    micros: u64,
    output: Vec<u8>,
    result: Option<Vec<u8>>,
    /// There was more of the result than is kept.
    truncated: bool,
    reason: String,
}

/// Why there is no answer.
enum Silence {
    Ended,
    Excess(Excess),
    Nonsense,
}

impl Warm {
    pub(super) fn start(maker: &Arc<Maker>, tenant: &str, handler: &Handler) -> Result<Self, String> {
        let folder = Folder::new(maker, tenant)?;
        let memory = handler.options.memory_mb.unwrap_or(maker.bounds.memory_mb);
        let (name, text, file, args) = match handler.lang {
            Lang::Node => {
                ("node", NODE, ".haul.js", vec![format!("--max-old-space-size={}", memory * 3 / 4)])
            }
            Lang::Php => ("php", PHP, ".haul.php", vec!["-d".to_owned(), "opcache.enable_cli=0".to_owned()]),
            _ => ("python3", PYTHON, ".haul.py", vec!["-B".to_owned()]),
        };
        let program = find(name).ok_or_else(|| format!("{name} is not installed"))?;
        let script = folder.write(file, text)?;
        let args = args.into_iter().chain([script.display().to_string()]).collect();
        let start = Start {
            maker,
            folder: &folder,
            tenant,
            options: &handler.options,
            cpu: LIFE_CPU,
            program,
            args,
            env: Vec::new(),
        };
        let mut child = start.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the interpreter has no pipes".to_owned());
        };
        let output = BufReader::with_capacity(1 << 16, output);
        let complaints = Complaints::listen(&mut child, tenant);
        Ok(Warm {
            maker: maker.clone(),
            child,
            input,
            output,
            complaints,
            once_micros: 0,
            processes: 0,
            folder,
        })
    }

    pub(super) async fn run(&mut self, batch: &Batch<'_>, is_first: bool, is_new: bool) -> Ran {
        let mut before_micros = 0;
        if is_new {
            before_micros = match self.load(batch, is_first).await {
                Ok(micros) => micros,
                Err(outcome) => {
                    end(&mut self.child).await;
                    return Ran { before_micros: outcome.micros, ..Ran::all(batch.jobs.len(), &outcome) };
                }
            };
            self.once_micros += before_micros;
            self.processes = processes(self.child.id());
        }
        let (mut ran, shared_micros) = self.run_jobs(batch).await;
        ran.before_micros = before_micros;
        ran.spread(shared_micros, self.once_micros, self.maker.jobs_max);
        ran.alive = ran.alive && self.is_tidy(batch);
        if !ran.alive {
            end(&mut self.child).await;
        }
        ran
    }

    /// Whether a batch has left neither processes nor too many files behind.
    fn is_tidy(&self, batch: &Batch<'_>) -> bool {
        let limits = limits(&self.maker, &batch.handler.options, &self.folder, None);
        processes(self.child.id()) <= self.processes && !limits.is_folder_full()
    }

    /// Loads a handler; how long that took.
    async fn load(&mut self, batch: &Batch<'_>, is_first: bool) -> Result<u64, Outcome> {
        let parts = &batch.handler.parts;
        let text = json!({
            "body": parts.body,
            "before": parts.before,
            "beforeEach": parts.before_each,
            "afterEach": parts.after_each,
            "first": is_first,
        })
        .to_string();
        let request = format!("L {} {}\n{text}", batch.handler.jobtype, text.len());
        let _ = self.input.write_all(request.as_bytes()).await;
        let (mut listener, _) = self.parts();
        match listener.answer(b"l", batch.handler, false).await {
            Ok(said) if said.exitcode == 200 => Ok(said.micros),
            Ok(said) => {
                let failed = Outcome::error(format!("before: {}", said.reason));
                Err(Outcome { micros: said.micros, ..failed })
            }
            Err(Silence::Excess(excess)) => Err(Outcome::error(format!("before: {}", excess.reason()))),
            Err(_) => {
                let why = listener.complaints.last().await;
                Err(Outcome::error(format!("before: the interpreter ended: {why}")))
            }
        }
    }

    /// The side that listens, and the one that talks.
    fn parts(&mut self) -> (Listener<'_>, &mut ChildStdin) {
        let Warm { input, output, child, maker, complaints, folder, .. } = self;
        (Listener { output, child, maker, complaints, folder }, input)
    }

    /// Runs the jobs; also what ran around them took, in microseconds.
    async fn run_jobs(&mut self, batch: &Batch<'_>) -> (Ran, u64) {
        let requests = requests(batch);
        let (mut listener, input) = self.parts();
        // Both at once: the interpreter may answer before it has taken all of it.
        let (_, ran) = tokio::join!(
            async {
                let _ = input.write_all(&requests).await;
            },
            listener.collect(batch),
        );
        ran
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

/// Everything a batch says, in one piece.
fn requests(batch: &Batch<'_>) -> Vec<u8> {
    let bytes: usize = batch.jobs.iter().map(|job| job.payload.len() + 64).sum();
    let mut out = Vec::with_capacity(bytes + 64);
    out.extend_from_slice(format!("B {}\n", batch.handler.jobtype).as_bytes());
    for Job { jid, payload, raw, .. } in batch.jobs {
        let length = payload.len() + usize::from(!raw);
        out.extend_from_slice(format!("J {jid} {} {length} 1\n", u8::from(*raw)).as_bytes());
        out.extend_from_slice(payload);
        if !raw {
            out.push(b'\n');
        }
    }
    out.extend_from_slice(b"A\n");
    out
}

/// The side of a context that listens, while the other writes.
struct Listener<'a> {
    output: &'a mut BufReader<ChildStdout>,
    child: &'a mut Child,
    maker: &'a Maker,
    complaints: &'a mut Complaints,
    folder: &'a Folder,
}

impl Listener<'_> {
    /// Listens to a whole batch; also what ran around its jobs took.
    async fn collect(&mut self, batch: &Batch<'_>) -> (Ran, u64) {
        let count = batch.jobs.len();
        let mut shared = match self.answer(b"b", batch.handler, false).await {
            Ok(said) if said.exitcode == 200 => said.micros,
            Ok(said) => {
                let outcome = Outcome::error(format!("beforeEach: {}", said.reason));
                return (Ran::all(count, &outcome), said.micros);
            }
            Err(silence) => {
                let outcome = self.last_words(silence).await;
                return (Ran::all(count, &Outcome::error(format!("beforeEach: {}", outcome.reason))), 0);
            }
        };
        let mut ran = Ran { outcomes: vec![None; count], ..Ran::default() };
        let mut bytes = 0;
        for (at, outcome) in ran.outcomes.iter_mut().enumerate() {
            match self.answer(b"j", batch.handler, true).await {
                Ok(said) => *outcome = Some(outcome_of(said, batch.handler)),
                Err(silence) => {
                    *outcome = Some(self.last_words(silence).await);
                    return (ran, shared);
                }
            }
            bytes += outcome.as_ref().map_or(0, Outcome::bytes);
            if bytes > BATCH_BYTES_MAX && at + 1 < count {
                tracing::warn!(
                    tenant = batch.tenant,
                    jobtype = batch.handler.jobtype,
                    "a batch prints very much: the rest of it is run again; choose a smaller batchSize"
                );
                return (ran, shared);
            }
        }
        let failed = match self.answer(b"a", batch.handler, false).await {
            Ok(said) => {
                shared += said.micros;
                (said.exitcode != 200).then_some(said.reason)
            }
            Err(silence) => Some(self.last_words(silence).await.reason),
        };
        if let Some(reason) = &failed {
            tracing::warn!(
                tenant = batch.tenant,
                jobtype = batch.handler.jobtype,
                reason,
                "afterEach failed"
            );
        }
        ran.alive = failed.is_none();
        (ran, shared)
    }

    /// What the job came to during which the interpreter fell silent.
    async fn last_words(&mut self, silence: Silence) -> Outcome {
        match silence {
            Silence::Excess(excess) => Outcome::error(excess.reason()),
            Silence::Nonsense => Outcome::error("too much output, or an answer that is none"),
            Silence::Ended => {
                let status = tokio::time::timeout(END_WAIT, self.child.wait()).await;
                let status = status.ok().and_then(Result::ok).and_then(|status| status.code());
                let reason = super::process::reason(status, &self.complaints.last().await);
                Outcome { exitcode: of_status(status), reason, ..Outcome::default() }
            }
        }
    }

    /// The next answer, if it comes within the limits of a job.
    async fn answer(&mut self, kind: &[u8], handler: &Handler, is_job: bool) -> Result<Said, Silence> {
        let limits = limits(self.maker, &handler.options, self.folder, self.child.id());
        let limits = Limits { cpu: limits.cpu.filter(|_| is_job), ..limits };
        limits
            .hold(read_answer(self.output, kind))
            .await
            .unwrap_or_else(|excess| Err(Silence::Excess(excess)))
    }
}

fn outcome_of(said: Said, handler: &Handler) -> Outcome {
    let keep = handler.options.keep_result || handler.options.chain.is_some();
    Outcome {
        exitcode: said.exitcode,
        reason: said.reason,
        output: Bytes::from(said.output),
        result: said.result.filter(|_| keep).map(Bytes::from),
        truncated: said.truncated,
        micros: said.micros,
        ..Outcome::default()
    }
}

async fn read_answer(output: &mut BufReader<ChildStdout>, kind: &[u8]) -> Result<Said, Silence> {
    let mut line = Vec::new();
    let read = (&mut *output).take(HEAD_BYTES_MAX).read_until(b'\n', &mut line).await;
    if read.unwrap_or(0) == 0 {
        return Err(Silence::Ended);
    }
    let text = std::str::from_utf8(&line).map_err(|_| Silence::Nonsense)?;
    let mut words = text.split_whitespace();
    if words.next().map(str::as_bytes) != Some(kind) {
        return Err(Silence::Nonsense);
    }
    let mut number = || words.next().and_then(|word| word.parse::<i64>().ok()).ok_or(Silence::Nonsense);
    let (exitcode, micros, printed, result, reason) = (number()?, number()?, number()?, number()?, number()?);
    let length = |value: i64| usize::try_from(value).ok().filter(|bytes| *bytes <= OUTPUT_BYTES_MAX);
    let printed = take(output, length(printed).ok_or(Silence::Nonsense)?).await?;
    let (result, truncated) = match result {
        -1 => (None, false),
        bytes => {
            let bytes = usize::try_from(bytes).map_err(|_| Silence::Nonsense)?;
            let kept = take(output, bytes.min(RESULT_BYTES_MAX)).await?;
            (Some(kept), skip(output, bytes.saturating_sub(RESULT_BYTES_MAX)).await? > 0)
        }
    };
    let reason = take(output, length(reason).ok_or(Silence::Nonsense)?).await?;
    Ok(Said {
        exitcode: u16::try_from(exitcode).unwrap_or(500),
        micros: u64::try_from(micros).unwrap_or(0),
        output: printed,
        result,
        truncated,
        reason: String::from_utf8_lossy(&reason).into_owned(),
    })
}

/// Reads over what is not kept; how much it was.
async fn skip(output: &mut BufReader<ChildStdout>, length: usize) -> Result<u64, Silence> {
    let skipped = tokio::io::copy(&mut output.take(length as u64), &mut tokio::io::sink()).await;
    skipped.ok().filter(|skipped| *skipped == length as u64).ok_or(Silence::Ended)
}

async fn take(output: &mut BufReader<ChildStdout>, length: usize) -> Result<Vec<u8>, Silence> {
    let mut bytes = vec![0; length];
    output.read_exact(&mut bytes).await.map_err(|_| Silence::Ended)?;
    Ok(bytes)
}
