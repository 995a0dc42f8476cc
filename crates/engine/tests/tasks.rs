//! Tasks among jobs: commands of Blueque's clients and of others in any order. The invariants hold after each, and what
//! the keys show is the same when the state is loaded again from its records.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may fail by panicking"
)]

use std::collections::BTreeMap;

use bytes::Bytes;
use haul_engine::*;

const SEEDS: u64 = 60;
const STEPS: usize = 250;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn jid(&mut self) -> Name {
        Name::from(self.pick(&["a", "b", "c", "d", "e", "f"]))
    }

    fn queue(&mut self) -> &'static str {
        self.pick(&["q", "q_r"])
    }

    fn worker(&mut self) -> &'static str {
        self.pick(&["w", "r_w", "h_1"])
    }

    /// Short, or long enough to be a body.
    fn text(&mut self) -> Bytes {
        Bytes::from(vec![b'x'; if self.below(2) == 0 { 5 } else { 60 }])
    }

    fn list(&mut self) -> Name {
        let (queue, worker) = (self.queue(), self.worker());
        Name::from(match self.below(5) {
            0 => format!("blueque_pending_tasks_{queue}"),
            1 => format!("blueque_reserved_tasks_{queue}_{worker}"),
            2 => format!("blueque_complete_tasks_{queue}"),
            3 => format!("blueque_failed_tasks_{queue}"),
            _ => format!("blueque_tasks_{queue}"),
        })
    }

    fn task(&mut self) -> TaskCommand {
        let key = |jid: &Name| Name::from(format!("blueque_task_{jid}"));
        let (queue, worker, jid) = (self.queue(), self.worker(), self.jid());
        let scheduled = Name::from(format!("blueque_scheduled_tasks_{queue}"));
        let started = Name::from(format!("blueque_started_tasks_{queue}"));
        let member = Name::from(format!("{worker} 1 {jid}"));
        match self.below(14) {
            0..=2 => {
                let fields = ["status", "queue", "parameters", "result", "error", "node", "other"];
                let pairs = (0..1 + self.below(3)).map(|_| (Name::from(self.pick(&fields)), self.text()));
                TaskCommand::HashSet { key: key(&jid), pairs: pairs.collect() }
            }
            3 => TaskCommand::Delete { keys: vec![if self.below(4) == 0 { self.list() } else { key(&jid) }] },
            4 | 5 => {
                let values = (0..1 + self.below(2)).map(|_| self.jid()).collect();
                TaskCommand::Push { key: self.list(), values, left: self.below(4) > 0 }
            }
            6 => TaskCommand::Pop { key: self.list(), left: self.below(2) == 0 },
            7 | 8 => TaskCommand::Move {
                from: Name::from(format!("blueque_pending_tasks_{queue}")),
                to: match self.below(4) {
                    0 => self.list(),
                    _ => Name::from(format!("blueque_reserved_tasks_{queue}_{worker}")),
                },
            },
            9 => TaskCommand::ListRemove { key: self.list(), count: self.below(3) as i64 - 1, value: jid },
            10 => TaskCommand::SetAdd { key: started, members: vec![member] },
            11 => TaskCommand::SetRemove { key: started, members: vec![member] },
            12 => TaskCommand::ScoreAdd { key: scheduled, members: vec![(self.below(400) as f64, jid)] },
            _ => {
                let bound = |value: f64| ScoreBound { value, exclusive: false };
                let (min, max) = (bound(0.0), bound(self.below(400) as f64));
                let range = ScoreRange { min, max, reverse: false, offset: 0, count: None };
                TaskCommand::ScoreRemoveRange { key: scheduled, range }
            }
        }
    }

    fn native(&mut self) -> Command {
        let (jid, queue) = (self.jid(), Name::from(self.queue()));
        let worker = Name::from(self.worker());
        match self.below(8) {
            0 => Command::Put(Box::new(Put {
                jid,
                queue,
                worker: None,
                klass: Some("k".into()),
                data: Some(self.text()),
                delay: [0.0, 30.0][self.below(2)],
                priority: Some(0.0),
                tags: Some(vec!["x".into()]),
                retries: Some(2.0),
                depends: Vec::new(),
                throttles: Vec::new(),
                when: PutWhen::Always,
                trace: None,
            })),
            1 | 2 => Command::Pop(Pop {
                klasses: Vec::new(),
                worker,
                queues: vec![queue],
                round_robin: false,
                count: 2,
                lock: Lock::Seconds(20.0),
            }),
            3 => {
                let (data, result) = (None, Some(self.text()));
                let next =
                    (self.below(3) == 0).then(|| Next { queue: "q".into(), delay: 0.0, depends: Vec::new() });
                Command::Complete(Box::new(Complete {
                    jid,
                    worker: None,
                    queue: None,
                    attempt: None,
                    data,
                    result,
                    next,
                }))
            }
            4 => Command::Fail(Box::new(Fail {
                jid,
                worker: None,
                attempt: None,
                group: "g".into(),
                message: self.text(),
                data: None,
            })),
            5 => Command::Cancel { jids: vec![jid] },
            6 => Command::Timeout { jids: vec![jid] },
            _ => Command::Unfail { queue, group: self.pick(&["g", "blueque"]).into(), count: 1 },
        }
    }
}

