//! An http context: each job, or each batch, is a request to the handler's address. Connections are kept.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, Request, header};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::{Batch, Maker, Ran};
use crate::clock;
use crate::serverless::jobs::Job;
use crate::serverless::outcome::{OUTPUT_BYTES_MAX, Outcome, of_batch};

/// Connections to one host that are kept while idle, and requests to it at once.
const CONNECTIONS_MAX: usize = 10;

/// The connections that all http handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Web {
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(CONNECTIONS_MAX).build(connector);
        Web { client }
    }

    /// Posts; the status and the answer.
    async fn post(
        &self,
        url: &str,
        job: Option<(&str, &str, &str)>,
        body: Bytes,
    ) -> Result<(u16, Bytes), String> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(url.trim())
            .header(header::CONTENT_TYPE, "text/plain");
        if let Some((tenant, jobtype, jid)) = job {
            request = request
                .header("x-haul-tenant", tenant)
                .header("x-haul-jobtype", jobtype)
                .header("x-haul-job-id", jid);
        }
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let answer = self.client.request(request).await.map_err(|error| format!("no answer: {error}"))?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), OUTPUT_BYTES_MAX).collect().await;
        let body = body.map_err(|error| format!("the answer broke off: {error}"))?;
        Ok((status, body.to_bytes()))
    }
}

pub(super) struct Http {
    maker: Arc<Maker>,
    /// What `before` took.
    once_micros: u64,
}

impl Http {
    pub(super) fn new(maker: Arc<Maker>) -> Self {
        Http { maker, once_micros: 0 }
    }

    pub(super) async fn run(&mut self, batch: &Batch<'_>, is_first: bool) -> Ran {
        let parts = &batch.handler.parts;
        let mut ran = Ran { alive: true, ..Ran::default() };
        let mut shared = 0;
        for (url, what) in [
            (parts.before.as_ref().filter(|_| is_first), "before"),
            (parts.before_each.as_ref(), "beforeEach"),
        ] {
            let Some(url) = url else { continue };
            let (outcome, micros) = self.step(batch, url).await;
            if what == "before" {
                (ran.before_micros, self.once_micros) = (micros, micros);
            } else {
                shared += micros;
            }
            if let Err(why) = outcome {
                let failed = Ran::all(batch.jobs.len(), &Outcome::error(format!("{what}: {why}")));
                return Ran { before_micros: ran.before_micros, ..failed };
            }
        }
        ran.outcomes =
            if batch.handler.options.batch { self.together(batch).await } else { self.each(batch).await };
        if let Some(url) = &parts.after_each {
            let (outcome, micros) = self.step(batch, url).await;
            shared += micros;
            if let Err(why) = outcome {
                tracing::warn!(
                    tenant = batch.tenant,
                    jobtype = batch.handler.jobtype,
                    why,
                    "afterEach failed"
                );
                ran.alive = false;
            }
        }
        ran.spread(shared, self.once_micros, self.maker.jobs_max);
        ran
    }

    fn timeout(&self, batch: &Batch<'_>) -> Duration {
        batch.handler.options.timeout_ms.map_or(self.maker.bounds.timeout, Duration::from_millis)
    }

    /// Posts to one of the addresses around the jobs; what came of it, and how long it took.
    async fn step(&self, batch: &Batch<'_>, url: &str) -> (Result<(), String>, u64) {
        let began = clock::instant();
        let posted =
            tokio::time::timeout(self.timeout(batch), self.maker.web.post(url, None, Bytes::new())).await;
        let outcome = match posted {
            Ok(Ok((200..=299, _))) => Ok(()),
            Ok(Ok((status, _))) => Err(format!("status {status}")),
            Ok(Err(why)) => Err(why),
            Err(_) => Err("timeout".to_owned()),
        };
        (outcome, u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// One request for each job, several at once.
    async fn each(&self, batch: &Batch<'_>) -> Vec<Option<Outcome>> {
        let mut outcomes = Vec::with_capacity(batch.jobs.len());
        for some in batch.jobs.chunks(CONNECTIONS_MAX) {
            let mut running: FuturesOrdered<_> = some.iter().map(|job| self.one(batch, job)).collect();
            while let Some(outcome) = running.next().await {
                outcomes.push(Some(outcome));
            }
        }
        outcomes
    }

    async fn one(&self, batch: &Batch<'_>, job: &Job) -> Outcome {
        let began = clock::instant();
        let jid = job.jid.to_string();
        let about = Some((batch.tenant, batch.handler.jobtype.as_str(), jid.as_str()));
        let posted = self.maker.web.post(&batch.handler.parts.body, about, delivered(job));
        let outcome = match tokio::time::timeout(self.timeout(batch), posted).await {
            Ok(Ok((exitcode, output))) => {
                let reason =
                    if (200..300).contains(&exitcode) { String::new() } else { format!("status {exitcode}") };
                Outcome { exitcode, reason, output, ..Outcome::default() }
            }
            Ok(Err(why)) => Outcome::error(why),
            Err(_) => Outcome::error("timeout"),
        };
        Outcome { micros: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX), ..outcome }
    }

    /// One request for all lines; what was posted as bytes goes alone.
    async fn together(&self, batch: &Batch<'_>) -> Vec<Option<Outcome>> {
        let began = clock::instant();
        let lines: Vec<&Job> = batch.jobs.iter().filter(|job| !job.raw).collect();
        let body: Vec<u8> = lines.iter().flat_map(|job| delivered(job)).collect();
        let posted = self.maker.web.post(&batch.handler.parts.body, None, Bytes::from(body));
        let answered = match lines.is_empty() {
            true => Vec::new(),
            false => match tokio::time::timeout(self.timeout(batch), posted).await {
                Ok(Ok((200..=299, answer))) => of_batch(&answer, lines.len()),
                Ok(Ok((status, _))) => vec![Outcome::error(format!("status {status}")); lines.len()],
                Ok(Err(why)) => vec![Outcome::error(why); lines.len()],
                Err(_) => vec![Outcome::error("timeout"); lines.len()],
            },
        };
        let micros =
            u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX) / lines.len().max(1) as u64;
        let mut answered = answered.into_iter().map(|outcome| Outcome { micros, ..outcome });
        let mut outcomes = Vec::with_capacity(batch.jobs.len());
        for job in batch.jobs {
            outcomes.push(if job.raw { Some(self.one(batch, job).await) } else { answered.next() });
        }
        outcomes
    }
}

/// The bytes a handler gets: a text is a line.
fn delivered(job: &Job) -> Bytes {
    if job.raw { job.payload.clone() } else { Bytes::from([job.payload.as_ref(), b"\n"].concat()) }
}
