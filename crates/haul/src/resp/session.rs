//! What a connection has said about itself, and what each of its requests amounts to. No sockets.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use haul_client::resp::{Frame, Protocol};
use haul_engine::{Command, Name, Rules};

use super::info;
use super::server::Server;
use crate::clock;
use crate::dialect::scripts::Loaded;
use crate::dialect::{Env, Plan, Render, keys, native, older, qless, refusal};

/// What a request amounts to.
#[derive(Debug)]
pub(crate) enum Step {
    /// Answered at once.
    Reply(Frame),
    /// For the shard.
    Call(Box<Plan>),
    Publish {
        channel: Bytes,
        payload: Bytes,
    },
    Subscribe {
        channels: Vec<Bytes>,
        pattern: bool,
    },
    /// None: from all.
    Unsubscribe {
        channels: Vec<Bytes>,
        pattern: bool,
    },
    Multi,
    Exec,
    Discard,
    Watch(Vec<Name>),
    Unwatch,
    /// A page of the keys: cursor, pattern, count, type.
    Scan {
        cursor: u64,
        pattern: Bytes,
        count: usize,
    },
    Reset,
    Quit,
}

/// One connection's own state.
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) protocol: Protocol,
    pub(crate) tenant: Name,
    pub(crate) client_name: Bytes,
    pub(crate) subscribed: bool,
}

fn error(text: impl Into<String>) -> Step {
    Step::Reply(Frame::Error(text.into()))
}

fn ok() -> Step {
    Step::Reply(Frame::ok())
}

/// How Haul's own commands start, in any case.
const NATIVE_PREFIX: &[u8] = b"haul.";

/// The most of an argument that an error repeats.
const SHOWN_BYTES_MAX: usize = 128;

impl Session {
    pub(crate) fn new(id: u64) -> Self {
        Session {
            id,
            protocol: Protocol::Resp2,
            tenant: Name::new(b""),
            client_name: Bytes::new(),
            subscribed: false,
        }
    }

    pub(crate) fn env(&self, server: &Server) -> Env {
        Env {
            tenant: self.tenant.clone(),
            clock: clock::now(),
            limits: server.limits.data,
            lua_data: server.lua_data,
            blueque_strict: server.blueque_strict,
            error_format: server.error_format,
        }
    }

