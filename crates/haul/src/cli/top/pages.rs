//! What each page shows, asked of the server. Everything is bounded: a screen shows little.

use haul_client::{Job, Jobs, Range, State};
use serde_json::Value;

use super::super::failure::Failure;
use super::super::job;
use super::super::session::Session;
use super::model::{Content, Page, Row};
use crate::cli::moment::relative;
use crate::clock;

/// Jobs on a page.
const JOBS_MAX: u64 = 200;
/// Queues whose running jobs are listed.
const QUEUES_MAX: usize = 50;

pub(super) async fn fetch(session: &Session, page: &Page) -> Result<Content, Failure> {
    match page {
        Page::Queues => queues(session).await,
        Page::Workers => workers(session).await,
        Page::Running => running(session).await,
        Page::Failures => failures(session).await,
        Page::QueueJobs(queue) => queue_jobs(session, queue).await,
        Page::WorkerJobs(worker) => worker_jobs(session, worker).await,
        Page::GroupJobs(group) => {
            let range = Range { offset: 0, count: JOBS_MAX };
            let failed = session.client.failed(group, range).await?;
            jobs(session, &failed.jobs).await
        }
        Page::Job(jid) => {
            let text = job::describe(session, jid, clock::now()).await?;
            Ok(Content::Text(text.lines().map(str::to_owned).collect()))
        }
    }
}

async fn queues(session: &Session) -> Result<Content, Failure> {
    let columns = vec!["QUEUE", "WAIT", "RUN", "STALL", "SCHED", "DEP", "THROT", "RECUR", ""];
    let rows = session.client.queues().await?.into_iter().map(|queue| Row {
        key: queue.name.clone(),
        cells: vec![
            queue.name,
            queue.waiting.to_string(),
            queue.running.to_string(),
            queue.stalled.to_string(),
            queue.scheduled.to_string(),
            queue.depends.to_string(),
            queue.throttled.to_string(),
            queue.recurring.to_string(),
            if queue.paused { "paused".to_owned() } else { String::new() },
        ],
    });
    Ok(Content::Table { columns, rows: rows.collect() })
}

async fn workers(session: &Session) -> Result<Content, Failure> {
    let (workers, now) = (session.client.workers().await?, clock::now());
    let rows = workers.as_array().into_iter().flatten().take(JOBS_MAX as usize * 5).map(|worker| {
        let count = |key: &str| worker.get(key).and_then(Value::as_u64).unwrap_or(0).to_string();
        let name = worker.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let seen = worker.get("seen_at").and_then(Value::as_f64);
        let seen = seen.map_or_else(String::new, |at| relative(now, at));
        Row { key: name.clone(), cells: vec![name, count("jobs"), count("stalled"), seen] }
    });
    Ok(Content::Table { columns: vec!["WORKER", "RUN", "STALL", "SEEN"], rows: rows.collect() })
}

async fn running(session: &Session) -> Result<Content, Failure> {
    let busy = session.client.queues().await?.into_iter().filter(|queue| queue.running > 0);
    let mut jids = Vec::new();
    for queue in busy.take(QUEUES_MAX) {
        let left = JOBS_MAX - jids.len() as u64;
        let wanted = Jobs::new(State::Running).queue(queue.name).range(Range { offset: 0, count: left });
        jids.extend(session.client.jobs(&wanted).await?);
        if jids.len() as u64 >= JOBS_MAX {
            break;
        }
    }
    jobs(session, &jids).await
}

async fn failures(session: &Session) -> Result<Content, Failure> {
    let groups = session.client.failed_groups().await?;
    let rows = groups
        .into_iter()
        .map(|(group, jobs)| Row { key: group.clone(), cells: vec![group, jobs.to_string()] });
    Ok(Content::Table { columns: vec!["GROUP", "JOBS"], rows: rows.collect() })
}

/// Those that run, then those that wait for whatever.
async fn queue_jobs(session: &Session, queue: &str) -> Result<Content, Failure> {
    let states =
        [State::Running, State::Stalled, State::Waiting, State::Scheduled, State::Depends, State::Throttled];
    let mut jids = Vec::new();
    for state in states {
        let range = Range { offset: 0, count: JOBS_MAX / 4 };
        jids.extend(session.client.jobs(&Jobs::new(state).queue(queue).range(range)).await?);
    }
    jobs(session, &jids).await
}

async fn worker_jobs(session: &Session, worker: &str) -> Result<Content, Failure> {
    let held = session.client.worker(worker).await?;
    let jids = ["jobs", "stalled"].iter().filter_map(|key| held.get(key)?.as_array()).flatten();
    let jids: Vec<String> =
        jids.filter_map(|jid| Some(jid.as_str()?.to_owned())).take(JOBS_MAX as usize).collect();
    jobs(session, &jids).await
}

async fn jobs(session: &Session, jids: &[String]) -> Result<Content, Failure> {
    let now = clock::now();
    let rows = session.jobs(jids).await?.into_iter().map(|job| {
        let is_stalled = job.expires.is_some_and(|expires| expires < now);
        let state = if is_stalled { State::Stalled } else { job.state };
        let last = job.history.last().map_or_else(String::new, |entry| relative(now, entry.when));
        let about = job.worker.clone().or(job.failure.as_ref().map(|failure| failure.group.clone()));
        Row {
            key: job.jid.clone(),
            cells: vec![
                job.jid,
                job.klass,
                job.queue.unwrap_or_default(),
                state.to_string(),
                last,
                about.unwrap_or_default(),
            ],
        }
    });
    let columns = vec!["JID", "KLASS", "QUEUE", "STATE", "SINCE", "WORKER/GROUP"];
    Ok(Content::Table { columns, rows: rows.collect() })
}

/// The queue a job is in, or was put into last.
pub(super) fn queue_of(job: &Job) -> Option<String> {
    let put = job.history.iter().rev().find(|entry| entry.what == "put");
    job.queue.clone().or_else(|| put.and_then(|entry| entry.queue.clone()))
}
