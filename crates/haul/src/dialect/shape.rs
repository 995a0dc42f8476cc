//! How qless's and reqless's answers are written: key orders, `{}` for empty lists, numbers as Lua prints them.

use bytes::Bytes;
use haul_client::resp::Frame;
use haul_engine::{
    Entry, Failure, JobView, KeyView, Name, QueueCounts, Recur, Refusal, Reply, Series, StatsView, ViewValue,
    What,
};

use super::json::{Object, push_list, push_lua_string};
use super::number::{push_g14, push_int};
use super::refusal::{self, Verb};
use super::scripts::Script;
use super::{ErrorFormat, Sheet, Texts, data_of, qless};

/// Writes the answer of one script call.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) script: Script,
    pub(crate) verb: Verb,
    pub(crate) shape: Shape,
    pub(crate) error_format: ErrorFormat,
    pub(crate) sha: String,
}

/// The form of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Nil,
    /// Always 1.
    One,
    Int,
    Name,
    State,
    /// JSON text `1` or `0`.
    Flag,
    /// The arguments again.
    Echo(Vec<Name>),
    Job,
    Jobs,
    /// Jids: a list, or JSON in reqless.
    JobList,
    /// JSON list.
    NameList,
    /// JSON list, `{}` when empty in every script.
    NameListOrObject,
    Page,
    Groups,
    Counts,
    /// `named`: by the command that never takes a queue.
    AllCounts {
        named: bool,
    },
    Stats,
    Tracked,
    Recur,
    Workers,
    WorkerJobs,
    Option(Name),
    Options,
    Throttle {
        with_ttl: bool,
    },
    ThrottleTtl,
    /// Who holds or waits for a throttle: JSON in reqless, else a list.
    Holders,
    Stopped,
    /// An error either way: no such job, or the complaint.
    NoJobOr(Name, String),
    /// An error either way: no such definition, or the complaint.
    NoRecurOr(Name, String),
    Identifiers,
    Priorities,
}

fn bulk(text: Vec<u8>) -> Frame {
    Frame::Bulk(Bytes::from(text))
}

fn name(name: &Name) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(name.bytes()))
}

fn names(list: &[Name]) -> Frame {
    Frame::Array(list.iter().map(name).collect())
}

impl Writer {
    pub(crate) fn error(&self, message: &str) -> Frame {
        Frame::Error(refusal::envelope(self.error_format, &self.sha, message))
    }

    fn refused(&self, refusal: &Refusal) -> Frame {
        self.error(&refusal::text(self.script, self.verb, refusal))
    }