    /// Understands one request. `args` is never empty.
    pub(crate) fn step(&mut self, server: &Server, args: &[&[u8]]) -> Step {
        let Some((first, rest)) = args.split_first() else { return error("ERR empty request") };
        let restricted = self.subscribed && self.protocol == Protocol::Resp2;
        if !restricted
            && let Some((prefix, verb)) = first.split_at_checked(NATIVE_PREFIX.len())
            && prefix.eq_ignore_ascii_case(NATIVE_PREFIX)
        {
            return self.native(server, verb, rest);
        }
        let name = String::from_utf8_lossy(first).to_ascii_lowercase();
        if restricted && !allowed_subscribed(&name) {
            return error(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            ));
        }
        match name.as_str() {
            "evalsha" => self.evalsha(server, rest),
            "eval" => self.eval(server, rest),
            "fcall" => self.fcall(server, rest),
            name if keys::is_known(name) => match keys::read(name, rest, &self.env(server)) {
                Ok(plan) => Step::Call(Box::new(plan)),
                Err(message) => error(message),
            },
            _ => self.connection_step(server, &name, args),
        }
    }

    fn native(&self, server: &Server, verb: &[u8], rest: &[&[u8]]) -> Step {
        match native::read(verb, rest, &self.env(server)) {
            Ok(plan) => Step::Call(Box::new(plan)),
            Err(message) if message.starts_with(native::UNKNOWN) => error(message),
            Err(message) => error(format!("BADARG {message}")),
        }
    }

    fn connection_step(&mut self, server: &Server, name: &str, args: &[&[u8]]) -> Step {
        let rest = args.get(1..).unwrap_or_default();
        match (name, rest) {
            ("ping", []) if self.subscribed && self.protocol == Protocol::Resp2 => {
                Step::Reply(Frame::Array(vec![Frame::bulk("pong"), Frame::bulk("")]))
            }
            ("ping", [text]) if self.subscribed && self.protocol == Protocol::Resp2 => {
                Step::Reply(Frame::Array(vec![Frame::bulk("pong"), bulk(text)]))
            }
            ("ping", []) => Step::Reply(Frame::Simple("PONG".into())),
            ("ping" | "echo", [text]) => Step::Reply(bulk(text)),
            ("quit", _) => Step::Quit,
            ("reset", []) => Step::Reset,
            ("select", [number]) => self.select(server, number),
            ("auth", [] | [_, _, _, ..]) => error(keys::arity("auth")),
            ("auth", _) => error(
                "ERR Client sent AUTH, but no password is set. Did you mean AUTH <username> <password>?",
            ),
            ("hello", rest) => self.hello(rest),
            ("client", rest) => self.client(rest),
            ("script", rest) => script(server, rest),
            ("info", _) => Step::Reply(bulk(info::text(server).as_bytes())),
            ("config", rest) => config(server, rest),
            ("slowlog", rest) => slowlog(rest),
            ("command", _) => Step::Reply(Frame::Array(Vec::new())),
            ("time", []) => {
                let now = clock::now();
                let parts = [now.trunc(), (now.fract() * 1e6).trunc()];
                Step::Reply(Frame::Array(parts.iter().map(|part| Frame::bulk(format!("{part}"))).collect()))
            }
            ("multi", []) => Step::Multi,
            ("exec", []) => Step::Exec,
            ("discard", []) => Step::Discard,
            ("watch", [_, ..]) => Step::Watch(rest.iter().map(|key| Name::new(key)).collect()),
            ("unwatch", []) => Step::Unwatch,
            ("flushdb" | "flushall", _) => {
                let env = self.env(server);
                let call = env.call(env.clock, Rules::NATIVE, Command::Flush);
                Step::Call(Box::new(Plan { call, render: Render::Key(keys::Shape::Ok), wait: None }))
            }
            ("publish", [channel, payload]) => Step::Publish {
                channel: Bytes::copy_from_slice(channel),
                payload: Bytes::copy_from_slice(payload),
            },
            ("subscribe", [_, ..]) => Step::Subscribe { channels: all_bytes(rest), pattern: false },
            ("psubscribe", [_, ..]) => Step::Subscribe { channels: all_bytes(rest), pattern: true },
            ("unsubscribe", rest) => Step::Unsubscribe { channels: all_bytes(rest), pattern: false },
            ("punsubscribe", rest) => Step::Unsubscribe { channels: all_bytes(rest), pattern: true },
            ("pubsub", rest) => self.pubsub(server, rest),
            ("scan", [cursor, options @ ..]) => scan(cursor, options),
            (known, _) if KNOWN.contains(&known) => error(keys::arity(known)),
            (write, [key, ..]) if key.starts_with(b"ql:") && WRITES.contains(&write) => {
                error("ERR read-only virtual key")
            }
            _ => error(unknown(args)),
        }
    }

    fn select(&mut self, server: &Server, number: &[u8]) -> Step {
        let number: Option<i64> = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
        match number {
            None => error("ERR value is not an integer or out of range"),
            Some(number) => match usize::try_from(number) {
                Ok(number) if number < server.limits.databases => {
                    self.tenant = if number == 0 { Name::new(b"") } else { Name::from(number.to_string()) };
                    ok()
                }
                _ => error("ERR DB index is out of range"),
            },
        }
    }

    fn hello(&mut self, rest: &[&[u8]]) -> Step {
        let mut options = rest.iter();
        if let Some(version) = options.next() {
            self.protocol = match *version {
                b"2" => Protocol::Resp2,
                b"3" => Protocol::Resp3,
                other if haul_engine::parse_number(other).is_some() => {
                    return error("NOPROTO unsupported protocol version");
                }
                _ => return error("ERR Protocol version is not an integer or out of range"),
            };
        }
        while let Some(option) = options.next() {
            match option.to_ascii_uppercase().as_slice() {
                b"SETNAME" => match options.next() {
                    Some(name) => self.client_name = Bytes::copy_from_slice(name),
                    None => return error("ERR Syntax error in HELLO option 'setname'"),
                },
                b"AUTH" if options.next().is_some() && options.next().is_some() => {}
                _ => {
                    let shown = String::from_utf8_lossy(option).into_owned();
                    return error(format!("ERR Syntax error in HELLO option '{shown}'"));
                }
            }
        }
        let protocol = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
        let pair = |key: &'static str, value: Frame| (Frame::bulk(key), value);
        Step::Reply(Frame::Map(vec![
            pair("server", Frame::bulk("redis")),
            pair("version", Frame::bulk(info::REDIS_VERSION)),
            pair("proto", Frame::Int(protocol)),
            pair("id", Frame::Int(self.id as i64)),
            pair("mode", Frame::bulk("standalone")),
            pair("role", Frame::bulk("master")),
            pair("modules", Frame::Array(Vec::new())),
        ]))
    }

    fn client(&mut self, rest: &[&[u8]]) -> Step {
        let word = rest.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        match (word.as_slice(), rest.get(1..).unwrap_or_default()) {
            (b"SETNAME", [name]) if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) => {
                self.client_name = Bytes::copy_from_slice(name);
                ok()
            }
            (b"SETNAME", [_]) => {
                error("ERR Client names cannot contain spaces, newlines or special characters.")
            }
            (b"GETNAME", []) if self.client_name.is_empty() => Step::Reply(Frame::Nil),
            (b"GETNAME", []) => Step::Reply(Frame::Bulk(self.client_name.clone())),
            (b"SETINFO", [_, _]) => ok(),
            (b"ID", []) => Step::Reply(Frame::Int(self.id as i64)),
            (b"", _) => error(keys::arity("client")),
            _ => error(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try CLIENT HELP.",
                String::from_utf8_lossy(rest.first().copied().unwrap_or_default())
            )),
        }
    }

    fn pubsub(&self, server: &Server, rest: &[&[u8]]) -> Step {
        let word = rest.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        let channels = || server.hub.channels(&self.tenant);
        match (word.as_slice(), rest.get(1..).unwrap_or_default()) {
            (b"CHANNELS", []) => {
                Step::Reply(Frame::Array(channels().into_iter().map(|(name, _)| Frame::Bulk(name)).collect()))
            }
            (b"CHANNELS", [pattern]) => {
                let matching =
                    channels().into_iter().filter(|(name, _)| crate::dialect::glob::matches(pattern, name));
                Step::Reply(Frame::Array(matching.map(|(name, _)| Frame::Bulk(name)).collect()))
            }
            (b"NUMSUB", names) => {
                let channels = channels();
                let count = |name: &[u8]| {
                    channels.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
                };
                let pairs = names.iter().flat_map(|name| [bulk(name), Frame::Int(count(name) as i64)]);
                Step::Reply(Frame::Array(pairs.collect()))
            }
            (b"NUMPAT", []) => Step::Reply(Frame::Int(server.hub.pattern_count(&self.tenant) as i64)),
            _ => error("ERR unknown subcommand or wrong number of arguments for PUBSUB"),
        }
    }

    fn evalsha(&self, server: &Server, rest: &[&[u8]]) -> Step {
        let Some((sha, rest)) = rest.split_first() else { return error(keys::arity("evalsha")) };
        let loaded = server.scripts().get(sha);
        match loaded {
            Some(loaded) => self.run(server, loaded, &String::from_utf8_lossy(sha), rest, "evalsha"),
            None if rest.is_empty() => error(keys::arity("evalsha")),
            None => error("NOSCRIPT No matching script. Please use EVAL."),
        }
    }

    fn eval(&self, server: &Server, rest: &[&[u8]]) -> Step {
        let Some((text, rest)) = rest.split_first() else { return error(keys::arity("eval")) };
        let (sha, loaded) = server.scripts().load(text);
        self.run(server, loaded, &sha, rest, "eval")
    }

    fn run(&self, server: &Server, loaded: Loaded, sha: &str, rest: &[&[u8]], command: &str) -> Step {
        let Some((count, rest)) = rest.split_first() else { return error(keys::arity(command)) };
        let count: Option<i64> = std::str::from_utf8(count).ok().and_then(|text| text.parse().ok());
        let keys = match count.map(usize::try_from) {
            None => return error("ERR value is not an integer or out of range"),
            Some(Err(_)) => return error("ERR Number of keys can't be negative"),
            Some(Ok(count)) if count > rest.len() => {
                return error("ERR Number of keys can't be greater than number of args");
            }
            Some(Ok(count)) => count,
        };
        let env = self.env(server);
        let plan = match loaded {
            Loaded::Script(script) => {
                qless::read(script, sha, keys, rest.get(keys..).unwrap_or_default(), &env)
            }
            Loaded::Older(command) => older::read(command, keys, rest, &env),
            Loaded::Unknown => return error("ERR Haul does not execute arbitrary Lua"),
        };
        match plan {
            Ok(plan) => Step::Call(Box::new(plan)),
            Err(message) => error(refusal::envelope(server.error_format, sha, &message)),
        }
    }

    fn fcall(&self, server: &Server, rest: &[&[u8]]) -> Step {
        let (Some(name), Some(rest)) = (rest.first(), rest.get(1..)) else {
            return error(keys::arity("fcall"));
        };
        match older::OldCommand::find(name) {
            Some(command) => self.run(server, Loaded::Older(command), "", rest, "fcall"),
            None => error("ERR Function not found"),
        }
    }

    /// Counts a command.
    pub(crate) fn count(server: &Server, commands: usize) {
        server.commands.fetch_add(commands as u64, Ordering::Relaxed);
    }

    /// What asks the shard for the fingerprints of keys.
    pub(crate) fn versions(&self, server: &Server, keys: Vec<Name>) -> haul_engine::Call {
        let env = self.env(server);
        env.call(env.clock, Rules::NATIVE, Command::Versions { keys })
    }
}

