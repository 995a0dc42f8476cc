//! What a monitoring page shows: counts as a worker would find them, the oldest wait, histograms, and a bound on names.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

use bytes::Bytes;
use haul_engine::*;

const NOW: f64 = 1_700_000_000.0;

fn apply(engine: &mut Engine, now: f64, command: Command) -> Reply {
    engine.apply(Call { tenant: "t".into(), now, clock: now, rules: Rules::NATIVE, command }).unwrap()
}

fn put(jid: &str, queue: &str, priority: f64, delay: f64) -> Command {
    Command::Put(Box::new(Put {
        jid: jid.into(),
        queue: queue.into(),
        worker: None,
        klass: Some("k".into()),
        data: Some(Bytes::from_static(b"{}")),
        delay,
        priority: Some(priority),
        tags: None,
        retries: None,
        depends: Vec::new(),
        throttles: Vec::new(),
        when: PutWhen::Always,
        trace: None,
    }))
}

fn pop(queue: &str, count: usize) -> Command {
    let queues = vec![queue.into()];
    Command::Pop(Pop {
        klasses: Vec::new(),
        worker: "w".into(),
        queues,
        round_robin: false,
        count,
        lock: Lock::Seconds(60.0),
    })
}

fn overview(engine: &mut Engine, now: f64, queues_max: usize) -> Overview {
    match apply(engine, now, Command::Overview { queues_max }) {
        Reply::Overview(overview) => *overview,
        other => panic!("{other:?}"),
    }
}

fn oldest(engine: &mut Engine, now: f64) -> Option<f64> {
    overview(engine, now, 9).queues[0].oldest.map(f64::round)
}

#[test]
fn the_oldest_is_found_behind_higher_priorities() {
    let mut engine = Engine::default();
    assert_eq!(overview(&mut engine, NOW, 9), Overview::default());
    apply(&mut engine, NOW, put("low", "q", 0.0, 0.0));
    apply(&mut engine, NOW + 50.0, put("high", "q", 5.0, 0.0));
    (0..100)
        .for_each(|number| drop(apply(&mut engine, NOW + 60.0, put(&format!("{number}"), "q", 5.0, 0.0))));
    assert_eq!(oldest(&mut engine, NOW + 100.0), Some(100.0));
    apply(&mut engine, NOW + 100.0, Command::Cancel { jids: vec!["low".into()] });
    assert_eq!(oldest(&mut engine, NOW + 100.0), Some(50.0));
    // One whose score says nothing of time does not hide the others.
    apply(&mut engine, NOW + 100.0, Command::Priority { jid: "99".into(), priority: 5.0 });
    assert_eq!(oldest(&mut engine, NOW + 100.0), Some(50.0));
}

#[test]
fn the_oldest_of_more_priorities_than_are_looked_at_is_of_the_highest() {
    let mut engine = Engine::default();
    for priority in 0..70 {
        apply(
            &mut engine,
            NOW + f64::from(priority),
            put(&format!("{priority}"), "q", f64::from(priority), 0.0),
        );
    }
    assert_eq!(oldest(&mut engine, NOW + 100.0), Some(94.0));
}

#[test]
fn what_is_due_waits_and_nothing_is_moved() {
    let mut engine = Engine::default();
    apply(&mut engine, NOW, put("a", "q", 0.0, 10.0));
    apply(&mut engine, NOW, put("b", "q", 0.0, 1000.0));
    drop(engine.take_changes());
    let seen = overview(&mut engine, NOW + 30.0, 9);
    let counts = &seen.queues[0].counts;
    assert_eq!((counts.waiting, counts.scheduled, seen.queues[0].oldest), (1, 1, Some(20.0)));
    assert!(engine.take_changes().is_empty());
}

#[test]
fn runs_and_waits_fall_into_the_buckets() {
    let mut engine = Engine::default();
    for (jid, waited, ran) in [("a", 0.5, 4.0), ("b", 100.0, 4000.0)] {
        apply(&mut engine, NOW, put(jid, "q", 0.0, 0.0));
        apply(&mut engine, NOW + waited, pop("q", 1));
        let complete = Complete {
            jid: jid.into(),
            worker: Some("w".into()),
            queue: None,
            attempt: None,
            data: None,
            result: None,
            next: None,
        };
        apply(&mut engine, NOW + waited + ran, Command::Complete(Box::new(complete)));
    }
    let seen = overview(&mut engine, NOW + 5000.0, 9);
    let queue = &seen.queues[0];
    let at = |bound: i64| Histogram::BOUNDS.iter().position(|known| *known == bound).unwrap();
    assert_eq!((queue.wait.count, queue.wait.below[at(1)], queue.wait.below[at(120)]), (2, 1, 2));
    assert_eq!((queue.run.below[at(2)], queue.run.below[at(5)], queue.run.below[at(3600)]), (0, 1, 1));
    assert_eq!((queue.run.below[at(7200)], queue.run.sum.round()), (2, 4004.0));
    assert_eq!((seen.jobs, seen.completed, seen.workers), (2, 2, 1));
    assert_eq!(seen.workers_alive, 0, "seen long ago, and holds nothing");
}

#[test]
fn queues_beyond_the_bound_are_summed() {
    let mut engine = Engine::default();
    for number in 0..5 {
        let (jid, queue) = (format!("j{number}"), format!("q{number}"));
        apply(&mut engine, NOW + f64::from(number), put(&jid, &queue, 0.0, 0.0));
    }
    let names =
        |seen: &Overview| seen.queues.iter().map(|queue| queue.counts.name.to_string()).collect::<Vec<_>>();
    let seen = overview(&mut engine, NOW + 10.0, 5);
    assert_eq!((names(&seen).len(), seen.other.clone()), (5, None));
    let seen = overview(&mut engine, NOW + 10.0, 2);
    assert_eq!(names(&seen), ["q0", "q1"]);
    let other = seen.other.unwrap();
    assert_eq!((other.counts.waiting, other.oldest.map(f64::round)), (3, Some(8.0)));
    let Reply::Names(tenants) = apply(&mut engine, NOW, Command::Tenants) else { panic!() };
    assert_eq!(tenants, [Name::from("t")]);
}
