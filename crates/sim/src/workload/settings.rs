//! Calls on everything but a job's life: options, queues, recurring jobs, throttles, keys, and reads.

use haul_engine::{
    Command, JobList, Jobs, KeyCommand, KeyQuery, KeyType, Name, RankRange, RecurChange, RecurPut,
    ScoreBound, ScoreRange,
};

use super::{GROUPS, RECURS, SCRATCH, THROTTLES, WORKERS, Workload};

/// Options, with values that make things happen soon; a value that is no number counts as unset.
const OPTIONS: [(&str, &[&str]); 13] = [
    ("heartbeat", &["3", "0", "-2", "60", "soon"]),
    ("a-heartbeat", &["1", "5", "x"]),
    ("heartbeat-b", &["2", "x"]),
    ("grace-period", &["0", "2", "-1", "10", ""]),
    ("jobs-history", &["0", "5", "100", "604800"]),
    ("jobs-history-count", &["0", "1", "3"]),
    ("max-job-history", &["0", "1", "2", "3", "5", "-1"]),
    ("max-worker-age", &["5", "100", "0"]),
    ("a-max-concurrency", &["1", "2", "0", "-1"]),
    ("max-pop-retry", &["1", "2", "0"]),
    ("b-max-pop-retry", &["3", "0"]),
    ("haul-prune-stats", &["1", "0"]),
    ("stats-history", &["1", "0"]),
];

const LISTS: [JobList; 8] = [
    JobList::Complete,
    JobList::Waiting,
    JobList::Running,
    JobList::Stalled,
    JobList::Scheduled,
    JobList::Depends,
    JobList::Recurring,
    JobList::Throttled,
];

impl Workload {
    pub(super) fn settings(&mut self) -> Command {
        let (option, values) = self.rng.pick_or(&OPTIONS, ("heartbeat", &["1"]));
        match self.rng.below(26) {
            20..=23 => Command::Register {
                worker: self.worker(),
                facts: self.name(&["{\"pid\":1}", "{\"pid\":2}"]),
                is_new: self.rng.one_in(3),
                draining: self.rng.one_in(4),
            },
            24..=25 => Command::Drain { worker: self.worker(), drain: !self.rng.one_in(3) },
            0..=8 => Command::ConfigSet { option: option.into(), value: self.name(values) },
            9..=12 => Command::ConfigUnset { option: option.into() },
            13 => Command::ConfigGet { option: option.into() },
            14..=16 => Command::Pause { queues: self.some(2, Self::queue), paused: self.rng.one_in(3) },
            17 => Command::Forget { queues: self.some(2, Self::queue) },
            18 => Command::Deregister { workers: self.some(2, Self::worker) },
            _ if self.rng.one_in(5) => Command::Flush,
            _ => Command::ConfigAll,
        }
    }

    pub(super) fn look(&mut self) -> Command {
        match self.rng.below(24) {
            0..=1 => Command::Get { jid: self.jid() },
            2 => Command::GetMany { jids: self.jids(4) },
            3 => Command::Exists { jid: self.jid() },
            4..=8 => {
                let list = self.rng.pick_or(&LISTS, JobList::Waiting);
                Command::Jobs(Jobs { list, queue: self.queue(), range: self.window() })
            }
            9..=10 => Command::QueueCounts { queue: self.queue() },
            11 => Command::AllQueueCounts,
            12 => Command::QueueNames,
            13 => Command::Length { queue: self.queue() },
            14 => Command::Stats { queue: self.queue(), date: self.now },
            15 => Command::Workers,
            16 => Command::WorkerJobs { worker: self.name(&WORKERS) },
            17 => Command::FailureGroups,
            18 => Command::Failed { group: self.name(&GROUPS), range: self.window() },
            19 => Command::Tagged { tag: self.tag(), range: self.window() },
            20 => {
                let count = if self.rng.one_in(3) { None } else { Some(self.rng.below(4)) };
                Command::TopTags { offset: self.rng.below(2), count }
            }
            21 => Command::Tracked,
            22 => Command::RecurGet { jid: self.name(&RECURS) },
            _ => Command::Totals,
        }
    }

    pub(super) fn recurring(&mut self) -> Command {
        let jid = self.name(&RECURS);
        match self.rng.below(10) {
            0..=3 => Command::Recur(Box::new(RecurPut {
                jid,
                queue: self.queue(),
                klass: "klass".into(),
                data: self.text(),
                interval: self.number(&[1.0, 2.0, 0.5, 60.0]),
                offset: self.number(&[0.0, 0.0, 1.5, 5.5, -3.0]),
                cron: None,
                priority: self.number(&[0.0, 1.0]),
                retries: self.number(&[0.0, 1.0, 2.5]),
                backlog: self.number(&[0.0, 1.0, 2.0]),
                tags: self.some(2, Self::tag),
                throttles: self.throttle_ids(),
            })),
            4..=5 => Command::Unrecur { jid },
            6..=7 => {
                let count = self.rng.below(3);
                let changes = (0..count).map(|_| self.recur_change()).collect();
                Command::RecurUpdate { jid, changes }
            }
            8 => Command::RecurTag { jid, tags: self.some(3, Self::tag) },
            _ => Command::RecurUntag { jid, tags: self.some(2, Self::tag) },
        }
    }

