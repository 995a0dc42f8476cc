//! Plain Redis commands on keys: reads of everything, writes of the few keys that are clients' own.

use bytes::Bytes;
use haul_client::resp::Frame;
use haul_engine::{
    Command, KeyAnswer, KeyCommand, KeyQuery, KeyType, KeyView, Name, RankRange, Refusal, Reply, Rules,
    ScoreBound, ScoreRange, ViewValue, parse_number,
};

use super::args::Args;
use super::number::{f20, g17};
use super::shape::{push_failure, push_names, push_triple};
use super::{Env, Plan, Render, Texts, tasks};

/// Keys one `KEYS` or `SCAN` looks at, at most.
pub(crate) const KEYS_MAX: usize = 1_000_000;

/// How an answer is written.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Plain,
    /// The first value or nil.
    First,
    /// Whether the first value is there.
    IsThere,
    /// Names only, or values only, of a hash.
    HashKeys,
    HashValues,
    /// A flat list of members, with scores if asked for.
    Members {
        with_scores: bool,
    },
    /// How many members.
    CountMembers,
    Contains(Name),
    /// Names that match a pattern.
    Matching(Bytes),
    /// Whole seconds, or milliseconds.
    Ttl {
        milliseconds: bool,
    },
    /// All that matches, as the one page of a scan.
    Scan(Bytes),
    /// The popped value without its key.
    PoppedValue,
    /// `+OK` for a command that counts.
    Ok,
}

/// What is wrong with a call, as Redis words it (with its code).
pub(crate) type Wrong = String;

const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
const NOT_FLOAT: &str = "ERR min or max is not a float";
const SYNTAX: &str = "ERR syntax error";

/// The name, the fewest and the most arguments after it (0: any number).
const TABLE: &[(&str, usize, usize)] = &[
    ("type", 1, 1),
    ("exists", 1, 0),
    ("keys", 1, 1),
    ("dbsize", 0, 0),
    ("get", 1, 1),
    ("set", 2, 0),
    ("setnx", 2, 2),
    ("del", 1, 0),
    ("unlink", 1, 0),
    ("ttl", 1, 1),
    ("pttl", 1, 1),
    ("expire", 2, 2),
    ("lpush", 2, 0),
    ("rpush", 2, 0),
    ("lpop", 1, 1),
    ("rpop", 1, 1),
    ("blpop", 2, 0),
    ("brpop", 2, 0),
    ("lrange", 3, 3),
    ("lindex", 2, 2),
    ("lrem", 3, 3),
    ("rpoplpush", 2, 2),
    ("llen", 1, 1),
    ("hset", 3, 0),
    ("hmset", 3, 0),
    ("hget", 2, 2),
    ("hmget", 2, 0),
    ("hgetall", 1, 1),
    ("hkeys", 1, 1),
    ("hvals", 1, 1),
    ("hlen", 1, 1),
    ("hexists", 2, 2),
    ("sadd", 2, 0),
    ("srem", 2, 0),
    ("smembers", 1, 1),
    ("scard", 1, 1),
    ("sismember", 2, 2),
    ("zadd", 3, 0),
    ("zincrby", 3, 3),
    ("zrem", 2, 0),
    ("zremrangebyscore", 3, 3),
    ("zcard", 1, 1),
    ("zscore", 2, 2),
    ("zrank", 2, 2),
    ("zrevrank", 2, 2),
    ("zrange", 3, 0),
    ("zrevrange", 3, 0),
    ("zrangebyscore", 3, 0),
    ("zrevrangebyscore", 3, 0),
    ("zcount", 3, 3),
    ("hscan", 2, 0),
    ("sscan", 2, 0),
    ("zscan", 2, 0),
];

/// Whether this is a command on keys.
pub(crate) fn is_known(name: &str) -> bool {
    TABLE.iter().any(|(known, ..)| *known == name)
}

