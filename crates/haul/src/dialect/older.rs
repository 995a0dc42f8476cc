//! The older one-script-per-command API: its own names, arguments, directions and shapes over the same jobs.
//!
//! A smaller priority runs sooner here; refusals are nil; locks end when the caller says.

use bytes::Bytes;
use haul_client::resp::Frame;
use haul_engine::{
    Command, Complete, Fail, Heartbeat, JobView, Lock, Name, Next, Pop, Put, PutWhen, Refusal, Reply, Rules,
    Series, State, StatsView, What,
};

use super::args::{Args, Bad, count, kind, shown};
use super::json::{Object, push_list, push_lua_string};
use super::number::{push_g14, push_int};
use super::refusal::{self, envelope};
use super::{Env, ErrorFormat, Plan, Render, Texts, data_of};

/// A command of this API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldCommand {
    SetConfig,
    GetConfig,
    Heartbeat,
    Put,
    Get,
    Pop,
    Peek,
    Complete,
    Fail,
    Stats,
}

const NAMES: [(&str, OldCommand); 10] = [
    ("SetConfig", OldCommand::SetConfig),
    ("GetConfig", OldCommand::GetConfig),
    ("Heartbeat", OldCommand::Heartbeat),
    ("Put", OldCommand::Put),
    ("Get", OldCommand::Get),
    ("Pop", OldCommand::Pop),
    ("Peek", OldCommand::Peek),
    ("Complete", OldCommand::Complete),
    ("Fail", OldCommand::Fail),
    ("Stats", OldCommand::Stats),
];

impl OldCommand {
    /// By its name, in any case.
    pub(crate) fn find(name: &[u8]) -> Option<Self> {
        NAMES
            .iter()
            .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
            .map(|(_, command)| *command)
    }

    fn word(self) -> &'static str {
        NAMES.iter().find(|(_, command)| *command == self).map_or("", |(word, _)| *word)
    }

    /// By the argument errors a script's text carries: `Put(): Arg ...`.
    pub(crate) fn recognise(text: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(word, _)| {
                text.contains(&format!("{word}(): Arg"))
                    || text.contains(&format!("{word}(): Expected"))
                    || text.contains(&format!("{word}(): No Keys"))
                    || text.contains(&format!("{word}(): Got"))
            })
            .map(|(_, command)| *command)
    }

    fn keys(self) -> usize {
        usize::from(matches!(self, OldCommand::Put | OldCommand::Pop | OldCommand::Peek))
    }
}

/// How an answer is written.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    form: Form,
    error_format: ErrorFormat,
}

#[derive(Clone, Debug)]
enum Form {
    Nil,
    Name,
    State,
    Int,
    Job,
    Jobs,
    Stats,
    /// In days where the option is counted so.
    Option(bool),
    Options,
}

/// Understands one call: `<keys...> <arguments...>`.
pub(crate) fn read(command: OldCommand, keys: usize, list: &[&[u8]], env: &Env) -> Result<Plan, Bad> {
    check_keys(command, keys, list.len())?;
    let reader = Reader { env, args: Args::new(list, env) };
    let (now, command, form) = match command {
        OldCommand::SetConfig => reader.set_config()?,
        OldCommand::GetConfig => reader.get_config()?,
        OldCommand::Heartbeat => reader.heartbeat()?,
        OldCommand::Put => reader.put()?,
        OldCommand::Get => {
            let jid = reader.args.name(0, "Get(): Arg \"id\" missing")?;
            (env.clock, Command::Get { jid }, Form::Job)
        }
        OldCommand::Pop => reader.pop()?,
        OldCommand::Peek => reader.peek()?,
        OldCommand::Complete => reader.complete()?,
        OldCommand::Fail => reader.fail()?,
        OldCommand::Stats => reader.stats()?,
    };
    let shape = Shape { form, error_format: env.error_format };
    Ok(Plan { call: env.call(now, Rules::OLDER, command), render: Render::Older(shape), wait: None })
}

fn check_keys(command: OldCommand, keys: usize, arguments: usize) -> Result<(), Bad> {
    let word = command.word();
    match (command.keys(), keys.min(arguments)) {
        (0, 0) | (1, 1) => Ok(()),
        (0, _) => Err(format!("{word}(): No Keys should be provided")),
        (_, 0) => Err(format!("{word}(): Expected 1 KEYS argument")),
        (_, got) => Err(format!("{word}(): Got {got}, expected 1 KEYS argument")),
    }
}

