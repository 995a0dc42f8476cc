//! Searching: the pages of a search, together, are exactly the jobs that match, each once.

#![allow(clippy::panic, clippy::expect_used, reason = "a test may fail by panicking")]

use bytes::Bytes;
use haul_engine::{
    Call, Command, Complete, Engine, Fail, Lock, Name, Pop, Position, Put, PutWhen, Reply, Rules, Search,
    SearchState, State,
};

fn ask(engine: &mut Engine, now: f64, command: Command) -> Reply {
    let call = Call { tenant: "".into(), now, clock: now, rules: Rules::NATIVE, command };
    engine.apply(call).expect("not refused")
}

/// 200 jobs in all the states there are, spread over queues, klasses and tags.
fn engine() -> Engine {
    let mut engine = Engine::default();
    ask(&mut engine, 1.0, Command::ThrottleSet { id: "one".into(), maximum: 1.0, ttl: 0.0 });
    for n in 0..200_u32 {
        let put = Put {
            jid: format!("j{n:03}").into(),
            queue: format!("q{}", n % 5).into(),
            worker: None,
            klass: Some(format!("k{}", n % 3).into()),
            data: Some(Bytes::from_static(b"{}")),
            delay: if n % 7 == 1 { 1e6 } else { 0.0 },
            priority: Some(f64::from(n % 4)),
            tags: Some(if n % 2 == 0 { vec!["even".into()] } else { Vec::new() }),
            retries: None,
            depends: if n % 11 == 3 { vec![Name::from("j000")] } else { Vec::new() },
            throttles: if n % 13 == 5 { vec!["one".into()] } else { Vec::new() },
            when: PutWhen::Always,
            trace: None,
        };
        ask(&mut engine, f64::from(n), Command::Put(Box::new(put)));
    }
    for (at, queue) in ["q1", "q2", "q3"].into_iter().enumerate() {
        let worker: Name = format!("w{at}").into();
        let pop = Pop {
            worker: worker.clone(),
            queues: vec![queue.into()],
            round_robin: false,
            count: 12,
            lock: Lock::Seconds(if at == 0 { 1.0 } else { 1e6 }),
            klasses: Vec::new(),
        };
        let Reply::Jobs(jobs) = ask(&mut engine, 300.0, Command::Pop(pop)) else { panic!("no jobs") };
        for (n, job) in jobs.into_iter().enumerate().filter(|_| at > 0) {
            let worker = Some(worker.clone());
            if n % 3 == 0 {
                let (data, result, next) = (None, None, None);
                let done = Complete { jid: job.jid, worker, queue: None, attempt: None, data, result, next };
                ask(&mut engine, 310.0, Command::Complete(Box::new(done)));
            } else if n % 3 == 1 {
                let group: Name = format!("g{}", n % 2).into();
                let message = Bytes::from_static(b"m");
                let fail = Fail { jid: job.jid, worker, attempt: None, group, message, data: None };
                ask(&mut engine, 310.0, Command::Fail(Box::new(fail)));
            }
        }
    }
    engine
}

/// Every page of a search, and that none is larger than asked for.
fn pages(engine: &mut Engine, mut search: Search) -> Vec<(Name, State)> {
    let mut found = Vec::new();
    for _ in 0..1000 {
        let Reply::Found { jobs, positions, next } =
            ask(engine, 400.0, Command::Search(Box::new(search.clone())))
        else {
            panic!("not found")
        };
        assert!(jobs.len() <= search.count && positions.len() == jobs.len());
        found.extend(jobs.into_iter().map(|job| (job.jid, job.state)));
        match next {
            None => return found,
            Some(next) => search.from = Position::from_bytes(&next.to_bytes()),
        }
        assert!(search.from.is_some());
    }
    panic!("the pages do not end")
}

#[test]
fn pages_of_any_size_hold_every_job_once() {
    let mut engine = engine();
    for (count, examine_max) in [(1, 1), (3, 7), (7, 3), (1000, 1000), (5, 1000)] {
        let mut found = pages(&mut engine, Search { count, examine_max, ..Search::default() });
        found.sort_unstable();
        let mut jids: Vec<Name> = found.iter().map(|(jid, _)| jid.clone()).collect();
        jids.dedup();
        assert_eq!(jids.len(), 200, "{count} {examine_max}");
        assert_eq!(found.len(), 200);
    }
}

#[test]
fn each_filter_finds_what_a_look_at_every_job_finds() {
    let mut engine = engine();
    let all: Vec<Name> = (0..200).map(|n| format!("j{n:03}").into()).collect();
    let Reply::Jobs(jobs) = ask(&mut engine, 400.0, Command::GetMany { jids: all }) else {
        panic!("no jobs")
    };
    let page = Search { count: 9, examine_max: 17, ..Search::default() };
    let words = ["waiting", "running", "stalled", "scheduled", "depends", "throttled", "failed", "complete"];
    for word in words {
        let state = SearchState::from_word(word);
        assert!(state.is_some());
        for (queue, klass, tag) in
            [(None, None, None), (Some("q2"), None, None), (None, Some("k1"), Some("even"))]
        {
            let search = Search {
                state,
                queue: queue.map(Name::from),
                klass: klass.map(Name::from),
                tag: tag.map(Name::from),
                ..page.clone()
            };
            let mut found: Vec<Name> = pages(&mut engine, search).into_iter().map(|(jid, _)| jid).collect();
            found.sort_unstable();
            let shown = |job: &haul_engine::JobView| match job.state {
                State::Running if job.expires <= 400.0 => "stalled",
                state => state.word(),
            };
            let is = |wanted: Option<&str>, name: &Name| {
                wanted.is_none_or(|wanted| name.bytes() == wanted.as_bytes())
            };
            let matching = jobs.iter().filter(|job| {
                shown(job) == word
                    && is(queue, &job.queue)
                    && is(klass, &job.klass)
                    && tag.is_none_or(|tag| job.tags.iter().any(|one| one.bytes() == tag.as_bytes()))
            });
            let expected: Vec<Name> = matching.map(|job| job.jid.clone()).collect();
            assert_eq!(found, expected, "{word} {queue:?} {klass:?} {tag:?}");
        }
    }
    for group in ["g0", "g1"] {
        let found = pages(&mut engine, Search { group: Some(group.into()), ..page.clone() });
        assert!(!found.is_empty() && found.iter().all(|(_, state)| *state == State::Failed));
    }
    let held = pages(&mut engine, Search { worker: Some("w1".into()), ..page });
    assert!(!held.is_empty() && held.iter().all(|(_, state)| *state == State::Running));
}

#[test]
fn a_search_looks_at_no_more_than_it_may() {
    let mut engine = engine();
    let search = Search { klass: Some("none".into()), count: 10, examine_max: 20, ..Search::default() };
    let Reply::Found { jobs, next, .. } = ask(&mut engine, 400.0, Command::Search(Box::new(search))) else {
        panic!("not found")
    };
    assert!(jobs.is_empty() && next.is_some());
}
