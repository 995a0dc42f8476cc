//! What is told to whoever listens: each step of a job's life once, with job, queue and worker, in every dialect; and
//! nothing at all while nobody listens.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

use bytes::Bytes;
use haul_engine::*;

struct Rig {
    engine: Engine,
    rules: Rules,
}

impl Rig {
    fn new(rules: Rules) -> Rig {
        let mut engine = Engine::default();
        engine.listen(true);
        Rig { engine, rules }
    }

    /// What one command tells, as `kind jid queue worker state detail`.
    fn told(&mut self, now: f64, command: Command) -> Vec<String> {
        let call = Call { tenant: "t".into(), now, clock: now, rules: self.rules, command };
        self.engine.apply(call).unwrap();
        let line = |notice: Notice| {
            let Notice { kind, jid, queue, worker, state, detail, .. } = notice;
            let detail = detail.map_or_else(String::new, |detail| detail.to_string());
            let text =
                format!("{} {jid} {queue} {worker} {} {detail}", kind.word(), state.map_or("", State::word));
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        self.engine.take_notices().into_iter().map(line).collect()
    }
}

fn put(jid: &str) -> Put {
    Put {
        jid: jid.into(),
        queue: "q".into(),
        worker: None,
        klass: Some("k".into()),
        data: Some(Bytes::from_static(b"{}")),
        delay: 0.0,
        priority: None,
        tags: None,
        retries: Some(1.0),
        depends: Vec::new(),
        throttles: Vec::new(),
        when: PutWhen::Always,
        trace: None,
    }
}

fn new(jid: &str) -> Command {
    Command::Put(Box::new(put(jid)))
}

fn pop(worker: &str) -> Command {
    let queues = vec!["q".into()];
    Command::Pop(Pop {
        worker: worker.into(),
        queues,
        round_robin: false,
        count: 1,
        lock: Lock::Seconds(60.0),
        klasses: Vec::new(),
    })
}

fn complete(jid: &str, worker: &str, next: Option<&str>) -> Command {
    let next = next.map(|queue| Next { queue: queue.into(), delay: 0.0, depends: Vec::new() });
    Command::Complete(Box::new(Complete {
        jid: jid.into(),
        worker: Some(worker.into()),
        queue: None,
        attempt: None,
        data: None,
        result: None,
        next,
    }))
}

fn fail(jid: &str, worker: &str) -> Command {
    let (group, message) = ("g".into(), Bytes::from_static(b"why"));
    Command::Fail(Box::new(Fail {
        jid: jid.into(),
        worker: Some(worker.into()),
        attempt: None,
        group,
        message,
        data: None,
    }))
}

fn retry(jid: &str, worker: &str, delay: f64) -> Command {
    Command::Retry(Box::new(Retry {
        jid: jid.into(),
        queue: None,
        worker: worker.into(),
        attempt: None,
        delay,
        group: None,
        message: None,
    }))
}

#[test]
fn every_step_of_a_life_is_told_once_in_every_dialect() {
    for rules in [Rules::NATIVE, Rules::QLESS, Rules::REQLESS, Rules::OLDER] {
        let mut rig = Rig::new(rules);
        assert_eq!(rig.told(1.0, new("a")), ["put a q waiting"]);
        assert_eq!(rig.told(2.0, pop("w")), ["popped a q w running"]);
        assert_eq!(rig.told(3.0, complete("a", "w", Some("next"))), ["advanced a q w waiting next"]);
        assert_eq!(rig.told(4.0, new("b")), ["put b q waiting"]);
        assert_eq!(rig.told(5.0, pop("w")), ["popped b q w running"]);
        assert_eq!(rig.told(6.0, retry("b", "w", 5.0)), ["retried b q w scheduled"]);
        assert_eq!(rig.told(20.0, pop("w")), ["ready b q w waiting", "popped b q w running"]);
        assert_eq!(rig.told(21.0, fail("b", "w")), ["failed b q w failed g"]);
        let unfail = Command::Unfail { queue: "q".into(), group: "g".into(), count: 1 };
        assert_eq!(rig.told(22.0, unfail), ["requeued b q waiting g"]);
        assert_eq!(rig.told(23.0, pop("w")), ["popped b q w running"]);
        assert_eq!(rig.told(24.0, complete("b", "w", None)), ["completed b q w complete"]);
        assert_eq!(rig.told(25.0, new("c")), ["put c q waiting"]);
        assert_eq!(rig.told(26.0, Command::Cancel { jids: vec!["c".into()] }), ["canceled c q waiting"]);
        assert_eq!(rig.told(27.0, Command::AllQueueCounts), Vec::<String>::new());
    }
}

#[test]
fn a_lock_that_is_lost_names_the_worker_and_why() {
    let mut rig = Rig::new(Rules::NATIVE);
    rig.told(1.0, new("a"));
    rig.told(2.0, pop("w"));
    assert_eq!(rig.told(100.0, pop("v")), ["lock_lost a q w running expired", "popped a q v running"]);
    assert_eq!(
        rig.told(200.0, pop("w")),
        ["lock_lost a q v running expired", "failed a q v failed failed-retries-q"]
    );
    rig.told(201.0, new("a"));
    rig.told(202.0, pop("w"));
    assert_eq!(
        rig.told(203.0, Command::Timeout { jids: vec!["a".into()] }),
        ["lock_lost a q w stalled released"]
    );
    rig.told(204.0, pop("w"));
    assert_eq!(rig.told(205.0, new("a")), ["lock_lost a q w running moved", "put a q waiting"]);
}

#[test]
fn what_is_about_no_attempt_is_told_too() {
    let mut rig = Rig::new(Rules::NATIVE);
    rig.told(1.0, new("a"));
    let jid = || Name::from("a");
    assert_eq!(rig.told(2.0, Command::Priority { jid: jid(), priority: 7.0 }), ["priority a q waiting 7"]);
    let tags = || vec!["x".into(), "y".into()];
    assert_eq!(
        rig.told(2.0, Command::Tag { jid: jid(), tags: tags() }),
        ["tagged a q waiting x", "tagged a q waiting y"]
    );
    assert_eq!(
        rig.told(2.0, Command::Untag { jid: jid(), tags: vec!["x".into()] }),
        ["untagged a q waiting x"]
    );
    assert_eq!(rig.told(2.0, Command::Track { jid: jid() }), ["tracked a q waiting"]);
    assert_eq!(rig.told(2.0, Command::Untrack { jid: jid() }), ["untracked a q waiting"]);
    let log = Command::Log { jid: jid(), message: "hello".into(), data: None };
    assert_eq!(rig.told(2.0, log), ["logged a q waiting hello"]);
    let pause = |paused| Command::Pause { queues: vec!["q".into()], paused };
    assert_eq!(rig.told(2.0, pause(true)), ["paused q"]);
    assert_eq!(rig.told(2.0, pause(false)), ["unpaused q"]);
    let set = Command::ConfigSet { option: "o".into(), value: "1".into() };
    assert_eq!(rig.told(2.0, set), ["config_set o"]);
    assert_eq!(rig.told(2.0, Command::ConfigUnset { option: "o".into() }), ["config_unset o"]);
    assert_eq!(rig.told(2.0, Command::Flush), ["flushed"]);
}

#[test]
fn a_run_and_a_wait_begin_where_the_job_was_available() {
    let mut rig = Rig::new(Rules::NATIVE);
    let mut last = |now: f64, command| {
        let call = Call { tenant: "t".into(), now, clock: now, rules: Rules::NATIVE, command };
        rig.engine.apply(call).unwrap();
        let notice = rig.engine.take_notices().pop().unwrap();
        (notice.kind, notice.since.round(), notice.attempt)
    };
    let first = 1_700_000_000.0;
    last(first, new("a"));
    assert_eq!(last(first + 10.0, pop("w")), (Kind::Popped, first, 1));
    assert_eq!(last(first + 30.0, retry("a", "w", 0.0)), (Kind::Retried, first + 10.0, 1));
    assert_eq!(last(first + 40.0, pop("w")), (Kind::Popped, first + 30.0, 2));
    assert_eq!(last(first + 45.0, complete("a", "w", None)), (Kind::Completed, first + 40.0, 2));
}

#[test]
fn nobody_listens_nothing_is_collected() {
    let mut rig = Rig::new(Rules::NATIVE);
    rig.engine.listen(false);
    assert_eq!(rig.told(1.0, new("a")), Vec::<String>::new());
    assert_eq!(rig.told(2.0, pop("w")), Vec::<String>::new());
    assert_eq!(rig.told(2.0, Command::Flush), Vec::<String>::new());
}