    fn recur_change(&mut self) -> RecurChange {
        match self.rng.below(8) {
            0 => RecurChange::Priority(self.number(&[0.0, 3.0])),
            1 => RecurChange::Interval(self.number(&[1.0, 5.0, 0.5])),
            2 => RecurChange::Retries(self.number(&[0.0, 1.5])),
            3 => RecurChange::Data(self.text()),
            4 => RecurChange::Klass("other".into()),
            5 => RecurChange::Queue(self.queue()),
            6 => RecurChange::Backlog(self.number(&[0.0, 1.0])),
            _ => RecurChange::Throttles(self.throttle_ids()),
        }
    }

    pub(super) fn throttles(&mut self) -> Command {
        let count = if self.rng.one_in(2) { THROTTLES.len() } else { 2 };
        let id = self.name(THROTTLES.get(..count).unwrap_or(&THROTTLES));
        match self.rng.below(20) {
            0..=9 => {
                let maximum = self.number(&[1.0, 1.0, 2.0, 0.0, 3.0, -1.0]);
                Command::ThrottleSet { id, maximum, ttl: self.number(&[0.0, 0.0, 0.0, 4.0, 100.0]) }
            }
            10..=11 => Command::ThrottleDelete { id },
            12..=13 => Command::ThrottleGet { id },
            14 => Command::ThrottleLocks { id },
            15 => Command::ThrottlePending { id },
            _ => Command::ThrottleRelease { id, jids: self.jids(3) },
        }
    }

    pub(super) fn keys(&mut self) -> Command {
        if self.rng.one_in(2) {
            return Command::Keyspace(self.scratch());
        }
        let key = self.key();
        let query = match self.rng.below(8) {
            0 => KeyQuery::Type { key },
            1 => KeyQuery::Exist { keys: vec![key, self.key()] },
            2 => {
                KeyQuery::Length { key, kind: if self.rng.one_in(4) { KeyType::Set } else { KeyType::Zset } }
            }
            3 => KeyQuery::Set { key },
            4 => {
                let (start, stop) = (self.rng.below(4) as i64 - 2, self.rng.below(6) as i64 - 3);
                KeyQuery::Ranks { key, range: RankRange { start, stop, reverse: self.rng.one_in(2) } }
            }
            5 => KeyQuery::Scores { key, range: self.scores() },
            6 => KeyQuery::Score { key, member: self.jid() },
            _ => KeyQuery::Rank { key, member: self.jid(), reverse: self.rng.one_in(2) },
        };
        Command::Key(query)
    }

    fn scores(&mut self) -> ScoreRange {
        let (low, high) =
            (self.number(&[f64::NEG_INFINITY, 0.0, self.now]), self.number(&[f64::INFINITY, self.now]));
        ScoreRange {
            min: ScoreBound { value: low, exclusive: self.rng.one_in(3) },
            max: ScoreBound { value: high, exclusive: self.rng.one_in(3) },
            reverse: self.rng.one_in(2),
            offset: self.rng.below(2),
            count: self.rng.one_in(2).then_some(2),
        }
    }

    fn key(&mut self) -> Name {
        let queue = self.queue();
        match self.rng.below(12) {
            0 => format!("ql:q:{queue}-work").into(),
            1 => format!("ql:q:{queue}-locks").into(),
            2 => format!("ql:q:{queue}-scheduled").into(),
            3 => format!("ql:q:{queue}-recur").into(),
            4 => format!("ql:w:{}:jobs", self.worker()).into(),
            5 => format!("ql:t:{}", self.tag()).into(),
            6 => format!("ql:j:{}-dependents", self.jid()).into(),
            7 => format!("ql:j:{}", self.jid()).into(),
            8 => format!("ql:th:{}-locks", self.name(&THROTTLES)).into(),
            9 => self.name(&["ql:queues", "ql:workers", "ql:tags", "ql:tracked", "ql:completed"]),
            10 => self.name(&["ql:failures", "ql:paused_queues", "ql:config", "ql:nothing"]),
            _ => self.name(&SCRATCH),
        }
    }

    fn scratch(&mut self) -> KeyCommand {
        let key = self.name(&SCRATCH);
        let pairs = vec![(self.tag(), self.jid())];
        match self.rng.below(11) {
            0 => KeyCommand::Get { key: if self.rng.one_in(2) { key } else { self.key() } },
            1..=2 => KeyCommand::Set {
                key,
                value: "value".into(),
                ttl: self.rng.one_in(3).then_some(3.0),
                only_if: self.rng.pick_or(&[None, None, Some(true), Some(false)], None),
            },
            3 => KeyCommand::Del { keys: vec![key, self.name(&SCRATCH)] },
            4 => KeyCommand::Push {
                key,
                values: pairs.into_iter().map(|(_, v)| v).collect(),
                left: self.rng.one_in(2),
            },
            5 => KeyCommand::Pop { keys: vec![key, self.name(&SCRATCH)], left: self.rng.one_in(2) },
            6 => KeyCommand::HashSet { key, pairs },
            7 => KeyCommand::HashReplace { key, pairs, also_remove: "s2".into() },
            8 => KeyCommand::ListReplace { key, values: self.jids(2), also_remove: "s1".into() },
            9 => KeyCommand::Ttl { key },
            _ => KeyCommand::Expire { key, seconds: 2.0 },
        }
    }
}
