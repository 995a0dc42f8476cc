//! All queues at a glance, what is wrong now, and how it went lately.

use axum::http::StatusCode;
use axum::response::Response;
use haul_engine::{Command, Listing, Name, Overview, QueueOverview, Reply};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::page::first;
use super::why::span as told;
use crate::clock;
use crate::dialect::plain::to_text;
use crate::http::body::Query;
use crate::http::caller::{Caller, json};
use crate::http::problem::Problem;
use crate::http::schema::Problems;
use crate::http::trends::{self, Sample, Span};

/// Queues listed at most; the others are summed.
const QUEUES_MAX: usize = 1000;
/// Troubles listed at most.
const TROUBLES_MAX: usize = 50;
/// A job that waits longer, in a queue nobody takes from, is a trouble.
const UNATTENDED_SECONDS: f64 = 60.0;
/// A job that waits longer is one although others run.
const BEHIND_SECONDS: f64 = 900.0;
/// Minutes over which a failure group must not grow.
const GROWTH_MINUTES: usize = 10;
/// Failure groups whose sizes are told at most.
const GROUPS_MAX: usize = 100;
/// Less of the disk, in hundredths, is nearly full.
const DISK_FREE_MIN: u64 = 5;

/// A queue's figures; those from `popped` on are today's (UTC).
#[derive(Serialize, ToSchema)]
#[schema(as = QueueFigures)]
pub(super) struct QueueFigures {
    name: String,
    waiting: usize,
    running: usize,
    stalled: usize,
    scheduled: usize,
    depends: usize,
    recurring: usize,
    throttled: usize,
    paused: bool,
    /// Seconds the job has waited that has waited longest.
    #[schema(required)]
    oldest: Option<f64>,
    popped: u64,
    completed: u64,
    failures: i64,
    /// Locks that ran out.
    stalls: i64,
    /// Mean seconds from put to pop.
    #[schema(required)]
    wait: Option<f64>,
    /// Mean seconds from pop to completion.
    #[schema(required)]
    run: Option<f64>,
}

/// Something that is wrong now.
#[derive(Serialize, ToSchema)]
#[schema(as = Trouble)]
pub(super) struct Trouble {
    /// unattended, behind, stalled, paused, growing or disk.
    kind: &'static str,
    /// One sentence, for people.
    sentence: String,
    #[schema(required)]
    queue: Option<String>,
    #[schema(required)]
    group: Option<String>,
}

/// All queues at a glance.
#[derive(Serialize, ToSchema)]
#[schema(as = Overview)]
pub(super) struct OverviewDoc {
    /// Seconds since 1970.
    at: f64,
    jobs: usize,
    /// Completed jobs that are kept.
    completed: usize,
    /// Jobs in failure groups.
    failed: usize,
    workers: usize,
    /// Seen in the last minutes, or holding a lock.
    workers_alive: usize,
    /// The first thousand; those beyond are summed in `other`.
    queues: Vec<QueueFigures>,
    #[schema(required)]
    other: Option<QueueFigures>,
    troubles: Vec<Trouble>,
}

fn figures(queue: &QueueOverview) -> QueueFigures {
    let counts = &queue.counts;
    let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
    QueueFigures {
        name: to_text(counts.name.bytes()).into_owned(),
        waiting: counts.waiting,
        running: counts.running,
        stalled: counts.stalled,
        scheduled: counts.scheduled,
        depends: counts.depends,
        recurring: counts.recurring,
        throttled: counts.throttled,
        paused: counts.paused,
        oldest: queue.oldest,
        popped: queue.wait.count,
        completed: queue.run.count,
        failures: queue.failures,
        stalls: queue.retries,
        wait: mean(queue.wait.sum, queue.wait.count),
        run: mean(queue.run.sum, queue.run.count),
    }
}

/// A document that is made of plain values.
pub(super) fn answer(document: &impl Serialize) -> Result<Response, Problem> {
    let text = serde_json::to_vec(document).map_err(|_| Problem::unexpected())?;
    Ok(json(StatusCode::OK, text))
}