    /// What an empty list is written as, where later scripts write `[]`.
    fn empty(&self) -> &'static str {
        if self.script == Script::Reqless { "[]" } else { "{}" }
    }

    fn has_throttles(&self) -> bool {
        matches!(self.script, Script::Reqless | Script::QlessThrottles)
    }

    /// As [`Writer::frame`], straight to bytes.
    pub(crate) fn write(self, outcome: Result<Reply, Refusal>, texts: &Texts, sheet: &mut Sheet<'_>) {
        match (&self.shape, &outcome) {
            (Shape::Name, Ok(Reply::Name(jid))) => sheet.bulk(jid.bytes()),
            (Shape::State, Ok(Reply::State(state))) => sheet.bulk(state.word().as_bytes()),
            (Shape::Job | Shape::Jobs, Ok(reply @ (Reply::Job(Some(_)) | Reply::Jobs(_)))) => {
                sheet.text(|out| self.json(out, reply, texts));
            }
            _ => sheet.frame(&self.frame(outcome, texts)),
        }
    }

    pub(crate) fn frame(self, outcome: Result<Reply, Refusal>, texts: &Texts) -> Frame {
        let reply = match outcome {
            Ok(reply) => reply,
            Err(refusal) => return self.refused(&refusal),
        };
        match (&self.shape, reply) {
            (Shape::Nil, _) => Frame::Nil,
            (Shape::One, _) => Frame::Int(1),
            (Shape::Echo(arguments), _) => names(arguments),
            (Shape::Int, Reply::Number(value)) => Frame::Int(value.trunc() as i64),
            (Shape::Int, Reply::Int(value)) => Frame::Int(value),
            (Shape::Name, Reply::Name(jid)) => name(&jid),
            (Shape::State, Reply::State(state)) => Frame::Bulk(Bytes::from_static(state.word().as_bytes())),
            (Shape::Flag, Reply::Bool(flag)) => {
                Frame::Bulk(Bytes::from_static(if flag { b"1" } else { b"0" }))
            }
            (Shape::Job, Reply::Job(None)) | (Shape::Recur, Reply::Recur(None)) => Frame::Nil,
            (Shape::Stopped, Reply::Stopped(None)) => Frame::Nil,
            (Shape::Stopped, Reply::Stopped(Some(refusal))) => self.refused(&refusal),
            (Shape::NoJobOr(jid, _), Reply::Bool(false)) => {
                self.refused(&Refusal::NoJob { jid: jid.clone() })
            }
            (
                Shape::NoJobOr(_, complaint) | Shape::NoRecurOr(_, complaint),
                Reply::Bool(true) | Reply::Recur(Some(_)),
            ) => self.error(complaint),
            (Shape::NoRecurOr(jid, _), _) => self.refused(&Refusal::NoRecur { jid: jid.clone() }),
            (Shape::JobList | Shape::Holders, Reply::Names(list)) if self.script != Script::Reqless => {
                names(&list)
            }
            (Shape::Option(option), Reply::Option(value)) => self.option(option, value),
            (Shape::ThrottleTtl, Reply::Throttle(throttle)) => Frame::Int(throttle.ttl as i64),
            (_, reply) => {
                let mut out = Vec::with_capacity(512);
                self.json(&mut out, &reply, texts);
                bulk(out)
            }
        }
    }

    fn json(&self, out: &mut Vec<u8>, reply: &Reply, texts: &Texts) {
        match reply {
            Reply::Job(Some(job)) => self.push_job(out, job, texts),
            Reply::Jobs(jobs) => {
                push_list(out, jobs, self.empty(), |out, job| self.push_job(out, job, texts))
            }
            Reply::Names(list) => {
                let empty = if matches!(self.shape, Shape::NameListOrObject) { "{}" } else { self.empty() };
                push_names(out, list, empty);
            }
            Reply::Page { total, jids } => {
                let mut object = Object::lua(out);
                push_names(object.key("jobs"), jids, "{}");
                object.count("total", *total);
                object.end();
            }
            Reply::Groups(groups) => {
                let mut object = Object::lua(out);
                for (group, size) in groups {
                    push_int(object.key_bytes(group.bytes()), *size as i64);
                }
                object.end();
            }
            Reply::Counts(counts) => self.push_counts(out, counts),
            Reply::AllCounts(all) => {
                let empty = match self.shape {
                    Shape::AllCounts { named: true } => self.empty(),
                    _ => "{}",
                };
                push_list(out, all, empty, |out, counts| self.push_counts(out, counts));
            }
            Reply::Stats(stats) => push_stats(out, stats),
            Reply::Tracked { jobs, expired } => {
                let mut object = Object::lua(out);
                push_names(object.key("expired"), expired, "{}");
                push_list(object.key("jobs"), jobs, "{}", |out, job| self.push_job(out, job, texts));
                object.end();
            }
            Reply::Recur(Some(recur)) => self.push_recur(out, recur),
            reply => self.json_rest(out, reply),
        }
    }

    fn json_rest(&self, out: &mut Vec<u8>, reply: &Reply) {
        match reply {
            Reply::Workers(workers) => push_list(out, workers, self.empty(), |out, worker| {
                let mut object = Object::lua(out);
                object.count("stalled", worker.stalled);
                object.string("name", worker.name.bytes());
                object.count("jobs", worker.jobs);
                object.end();
            }),
            Reply::WorkerJobs { jobs, stalled } => {
                let mut object = Object::lua(out);
                push_names(object.key("stalled"), stalled, "{}");
                push_names(object.key("jobs"), jobs, "{}");
                object.end();
            }
            Reply::Options(options) => self.push_options(out, options),
            Reply::Throttle(throttle) => {
                let with_ttl = matches!(self.shape, Shape::Throttle { with_ttl: true });
                let mut object = Object::lua(out);
                object.string("id", throttle.id.bytes());
                if with_ttl {
                    object.number("ttl", throttle.ttl);
                }
                object.number("maximum", throttle.maximum);
                object.end();
            }
            Reply::Key(KeyView::Pairs(pairs)) => push_identifiers(out, pairs),
            Reply::Key(KeyView::Values(values)) => push_priorities(out, values),
            _ => {}
        }
    }

    /// The job object, keys in the reference's order.
    fn push_job(&self, out: &mut Vec<u8>, job: &JobView, texts: &Texts) {
        let mut object = Object::lua(out);
        object.string("jid", job.jid.bytes());
        object.number("retries", job.retries);
        object.string("data", &data_of(job, texts));
        push_failure(object.key("failure"), job.failure.as_ref(), texts, false);
        object.number("expires", job.expires);
        object.number("remaining", job.remaining.floor());
        match &job.spawned_from {
            Some(parent) => object.string("spawned_from_jid", parent.bytes()),
            None => object.raw("spawned_from_jid", b"false"),
        }
        push_names(object.key("dependencies"), &job.dependencies, "{}");
        object.string("klass", job.klass.bytes());
        object.raw("tracked", if job.tracked { b"true" } else { b"false" });
        push_names(object.key("tags"), &job.tags, "{}");
        object.string("queue", job.queue.bytes());
        object.word("state", job.state.word());
        let reqless = self.script == Script::Reqless;
        push_list(object.key("history"), &job.history, "{}", |out, entry| {
            push_entry(out, entry, texts, reqless)
        });
        push_names(object.key("dependents"), &job.dependents, "{}");
        if self.has_throttles() {
            push_names(object.key("throttles"), &job.throttles, "{}");
        }
        object.number("priority", job.priority);
        object.string("worker", job.worker.bytes());
        object.end();
    }

    fn push_recur(&self, out: &mut Vec<u8>, recur: &Recur) {
        let mut object = Object::lua(out);
        push_names(object.key("tags"), &recur.tags, "{}");
        object.string("jid", recur.jid.bytes());
        object.number("retries", recur.retries);
        object.string("data", recur.data.bytes());
        object.string("queue", recur.queue.bytes());
        object.word("state", "recur");
        object.number("count", recur.count as f64);
        if self.has_throttles() {
            let own = Name::new(&[haul_engine::QUEUE_THROTTLE_PREFIX, recur.queue.bytes()].concat());
            let throttles: Vec<Name> = recur.throttles.iter().cloned().chain([own]).collect();
            push_names(object.key("throttles"), &throttles, "{}");
        }
        object.number("interval", recur.interval);
        object.string("klass", recur.klass.bytes());
        object.number("backlog", recur.backlog);
        object.number("priority", recur.priority);
        object.end();
    }

    fn push_counts(&self, out: &mut Vec<u8>, counts: &QueueCounts) {
        let mut object = Object::lua(out);
        let order: &[&'static str] = match self.has_throttles() {
            true => &[
                "recurring",
                "waiting",
                "stalled",
                "running",
                "name",
                "paused",
                "depends",
                "scheduled",
                "throttled",
            ],
            false => {
                &["paused", "running", "name", "waiting", "recurring", "depends", "stalled", "scheduled"]
            }
        };
        for key in order {
            match *key {
                "name" => object.string(key, counts.name.bytes()),
                "paused" => object.raw(key, if counts.paused { b"true" } else { b"false" }),
                "waiting" => object.count(key, counts.waiting),
                "running" => object.count(key, counts.running),
                "stalled" => object.count(key, counts.stalled),
                "scheduled" => object.count(key, counts.scheduled),
                "depends" => object.count(key, counts.depends),
                "recurring" => object.count(key, counts.recurring),
                _ => object.count(key, counts.throttled),
            }
        }
        object.end();
    }

    /// One option: set values are texts, defaults numbers (texts in reqless).
    fn option(&self, option: &Name, value: Option<Name>) -> Frame {
        if let Some(value) = value {
            return name(&value);
        }
        let default = self.defaults().iter().find(|(known, _)| known.as_bytes() == option.bytes());
        match default {
            None => Frame::Nil,
            Some((_, text)) => match text.parse() {
                Ok(number) if self.script != Script::Reqless => Frame::Int(number),
                _ => Frame::Bulk(Bytes::from_static(text.as_bytes())),
            },
        }
    }

    fn defaults(&self) -> &'static [(&'static str, &'static str)] {
        if self.script == Script::Reqless { REQLESS_OPTIONS } else { QLESS_OPTIONS }
    }

    fn push_options(&self, out: &mut Vec<u8>, options: &[(Name, Name)]) {
        let set = |option: &str| options.iter().find(|(known, _)| known.bytes() == option.as_bytes());
        let mut object = Object::lua(out);
        for (option, default) in self.defaults() {
            match set(option) {
                Some((_, value)) => object.string(option, value.bytes()),
                None if self.script != Script::Reqless && default.parse::<i64>().is_ok() => {
                    object.raw(option, default.as_bytes());
                }
                None => object.string(option, default.as_bytes()),
            }
        }
        let known =
            |option: &Name| self.defaults().iter().any(|(known, _)| known.as_bytes() == option.bytes());
        for (option, value) in options.iter().filter(|(option, _)| !known(option)) {
            push_lua_string(object.key_bytes(option.bytes()), value.bytes());
        }
        object.end();
    }
}

