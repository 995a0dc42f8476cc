//! How the answers of Haul's own commands are written: plain JSON, `null` for what is not there.

use bytes::Bytes;
use haul_client::resp::Frame;
use haul_engine::{Entry, Failure, JobView, Name, QueueCounts, Recur, Refusal, Reply, Series, State, What};

use super::json::{Object, push_json_string, push_list};
pub(crate) use super::number::push_exact;
use super::number::{push_g14, push_int};
use super::plain;
use super::refusal;
use super::shape::{log_members, what_word};
use super::{Sheet, Texts};

/// The form of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    One,
    Int,
    Flag,
    Name,
    Names,
    State,
    /// A job or nil.
    Job,
    /// An array of jobs.
    Jobs,
    /// A job or nil for each.
    JobsOrNil(Vec<Name>),
    /// The job's result.
    Result,
    /// Whole seconds from this moment.
    Beat(f64),
    Beats(f64),
    Completed,
    Option(Name),
    Json,
}

/// Options that have a default, as the engine reads them.
const OPTIONS: &[(&str, &str)] = &[
    ("heartbeat", "60"),
    ("grace-period", "10"),
    ("jobs-history", "604800"),
    ("jobs-history-count", "50000"),
    ("max-job-history", "100"),
    ("max-pop-retry", "1"),
    ("max-worker-age", "86400"),
];

/// Moments of a recurring job's future that are told.
const UPCOMING: usize = 5;

fn bulk(text: Vec<u8>) -> Frame {
    Frame::Bulk(Bytes::from(text))
}

fn word(text: &'static str) -> Frame {
    Frame::Bulk(Bytes::from_static(text.as_bytes()))
}

fn names(list: &[Name]) -> Frame {
    Frame::Array(list.iter().map(|name| bulk(name.bytes().to_vec())).collect())
}

/// A refusal as an error: its code, then a sentence.
pub(crate) fn refused(refusal: &Refusal) -> Frame {
    Frame::Error(format!("{} {}", refusal.code(), refusal::plain(refusal)))
}

impl Shape {
    /// As [`Shape::frame`], straight to bytes.
    pub(crate) fn write(self, outcome: Result<Reply, Refusal>, texts: &Texts, sheet: &mut Sheet<'_>) {
        match (&self, &outcome) {
            (Shape::Name, Ok(Reply::Name(name))) => sheet.bulk(name.bytes()),
            (Shape::State, Ok(Reply::State(state))) => sheet.bulk(state.word().as_bytes()),
            (Shape::Job, Ok(Reply::Job(Some(job)))) => sheet.text(|out| push_job(out, job, texts)),
            (Shape::Jobs, Ok(Reply::Jobs(jobs))) => {
                sheet.array(jobs.len());
                jobs.iter().for_each(|job| sheet.text(|out| push_job(out, job, texts)));
            }
            _ => sheet.frame(&self.frame(outcome, texts)),
        }
    }

    pub(crate) fn frame(self, outcome: Result<Reply, Refusal>, texts: &Texts) -> Frame {
        let reply = match outcome {
            Ok(Reply::Stopped(Some(refusal))) | Err(refusal) => return refused(&refusal),
            Ok(reply) => reply,
        };
        match (self, reply) {
            (Shape::One, _) => Frame::Int(1),
            (Shape::Flag, Reply::Bool(flag)) => Frame::Int(i64::from(flag)),
            (Shape::Int, Reply::Int(value)) => Frame::Int(value),
            (Shape::Int, Reply::Number(value)) => Frame::Int(value.trunc() as i64),
            (Shape::Name, Reply::Name(name)) => bulk(name.bytes().to_vec()),
            (Shape::Names, Reply::Names(list)) => names(&list),
            (Shape::State, Reply::State(state)) => word(state.word()),
            (Shape::Job, Reply::Job(Some(job))) => job_frame(&job, texts),
            (Shape::Jobs, Reply::Jobs(jobs)) => {
                Frame::Array(jobs.iter().map(|job| job_frame(job, texts)).collect())
            }
            (Shape::JobsOrNil(jids), Reply::Jobs(jobs)) => {
                // The jobs come in the order asked for, missing ones left out.
                let mut found = jobs.iter().peekable();
                let mut next = |jid: &Name| found.next_if(|job| job.jid == *jid);
                let frames = jids.iter().map(|jid| next(jid).map_or(Frame::Nil, |job| job_frame(job, texts)));
                Frame::Array(frames.collect())
            }
            (Shape::Result, Reply::Job(Some(job))) => match &job.result {
                Some(result) => bulk(texts.bytes(result).to_vec()),
                None => Frame::Nil,
            },
            (Shape::Beat(now), Reply::Number(expires)) => Frame::Int((expires - now).trunc() as i64),
            (Shape::Beats(now), Reply::Each(each)) => {
                let beat = |outcome: Result<f64, Refusal>| match outcome {
                    Ok(expires) => bulk(((expires - now).trunc() as i64).to_string().into_bytes()),
                    Err(refusal) => word(refusal.code()),
                };
                Frame::Array(each.into_iter().map(beat).collect())
            }
            (Shape::Completed, Reply::Each(each)) => {
                let outcome =
                    |outcome: Result<f64, Refusal>| word(outcome.map_or_else(|no| no.code(), |_| "complete"));
                Frame::Array(each.into_iter().map(outcome).collect())
            }
            (Shape::Option(option), Reply::Option(value)) => option_frame(&option, value),
            (Shape::Json, Reply::Recur(None)) => Frame::Nil,
            (Shape::Json, reply) => {
                let mut out = Vec::with_capacity(256);
                push_reply(&mut out, &reply, texts);
                bulk(out)
            }
            _ => Frame::Nil,
        }
    }
}

