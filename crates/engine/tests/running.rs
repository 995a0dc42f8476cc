//! What running jobs and workers say of themselves, and pops by klass; all of it after loading the records again too.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

use bytes::Bytes;
use haul_engine::*;

fn ask(engine: &mut Engine, now: f64, command: Command) -> Result<Reply, Refusal> {
    engine.apply(Call { tenant: "t".into(), now, clock: now, rules: Rules::NATIVE, command })
}

fn put(engine: &mut Engine, now: f64, jid: &str, klass: &str) {
    let put = Put {
        jid: jid.into(),
        queue: "q".into(),
        worker: None,
        klass: Some(klass.into()),
        data: Some(Bytes::from_static(b"{}")),
        delay: 0.0,
        priority: None,
        tags: None,
        retries: None,
        depends: Vec::new(),
        throttles: Vec::new(),
        when: PutWhen::Always,
        trace: None,
    };
    ask(engine, now, Command::Put(Box::new(put))).unwrap();
}

fn pop(engine: &mut Engine, now: f64, count: usize, klasses: &[&str]) -> Vec<String> {
    let pop = Pop {
        worker: "w".into(),
        queues: vec!["q".into()],
        round_robin: false,
        count,
        lock: Lock::Seconds(60.0),
        klasses: klasses.iter().map(|klass| Name::from(*klass)).collect(),
    };
    let Ok(Reply::Jobs(jobs)) = ask(engine, now, Command::Pop(pop)) else { panic!("no jobs") };
    jobs.iter().map(|job| job.jid.display().into_owned()).collect()
}

fn report(attempt: u32) -> Report {
    Report {
        jid: "a".into(),
        worker: "w".into(),
        attempt: Some(attempt),
        percent: None,
        message: None,
        output: None,
        output_bytes: None,
        checkpoint: None,
    }
}

fn get(engine: &mut Engine, jid: &str) -> JobView {
    let Ok(Reply::Job(Some(job))) = ask(engine, 0.0, Command::Get { jid: jid.into() }) else {
        panic!("no job")
    };
    *job
}

/// The same engine, from what it stored.
fn loaded(engine: &mut Engine) -> Engine {
    let mut loader = Loader::default();
    for (key, value) in engine.take_changes().puts {
        loader.header(&key, &value).unwrap();
    }
    let engine = loader.finish();
    assert_eq!(engine.audit(), []);
    engine
}

#[test]
fn a_report_is_kept_and_a_checkpoint_outlives_the_attempt() {
    let mut engine = Engine::default();
    put(&mut engine, 0.0, "a", "k");
    assert_eq!(pop(&mut engine, 1.0, 1, &[]), ["a"]);
    let long = Bytes::from(vec![b'x'; 500]);
    let first = Report {
        percent: Some(40.0),
        output: Some(long),
        output_bytes: Some(9000),
        checkpoint: Some(Bytes::from_static(b"7")),
        ..report(1)
    };
    ask(&mut engine, 2.0, Command::Report(Box::new(first))).unwrap();
    let next = Report { message: Some("copying".into()), ..report(1) };
    ask(&mut engine, 3.0, Command::Report(Box::new(next))).unwrap();
    let mut engine = loaded(&mut engine);
    let found = get(&mut engine, "a").report.unwrap();
    assert_eq!((found.percent, found.output_bytes, found.attempt), (Some(40.0), 9000, 1));
    assert_eq!(found.message, Some("copying".into()));
    assert!(found.output.is_some_and(|output| output.body().is_some()));
    // The next attempt begins with the checkpoint, and its first report clears the rest.
    assert_eq!(pop(&mut engine, 100.0, 1, &[]), ["a"]);
    let refused = ask(&mut engine, 101.0, Command::Report(Box::new(report(1))));
    assert!(matches!(refused, Err(Refusal::NotHeld { .. })));
    ask(&mut engine, 101.0, Command::Report(Box::new(Report { percent: Some(1.0), ..report(2) }))).unwrap();
    let found = get(&mut engine, "a").report.unwrap();
    assert_eq!((found.percent, found.message.clone(), found.output.clone()), (Some(1.0), None, None));
    assert!(found.checkpoint.is_some());
    let complete = Complete {
        jid: "a".into(),
        worker: Some("w".into()),
        queue: None,
        attempt: Some(2),
        data: None,
        result: None,
        next: None,
    };
    ask(&mut engine, 102.0, Command::Complete(Box::new(complete))).unwrap();
    let found = get(&mut engine, "a").report.unwrap();
    assert_eq!((found.percent, found.checkpoint), (Some(1.0), None));
    assert_eq!(engine.audit(), []);
}