/// Connection commands; named wrongly they get an arity error.
const KNOWN: &[&str] = &[
    "ping",
    "echo",
    "select",
    "multi",
    "exec",
    "discard",
    "watch",
    "unwatch",
    "publish",
    "subscribe",
    "psubscribe",
    "scan",
    "reset",
    "time",
];

/// Redis's writes that are not offered: on the queues' own keys the answer says why.
const WRITES: &[&str] = &[
    "append",
    "decr",
    "getset",
    "hdel",
    "hincrby",
    "hincrbyfloat",
    "hsetnx",
    "incr",
    "incrby",
    "linsert",
    "lset",
    "ltrim",
    "persist",
    "pexpire",
    "rename",
    "smove",
    "spop",
    "zremrangebyrank",
];

fn allowed_subscribed(name: &str) -> bool {
    matches!(name, "subscribe" | "psubscribe" | "unsubscribe" | "punsubscribe" | "ping" | "quit" | "reset")
}

fn bulk(bytes: &[u8]) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(bytes))
}

fn all_bytes(list: &[&[u8]]) -> Vec<Bytes> {
    list.iter().map(|bytes| Bytes::copy_from_slice(bytes)).collect()
}

fn unknown(args: &[&[u8]]) -> String {
    let short =
        |bytes: &[u8]| String::from_utf8_lossy(bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes)).into_owned();
    let name = args.first().map(|name| short(name)).unwrap_or_default();
    let shown: String = args.iter().skip(1).take(16).map(|arg| format!("'{}' ", short(arg))).collect();
    format!("ERR unknown command '{name}', with args beginning with: {shown}")
}

