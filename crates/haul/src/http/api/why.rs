//! Why a job is not running yet, in one sentence, and what to look at next.

use axum::response::Response;
use haul_engine::{
    Command, JobList, JobView, Jobs, Life, Listing, Name, QueueCounts, RankWindow, Reply, State,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::job::find;
use super::overview::answer;
use super::page::first;
use crate::clock;
use crate::dialect::plain::to_text;
use crate::http::body::Path;
use crate::http::caller::Caller;
use crate::http::problem::Problem;
use crate::http::schema::Problems;

/// Jobs ahead that are counted; beyond, it is "more than".
const AHEAD_MAX: usize = 1000;
/// Jobs named in the answer.
const NAMED_MAX: usize = 100;
/// Throttles of a job that are looked at.
const THROTTLES_MAX: usize = 20;
/// Holders of a throttle's locks that are looked at.
const LOCKS_MAX: usize = 1000;
/// Workers whose klasses are looked at.
const WORKERS_MAX: usize = 1000;
/// A queue from which nobody has taken a job for so long is said to be without a worker.
const UNATTENDED_SECONDS: f64 = 60.0;

/// Why a job is not running yet.
#[derive(Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = Why)]
pub(super) struct WhyDoc {
    /// Stable, for programs: running, complete, failed, stalled, scheduled, depends, throttled, paused, concurrency,
    /// unattended, klass, ahead or next.
    code: &'static str,
    /// One sentence, for people.
    sentence: String,
    /// Jobs it waits for, the first hundred.
    jobs: Vec<String>,
    /// Jobs that run before it; at most 1000 are counted.
    #[schema(required)]
    ahead: Option<usize>,
    /// The throttle that holds it back.
    #[schema(required)]
    throttle: Option<String>,
    /// When this changes by itself, in seconds since 1970.
    #[schema(required)]
    at: Option<f64>,
}

impl WhyDoc {
    fn new(code: &'static str, sentence: impl Into<String>) -> Self {
        WhyDoc { code, sentence: sentence.into(), ..WhyDoc::default() }
    }
}

/// Why a job is not running yet, in one sentence.
#[utoipa::path(get, path = "/api/v1/jobs/{jid}/why", operation_id = "why_job", tag = "jobs",
    responses((status = 200, body = WhyDoc), Problems))]
pub(super) async fn why(caller: Caller, Path(jid): Path<String>) -> Result<Response, Problem> {
    let jid = caller.name("jid", &jid)?;
    let (job, _) = find(&caller, jid).await?;
    let now = clock::now();
    let doc = match job.state {
        State::Complete => WhyDoc::new("complete", "It is complete."),
        State::Failed => failed(&job, now),
        State::Running if job.expires > now => running(&job, now),
        State::Scheduled if job.due.is_some_and(|due| due > now) => scheduled(&job, now),
        State::Depends => depends(&job),
        _ => in_line(&caller, &job, now).await?,
    };
    answer(&doc)
}

fn failed(job: &JobView, now: f64) -> WhyDoc {
    let (group, when) =
        job.failure.as_ref().map_or_else(Default::default, |it| (it.group.to_string(), it.when));
    let ago = span((now - when).max(0.0));
    WhyDoc::new(
        "failed",
        format!("It failed {ago} ago in the group {group}; it runs again when somebody retries it."),
    )
}

fn running(job: &JobView, now: f64) -> WhyDoc {
    if job.is_endless() {
        let sentence = format!("It runs: {} holds its lock, which does not end by itself.", job.worker);
        return WhyDoc::new("running", sentence);
    }
    let left = span(job.expires - now);
    let sentence = format!("It runs: {} holds its lock, for {left} unless renewed.", job.worker);
    WhyDoc { at: Some(job.expires), ..WhyDoc::new("running", sentence) }
}

fn scheduled(job: &JobView, now: f64) -> WhyDoc {
    let due = job.due.unwrap_or(now);
    let sentence = format!("It is scheduled: it may run in {}.", span(due - now));
    WhyDoc { at: Some(due), ..WhyDoc::new("scheduled", sentence) }
}

fn depends(job: &JobView) -> WhyDoc {
    let named = job.dependencies.iter().take(NAMED_MAX);
    let jobs: Vec<String> = named.map(|jid| to_text(jid.bytes()).into_owned()).collect();
    let sentence = match job.dependencies.len() {
        1 => "It waits for one job to complete.".to_owned(),
        count => format!("It waits for {count} jobs to complete."),
    };
    WhyDoc { jobs, ..WhyDoc::new("depends", sentence) }
}

