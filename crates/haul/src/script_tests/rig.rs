//! A core on a store, driven a command at a time.

use haul_client::resp::Frame;
use haul_engine::{Command, Event, Name, Rules};
use haul_store::Store;

use super::parse::Step;
use crate::dialect::scripts::Script;
use crate::dialect::{DataLimits, Env, ErrorFormat, Plan, Texts, events, keys, older, qless};
use crate::fuzzing::checked_frame;
use crate::shard::{Core, Outcome, Publish, Request};

/// Channel and payload of what was published.
pub(super) type Messages = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) struct Rig {
    open: Box<dyn FnMut() -> Box<dyn Store>>,
    core: Option<Core>,
    /// Load the state again after this many commands.
    reload_every: Option<usize>,
    commands: usize,
}

/// Commands that need no connection.
pub(super) fn is_below_the_wire(step: &Step) -> bool {
    let word = |at: usize| step.words.get(at).map(|word| String::from_utf8_lossy(word)).unwrap_or_default();
    match step.dialect.as_str() {
        "raw" => keys::is_known(&word(0).to_ascii_lowercase()),
        "fcall" => older::OldCommand::find(word(0).as_bytes()).is_some() && word(1).parse::<usize>().is_ok(),
        _ => true,
    }
}

#[derive(Default)]
struct Heard(Messages);

impl Publish for Heard {
    fn publish(&mut self, _: &Name, list: Vec<Event>) {
        let messages = list.iter().flat_map(events::messages);
        self.0.extend(messages.map(|message| (message.channel.to_vec(), message.payload.to_vec())));
    }
}

impl Rig {
    pub(super) fn new(mut open: Box<dyn FnMut() -> Box<dyn Store>>, reload_every: Option<usize>) -> Self {
        let core = Core::load(open()).unwrap();
        Rig { open, core: Some(core), reload_every, commands: 0 }
    }

    fn env() -> Env {
        Env {
            tenant: Name::new(b""),
            clock: 1_700_000_000.0,
            limits: DataLimits::default(),
            lua_data: false,
            blueque_strict: false,
            error_format: ErrorFormat::Clean,
        }
    }

    pub(super) fn empty(&mut self) {
        let env = Self::env();
        let call = env.call(env.clock, Rules::NATIVE, Command::Flush);
        self.ask(call);
    }

    pub(super) fn run(&mut self, step: &Step) -> (Frame, Messages) {
        let env = Self::env();
        let words: Vec<&[u8]> = step.words.iter().map(Vec::as_slice).collect();
        let script = |message: String| Frame::Error(format!("ERR user_script:1: {message}"));
        let plan = match step.dialect.as_str() {
            "qless" => qless::read(Script::Qless, "", 0, &words, &env).map_err(script),
            "reqless" => qless::read(Script::Reqless, "", 0, &words, &env).map_err(script),
            "fcall" => fcall(&words, &env).map_err(script),
            _ => {
                let name = String::from_utf8_lossy(words[0]).to_ascii_lowercase();
                keys::read(&name, &words[1..], &env).map_err(Frame::Error)
            }
        };
        match plan {
            Err(frame) => (frame, Vec::new()),
            Ok(Plan { call, render, .. }) => {
                let (outcome, heard) = self.ask(call);
                let Outcome::Done { reply, bodies } = outcome else { panic!("{outcome:?}") };
                let store = self.core.as_ref().unwrap().bodies();
                let missing = bodies.missing.iter().map(|id| (*id, store.get(&id.key()).unwrap().unwrap()));
                let texts = Texts::new(bodies.found.into_iter().chain(missing).collect());
                let frame = checked_frame(render, reply, &texts);
                self.reload();
                (frame, heard)
            }
        }
    }

    /// One command, one round.
    fn ask(&mut self, call: haul_engine::Call) -> (Outcome, Messages) {
        let core = self.core.as_mut().unwrap();
        let (done, mut answer) = tokio::sync::oneshot::channel();
        let clock = call.clock;
        core.apply(Request { calls: vec![call], watched: Vec::new(), wait: None, done: done.into() }, clock);
        let mut heard = Heard::default();
        core.finish().unwrap().release(&mut heard).into_iter().for_each(|answer| answer.send());
        assert_eq!(core.engine().audit(), [], "an invariant is broken");
        let outcome = answer.try_recv().unwrap().outcomes.unwrap().pop().unwrap();
        (outcome, heard.0)
    }

    fn reload(&mut self) {
        self.commands += 1;
        if self.reload_every.is_some_and(|every| self.commands.is_multiple_of(every)) {
            self.core.take().unwrap().close().unwrap();
            self.core = Some(Core::load((self.open)()).unwrap());
        }
    }
}

fn fcall(words: &[&[u8]], env: &Env) -> Result<Plan, String> {
    let command = older::OldCommand::find(words[0]).unwrap();
    let keys: usize = String::from_utf8_lossy(words[1]).parse().unwrap();
    older::read(command, keys, &words[2..], env)
}