/// Understands a command on keys; `name` in lower case.
pub(crate) fn read(name: &str, list: &[&[u8]], env: &Env) -> Result<Plan, Wrong> {
    // S3 gives no count: one is meant.
    let whole;
    let list = match tasks::with_count(name, list, env) {
        Some(counted) => {
            whole = counted;
            whole.as_slice()
        }
        None => list,
    };
    if let Some((_, least, most)) = TABLE.iter().find(|(known, ..)| *known == name)
        && (list.len() < *least || (*most > 0 && list.len() > *most))
    {
        return Err(arity(name));
    }
    let reader = Reader { name, args: Args::new(list, env) };
    if let Some((command, shape)) = tasks::read(&reader, env)? {
        let call = env.call(env.clock, Rules::BLUEQUE, Command::Task(command));
        return Ok(Plan { call, render: Render::Key(shape), wait: None });
    }
    let mut wait = None;
    let (command, shape) = match name {
        "blpop" | "brpop" => {
            let (command, shape, seconds) = reader.blocking_pop()?;
            wait = Some(seconds);
            (command, shape)
        }
        _ => reader.read()?,
    };
    Ok(Plan { call: env.call(env.clock, Rules::NATIVE, command), render: Render::Key(shape), wait })
}

/// Redis's complaint about the number of arguments.
pub(crate) fn arity(name: &str) -> Wrong {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// A command on keys, being read.
pub(super) struct Reader<'a> {
    pub(super) name: &'a str,
    pub(super) args: Args<'a>,
}

type Read = Result<(Command, Shape), Wrong>;

