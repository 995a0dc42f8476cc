//! Haul's own commands (`HAUL.*`): keywords instead of positions, the server's clock, JSON answers.
//! `docs/reference/commands.md` is their description; keep the two in step.

use haul_engine::{
    Command, Complete, Cron, Fail, Heartbeat, JobList, Jobs, List, Listing, Lock, Name, Next, Pop, Put,
    PutWhen, RankWindow, RecurChange, RecurPut, Report, Retry, Rules, parse_number,
};

use super::args::{Args, Bad, kind, shown};
use super::native_shape::Shape;
use super::{Env, Plan, Render, plain};

/// Jobs one pop gives at most.
pub(crate) const POP_COUNT_MAX: usize = 10_000;
/// Output of a running job that a report carries at most.
pub(crate) const REPORT_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// What a worker says of itself at most.
pub(crate) const FACTS_BYTES_MAX: usize = 8 << 10;
/// Rows of a list, unless said otherwise.
const LIST_COUNT: usize = 1000;
/// Rows of a list at most.
const LIST_COUNT_MAX: usize = 10_000;
/// Seconds a pop waits at most.
pub(crate) const WAIT_SECONDS_MAX: f64 = 86_400.0;

/// How the complaint about an unknown command starts; it is an error of its own, not a bad argument.
pub(crate) const UNKNOWN: &str = "ERR unknown command";

type Read = Result<(Command, Shape), Bad>;

/// No command's name is longer.
const NAME_BYTES_MAX: usize = 16;

/// Understands one command; `name` is what follows `HAUL.`, in any case.
pub(crate) fn read(name: &[u8], list: &[&[u8]], env: &Env) -> Result<Plan, Bad> {
    let reader = Reader { name, args: Args::new(list, env), env };
    let mut capitals = [0; NAME_BYTES_MAX];
    let name = match capitals.get_mut(..name.len()) {
        Some(capitals) => {
            capitals.copy_from_slice(name);
            capitals.make_ascii_uppercase();
            &*capitals
        }
        None => b"",
    };
    let mut wait = None;
    let (command, shape) = match name {
        b"POP" => {
            let (command, shape, seconds) = reader.pop()?;
            wait = seconds;
            (command, shape)
        }
        _ => reader.read(name)?,
    };
    Ok(Plan { call: env.call(env.clock, Rules::NATIVE, command), render: Render::Native(shape), wait })
}

/// A word as complaints show it.
fn capitals(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_ascii_uppercase()
}

struct Reader<'a> {
    /// The command's, as it was written.
    name: &'a [u8],
    args: Args<'a>,
    env: &'a Env,
}

/// Keywords with their values, in order.
struct Keywords<'a> {
    found: Vec<(&'static str, &'a [u8])>,
}

impl<'a> Keywords<'a> {
    fn last(&self, word: &str) -> Option<&'a [u8]> {
        self.found.iter().rev().find(|(name, _)| *name == word).map(|(_, value)| *value)
    }

    fn all(&self, word: &str) -> impl Iterator<Item = &'a [u8]> {
        self.found.iter().filter(move |(name, _)| *name == word).map(|(_, value)| *value)
    }

    fn has(&self, word: &str) -> bool {
        self.last(word).is_some()
    }

    fn number(&self, word: &str) -> Result<Option<f64>, Bad> {
        self.last(word).map(|text| to_number(word, text)).transpose()
    }

    fn whole(&self, word: &str) -> Result<Option<usize>, Bad> {
        self.last(word).map(|text| to_whole(word, text)).transpose()
    }

    fn attempt(&self) -> Result<Option<u32>, Bad> {
        let attempt = self.whole("ATTEMPT")?;
        attempt
            .map(|attempt| u32::try_from(attempt).map_err(|_| "ATTEMPT is too large".to_owned()))
            .transpose()
    }

    fn lock(&self) -> Result<Lock, Bad> {
        Ok(self.number("LOCK")?.map_or(Lock::Option, Lock::Seconds))
    }
}

fn to_number(word: &str, text: &[u8]) -> Result<f64, Bad> {
    parse_number(text).ok_or_else(|| format!("{word} must be a number, not {}", shown(Some(text))))
}

fn to_whole(word: &str, text: &[u8]) -> Result<usize, Bad> {
    let number = to_number(word, text)?;
    if number.fract() != 0.0 || !(0.0..=9e15).contains(&number) {
        return Err(format!("{word} must be a whole number from 0, not {}", shown(Some(text))));
    }
    Ok(number as usize)
}