struct Reader<'a> {
    env: &'a Env,
    args: Args<'a>,
}

type Read = Result<(f64, Command, Form), Bad>;

impl Reader<'_> {
    fn set_config(&self) -> Read {
        let option = self.args.name(0, "SetConfig(): Arg \"option\" missing")?;
        let command = match self.args.get(1) {
            None => Command::ConfigUnset { option },
            Some(value) if option.bytes() == b"jobs-history" => {
                let days = self.args.number(1, "SetConfig(): Arg \"value\" not a number: ")?;
                let _ = value;
                let mut seconds = Vec::new();
                push_g14(&mut seconds, days * 86_400.0);
                Command::ConfigSet { option, value: Name::new(&seconds) }
            }
            Some(value) => Command::ConfigSet { option, value: self.args.to_name(value)? },
        };
        Ok((self.env.clock, command, Form::Nil))
    }

    fn get_config(&self) -> Read {
        Ok(match self.args.get(0) {
            None => (self.env.clock, Command::ConfigAll, Form::Options),
            Some(option) => {
                let in_days = option == b"jobs-history";
                (
                    self.env.clock,
                    Command::ConfigGet { option: self.args.to_name(option)? },
                    Form::Option(in_days),
                )
            }
        })
    }

    fn heartbeat(&self) -> Read {
        let args = self.args;
        let jid = args.name(0, "Heartbeat(): Arg \"id\" missing")?;
        let worker = args.name(1, "Heartbeat(): Arg \"worker\" missing")?;
        let until = args.number(2, "Heartbeat(): Arg \"expiration\" not a number: ")?;
        let data = args.update(3, false)?;
        let beat = Heartbeat { jid, worker, attempt: None, lock: Lock::Until(until), data };
        Ok((self.env.clock, Command::Heartbeat(beat), Form::Int))
    }

    fn put(&self) -> Read {
        let args = self.args;
        let queue = args.name(0, "Put(): Expected 1 KEYS argument")?;
        let jid = args.name(1, "Put(): Arg \"id\" missing")?;
        let data = args.document(2, "Put(): Arg \"data\" missing or not JSON: ")?;
        let now = args.number(3, "Put(): Arg \"now\" missing or not a number: ")?;
        let priority = args.number_or(4, 0.0, "Put(): Arg \"priority\" not a number: ")?;
        let tags = match args.get(5) {
            None => Vec::new(),
            Some(text) => {
                args.list_of_names(text, &format!("Put(): Arg \"tags\" not JSON: {}", shown(Some(text))))?
            }
        };
        let delay = args.number_or(6, 0.0, "Put(): Arg \"delay\" not a number: ")?;
        let put = Put {
            jid,
            queue,
            worker: None,
            klass: Some(Name::new(b"")),
            data: Some(data),
            delay,
            priority: Some(if priority == 0.0 { 0.0 } else { -priority }),
            tags: Some(tags),
            retries: None,
            depends: Vec::new(),
            throttles: Vec::new(),
            when: PutWhen::Always,
            trace: None,
        };
        Ok((now, Command::Put(Box::new(put)), Form::Name))
    }

    fn pop(&self) -> Read {
        let args = self.args;
        let queue = args.name(0, "Pop(): Expected 1 KEYS argument")?;
        let worker = args.name(1, "Pop(): Arg \"worker\" missing")?;
        let wanted = args.number(2, "Pop(): Arg \"count\" missing or not a number: ")?;
        let now = args.number(3, "Pop(): Arg \"now\" missing or not a number: ")?;
        let until = args.number(4, "Pop(): Arg \"expires\" missing or not a number: ")?;
        let pop = Pop {
            worker,
            queues: vec![queue],
            round_robin: false,
            count: count(wanted)?,
            lock: Lock::Until(until),
            klasses: Vec::new(),
        };
        Ok((now, Command::Pop(pop), Form::Jobs))
    }

    fn peek(&self) -> Read {
        let args = self.args;
        let queue = args.name(0, "Peek(): Expected 1 KEYS argument")?;
        let wanted = args.number(1, "Peek(): Arg \"count\" missing or not a number: ")?;
        let now = args.number(2, "Peek(): Arg \"now\" missing or not a number: ")?;
        Ok((now, Command::Peek { queue, offset: 0, count: count(wanted)? }, Form::Jobs))
    }

    /// `id [data [queue [delay]]]`, or the longer `id worker queue now [data [next [delay]]]`.
    fn complete(&self) -> Read {
        let args = self.args;
        let jid = args.name(0, "Complete(): Arg \"id\" missing")?;
        let longer =
            args.len() >= 5 || (args.len() == 4 && args.get(1).is_some_and(|text| kind(text).is_err()));
        let (worker, queue, now, rest) = if longer {
            let worker = args.name(1, "Complete(): Arg \"worker\" missing")?;
            let queue = args.name(2, "Complete(): Arg \"queue\" missing")?;
            let now = args.number(3, "Complete(): Arg \"now\" not a number or missing: ")?;
            (Some(worker), Some(queue), now, args.from(4))
        } else {
            (None, None, self.env.clock, args.from(1))
        };
        let data = rest.update(0, false)?;
        let delay = rest.number_or(2, 0.0, "Complete(): Arg \"delay\" not a number: ")?;
        let next = rest.get(1).map(|queue| rest.to_name(queue)).transpose()?;
        let next = next.map(|queue| Next { queue, delay, depends: Vec::new() });
        let complete = Complete { jid, worker, queue, attempt: None, data, result: None, next };
        Ok((now, Command::Complete(Box::new(complete)), Form::State))
    }

    /// `id type message now`, or the longer `id worker type message now [data]`.
    fn fail(&self) -> Read {
        let args = self.args;
        let jid = args.name(0, "Fail(): Arg \"id\" missing")?;
        let longer = args.len() >= 5;
        let worker = if longer { Some(args.name(1, "Fail(): Arg \"worker\" missing")?) } else { None };
        let rest = args.from(if longer { 2 } else { 1 });
        let group = rest.name(0, "Fail(): Arg \"type\" missing")?;
        let message = rest.text(rest.get(1).ok_or("Fail(): Arg \"message\" missing")?)?;
        let now = rest.number(2, "Fail(): Arg \"now\" missing or malformed: ")?;
        let data = rest.update(3, false)?;
        Ok((
            now,
            Command::Fail(Box::new(Fail { jid, worker, attempt: None, group, message, data })),
            Form::Name,
        ))
    }

    fn stats(&self) -> Read {
        let queue = self.args.name(0, "Stats(): Arg \"queue\" missing")?;
        let text = self.args.get(1).ok_or("Stats(): Arg \"date\" missing")?;
        let date = match haul_engine::parse_number(text) {
            Some(seconds) => seconds,
            None => day_start(text)
                .ok_or_else(|| format!("Stats(): Arg \"date\" not a date: {}", shown(Some(text))))?,
        };
        Ok((self.env.clock, Command::Stats { queue, date }, Form::Stats))
    }
}