impl Reader<'_> {
    fn read(&self) -> Read {
        let key = || self.key(0);
        let query = |query: KeyQuery, shape: Shape| Ok((Command::Key(query), shape));
        match self.name {
            "type" => query(KeyQuery::Type { key: key()? }, Shape::Plain),
            "exists" => query(KeyQuery::Exist { keys: self.keys(0)? }, Shape::Plain),
            "keys" => query(
                KeyQuery::Keys,
                Shape::Matching(Bytes::copy_from_slice(self.args.get(0).unwrap_or_default())),
            ),
            "dbsize" => Ok((Command::KeyCount, Shape::Plain)),
            "lrange" => {
                let (start, stop) = (self.integer(1)?, self.integer(2)?);
                query(KeyQuery::List { key: key()?, start, stop }, Shape::Plain)
            }
            "lindex" => {
                let at = self.integer(1)?;
                query(KeyQuery::List { key: key()?, start: at, stop: at }, Shape::First)
            }
            "llen" => query(KeyQuery::Length { key: key()?, kind: KeyType::List }, Shape::Plain),
            "hget" => query(KeyQuery::Fields { key: key()?, fields: self.keys(1)? }, Shape::First),
            "hexists" => query(KeyQuery::Fields { key: key()?, fields: self.keys(1)? }, Shape::IsThere),
            "hmget" => query(KeyQuery::Fields { key: key()?, fields: self.keys(1)? }, Shape::Plain),
            "hgetall" => query(KeyQuery::Hash { key: key()? }, Shape::Plain),
            "hkeys" => query(KeyQuery::Hash { key: key()? }, Shape::HashKeys),
            "hvals" => query(KeyQuery::Hash { key: key()? }, Shape::HashValues),
            "hlen" => query(KeyQuery::Length { key: key()?, kind: KeyType::Hash }, Shape::Plain),
            "smembers" => query(KeyQuery::Set { key: key()? }, Shape::Plain),
            "scard" => query(KeyQuery::Length { key: key()?, kind: KeyType::Set }, Shape::Plain),
            "sismember" => query(KeyQuery::Set { key: key()? }, Shape::Contains(self.key(1)?)),
            "zcard" => query(KeyQuery::Length { key: key()?, kind: KeyType::Zset }, Shape::Plain),
            "zscore" => query(KeyQuery::Score { key: key()?, member: self.key(1)? }, Shape::Plain),
            "zrank" | "zrevrank" => {
                let reverse = self.name == "zrevrank";
                query(KeyQuery::Rank { key: key()?, member: self.key(1)?, reverse }, Shape::Plain)
            }
            "hscan" => query(KeyQuery::Hash { key: key()? }, self.scan()?),
            "sscan" => query(KeyQuery::Set { key: key()? }, self.scan()?),
            "zscan" => {
                let range = RankRange { start: 0, stop: -1, reverse: false };
                query(KeyQuery::Ranks { key: key()?, range }, self.scan()?)
            }
            "zrange" | "zrevrange" => self.ranks(),
            "zrangebyscore" | "zrevrangebyscore" => self.scores(),
            "zcount" => {
                let range = ScoreRange {
                    min: self.bound(1)?,
                    max: self.bound(2)?,
                    reverse: false,
                    offset: 0,
                    count: None,
                };
                query(KeyQuery::Scores { key: key()?, range }, Shape::CountMembers)
            }
            _ => self.read_scratch(),
        }
    }

    fn read_scratch(&self) -> Read {
        let (command, shape) = match self.name {
            "get" => (KeyCommand::Get { key: self.key(0)? }, Shape::Plain),
            "ttl" | "pttl" => {
                (KeyCommand::Ttl { key: self.key(0)? }, Shape::Ttl { milliseconds: self.name == "pttl" })
            }
            "set" => (self.set()?, Shape::Plain),
            "setnx" => {
                let set = KeyCommand::Set {
                    key: self.own(0)?,
                    value: self.value(1)?,
                    ttl: None,
                    only_if: Some(false),
                };
                (set, Shape::IsThere)
            }
            "del" | "unlink" => {
                let keys = (0..self.args.len()).map(|at| self.own(at)).collect::<Result<_, _>>()?;
                (KeyCommand::Del { keys }, Shape::Plain)
            }
            "expire" => {
                (KeyCommand::Expire { key: self.own(0)?, seconds: self.integer(1)? as f64 }, Shape::Plain)
            }
            "lpush" | "rpush" => {
                let values = (1..self.args.len()).map(|at| self.value(at)).collect::<Result<_, _>>()?;
                (KeyCommand::Push { key: self.own(0)?, values, left: self.name == "lpush" }, Shape::Plain)
            }
            "lpop" | "rpop" => {
                (KeyCommand::Pop { keys: vec![self.own(0)?], left: self.name == "lpop" }, Shape::PoppedValue)
            }
            _ => (self.hash_set()?, if self.name == "hmset" { Shape::Ok } else { Shape::Plain }),
        };
        Ok((Command::Keyspace(command), shape))
    }

    pub(super) fn key(&self, at: usize) -> Result<Name, Wrong> {
        let bytes = self.args.get(at).ok_or_else(|| arity(self.name))?;
        self.args.to_name(bytes).map_err(|error| format!("ERR {error}"))
    }

    fn keys(&self, from: usize) -> Result<Vec<Name>, Wrong> {
        self.args.from(from).names().map_err(|error| format!("ERR {error}"))
    }

    pub(super) fn value(&self, at: usize) -> Result<Name, Wrong> {
        let bytes = self.args.get(at).ok_or_else(|| arity(self.name))?;
        self.args.text(bytes).map(|bytes| Name::new(&bytes)).map_err(|error| format!("ERR {error}"))
    }

    /// A key that clients may write.
    fn own(&self, at: usize) -> Result<Name, Wrong> {
        let key = self.key(at)?;
        let bytes = key.bytes();
        let patterns = bytes == b"ql:qp:identifiers" || bytes == b"ql:qp:priorities";
        if !patterns && (bytes.starts_with(b"ql:") || bytes.starts_with(b"blueque_")) {
            return Err("ERR read-only virtual key".to_owned());
        }
        Ok(key)
    }

    pub(super) fn integer(&self, at: usize) -> Result<i64, Wrong> {
        let text = self.args.get(at).ok_or_else(|| arity(self.name))?;
        std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| NOT_INTEGER.to_owned())
    }

    /// `5`, `(5`, `-inf`, `+inf`.
    pub(super) fn bound(&self, at: usize) -> Result<ScoreBound, Wrong> {
        let text = self.args.get(at).ok_or_else(|| arity(self.name))?;
        let (exclusive, digits) = match text.strip_prefix(b"(") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let value = match digits.to_ascii_lowercase().as_slice() {
            b"-inf" => f64::NEG_INFINITY,
            b"inf" | b"+inf" => f64::INFINITY,
            _ => parse_number(digits).ok_or_else(|| NOT_FLOAT.to_owned())?,
        };
        Ok(ScoreBound { value, exclusive })
    }

    /// Collections are answered whole, so the only cursor there is is 0.
    fn scan(&self) -> Result<Shape, Wrong> {
        self.integer(1).map_err(|_| "ERR invalid cursor".to_owned())?;
        let mut pattern = Bytes::from_static(b"*");
        let mut words = self.args.from(2).list.iter();
        while let Some(word) = words.next() {
            match (word.to_ascii_uppercase().as_slice(), words.next()) {
                (b"MATCH", Some(text)) => pattern = Bytes::copy_from_slice(text),
                (b"COUNT", Some(_)) => {}
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        Ok(Shape::Scan(pattern))
    }

    fn ranks(&self) -> Read {
        let mut reverse = self.name == "zrevrange";
        let (mut with_scores, mut by_score, mut limit) = (false, false, (0, None));
        let mut words = self.args.from(3).list.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_uppercase().as_slice() {
                b"WITHSCORES" => with_scores = true,
                b"REV" => reverse = true,
                b"BYSCORE" => by_score = true,
                b"LIMIT" => limit = limit_of(words.next(), words.next())?,
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        let key = self.key(0)?;
        let query = if by_score {
            let (low, high) = if reverse { (2, 1) } else { (1, 2) };
            let (min, max) = (self.bound(low)?, self.bound(high)?);
            KeyQuery::Scores { key, range: ScoreRange { min, max, reverse, offset: limit.0, count: limit.1 } }
        } else {
            KeyQuery::Ranks {
                key,
                range: RankRange { start: self.integer(1)?, stop: self.integer(2)?, reverse },
            }
        };
        Ok((Command::Key(query), Shape::Members { with_scores }))
    }

    fn scores(&self) -> Read {
        let reverse = self.name == "zrevrangebyscore";
        let (low, high) = if reverse { (2, 1) } else { (1, 2) };
        let (mut with_scores, mut limit) = (false, (0, None));
        let mut words = self.args.from(3).list.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_uppercase().as_slice() {
                b"WITHSCORES" => with_scores = true,
                b"LIMIT" => limit = limit_of(words.next(), words.next())?,
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        let range = ScoreRange {
            min: self.bound(low)?,
            max: self.bound(high)?,
            reverse,
            offset: limit.0,
            count: limit.1,
        };
        Ok((Command::Key(KeyQuery::Scores { key: self.key(0)?, range }), Shape::Members { with_scores }))
    }

    fn set(&self) -> Result<KeyCommand, Wrong> {
        let (mut ttl, mut only_if) = (None, None);
        let mut words = self.args.from(2).list.iter();
        while let Some(word) = words.next() {
            let scale = match word.to_ascii_uppercase().as_slice() {
                b"NX" => {
                    only_if = Some(false);
                    continue;
                }
                b"XX" => {
                    only_if = Some(true);
                    continue;
                }
                b"EX" => 1.0,
                b"PX" => 0.001,
                _ => return Err(SYNTAX.to_owned()),
            };
            let seconds =
                words.next().and_then(|text| parse_number(text)).ok_or_else(|| NOT_INTEGER.to_owned())?;
            if seconds <= 0.0 {
                return Err("ERR invalid expire time in 'set' command".to_owned());
            }
            ttl = Some(seconds * scale);
        }
        Ok(KeyCommand::Set { key: self.own(0)?, value: self.value(1)?, ttl, only_if })
    }

    fn hash_set(&self) -> Result<KeyCommand, Wrong> {
        if self.args.len().is_multiple_of(2) {
            return Err(arity(self.name));
        }
        let pairs = (1..self.args.len()).step_by(2).map(|at| Ok((self.value(at)?, self.value(at + 1)?)));
        Ok(KeyCommand::HashSet { key: self.own(0)?, pairs: pairs.collect::<Result<_, Wrong>>()? })
    }

    /// `key [key ...] timeout`; 0 waits for ever, within reason.
    fn blocking_pop(&self) -> Result<(Command, Shape, f64), Wrong> {
        let last = self.args.len() - 1;
        let seconds =
            self.args.get(last).and_then(parse_number).ok_or("ERR timeout is not a float or out of range")?;
        if seconds < 0.0 {
            return Err("ERR timeout is negative".to_owned());
        }
        let keys = (0..last).map(|at| self.own(at)).collect::<Result<_, _>>()?;
        let seconds = if seconds == 0.0 { super::native::WAIT_SECONDS_MAX } else { seconds };
        let command = KeyCommand::Pop { keys, left: self.name == "blpop" };
        Ok((Command::Keyspace(command), Shape::Plain, seconds.min(super::native::WAIT_SECONDS_MAX)))
    }
}

fn limit_of(offset: Option<&&[u8]>, count: Option<&&[u8]>) -> Result<(usize, Option<usize>), Wrong> {
    let number = |text: Option<&&[u8]>| -> Result<i64, Wrong> {
        let text = text.and_then(|text| std::str::from_utf8(text).ok()).ok_or_else(|| SYNTAX.to_owned())?;
        text.parse().map_err(|_| NOT_INTEGER.to_owned())
    };
    let (offset, count) = (number(offset)?, number(count)?);
    Ok(match usize::try_from(offset) {
        Ok(offset) => (offset, usize::try_from(count).ok()),
        Err(_) => (0, Some(0)),
    })
}

fn bulk(bytes: &[u8]) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(bytes))
}

fn int(value: usize) -> Frame {
    Frame::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

impl Shape {
    pub(crate) fn frame(self, outcome: Result<Reply, Refusal>, texts: &Texts) -> Frame {
        match outcome {
            Err(Refusal::WrongType) => {
                Frame::Error("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned())
            }
            Err(refusal) => Frame::Error(format!("ERR {}", super::refusal::plain(&refusal))),
            Ok(Reply::Key(view)) => self.view(view, texts),
            Ok(Reply::Keyspace(answer)) => self.answer(answer),
            Ok(Reply::Int(count)) => Frame::Int(count),
            Ok(_) => Frame::Simple("OK".into()),
        }
    }

    fn view(self, view: KeyView, texts: &Texts) -> Frame {
        let pair = |(field, value): (Name, ViewValue)| (bulk(field.bytes()), value_frame(&value, texts));
        match (self, view) {
            (Shape::Scan(pattern), view) => scan_frame(&pattern, view, texts),
            (_, KeyView::Type(kind)) => Frame::Simple(type_word(kind).into()),
            (_, KeyView::Count(count)) => int(count),
            (Shape::HashKeys, KeyView::Pairs(pairs)) => {
                Frame::Array(pairs.iter().map(|(field, _)| bulk(field.bytes())).collect())
            }
            (Shape::HashValues, KeyView::Pairs(pairs)) => {
                Frame::Array(pairs.iter().map(|(_, value)| value_frame(value, texts)).collect())
            }
            (_, KeyView::Pairs(pairs)) => Frame::Map(pairs.into_iter().map(pair).collect()),
            (Shape::First, KeyView::Values(values)) => match values.first() {
                Some(Some(value)) => value_frame(value, texts),
                _ => Frame::Nil,
            },
            (Shape::IsThere, KeyView::Values(values)) => {
                Frame::Int(i64::from(matches!(values.first(), Some(Some(_)))))
            }
            (_, KeyView::Values(values)) => {
                let frames = values
                    .iter()
                    .map(|value| value.as_ref().map_or(Frame::Nil, |value| value_frame(value, texts)));
                Frame::Array(frames.collect())
            }
            (Shape::Contains(member), KeyView::Members(members)) => {
                Frame::Int(i64::from(members.contains(&member)))
            }
            (_, KeyView::Members(members)) => {
                Frame::Set(members.iter().map(|name| bulk(name.bytes())).collect())
            }
            (Shape::CountMembers, KeyView::Scored(members)) => int(members.len()),
            (Shape::Members { with_scores: true }, KeyView::Scored(members)) => Frame::Pairs(
                members.iter().map(|(name, score)| (bulk(name.bytes()), Frame::Double(*score))).collect(),
            ),
            (_, KeyView::Scored(members)) => {
                Frame::Array(members.iter().map(|(name, _)| bulk(name.bytes())).collect())
            }
            (_, KeyView::Score(score)) => score.map_or(Frame::Nil, Frame::Double),
            (_, KeyView::Rank(rank)) => rank.map_or(Frame::Nil, int),
            (Shape::Matching(pattern), KeyView::Keys(keys)) => {
                let matching = keys.iter().filter(|key| super::glob::matches(&pattern, key.bytes()));
                Frame::Array(matching.take(KEYS_MAX).map(|key| bulk(key.bytes())).collect())
            }
            (_, KeyView::Keys(keys)) => Frame::Array(keys.iter().map(|key| bulk(key.bytes())).collect()),
        }
    }

    fn answer(self, answer: KeyAnswer) -> Frame {
        match (self, answer) {
            (Shape::IsThere, KeyAnswer::Ok) => Frame::Int(1),
            (Shape::IsThere, KeyAnswer::Nil) => Frame::Int(0),
            (Shape::Ok, _) | (_, KeyAnswer::Ok) => Frame::Simple("OK".into()),
            (_, KeyAnswer::Nil) => Frame::Nil,
            (_, KeyAnswer::Int(value)) => Frame::Int(value),
            (_, KeyAnswer::Text(value)) => bulk(value.bytes()),
            (_, KeyAnswer::Score(score)) => Frame::Double(score),
            (Shape::PoppedValue, KeyAnswer::Popped(_, value)) => bulk(value.bytes()),
            (_, KeyAnswer::Popped(key, value)) => Frame::Array(vec![bulk(key.bytes()), bulk(value.bytes())]),
            (_, KeyAnswer::Seconds(left)) if left < 0.0 => Frame::Int(left as i64),
            (Shape::Ttl { milliseconds: true }, KeyAnswer::Seconds(left)) => {
                Frame::Int((left * 1000.0) as i64)
            }
            (_, KeyAnswer::Seconds(left)) => Frame::Int(left.round() as i64),
        }
    }
}

/// One page with everything that matches, and the cursor that says it was the last.
fn scan_frame(pattern: &[u8], view: KeyView, texts: &Texts) -> Frame {
    let wanted = |name: &Name| super::glob::matches(pattern, name.bytes());
    let found: Vec<Frame> = match view {
        KeyView::Pairs(pairs) => pairs
            .iter()
            .filter(|(field, _)| wanted(field))
            .flat_map(|(field, value)| [bulk(field.bytes()), value_frame(value, texts)])
            .collect(),
        KeyView::Members(members) => {
            members.iter().filter(|name| wanted(name)).map(|name| bulk(name.bytes())).collect()
        }
        KeyView::Scored(members) => members
            .iter()
            .filter(|(name, _)| wanted(name))
            .flat_map(|(name, score)| [bulk(name.bytes()), Frame::Bulk(format!("{score}").into())])
            .collect(),
        _ => Vec::new(),
    };
    Frame::Array(vec![Frame::bulk("0"), Frame::Array(found)])
}

fn type_word(kind: KeyType) -> &'static str {
    match kind {
        KeyType::None => "none",
        KeyType::String => "string",
        KeyType::List => "list",
        KeyType::Set => "set",
        KeyType::Zset => "zset",
        KeyType::Hash => "hash",
    }
}

fn value_frame(value: &ViewValue, texts: &Texts) -> Frame {
    let mut out = Vec::new();
    match value {
        ViewValue::Name(name) => return bulk(name.bytes()),
        ViewValue::Text(text) => return bulk(texts.bytes(text)),
        ViewValue::Number(number) => out = g17(*number),
        ViewValue::Moment(moment) => out = f20(*moment),
        ViewValue::Names(names) => push_names(&mut out, names, "{}"),
        ViewValue::Entry(entry) => push_triple(&mut out, entry, texts),
        ViewValue::Failure(failure) => push_failure(&mut out, Some(failure), texts, true),
    }
    Frame::Bulk(out.into())
}