fn pause_recur(jid: Name, paused: bool) -> Command {
    Command::RecurUpdate { jid, changes: vec![RecurChange::Paused(paused)] }
}

/// A W3C trace context.
pub(crate) fn trace_context(text: &[u8]) -> Result<Name, Bad> {
    match crate::trace::Context::parse(text) {
        Some(_) => Ok(Name::new(text)),
        None => Err(format!("the trace must be a W3C traceparent, not {}", shown(Some(text)))),
    }
}

impl<'a> Reader<'a> {
    fn read(&self, name: &[u8]) -> Read {
        match name {
            b"PUT" => self.put(),
            b"MPUT" => self.put_many(),
            b"MOVE" => self.move_job(),
            b"RECUR" => self.recur(),
            b"HEARTBEAT" => self.heartbeat(),
            b"COMPLETE" => self.complete(),
            b"FAIL" => self.fail(),
            b"RETRY" => self.retry(),
            b"REPORT" => self.report(),
            b"MHEARTBEAT" => {
                let (worker, jids) = (self.name(0, "worker")?, self.some(1, "jid")?);
                Ok((Command::HeartbeatMany { worker, jids }, Shape::Beats(self.env.clock)))
            }
            b"MCOMPLETE" => {
                let (worker, jids) = (self.name(0, "worker")?, self.some(1, "jid")?);
                Ok((Command::CompleteMany { worker, jids }, Shape::Completed))
            }
            b"RELEASE" => Ok((Command::Timeout { jids: self.some(0, "jid")? }, Shape::One)),
            b"CANCEL" => Ok((Command::Cancel { jids: self.some(0, "jid")? }, Shape::Int)),
            b"UNFAIL" => {
                let words = self.keywords(2, &["COUNT"], &[])?;
                let count = words.whole("COUNT")?.unwrap_or(25);
                let command =
                    Command::Unfail { queue: self.name(0, "queue")?, group: self.name(1, "group")?, count };
                Ok((command, Shape::Int))
            }
            b"PRIORITY" => {
                let jid = self.name(0, "jid")?;
                let priority = to_number("priority", self.required(1, "priority")?)?;
                self.exactly(2)?;
                Ok((Command::Priority { jid, priority }, Shape::One))
            }
            b"LOG" => self.log(),
            b"DEPENDS" => self.depends(),
            _ => self.read_looks(name),
        }
    }

    fn read_looks(&self, name: &[u8]) -> Read {
        match name {
            b"GET" => self.of_job(|jid| Command::Get { jid }, Shape::Job),
            b"MGET" => {
                let jids = self.some(0, "jid")?;
                Ok((Command::GetMany { jids: jids.clone() }, Shape::JobsOrNil(jids)))
            }
            b"RESULT" => self.of_job(|jid| Command::Get { jid }, Shape::Result),
            b"PEEK" => {
                let count =
                    self.keywords(1, &["COUNT"], &[])?.whole("COUNT")?.unwrap_or(1).min(POP_COUNT_MAX);
                Ok((Command::Peek { queue: self.name(0, "queue")?, offset: 0, count }, Shape::Jobs))
            }
            b"QUEUES" if self.is_list() => self.list(Listing::Queues),
            b"QUEUES" => self.of_queue(|queue| Command::QueueCounts { queue }, Shape::Json),
            b"JOBS" => self.jobs(),
            b"LENGTH" => self.of_queue(|queue| Command::Length { queue }, Shape::Int),
            b"STATS" => {
                let date = self.keywords(1, &["DATE"], &[])?.number("DATE")?.unwrap_or(self.env.clock);
                Ok((Command::Stats { queue: self.name(0, "queue")?, date }, Shape::Json))
            }
            b"FAILED" if self.is_list() => self.list(Listing::Groups),
            b"FAILED" => {
                let (group, range) = (self.name(0, "group")?, self.window(1)?);
                Ok((Command::Failed { group, range }, Shape::Json))
            }
            b"WORKERS" if self.is_list() => self.list(Listing::Workers),
            b"WORKERS" => {
                self.exactly(1)?;
                Ok((Command::WorkerJobs { worker: self.name(0, "worker")? }, Shape::Json))
            }
            b"TRACKED" => self.list(Listing::Tracked),
            b"TAGGED" => {
                let (tag, range) = (self.name(0, "tag")?, self.window(1)?);
                Ok((Command::Tagged { tag, range }, Shape::Json))
            }
            b"TAGS" => {
                let words = self.keywords(0, &["OFFSET", "COUNT"], &[])?;
                let (offset, count) =
                    (words.whole("OFFSET")?.unwrap_or(0), words.whole("COUNT")?.unwrap_or(25));
                Ok((Command::TopTags { offset, count: Some(count) }, Shape::Names))
            }
            b"GETRECUR" => self.of_job(|jid| Command::RecurGet { jid }, Shape::Json),
            b"RUNRECUR" => self.of_job(|jid| Command::RecurRun { jid }, Shape::Name),
            b"PAUSERECUR" => self.of_job(|jid| pause_recur(jid, true), Shape::One),
            b"UNPAUSERECUR" => self.of_job(|jid| pause_recur(jid, false), Shape::One),
            b"UNRECUR" => self.of_job(|jid| Command::Unrecur { jid }, Shape::Flag),
            b"TRACK" => self.of_job(|jid| Command::Track { jid }, Shape::Flag),
            b"UNTRACK" => self.of_job(|jid| Command::Untrack { jid }, Shape::Flag),
            _ => self.read_settings(name),
        }
    }

