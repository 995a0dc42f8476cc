//! Lists a page at a time: every row once, in order, whatever the size of the page.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may fail by panicking")]

use bytes::Bytes;
use haul_engine::{
    Call, Command, Engine, Fail, List, Listing, Lock, Mark, Name, Pop, Put, PutWhen, RecurPut, Reply, Rules,
};

fn call(now: f64, command: Command) -> Call {
    Call { tenant: "".into(), now, clock: now, rules: Rules::NATIVE, command }
}

fn put(jid: String, queue: &str, throttles: &[&str]) -> Command {
    Command::Put(Box::new(Put {
        jid: jid.into(),
        queue: queue.into(),
        worker: None,
        klass: Some("k".into()),
        data: Some(Bytes::from_static(b"{}")),
        delay: 0.0,
        priority: None,
        tags: None,
        retries: None,
        depends: vec![],
        throttles: throttles.iter().map(|id| Name::from(*id)).collect(),
        when: PutWhen::Always,
        trace: None,
    }))
}

fn pop(worker: String, queue: &str) -> Command {
    Command::Pop(Pop {
        worker: worker.into(),
        queues: vec![queue.into()],
        round_robin: false,
        count: 1,
        lock: Lock::Seconds(1000.0),
        klasses: vec![],
    })
}

/// Seven of everything; group g0 has seven jobs, g6 one.
fn engine() -> Engine {
    let mut engine = Engine::default();
    let mut apply = |now: f64, command| drop(engine.apply(call(now, command)).unwrap());
    apply(0.0, Command::ThrottleSet { id: "one".into(), maximum: 1.0, ttl: 0.0 });
    for n in 0..7_u32 {
        let at = f64::from(n);
        apply(at, put(format!("held-{n}"), "held", &["one"]));
        apply(at, put(format!("mine-{n}"), "mine", &[]));
        apply(at, pop("w".into(), "mine"));
        apply(at, put(format!("t-{n}"), &format!("q{n}"), &[]));
        apply(at, Command::Track { jid: format!("t-{n}").into() });
        apply(at, Command::ThrottleSet { id: format!("t{n}").into(), maximum: 1.0, ttl: 0.0 });
        apply(at, Command::ConfigSet { option: format!("o{n}").into(), value: "1".into() });
        for job in n..7 {
            let jid = format!("bad-{n}-{job}");
            apply(at, put(jid.clone(), "bad", &[]));
            apply(at, pop(format!("w{n}"), "bad"));
            let (worker, group) = (Some(format!("w{n}").into()), format!("g{n}").into());
            let message = Bytes::from_static(b"m");
            apply(
                at,
                Command::Fail(Box::new(Fail {
                    jid: jid.into(),
                    worker,
                    attempt: None,
                    group,
                    message,
                    data: None,
                })),
            );
        }
        apply(
            at,
            Command::Recur(Box::new(RecurPut {
                jid: format!("r{n}").into(),
                queue: "recurring".into(),
                klass: "k".into(),
                data: Bytes::from_static(b"{}"),
                interval: 60.0,
                offset: 700.0 - 100.0 * at,
                cron: None,
                priority: 0.0,
                retries: 0.0,
                backlog: 0.0,
                tags: vec![],
                throttles: vec![],
            })),
        );
    }
    for n in 0..7 {
        apply(7.0, pop(format!("x{n}"), "held"));
    }
    engine
}

fn rows(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::AllCounts(all) => all.iter().map(|it| it.name.to_string()).collect(),
        Reply::Workers(all) => all.iter().map(|it| it.name.to_string()).collect(),
        Reply::WorkerJobs { jobs, stalled } => stalled.iter().chain(jobs).map(ToString::to_string).collect(),
        Reply::Groups(all) => all.iter().map(|(name, size)| format!("{name}:{size}")).collect(),
        Reply::Tracked { jobs, expired } => {
            jobs.iter().map(|it| it.jid.to_string()).chain(expired.iter().map(ToString::to_string)).collect()
        }
        Reply::Recurs(all) => all.iter().map(|it| it.jid.to_string()).collect(),
        Reply::Throttles(all) => all.iter().map(|it| it.id.to_string()).collect(),
        Reply::Names(all) => all.iter().map(ToString::to_string).collect(),
        Reply::Options(all) => all.iter().map(|(option, _)| option.to_string()).collect(),
        other => panic!("{other:?}"),
    }
}

fn walk(engine: &mut Engine, what: &Listing, count: usize) -> Vec<String> {
    let (mut all, mut after): (Vec<String>, Option<Mark>) = (vec![], None);
    loop {
        let list = List { what: what.clone(), after, skip: 0, count };
        let reply = engine.apply(call(8.0, Command::List(Box::new(list)))).unwrap();
        let Reply::Listed { rows: page, next, total } = reply else { panic!() };
        assert!(rows(&page).len() <= count);
        all.extend(rows(&page));
        assert!(all.len() <= total);
        let Some(next) = next else {
            assert_eq!(all.len(), total, "{what:?}");
            return all;
        };
        after = Mark::from_bytes(&next.to_bytes());
        assert!(after.is_some());
    }
}

#[test]
fn every_row_comes_once_and_in_order() {
    let mut engine = engine();
    let numbered = |prefix: &str| (0..7).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
    let wanted: [(Listing, Vec<String>); 8] = [
        (Listing::Groups, (0..7).map(|n| format!("g{n}:{}", 7 - n)).collect()),
        (Listing::Tracked, numbered("t-")),
        (Listing::Recurring { queue: None }, numbered("r").into_iter().rev().collect()),
        (Listing::Recurring { queue: Some("recurring".into()) }, numbered("r").into_iter().rev().collect()),
        (Listing::Throttles, [vec!["one".to_owned()], numbered("t")].concat()),
        (Listing::Options { prefix: "o".into() }, numbered("o")),
        (Listing::WorkerJobs("w".into()), numbered("mine-")),
        (Listing::Options { prefix: "none".into() }, vec![]),
    ];
    for (what, wanted) in &wanted {
        for count in [1, 2, 3, 6, 7, 8, 100] {
            assert_eq!(walk(&mut engine, what, count), *wanted, "{what:?} by {count}");
        }
    }
    for what in [Listing::Queues, Listing::Workers, Listing::ThrottlePending("one".into())] {
        let whole = walk(&mut engine, &what, 1000);
        assert!(whole.len() >= 6, "{what:?} {whole:?}");
        for count in [1, 2, 5] {
            assert_eq!(walk(&mut engine, &what, count), whole, "{what:?} by {count}");
        }
    }
    assert_eq!(walk(&mut engine, &Listing::ThrottleLocks("one".into()), 1), ["held-0"]);
}

#[test]
fn rows_can_be_passed_over() {
    let mut engine = engine();
    let list = List { what: Listing::Groups, after: None, skip: 5, count: 1 };
    let reply = engine.apply(call(8.0, Command::List(Box::new(list)))).unwrap();
    let Reply::Listed { rows: page, total: 7, next: Some(_) } = reply else { panic!("{reply:?}") };
    assert_eq!(rows(&page), ["g5:2"]);
    assert!(Mark::from_bytes(b"\xff").is_none());
}