#[test]
fn a_report_of_a_job_that_does_not_run_is_refused() {
    let mut engine = Engine::default();
    let refused = ask(&mut engine, 0.0, Command::Report(Box::new(report(1))));
    assert!(matches!(refused, Err(Refusal::NoJob { .. })));
    put(&mut engine, 0.0, "a", "k");
    let refused = ask(&mut engine, 0.0, Command::Report(Box::new(report(1))));
    assert!(matches!(refused, Err(Refusal::NotRunning { .. })));
}

#[test]
fn a_pop_by_klass_passes_over_the_others_up_to_its_bound() {
    let mut engine = Engine::default();
    for n in 0..KLASS_WALK_MAX {
        put(&mut engine, n as f64, &format!("other{n}"), "other");
    }
    put(&mut engine, 1e6, "wanted", "k");
    assert_eq!(pop(&mut engine, 2e6, 1, &["k"]), Vec::<String>::new(), "one past the bound");
    assert_eq!(pop(&mut engine, 2e6, 1, &["other"]), ["other0"]);
    assert_eq!(pop(&mut engine, 2e6, 5, &["k", "l"]), ["wanted"], "at the bound");
    // A lock that ran out is handed over only to who takes the klass.
    assert_eq!(pop(&mut engine, 3e6, 1, &["l"]), Vec::<String>::new());
    assert_eq!(pop(&mut engine, 3e6, 1, &["k"]), ["wanted"]);
    assert_eq!(engine.audit(), []);
}

fn worker(engine: &mut Engine, now: f64) -> (Life, Option<Name>) {
    let Ok(Reply::Workers(workers)) = ask(engine, now, Command::Workers) else { panic!("no workers") };
    let found = workers.into_iter().find(|worker| worker.name == "w".into()).unwrap();
    (found.life, found.facts)
}

#[test]
fn workers_register_drain_and_fall_silent() {
    let mut engine = Engine::default();
    let register =
        |is_new, draining| Command::Register { worker: "w".into(), facts: "{}".into(), is_new, draining };
    let drain = || Command::Drain { worker: "w".into(), drain: true };
    assert!(matches!(ask(&mut engine, 0.0, drain()), Ok(Reply::Bool(false))));
    assert!(matches!(ask(&mut engine, 0.0, register(true, false)), Ok(Reply::Bool(false))));
    assert_eq!(worker(&mut engine, 30.0), (Life::Alive, Some("{}".into())));
    assert_eq!(worker(&mut engine, 31.0).0, Life::Silent);
    assert_eq!(worker(&mut engine, 301.0).0, Life::Gone);
    assert!(matches!(ask(&mut engine, 1.0, drain()), Ok(Reply::Bool(true))));
    let mut engine = loaded(&mut engine);
    assert_eq!(worker(&mut engine, 2.0), (Life::Draining, Some("{}".into())));
    assert!(matches!(ask(&mut engine, 3.0, register(false, false)), Ok(Reply::Bool(true))));
    assert!(matches!(ask(&mut engine, 4.0, register(true, false)), Ok(Reply::Bool(false))));
    assert!(matches!(ask(&mut engine, 5.0, register(false, true)), Ok(Reply::Bool(true))));
}