fn option_frame(option: &Name, value: Option<Name>) -> Frame {
    match value {
        Some(value) => bulk(value.bytes().to_vec()),
        None => option_default(option).map_or(Frame::Nil, word),
    }
}

/// What an option is when nobody has set it.
pub(crate) fn option_default(option: &Name) -> Option<&'static str> {
    OPTIONS.iter().find(|(known, _)| known.as_bytes() == option.bytes()).map(|(_, default)| *default)
}

fn job_frame(job: &JobView, texts: &Texts) -> Frame {
    let mut out = Vec::with_capacity(384);
    push_job(&mut out, job, texts);
    bulk(out)
}

pub(crate) fn push_reply(out: &mut Vec<u8>, reply: &Reply, texts: &Texts) {
    match reply {
        Reply::Counts(counts) => push_counts(out, counts),
        Reply::AllCounts(all) => push_list(out, all, "[]", push_counts),
        Reply::Page { total, jids } => {
            let mut object = Object::json(out);
            object.count("total", *total);
            push_names(object.key("jobs"), jids);
            object.end();
        }
        Reply::Groups(groups) => {
            let mut object = Object::json(out);
            for (group, size) in groups {
                let key = plain::to_text(group.bytes());
                push_int(object.key_bytes(key.as_bytes()), i64::try_from(*size).unwrap_or(i64::MAX));
            }
            object.end();
        }
        Reply::Stats(stats) => {
            let mut object = Object::json(out);
            push_series(object.key("wait"), &stats.wait);
            push_series(object.key("run"), &stats.run);
            object.number("failures", stats.failures as f64);
            object.number("failed", stats.failed as f64);
            object.number("retries", stats.retries as f64);
            object.end();
        }
        Reply::Tracked { jobs, expired } => {
            let mut object = Object::json(out);
            push_list(object.key("jobs"), jobs, "[]", |out, job| push_job(out, job, texts));
            push_names(object.key("expired"), expired);
            object.end();
        }
        Reply::Workers(workers) => push_list(out, workers, "[]", |out, worker| {
            let mut object = Object::json(out);
            object.string("name", worker.name.bytes());
            object.count("jobs", worker.jobs);
            object.count("stalled", worker.stalled);
            push_exact(object.key("seen_at"), worker.seen_at);
            object.string("state", worker.life.word().as_bytes());
            object.raw("facts", worker.facts.as_ref().map_or(b"null", |facts| facts.bytes()));
            object.end();
        }),
        Reply::WorkerJobs { jobs, stalled } => {
            let mut object = Object::json(out);
            push_names(object.key("jobs"), jobs);
            push_names(object.key("stalled"), stalled);
            object.end();
        }
        Reply::Options(options) => push_options(out, options),
        Reply::Throttle(throttle) => {
            let mut object = Object::json(out);
            object.string("id", throttle.id.bytes());
            object.number("maximum", throttle.maximum);
            object.number("ttl", throttle.ttl);
            object.end();
        }
        Reply::Recur(Some(recur)) => push_recur(out, recur),
        Reply::Listed { rows, .. } => push_reply(out, rows, texts),
        _ => out.extend_from_slice(b"null"),
    }
}

