//! What went wrong once. All of it was found with the simulator (crates/sim), or while writing its model from the
//! specification.

#![allow(clippy::panic, clippy::expect_used, reason = "a test may fail by panicking")]

use bytes::Bytes;
use haul_engine::{
    Call, Command, Complete, Engine, Fail, Heartbeat, Lock, Name, Pop, Put, PutWhen, RecurPut, Refusal,
    Reply, Rules, State,
};

fn ask(engine: &mut Engine, now: f64, command: Command) -> Result<Reply, Refusal> {
    engine.apply(Call { tenant: "".into(), now, clock: now, rules: Rules::REQLESS, command })
}

fn ok(engine: &mut Engine, now: f64, command: Command) -> Reply {
    let reply = ask(engine, now, command).expect("not refused");
    let findings = engine.audit();
    assert!(findings.is_empty(), "{findings:?}");
    reply
}

fn put(jid: &str, queue: &str) -> Put {
    Put {
        jid: jid.into(),
        queue: queue.into(),
        worker: None,
        klass: Some("klass".into()),
        data: Some(Bytes::from_static(b"{}")),
        delay: 0.0,
        priority: None,
        tags: None,
        retries: None,
        depends: Vec::new(),
        throttles: Vec::new(),
        when: PutWhen::Always,
        trace: None,
    }
}

fn put_throttled(jid: &str, queue: &str, throttles: &[&str]) -> Command {
    let throttles = throttles.iter().map(|id| (*id).into()).collect();
    Command::Put(Box::new(Put { throttles, ..put(jid, queue) }))
}

fn pop_for(worker: &str, queue: &str, seconds: f64) -> Command {
    let (worker, queues, lock) = (worker.into(), vec![queue.into()], Lock::Seconds(seconds));
    Command::Pop(Pop { worker, queues, round_robin: false, count: 10, lock, klasses: Vec::new() })
}

fn limit(id: &str, maximum: f64) -> Command {
    Command::ThrottleSet { id: id.into(), maximum, ttl: 0.0 }
}

fn jids(reply: Reply) -> Vec<Name> {
    match reply {
        Reply::Jobs(jobs) => jobs.into_iter().map(|job| job.jid).collect(),
        Reply::Names(names) => names,
        other => panic!("{other:?}"),
    }
}

fn state(engine: &mut Engine, jid: &str) -> State {
    match ok(engine, 0.0, Command::Get { jid: jid.into() }) {
        Reply::Job(Some(job)) => job.state,
        other => panic!("{other:?}"),
    }
}

fn names(of: &[&str]) -> Vec<Name> {
    of.iter().map(|name| (*name).into()).collect()
}

#[test]
fn a_list_of_puts_is_checked_as_if_done_in_order() {
    // A put of a new job did not see that an earlier one of the list had made it, and one of an existing job was
    // refused although an earlier one makes it.
    let mut engine = Engine::default();
    let with = |when| Put { when, ..put("j", "q") };
    let twice = Command::PutMany(vec![with(PutWhen::Always), with(PutWhen::New)]);
    assert!(matches!(ask(&mut engine, 1.0, twice), Err(Refusal::Exists { .. })));
    assert_eq!(engine.jobs(), 0);
    ok(&mut engine, 1.0, Command::PutMany(vec![with(PutWhen::New), with(PutWhen::Exists)]));
}

#[test]
fn the_old_queues_throttle_does_not_move_along() {
    // Clients send back all throttles a job shows; the old queue's own stayed on the job in its new queue.
    let mut engine = Engine::default();
    ok(&mut engine, 1.0, put_throttled("j", "a", &[]));
    ok(&mut engine, 2.0, put_throttled("j", "b", &["t", "ql:q:a"]));
    let Reply::Job(Some(job)) = ok(&mut engine, 2.0, Command::Get { jid: "j".into() }) else {
        panic!("no job")
    };
    assert_eq!(job.throttles, names(&["t", "ql:q:b"]));
}

#[test]
fn a_job_may_hold_the_throttle_of_another_queue() {
    // Its lock was noted but not counted, so that the other queue's limit did not hold.
    let mut engine = Engine::default();
    ok(&mut engine, 1.0, limit("ql:q:b", 1.0));
    ok(&mut engine, 1.0, put_throttled("j1", "a", &["ql:q:b"]));
    ok(&mut engine, 1.0, put_throttled("j2", "b", &[]));
    assert_eq!(jids(ok(&mut engine, 2.0, pop_for("w", "a", 60.0))), names(&["j1"]));
    assert_eq!(jids(ok(&mut engine, 2.0, Command::ThrottleLocks { id: "ql:q:b".into() })), names(&["j1"]));
    assert!(jids(ok(&mut engine, 2.0, pop_for("w", "b", 60.0))).is_empty());
}