fn script(server: &Server, rest: &[&[u8]]) -> Step {
    let word = rest.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    match (word.as_slice(), rest.get(1..).unwrap_or_default()) {
        (b"LOAD", [text]) => Step::Reply(Frame::bulk(server.scripts().load(text).0)),
        (b"EXISTS", shas @ [_, ..]) => {
            let scripts = server.scripts();
            Step::Reply(Frame::Array(
                shas.iter().map(|sha| Frame::Int(i64::from(scripts.get(sha).is_some()))).collect(),
            ))
        }
        (b"FLUSH", [] | [_]) => {
            server.scripts().flush();
            ok()
        }
        (b"KILL", []) => error("NOTBUSY No scripts in execution right now."),
        _ => error("ERR unknown subcommand or wrong number of arguments for 'script'. Try SCRIPT HELP."),
    }
}

/// Profilers set the slow log and read it back; there is none, so it is only remembered.
fn config(server: &Server, rest: &[&[u8]]) -> Step {
    let word = rest.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    let known: &[(&str, &str)] =
        &[("maxmemory", "0"), ("appendonly", "yes"), ("save", ""), ("databases", "16")];
    match (word.as_slice(), rest.get(1..).unwrap_or_default()) {
        (b"GET", patterns @ [_, ..]) => {
            let wanted = |name: &str| {
                patterns.iter().any(|pattern| crate::dialect::glob::matches(pattern, name.as_bytes()))
            };
            let slowlog = server.slowlog.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let slowlog = slowlog.iter().map(|(name, value)| (name.to_string(), value.clone()));
            let fixed = known.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let pairs = slowlog.chain(fixed).filter(|(name, _)| wanted(name));
            Step::Reply(Frame::Map(
                pairs.map(|(name, value)| (Frame::bulk(name), Frame::bulk(value))).collect(),
            ))
        }
        (b"SET", [name @ (b"slowlog-log-slower-than" | b"slowlog-max-len"), value]) => {
            let mut slowlog = server.slowlog.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let value = String::from_utf8_lossy(value.get(..SHOWN_BYTES_MAX).unwrap_or(value)).into_owned();
            slowlog.insert(
                if name.ends_with(b"max-len") { "slowlog-max-len" } else { "slowlog-log-slower-than" },
                value,
            );
            ok()
        }
        (b"SET", [name, _]) => error(format!(
            "ERR CONFIG SET failed - {} is not a setting of Haul; see docs/reference/settings.md",
            String::from_utf8_lossy(name)
        )),
        (b"RESETSTAT", []) => ok(),
        _ => error("ERR unknown subcommand or wrong number of arguments for 'config'. Try CONFIG HELP."),
    }
}

fn slowlog(rest: &[&[u8]]) -> Step {
    match rest.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default().as_slice() {
        b"GET" => Step::Reply(Frame::Array(Vec::new())),
        b"LEN" => Step::Reply(Frame::Int(0)),
        b"RESET" => ok(),
        _ => error("ERR unknown subcommand or wrong number of arguments for 'slowlog'. Try SLOWLOG HELP."),
    }
}

fn scan(cursor: &[u8], options: &[&[u8]]) -> Step {
    let Some(cursor) = std::str::from_utf8(cursor).ok().and_then(|text| text.parse().ok()) else {
        return error("ERR invalid cursor");
    };
    let (mut pattern, mut count) = (Bytes::from_static(b"*"), 10);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match (option.to_ascii_uppercase().as_slice(), options.next()) {
            (b"MATCH", Some(text)) => pattern = Bytes::copy_from_slice(text),
            (b"COUNT", Some(text)) => match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok())
            {
                Some(number) if number > 0 => count = number,
                _ => return error("ERR value is not an integer or out of range"),
            },
            _ => return error("ERR syntax error"),
        }
    }
    Step::Scan { cursor, pattern, count }
}
