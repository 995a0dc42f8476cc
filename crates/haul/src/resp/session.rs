//! What a connection has said about itself, and what each of its requests amounts to. No sockets.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use haul_client::resp::{Frame, Protocol};
use haul_engine::{Command, Name, Rules};

use super::info;
use super::server::Server;
use crate::auth::action::Action;
use crate::auth::{self, Access, Denied, Role, audit};
use crate::clock;
use crate::dialect::scripts::Loaded;
use crate::dialect::{Env, Plan, Render, keys, native, older, qless, refusal};
use crate::net::Remote;

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
    pub(crate) remote: Remote,
    /// None: it has not shown a token yet, or the one it showed is gone.
    pub(crate) access: Option<Access>,
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
    pub(crate) fn new(id: u64, remote: Remote, server: &Server) -> Self {
        Session {
            access: server.gate.enter_unnamed(),
            remote,
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

    /// Looks whether what the session may do has changed; false: it may do nothing.
    pub(crate) fn refresh(&mut self, server: &Server) -> bool {
        self.access = match &self.access {
            Some(access) if access.generation == server.gate.generation() => return true,
            Some(access) => server.gate.renew(access),
            None => server.gate.enter_unnamed(),
        };
        self.access.is_some()
    }

    /// Understands one request, if the caller may make it. `args` is never empty.
    pub(crate) fn step(&mut self, server: &Server, args: &[&[u8]]) -> Step {
        let Some((first, rest)) = args.split_first() else { return error("ERR empty request") };
        if !self.refresh(server) {
            let name = String::from_utf8_lossy(first).to_ascii_lowercase();
            return self.stranger_step(server, &name, rest);
        }
        let step = self.understand(server, args);
        self.permit(server, step)
    }

    /// What one may say who has not shown a token.
    fn stranger_step(&mut self, server: &Server, name: &str, rest: &[&[u8]]) -> Step {
        match (name, rest) {
            ("auth", rest) => self.auth(server, rest),
            ("hello", rest) => self.hello(server, rest),
            ("quit", _) => Step::Quit,
            ("reset", []) => Step::Reset,
            _ => error("NOAUTH Authentication required."),
        }
    }

    fn auth(&mut self, server: &Server, rest: &[&[u8]]) -> Step {
        let (name, secret) = match *rest {
            [secret] => (None, secret),
            [name, secret] => (Some(name), secret),
            _ => return error(keys::arity("auth")),
        };
        if !server.gate.is_required() {
            return error(
                "ERR Client sent AUTH, but no password is set. Did you mean AUTH <username> <password>?",
            );
        }
        match self.show(server, name, secret) {
            Ok(()) => ok(),
            Err(complaint) => complaint,
        }
    }

    /// Shows a token. A wrong one leaves everything as it was.
    fn show(&mut self, server: &Server, name: Option<&[u8]>, secret: &[u8]) -> Result<(), Step> {
        if self.subscribed {
            return Err(error("ERR AUTH is not possible with subscriptions; unsubscribe first"));
        }
        match server.gate.enter(name, secret, &self.remote.peer) {
            Ok(access) => {
                self.tenant = access.home();
                self.access = Some(access);
                Ok(())
            }
            Err(Denied::Wrong) => Err(error("WRONGPASS invalid username-password pair or user is disabled.")),
            Err(Denied::TooOften) => {
                Err(error("WRONGPASS too many wrong tokens from this address; try again in a few seconds"))
            }
        }
    }

    /// Lets a step through that the caller's role is enough for.
    fn permit(&self, server: &Server, step: Step) -> Step {
        let needed = match &step {
            Step::Call(plan) => auth::needs(&plan.call.command),
            Step::Publish { .. } => Role::Work,
            Step::Subscribe { .. } | Step::Watch(_) | Step::Scan { .. } => Role::View,
            _ => return step,
        };
        let Some(access) = &self.access else { return error("NOAUTH Authentication required.") };
        let Some(role) = access.lacks(needed) else { return step };
        if let Step::Call(plan) = &step
            && let Some(mut entry) = self.entry(&plan.call)
        {
            entry.outcome = "NOPERM";
            server.audit.note(*entry);
        }
        error(no_permission(access, role))
    }

    /// What the audit log is to say of a call.
    pub(crate) fn entry(&self, call: &haul_engine::Call) -> Option<Box<audit::Entry>> {
        let (action, access) = (Action::of(&call.command)?, self.access.as_ref()?);
        Some(Box::new(audit::Entry::new(access, &self.remote, "redis", &call.tenant, action)))
    }

    fn is_server_wide(&self) -> bool {
        self.access.as_ref().is_some_and(|access| access.is_server_wide() && access.role == Role::Admin)
    }

    fn understand(&mut self, server: &Server, args: &[&[u8]]) -> Step {
        let Some((first, rest)) = args.split_first() else { return error("ERR empty request") };
        let restricted = self.subscribed && self.protocol == Protocol::Resp2;
        if !restricted
            && let Some((prefix, verb)) = first.split_at_checked(NATIVE_PREFIX.len())
            && prefix.eq_ignore_ascii_case(NATIVE_PREFIX)
        {
            return self.native(server, verb, rest);
        }
        if !restricted && first.eq_ignore_ascii_case(b"evalsha") {
            return self.evalsha(server, rest);
        }
        let name = String::from_utf8_lossy(first).to_ascii_lowercase();
        if restricted && !allowed_subscribed(&name) {
            return error(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            ));
        }
        match name.as_str() {
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
        if verb.eq_ignore_ascii_case(b"nodes") && rest.is_empty() {
            return self.nodes(server);
        }
        match native::read(verb, rest, &self.env(server)) {
            Ok(plan) => Step::Call(Box::new(plan)),
            Err(message) if message.starts_with(native::UNKNOWN) => error(message),
            Err(message) => error(format!("BADARG {message}")),
        }
    }

    /// Nodes and shards are nobody's jobs: no call.
    fn nodes(&self, server: &Server) -> Step {
        match &self.access {
            Some(access) if access.is_server_wide() => {
                let document = crate::http::ClusterDoc::of(server.shard.keeper());
                Step::Reply(bulk(&serde_json::to_vec(&document).unwrap_or_default()))
            }
            Some(_) => error("NOPERM this token is for one tenant; the nodes are everybody's"),
            None => error("NOAUTH Authentication required."),
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
            ("auth", rest) => self.auth(server, rest),
            ("hello", rest) => self.hello(server, rest),
            ("client", rest) => self.client(rest),
            ("script" | "config", [word, ..])
                if changes_all(word) && self.access.is_some() && !self.is_server_wide() =>
            {
                error("NOPERM this is for all tenants and needs a token of role admin for the tenant *")
            }
            ("script", rest) => script(server, rest),
            ("info", _) => match &self.access {
                Some(access) => Step::Reply(bulk(info::text(server, access).as_bytes())),
                None => error("NOAUTH Authentication required."),
            },
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

    /// By number, as in Redis, or by name. A token for one tenant has only that, as number 0.
    fn select(&mut self, server: &Server, chosen: &[u8]) -> Step {
        let text = std::str::from_utf8(chosen).unwrap_or_default();
        let tenant = match text.parse::<i64>().map(usize::try_from) {
            Ok(Ok(number)) if number < server.limits.databases => match &self.access {
                Some(access) if number == 0 => access.home(),
                _ => auth::tenant(number.to_string().as_bytes()),
            },
            Ok(_) => return error("ERR DB index is out of range"),
            Err(_) if !text.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                return error("ERR value is not an integer or out of range");
            }
            Err(_) => match auth::check_name("a tenant", text) {
                Ok(()) => auth::tenant(chosen),
                Err(complaint) => return error(format!("ERR {complaint}")),
            },
        };
        match &self.access {
            Some(access) if access.admits(&tenant) => {
                self.tenant = tenant;
                ok()
            }
            Some(access) => error(format!("NOPERM this token is for the tenant {} only", access.scope)),
            None => error("NOAUTH Authentication required."),
        }
    }

    fn hello(&mut self, server: &Server, rest: &[&[u8]]) -> Step {
        let mut options = rest.iter();
        let (mut protocol, mut client_name) = (self.protocol, None);
        if let Some(version) = options.next() {
            protocol = match *version {
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
                    Some(name) => client_name = Some(Bytes::copy_from_slice(name)),
                    None => return error("ERR Syntax error in HELLO option 'setname'"),
                },
                b"AUTH" => match (options.next(), options.next()) {
                    (Some(name), Some(secret)) if server.gate.is_required() => {
                        if let Err(complaint) = self.show(server, Some(name), secret) {
                            return complaint;
                        }
                    }
                    (Some(_), Some(_)) => {}
                    _ => return error("ERR Syntax error in HELLO option 'auth'"),
                },
                _ => {
                    let shown = String::from_utf8_lossy(option).into_owned();
                    return error(format!("ERR Syntax error in HELLO option '{shown}'"));
                }
            }
        }
        if self.access.is_none() {
            return error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            );
        }
        self.protocol = protocol;
        self.client_name = client_name.unwrap_or_else(|| std::mem::take(&mut self.client_name));
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

/// What of `SCRIPT` and `CONFIG` takes effect on every tenant's connections.
fn changes_all(word: &[u8]) -> bool {
    [b"FLUSH".as_slice(), b"SET", b"RESETSTAT"].iter().any(|change| word.eq_ignore_ascii_case(change))
}

fn no_permission(access: &Access, needed: Role) -> String {
    let token = access.token().unwrap_or_default();
    format!("NOPERM this needs the role {needed}; the token {token} has the role {}", access.role)
}

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