#[test]
fn a_throttle_named_twice_is_held_once() {
    // It was noted twice and released once: the job went on holding a lock that no throttle knew of.
    let mut engine = Engine::default();
    ok(&mut engine, 1.0, put_throttled("j", "q", &["t", "t"]));
    ok(&mut engine, 1.0, pop_for("w", "q", 60.0));
    ok(&mut engine, 2.0, Command::ThrottleRelease { id: "t".into(), jids: names(&["j"]) });
    assert!(jids(ok(&mut engine, 2.0, Command::ThrottleLocks { id: "t".into() })).is_empty());
}

#[test]
fn a_lock_released_by_hand_does_not_come_back_when_the_job_is_handed_over() {
    let mut engine = Engine::default();
    ok(&mut engine, 0.0, Command::ConfigSet { option: "grace-period".into(), value: "0".into() });
    ok(&mut engine, 1.0, put_throttled("j", "q", &[]));
    ok(&mut engine, 1.0, pop_for("w1", "q", 1.0));
    ok(&mut engine, 1.0, Command::ThrottleRelease { id: "ql:q:q".into(), jids: names(&["j"]) });
    assert_eq!(jids(ok(&mut engine, 5.0, pop_for("w2", "q", 60.0))), names(&["j"]));
    assert!(jids(ok(&mut engine, 5.0, Command::ThrottleLocks { id: "ql:q:q".into() })).is_empty());
}

#[test]
fn jobs_about_to_be_handed_over_keep_their_place_under_the_limit() {
    // j1 is handed over and j2 fails for good in the same pop. While j2's lock was given back, j1's was not counted,
    // and one job too many was let go on.
    let mut engine = Engine::default();
    ok(&mut engine, 0.0, Command::ConfigSet { option: "grace-period".into(), value: "0".into() });
    ok(&mut engine, 0.0, limit("ql:q:q", 2.0));
    ok(&mut engine, 1.0, put_throttled("j1", "q", &[]));
    ok(&mut engine, 1.0, Command::Put(Box::new(Put { retries: Some(0.0), ..put("j2", "q") })));
    assert_eq!(jids(ok(&mut engine, 1.0, pop_for("w", "q", 1.0))).len(), 2);
    for jid in ["j3", "j4"] {
        ok(&mut engine, 1.0, put_throttled(jid, "q", &[]));
        assert_eq!(state(&mut engine, jid), State::Throttled);
    }
    ok(&mut engine, 5.0, pop_for("w", "q", 60.0));
    let throttled = Command::ThrottlePending { id: "ql:q:q".into() };
    assert_eq!(jids(ok(&mut engine, 5.0, throttled)), names(&["j4"]));
}

#[test]
fn a_negative_maximum_lets_nobody_through() {
    // Only 0 is unlimited; a negative maximum was taken for unlimited too.
    let mut engine = Engine::default();
    ok(&mut engine, 1.0, limit("t", -1.0));
    ok(&mut engine, 1.0, put_throttled("j", "q", &["t"]));
    assert_eq!(state(&mut engine, "j"), State::Throttled);
}

#[test]
fn a_worker_without_a_name_cannot_renew_a_lock() {
    let mut engine = Engine::default();
    ok(&mut engine, 1.0, put_throttled("j", "q", &[]));
    ok(&mut engine, 1.0, pop_for("", "q", 60.0));
    let beat =
        Heartbeat { jid: "j".into(), worker: "".into(), attempt: None, lock: Lock::Option, data: None };
    assert!(matches!(ask(&mut engine, 2.0, Command::Heartbeat(beat)), Err(Refusal::NotHeld { .. })));
}

