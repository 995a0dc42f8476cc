//! For property tests and fuzzers: requests through translation, engine and rendering, without sockets, threads or a
//! store. Whatever comes in, nothing panics and every invariant holds.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use hashbrown::{HashMap, HashSet};
use haul_client::resp::{Frame, Protocol};
use haul_engine::{BodyId, Changes, Engine, Loader, Refusal, Reply};

use crate::dialect::{Plan, Render, Sheet, Texts, events};

/// An engine, and what a store would hold for it.
#[derive(Default)]
pub(crate) struct Bench {
    engine: Engine,
    headers: BTreeMap<Vec<u8>, Vec<u8>>,
    bodies: HashMap<BodyId, Bytes>,
}

impl Bench {
    /// Does one command as a round of its own, and writes its answer in both protocols.
    pub(crate) fn run(&mut self, plan: Plan) -> Frame {
        let reply = self.engine.apply(plan.call);
        let heard = self.engine.take_events();
        heard.iter().for_each(|event| drop(events::messages(event)));
        let mut found = Vec::new();
        if let Ok(reply) = &reply {
            reply.bodies(&mut |id| {
                let body = self.engine.body_in_round(id).or_else(|| self.bodies.get(&id)).cloned();
                assert!(body.is_some(), "the answer names body {}, which is not there", id.0);
                found.extend(body.map(|body| (id, body)));
            });
        }
        let changes = self.engine.take_changes();
        assert!(reply.is_ok() || changes.is_empty(), "a refused command changed something: {reply:?}");
        self.keep(changes);
        checked_frame(plan.render, reply, &Texts::new(found))
    }

    fn keep(&mut self, changes: Changes) {
        changes.deletes.iter().for_each(|key| drop(self.headers.remove(key)));
        changes.dropped.iter().for_each(|id| drop(self.bodies.remove(id)));
        self.headers.extend(changes.puts);
        self.bodies.extend(changes.bodies);
    }

    /// Every invariant holds, of the state and of what would be loaded from the store; no body is lost or left over.
    pub(crate) fn check(&self) {
        assert_eq!(self.engine.audit(), [], "an invariant is broken");
        let mut loader = Loader::default();
        for (key, value) in &self.headers {
            let read = loader.header(key, value);
            assert!(read.is_ok(), "a record cannot be read: {read:?}");
        }
        let loaded = loader.finish();
        assert_eq!(loaded.audit(), [], "an invariant is broken after loading");
        assert_eq!(loaded.jobs(), self.engine.jobs());
        let kept: HashSet<BodyId> = self.bodies.keys().copied().collect();
        assert_eq!(kept, self.engine.bodies());
        assert_eq!(kept, loaded.bodies());
    }
}

/// The frame of an answer; in both protocols its bytes are those that are written without it.
pub(crate) fn checked_frame(render: Render, reply: Result<Reply, Refusal>, texts: &Texts) -> Frame {
    let frame = render.clone().frame(reply.clone(), texts);
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let (mut framed, mut written, mut text) = (BytesMut::new(), BytesMut::new(), Vec::new());
        frame.encode(protocol, &mut framed);
        let mut sheet = Sheet { protocol, out: &mut written, text: &mut text };
        render.clone().write(reply.clone(), texts, &mut sheet);
        assert_eq!(framed, written);
    }
    frame
}

/// Runs the requests in `input` through a session, as a connection would; returns at a broken one.
#[cfg(feature = "fuzzing")]
pub fn session(input: &[u8]) {
    use haul_client::resp::{Args, Limits, Parse, parse_request};

    let Some(server) = server() else { return };
    let (mut session, mut bench) =
        (crate::resp::Session::new(1, crate::net::Remote::none(), server), Bench::default());
    let (mut rest, limits, mut args) = (input, Limits::default(), Args::new());
    while let Ok(Parse::Complete { consumed }) = parse_request(rest, &limits, &mut args) {
        let list: Vec<&[u8]> = args.iter(rest).collect();
        if !list.is_empty()
            && let crate::resp::Step::Call(plan) = session.step(server, &list)
        {
            bench.run(*plan);
        }
        args.clear();
        rest = rest.get(consumed..).unwrap_or_default();
    }
    bench.check();
}

/// What a session asks about: limits and scripts. Its shard is never called.
#[cfg(feature = "fuzzing")]
fn server() -> Option<&'static crate::resp::Server> {
    use crate::outlets::Outlets;
    use crate::resp::Server;
    use crate::shard::{self, Core, Settings};
    use haul_store::{MemoryDisk, Store};

    static SERVER: std::sync::OnceLock<Option<Server>> = std::sync::OnceLock::new();
    let make = || {
        let config = crate::config::Raw::default().resolve(crate::config::Raw::default()).ok()?;
        let open = || Box::new(MemoryDisk::new().open()) as Box<dyn Store>;
        let outlets = Outlets::new(config.limits.subscriber_bytes_max);
        let core = Core::load(open()).ok()?;
        let started =
            shard::start(core, Box::new(move || Ok(open())), Settings::default(), Box::new(outlets.clone()));
        let guard = crate::resp::Guard {
            gate: std::sync::Arc::new(crate::auth::Gate::open(std::path::Path::new("/nowhere")).ok()?),
            audit: crate::auth::Audit::none(),
            tls: None,
        };
        Some(Server::new(&config, started.ok()?.0, outlets, 0, guard))
    };
    SERVER.get_or_init(make).as_ref()
}
