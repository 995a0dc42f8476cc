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

use super::process::{Folder, Start, cpu_used, end, find};
use super::{Batch, Maker, Ran, spread};
use crate::clock;
use crate::serverless::handlers::{Handler, Lang};
use crate::serverless::jobs::Job;
use crate::serverless::outcome::{OUTPUT_BYTES_MAX, Outcome, of_status};

const PYTHON: &str = include_str!("../harness/python.py");
const NODE: &str = include_str!("../harness/node.js");
const PHP: &str = include_str!("../harness/php.php");
/// Between looks at how much processor time a job has used.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// An answer's first line has no more bytes.
const HEAD_BYTES_MAX: u64 = 200;
/// What a whole interpreter may use in its life: the time of each job is watched apart.
const LIFE_CPU: Duration = Duration::from_secs(3600);
/// How long an interpreter that said its last word may take to end.
const END_WAIT: Duration = Duration::from_secs(2);

pub(super) struct Warm {
    maker: Arc<Maker>,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What `before` took, until it is charged.
    before_micros: u64,
    /// Last: the process must be gone first.
    _folder: Folder,
}

/// One answer.
struct Said {
    exitcode: u16,
    micros: u64,
    output: Vec<u8>,
    result: Option<Vec<u8>>,
    reason: String,
}

/// Why there is no answer.
enum Silence {
    Ended,
    TimedOut,
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
        Ok(Warm { maker: maker.clone(), child, input, output, before_micros: 0, _folder: folder })
    }

    pub(super) async fn run(&mut self, batch: &Batch<'_>, is_first: bool, is_new: bool) -> Ran {
        if is_new && let Err(outcome) = self.load(batch, is_first).await {
            end(&mut self.child);
            return Ran::all(batch.jobs.len(), &outcome);
        }
        let ran = self.run_jobs(batch).await;
        if !ran.alive {
            end(&mut self.child);
        }
        ran
    }

    async fn load(&mut self, batch: &Batch<'_>, is_first: bool) -> Result<(), Outcome> {
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
        match self.answer(b"l", batch.handler).await {
            Ok(said) if said.exitcode == 200 => {
                self.before_micros += said.micros;
                Ok(())
            }
            Ok(said) => Err(Outcome::error(format!("before: {}", said.reason))),
            Err(Silence::TimedOut) => Err(Outcome::error("before: timeout")),
            Err(_) => Err(Outcome::error(
                "before: the interpreter ended; is it installed and confined as it should be?",
            )),
        }
    }

    async fn run_jobs(&mut self, batch: &Batch<'_>) -> Ran {
        let requests = requests(batch);
        let Warm { input, output, child, maker, before_micros, .. } = self;
        let mut listener = Listener { output, child, maker };
        // Both at once: the interpreter may answer before it has taken all of it.
        let (_, ran) = tokio::join!(
            async {
                let _ = input.write_all(&requests).await;
            },
            listener.collect(batch, std::mem::take(before_micros)),
        );
        ran
    }

    async fn answer(&mut self, kind: &[u8], handler: &Handler) -> Result<Said, Silence> {
        let Warm { output, child, maker, .. } = self;
        Listener { output, child, maker }.answer(kind, handler, false).await
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        end(&mut self.child);
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
}