    fn read_settings(&self, name: &[u8]) -> Read {
        match name {
            b"TAG" => {
                Ok((Command::Tag { jid: self.name(0, "jid")?, tags: self.some(1, "tag")? }, Shape::Names))
            }
            b"UNTAG" => {
                Ok((Command::Untag { jid: self.name(0, "jid")?, tags: self.some(1, "tag")? }, Shape::Names))
            }
            b"PAUSE" => Ok((Command::Pause { queues: self.some(0, "queue")?, paused: true }, Shape::One)),
            b"UNPAUSE" => Ok((Command::Pause { queues: self.some(0, "queue")?, paused: false }, Shape::One)),
            b"FORGET" => Ok((Command::Forget { queues: self.some(0, "queue")? }, Shape::One)),
            b"WORKER" => self.worker(),
            b"DEREGISTER" => Ok((Command::Deregister { workers: self.some(0, "worker")? }, Shape::One)),
            b"CONFIG" => self.config(),
            b"THROTTLE" => self.throttle(),
            _ => Err(format!(
                "{UNKNOWN} 'HAUL.{}'; docs/reference/commands.md lists those there are",
                self.title()
            )),
        }
    }

    /// The command's name in a complaint.
    fn title(&self) -> String {
        capitals(self.name)
    }

    fn required(&self, index: usize, what: &str) -> Result<&'a [u8], Bad> {
        self.args.get(index).ok_or_else(|| format!("HAUL.{} needs a {what}", self.title()))
    }

    fn name(&self, index: usize, what: &str) -> Result<Name, Bad> {
        self.args.to_name(self.required(index, what)?)
    }

    /// All arguments from there on, at least one.
    fn some(&self, from: usize, what: &str) -> Result<Vec<Name>, Bad> {
        self.required(from, what)?;
        self.args.from(from).names()
    }

    fn exactly(&self, count: usize) -> Result<(), Bad> {
        match self.args.get(count) {
            None => Ok(()),
            Some(extra) => Err(format!("HAUL.{} does not take {}", self.title(), shown(Some(extra)))),
        }
    }

    fn of_job(&self, command: impl Fn(Name) -> Command, shape: Shape) -> Read {
        self.exactly(1)?;
        Ok((command(self.name(0, "jid")?), shape))
    }

    fn of_queue(&self, command: impl Fn(Name) -> Command, shape: Shape) -> Read {
        self.exactly(1)?;
        Ok((command(self.name(0, "queue")?), shape))
    }

    /// Whether a list is asked for, not one of its rows: there is nothing, or only keywords with their values.
    fn is_list(&self) -> bool {
        self.args.len().is_multiple_of(2)
    }

    fn list(&self, what: Listing) -> Read {
        let words = self.keywords(0, &["OFFSET", "COUNT"], &[])?;
        let (skip, count) =
            (words.whole("OFFSET")?.unwrap_or(0), words.whole("COUNT")?.unwrap_or(LIST_COUNT));
        if count > LIST_COUNT_MAX {
            return Err(format!("COUNT is larger than the limit list-count-max, {LIST_COUNT_MAX}"));
        }
        Ok((Command::List(Box::new(List { what, after: None, skip, count })), Shape::Json))
    }

    fn window(&self, from: usize) -> Result<RankWindow, Bad> {
        let words = self.keywords(from, &["OFFSET", "COUNT"], &[])?;
        let offset = words.whole("OFFSET")?.unwrap_or(0);
        Ok(RankWindow::Limit { offset, count: Some(words.whole("COUNT")?.unwrap_or(25)) })
    }

    /// Keywords from there on: `valued` ones take a value, `flags` none.
    fn keywords(
        &self,
        from: usize,
        valued: &[&'static str],
        flags: &[&'static str],
    ) -> Result<Keywords<'a>, Bad> {
        let mut found = Vec::new();
        let mut rest = self.args.from(from).list.iter();
        while let Some(word) = rest.next() {
            let find = |known: &[&'static str]| {
                known.iter().find(|known| word.eq_ignore_ascii_case(known.as_bytes())).copied()
            };
            if let Some(flag) = find(flags) {
                found.push((flag, b"".as_slice()));
            } else if let Some(known) = find(valued) {
                let value = rest.next().ok_or_else(|| format!("{known} needs a value"))?;
                found.push((known, *value));
            } else {
                let (word, known) = (capitals(word), [valued, flags].concat().join(", "));
                return Err(format!("HAUL.{} does not know {word}; it takes {known}", self.title()));
            }
        }
        Ok(Keywords { found })
    }

    fn document(&self, what: &str, text: &[u8]) -> Result<bytes::Bytes, Bad> {
        kind(text).map_err(|error| format!("{what} is not JSON: {error}"))?;
        self.args.text(text)
    }

    fn put(&self) -> Read {
        let words = self.keywords(
            3,
            &["JID", "PRIORITY", "DELAY", "RETRIES", "TAG", "DEPENDS", "THROTTLE", "TRACE"],
            &["NX"],
        )?;
        let jid = match words.last("JID") {
            Some(jid) => self.args.to_name(jid)?,
            None => crate::clock::new_jid(),
        };
        let names =
            |word: &str| words.all(word).map(|name| self.args.to_name(name)).collect::<Result<Vec<_>, _>>();
        let put = Put {
            jid,
            queue: self.name(0, "queue")?,
            worker: None,
            klass: Some(self.name(1, "klass")?),
            data: Some(self.document("data", self.required(2, "data")?)?),
            delay: words.number("DELAY")?.unwrap_or(0.0),
            priority: Some(words.number("PRIORITY")?.unwrap_or(0.0)),
            tags: Some(names("TAG")?),
            retries: Some(words.number("RETRIES")?.unwrap_or(5.0)),
            depends: names("DEPENDS")?,
            throttles: names("THROTTLE")?,
            when: if words.has("NX") { PutWhen::New } else { PutWhen::Always },
            trace: words.last("TRACE").map(trace_context).transpose()?,
        };
        Ok((Command::Put(Box::new(put)), Shape::Name))
    }

    fn put_many(&self) -> Read {
        self.required(0, "job")?;
        let puts: Result<Vec<(Put, bool)>, Bad> = self
            .args
            .list
            .iter()
            .enumerate()
            .map(|(at, text)| self.put_document(text).map_err(|error| format!("job {}: {error}", at + 1)))
            .collect();
        Ok((Command::PutMany(first_put_first(puts?)), Shape::Names))
    }

    fn put_document(&self, text: &[u8]) -> Result<(Put, bool), Bad> {
        let job: PutDocument<'_> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        Ok((job.to_put(self.args.limits)?, job.is_unnamed()))
    }

    fn move_job(&self) -> Read {
        let words = self.keywords(2, &["PRIORITY", "DELAY", "RETRIES", "TAG", "DEPENDS"], &[])?;
        let names =
            |word: &str| words.all(word).map(|name| self.args.to_name(name)).collect::<Result<Vec<_>, _>>();
        let tags = names("TAG")?;
        let put = Put {
            jid: self.name(0, "jid")?,
            queue: self.name(1, "queue")?,
            worker: None,
            klass: None,
            data: None,
            delay: words.number("DELAY")?.unwrap_or(0.0),
            priority: words.number("PRIORITY")?,
            tags: (!tags.is_empty()).then_some(tags),
            retries: words.number("RETRIES")?,
            depends: names("DEPENDS")?,
            throttles: Vec::new(),
            when: PutWhen::Exists,
            trace: None,
        };
        Ok((Command::Put(Box::new(put)), Shape::Name))
    }

    fn recur(&self) -> Read {
        let known = [
            "JID", "INTERVAL", "OFFSET", "CRON", "TIMEZONE", "PRIORITY", "RETRIES", "BACKLOG", "TAG",
            "THROTTLE",
        ];
        let words = self.keywords(3, &known, &[])?;
        let text = |word: &str| words.last(word).map(|bytes| String::from_utf8_lossy(bytes));
        let cron = text("CRON").map(|cron| Cron::parse(&cron, &text("TIMEZONE").unwrap_or_default()));
        let cron = cron.transpose()?;
        let interval = match (words.number("INTERVAL")?, &cron) {
            (Some(interval), None) if interval > 0.0 => interval,
            (Some(_), None) => return Err("INTERVAL must be greater than 0".to_owned()),
            (None, None) => {
                return Err(
                    "HAUL.RECUR needs INTERVAL and a number of seconds, or CRON and a pattern".to_owned()
                );
            }
            (None, Some(_)) if !words.has("OFFSET") => 0.0,
            (_, Some(_)) => return Err("CRON goes without INTERVAL and OFFSET".to_owned()),
        };
        if words.has("TIMEZONE") && cron.is_none() {
            return Err("TIMEZONE goes with CRON".to_owned());
        }
        let backlog = if cron.is_some() { 1.0 } else { 0.0 };
        let names =
            |word: &str| words.all(word).map(|name| self.args.to_name(name)).collect::<Result<Vec<_>, _>>();
        let put = RecurPut {
            jid: words
                .last("JID")
                .map_or_else(|| Ok(crate::clock::new_jid()), |jid| self.args.to_name(jid))?,
            queue: self.name(0, "queue")?,
            klass: self.name(1, "klass")?,
            data: self.document("data", self.required(2, "data")?)?,
            interval,
            offset: words.number("OFFSET")?.unwrap_or(0.0),
            priority: words.number("PRIORITY")?.unwrap_or(0.0),
            retries: words.number("RETRIES")?.unwrap_or(5.0),
            cron,
            backlog: words.number("BACKLOG")?.unwrap_or(backlog),
            tags: names("TAG")?,
            throttles: names("THROTTLE")?,
        };
        Ok((Command::Recur(Box::new(put)), Shape::Name))
    }

    /// `worker [keywords] QUEUES queue [queue ...]`.
    fn pop(&self) -> Result<(Command, Shape, Option<f64>), Bad> {
        let worker = self.name(0, "worker")?;
        let at = self.args.list.iter().skip(1).position(|word| word.eq_ignore_ascii_case(b"QUEUES"));
        let at = at.ok_or("HAUL.POP needs QUEUES and the names of queues")? + 1;
        let queues = self.some(at + 1, "queue behind QUEUES")?;
        let front = Args { list: self.args.list.get(..at).unwrap_or_default(), limits: self.args.limits };
        let front = Reader { name: self.name, args: front, env: self.env };
        let words = front.keywords(1, &["COUNT", "WAIT", "LOCK", "KLASS"], &["ROUNDROBIN"])?;
        let count = words.whole("COUNT")?.unwrap_or(1);
        if count > POP_COUNT_MAX {
            return Err(format!("COUNT is larger than the limit pop-count-max, {POP_COUNT_MAX}"));
        }
        // For no job there is nothing to wait for.
        let wait = words.number("WAIT")?.filter(|seconds| *seconds > 0.0 && count > 0);
        if wait.is_some_and(|seconds| seconds > WAIT_SECONDS_MAX) {
            return Err(format!("WAIT is larger than the limit wait-seconds-max, {WAIT_SECONDS_MAX}"));
        }
        let klasses: Result<Vec<Name>, Bad> =
            words.all("KLASS").map(|name| self.args.to_name(name)).collect();
        let (round_robin, klasses) = (words.has("ROUNDROBIN"), klasses?);
        let pop = Pop { worker, queues, round_robin, count, lock: words.lock()?, klasses };
        Ok((Command::Pop(pop), Shape::Jobs, wait))
    }

    fn heartbeat(&self) -> Read {
        let words = self.keywords(2, &["LOCK", "DATA", "ATTEMPT"], &[])?;
        let data = words.last("DATA").map(|text| self.document("DATA", text)).transpose()?;
        let (worker, jid) = (self.name(0, "worker")?, self.name(1, "jid")?);
        let beat = Heartbeat { jid, worker, attempt: words.attempt()?, lock: words.lock()?, data };
        Ok((Command::Heartbeat(beat), Shape::Beat(self.env.clock)))
    }

    fn complete(&self) -> Read {
        let words = self.keywords(2, &["RESULT", "DATA", "NEXT", "DELAY", "DEPENDS", "ATTEMPT"], &[])?;
        let data = words.last("DATA").map(|text| self.document("DATA", text)).transpose()?;
        let result = words.last("RESULT").map(|text| self.args.text(text)).transpose()?;
        let delay = words.number("DELAY")?;
        let depends: Vec<Name> =
            words.all("DEPENDS").map(|jid| self.args.to_name(jid)).collect::<Result<_, _>>()?;
        let next = words.last("NEXT").map(|queue| self.args.to_name(queue)).transpose()?;
        if next.is_none() && (delay.is_some() || !depends.is_empty()) {
            return Err("DELAY and DEPENDS go with NEXT".to_owned());
        }
        let complete = Complete {
            worker: Some(self.name(0, "worker")?),
            jid: self.name(1, "jid")?,
            queue: None,
            attempt: words.attempt()?,
            data,
            result,
            next: next.map(|queue| Next { queue, delay: delay.unwrap_or(0.0), depends }),
        };
        Ok((Command::Complete(Box::new(complete)), Shape::State))
    }

    fn fail(&self) -> Read {
        let words = self.keywords(4, &["DATA", "ATTEMPT"], &[])?;
        let data = words.last("DATA").map(|text| self.document("DATA", text)).transpose()?;
        let fail = Fail {
            worker: Some(self.name(0, "worker")?),
            jid: self.name(1, "jid")?,
            group: self.name(2, "group")?,
            message: self.args.text(self.required(3, "message")?)?,
            attempt: words.attempt()?,
            data,
        };
        Ok((Command::Fail(Box::new(fail)), Shape::Name))
    }

    fn retry(&self) -> Read {
        let words = self.keywords(2, &["DELAY", "GROUP", "MESSAGE", "ATTEMPT"], &[])?;
        if words.has("GROUP") != words.has("MESSAGE") {
            return Err("GROUP and MESSAGE go together".to_owned());
        }
        let retry = Retry {
            worker: self.name(0, "worker")?,
            jid: self.name(1, "jid")?,
            queue: None,
            attempt: words.attempt()?,
            delay: words.number("DELAY")?.unwrap_or(0.0),
            group: words.last("GROUP").map(|group| self.args.to_name(group)).transpose()?,
            message: words.last("MESSAGE").map(|message| self.args.text(message)).transpose()?,
        };
        Ok((Command::Retry(Box::new(retry)), Shape::Int))
    }

    fn report(&self) -> Read {
        let known = ["PERCENT", "MESSAGE", "OUTPUT", "OUTPUTBYTES", "CHECKPOINT", "ATTEMPT"];
        let words = self.keywords(2, &known, &[])?;
        let percent = words.number("PERCENT")?;
        if percent.is_some_and(|percent| !(0.0..=100.0).contains(&percent)) {
            return Err("PERCENT is from 0 to 100".to_owned());
        }
        let output = words.last("OUTPUT");
        if output.is_some_and(|output| output.len() > REPORT_OUTPUT_BYTES_MAX) {
            return Err(format!(
                "OUTPUT is longer than the limit report-output-bytes-max, {REPORT_OUTPUT_BYTES_MAX}: send its last part"
            ));
        }
        let report = Report {
            worker: self.name(0, "worker")?,
            jid: self.name(1, "jid")?,
            attempt: words.attempt()?,
            percent,
            message: words.last("MESSAGE").map(|text| self.args.to_name(text)).transpose()?,
            output: output.map(|text| self.args.text(text)).transpose()?,
            output_bytes: words.whole("OUTPUTBYTES")?.map(|bytes| bytes as u64),
            checkpoint: words.last("CHECKPOINT").map(|text| self.document("CHECKPOINT", text)).transpose()?,
        };
        Ok((Command::Report(Box::new(report)), Shape::One))
    }

    /// `REGISTER worker facts [NEW] [DRAINING]`, `DRAIN worker`, `UNDRAIN worker`.
    fn worker(&self) -> Read {
        let word = self.required(0, "word, REGISTER, DRAIN or UNDRAIN")?.to_ascii_uppercase();
        let worker = self.name(1, "worker")?;
        match word.as_slice() {
            b"REGISTER" => {
                let facts = self.required(2, "JSON object of facts")?;
                if kind(facts).ok() != Some(super::json::Kind::Object) {
                    return Err("the facts of a worker are a JSON object".to_owned());
                }
                if facts.len() > FACTS_BYTES_MAX {
                    return Err(format!(
                        "the facts are longer than the limit facts-bytes-max, {FACTS_BYTES_MAX}"
                    ));
                }
                let words = self.keywords(3, &[], &["NEW", "DRAINING"])?;
                let (is_new, draining) = (words.has("NEW"), words.has("DRAINING"));
                Ok((Command::Register { worker, facts: Name::new(facts), is_new, draining }, Shape::Flag))
            }
            b"DRAIN" | b"UNDRAIN" => {
                self.exactly(2)?;
                Ok((Command::Drain { worker, drain: word == b"DRAIN" }, Shape::Flag))
            }
            _ => Err("say REGISTER, DRAIN or UNDRAIN".to_owned()),
        }
    }

    fn log(&self) -> Read {
        self.exactly(3)?;
        let data = match self.args.get(2) {
            None => None,
            Some(text) => match kind(text) {
                Ok(super::json::Kind::Object | super::json::Kind::Array) => Some(self.args.text(text)?),
                _ => return Err("data must be a JSON object or array".to_owned()),
            },
        };
        Ok((Command::Log { jid: self.name(0, "jid")?, message: self.name(1, "message")?, data }, Shape::One))
    }

    fn depends(&self) -> Read {
        let jid = self.name(0, "jid")?;
        let word = self.required(1, "word, ON or OFF")?.to_ascii_uppercase();
        let on = match word.as_slice() {
            b"ON" => Some(true),
            b"OFF" => Some(false),
            _ => None,
        };
        let jids = self.some(2, "jid")?;
        let all = on == Some(false) && self.args.get(2).is_some_and(|word| word.eq_ignore_ascii_case(b"ALL"));
        Ok((Command::Depends { jid, on, jids, all }, Shape::One))
    }

    fn jobs(&self) -> Read {
        let state = self.required(0, "state")?.to_ascii_lowercase();
        let words = self.keywords(1, &["QUEUE", "OFFSET", "COUNT"], &[])?;
        let list = match state.as_slice() {
            b"complete" => JobList::Complete,
            b"waiting" => JobList::Waiting,
            b"running" => JobList::Running,
            b"stalled" => JobList::Stalled,
            b"scheduled" => JobList::Scheduled,
            b"depends" => JobList::Depends,
            b"recurring" => JobList::Recurring,
            b"throttled" => JobList::Throttled,
            _ => {
                return Err(format!(
                    "there is no list of {} jobs: complete, waiting, running, stalled, scheduled, depends, recurring, throttled",
                    shown(Some(&state))
                ));
            }
        };
        let queue = words.last("QUEUE").map(|queue| self.args.to_name(queue)).transpose()?;
        if queue.is_none() && list != JobList::Complete {
            return Err("say of which QUEUE".to_owned());
        }
        let range = RankWindow::Limit {
            offset: words.whole("OFFSET")?.unwrap_or(0),
            count: Some(words.whole("COUNT")?.unwrap_or(25)),
        };
        Ok((
            Command::Jobs(Jobs { list, queue: queue.unwrap_or_else(|| Name::new(b"")), range }),
            Shape::Names,
        ))
    }

    fn config(&self) -> Read {
        let word = self.required(0, "word, GET, SET or UNSET")?.to_ascii_uppercase();
        match word.as_slice() {
            b"GET" if self.args.len() == 1 => Ok((Command::ConfigAll, Shape::Json)),
            b"GET" => {
                self.exactly(2)?;
                let option = self.name(1, "option")?;
                Ok((Command::ConfigGet { option: option.clone() }, Shape::Option(option)))
            }
            b"SET" => {
                self.exactly(3)?;
                let command =
                    Command::ConfigSet { option: self.name(1, "option")?, value: self.name(2, "value")? };
                Ok((command, Shape::One))
            }
            b"UNSET" => {
                self.exactly(2)?;
                Ok((Command::ConfigUnset { option: self.name(1, "option")? }, Shape::One))
            }
            _ => Err("say GET, SET or UNSET".to_owned()),
        }
    }

    fn throttle(&self) -> Read {
        let word =
            self.required(0, "word, SET, GET, DELETE, LOCKS, PENDING or RELEASE")?.to_ascii_uppercase();
        let id = self.name(1, "throttle's id")?;
        Ok(match word.as_slice() {
            b"SET" => {
                let maximum = to_whole("the maximum", self.required(2, "maximum")?)? as f64;
                let ttl = self.keywords(3, &["TTL"], &[])?.number("TTL")?.unwrap_or(0.0);
                (Command::ThrottleSet { id, maximum, ttl }, Shape::One)
            }
            b"GET" => (Command::ThrottleGet { id }, Shape::Json),
            b"DELETE" => (Command::ThrottleDelete { id }, Shape::One),
            b"LOCKS" => (Command::ThrottleLocks { id }, Shape::Names),
            b"PENDING" => (Command::ThrottlePending { id }, Shape::Names),
            b"RELEASE" => (Command::ThrottleRelease { id, jids: self.some(2, "jid")? }, Shape::One),
            _ => return Err("say SET, GET, DELETE, LOCKS, PENDING or RELEASE".to_owned()),
        })
    }
}