/// It could run as far as it is concerned: the queue, a throttle, those before it or the lack of a worker hold it back.
async fn in_line(caller: &Caller, job: &JobView, now: f64) -> Result<WhyDoc, Problem> {
    let queue = job.queue.clone();
    let Reply::Counts(counts) = caller.ask(Command::QueueCounts { queue: queue.clone() }).await?.reply else {
        return Err(Problem::unexpected());
    };
    let lost = match job.state {
        State::Running | State::Stalled => "Its worker lost the lock; ",
        _ => "",
    };
    if counts.paused {
        let sentence =
            format!("{lost}the queue {queue} is paused: nothing is taken from it until it is resumed.");
        return Ok(WhyDoc::new("paused", capital(&sentence)));
    }
    if let Some(throttle) = full_throttle(caller, job).await? {
        return Ok(throttle);
    }
    if let Some(limit) = concurrency(caller, &queue).await?.filter(|limit| counts.running as f64 >= *limit) {
        let sentence = format!(
            "The queue {queue} runs at most {limit} jobs at once, and {} run: it waits for one of them to end.",
            counts.running
        );
        return Ok(WhyDoc::new("concurrency", sentence));
    }
    if no_worker_takes(caller, job).await? {
        let sentence =
            format!("{lost}no worker that works on the queue {queue} takes jobs of the klass {}.", job.klass);
        return Ok(WhyDoc::new("klass", capital(&sentence)));
    }
    let ahead = ahead(caller, job).await?;
    let taken_at = caller.server.trends.taken_at(&caller.tenant, &queue);
    Ok(waits(&counts, ahead, taken_at.map(|at| now - at), lost))
}