#[test]
fn a_finished_job_does_not_wait_for_one_that_is_gone() {
    // A job that waits for another can be failed by the older API, and then unfailed and finished. When the other was
    // cancelled, the finished job still named it.
    let mut engine = Engine::default();
    ok(&mut engine, 1.0, put_throttled("first", "a", &[]));
    let second = Put { depends: names(&["first"]), ..put("second", "b") };
    ok(&mut engine, 1.0, Command::Put(Box::new(second)));
    let (group, message) = (Name::from("g"), Bytes::from_static(b"m"));
    let fail = Fail { jid: "second".into(), worker: None, attempt: None, group, message, data: None };
    ok(&mut engine, 1.0, Command::Fail(Box::new(fail)));
    ok(&mut engine, 1.0, Command::Unfail { queue: "b".into(), group: "g".into(), count: 1 });
    ok(&mut engine, 1.0, pop_for("w", "b", 60.0));
    let complete = Complete {
        jid: "second".into(),
        worker: None,
        queue: None,
        attempt: None,
        data: None,
        result: None,
        next: None,
    };
    ok(&mut engine, 1.0, Command::Complete(Box::new(complete)));
    ok(&mut engine, 1.0, Command::Cancel { jids: names(&["first", "second"]) });
    assert_eq!(state(&mut engine, "second"), State::Complete);
}

#[test]
fn a_child_that_replaces_a_running_job_lets_those_behind_it_go_on() {
    // A definition made anew counts its children from 1 again. The old child's lock went with it, and nobody was told.
    let mut engine = Engine::default();
    ok(&mut engine, 0.0, limit("t", 1.0));
    let recur = || recur_every(60.0, &["t"]);
    ok(&mut engine, 1.0, recur());
    assert_eq!(jids(ok(&mut engine, 1.0, pop_for("w", "q", 60.0))), names(&["r-1"]));
    ok(&mut engine, 1.0, put_throttled("j", "other", &["t"]));
    assert_eq!(jids(ok(&mut engine, 1.0, Command::ThrottlePending { id: "t".into() })), names(&["j"]));
    ok(&mut engine, 2.0, Command::Unrecur { jid: "r".into() });
    ok(&mut engine, 2.0, recur());
    ok(&mut engine, 3.0, Command::Peek { queue: "q".into(), offset: 0, count: 5 });
    assert_eq!(jids(ok(&mut engine, 3.0, pop_for("w", "other", 60.0))), names(&["j"]));
}

fn recur_every(interval: f64, throttles: &[&str]) -> Command {
    Command::Recur(Box::new(RecurPut {
        jid: "r".into(),
        queue: "q".into(),
        klass: "klass".into(),
        data: Bytes::from_static(b"{}"),
        interval,
        offset: 0.0,
        cron: None,
        priority: 0.0,
        retries: 5.0,
        backlog: 0.0,
        tags: Vec::new(),
        throttles: names(throttles),
    }))
}

#[test]
fn a_pop_or_peek_makes_a_bounded_number_of_children() {
    // A definition with a tiny interval is due without number, and qless's pop and peek take any count: the call never
    // came back.
    const CHILDREN_MAX: usize = 10_000;
    let mut engine = Engine::default();
    ok(&mut engine, 1e9, recur_every(1e-9, &[]));
    let count = 1 << 50;
    assert_eq!(
        jids(ok(&mut engine, 2e9, Command::Peek { queue: "q".into(), offset: count, count })).len(),
        0
    );
    assert_eq!(engine.jobs(), CHILDREN_MAX);
    let pop = || {
        let (worker, queues) = ("w".into(), names(&["q"]));
        Command::Pop(Pop {
            worker,
            queues,
            round_robin: false,
            count,
            lock: Lock::Option,
            klasses: Vec::new(),
        })
    };
    assert_eq!(jids(ok(&mut engine, 2e9, pop())).len(), 2 * CHILDREN_MAX);
    assert_eq!(engine.audit(), []);
}

#[test]
fn tags_by_the_hundred_thousand_are_taken_on_and_off() {
    // Each was compared with all the others, for minutes.
    let mut engine = Engine::default();
    ok(&mut engine, 1.0, put_throttled("j", "q", &[]));
    let many: Vec<Name> = (0..100_000).map(|number| Name::from(format!("t{number}"))).collect();
    let twice = [many.clone(), many.clone()].concat();
    assert_eq!(jids(ok(&mut engine, 2.0, Command::Tag { jid: "j".into(), tags: twice })), many);
    assert_eq!(engine.audit(), []);
    assert_eq!(jids(ok(&mut engine, 3.0, Command::Untag { jid: "j".into(), tags: many })), []);
    assert_eq!(engine.audit(), []);
}