/// `YYYY-MM-DD` as epoch seconds, UTC.
fn day_start(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 || month.len() != 2 || day.len() != 2 {
        return None;
    }
    let (year, month, day): (i64, i64, i64) = (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days from civil: the year starts in March so that the leap day is the last.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days as f64 * 86_400.0)
}

impl Shape {
    pub(crate) fn frame(self, outcome: Result<Reply, Refusal>, texts: &Texts) -> Frame {
        let reply = match outcome {
            Ok(reply) => reply,
            Err(
                Refusal::NoJob { .. }
                | Refusal::NotRunning { .. }
                | Refusal::NotHeld { .. }
                | Refusal::WrongQueue { .. },
            ) => return Frame::Nil,
            Err(refusal) => {
                return Frame::Error(envelope(self.error_format, "", &refusal::plain(&refusal)));
            }
        };
        let bulk = |text: Vec<u8>| Frame::Bulk(Bytes::from(text));
        match (self.form, reply) {
            (Form::Name, Reply::Name(jid)) => bulk(jid.bytes().to_vec()),
            (Form::State, Reply::State(state)) => bulk(old_state(state).as_bytes().to_vec()),
            (Form::Int, Reply::Number(value)) => Frame::Int(value.trunc() as i64),
            (Form::Job, Reply::Job(Some(job))) => bulk(job_text(&job, texts, true)),
            (Form::Jobs, Reply::Jobs(jobs)) => {
                Frame::Array(jobs.iter().map(|job| bulk(job_text(job, texts, false))).collect())
            }
            (Form::Stats, Reply::Stats(stats)) => bulk(stats_text(&stats)),
            (Form::Option(in_days), Reply::Option(Some(value))) => bulk(option_text(&value, in_days)),
            (Form::Options, Reply::Options(options)) => Frame::Array(
                options
                    .iter()
                    .flat_map(|(option, value)| {
                        let in_days = option.bytes() == b"jobs-history";
                        [bulk(option.bytes().to_vec()), bulk(option_text(value, in_days))]
                    })
                    .collect(),
            ),
            _ => Frame::Nil,
        }
    }
}