fn waits(counts: &QueueCounts, ahead: Ahead, taken_ago: Option<f64>, lost: &str) -> WhyDoc {
    let queue = &counts.name;
    let others = match ahead {
        Ahead::Exactly(0) => String::new(),
        Ahead::Exactly(1) => " 1 job is ahead of it.".to_owned(),
        Ahead::Exactly(count) => format!(" {count} jobs are ahead of it."),
        Ahead::MoreThan(count) => format!(" More than {count} jobs are ahead of it."),
    };
    let (Ahead::Exactly(count) | Ahead::MoreThan(count)) = ahead;
    let is_idle = counts.running == 0 && taken_ago.is_none_or(|ago| ago > UNATTENDED_SECONDS);
    let doc = if is_idle {
        let since = taken_ago.map_or_else(String::new, |ago| format!(" for {}", span(ago)));
        let sentence = format!("{lost}no worker has taken a job from the queue {queue}{since}.{others}");
        WhyDoc::new("unattended", capital(&sentence))
    } else if count > 0 {
        WhyDoc::new("ahead", capital(&format!("{lost}it waits in line.{others}")))
    } else {
        WhyDoc::new("next", capital(&format!("{lost}it is next: the next pop of {queue} takes it.")))
    };
    WhyDoc { ahead: Some(count), ..doc }
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

enum Ahead {
    Exactly(usize),
    MoreThan(usize),
}

async fn ahead(caller: &Caller, job: &JobView) -> Result<Ahead, Problem> {
    let list = match job.state {
        State::Running => JobList::Stalled,
        _ => JobList::Waiting,
    };
    let range = RankWindow::Limit { offset: 0, count: Some(AHEAD_MAX) };
    let Reply::Names(jids) =
        caller.ask(Command::Jobs(Jobs { list, queue: job.queue.clone(), range })).await?.reply
    else {
        return Err(Problem::unexpected());
    };
    Ok(match jids.iter().position(|jid| *jid == job.jid) {
        Some(at) => Ahead::Exactly(at),
        None if jids.len() >= AHEAD_MAX => Ahead::MoreThan(AHEAD_MAX),
        None => Ahead::Exactly(jids.len()),
    })
}

/// The first of its throttles that lets nobody in.
async fn full_throttle(caller: &Caller, job: &JobView) -> Result<Option<WhyDoc>, Problem> {
    for id in job.throttles.iter().take(THROTTLES_MAX) {
        let Reply::Throttle(throttle) = caller.ask(Command::ThrottleGet { id: id.clone() }).await?.reply
        else {
            return Err(Problem::unexpected());
        };
        if throttle.maximum <= 0.0 {
            continue;
        }
        let locks = first(caller, Listing::ThrottleLocks(id.clone()), LOCKS_MAX).await?;
        let is_held = matches!(&locks.rows, Reply::Names(jids) if jids.contains(&job.jid));
        if locks.total as f64 >= throttle.maximum && !is_held {
            let sentence = format!(
                "It is held back by the throttle {id}: {} of at most {} jobs run under it.",
                locks.total, throttle.maximum
            );
            let throttle = Some(to_text(id.bytes()).into_owned());
            return Ok(Some(WhyDoc { throttle, ..WhyDoc::new("throttled", sentence) }));
        }
    }
    Ok(None)
}

/// Whether workers are at work on its queue that all say which klasses they take, and none takes this job's. Those
/// that say nothing of themselves, or name no klass, take any.
async fn no_worker_takes(caller: &Caller, job: &JobView) -> Result<bool, Problem> {
    #[derive(serde::Deserialize)]
    struct Facts {
        #[serde(default)]
        queues: Vec<String>,
        #[serde(default)]
        klasses: Vec<String>,
    }
    let page = first(caller, Listing::Workers, WORKERS_MAX).await?;
    let Reply::Workers(workers) = &page.rows else { return Err(Problem::unexpected()) };
    let is = |names: &[String], name: &Name| names.iter().any(|one| one.as_bytes() == name.bytes());
    let mut others = false;
    for worker in workers.iter().filter(|worker| worker.life == Life::Alive) {
        let facts = worker.facts.as_ref().and_then(|facts| serde_json::from_slice(facts.bytes()).ok());
        let Some(Facts { queues, klasses }) = facts else { return Ok(false) };
        // A name with a * is a pattern, which may well fit.
        let is_pattern = queues.iter().any(|queue| queue.contains(['*', '!', '~']));
        if !is(&queues, &job.queue) && !is_pattern {
            continue;
        }
        if klasses.is_empty() || is(&klasses, &job.klass) {
            return Ok(false);
        }
        others = true;
    }
    Ok(others)
}

async fn concurrency(caller: &Caller, queue: &Name) -> Result<Option<f64>, Problem> {
    let option = Name::new(&[queue.bytes(), b"-max-concurrency"].concat());
    let Reply::Option(value) = caller.ask(Command::ConfigGet { option }).await?.reply else {
        return Err(Problem::unexpected());
    };
    let limit = value.and_then(|value| value.display().parse::<f64>().ok());
    Ok(limit.filter(|limit| *limit > 0.0))
}

/// "42 s", "3 min", "2 h 5 min", "3 d 4 h".
pub(super) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let pair = |large: u64, unit: &str, small: u64, other: &str| match whole % large / small {
        0 => format!("{} {unit}", whole / large),
        rest => format!("{} {unit} {rest} {other}", whole / large),
    };
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => pair(60, "min", 1, "s"),
        3600..86_400 => pair(3600, "h", 60, "min"),
        _ => pair(86_400, "d", 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Raw;
    use crate::http::rig::Rig;

    async fn code(rig: &Rig, jid: &str) -> (String, String) {
        let answer = rig.get(&format!("/api/v1/jobs/{jid}/why")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let document: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        let text = |key: &str| document[key].as_str().unwrap().to_owned();
        (text("code"), text("sentence"))
    }

    #[tokio::test]
    async fn every_reason_has_its_sentence() {
        let rig = Rig::new(Raw::default()).await;
        for line in [
            "PUT q k {} JID a",
            "PUT q k {} JID b",
            "PUT q k {} JID later DELAY 300",
            "PUT q k {} JID after DEPENDS a",
            "PUT paused k {} JID p",
            "PAUSE paused",
            "THROTTLE SET license 1",
            "PUT t k {} JID t1 THROTTLE license",
            "PUT t k {} JID t2 THROTTLE license",
            "POP w QUEUES t",
            "PUT c k {} JID c1",
            "PUT c k {} JID c2",
            "CONFIG SET c-max-concurrency 1",
            "POP w QUEUES c",
            "PUT f k {} JID f",
            "POP w QUEUES f",
            "FAIL w f oops message",
        ] {
            rig.say(line).await;
        }
        for (jid, wanted, words) in [
            ("a", "unattended", "No worker has taken a job from the queue q."),
            ("b", "unattended", "1 job is ahead of it."),
            ("later", "scheduled", "It is scheduled: it may run in 5 min."),
            ("after", "depends", "It waits for one job to complete."),
            ("p", "paused", "The queue paused is paused"),
            ("t1", "running", "w holds its lock"),
            ("t2", "throttled", "the throttle license: 1 of at most 1 jobs"),
            ("c2", "concurrency", "at most 1 jobs at once"),
            ("f", "failed", "in the group oops"),
        ] {
            let (code, sentence) = code(&rig, jid).await;
            assert!(code == wanted && sentence.contains(words), "{jid}: {code}: {sentence}");
        }
        assert_eq!(rig.get("/api/v1/jobs/none/why").await.status, 404);
    }
}
