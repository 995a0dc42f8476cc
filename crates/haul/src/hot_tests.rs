//! The hot paths, to be counted: a lifecycle from the bytes of its requests to the bytes of its answers, without sockets,
//! threads or a disk. `tests/instructions` runs these under callgrind and compares the instructions of each with the last
//! known count.

use bytes::BytesMut;
use haul_client::resp::{Args, Limits, Parse, Protocol, encode_request, parse_request};
use haul_engine::Name;
use haul_store::MemoryDisk;

use crate::dialect::scripts::Script;
use crate::dialect::{DataLimits, Env, ErrorFormat, Plan, Sheet, Texts, native, qless};
use crate::shard::{Core, Outcome, Publish, Request};

/// Jobs of each round, as a pipeline brings them.
const ROUND: usize = 16;

struct Nobody;

impl Publish for Nobody {
    fn publish(&mut self, _: &Name, _: Vec<haul_engine::Event>) {}

    fn is_heard(&self) -> bool {
        false
    }
}

struct Line {
    core: Core,
    env: Env,
    input: BytesMut,
    output: BytesMut,
    script: Option<Script>,
}

impl Line {
    fn new(script: Option<Script>) -> Line {
        let env = Env {
            tenant: Name::new(b""),
            clock: 1_700_000_000.0,
            limits: DataLimits::default(),
            lua_data: false,
            blueque_strict: false,
            error_format: ErrorFormat::Clean,
        };
        let mut core = Core::load(Box::new(MemoryDisk::default().open())).unwrap();
        core.listen(false);
        Line { core, env, input: BytesMut::new(), output: BytesMut::new(), script }
    }

    /// A round of as many commands as were written to `input`.
    fn round(&mut self) {
        let (mut args, limits) = (Args::new(), Limits::default());
        let mut rest = &self.input[..];
        let (mut calls, mut renders) = (Vec::new(), Vec::new());
        while let Parse::Complete { consumed } = parse_request(rest, &limits, &mut args).unwrap() {
            let mut few: [&[u8]; 16] = [b""; 16];
            let words = args.list(rest, &mut few);
            let plan = match self.script {
                Some(script) => qless::read(script, "", 0, &words, &self.env),
                None => native::read(words[0], &words[1..], &self.env),
            };
            let Plan { call, render, .. } = plan.unwrap();
            calls.push(call);
            renders.push(render);
            rest = &rest[consumed..];
        }
        let (done, mut answer) = tokio::sync::oneshot::channel();
        let request = Request { calls, watched: Vec::new(), wait: None, done: done.into() };
        self.core.apply(request, self.env.clock);
        let round = self.core.finish().unwrap();
        round.release(&mut Nobody).into_iter().for_each(|answer| answer.send());
        self.output.clear();
        let outcomes = answer.try_recv().unwrap().outcomes.unwrap();
        let mut text = Vec::new();
        for (outcome, render) in outcomes.into_iter().zip(renders) {
            let Outcome::Done { reply, bodies } = outcome else { panic!("{outcome:?}") };
            let mut sheet = Sheet { protocol: Protocol::Resp2, out: &mut self.output, text: &mut text };
            render.write(reply, &Texts::new(bodies.found), &mut sheet);
        }
        self.input.clear();
    }

    fn jids(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.output);
        let parts = text.split("\"jid\":\"").skip(1);
        parts.map(|part| part.split('"').next().unwrap_or_default().to_owned()).collect()
    }
}

/// How many lifecycles to do; the difference of two runs is free of what a start costs.
fn jobs() -> usize {
    std::env::var("HOT_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUND)
}

const DATA: &str =
    r#"{"to":"somebody@example.org","subject":"The quick brown fox jumps over the lazy dog, twice"}"#;

#[test]
fn native() {
    let mut line = Line::new(None);
    for _ in 0..jobs() / ROUND {
        (0..ROUND).for_each(|_| encode_request(&["PUT", "mail", "email", DATA], &mut line.input));
        line.round();
        (0..ROUND).for_each(|_| encode_request(&["POP", "me", "QUEUES", "mail"], &mut line.input));
        line.round();
        let jids = line.jids();
        assert_eq!(jids.len(), ROUND);
        jids.iter().for_each(|jid| encode_request(&["COMPLETE", "me", jid], &mut line.input));
        line.round();
        assert_eq!(String::from_utf8_lossy(&line.output).matches("complete").count(), ROUND);
    }
}

#[test]
fn qless() {
    let mut line = Line::new(Some(Script::Qless));
    for turn in 0..jobs() / ROUND {
        for at in 0..ROUND {
            let jid = format!("{:032x}", turn * ROUND + at);
            let put = ["put", "1700000000", "me", "mail", &jid, "email", DATA, "0"];
            encode_request(&put, &mut line.input);
        }
        line.round();
        (0..ROUND).for_each(|_| encode_request(&["pop", "1700000000", "mail", "me", "1"], &mut line.input));
        line.round();
        let jids = line.jids();
        assert_eq!(jids.len(), ROUND);
        for jid in &jids {
            encode_request(&["complete", "1700000000", jid, "me", "mail", DATA], &mut line.input);
        }
        line.round();
        assert_eq!(String::from_utf8_lossy(&line.output).matches("complete").count(), ROUND);
    }
}