/// A job to be put, as a JSON document: of `HAUL.MPUT` and of the HTTP interface.
#[derive(serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJob)]
pub(crate) struct PutDocument<'a> {
    /// Into which queue.
    #[schema(min_length = 1)]
    pub(crate) queue: String,
    /// What kind of job it is: workers choose their code by it.
    #[schema(min_length = 1)]
    pub(crate) klass: String,
    /// Any JSON; null if left out.
    #[serde(borrow)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(crate) data: Option<&'a serde_json::value::RawValue>,
    /// Its name; made if left out.
    #[schema(min_length = 1)]
    pub(crate) jid: Option<String>,
    /// A key of yours instead of a jid: while a job with this key is kept, no second one is made.
    #[schema(min_length = 1)]
    pub(crate) unique: Option<String>,
    /// Higher runs first [default: 0].
    pub(crate) priority: Option<f64>,
    /// Seconds until it may run [default: 0].
    pub(crate) delay: Option<f64>,
    /// How often it may be handed out again after a lock ran out or a retry [default: 5].
    pub(crate) retries: Option<f64>,
    #[serde(default)]
    #[schema(value_type = Vec<crate::http::Text>)]
    pub(crate) tags: Vec<String>,
    /// Jids of jobs that must be complete before it runs.
    #[serde(default)]
    #[schema(value_type = Vec<crate::http::Text>)]
    pub(crate) depends: Vec<String>,
    /// Throttles it runs under.
    #[serde(default)]
    #[schema(value_type = Vec<crate::http::Text>)]
    pub(crate) throttles: Vec<String>,
    /// Refuse if there is a job of that jid.
    #[serde(default)]
    pub(crate) nx: bool,
    /// A W3C trace context (`traceparent`) to carry to whoever runs it.
    pub(crate) trace: Option<String>,
}

