//! Whatever arguments come in, every dialect answers: nothing panics, a refused command changes nothing, and every
//! invariant of the state holds afterwards, also of the state that would be loaded from the store.
//!
//! Requests are mutations of ones that work: words alone would hardly ever get past the first check.

use haul_client::resp::Frame;
use haul_engine::Name;
use proptest::collection::vec;
use proptest::prelude::*;

use super::scripts::Script;
use super::{DataLimits, Env, ErrorFormat, Plan, keys, native, older, qless};
use crate::fuzzing::Bench;

/// Requests that work, by dialect: `h` native, `q` qless, `t` qless with throttles, `e` qless of the old client, `r`
/// reqless, `o` the older API (with the number of keys), `k` keys.
pub(crate) const REQUESTS: &str = r#"
h PUT q1 k {} JID j1 TAG t1 TAG t2 PRIORITY 5 RETRIES 2
h PUT q1 k [1,2] JID j2 DEPENDS j1 THROTTLE th
h PUT q2 k "x" JID j3 DELAY 10 NX
h MPUT {"queue":"q1","klass":"k","data":1,"jid":"j4","tags":["a"],"depends":["j1"],"throttles":["th"],"nx":false}
h MOVE j1 q2 DELAY 5 TAG t3 DEPENDS j3
h RECUR q1 k {} INTERVAL 5 JID r1 OFFSET 1 BACKLOG 2 TAG t1 THROTTLE th
h POP w1 COUNT 5 LOCK 10 QUEUES q1 q2
h POP w2 COUNT 2 ROUNDROBIN QUEUES q2 q1 q1
h HEARTBEAT w1 j1 LOCK 5 DATA {"a":1} ATTEMPT 1
h MHEARTBEAT w1 j1 j2 j3
h COMPLETE w1 j1 RESULT done DATA [] NEXT q2 DELAY 3 DEPENDS j3 ATTEMPT 1
h COMPLETE w1 j2 RESULT text
h MCOMPLETE w1 j1 j2 j3 j4
h FAIL w1 j1 group message DATA {} ATTEMPT 1
h RETRY w1 j1 DELAY 2 GROUP g MESSAGE m
h RELEASE j1 j2
h CANCEL j1 j2 j3
h UNFAIL q1 group COUNT 5
h PRIORITY j1 7
h LOG j1 message {"b":2}
h DEPENDS j2 ON j1 j3
h DEPENDS j2 OFF ALL
h GET j1
h MGET j1 j1 none j2
h RESULT j1
h PEEK q1 COUNT 3
h QUEUES
h QUEUES q1
h JOBS running QUEUE q1 OFFSET 1 COUNT 2
h STATS q1 DATE 5
h FAILED group OFFSET 0 COUNT 5
h FAILED
h WORKERS
h WORKERS w1
h TRACKED
h TAGGED t1 OFFSET 0 COUNT 2
h TAGS OFFSET 0 COUNT 5
h GETRECUR r1
h UNRECUR r1
h TRACK j1
h UNTRACK j1
h TAG j1 t1 t1 t4
h UNTAG j1 t1 t5
h PAUSE q1
h UNPAUSE q1 q2
h FORGET q1
h DEREGISTER w1
h CONFIG SET heartbeat 5
h CONFIG SET jobs-history-count 1
h CONFIG SET max-job-history 2
h CONFIG UNSET heartbeat
h CONFIG GET
h THROTTLE SET th 1 TTL 5
h THROTTLE GET th
h THROTTLE RELEASE th j1 j2
h THROTTLE PENDING th
h THROTTLE DELETE th
q put 10 w1 q1 j1 k {"d":1} 0 depends ["j2"] tags ["t1","t2"] retries 3 priority 5
q put 11 w1 q1 j2 k {} 5
q pop 12 q1 w1 5
q peek 12 q1 5
q heartbeat 13 j1 w1 {"d":2}
q complete 14 j1 w1 q1 {} next q2 delay 5 depends ["j3"]
q complete 14 j1 w1 q1 {}
q fail 15 j1 w1 group message {}
q retry 16 j1 q1 w1 5 group message
q failed 17 group 0 5
q jobs 17 complete 0 5
q jobs 17 running q1 0 5
q depends 18 j1 on j2 j3
q depends 18 j1 off all
q priority 19 j1 5
q tag 19 add j1 t1 t2
q tag 19 remove j1 t1
q tag 19 get t1 0 5
q tag 19 top 0 5
q track 20 track j1
q track 20 untrack j1
q track 20
q log 20 j1 message {"a":1}
q requeue 21 w1 q2 j1 k {} 0
q pause 22 q1
q unpause 22 q1
q queues 22 q1
q queues 22
q length 22 q1
q stats 22 q1 22
q timeout 23 j1
q cancel 23 j1 j2
q unfail 24 q1 group 5
q recur 25 q1 r1 k {} interval 5 0 priority 3 tags ["t1"] retries 2 backlog 1
q recur.get 26 r1
q recur.update 26 r1 interval 7 data {} queue q2 klass kk priority 1 retries 3 backlog 2
q recur.tag 26 r1 t1
q recur.untag 26 r1 t1
q unrecur 27 r1
q workers 27
q workers 27 w1
q worker.deregister 27 w1
q queue.forget 27 q1
q config.set 28 grace-period 0
q config.set 28 q1-max-concurrency 1
q config.get 28 grace-period
q config.unset 28 grace-period
q get 29 j1
q multiget 29 j1 j2 j1
e put 10 q1 j1 k {} 0 tags ["t1"]
e recur 10 q1 r1 k {} interval 5 0
e complete 11 j1 w1 q1 {}
t put 10 w1 q1 j1 k {} 0 throttles ["th"]
t throttle.set 10 th 1 5
t throttle.get 10 th
t throttle.ttl 10 th
t throttle.locks 10 th
t throttle.pending 10 th
t throttle.release 10 th j1 j2
t throttle.delete 10 th
t queue.throttle.set 10 q1 1
t queue.throttle.get 10 q1
r queue.put 10 w1 q1 j1 k {} 0 depends ["j2"] tags ["t1"] throttles ["th"] priority 3 retries 2
r queue.pop 11 q1 w1 5
r queue.peek 11 q1 0 5
r job.heartbeat 12 j1 w1 {}
r job.complete 13 j1 w1 q1 {}
r job.completeAndRequeue 13 j1 w1 q1 {} q2 delay 5 depends ["j3"]
r job.fail 14 j1 w1 group message {}
r job.retry 14 j1 q1 w1 0 group message
r job.addDependency 15 j1 j2
r job.removeDependency 15 j1 all
r job.addTag 15 j1 t1
r job.removeTag 15 j1 t1
r job.setPriority 15 j1 5
r job.timeout 15 j1
r job.requeue 15 w1 q1 j1 k {} 0
r job.log 15 j1 message {}
r job.track 15 j1
r job.cancel 15 j1 j2
r jobs.tagged 16 t1 0 5
r jobs.failedByGroup 16 group 0 5
r jobs.completed 16 0 5
r queue.jobsByState 16 running q1 0 5
r queue.recurAtInterval 17 q1 r1 k {} 5 0 backlog 1 throttles ["th"]
r recurringJob.update 17 r1 interval 3 throttles ["th"]
r queueIdentifierPatterns.setAll 18 default ["q*"]
r queueIdentifierPatterns.getAll 18
r queuePriorityPatterns.setAll 18 {"fairly":true,"pattern":["q1"]}
r queuePriorityPatterns.getAll 18
r queues.counts 18
r workers.counts 18
r queue.stats 18 q1 18
r queue.unfail 18 q1 group 5
o put 1 q1 j1 {} 10 5 ["t1"] 3 2
o pop 1 q1 w1 5 11 60
o peek 1 q1 5 11
o heartbeat 0 j1 w1 70 {}
o complete 0 j1 w1 q1 12 {} q2 13 5
o complete 0 j1 {} 12
o fail 0 j1 w1 group message 13 {}
o get 0 j1
o stats 0 q1 13
o setconfig 0 heartbeat 5
o getconfig 0 heartbeat
o getconfig 0
k type ql:q:q1-work
k exists ql:j:j1 x
k keys ql:*
k keys *[a-
k dbsize
k get s
k set s value EX 5
k set s value NX
k setnx s value
k del s l
k ttl s
k pttl s
k expire s 5
k lpush l a b
k rpush l a b
k lpop l
k rpop l
k blpop l 1
k brpop l l2 0
k lrange l 0 -1
k lindex l -1
k llen l
k hset ql:qp:identifiers default ["q"]
k hset h f v
k hget ql:j:j1 state
k hmget ql:j:j1 state data none
k hgetall ql:j:j1
k hkeys ql:config
k hvals ql:config
k hlen ql:j:j1
k hexists ql:j:j1 state
k smembers ql:j:j1-dependencies
k scard ql:queues
k sismember ql:j:j1-dependents j2
k zcard ql:q:q1-locks
k zscore ql:q:q1-scheduled j1
k zrank ql:queues q1
k zrevrank ql:queues q1
k zrange ql:queues 0 -1 WITHSCORES
k zrevrange ql:workers 0 -1 withscores
k zrangebyscore ql:q:q1-work -inf +inf WITHSCORES LIMIT 0 5
k zrevrangebyscore ql:tags (5 0
k zcount ql:completed 0 (5
k hscan ql:j:j1 0 MATCH s* COUNT 5
k sscan ql:j:j1-dependents 0
k zscan ql:workers 0 MATCH *
k lrange ql:f:group 0 -1
k lrange ql:qp:priorities 0 -1
"#;

/// Words that a mutation puts in.
const WORDS: &[&str] = &[
    "",
    " ",
    "0",
    "1",
    "2",
    "-1",
    "5",
    "1.5",
    "-0",
    "1e3",
    "1e308",
    "-1e308",
    "1e-308",
    "9e15",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "0x10",
    "0x",
    "nan",
    "inf",
    "-inf",
    "+5",
    "1e400",
    "j1",
    "j2",
    "j3",
    "none",
    "q1",
    "q2",
    "w1",
    "w2",
    "t1",
    "th",
    "r1",
    "r1-1",
    "group",
    "all",
    "ALL",
    "on",
    "off",
    "add",
    "remove",
    "get",
    "top",
    "track",
    "untrack",
    "complete",
    "running",
    "stalled",
    "waiting",
    "scheduled",
    "depends",
    "recurring",
    "throttled",
    "failed",
    "tags",
    "priority",
    "retries",
    "throttles",
    "backlog",
    "interval",
    "data",
    "queue",
    "klass",
    "next",
    "delay",
    "cron",
    "COUNT",
    "WAIT",
    "LOCK",
    "QUEUES",
    "ROUNDROBIN",
    "JID",
    "DEPENDS",
    "TAG",
    "THROTTLE",
    "NX",
    "ATTEMPT",
    "NEXT",
    "RESULT",
    "DATA",
    "DELAY",
    "GROUP",
    "MESSAGE",
    "OFFSET",
    "TTL",
    "LIMIT",
    "MATCH",
    "EX",
    "PX",
    "WITHSCORES",
    "{}",
    "[]",
    "null",
    "false",
    "true",
    "\"\"",
    "[1]",
    "[null]",
    "[\"j1\",\"j1\"]",
    "[\"t1\",1,1.5]",
    "{\"a\":[[{}]]}",
    "{\"a\":",
    "[1,]",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "[1e400]",
    "[[[[[[[[[[]]]]]]]]]]",
    "heartbeat",
    "grace-period",
    "jobs-history",
    "jobs-history-count",
    "max-job-history",
    "max-pop-retry",
    "max-worker-age",
    "q1-heartbeat",
    "q1-max-concurrency",
    "application",
    "ql:j:j1",
    "ql:q:q1",
    "ql:q:q1-work",
    "ql:",
    "(1",
    "[1",
    "+inf",
    "*",
    "?",
    "[",
    "[^",
    "\\",
    "ql:f:group",
    "ql:s:stats:0:q1",
    "ql:t:t1",
    "ql:th:th",
    "ql:r:r1",
];

#[derive(Clone, Debug)]
enum Mutation {
    Replace(usize, Vec<u8>),
    Insert(usize, Vec<u8>),
    Delete(usize),
    Repeat(usize),
    Swap(usize, usize),
    Cut(usize),
    Append(Vec<u8>),
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        16 => prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        2 => vec(any::<u8>(), 0..12),
        1 => (1020_usize..1030).prop_map(|length| vec![b'n'; length]),
        1 => (990_usize..1010).prop_map(|depth| [vec![b'['; depth], vec![b']'; depth]].concat()),
    ]
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        4 => (any::<usize>(), word()).prop_map(|(at, word)| Mutation::Replace(at, word)),
        1 => (any::<usize>(), word()).prop_map(|(at, word)| Mutation::Insert(at, word)),
        1 => any::<usize>().prop_map(Mutation::Delete),
        1 => any::<usize>().prop_map(Mutation::Repeat),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(one, other)| Mutation::Swap(one, other)),
        1 => any::<usize>().prop_map(Mutation::Cut),
        1 => word().prop_map(Mutation::Append),
    ]
}