fn push_options(out: &mut Vec<u8>, options: &[(Name, Name)]) {
    push_options_of(out, options, Some(b""));
}

/// These, and the defaults of unset ones that begin with the prefix, if there is one.
pub(crate) fn push_options_of(out: &mut Vec<u8>, options: &[(Name, Name)], defaults: Option<&[u8]>) {
    let mut object = Object::json(out);
    let is_set = |known: &str| options.iter().any(|(option, _)| option.bytes() == known.as_bytes());
    let wanted = |option: &str| {
        defaults.is_some_and(|prefix| option.as_bytes().starts_with(prefix)) && !is_set(option)
    };
    for (option, default) in OPTIONS.iter().filter(|(option, _)| wanted(option)) {
        object.string(option, default.as_bytes());
    }
    for (option, value) in options {
        let key = plain::to_text(option.bytes());
        push_json_string(object.key_bytes(key.as_bytes()), value.bytes());
    }
    object.end();
}

pub(crate) fn push_names<'a>(out: &mut Vec<u8>, list: impl IntoIterator<Item = &'a Name>) {
    push_list(out, list, "[]", |out, name| push_json_string(out, name.bytes()));
}

fn push_name_or_null(object: &mut Object<'_>, key: &'static str, name: Option<&Name>) {
    match name.filter(|name| !name.is_empty()) {
        Some(name) => object.string(key, name.bytes()),
        None => object.raw(key, b"null"),
    }
}

pub(crate) fn push_job(out: &mut Vec<u8>, job: &JobView, texts: &Texts) {
    let mut object = Object::json(out);
    object.string("jid", job.jid.bytes());
    object.string("klass", job.klass.bytes());
    push_name_or_null(&mut object, "queue", Some(&job.queue));
    object.word("state", job.state.word());
    push_data(object.key("data"), &super::data_of(job, texts));
    match &job.result {
        Some(result) => object.string("result", texts.bytes(result)),
        None => object.raw("result", b"null"),
    }
    push_exact(object.key("priority"), job.priority);
    object.number("retries", job.retries);
    object.number("remaining", job.remaining.floor());
    object.count("attempt", job.attempt as usize);
    push_name_or_null(&mut object, "worker", Some(&job.worker).filter(|_| job.state == State::Running));
    match job.state {
        State::Running if !job.is_endless() => push_exact(object.key("expires"), job.expires),
        _ => object.raw("expires", b"null"),
    }
    match job.due {
        Some(due) if due.is_finite() => push_exact(object.key("due"), due),
        _ => object.raw("due", b"null"),
    }
    if let Some(pid) = &job.pid {
        object.string("pid", pid.bytes());
    }
    push_names(object.key("tags"), &job.tags);
    object.raw("tracked", if job.tracked { b"true" } else { b"false" });
    match &job.failure {
        Some(failure) => push_failure(object.key("failure"), failure, texts),
        None => object.raw("failure", b"null"),
    }
    push_names(object.key("dependencies"), &job.dependencies);
    push_names(object.key("dependents"), &job.dependents);
    // The queue's own goes without saying.
    let is_own =
        |id: &&Name| id.bytes().strip_prefix(haul_engine::QUEUE_THROTTLE_PREFIX) == Some(job.queue.bytes());
    push_names(object.key("throttles"), job.throttles.iter().filter(|id| !is_own(id)));
    push_name_or_null(&mut object, "spawned_from", job.spawned_from.as_ref());
    push_report(&mut object, job, texts);
    push_list(object.key("history"), &job.history, "[]", |out, entry| push_entry(out, entry, texts));
    if let Some(trace) = &job.trace {
        object.string("trace", trace.bytes());
    }
    object.end();
}

/// What the job said of itself: members only where it did.
fn push_report(object: &mut Object<'_>, job: &JobView, texts: &Texts) {
    let Some(report) = &job.report else { return };
    if report.percent.is_some() || report.message.is_some() {
        let mut progress = Object::json(object.key("progress"));
        match report.percent {
            Some(percent) => push_exact(progress.key("percent"), percent),
            None => progress.raw("percent", b"null"),
        }
        match &report.message {
            Some(message) => progress.string("message", message.bytes()),
            None => progress.raw("message", b"null"),
        }
        progress.end();
    }
    if let Some(output) = &report.output {
        object.string("output", texts.bytes(output));
        object.count("output_bytes", usize::try_from(report.output_bytes).unwrap_or(usize::MAX));
    }
    if let Some(checkpoint) = &report.checkpoint {
        push_data(object.key("checkpoint"), texts.bytes(checkpoint));
    }
}