/// The largest failure groups, and how many there are in all.
async fn groups(caller: &Caller) -> Result<(Vec<(Name, usize)>, usize), Problem> {
    let page = first(caller, Listing::Groups, GROUPS_MAX).await?;
    match page.rows {
        Reply::Groups(groups) => Ok((groups, page.total)),
        _ => Err(Problem::unexpected()),
    }
}

/// All queues with their counts, oldest waits and today's figures, and what is wrong now.
#[utoipa::path(get, path = "/api/v1/overview", operation_id = "overview", tag = "queues",
    responses((status = 200, body = OverviewDoc), Problems))]
pub(super) async fn overview(caller: Caller) -> Result<Response, Problem> {
    let Reply::Overview(seen) = caller.ask(Command::Overview { queues_max: QUEUES_MAX }).await?.reply else {
        return Err(Problem::unexpected());
    };
    let (groups, _) = groups(&caller).await?;
    let at = clock::now();
    answer(&OverviewDoc {
        at,
        jobs: seen.jobs,
        completed: seen.completed,
        failed: seen.failed,
        workers: seen.workers,
        workers_alive: seen.workers_alive,
        queues: seen.queues.iter().map(figures).collect(),
        other: seen.other.as_ref().map(figures),
        troubles: troubles(&caller, &seen, &groups, at),
    })
}

fn troubles(caller: &Caller, seen: &Overview, groups: &[(Name, usize)], now: f64) -> Vec<Trouble> {
    let trends = &caller.server.trends;
    let mut list: Vec<Trouble> = Vec::new();
    list.extend(disk(caller));
    for queue in &seen.queues {
        let taken_at = trends.taken_at(&caller.tenant, &queue.counts.name);
        list.extend(queue_trouble(queue, taken_at, now));
    }
    for (group, size) in groups {
        let sizes = trends.sizes(&caller.tenant, group);
        let before = sizes.iter().rev().nth(GROWTH_MINUTES).or(sizes.first());
        let grown = before.map_or(0, |before| size.saturating_sub(*before as usize));
        if grown > 0 {
            let name = to_text(group.bytes()).into_owned();
            let sentence = format!(
                "The failure group {name} grows: {grown} more in the last minutes, {size} jobs in all."
            );
            list.push(Trouble { kind: "growing", sentence, queue: None, group: Some(name) });
        }
    }
    list.truncate(TROUBLES_MAX);
    list
}

/// The worst that is wrong with a queue.
fn queue_trouble(queue: &QueueOverview, taken_at: Option<f64>, now: f64) -> Option<Trouble> {
    let counts = &queue.counts;
    let name = to_text(counts.name.bytes()).into_owned();
    let oldest = queue.oldest.unwrap_or(0.0);
    let is_idle = taken_at.is_none_or(|at| now - at > UNATTENDED_SECONDS) && counts.running == 0;
    let (kind, sentence) = if counts.paused {
        let waiting = counts.waiting + counts.stalled;
        ("paused", format!("The queue {name} is paused; {} in it.", jobs_wait(waiting)))
    } else if counts.waiting > 0 && is_idle && oldest > UNATTENDED_SECONDS {
        let what = jobs_wait(counts.waiting);
        ("unattended", format!("Nobody works on the queue {name}: {what}, the first for {}.", told(oldest)))
    } else if counts.stalled > 0 {
        let (jobs, have) = if counts.stalled == 1 { ("job", "its") } else { ("jobs", "their") };
        let sentence = format!("{} {jobs} of the queue {name} lost {have} worker.", counts.stalled);
        ("stalled", sentence)
    } else if oldest > BEHIND_SECONDS {
        ("behind", format!("The queue {name} is behind: a job has waited for {}.", told(oldest)))
    } else {
        return None;
    };
    Some(Trouble { kind, sentence, queue: Some(name), group: None })
}

fn jobs_wait(count: usize) -> String {
    format!("{count} {}", if count == 1 { "job waits" } else { "jobs wait" })
}

