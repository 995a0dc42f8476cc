//! Recurring jobs.

use bytes::Bytes;
use haul_engine::{Command, Name, RecurChange, RecurPut};

use super::super::args::{Args, Bad, kind, number, shown};
use super::super::json::Kind;
use super::super::refusal::Verb;
use super::super::scripts::Script;
use super::super::shape::Shape;
use super::names::Op;
use super::{NO_QUEUE, NO_RECUR, Read, Reader};

impl Reader<'_> {
    pub(super) fn recurring(&self, op: Op) -> Read {
        let args = self.args;
        Ok(match op {
            Op::Recur => self.recur()?,
            Op::RecurAtInterval => self.recur_at_interval()?,
            Op::Unrecur => (Command::Unrecur { jid: args.name(0, NO_RECUR)? }, Verb::Other, Shape::One),
            Op::RecurGet => (Command::RecurGet { jid: args.name(0, NO_RECUR)? }, Verb::Other, Shape::Recur),
            Op::RecurTag => {
                let jid = args.name(0, NO_RECUR)?;
                (Command::RecurTag { jid, tags: args.from(1).names()? }, Verb::Tag, Shape::NameList)
            }
            Op::RecurUntag => {
                let jid = args.name(0, NO_RECUR)?;
                (
                    Command::RecurUntag { jid, tags: args.from(1).names()? },
                    Verb::Untag,
                    Shape::NameListOrObject,
                )
            }
            _ => self.recur_update()?,
        })
    }

    fn recur(&self) -> Read {
        let args = self.args;
        let queue = args.name(0, NO_QUEUE)?;
        let jid = args.name(1, "RecurringJob On(): Arg \"jid\" missing")?;
        let klass = args.name(2, "RecurringJob On(): Arg \"klass\" missing")?;
        let spec = args.get(4).ok_or("RecurringJob On(): Arg \"spec\" missing")?;
        let data = args.document(3, "RecurringJob On(): Arg \"data\" not JSON: ")?;
        if spec != b"interval" {
            return Err(format!("Recur(): schedule type \"{}\" unknown", shown(Some(spec))));
        }
        let options = args.from(7);
        self.recur_put(RecurStart { queue, jid, klass, data, schedule: args.from(5), options, odd: "" })
    }

    fn recur_at_interval(&self) -> Read {
        let args = self.args;
        let queue = args.name(0, NO_QUEUE)?;
        let jid = args.name(1, "Recur(): Arg \"jid\" missing")?;
        let klass = args.name(2, "Recur(): Arg \"klass\" missing")?;
        let data = args.document(3, "Recur(): Arg \"data\" not JSON: ")?;
        let options = args.from(6);
        self.recur_put(RecurStart {
            queue,
            jid,
            klass,
            data,
            schedule: args.from(4),
            options,
            odd: "Recur(): ",
        })
    }

    fn recur_put(&self, start: RecurStart<'_>) -> Read {
        let RecurStart { queue, jid, klass, data, schedule, options, odd } = start;
        let interval = schedule.number(0, "Recur(): Arg \"interval\" not a number: ")?;
        let offset = schedule.number(1, "Recur(): Arg \"offset\" not a number: ")?;
        if interval <= 0.0 {
            return Err("Recur(): Arg \"interval\" must be greater than 0".to_owned());
        }
        if !options.len().is_multiple_of(2) {
            return Err(format!("{odd}Odd number of additional args: table"));
        }
        let names = |key: &str, wrong: &str| match options.option(key) {
            None => Ok(Vec::new()),
            Some(text) => options.list_of_names(text, &format!("{wrong}{}", shown(Some(text)))),
        };
        let value = |key: &str| match options.option(key) {
            None => Ok(0.0),
            text => number(text, &format!("Recur(): Arg \"{key}\" not a number: ")),
        };
        let tags = names("tags", "Recur(): Arg \"tags\" must be JSON string array: ")?;
        let (priority, retries, backlog) = (value("priority")?, value("retries")?, value("backlog")?);
        let throttles = match self.script {
            Script::Qless | Script::QlessEarly => Vec::new(),
            _ => names("throttles", "Recur(): Arg \"throttles\" not JSON array: ")?,
        };
        let put = RecurPut {
            jid,
            queue,
            klass,
            data,
            interval,
            offset,
            cron: None,
            priority,
            retries,
            backlog,
            tags,
            throttles,
        };
        Ok((Command::Recur(Box::new(put)), Verb::Other, Shape::Name))
    }

    fn recur_update(&self) -> Read {
        let jid = self.args.name(0, NO_RECUR)?;
        match self.recur_changes() {
            Ok(changes) => Ok((Command::RecurUpdate { jid, changes }, Verb::Recur, Shape::One)),
            // That there is no such definition is said before any other complaint.
            Err(complaint) => {
                let shape = Shape::NoRecurOr(jid.clone(), complaint);
                Ok((Command::RecurGet { jid }, Verb::Recur, shape))
            }
        }
    }

    fn recur_changes(&self) -> Result<Vec<RecurChange>, Bad> {
        let options = self.args.from(1);
        let mut changes = Vec::new();
        for (key, value) in options.pairs() {
            let value = value.ok_or_else(|| format!("No value provided for {}", shown(Some(key))))?;
            changes.push(self.recur_change(key, value, &options)?);
        }
        Ok(changes)
    }

    fn recur_change(&self, key: &[u8], value: &[u8], args: &Args<'_>) -> Result<RecurChange, Bad> {
        let word = shown(Some(key));
        let number_of = |must: &str| number(Some(value), &format!("Recur(): Arg \"{word}\" {must}"));
        Ok(match key {
            b"priority" => RecurChange::Priority(number_of("must be a number: ")?),
            b"retries" => RecurChange::Retries(number_of("must be a number: ")?),
            b"interval" => {
                let interval = number_of("must be a number: ")?;
                if interval <= 0.0 {
                    return Err("Recur(): Arg \"interval\" must be greater than 0".to_owned());
                }
                RecurChange::Interval(interval)
            }
            b"data" if kind(value)? == Kind::False => {
                return Err("Recur(): Arg \"data\" is not JSON-encoded: false".to_owned());
            }
            b"data" => RecurChange::Data(args.text(value)?),
            b"klass" => RecurChange::Klass(args.to_name(value)?),
            b"queue" => RecurChange::Queue(args.to_name(value)?),
            b"backlog" => RecurChange::Backlog(number_of("not a number: ")?),
            b"throttles" if !matches!(self.script, Script::Qless | Script::QlessEarly) => {
                let wrong = format!("Recur(): Arg \"throttles\" is not JSON-encoded: {}", shown(Some(value)));
                RecurChange::Throttles(args.list_of_names(value, &wrong)?)
            }
            _ => return Err(format!("Recur(): Unrecognized option \"{word}\"")),
        })
    }
}

/// What both ways to define a recurring job have read.
struct RecurStart<'a> {
    queue: Name,
    jid: Name,
    klass: Name,
    data: Bytes,
    schedule: Args<'a>,
    options: Args<'a>,
    /// How the complaint about odd options starts.
    odd: &'static str,
}
