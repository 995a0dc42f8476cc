//! What happens to jobs that have stopped: follow-up jobs first, into the journal; then each is archived, buried or given
//! back. So a crash may repeat follow-ups but never loses them, and a retry does not multiply them.

use std::time::Duration;

use bytes::Bytes;
use haul_engine::Name;
use haul_journal::{FullType, Post};

use super::context::Ran;
use super::handlers::Handler;
use super::jobs::{Job, Release};
use super::outcome::{self, Code, Outcome, RESULT_BYTES_MAX};
use super::payload;
use super::{Daemon, lock, now_ms};
use crate::clock;
use crate::dialect::args;
use crate::dialect::json::Object;

/// Bytes of a reason that are kept.
const REASON_BYTES_MAX: usize = 4096;
/// How often releasing is tried while the store does not answer.
const TRIES: u32 = 30;

/// A batch that has stopped.
pub(super) struct Stopped<'a> {
    pub(super) tenant: &'a Name,
    /// The tenant as paths name it.
    pub(super) client: &'a str,
    pub(super) handler: Option<&'a Handler>,
    pub(super) sysid: &'a Name,
}

impl Stopped<'_> {
    /// Settles the jobs of a batch; an outcome that is none means that it was not run.
    pub(super) async fn settle(&self, daemon: &Daemon, jobs: &[Job], ran: Ran) {
        let Ran { mut outcomes, before_micros, .. } = ran;
        let mut posts = Vec::new();
        let mut plain = Vec::with_capacity(jobs.len());
        for outcome in &mut outcomes {
            plain.push(outcome.as_mut().map_or_else(Vec::new, |outcome| self.follow(outcome, &mut posts)));
        }
        if !posts.is_empty()
            && let Err(error) = daemon.journal.write_all(&posts, now_ms()).await
        {
            tracing::warn!(%error, "follow-up jobs could not be kept: their jobs are run again");
            for outcome in outcomes.iter_mut().flatten().filter(|outcome| outcome.code().is_end()) {
                *outcome = Outcome::error(format!("follow-up jobs could not be kept: {error}"));
            }
        }
        self.account(daemon, &outcomes, before_micros);
        let mut releases = Vec::with_capacity(jobs.len());
        for ((job, outcome), plain) in jobs.iter().zip(&outcomes).zip(plain) {
            if let Some(outcome) = outcome {
                let (code, exitcode) = (outcome.code().word(), outcome.exitcode);
                tracing::debug!(tenant = self.client, jid = %job.jid, code, exitcode, "job ran");
            }
            let release = match outcome {
                Some(outcome) => self.release(daemon, job, outcome, &plain),
                None => Release::Unget,
            };
            releases.push((job.jid.clone(), release));
        }
        self.let_go(daemon, releases).await;
    }

    /// Collects the jobs that a finished one asks for; answers its output without them.
    fn follow(&self, outcome: &mut Outcome, posts: &mut Vec<Post>) -> Vec<u8> {
        if !outcome.code().is_end() {
            return Vec::new();
        }
        let seen = outcome::scan(self.client, &outcome.output);
        for line in &seen.refused {
            tracing::warn!(tenant = self.client, line, "an output line names no job type and was dropped");
        }
        if seen.too_many {
            *outcome = Outcome::error("more output lines that make jobs than are allowed");
            return Vec::new();
        }
        let mut follow: Vec<Post> =
            seen.follow.into_iter().map(|(full, payload)| outcome::post(full, payload)).collect();
        let chain = self.handler.and_then(|handler| handler.options.chain.as_deref());
        if let (Code::Ok, Some(chain)) = (outcome.code(), chain)
            && let Ok(full) = FullType::new(self.client, chain)
        {
            let result = outcome.result.clone().unwrap_or_else(|| {
                let text = seen.plain.strip_suffix(b"\n").unwrap_or(&seen.plain);
                Bytes::copy_from_slice(text)
            });
            if outcome.truncated || result.len() > RESULT_BYTES_MAX {
                *outcome = Outcome::error(format!("the result is too long to be passed on to {chain}"));
                return Vec::new();
            }
            follow.push(outcome::post(full, result));
        }
        posts.append(&mut follow);
        seen.plain
    }

    fn account(&self, daemon: &Daemon, outcomes: &[Option<Outcome>], before_micros: u64) {
        if let Some(handler) = self.handler {
            let mut tallies = lock(&daemon.tallies);
            let tally = tallies.entry((self.tenant.clone(), handler.id.clone())).or_default();
            outcomes.iter().flatten().for_each(|outcome| tally.count(outcome.code(), outcome.micros));
        }
        let mut usage = lock(&daemon.usage);
        let usage = usage.entry(self.tenant.clone()).or_default();
        usage.shared_micros += before_micros;
        for outcome in outcomes.iter().flatten() {
            usage.jobs += 1;
            usage.run_micros += outcome.micros;
            usage.shared_micros += outcome.shared_micros;
        }
    }

    fn release(&self, daemon: &Daemon, job: &Job, outcome: &Outcome, plain: &[u8]) -> Release {
        let code = outcome.code();
        let message = Bytes::from(shortened(&outcome.reason).to_owned());
        let named = |word: &str| format!("{word}-{}", outcome.exitcode);
        match code {
            Code::Ok => Release::Archive { result: self.entry(job, outcome, plain) },
            Code::Failed => {
                let entry = Some(self.entry(job, outcome, plain));
                Release::Bury { group: named("failed"), message, entry }
            }
            Code::Retry | Code::Error => {
                let options = self.handler.map(|handler| &handler.options);
                let most = options.and_then(|options| options.max_retries).unwrap_or(u32::MAX);
                let old = clock::now() - job.created > daemon.settings.retry_time.as_secs_f64();
                if old || job.retries >= most {
                    tracing::warn!(tenant = self.client, jid = %job.jid, exitcode = outcome.exitcode, "a job was given up");
                    let entry = Some(self.entry(job, outcome, plain));
                    return Release::Bury { group: named("abandoned"), message, entry };
                }
                let delay = daemon.settings.retry_delay.as_secs_f64();
                Release::Retry { delay, group: named(code.word()), message }
            }
        }
    }

    /// The scoreboard's entry.
    fn entry(&self, job: &Job, outcome: &Outcome, plain: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(64);
        let mut object = Object::json(&mut out);
        object.count("exitcode", usize::from(outcome.exitcode));
        object.string("code", outcome.code().word().as_bytes());
        object.number("ms", (outcome.micros / 10) as f64 / 100.0);
        let shared_micros = outcome.shared_micros + outcome.once_micros;
        if shared_micros >= 10 {
            object.number("shared_ms", (shared_micros / 10) as f64 / 100.0);
        }
        if job.retries > 0 {
            object.count("retry_count", job.retries as usize);
        }
        object.string("done_dt", haul_journal::iso(now_ms()).as_bytes());
        if self.handler.is_some_and(|handler| handler.options.keep_result) {
            let result = outcome.result.as_deref().unwrap_or(plain);
            let (kept, more) = result.split_at_checked(RESULT_BYTES_MAX).unwrap_or((result, b""));
            let is_json = outcome.result.is_some() && args::kind(kept).is_ok();
            if is_json {
                object.raw("result", kept);
            } else {
                object.raw("result", &payload::to_text(kept));
            }
            if outcome.truncated || !more.is_empty() {
                object.raw("truncated", b"true");
            }
        }
        object.end();
        Bytes::from(out)
    }

    /// Tells the store; while it cannot be told, the locks are kept and it is tried again.
    async fn let_go(&self, daemon: &Daemon, releases: Vec<(Name, Release)>) {
        for attempt in 1..=TRIES {
            match daemon.jobs.release(self.tenant, releases.clone(), self.sysid).await {
                Ok(()) => return,
                Err(error) if attempt == TRIES => {
                    tracing::error!(%error, "jobs could not be released; they run again when their locks end");
                }
                Err(error) => {
                    tracing::warn!(%error, "jobs could not be released yet");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }
}

fn shortened(text: &str) -> &str {
    let end = (0..=REASON_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