/// Jobs that are put together, each with whether its jid was made for it. Of those that are ready at the same moment the one with the
/// highest jid is taken first: so the jids that were made are dealt out from the highest down.
pub(crate) fn first_put_first(puts: Vec<(Put, bool)>) -> Vec<Put> {
    let made = puts.iter().filter(|(_, made)| *made);
    let mut jids: Vec<Name> = made.map(|(put, _)| put.jid.clone()).collect();
    let deal = |(put, made): (Put, bool)| match made.then(|| jids.pop()).flatten() {
        Some(jid) => Put { jid, ..put },
        None => put,
    };
    puts.into_iter().map(deal).collect()
}

impl PutDocument<'_> {
    /// Whether its jid is made for it.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.jid.is_none() && self.unique.is_none()
    }

    /// As the engine takes it, within the limits.
    pub(crate) fn to_put(&self, limits: super::DataLimits) -> Result<Put, Bad> {
        let args = Args { list: &[], limits };
        let name = |text: &str| args.to_name(&plain::to_bytes(text));
        let names = |list: &[String]| list.iter().map(|text| name(text)).collect::<Result<Vec<_>, _>>();
        for (word, value) in [("priority", self.priority), ("delay", self.delay), ("retries", self.retries)] {
            if value.is_some_and(|value| !value.is_finite()) {
                return Err(format!("{word} must be a number"));
            }
        }
        let data = self.data.map_or("null", serde_json::value::RawValue::get).as_bytes();
        kind(data).map_err(|error| format!("data is not JSON: {error}"))?;
        let jid = match (&self.jid, &self.unique) {
            (Some(_), Some(_)) => return Err("jid and unique exclude each other".to_owned()),
            (Some(jid), None) => name(jid)?,
            (None, Some(key)) => unique_jid(&name(key)?),
            (None, None) => crate::clock::new_jid(),
        };
        Ok(Put {
            jid,
            queue: name(&self.queue)?,
            worker: None,
            klass: Some(name(&self.klass)?),
            data: Some(args.text(data)?),
            delay: self.delay.unwrap_or(0.0),
            priority: Some(self.priority.unwrap_or(0.0)),
            tags: Some(names(&self.tags)?),
            retries: Some(self.retries.unwrap_or(5.0)),
            depends: names(&self.depends)?,
            throttles: names(&self.throttles)?,
            when: if self.nx || self.unique.is_some() { PutWhen::New } else { PutWhen::Always },
            trace: self.trace.as_deref().map(|text| trace_context(text.as_bytes())).transpose()?,
        })
    }
}

/// The jid of the job with a unique key: the same key gives the same job.
pub(crate) fn unique_jid(key: &Name) -> Name {
    use sha1::Digest;
    let digest = sha1::Sha1::new().chain_update(b"unique ").chain_update(key.bytes()).finalize();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Name::from(hex)
}
