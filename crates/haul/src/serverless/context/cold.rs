//! A cold context: a folder, and a process for each job with the payload on its standard input.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::process::{Folder, Start, end, find};
use super::{Batch, Maker, Ran, spread};
use crate::clock;
use crate::serverless::handlers::{Handler, Lang};
use crate::serverless::jobs::Job;
use crate::serverless::outcome::{OUTPUT_BYTES_MAX, Outcome, of_status};

pub(super) struct Cold {
    maker: Arc<Maker>,
    folder: Folder,
}

impl Cold {
    pub(super) fn new(maker: Arc<Maker>, tenant: &str) -> Result<Self, String> {
        let folder = Folder::new(&maker, tenant)?;
        Ok(Cold { maker, folder })
    }

    pub(super) async fn run(&mut self, batch: &Batch<'_>, is_first: bool) -> Ran {
        let parts = &batch.handler.parts;
        let count = batch.jobs.len();
        let mut shared = 0;
        for (script, what) in [
            (parts.before.as_ref().filter(|_| is_first), "before"),
            (parts.before_each.as_ref(), "beforeEach"),
        ] {
            let Some(script) = script else { continue };
            let outcome = self.process(batch, script, None).await;
            shared += outcome.micros;
            if outcome.exitcode != 200 {
                return Ran::all(count, &Outcome::error(format!("{what}: {}", outcome.reason)));
            }
        }
        let mut outcomes = Vec::with_capacity(count);
        for job in batch.jobs {
            outcomes.push(Some(self.process(batch, &parts.body, Some(job)).await));
        }
        let mut alive = true;
        if let Some(script) = &parts.after_each {
            let outcome = self.process(batch, script, None).await;
            shared += outcome.micros;
            if outcome.exitcode != 200 {
                tracing::warn!(
                    tenant = batch.tenant,
                    jobtype = batch.handler.jobtype,
                    reason = outcome.reason,
                    "afterEach failed"
                );
                alive = false;
            }
        }
        spread(&mut outcomes, shared);
        Ran { outcomes, alive }
    }

    async fn process(&self, batch: &Batch<'_>, script: &str, job: Option<&Job>) -> Outcome {
        let began = clock::instant();
        let mut outcome = match self.spawn_and_wait(batch, script, job).await {
            Ok(outcome) => outcome,
            Err(why) => Outcome::error(why),
        };
        outcome.micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        outcome
    }

    fn command(&self, handler: &Handler, script: &str) -> Result<(std::path::PathBuf, Vec<String>), String> {
        if handler.lang == Lang::Sh {
            let program = find("sh").ok_or("sh is not installed")?;
            return Ok((program, vec!["-c".to_owned(), script.to_owned()]));
        }
        let mut words = script.split_whitespace().map(str::to_owned);
        let name = words.next().ok_or("the handler names no program")?;
        let program = find(&name).ok_or_else(|| format!("{name} is not installed"))?;
        Ok((program, words.collect()))
    }

    async fn spawn_and_wait(
        &self,
        batch: &Batch<'_>,
        script: &str,
        job: Option<&Job>,
    ) -> Result<Outcome, String> {
        let options = &batch.handler.options;
        let bounds = &self.maker.bounds;
        let (program, args) = self.command(batch.handler, script)?;
        let mut env = vec![("HAUL_JOBTYPE", batch.handler.jobtype.clone())];
        env.extend(job.map(|job| ("HAUL_JOB_ID", job.jid.to_string())));
        let start = Start {
            maker: &self.maker,
            folder: &self.folder,
            tenant: batch.tenant,
            options,
            cpu: options.cpu_ms.map_or(bounds.cpu, Duration::from_millis),
            program,
            args,
            env,
        };
        let mut child = start.spawn()?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the process has no pipes".to_owned());
        };
        let mut printed = Vec::new();
        let talk = async {
            let write = async {
                if let Some(job) = job {
                    let _ = input.write_all(&job.payload).await;
                    if !job.raw {
                        let _ = input.write_all(b"\n").await;
                    }
                }
                drop(input);
            };
            let mut limited = output.take(OUTPUT_BYTES_MAX as u64 + 1);
            let (_, _) = tokio::join!(write, limited.read_to_end(&mut printed));
            child.wait().await
        };
        let timeout = options.timeout_ms.map_or(bounds.timeout, Duration::from_millis);
        let status = match tokio::time::timeout(timeout, talk).await {
            Ok(Ok(status)) => status.code(),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => {
                end(&mut child);
                return Err("timeout".to_owned());
            }
        };
        if printed.len() > OUTPUT_BYTES_MAX {
            end(&mut child);
            return Err("too much output".to_owned());
        }
        let exitcode = of_status(status);
        let reason = match status {
            Some(0) => String::new(),
            Some(status) => format!("exit {status}"),
            None => "killed".to_owned(),
        };
        Ok(Outcome { exitcode, reason, output: Bytes::from(printed), ..Outcome::default() })
    }
}