const QLESS_OPTIONS: &[(&str, &str)] = &[
    ("application", "qless"),
    ("grace-period", "10"),
    ("stats-history", "30"),
    ("jobs-history", "604800"),
    ("heartbeat", "60"),
    ("jobs-history-count", "50000"),
    ("histogram-history", "7"),
];

const REQLESS_OPTIONS: &[(&str, &str)] = &[
    ("application", "reqless"),
    ("max-job-history", "100"),
    ("grace-period", "10"),
    ("max-pop-retry", "1"),
    ("max-worker-age", "86400"),
    ("heartbeat", "60"),
    ("jobs-history", "604800"),
    ("jobs-history-count", "50000"),
];

/// A JSON list of names.
pub(crate) fn push_names(out: &mut Vec<u8>, list: &[Name], empty: &str) {
    push_list(out, list, empty, |out, name| push_lua_string(out, name.bytes()));
}

/// `{}`, or the failure; the stored text has another order of keys than the job object.
pub(crate) fn push_failure(out: &mut Vec<u8>, failure: Option<&Failure>, texts: &Texts, stored: bool) {
    let mut object = Object::lua(out);
    if let Some(failure) = failure {
        if stored {
            object.string("group", failure.group.bytes());
        }
        object.string("message", texts.bytes(&failure.message));
        if !stored {
            object.string("group", failure.group.bytes());
        }
        object.number("when", failure.when);
        object.string("worker", failure.worker.bytes());
    }
    object.end();
}

