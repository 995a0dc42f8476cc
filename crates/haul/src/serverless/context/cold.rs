//! A cold context: a folder, and a process for each job with the payload on its standard input.

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::process::{Complaints, Folder, Start, end, find, limits, reason};
use super::watch::Limits;
use super::{Batch, Maker, Ran};
use crate::clock;
use crate::serverless::handlers::{Handler, Lang};
use crate::serverless::jobs::Job;
use crate::serverless::outcome::{OUTPUT_BYTES_MAX, Outcome, of_status};

pub(super) struct Cold {
    maker: Arc<Maker>,
    folder: Folder,
    /// What `before` took.
    once_micros: u64,
}

impl Cold {
    pub(super) fn new(maker: Arc<Maker>, tenant: &str) -> Result<Self, String> {
        let folder = Folder::new(&maker, tenant)?;
        Ok(Cold { maker, folder, once_micros: 0 })
    }

    pub(super) async fn run(&mut self, batch: &Batch<'_>, is_first: bool) -> Ran {
        let parts = &batch.handler.parts;
        let count = batch.jobs.len();
        let mut ran = Ran { alive: true, ..Ran::default() };
        let mut shared = 0;
        for (script, what) in [
            (parts.before.as_ref().filter(|_| is_first), "before"),
            (parts.before_each.as_ref(), "beforeEach"),
        ] {
            let Some(script) = script else { continue };
            let outcome = self.process(batch, script, None).await;
            if what == "before" {
                (ran.before_micros, self.once_micros) = (outcome.micros, outcome.micros);
            } else {
                shared += outcome.micros;
            }
            if outcome.exitcode != 200 {
                let failed = Ran::all(count, &Outcome::error(format!("{what}: {}", outcome.reason)));
                return Ran { before_micros: ran.before_micros, ..failed };
            }
        }
        for job in batch.jobs {
            ran.outcomes.push(Some(self.process(batch, &parts.body, Some(job)).await));
        }
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
                ran.alive = false;
            }
        }
        ran.spread(shared, self.once_micros, self.maker.jobs_max);
        let limits = limits(&self.maker, &batch.handler.options, &self.folder, None);
        ran.alive = ran.alive && !limits.is_folder_full();
        ran
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
        let limits = limits(&self.maker, options, &self.folder, None);
        let (program, args) = self.command(batch.handler, script)?;
        let mut env = vec![("HAUL_JOBTYPE", batch.handler.jobtype.clone())];
        env.extend(job.map(|job| ("HAUL_JOB_ID", job.jid.to_string())));
        let start = Start {
            maker: &self.maker,
            folder: &self.folder,
            tenant: batch.tenant,
            options,
            cpu: limits.cpu.unwrap_or_default(),
            program,
            args,
            env,
        };
        let mut child = start.spawn()?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the process has no pipes".to_owned());
        };
        let mut complaints = Complaints::listen(&mut child, batch.tenant);
        let limits = Limits { pid: child.id(), ..limits };
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
            if printed.len() > OUTPUT_BYTES_MAX {
                return Err("too much output".to_owned());
            }
            child.wait().await.map_err(|error| error.to_string())
        };
        let status = match limits.hold(talk).await {
            Ok(Ok(status)) => status.code(),
            Ok(Err(why)) => {
                end(&mut child).await;
                return Err(why);
            }
            Err(excess) => {
                end(&mut child).await;
                return Err(excess.reason().to_owned());
            }
        };
        let reason = reason(status, &complaints.last().await);
        Ok(Outcome {
            exitcode: of_status(status),
            reason,
            output: Bytes::from(printed),
            ..Outcome::default()
        })
    }
}