/// A request of REQUESTS, as it is or up to three mutations away.
fn request() -> impl Strategy<Value = (char, Vec<Vec<u8>>)> {
    let lines: Vec<&'static str> = REQUESTS.lines().filter(|line| !line.is_empty()).collect();
    (prop::sample::select(lines), vec(mutation(), 0..=3)).prop_map(|(line, mutations)| {
        let mut words = line.split(' ').map(|word| word.as_bytes().to_vec());
        let dialect = char::from(words.next().unwrap()[0]);
        let mut words: Vec<Vec<u8>> = words.collect();
        mutations.into_iter().for_each(|mutation| mutate(&mut words, mutation));
        (dialect, words)
    })
}

/// The first word, the command's name, stays.
fn mutate(words: &mut Vec<Vec<u8>>, mutation: Mutation) {
    let count = words.len() - 1;
    let place = |at: usize| if count == 0 { None } else { Some(1 + at % count) };
    match mutation {
        Mutation::Append(word) => words.push(word),
        Mutation::Insert(at, word) => words.insert(1 + at % (count + 1), word),
        Mutation::Cut(at) => words.truncate(1 + at % (count + 1)),
        Mutation::Replace(at, word) => {
            if let Some(at) = place(at) {
                words[at] = word;
            }
        }
        Mutation::Delete(at) => drop(place(at).map(|at| words.remove(at))),
        Mutation::Repeat(at) => {
            if let Some(at) = place(at) {
                words.insert(at, words[at].clone());
            }
        }
        Mutation::Swap(one, other) => {
            if let (Some(one), Some(other)) = (place(one), place(other)) {
                words.swap(one, other);
            }
        }
    }
}