/// Data is JSON already; bytes that are not UTF-8 would spoil the whole document and are written as `plain` says.
pub(crate) fn push_data(out: &mut Vec<u8>, data: &[u8]) {
    match std::str::from_utf8(data) {
        Ok(_) => out.extend_from_slice(data),
        Err(_) => out.extend_from_slice(plain::to_text(data).as_bytes()),
    }
}

fn push_failure(out: &mut Vec<u8>, failure: &Failure, texts: &Texts) {
    let mut object = Object::json(out);
    object.string("group", failure.group.bytes());
    object.string("message", texts.bytes(&failure.message));
    push_exact(object.key("when"), failure.when);
    push_name_or_null(&mut object, "worker", Some(&failure.worker));
    object.end();
}

fn push_entry(out: &mut Vec<u8>, entry: &Entry, texts: &Texts) {
    let mut object = Object::json(out);
    push_g14(object.key("when"), entry.when);
    object.string("what", what_word(&entry.what));
    match &entry.what {
        What::Put(queue) => object.string("q", queue.bytes()),
        What::Throttled(queue) => object.string("queue", queue.bytes()),
        What::Popped(worker) => object.string("worker", worker.bytes()),
        What::Failed(who) => {
            object.string("worker", who.0.bytes());
            object.string("group", who.1.bytes());
        }
        What::Exhausted(group) | What::FailedRetries(group) => object.string("group", group.bytes()),
        What::Log(log) => {
            for (key, value) in log_members(log.1.as_ref().map(|text| texts.bytes(text))) {
                object.key_bytes(key.as_bytes()).extend_from_slice(&value);
            }
        }
        What::Done | What::TimedOut => {}
    }
    object.end();
}

pub(crate) fn push_counts(out: &mut Vec<u8>, counts: &QueueCounts) {
    let mut object = Object::json(out);
    object.string("name", counts.name.bytes());
    object.count("waiting", counts.waiting);
    object.count("running", counts.running);
    object.count("stalled", counts.stalled);
    object.count("scheduled", counts.scheduled);
    object.count("depends", counts.depends);
    object.count("recurring", counts.recurring);
    object.count("throttled", counts.throttled);
    object.raw("paused", if counts.paused { b"true" } else { b"false" });
    object.end();
}

fn push_series(out: &mut Vec<u8>, series: &Series) {
    let mut object = Object::json(out);
    object.number("count", series.total);
    push_exact(object.key("mean"), series.mean);
    push_exact(object.key("std"), series.variance().sqrt());
    push_list(object.key("histogram"), series.unified(), "[]", |out, count| push_int(out, count as i64));
    object.end();
}

pub(crate) fn push_recur(out: &mut Vec<u8>, recur: &Recur) {
    let mut object = Object::json(out);
    object.string("jid", recur.jid.bytes());
    object.string("klass", recur.klass.bytes());
    object.string("queue", recur.queue.bytes());
    push_data(object.key("data"), recur.data.bytes());
    push_exact(object.key("priority"), recur.priority);
    object.number("retries", recur.retries);
    push_exact(object.key("interval"), recur.interval);
    object.number("backlog", recur.backlog);
    object.number("count", recur.count as f64);
    match recur.next.is_finite() {
        true => push_exact(object.key("next"), recur.next),
        false => object.raw("next", b"null"),
    }
    match &recur.cron {
        Some(cron) => {
            object.string("cron", cron.text().as_bytes());
            object.string("timezone", cron.zone().as_bytes());
            object.string("words", cron.words().as_bytes());
        }
        None => {
            ["cron", "timezone", "words"].iter().for_each(|key| object.raw(key, b"null"));
        }
    }
    object.raw("paused", if recur.paused { b"true" } else { b"false" });
    push_list(object.key("upcoming"), upcoming(recur), "[]", push_exact);
    push_names(object.key("tags"), &recur.tags);
    push_names(object.key("throttles"), &recur.throttles);
    object.end();
}

/// When it makes its next few jobs, unless something changes.
fn upcoming(recur: &Recur) -> Vec<f64> {
    if recur.paused {
        return Vec::new();
    }
    let after = |at: &f64| match &recur.cron {
        Some(cron) => cron.after(*at),
        None => Some(at + recur.interval),
    };
    std::iter::successors(Some(recur.next).filter(|next| next.is_finite()), after).take(UPCOMING).collect()
}