/// The records of an engine.
type Stored = BTreeMap<Vec<u8>, Vec<u8>>;

fn store(engine: &mut Engine, stored: &mut Stored, bodies: &mut BTreeMap<BodyId, Bytes>) {
    let changes = engine.take_changes();
    changes.deletes.iter().for_each(|key| drop(stored.remove(key)));
    stored.extend(changes.puts);
    changes.dropped.iter().for_each(|id| drop(bodies.remove(id)));
    bodies.extend(changes.bodies);
}

fn call(now: f64, rules: Rules, command: Command) -> Call {
    Call { tenant: Name::from(""), now, clock: now, rules, command }
}

fn ask(engine: &mut Engine, now: f64, query: KeyQuery) -> String {
    format!("{:?}", engine.apply(call(now, Rules::NATIVE, Command::Key(query))))
}

/// Everything that Blueque's keys show.
fn shown(engine: &mut Engine, now: f64) -> Vec<String> {
    let keys = match engine.apply(call(now, Rules::NATIVE, Command::Key(KeyQuery::Keys))) {
        Ok(Reply::Key(KeyView::Keys(keys))) => keys,
        other => panic!("{other:?}"),
    };
    let mut all = Vec::new();
    for key in keys.into_iter().filter(|key| is_task_key(key.bytes())) {
        let kind = ask(engine, now, KeyQuery::Type { key: key.clone() });
        let range = RankRange { start: 0, stop: -1, reverse: false };
        let query = match &kind {
            kind if kind.contains("Hash") => KeyQuery::Hash { key: key.clone() },
            kind if kind.contains("List") => KeyQuery::List { key: key.clone(), start: 0, stop: -1 },
            kind if kind.contains("Zset") => KeyQuery::Ranks { key: key.clone(), range },
            _ => KeyQuery::Set { key: key.clone() },
        };
        all.push(format!("{key} {kind} {}", ask(engine, now, query)));
    }
    all
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let (mut engine, mut stored, mut bodies) = (Engine::default(), Stored::new(), BTreeMap::new());
    let known = TaskCommand::ScoreAdd {
        key: "blueque_queues".into(),
        members: vec![(0.0, "q".into()), (0.0, "q_r".into())],
    };
    engine.apply(call(1.0, Rules::BLUEQUE, Command::Task(known))).unwrap();
    for step in 0..STEPS {
        let now = 100.0 + step as f64;
        let (rules, command) = match random.below(3) {
            0 => (Rules::NATIVE, random.native()),
            _ => (Rules::BLUEQUE, Command::Task(random.task())),
        };
        let said = format!("seed {seed} step {step}: {command:?}");
        let _ = engine.apply(call(now, rules, command));
        engine.take_events();
        assert_eq!(engine.audit(), [], "{said}");
        store(&mut engine, &mut stored, &mut bodies);
        let used = engine.bodies();
        assert!(used.iter().all(|id| bodies.contains_key(id)), "{said}: a body is missing");
        assert_eq!(used.len(), bodies.len(), "{said}: a body is left over");
        if step % 10 == 0 {
            let before = shown(&mut engine, now);
            let mut loader = Loader::default();
            stored.iter().for_each(|(key, value)| loader.header(key, value).unwrap());
            engine = loader.finish();
            assert_eq!(engine.audit(), [], "{said}, loaded again");
            assert_eq!(shown(&mut engine, now), before, "{said}, loaded again");
        }
    }
}

#[test]
fn tasks_and_jobs_in_any_order_keep_the_invariants() {
    (0..SEEDS).for_each(run);
}

#[test]
fn a_lock_without_end_is_counted_among_its_workers_jobs_and_keeps_the_worker() {
    let mut engine = Engine::default();
    let mut task = |now: f64, command: TaskCommand| {
        engine.apply(call(now, Rules::BLUEQUE, Command::Task(command))).unwrap();
    };
    task(
        1.0,
        TaskCommand::Push { key: "blueque_pending_tasks_q".into(), values: vec!["t".into()], left: true },
    );
    task(
        2.0,
        TaskCommand::Move { from: "blueque_pending_tasks_q".into(), to: "blueque_reserved_tasks_q_w".into() },
    );
    // Long after every other worker would have been forgotten.
    let workers = engine.apply(call(10_000_000.0, Rules::NATIVE, Command::Workers));
    let Ok(Reply::Workers(workers)) = workers else { panic!("{workers:?}") };
    assert_eq!(workers.iter().map(|worker| (worker.jobs, worker.stalled)).collect::<Vec<_>>(), [(1, 0)]);
}