/// A history entry as one flat object.
fn push_entry(out: &mut Vec<u8>, entry: &Entry, texts: &Texts, reqless: bool) {
    let mut object = Object::lua(out);
    match &entry.what {
        What::Put(queue) if reqless => {
            object.number("when", entry.when);
            object.word("what", "put");
            object.string("queue", queue.bytes());
        }
        What::Put(queue) => {
            object.number("when", entry.when);
            object.string("q", queue.bytes());
            object.word("what", "put");
        }
        What::Popped(worker) => {
            object.number("when", entry.when);
            object.word("what", "popped");
            object.string("worker", worker.bytes());
        }
        What::Done | What::TimedOut => {
            object.number("when", entry.when);
            object.string("what", what_word(&entry.what));
        }
        What::Failed(who) => {
            object.string("group", who.1.bytes());
            object.word("what", "failed");
            object.number("when", entry.when);
            object.string("worker", who.0.bytes());
        }
        What::Exhausted(group) | What::FailedRetries(group) => {
            object.number("when", entry.when);
            object.string("group", group.bytes());
            object.string("what", what_word(&entry.what));
        }
        What::Throttled(queue) => {
            object.number("when", entry.when);
            object.word("what", "throttled");
            object.string("queue", queue.bytes());
        }
        What::Log(log) => {
            for (key, value) in log_members(log.1.as_ref().map(|text| texts.bytes(text))) {
                object.key_bytes(key.as_bytes()).extend_from_slice(&value);
            }
            object.number("when", entry.when);
            object.string("what", log.0.bytes());
        }
    }
    object.end();
}