fn env(lua_data: bool) -> Env {
    Env {
        tenant: Name::new(b""),
        clock: 100.0,
        limits: DataLimits::default(),
        lua_data,
        blueque_strict: false,
        error_format: ErrorFormat::Redis7,
    }
}

/// Understands a request of that dialect; its complaint otherwise.
pub(crate) fn read(dialect: char, words: &[Vec<u8>], env: &Env) -> Result<Plan, String> {
    let list: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let (name, rest) = list.split_first().unwrap();
    match dialect {
        'h' => native::read(name, rest, env),
        'q' => qless::read(Script::Qless, "sha", 0, &list, env),
        'e' => qless::read(Script::QlessEarly, "sha", 0, &list, env),
        't' => qless::read(Script::QlessThrottles, "sha", 0, &list, env),
        'r' => qless::read(Script::Reqless, "sha", 0, &list, env),
        'k' => keys::read(&String::from_utf8_lossy(name), rest, env),
        _ => {
            let command = older::OldCommand::find(name).unwrap();
            let keys = rest.first().map_or(0, |keys| usize::from(*keys == b"1"));
            older::read(command, keys, rest.get(1..).unwrap_or_default(), env)
        }
    }
}

#[test]
fn the_requests_that_mutations_start_from_work() {
    let mut refused = Vec::new();
    for line in REQUESTS.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ').map(|word| word.as_bytes().to_vec());
        let dialect = char::from(words.next().unwrap()[0]);
        if let Err(complaint) = read(dialect, &words.collect::<Vec<_>>(), &env(false)) {
            refused.push(format!("{line}: {complaint}"));
        }
    }
    assert!(refused.is_empty(), "{} requests are not understood:\n{}", refused.len(), refused.join("\n"));
}