impl Listener<'_> {
    async fn collect(&mut self, batch: &Batch<'_>, before_micros: u64) -> Ran {
        let count = batch.jobs.len();
        let mut shared = before_micros;
        match self.answer(b"b", batch.handler, false).await {
            Ok(said) if said.exitcode == 200 => shared += said.micros,
            Ok(said) => return Ran::all(count, &Outcome::error(format!("beforeEach: {}", said.reason))),
            Err(Silence::TimedOut) => return Ran::all(count, &Outcome::error("beforeEach: timeout")),
            Err(_) => return Ran::all(count, &Outcome::error("beforeEach: the interpreter ended")),
        }
        let mut outcomes = vec![None; count];
        for outcome in &mut outcomes {
            match self.answer(b"j", batch.handler, true).await {
                Ok(said) => *outcome = Some(outcome_of(said)),
                Err(silence) => {
                    *outcome = Some(self.last_words(silence).await);
                    spread(&mut outcomes, shared);
                    return Ran { outcomes, alive: false };
                }
            }
        }
        let alive = match self.answer(b"a", batch.handler, false).await {
            Ok(said) if said.exitcode == 200 => {
                shared += said.micros;
                true
            }
            Ok(said) => {
                tracing::warn!(
                    tenant = batch.tenant,
                    jobtype = batch.handler.jobtype,
                    reason = said.reason,
                    "afterEach failed"
                );
                false
            }
            Err(_) => {
                tracing::warn!(
                    tenant = batch.tenant,
                    jobtype = batch.handler.jobtype,
                    "afterEach did not end"
                );
                false
            }
        };
        spread(&mut outcomes, shared);
        Ran { outcomes, alive }
    }

    /// What the job came to during which the interpreter fell silent.
    async fn last_words(&mut self, silence: Silence) -> Outcome {
        match silence {
            Silence::TimedOut => Outcome::error("timeout"),
            Silence::Nonsense => Outcome::error("too much output, or an answer that is none"),
            Silence::Ended => {
                let status = tokio::time::timeout(END_WAIT, self.child.wait()).await;
                let status = status.ok().and_then(Result::ok).and_then(|status| status.code());
                let exitcode = of_status(status);
                let reason = status.map_or_else(|| "killed".to_owned(), |status| format!("exit {status}"));
                Outcome { exitcode, reason, ..Outcome::default() }
            }
        }
    }

    /// The next answer, if it comes in time and within the processor time of a job.
    async fn answer(&mut self, kind: &[u8], handler: &Handler, is_job: bool) -> Result<Said, Silence> {
        let bounds = &self.maker.bounds;
        let timeout = handler.options.timeout_ms.map_or(bounds.timeout, Duration::from_millis);
        let cpu_max = handler.options.cpu_ms.map_or(bounds.cpu, Duration::from_millis);
        let pid = self.child.id();
        let mut reading = std::pin::pin!(read_answer(self.output, kind));
        if let Ok(answer) = tokio::time::timeout(LOOK_EVERY.min(timeout), &mut reading).await {
            return answer;
        }
        let began = clock::instant();
        let used_before = pid.map(cpu_used).unwrap_or_default();
        loop {
            if let Ok(answer) = tokio::time::timeout(LOOK_EVERY.min(timeout), &mut reading).await {
                return answer;
            }
            let used = pid.map(cpu_used).unwrap_or_default().saturating_sub(used_before);
            if began.elapsed() + LOOK_EVERY >= timeout || (is_job && used >= cpu_max) {
                return Err(Silence::TimedOut);
            }
        }
    }
}

fn outcome_of(said: Said) -> Outcome {
    Outcome {
        exitcode: said.exitcode,
        reason: said.reason,
        output: Bytes::from(said.output),
        result: said.result.map(Bytes::from),
        micros: said.micros,
        shared_micros: 0,
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
    let result = match result {
        -1 => None,
        bytes => Some(take(output, length(bytes).ok_or(Silence::Nonsense)?).await?),
    };
    let reason = take(output, length(reason).ok_or(Silence::Nonsense)?).await?;
    Ok(Said {
        exitcode: u16::try_from(exitcode).unwrap_or(500),
        micros: u64::try_from(micros).unwrap_or(0),
        output: printed,
        result,
        reason: String::from_utf8_lossy(&reason).into_owned(),
    })
}

async fn take(output: &mut BufReader<ChildStdout>, length: usize) -> Result<Vec<u8>, Silence> {
    let mut bytes = vec![0; length];
    output.read_exact(&mut bytes).await.map_err(|_| Silence::Ended)?;
    Ok(bytes)
}