fn option_text(value: &Name, in_days: bool) -> Vec<u8> {
    match haul_engine::parse_number(value.bytes()) {
        Some(seconds) if in_days => {
            let mut text = Vec::new();
            push_g14(&mut text, seconds / 86_400.0);
            text
        }
        _ => value.bytes().to_vec(),
    }
}

fn old_state(state: State) -> &'static str {
    match state {
        State::Waiting | State::Scheduled | State::Depends | State::Stalled | State::Throttled => "waiting",
        State::Running => "pending",
        State::Complete => "complete",
        State::Failed => "failed",
    }
}

fn job_text(job: &JobView, texts: &Texts, with_history: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut object = Object::lua(&mut out);
    push_list(object.key("tags"), &job.tags, "[]", |out, tag| push_lua_string(out, tag.bytes()));
    object.string("id", job.jid.bytes());
    object.raw("data", &data_of(job, texts));
    object.string("worker", job.worker.bytes());
    object.number("expires", job.expires);
    if with_history {
        push_history(object.key("history"), job);
    }
    object.number("priority", if job.priority == 0.0 { 0.0 } else { -job.priority });
    match job.state {
        State::Complete => object.raw("queue", b"null"),
        _ => object.string("queue", job.queue.bytes()),
    }
    object.string("state", old_state(job.state).as_bytes());
    object.end();
    out
}

/// One stage: queue, put, popped, done, worker.
#[derive(Default)]
struct Stage {
    queue: Option<Name>,
    put: Option<f64>,
    popped: Option<f64>,
    done: Option<f64>,
    worker: Option<Name>,
}

fn push_history(out: &mut Vec<u8>, job: &JobView) {
    let mut stages: Vec<Stage> = Vec::new();
    for entry in &job.history {
        if let What::Put(queue) = &entry.what {
            stages.push(Stage { queue: Some(queue.clone()), put: Some(entry.when), ..Stage::default() });
        }
        let Some(stage) = stages.last_mut() else { continue };
        match &entry.what {
            What::Popped(worker) => {
                stage.popped = Some(entry.when);
                stage.worker = Some(worker.clone());
            }
            What::Done => stage.done = Some(entry.when),
            _ => {}
        }
    }
    push_list(out, stages, "[]", |out, stage| {
        let name = |out: &mut Vec<u8>, name: Option<&Name>| match name {
            Some(name) => push_lua_string(out, name.bytes()),
            None => out.extend_from_slice(b"null"),
        };
        out.push(b'[');
        name(out, stage.queue.as_ref());
        for moment in [stage.put, stage.popped, stage.done] {
            out.push(b',');
            match moment {
                Some(moment) => push_g14(out, moment),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.push(b',');
        name(out, stage.worker.as_ref());
        out.push(b']');
    });
}

/// Waits and runs, and the runs again at the top.
fn stats_text(stats: &StatsView) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    let mut object = Object::lua(&mut out);
    push_members(&mut object, &stats.run);
    for (key, series) in [("wait", &stats.wait), ("run", &stats.run)] {
        let mut inner = Object::lua(object.key(key));
        push_members(&mut inner, series);
        inner.end();
    }
    object.end();
    out
}

fn push_members(object: &mut Object<'_>, series: &Series) {
    object.number("total", series.total);
    object.number("mean", series.mean);
    object.number("variance", series.variance());
    push_list(object.key("histogram"), series.fine(), "[]", |out, count| push_int(out, count as i64));
}
