//! The stored form of every noun, as bytes in `fixtures/records-v1.txt`. A difference means that old data is read
//! differently: follow the steps in `record.rs` instead of changing the fixture.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test may fail by panicking"
)]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use haul_engine::*;

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/records-v1.txt")
}

fn call(now: f64, command: Command) -> Call {
    Call { tenant: Name::from("t"), now, clock: now, rules: Rules::QLESS, command }
}

fn put(jid: &str, tags: &[&str], depends: &[&str]) -> Command {
    Command::Put(Box::new(Put {
        jid: jid.into(),
        queue: "q".into(),
        worker: None,
        klass: Some("k".into()),
        data: Some(Bytes::from(vec![b'1'; 60])),
        delay: 0.0,
        priority: Some(1.5),
        tags: Some(tags.iter().map(|tag| Name::from(*tag)).collect()),
        retries: Some(5.0),
        depends: depends.iter().map(|jid| Name::from(*jid)).collect(),
        throttles: vec!["t".into()],
        when: PutWhen::Always,
        trace: None,
    }))
}

/// One of everything.
fn engine() -> Engine {
    let mut engine = Engine::default();
    let pop = Pop {
        worker: "w".into(),
        queues: vec!["q".into()],
        round_robin: false,
        count: 1,
        lock: Lock::Option,
        klasses: Vec::new(),
    };
    let fail = Fail {
        jid: "a".into(),
        worker: Some("w".into()),
        attempt: None,
        group: "g".into(),
        message: Bytes::from_static(b"m"),
        data: None,
    };
    let recur = RecurPut {
        jid: "r".into(),
        queue: "q".into(),
        klass: "k".into(),
        data: Bytes::from_static(b"{}"),
        interval: 60.0,
        offset: 5.0,
        cron: None,
        priority: 0.0,
        retries: 1.0,
        backlog: 2.0,
        tags: vec!["x".into()],
        throttles: vec![],
    };
    let commands = [
        Command::ThrottleSet { id: "t".into(), maximum: 3.0, ttl: 0.0 },
        Command::ConfigSet { option: "heartbeat".into(), value: "30".into() },
        put("a", &["x"], &[]),
        Command::Pop(pop),
        Command::Fail(Box::new(fail)),
        put("b", &[], &["a"]),
        put("c", &["y"], &[]),
        Command::Track { jid: "c".into() },
        Command::Log { jid: "c".into(), message: "hello".into(), data: Some(Bytes::from_static(b"{}")) },
        Command::Recur(Box::new(recur)),
        Command::Pause { queues: vec!["p".into()], paused: true },
        Command::Keyspace(KeyCommand::Set { key: "s".into(), value: "v".into(), ttl: None, only_if: None }),
    ];
    for (second, command) in commands.into_iter().enumerate() {
        engine.apply(call(second as f64, command)).unwrap();
    }
    engine
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn records_are_written_as_in_format_1() {
    let changes = engine().take_changes();
    let mut lines: Vec<String> =
        changes.puts.iter().map(|(key, value)| format!("{} {}", hex(key), hex(value))).collect();
    lines.sort();
    let text = lines.join("\n") + "\n";
    if std::env::var_os("HAUL_WRITE_FIXTURE").is_some() {
        std::fs::write(fixture(), &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(fixture()).unwrap(), text);
}

#[test]
fn records_of_format_1_are_read() {
    let mut loader = Loader::default();
    for line in std::fs::read_to_string(fixture()).unwrap().lines() {
        let (key, value) = line.split_once(' ').unwrap();
        loader.header(&unhex(key), &unhex(value)).unwrap();
    }
    let mut engine = loader.finish();
    assert_eq!(engine.audit(), []);
    assert_eq!(engine.jobs(), 3);
    let Ok(Reply::Job(Some(job))) = engine.apply(call(20.0, Command::Get { jid: "b".into() })) else {
        panic!()
    };
    assert_eq!((job.state, job.dependencies), (State::Depends, vec![Name::from("a")]));
    let Ok(Reply::Job(Some(job))) = engine.apply(call(20.0, Command::Get { jid: "c".into() })) else {
        panic!()
    };
    assert!(job.tracked && job.history.len() == 2);
}

#[test]
fn a_record_of_a_newer_format_is_refused_by_name() {
    let changes = engine().take_changes();
    let (key, value) = &changes.puts[0];
    let mut newer = value.clone();
    newer[0] = 99;
    let error = Loader::default().header(key, &newer).unwrap_err();
    assert!(error.to_string().contains("format version 99"), "{error}");
    let error = Loader::default().header(key, &value[..value.len() / 2]).unwrap_err();
    assert!(matches!(error, RecordError::Damaged { .. }), "{error}");
}

/// Its records are those of the file (written anew if `HAUL_WRITE_FIXTURE` is set); answers what is loaded from there.
fn stored_as(mut engine: Engine, path: &Path) -> Engine {
    let mut lines: Vec<String> = engine
        .take_changes()
        .puts
        .iter()
        .map(|(key, value)| format!("{} {}", hex(key), hex(value)))
        .collect();
    lines.sort();
    let text = lines.join("\n") + "\n";
    if std::env::var_os("HAUL_WRITE_FIXTURE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    let mut loader = Loader::default();
    for line in text.lines() {
        let (key, value) = line.split_once(' ').unwrap();
        loader.header(&unhex(key), &unhex(value)).unwrap();
    }
    loader.finish()
}

/// The stored form of a job that carries a trace context: the field follows the job's own.
fn traced() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/records-v1-trace.txt")
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn trace_of(engine: &mut Engine, jid: &str) -> Option<Name> {
    match engine.apply(call(20.0, Command::Get { jid: jid.into() })) {
        Ok(Reply::Job(Some(job))) => job.trace,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_trace_context_is_stored_behind_the_job_and_read_again() {
    let mut engine = Engine::default();
    let Command::Put(mut with) = put("a", &[], &[]) else { panic!() };
    with.trace = Some(TRACE.into());
    engine.apply(call(1.0, Command::Put(with))).unwrap();
    engine.apply(call(1.0, put("b", &[], &[]))).unwrap();
    let mut engine = stored_as(engine, &traced());
    assert_eq!(trace_of(&mut engine, "a"), Some(TRACE.into()));
    assert_eq!(trace_of(&mut engine, "b"), None);
    // A put that brings none keeps it.
    engine.apply(call(2.0, put("a", &[], &[]))).unwrap();
    assert_eq!(trace_of(&mut engine, "a"), Some(TRACE.into()));
}

#[test]
fn a_field_of_a_later_build_is_passed_over_and_a_cut_one_is_damage() {
    let mut engine = Engine::default();
    engine.apply(call(1.0, put("a", &[], &[]))).unwrap();
    let changes = engine.take_changes();
    let (key, value) = changes.puts.iter().find(|(key, _)| key[0] == b'j').unwrap();
    let later = [value, &[200, 3, 0, 0, 0, 1, 2, 3][..]].concat();
    Loader::default().header(key, &later).unwrap();
    let trace = [&later, &[1, 1, 0, 0, 0, b't'][..]].concat();
    let mut loader = Loader::default();
    loader.header(key, &trace).unwrap();
    assert_eq!(trace_of(&mut loader.finish(), "a"), Some("t".into()));
    for end in value.len() + 1..later.len() {
        let error = Loader::default().header(key, &later[..end]).unwrap_err();
        assert!(matches!(error, RecordError::Damaged { .. }), "{error}");
    }
}

/// The stored forms of what running jobs and workers say of themselves, and of Blueque's tasks with what is kept beside them.
fn running() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/records-v1-running.txt")
}

fn task(command: TaskCommand) -> (Rules, Command) {
    (Rules::BLUEQUE, Command::Task(command))
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// A job that reports, a worker that drains; a task that runs with fields of its own, one that has failed, a listener, a
/// counter.
fn running_engine() -> Engine {
    let pop = Pop {
        worker: "w".into(),
        queues: vec!["q".into()],
        round_robin: false,
        count: 1,
        lock: Lock::Seconds(60.0),
        klasses: vec!["k".into()],
    };
    let report = Report {
        jid: "a".into(),
        worker: "w".into(),
        attempt: Some(1),
        percent: Some(40.0),
        message: Some("copying".into()),
        output: Some(text("a log")),
        output_bytes: Some(9000),
        checkpoint: Some(text("{\"row\":7}")),
    };
    let pairs = |pairs: &[(&str, &'static str)]| {
        pairs.iter().map(|(name, value)| (Name::from(*name), text(value))).collect()
    };
    let native = |command| (Rules::NATIVE, command);
    let hash = |jid: &str, fields: &[(&str, &'static str)]| TaskCommand::HashSet {
        key: format!("blueque_task_{jid}").into(),
        pairs: pairs(fields),
    };
    let move_on = TaskCommand::Move {
        from: "blueque_pending_tasks_b".into(),
        to: "blueque_reserved_tasks_b_h_1".into(),
    };
    let commands = [
        native(Command::Register {
            worker: "w".into(),
            facts: "{\"pid\":7}".into(),
            is_new: true,
            draining: false,
        }),
        native(put("a", &[], &[])),
        native(Command::Pop(pop)),
        native(Command::Report(Box::new(report))),
        native(Command::Drain { worker: "w".into(), drain: true }),
        task(TaskCommand::SetAdd { key: "blueque_listeners_b".into(), members: vec!["h_1".into()] }),
        task(TaskCommand::ScoreIncrement { key: "blueque_queues".into(), by: 1.0, member: "b".into() }),
        task(hash("t1", &[("status", "pending"), ("queue", "b"), ("parameters", "some"), ("own", "field")])),
        task(TaskCommand::Push {
            key: "blueque_pending_tasks_b".into(),
            values: vec!["t1".into()],
            left: true,
        }),
        task(move_on),
        task(hash("t1", &[("status", "started"), ("node", "h_1"), ("pid", "77")])),
        task(hash("t2", &[("status", "failed"), ("queue", "b"), ("parameters", "[]"), ("error", "no")])),
        task(TaskCommand::Push {
            key: "blueque_failed_tasks_b".into(),
            values: vec!["t2".into()],
            left: true,
        }),
    ];
    let mut engine = Engine::default();
    for (second, (rules, command)) in commands.into_iter().enumerate() {
        let now = second as f64;
        engine.apply(Call { tenant: "t".into(), now, clock: now, rules, command }).unwrap();
    }
    engine
}

#[test]
fn running_jobs_and_tasks_are_stored_behind_the_job_and_read_again() {
    let mut engine = stored_as(running_engine(), &running());
    assert_eq!(engine.audit(), []);
    let mut original = running_engine();
    let mut ask = |command: Command| {
        let call = Call { tenant: "t".into(), now: 20.0, clock: 20.0, rules: Rules::BLUEQUE, command };
        let (read, written) = (engine.apply(call.clone()), original.apply(call));
        assert_eq!(format!("{read:?}"), format!("{written:?}"));
        format!("{read:?}")
    };
    for jid in ["a", "t1", "t2"] {
        let shown = ask(Command::Get { jid: jid.into() });
        assert!(shown.starts_with("Ok(Job(Some("), "{shown}");
    }
    assert!(ask(Command::Workers).contains("pid"));
    let fields = ask(Command::Key(KeyQuery::Hash { key: "blueque_task_t1".into() }));
    assert!(["own", "started", "h_1", "77"].iter().all(|part| fields.contains(part)), "{fields}");
    let listeners = ask(Command::Key(KeyQuery::Set { key: "blueque_listeners_b".into() }));
    assert!(listeners.contains("h_1"), "{listeners}");
    let failed = KeyQuery::List { key: "blueque_failed_tasks_b".into(), start: 0, stop: -1 };
    assert!(ask(Command::Key(failed)).contains("t2"));
    ask(Command::Key(KeyQuery::Score { key: "blueque_queues".into(), member: "b".into() }));
    let counts = ask(Command::QueueCounts { queue: "b".into() });
    assert!(counts.contains("running: 1"), "{counts}");
}
