//! Recurring definitions that follow a cron schedule, are paused, or are run by hand.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may fail by panicking")]

use bytes::Bytes;
use haul_engine::{
    CRON_BACKLOG_MAX, CRON_BYTES_MAX, Call, Command, Cron, Engine, Loader, Lock, Name, Pop, RecurChange,
    RecurPut, Refusal, Reply, Rules,
};

/// 2026-03-28 00:00 UTC, a Saturday; in Berlin clocks go forward the night after.
const SATURDAY: f64 = 1_774_656_000.0;
const HOUR: f64 = 3600.0;

fn call(now: f64, command: Command) -> Call {
    Call { tenant: "".into(), now, clock: now, rules: Rules::NATIVE, command }
}

fn recur(cron: Option<Cron>, backlog: f64) -> Command {
    Command::Recur(Box::new(RecurPut {
        jid: "r".into(),
        queue: "q".into(),
        klass: "k".into(),
        data: Bytes::from_static(b"{}"),
        interval: 60.0,
        offset: 60.0,
        cron,
        priority: 0.0,
        retries: 5.0,
        backlog,
        tags: vec![],
        throttles: vec![],
    }))
}

fn cron(text: &str, zone: &str) -> Option<Cron> {
    Some(Cron::parse(text, zone).unwrap())
}

fn pop(engine: &mut Engine, now: f64, count: usize) -> Vec<String> {
    let pop = Pop {
        worker: "w".into(),
        queues: vec!["q".into()],
        round_robin: false,
        count,
        lock: Lock::Seconds(1e9),
        klasses: vec![],
    };
    let Reply::Jobs(jobs) = engine.apply(call(now, Command::Pop(pop))).unwrap() else { panic!() };
    jobs.iter().map(|job| job.jid.to_string()).collect()
}

fn next(engine: &mut Engine) -> f64 {
    let got = engine.apply(call(SATURDAY, Command::RecurGet { jid: "r".into() })).unwrap();
    let Reply::Recur(Some(recur)) = got else { panic!() };
    recur.next
}

fn change(engine: &mut Engine, now: f64, change: RecurChange) {
    let command = Command::RecurUpdate { jid: "r".into(), changes: vec![change] };
    engine.apply(call(now, command)).unwrap();
}

#[test]
fn a_schedule_is_read_in_its_time_zone_and_follows_its_clocks() {
    let nine = Cron::parse("0 9 * * *", "Europe/Berlin").unwrap();
    let saturday = nine.after(SATURDAY).unwrap();
    assert_eq!(saturday, SATURDAY + 8.0 * HOUR);
    // One hour is missing in that night.
    assert_eq!(nine.after(saturday).unwrap(), saturday + 23.0 * HOUR);
    assert_eq!(Cron::parse("0 9 * * *", "").unwrap().after(SATURDAY), Some(SATURDAY + 9.0 * HOUR));
    assert_eq!(Cron::parse("*/10 * * * * *", "UTC").unwrap().after(SATURDAY), Some(SATURDAY + 10.0));
    assert_eq!(Cron::parse("@hourly", "UTC").unwrap().after(SATURDAY + 1.0), Some(SATURDAY + HOUR));
    assert!(nine.words().contains("9:00") && nine.words().contains("Europe/Berlin"), "{}", nine.words());
}

#[test]
fn what_is_no_schedule_is_refused_in_words() {
    for (text, zone) in [("", ""), ("* * *", ""), ("61 * * * *", ""), ("0 9 * * *", "Nowhere/City")] {
        assert!(Cron::parse(text, zone).is_err(), "{text:?} {zone:?}");
    }
    let list = |length: usize| format!("{:0>width$} * * * *", 1, width = length - 8);
    let long = Cron::parse(&list(CRON_BYTES_MAX + 1), "").unwrap_err();
    assert!(long.contains("cron-bytes-max"), "{long}");
    assert!(!Cron::parse(&list(CRON_BYTES_MAX), "").is_err_and(|error| error.contains("cron-bytes-max")));
    let mut engine = Engine::default();
    let never = engine.apply(call(SATURDAY, recur(cron("0 0 30 2 *", ""), 1.0)));
    assert!(matches!(never, Err(Refusal::BadArgument(words)) if words.contains("never comes")));
    assert!(engine.apply(call(SATURDAY, recur(cron("0 0 * * *", ""), CRON_BACKLOG_MAX))).is_ok());
    let many = engine.apply(call(SATURDAY, recur(cron("0 0 * * *", ""), CRON_BACKLOG_MAX + 1.0)));
    assert!(matches!(many, Err(Refusal::BadArgument(words)) if words.contains("cron-backlog-max")));
}

