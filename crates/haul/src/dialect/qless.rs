//! The commands of qless and reqless: names, arguments, checks in the scripts' order. One table a script; where two
//! scripts say the same thing they share the reader.

use haul_engine::{
    Command, Complete, Fail, Heartbeat, JobList, Jobs, Lock, Name, Next, Pop, Put, PutWhen, RankWindow,
    Retry, Rules, parse_number,
};

use super::args::{Args, Bad, count, kind, number, shown, whole};
use super::json::Kind;
use super::refusal::Verb;
use super::scripts::Script;
use super::shape::{Shape, Writer};
use super::{Env, ErrorFormat, Plan, Render};

mod names;
mod patterns;
mod recur;
mod tags;
mod throttles;

use names::Op;
#[cfg(test)]
pub(crate) use names::all as all_names;

/// What a reader answers: the command, whose errors it has, and how its answer is written.
type Read = Result<(Command, Verb, Shape), Bad>;

/// Understands one script call: `<command> <now> [argument ...]`, after the key count.
pub(crate) fn read(script: Script, sha: &str, keys: usize, list: &[&[u8]], env: &Env) -> Result<Plan, Bad> {
    if keys > 0 {
        return Err("No Keys should be provided".to_owned());
    }
    let Some((name, rest)) = list.split_first() else { return Err("Must provide a command".to_owned()) };
    let Some(op) = names::find(script, name) else {
        return Err(format!("Unknown command {}", shown(Some(name))));
    };
    let Some((now, rest)) = rest.split_first() else {
        return Err("bad argument #1 to 'tonumber' (value expected)".to_owned());
    };
    let now = parse_number(now).ok_or("Arg \"now\" missing or not a number: nil")?;
    let reader = Reader { script, env, args: Args::new(rest, env) };
    let (command, verb, shape) = reader.read(op)?;
    // Most errors do not name the script.
    let sha = if env.error_format == ErrorFormat::Clean { "" } else { sha };
    let writer = Writer { script, verb, shape, error_format: env.error_format, sha: sha.to_owned() };
    Ok(Plan { call: env.call(now, rules(script), command), render: Render::Qless(writer), wait: None })
}

fn rules(script: Script) -> Rules {
    match script {
        Script::Qless | Script::QlessEarly => Rules::QLESS,
        Script::QlessThrottles => Rules::QLESS_THROTTLES,
        Script::Reqless => Rules::REQLESS,
    }
}

const NO_JID: &str = "Job(): no jid provided";
const NO_QUEUE: &str = "Queue(): no queue name provided";
const NO_RECUR: &str = "Recurring(): no jid provided";
const NO_ARGS: &str = "Wrong number of args calling Redis command from script";

/// One call being read.
struct Reader<'a> {
    script: Script,
    env: &'a Env,
    args: Args<'a>,
}

