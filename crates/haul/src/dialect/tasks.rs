//! The writes to keys that Blueque's clients need: of its keys, which are views of jobs, and of plain keys beside them.

use haul_engine::{Name, ScoreRange, TaskCommand, is_task_key, parse_number};

use super::Env;
use super::keys::{Reader, Shape, Wrong, arity};

const NOT_FLOAT: &str = "ERR value is not a valid float";
const RESERVED: &[u8] = b"blueque_reserved_tasks_";
const STARTED: &[u8] = b"blueque_started_tasks_";

/// `LREM key value` of a reserved list, as Blueque's first description writes it: with the count it means.
pub(super) fn with_count<'a>(name: &str, list: &[&'a [u8]], env: &Env) -> Option<Vec<&'a [u8]>> {
    match (name, list) {
        ("lrem", [key, value]) if !env.blueque_strict && key.starts_with(RESERVED) => {
            Some(vec![key, b"1", value])
        }
        _ => None,
    }
}

/// Understands a write; none if it is another command's.
pub(super) fn read(reader: &Reader<'_>, env: &Env) -> Result<Option<(TaskCommand, Shape)>, Wrong> {
    let task_key = reader.args.get(0).is_some_and(is_task_key);
    let command = match reader.name {
        "lrem" | "zrem"
            if !env.blueque_strict && reader.args.get(0).is_some_and(|key| key.starts_with(STARTED)) =>
        {
            // Described as a list, and later as a sorted set; it is a set.
            let members = if reader.name == "lrem" { vec![reader.key(2)?] } else { names(reader, 1)? };
            TaskCommand::SetRemove { key: own(reader, 0)?, members }
        }
        "lrem" => {
            TaskCommand::ListRemove { key: own(reader, 0)?, count: reader.integer(1)?, value: reader.key(2)? }
        }
        "rpoplpush" => TaskCommand::Move { from: own(reader, 0)?, to: own(reader, 1)? },
        "sadd" => TaskCommand::SetAdd { key: own(reader, 0)?, members: names(reader, 1)? },
        "srem" => TaskCommand::SetRemove { key: own(reader, 0)?, members: names(reader, 1)? },
        "zadd" => TaskCommand::ScoreAdd { key: own(reader, 0)?, members: scores(reader)? },
        "zincrby" => {
            let by = score(reader, 1)?;
            TaskCommand::ScoreIncrement { key: own(reader, 0)?, by, member: reader.key(2)? }
        }
        "zrem" => TaskCommand::ScoreRemove { key: own(reader, 0)?, members: names(reader, 1)? },
        "zremrangebyscore" => {
            let (min, max) = (reader.bound(1)?, reader.bound(2)?);
            let range = ScoreRange { min, max, reverse: false, offset: 0, count: None };
            TaskCommand::ScoreRemoveRange { key: own(reader, 0)?, range }
        }
        "hset" | "hmset" if task_key => return hash_set(reader).map(Some),
        "lpush" | "rpush" if task_key => {
            let left = reader.name == "lpush";
            TaskCommand::Push { key: own(reader, 0)?, values: names(reader, 1)?, left }
        }
        "lpop" | "rpop" if task_key => {
            let pop = TaskCommand::Pop { key: own(reader, 0)?, left: reader.name == "lpop" };
            return Ok(Some((pop, Shape::PoppedValue)));
        }
        "del" | "unlink" if reader.args.list.iter().any(|key| is_task_key(key)) => {
            let keys = (0..reader.args.len()).map(|at| own(reader, at)).collect::<Result<_, _>>()?;
            TaskCommand::Delete { keys }
        }
        _ => return Ok(None),
    };
    Ok(Some((command, Shape::Plain)))
}

fn hash_set(reader: &Reader<'_>) -> Result<(TaskCommand, Shape), Wrong> {
    if reader.args.len().is_multiple_of(2) {
        return Err(arity(reader.name));
    }
    let text = |at: usize| {
        let bytes = reader.args.get(at).unwrap_or_default();
        reader.args.text(bytes).map_err(|error| format!("ERR {error}"))
    };
    let pairs = (1..reader.args.len()).step_by(2).map(|at| Ok((reader.key(at)?, text(at + 1)?)));
    let pairs = pairs.collect::<Result<_, Wrong>>()?;
    let shape = if reader.name == "hmset" { Shape::Ok } else { Shape::Plain };
    Ok((TaskCommand::HashSet { key: own(reader, 0)?, pairs }, shape))
}

/// A key that clients may write.
fn own(reader: &Reader<'_>, at: usize) -> Result<Name, Wrong> {
    let key = reader.key(at)?;
    match key.bytes().starts_with(b"ql:") {
        true => Err("ERR read-only virtual key".to_owned()),
        false => Ok(key),
    }
}

fn names(reader: &Reader<'_>, from: usize) -> Result<Vec<Name>, Wrong> {
    (from..reader.args.len()).map(|at| reader.key(at)).collect()
}

fn score(reader: &Reader<'_>, at: usize) -> Result<f64, Wrong> {
    let text = reader.args.get(at).unwrap_or_default();
    let text = text.to_ascii_lowercase();
    match text.as_slice() {
        b"-inf" | b"-infinity" => Ok(f64::NEG_INFINITY),
        b"inf" | b"+inf" | b"infinity" | b"+infinity" => Ok(f64::INFINITY),
        digits => parse_number(digits).ok_or_else(|| NOT_FLOAT.to_owned()),
    }
}

/// `score member [score member ...]`.
fn scores(reader: &Reader<'_>) -> Result<Vec<(f64, Name)>, Wrong> {
    if reader.args.len().is_multiple_of(2) {
        return Err("ERR syntax error".to_owned());
    }
    (1..reader.args.len()).step_by(2).map(|at| Ok((score(reader, at)?, reader.key(at + 1)?))).collect()
}