#[test]
fn each_moment_makes_one_job_and_missed_ones_as_many_as_the_backlog_says() {
    for (backlog, made) in [(0.0, 5), (1.0, 1), (3.0, 3), (9.0, 5)] {
        let mut engine = Engine::default();
        engine.apply(call(SATURDAY, recur(cron("0 * * * *", ""), backlog))).unwrap();
        assert!(pop(&mut engine, SATURDAY + HOUR - 1.0, 10).is_empty());
        assert_eq!(pop(&mut engine, SATURDAY + 5.0 * HOUR + 60.0, 10).len(), made, "backlog {backlog}");
        assert_eq!(next(&mut engine), SATURDAY + 6.0 * HOUR);
        assert!(pop(&mut engine, SATURDAY + 5.5 * HOUR, 10).is_empty());
        assert_eq!(pop(&mut engine, SATURDAY + 6.0 * HOUR, 10).len(), 1);
    }
}

#[test]
fn a_paused_definition_makes_nothing_and_holds_up_nobody() {
    for schedule in [cron("* * * * *", ""), None] {
        let mut engine = Engine::default();
        engine.apply(call(SATURDAY, recur(schedule, 0.0))).unwrap();
        change(&mut engine, SATURDAY, RecurChange::Paused(true));
        assert!(pop(&mut engine, SATURDAY + 600.0, 10).is_empty());
        // Defined anew by whoever starts, it stays as its operator wants it.
        engine.apply(call(SATURDAY + 600.0, recur(cron("* * * * *", ""), 0.0))).unwrap();
        assert!(pop(&mut engine, SATURDAY + 660.0, 10).is_empty());
        change(&mut engine, SATURDAY + 690.0, RecurChange::Paused(false));
        assert!(pop(&mut engine, SATURDAY + 719.0, 10).is_empty());
        assert_eq!(pop(&mut engine, SATURDAY + 720.0, 10), ["r-1"]);
        assert!(engine.audit().is_empty());
    }
}

#[test]
fn an_interval_goes_on_after_a_pause_without_making_up() {
    let mut engine = Engine::default();
    engine.apply(call(SATURDAY, recur(None, 0.0))).unwrap();
    change(&mut engine, SATURDAY, RecurChange::Paused(true));
    change(&mut engine, SATURDAY + 600.0, RecurChange::Paused(false));
    assert_eq!(next(&mut engine), SATURDAY + 660.0);
}

#[test]
fn run_by_hand_makes_one_job_of_it_and_leaves_its_time() {
    let mut engine = Engine::default();
    engine.apply(call(SATURDAY, recur(cron("@daily", ""), 1.0))).unwrap();
    let run = Command::RecurRun { jid: "r".into() };
    let Reply::Name(jid) = engine.apply(call(SATURDAY + 5.0, run.clone())).unwrap() else { panic!() };
    assert_eq!(jid, Name::from("r-1"));
    assert_eq!(next(&mut engine), SATURDAY + 24.0 * HOUR);
    assert_eq!(pop(&mut engine, SATURDAY + 5.0, 10), ["r-1"]);
    assert_eq!(pop(&mut engine, SATURDAY + 24.0 * HOUR, 10), ["r-2"]);
    engine.apply(call(SATURDAY, Command::Unrecur { jid: "r".into() })).unwrap();
    assert!(matches!(engine.apply(call(SATURDAY, run)), Err(Refusal::NoRecur { .. })));
}

#[test]
fn schedules_and_intervals_replace_each_other() {
    let mut engine = Engine::default();
    engine.apply(call(SATURDAY, recur(None, 0.0))).unwrap();
    change(&mut engine, SATURDAY, RecurChange::Cron(Cron::parse("0 12 * * *", "").unwrap()));
    assert_eq!(next(&mut engine), SATURDAY + 12.0 * HOUR);
    change(&mut engine, SATURDAY + 10.0, RecurChange::Interval(30.0));
    assert_eq!(next(&mut engine), SATURDAY + 40.0);
    assert_eq!(pop(&mut engine, SATURDAY + 70.0, 10).len(), 2);
}

#[test]
fn schedule_and_pause_are_stored() {
    let mut engine = Engine::default();
    engine.apply(call(SATURDAY, recur(cron("0 9 * * *", "Europe/Berlin"), 1.0))).unwrap();
    change(&mut engine, SATURDAY, RecurChange::Paused(true));
    let mut loader = Loader::default();
    for (key, value) in engine.take_changes().puts {
        loader.header(&key, &value).unwrap();
    }
    let mut again = loader.finish();
    let get = |engine: &mut Engine| match engine.apply(call(SATURDAY, Command::RecurGet { jid: "r".into() }))
    {
        Ok(Reply::Recur(Some(recur))) => *recur,
        _ => panic!(),
    };
    assert_eq!(get(&mut again), get(&mut engine));
    assert!(get(&mut again).paused);
    assert!(pop(&mut again, SATURDAY + 240.0 * HOUR, 5).is_empty());
}