impl Reader<'_> {
    fn read(&self, op: Op) -> Read {
        let args = self.args;
        Ok(match op {
            Op::Get => (Command::Get { jid: args.name(0, NO_JID)? }, Verb::Other, Shape::Job),
            Op::MultiGet => (Command::GetMany { jids: args.names()? }, Verb::Other, Shape::Jobs),
            Op::Complete => self.complete(self.completion_options(4))?,
            Op::CompletePlain => self.complete(Vec::new())?,
            Op::CompleteAndRequeue => self.complete(self.requeue_options())?,
            Op::Fail => self.fail()?,
            Op::Failed => self.failed()?,
            Op::FailureGroups => {
                args.number_or(0, 0.0, "Failed(): Arg \"start\" is not a number: ")?;
                args.number_or(1, 25.0, "Failed(): Arg \"limit\" is not a number: ")?;
                (Command::FailureGroups, Verb::Other, Shape::Groups)
            }
            Op::Jobs => self.jobs()?,
            Op::JobsCompleted => self.jobs_completed()?,
            Op::Heartbeat => self.heartbeat()?,
            Op::Retry => self.retry()?,
            Op::Depends => self.depends()?,
            Op::AddDependency => self.dependency(true)?,
            Op::RemoveDependency => self.dependency(false)?,
            Op::Priority => self.priority()?,
            Op::Log => self.log()?,
            Op::Put => self.put()?,
            Op::Requeue => self.requeue()?,
            Op::Pop => self.pop()?,
            Op::Peek => self.peek()?,
            Op::Timeout => (Command::Timeout { jids: args.names()? }, Verb::Timeout, Shape::Stopped),
            Op::Cancel => {
                let jids = args.names()?;
                (Command::Cancel { jids: jids.clone() }, Verb::Cancel, Shape::Echo(jids))
            }
            Op::Unfail => self.unfail()?,
            other => self.read_rest(other)?,
        })
    }

    fn read_rest(&self, op: Op) -> Read {
        let args = self.args;
        Ok(match op {
            Op::Pause => {
                (Command::Pause { queues: self.some_names()?, paused: true }, Verb::Other, Shape::Nil)
            }
            Op::Unpause => {
                (Command::Pause { queues: self.some_names()?, paused: false }, Verb::Other, Shape::Nil)
            }
            Op::Queues => match args.get(0) {
                None => (Command::AllQueueCounts, Verb::Other, Shape::AllCounts { named: false }),
                Some(_) => {
                    (Command::QueueCounts { queue: args.name(0, NO_QUEUE)? }, Verb::Other, Shape::Counts)
                }
            },
            Op::AllQueues => (Command::AllQueueCounts, Verb::Other, Shape::AllCounts { named: true }),
            Op::QueueNames => (Command::QueueNames, Verb::Other, Shape::NameList),
            Op::Length => (Command::Length { queue: args.name(0, NO_QUEUE)? }, Verb::Other, Shape::Int),
            Op::Stats => {
                let queue = args.name(0, NO_QUEUE)?;
                let date = args.number(1, "Stats(): Arg \"date\" missing or not a number: ")?;
                (Command::Stats { queue, date }, Verb::Other, Shape::Stats)
            }
            Op::Workers => match args.get(0) {
                None => (Command::Workers, Verb::Other, Shape::Workers),
                Some(_) => {
                    (Command::WorkerJobs { worker: args.name(0, "")? }, Verb::Other, Shape::WorkerJobs)
                }
            },
            Op::AllWorkers => (Command::Workers, Verb::Other, Shape::Workers),
            Op::Deregister => (Command::Deregister { workers: self.some_names()? }, Verb::Other, Shape::Nil),
            Op::Forget => (Command::Forget { queues: self.some_names()? }, Verb::Other, Shape::Nil),
            Op::ConfigGet => match args.get(0) {
                None if self.script == Script::Reqless => {
                    return Err("config.get(): Argument 'key' missing".to_owned());
                }
                None => (Command::ConfigAll, Verb::Other, Shape::Options),
                Some(_) => {
                    let option = args.name(0, "")?;
                    (Command::ConfigGet { option: option.clone() }, Verb::Other, Shape::Option(option))
                }
            },
            Op::ConfigAll => (Command::ConfigAll, Verb::Other, Shape::Options),
            Op::ConfigSet => {
                let option = args.name(0, "config.set(): Arg \"option\" missing")?;
                let value = args.get(1).ok_or("config.set(): Arg \"value\" missing")?;
                (Command::ConfigSet { option, value: args.to_name(value)? }, Verb::Other, Shape::Nil)
            }
            Op::ConfigUnset => {
                let option = args.name(0, "config.unset(): Arg \"option\" missing")?;
                (Command::ConfigUnset { option }, Verb::Other, Shape::Nil)
            }
            Op::Recur
            | Op::RecurAtInterval
            | Op::Unrecur
            | Op::RecurGet
            | Op::RecurUpdate
            | Op::RecurTag
            | Op::RecurUntag => self.recurring(op)?,
            Op::Throttle(part) => self.throttle(part)?,
            Op::Pattern(part) => self.pattern(part)?,
            other => self.tagging(other)?,
        })
    }

    /// At least one name.
    fn some_names(&self) -> Result<Vec<Name>, Bad> {
        if self.args.len() == 0 {
            return Err(NO_ARGS.to_owned());
        }
        self.args.names()
    }

    /// Whether this is a script that calls a queue `queue`; later ones say `queue_name`.
    fn says_queue(&self) -> bool {
        matches!(self.script, Script::Qless | Script::QlessEarly)
    }

    /// Keys and values behind the fixed arguments; a key without a value is ignored.
    fn completion_options(&self, from: usize) -> Vec<(&[u8], &[u8])> {
        self.args.from(from).pairs().filter_map(|(key, value)| Some((key, value?))).collect()
    }

    /// `next [delay s] [depends json]`. A client of reqless puts the word `next` before the queue: an even number of
    /// arguments then, which the right form never has.
    fn requeue_options(&self) -> Vec<(&[u8], &[u8])> {
        let rest = self.args.from(4);
        if rest.get(0) == Some(b"next") && rest.len().is_multiple_of(2) {
            return self.completion_options(4);
        }
        let next = rest.get(0).map(|queue| (b"next".as_slice(), queue));
        next.into_iter().chain(self.completion_options(5)).collect()
    }

    fn complete(&self, options: Vec<(&[u8], &[u8])>) -> Read {
        let args = self.args;
        let jid = args.name(0, NO_JID)?;
        let worker = args.name(1, "Complete(): Arg \"worker\" missing")?;
        let missing = match self.says_queue() {
            true => "Complete(): Arg \"queue\" missing",
            false => "Complete(): Arg \"queue_name\" missing",
        };
        let queue = args.name(2, missing)?;
        let data = args.document(3, "Complete(): Arg \"data\" missing or not JSON: ")?;
        let option = |key: &str| {
            options.iter().rev().find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| *value)
        };
        let delay = match option("delay") {
            None => 0.0,
            Some(text) => parse_number(text).ok_or("assertion failed!")?,
        };
        let depends = match option("depends") {
            None => Vec::new(),
            Some(text) => {
                let wrong = format!("Complete(): Arg \"depends\" not JSON: {}", shown(Some(text)));
                args.list_of_names(text, &wrong)?
            }
        };
        let next = option("next").map(|queue| args.to_name(queue)).transpose()?;
        for word in ["delay", "depends"] {
            if next.is_none() && option(word).is_some() {
                return Err(format!("Complete(): \"{word}\" cannot be used without a \"next\"."));
            }
        }
        let next = next.map(|queue| Next { queue, delay, depends });
        let complete = Complete {
            jid,
            worker: Some(worker),
            queue: Some(queue),
            attempt: None,
            data: Some(data),
            result: None,
            next,
        };
        Ok((Command::Complete(Box::new(complete)), Verb::Complete, Shape::State))
    }

    fn fail(&self) -> Read {
        let args = self.args;
        let jid = args.name(0, NO_JID)?;
        let worker = args.name(1, "Fail(): Arg \"worker\" missing")?;
        let group = args.name(2, "Fail(): Arg \"group\" missing")?;
        let message = args.text(args.get(3).ok_or("Fail(): Arg \"message\" missing")?)?;
        let data = args.update(4, self.env.lua_data)?;
        let fail = Fail { jid, worker: Some(worker), attempt: None, group, message, data };
        Ok((Command::Fail(Box::new(fail)), Verb::Fail, Shape::Name))
    }

    fn failed(&self) -> Read {
        let args = self.args;
        let start = args.number_or(1, 0.0, "Failed(): Arg \"start\" is not a number: ")?;
        let limit = args.number_or(2, 25.0, "Failed(): Arg \"limit\" is not a number: ")?;
        let Some(group) = args.get(0) else {
            return Ok((Command::FailureGroups, Verb::Other, Shape::Groups));
        };
        let range = ranks(start, limit)?;
        Ok((Command::Failed { group: args.to_name(group)?, range }, Verb::Other, Shape::Page))
    }

    fn jobs(&self) -> Read {
        let args = self.args;
        let state = args.get(0).ok_or("Jobs(): Arg \"state\" missing")?;
        if state == b"complete" {
            return self.job_window(1, JobList::Complete, Name::new(b""));
        }
        let queue = args.name(1, "Jobs(): Arg \"queue\" missing")?;
        let list = match state {
            b"running" => Some(JobList::Running),
            b"stalled" => Some(JobList::Stalled),
            b"scheduled" => Some(JobList::Scheduled),
            b"depends" => Some(JobList::Depends),
            b"recurring" => Some(JobList::Recurring),
            b"throttled" if matches!(self.script, Script::Reqless | Script::QlessThrottles) => {
                Some(JobList::Throttled)
            }
            _ => None,
        };
        match list {
            Some(list) => self.job_window(2, list, queue),
            None => {
                self.job_window(2, JobList::Complete, queue)?;
                Err(format!("Jobs(): Unknown type \"{}\"", shown(Some(state))))
            }
        }
    }

    fn jobs_completed(&self) -> Read {
        self.job_window(0, JobList::Complete, Name::new(b""))
    }

    /// Offset and count at `at`.
    fn job_window(&self, at: usize, list: JobList, queue: Name) -> Read {
        let args = self.args;
        let word = if self.script == Script::Reqless { "limit" } else { "count" };
        let offset = args.number_or(at, 0.0, "Jobs(): Arg \"offset\" not a number: ")?;
        let wanted = args.number_or(at + 1, 25.0, &format!("Jobs(): Arg \"{word}\" not a number: "))?;
        let range = match list {
            JobList::Running | JobList::Stalled | JobList::Recurring => limit(offset, wanted)?,
            _ => ranks(offset, wanted)?,
        };
        Ok((Command::Jobs(Jobs { list, queue, range }), Verb::Other, Shape::JobList))
    }

    fn heartbeat(&self) -> Read {
        let args = self.args;
        let jid = args.name(0, NO_JID)?;
        let worker = args.name(1, "Heatbeat(): Arg \"worker\" missing")?;
        let data = args.update(2, self.env.lua_data)?;
        let beat = Heartbeat { jid, worker, attempt: None, lock: Lock::Option, data };
        Ok((Command::Heartbeat(beat), Verb::Heartbeat, Shape::Int))
    }

    fn retry(&self) -> Read {
        let args = self.args;
        let jid = args.name(0, NO_JID)?;
        let missing = match self.says_queue() {
            true => "Retry(): Arg \"queue\" missing",
            false => "Retry(): Arg \"queue_name\" missing",
        };
        let queue = args.name(1, missing)?;
        let worker = args.name(2, "Retry(): Arg \"worker\" missing")?;
        let delay = args.number_or(3, 0.0, "Retry(): Arg \"delay\" not a number: ")?;
        let group = args.get(4).map(|group| args.to_name(group)).transpose()?;
        let message = args.get(5).map(|message| args.text(message)).transpose()?;
        let retry = Retry { jid, queue: Some(queue), worker, attempt: None, delay, group, message };
        Ok((Command::Retry(Box::new(retry)), Verb::Retry, Shape::Int))
    }

    fn depends(&self) -> Read {
        let args = self.args;
        let jid = args.name(0, NO_JID)?;
        let on = match args.get(1).ok_or("Depends(): Arg \"command\" missing")? {
            b"on" => Some(true),
            b"off" => Some(false),
            _ => None,
        };
        let jids = args.from(2).names()?;
        let all = on == Some(false) && args.get(2) == Some(b"all");
        Ok((Command::Depends { jid, on, jids, all }, Verb::Depends, Shape::One))
    }

    fn dependency(&self, on: bool) -> Read {
        let args = self.args;
        let jid = args.name(0, NO_JID)?;
        let all = !on && args.get(1) == Some(b"all");
        Ok((
            Command::Depends { jid, on: Some(on), jids: args.from(1).names()?, all },
            Verb::Depends,
            Shape::One,
        ))
    }

    fn priority(&self) -> Read {
        let jid = self.args.name(0, NO_JID)?;
        let priority = self.args.number(1, "Priority(): Arg \"priority\" missing or not a number: ")?;
        Ok((Command::Priority { jid, priority }, Verb::Priority, Shape::Int))
    }

    fn log(&self) -> Read {
        let args = self.args;
        let jid = args.name(0, "Log(): Argument 'jid' missing")?;
        let message = args.name(1, "Log(): Argument 'message' missing")?;
        let data = match args.get(2) {
            None => None,
            Some(text) => match kind(text)? {
                Kind::Object | Kind::Array => Some(args.text(text)?),
                _ => return Err(format!("Log(): Argument 'data' not cjson: {}", shown(Some(text)))),
            },
        };
        Ok((Command::Log { jid, message, data }, Verb::Log, Shape::Nil))
    }

    fn put(&self) -> Read {
        let put = self.put_fields(PutWhen::Always)?;
        Ok((Command::Put(Box::new(put)), Verb::Other, Shape::Name))
    }

    fn requeue(&self) -> Read {
        let args = self.args;
        let jid = args.name(2, NO_JID)?;
        args.name(1, NO_QUEUE)?;
        match self.put_fields(PutWhen::Exists) {
            Ok(put) => Ok((Command::Put(Box::new(put)), Verb::Requeue, Shape::Name)),
            // That there is no such job is said before any other complaint.
            Err(complaint) => {
                Ok((Command::Exists { jid: jid.clone() }, Verb::Requeue, Shape::NoJobOr(jid, complaint)))
            }
        }
    }

    /// `worker queue jid klass data delay [key value]...`; the earliest script has no worker.
    fn put_fields(&self, when: PutWhen) -> Result<Put, Bad> {
        let early = self.script == Script::QlessEarly;
        let (worker, args) = if early { (None, self.args) } else { (self.args.get(0), self.args.from(1)) };
        let queue = args.name(0, NO_QUEUE)?;
        let jid = args.name(1, "Put(): Arg \"jid\" missing")?;
        let klass = args.name(2, "Put(): Arg \"klass\" missing")?;
        let data = args.document(3, "Put(): Arg \"data\" missing or not JSON: ")?;
        let delay = args.number(4, "Put(): Arg \"delay\" not a number: ")?;
        let options = args.from(5);
        if !options.len().is_multiple_of(2) {
            return Err("Odd number of additional args: table".to_owned());
        }
        let given = |key: &str| options.option(key);
        let names = |key: &str, wrong: &str| match given(key) {
            None => Ok(None),
            Some(text) => {
                // The complaint about tags has no room for the text, except for `false`.
                let quiet = key == "tags" && kind(text)? != Kind::False;
                let shown = if quiet { String::new() } else { shown(Some(text)) };
                options.list_of_names(text, &format!("{wrong}{shown}")).map(Some)
            }
        };
        let retries = given("retries")
            .map(|text| number(Some(text), "Put(): Arg \"retries\" not a number: "))
            .transpose()?;
        let tags = names("tags", "Put(): Arg \"tags\" not JSON")?;
        let priority = given("priority")
            .map(|text| number(Some(text), "Put(): Arg \"priority\" not a number"))
            .transpose()?;
        let depends = names("depends", "Put(): Arg \"depends\" not JSON: ")?.unwrap_or_default();
        let throttles = match self.script {
            Script::Qless | Script::QlessEarly => Vec::new(),
            _ => names("throttles", "Put(): Arg \"throttles\" not JSON array: ")?.unwrap_or_default(),
        };
        let worker = worker.map(|worker| args.to_name(worker)).transpose()?;
        let (klass, data) = (Some(klass), Some(data));
        Ok(Put {
            jid,
            queue,
            worker,
            klass,
            data,
            delay,
            priority,
            tags,
            retries,
            depends,
            throttles,
            when,
            trace: None,
        })
    }

    fn pop(&self) -> Read {
        let args = self.args;
        let queue = args.name(0, NO_QUEUE)?;
        let worker = args.name(1, "Pop(): Arg \"worker\" missing")?;
        let wrong = match self.script {
            Script::Reqless => "Pop(): Arg \"limit\" missing or not a number: ",
            _ => "Pop(): Arg \"count\" missing or not a number: ",
        };
        let wanted = args.number(2, wrong)?;
        let pop = Pop {
            worker,
            queues: vec![queue],
            round_robin: false,
            count: count(wanted)?,
            lock: Lock::Option,
            klasses: Vec::new(),
        };
        Ok((Command::Pop(pop), Verb::Other, Shape::Jobs))
    }

    fn peek(&self) -> Read {
        let args = self.args;
        let queue = args.name(0, NO_QUEUE)?;
        let (offset, wanted) = match self.script {
            Script::Qless | Script::QlessEarly => {
                (0.0, args.number(1, "Peek(): Arg \"count\" missing or not a number: ")?)
            }
            script => {
                let word = if script == Script::Reqless { "limit" } else { "count" };
                let offset = args.number(1, "Peek(): Arg \"offset\" missing or not a number: ")?;
                (offset, args.number(2, &format!("Peek(): Arg \"{word}\" missing or not a number: "))?)
            }
        };
        let command = Command::Peek { queue, offset: count(offset)?, count: count(wanted)? };
        Ok((command, Verb::Other, Shape::Jobs))
    }

    fn unfail(&self) -> Read {
        let args = self.args;
        let reqless = self.script == Script::Reqless;
        let queue = args.name(0, if reqless { "queue.unfail(): Arg \"queue\" missing" } else { NO_QUEUE })?;
        let group = args.name(1, "Unfail(): Arg \"group\" missing")?;
        let wanted = args.number_or(2, 25.0, "Unfail(): Arg \"count\" not a number: ")?;
        if reqless && wanted <= 0.0 {
            return Err("Unfail(): Arg \"count\" must be greater than zero".to_owned());
        }
        Ok((Command::Unfail { queue, group, count: count(wanted)? }, Verb::Other, Shape::Int))
    }
}

/// Positions `start..=start+count-1`, as ranks: a count of 0 at 0 means everything.
fn ranks(start: f64, count: f64) -> Result<RankWindow, Bad> {
    let (start, count) = (whole(start)?, whole(count)?);
    Ok(RankWindow::Ranks { start, stop: start.saturating_add(count).saturating_sub(1) })
}

/// A limit: negative counts mean everything, a negative offset nothing.
fn limit(offset: f64, count: f64) -> Result<RankWindow, Bad> {
    let (offset, count) = (whole(offset)?, whole(count)?);
    match usize::try_from(offset) {
        Ok(offset) => Ok(RankWindow::Limit { offset, count: usize::try_from(count).ok() }),
        Err(_) => Ok(RankWindow::Limit { offset: 0, count: Some(0) }),
    }
}

/// What patterns read as when none were ever set: identifiers, priorities.
pub(crate) fn default_patterns() -> (&'static str, &'static str) {
    patterns::defaults()
}