/// A disk that is nearly full, for those whose business the server is.
fn disk(caller: &Caller) -> Option<Trouble> {
    if !caller.access.is_server_wide() {
        return None;
    }
    let disk = rustix::fs::statvfs(caller.server.data_path.as_str()).ok()?;
    if disk.f_blocks == 0 || disk.f_bavail.saturating_mul(100) / disk.f_blocks >= DISK_FREE_MIN {
        return None;
    }
    let free = disk.f_bavail.saturating_mul(disk.f_frsize) >> 20;
    let sentence = format!("The disk of the data is nearly full: {free} MiB are free.");
    Some(Trouble { kind: "disk", sentence, queue: None, group: None })
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// hour or day [default: hour].
    #[param(inline, value_type = Option<SpanDoc>)]
    span: Option<String>,
    /// Only of this queue.
    queue: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "described, never made")]
enum SpanDoc {
    Hour,
    Day,
}

/// What happened between two moments.
#[derive(Serialize, ToSchema)]
#[schema(as = Sample)]
struct SampleDoc {
    /// Seconds since 1970, at the end.
    at: u32,
    waiting: u32,
    running: u32,
    popped: u32,
    completed: u32,
    failures: u32,
    /// Mean seconds from put to pop of those popped.
    #[schema(required)]
    wait: Option<f32>,
    /// Mean seconds from pop to completion of those completed.
    #[schema(required)]
    run: Option<f32>,
}

/// How it went, the newest last.
#[derive(Serialize, ToSchema)]
#[schema(as = Trend)]
pub(super) struct TrendDoc {
    /// Seconds from one sample to the next.
    step: u32,
    samples: Vec<SampleDoc>,
}

fn sample(sample: &Sample) -> SampleDoc {
    let mean = |sum: f32, count: u32| (count > 0).then(|| sum / count as f32);
    SampleDoc {
        at: sample.at,
        waiting: sample.waiting,
        running: sample.running,
        popped: sample.popped,
        completed: sample.completed,
        failures: sample.failures,
        wait: mean(sample.wait_seconds, sample.popped),
        run: mean(sample.run_seconds, sample.completed),
    }
}

/// How it went over the last hour or day.
#[utoipa::path(get, path = "/api/v1/trend", operation_id = "trend", tag = "queues", params(Wanted),
    responses((status = 200, body = TrendDoc), Problems))]
pub(super) async fn trend(caller: Caller, Query(wanted): Query<Wanted>) -> Result<Response, Problem> {
    let (span, step) = match wanted.span.as_deref() {
        None | Some("hour") => (Span::Hour, trends::HOUR_STEP),
        Some("day") => (Span::Day, trends::DAY_STEP),
        Some(_) => return Err(Problem::bad("span is hour or day")),
    };
    let queue = wanted.queue.as_ref().map(|queue| caller.name("queue", queue)).transpose()?;
    let samples = caller.server.trends.samples(&caller.tenant, queue.as_ref(), span);
    answer(&TrendDoc { step, samples: samples.iter().map(sample).collect() })
}

/// A failure group's size, now and before.
#[derive(Serialize, ToSchema)]
#[schema(as = GroupTrend)]
struct GroupTrendDoc {
    name: String,
    jobs: usize,
    /// The newest last.
    sizes: Vec<u32>,
}

/// Failure groups over the last hour.
#[derive(Serialize, ToSchema)]
#[schema(as = GroupTrends)]
pub(super) struct GroupTrendsDoc {
    /// Seconds from one size to the next.
    step: u32,
    /// How many groups there are in all.
    total: usize,
    groups: Vec<GroupTrendDoc>,
}

/// The sizes of the failure groups over the last hour; the hundred largest.
#[utoipa::path(get, path = "/api/v1/trend/failures", operation_id = "failure_trend", tag = "failures",
    responses((status = 200, body = GroupTrendsDoc), Problems))]
pub(super) async fn failures(caller: Caller) -> Result<Response, Problem> {
    let (groups, total) = groups(&caller).await?;
    let trend = |(name, jobs): &(Name, usize)| GroupTrendDoc {
        name: to_text(name.bytes()).into_owned(),
        jobs: *jobs,
        sizes: caller.server.trends.sizes(&caller.tenant, name),
    };
    answer(&GroupTrendsDoc { step: trends::GROUP_STEP, total, groups: groups.iter().map(trend).collect() })
}