/// The word of an entry.
pub(crate) fn what_word(what: &What) -> &[u8] {
    match what {
        What::Put(_) => b"put",
        What::Popped(_) => b"popped",
        What::Done => b"done",
        What::TimedOut => b"timed-out",
        What::Failed(_) | What::Exhausted(_) => b"failed",
        What::FailedRetries(_) => b"failed-retries",
        What::Throttled(_) => b"throttled",
        What::Log(log) => log.0.bytes(),
    }
}

/// The members of a log line's data, each value as JSON text; an array's are numbered from 1. `when` and `what` are
/// the entry's own.
pub(crate) fn log_members(data: Option<&[u8]>) -> Vec<(String, Vec<u8>)> {
    let Some(value) = data.and_then(|data| serde_json::from_slice::<serde_json::Value>(data).ok()) else {
        return Vec::new();
    };
    let members: Vec<(String, serde_json::Value)> = match value {
        serde_json::Value::Object(members) => members.into_iter().collect(),
        serde_json::Value::Array(items) => {
            items.into_iter().enumerate().map(|(at, item)| ((at + 1).to_string(), item)).collect()
        }
        _ => Vec::new(),
    };
    let own = |key: &str| key == "when" || key == "what";
    members
        .into_iter()
        .filter(|(key, _)| !own(key))
        .map(|(key, value)| (key, value.to_string().into_bytes()))
        .collect()
}

/// The stored form: `[when,what,extras]`.
pub(crate) fn push_triple(out: &mut Vec<u8>, entry: &Entry, texts: &Texts) {
    out.push(b'[');
    push_g14(out, entry.when);
    out.push(b',');
    push_lua_string(out, what_word(&entry.what));
    let extra = |out: &mut Vec<u8>, members: &[(&'static str, &Name)]| {
        out.push(b',');
        let mut object = Object::lua(out);
        for (key, value) in members {
            object.string(key, value.bytes());
        }
        object.end();
    };
    match &entry.what {
        What::Put(queue) => extra(out, &[("q", queue)]),
        What::Popped(worker) => extra(out, &[("worker", worker)]),
        What::Failed(who) => extra(out, &[("group", &who.1), ("worker", &who.0)]),
        What::Exhausted(group) | What::FailedRetries(group) => extra(out, &[("group", group)]),
        What::Throttled(queue) => extra(out, &[("queue", queue)]),
        What::Log(log) => {
            if let Some(data) = &log.1 {
                out.push(b',');
                out.extend_from_slice(texts.bytes(data));
            }
        }
        What::Done | What::TimedOut => {}
    }
    out.push(b']');
}

fn push_stats(out: &mut Vec<u8>, stats: &StatsView) {
    let mut object = Object::lua(out);
    push_series(object.key("run"), &stats.run);
    object.number("failures", stats.failures as f64);
    object.number("retries", stats.retries as f64);
    object.number("failed", stats.failed as f64);
    push_series(object.key("wait"), &stats.wait);
    object.end();
}

fn push_series(out: &mut Vec<u8>, series: &Series) {
    let mut object = Object::lua(out);
    object.number("std", series.variance().sqrt());
    push_list(object.key("histogram"), series.unified(), "[]", |out, count| push_int(out, count as i64));
    object.number("mean", series.mean);
    object.number("count", series.total);
    object.end();
}

fn push_identifiers(out: &mut Vec<u8>, pairs: &[(Name, ViewValue)]) {
    let mut object = Object::lua(out);
    let mut any_default = false;
    for (field, value) in pairs {
        any_default |= field.bytes() == b"default";
        if let ViewValue::Name(text) = value {
            push_lua_string(object.key_bytes(field.bytes()), text.bytes());
        }
    }
    if !any_default {
        object.string("default", qless::default_patterns().0.as_bytes());
    }
    object.end();
}

fn push_priorities(out: &mut Vec<u8>, values: &[Option<ViewValue>]) {
    if values.is_empty() {
        let default = Name::from(qless::default_patterns().1);
        push_names(out, &[default], "[]");
        return;
    }
    push_list(out, values, "[]", |out, value| {
        if let Some(ViewValue::Name(text)) = value {
            push_lua_string(out, text.bytes());
        }
    });
}