#[test]
fn every_command_name_meets_every_number_of_arguments() {
    let scripts = [Script::Qless, Script::QlessEarly, Script::QlessThrottles, Script::Reqless];
    for (script, word) in scripts.into_iter().flat_map(|script| WORDS.iter().map(move |word| (script, word)))
    {
        for name in qless::all_names(script) {
            let mut bench = Bench::default();
            for count in 0..10 {
                let list = [vec![name.as_bytes(), b"10"], vec![word.as_bytes(); count]].concat();
                if let Ok(plan) = qless::read(script, "sha", 0, &list, &env(count % 2 == 0)) {
                    bench.run(plan);
                }
            }
            bench.check();
        }
    }
}

/// Few enough for every run of the tests; `PROPTEST_CASES=1000000` looks further.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_requests_panics_or_breaks_an_invariant(
        lua_data: bool,
        requests in vec(request(), 1..50),
    ) {
        let env = env(lua_data);
        let mut bench = Bench::default();
        for (dialect, words) in requests {
            match read(dialect, &words, &env) {
                Ok(plan) => drop(bench.run(plan)),
                Err(complaint) => prop_assert!(!complaint.is_empty()),
            }
        }
        bench.check();
    }

    #[test]
    fn no_words_panic_a_reader(
        dialect in prop::sample::select(vec!['h', 'q', 'e', 't', 'r', 'k', 'o']),
        line in prop::sample::select(REQUESTS.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>()),
        words in vec(word(), 0..10),
    ) {
        let name = line.split(' ').nth(1).unwrap().as_bytes().to_vec();
        if dialect == 'o' && older::OldCommand::find(&name).is_none() {
            return Ok(());
        }
        let words = [vec![name], words].concat();
        if let Ok(plan) = read(dialect, &words, &env(true)) {
            let mut bench = Bench::default();
            let frame = bench.run(plan);
            prop_assert!(!matches!(&frame, Frame::Error(text) if text.is_empty()));
            bench.check();
        }
    }
}
