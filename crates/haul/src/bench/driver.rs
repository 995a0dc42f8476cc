//! Drivers: the bytes of each server's put, pop and complete. What does not change from job to job is written once.

use std::rc::Rc;

use bytes::{BufMut, BytesMut};
use haul_client::resp::{encode_request, write_array_header, write_bulk};

use super::reply::{Jids, Speech};
use crate::clock;

/// Which commands are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// PING: what the connections and the generator can do at most
    Ping,
    /// HAUL.PUT, HAUL.POP, HAUL.COMPLETE
    Haul,
    /// HAUL.MPUT, HAUL.POP COUNT n, HAUL.MCOMPLETE
    HaulBulk,
    /// POST /api/v1/jobs, /pop, /jobs/JID/complete
    Http,
    /// The same with lists of jobs
    HttpBulk,
    /// EVALSHA with a qless or reqless script: Haul, or Redis
    Qless,
    /// put, reserve, delete: beanstalkd
    Beanstalk,
    /// PING to a server of its own that does nothing but append --payload bytes for each to a file in --folder and sync it, once
    /// for all that came together, before it answers: what any server can do at most that syncs before it answers
    SyncedPing,
    /// No server: append --batch times --payload bytes to a file in --folder and sync it, over and over; what the disk can do
    Append,
}

impl Kind {
    pub(super) fn speech(self) -> Speech {
        match self {
            Kind::Http | Kind::HttpBulk => Speech::Http,
            Kind::Beanstalk => Speech::Beanstalk,
            _ => Speech::Resp,
        }
    }

    /// Whether a command carries many jobs.
    pub(super) fn is_bulk(self) -> bool {
        matches!(self, Kind::HaulBulk | Kind::HttpBulk | Kind::Append)
    }
}

/// What a driver's jobs are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// Jobs in each command of the bulk driver.
    pub(super) batch: usize,
    pub(super) payload_bytes: usize,
}

/// Letters that data is cut from, each job's at another place: data that compressed well would flatter a store.
const LETTERS: usize = 1 << 20;
/// How far the cuts are apart: no divisor of the letters, so that places come again only after a long time.
const CUT_STEP: usize = 769;

/// One server's language.
#[derive(Clone, Debug)]
pub(super) struct Driver {
    shape: Shape,
    sha: Rc<str>,
    /// The released qless's put has no worker in front; reqless's has.
    put_names_worker: bool,
    letters: Rc<[u8]>,
    token: Option<Rc<str>>,
    /// Makes the jids of this run its own.
    run: u64,
}

/// How long a pop that waits does so.
const WAIT_SECONDS: u32 = 1;

/// A job's data, without the letters between.
const DATA_HEAD: &str = r#"{"x":""#;
const DATA_TAIL: &str = r#""}"#;

impl Driver {
    pub(super) fn new(shape: Shape, sha: &str, script: Option<&str>) -> Self {
        Driver {
            shape,
            sha: sha.into(),
            put_names_worker: script.is_some_and(|text| text.contains("QlessAPI.put = function(now, me,")),
            letters: letters(LETTERS + shape.payload_bytes).into(),
            token: None,
            run: (clock::now() * 1e6) as u64,
        }
    }

    /// Shows a token, if there is one.
    pub(super) fn with_token(self, token: Option<&str>) -> Self {
        Driver { token: token.map(Rc::from), ..self }
    }

    fn write_http_head(&self, path: &str, length: usize, out: &mut BytesMut) {
        let start = format!("POST {path} HTTP/1.1\r\nHost: haul\r\nContent-Type: application/json\r\n");
        out.put_slice(start.as_bytes());
        if let Some(token) = &self.token {
            out.put_slice(format!("Authorization: Bearer {token}\r\n").as_bytes());
        }
        out.put_slice(format!("Content-Length: {length}\r\n\r\n").as_bytes());
    }

    fn write_http(&self, path: &str, body: &str, out: &mut BytesMut) {
        self.write_http_head(path, body.len(), out);
        out.put_slice(body.as_bytes());
    }

    /// Letters in each job's data; the smallest data has none.
    fn filling(&self) -> usize {
        self.shape.payload_bytes.saturating_sub(DATA_HEAD.len() + DATA_TAIL.len())
    }

    /// What one connection needs to write its commands.
    pub(super) fn desk(&self, queue: &str, number: u64) -> Desk {
        let worker = format!("bench-worker-{number}");
        let (put, pop) = (self.put(queue), self.pop(&worker, queue, None));
        let wait = self.pop(&worker, queue, Some(WAIT_SECONDS));
        let cut = (number as usize).wrapping_mul(CUT_STEP * 1001) % LETTERS;
        let (driver, queue) = (self.clone(), queue.to_owned());
        let (tenant, now) = (None, String::new());
        Desk { driver, queue, worker, tenant, number, made: 0, cut, put, pop, wait, now }
    }

    fn put(&self, queue: &str) -> PutBytes {
        let mut start = BytesMut::new();
        let (mut head, mut tail) = (DATA_HEAD.to_owned(), DATA_TAIL.to_owned());
        match self.shape.kind {
            Kind::Ping | Kind::SyncedPing => encode_request(&["PING"], &mut start),
            Kind::Haul => {
                write_array_header(4, &mut start);
                ["HAUL.PUT", queue, "bench"].iter().for_each(|arg| write_bulk(arg.as_bytes(), &mut start));
            }
            Kind::HaulBulk => {
                write_array_header(self.shape.batch + 1, &mut start);
                write_bulk(b"HAUL.MPUT", &mut start);
                head = format!(r#"{{"queue":"{queue}","klass":"bench","data":{DATA_HEAD}"#);
                tail.push('}');
            }
            Kind::Http | Kind::HttpBulk => {
                head = format!(r#"{{"queue":"{queue}","klass":"bench","data":{DATA_HEAD}"#);
                tail.push('}');
                let job = head.len() + self.filling() + tail.len();
                let length =
                    if self.shape.kind == Kind::Http { job } else { self.shape.batch * (job + 1) + 1 };
                self.write_http_head("/api/v1/jobs", length, &mut start);
                return PutBytes { start, head, tail };
            }
            Kind::Beanstalk => {
                let length = head.len() + self.filling() + tail.len();
                start.put_slice(format!("put 0 0 60 {length}\r\n").as_bytes());
                return PutBytes { start, head, tail: tail + "\r\n" };
            }
            Kind::Append => return PutBytes { start, head, tail },
            // Each has a jid of its own.
            Kind::Qless => {}
        }
        let length = head.len() + self.filling() + tail.len();
        PutBytes { start, head: format!("${length}\r\n{head}"), tail: format!("{tail}\r\n") }
    }

    /// A pop; one that waits so many seconds if there is nothing yet.
    fn pop(&self, worker: &str, queue: &str, wait: Option<u32>) -> BytesMut {
        let mut out = BytesMut::new();
        let count = if self.shape.kind.is_bulk() { self.shape.batch } else { 1 };
        let wait = wait.unwrap_or(0).to_string();
        match self.shape.kind {
            Kind::Haul | Kind::HaulBulk => {
                let count = count.to_string();
                let mut words = vec!["HAUL.POP", worker];
                if count != "1" {
                    words.extend(["COUNT", &count]);
                }
                if wait != "0" {
                    words.extend(["WAIT", &wait]);
                }
                words.extend(["QUEUES", queue]);
                encode_request(&words, &mut out);
            }
            Kind::Http | Kind::HttpBulk => {
                let body =
                    format!(r#"{{"worker":"{worker}","queues":["{queue}"],"count":{count},"wait":{wait}}}"#);
                self.write_http("/api/v1/pop", &body, &mut out);
            }
            Kind::Beanstalk => out.put_slice(format!("reserve-with-timeout {wait}\r\n").as_bytes()),
            // Ping and append pop nothing; qless's pop carries the time.
            Kind::Ping | Kind::SyncedPing | Kind::Qless | Kind::Append => {}
        }
        out
    }
}

/// What does not change from put to put: how the command starts, and what stands around each job's letters.
struct PutBytes {
    start: BytesMut,
    head: String,
    tail: String,
}

/// The commands of one connection.
pub(super) struct Desk {
    driver: Driver,
    queue: String,
    worker: String,
    /// None: the default one.
    pub(super) tenant: Option<String>,
    number: u64,
    /// Jids made so far.
    made: u64,
    /// Where the next job's letters are.
    cut: usize,
    put: PutBytes,
    pop: BytesMut,
    wait: BytesMut,
    now: String,
}

impl Desk {
    pub(super) fn speech(&self) -> Speech {
        self.driver.shape.kind.speech()
    }

    /// What a connection says before anything else; answers how many commands that took.
    pub(super) fn write_hello(&self, out: &mut BytesMut) -> usize {
        if self.speech() == Speech::Beanstalk {
            out.put_slice(format!("use {0}\r\nwatch {0}\r\nignore default\r\n", self.queue).as_bytes());
            return 3;
        }
        if self.speech() != Speech::Resp {
            return 0;
        }
        self.driver.token.iter().for_each(|token| encode_request(&["AUTH", token], out));
        self.tenant.iter().for_each(|tenant| encode_request(&["SELECT", tenant.as_str()], out));
        self.driver.token.iter().count() + self.tenant.iter().count()
    }

    /// Jobs that one put, pop or complete is for.
    pub(super) fn batch(&self) -> usize {
        if self.driver.shape.kind.is_bulk() { self.driver.shape.batch } else { 1 }
    }

    /// Reads the clock for the commands that carry the time; once for what is sent together.
    pub(super) fn look_at_clock(&mut self) {
        if self.driver.shape.kind == Kind::Qless {
            self.now = format!("{:.3}", clock::now());
        }
    }

    pub(super) fn write_put(&mut self, out: &mut BytesMut) {
        match self.driver.shape.kind {
            Kind::Ping | Kind::SyncedPing => out.put_slice(&self.put.start),
            Kind::Haul | Kind::HaulBulk | Kind::Http | Kind::Beanstalk | Kind::Append => {
                out.put_slice(&self.put.start);
                (0..self.batch()).for_each(|_| self.write_data(out));
            }
            Kind::HttpBulk => {
                out.put_slice(&self.put.start);
                for at in 0..self.batch() {
                    out.put_u8(if at == 0 { b'[' } else { b',' });
                    self.write_data(out);
                }
                out.put_u8(b']');
            }
            Kind::Qless => self.write_script_put(out),
        }
    }

    fn write_script_put(&mut self, out: &mut BytesMut) {
        self.made += 1;
        let jid = self.jid();
        if self.driver.put_names_worker {
            self.write_script("put", &[&self.worker, &self.queue, &jid, "bench"], 2, out);
        } else {
            self.write_script("put", &[&self.queue, &jid, "bench"], 2, out);
        }
        self.write_data(out);
        write_bulk(b"0", out);
    }

    /// A put whose data says when it was sent: [`sent_micros`] reads it from the job delivered.
    pub(super) fn write_stamped_put(&mut self, micros: u64, out: &mut BytesMut) {
        let start = out.len();
        self.write_put(out);
        let stamp = format!("{STAMP}{micros:0STAMP_DIGITS$}");
        let Some(command) = out.get_mut(start..) else { return };
        let at = memchr::memmem::rfind(command, DATA_HEAD.as_bytes()).map_or(0, |at| at + DATA_HEAD.len());
        if let Some(place) = command.get_mut(at..at + stamp.len()) {
            place.copy_from_slice(stamp.as_bytes());
        }
    }

    /// A put with a jid of its own, that every fourth time is delayed a little and every fourth time depends on the one
    /// before.
    pub(super) fn write_mixed_put(&mut self, out: &mut BytesMut) {
        let (before, jid) = (self.jid(), {
            self.made += 1;
            self.jid()
        });
        let more: &[&str] = match self.made % 4 {
            1 => &["DELAY", MIXED_DELAY],
            3 => &["DEPENDS", &before],
            _ => &[],
        };
        write_array_header(6 + more.len(), out);
        ["HAUL.PUT", &self.queue, "bench"].iter().for_each(|arg| write_bulk(arg.as_bytes(), out));
        self.write_data(out);
        ["JID", &jid].iter().chain(more).for_each(|arg| write_bulk(arg.as_bytes(), out));
    }

    /// Renews the locks of these jids.
    pub(super) fn write_heartbeats(&self, jids: &Jids, out: &mut BytesMut) -> usize {
        jids.iter().for_each(|jid| encode_request(&[b"HAUL.HEARTBEAT", self.worker.as_bytes(), jid], out));
        jids.len()
    }

    /// The jid made last.
    fn jid(&self) -> String {
        format!("{:x}-{:x}-{:x}", self.driver.run, self.number, self.made)
    }

    fn write_data(&mut self, out: &mut BytesMut) {
        out.put_slice(self.put.head.as_bytes());
        let letters = self.driver.letters.get(self.cut..self.cut + self.driver.filling());
        out.put_slice(letters.unwrap_or_default());
        out.put_slice(self.put.tail.as_bytes());
        self.cut = (self.cut + CUT_STEP) % LETTERS;
    }

    pub(super) fn write_pop(&self, out: &mut BytesMut) {
        match self.driver.shape.kind {
            Kind::Qless => self.write_script("pop", &[&self.queue, &self.worker, "1"], 0, out),
            _ => out.put_slice(&self.pop),
        }
    }

    pub(super) fn write_waiting_pop(&self, out: &mut BytesMut) {
        out.put_slice(&self.wait);
    }

    /// Writes the completes of these jids; answers how many commands that took.
    pub(super) fn write_completes(&mut self, jids: &Jids, out: &mut BytesMut) -> usize {
        match self.driver.shape.kind {
            Kind::Ping | Kind::SyncedPing | Kind::Append => 0,
            Kind::Beanstalk => {
                for jid in jids.iter() {
                    out.put_slice(b"delete ");
                    out.put_slice(jid);
                    out.put_slice(b"\r\n");
                }
                jids.len()
            }
            Kind::Haul => {
                for jid in jids.iter() {
                    encode_request(&[b"HAUL.COMPLETE", self.worker.as_bytes(), jid], out);
                }
                jids.len()
            }
            Kind::HaulBulk => self.write_bulk_completes(jids, out),
            Kind::Http => {
                let body = format!(r#"{{"worker":"{}"}}"#, self.worker);
                for jid in jids.iter() {
                    let path = format!("/api/v1/jobs/{}/complete", String::from_utf8_lossy(jid));
                    self.driver.write_http(&path, &body, out);
                }
                jids.len()
            }
            Kind::HttpBulk => self.write_http_completes(jids, out),
            Kind::Qless => {
                for jid in jids.iter() {
                    let jid = std::str::from_utf8(jid).unwrap_or_default();
                    self.write_script("complete", &[jid, &self.worker, &self.queue], 1, out);
                    self.write_data(out);
                }
                jids.len()
            }
        }
    }

    fn write_bulk_completes(&self, jids: &Jids, out: &mut BytesMut) -> usize {
        let mut left = jids.len();
        let mut jids = jids.iter();
        let mut commands = 0;
        while left > 0 {
            let count = left.min(self.driver.shape.batch);
            write_array_header(count + 2, out);
            write_bulk(b"HAUL.MCOMPLETE", out);
            write_bulk(self.worker.as_bytes(), out);
            jids.by_ref().take(count).for_each(|jid| write_bulk(jid, out));
            left -= count;
            commands += 1;
        }
        commands
    }

    fn write_http_completes(&self, jids: &Jids, out: &mut BytesMut) -> usize {
        let all: Vec<&[u8]> = jids.iter().collect();
        let calls = all.chunks(self.driver.shape.batch);
        for call in calls.clone() {
            let jobs: Vec<String> =
                call.iter().map(|jid| format!(r#"{{"jid":"{}"}}"#, String::from_utf8_lossy(jid))).collect();
            let body = format!(r#"{{"worker":"{}","jobs":[{}]}}"#, self.worker, jobs.join(","));
            self.driver.write_http("/api/v1/complete", &body, out);
        }
        calls.len()
    }

    /// Starts a call of the script; `more` arguments must follow.
    fn write_script(&self, command: &str, args: &[&str], more: usize, out: &mut BytesMut) {
        write_array_header(5 + args.len() + more, out);
        for arg in ["EVALSHA", &*self.driver.sha, "0", command, &self.now] {
            write_bulk(arg.as_bytes(), out);
        }
        args.iter().for_each(|arg| write_bulk(arg.as_bytes(), out));
    }
}

/// Marks the time in a job's data; no letter of the others.
const STAMP: char = '@';
const STAMP_DIGITS: usize = 20;
/// What the data of a stamped put has at least.
pub(super) const STAMPED_BYTES_MIN: usize = DATA_HEAD.len() + 1 + STAMP_DIGITS + DATA_TAIL.len();
/// Seconds a delayed job of the mixed workload waits.
const MIXED_DELAY: &str = "0.05";

/// When the job in an answer was sent; none if there is no job in it.
pub(super) fn sent_micros(answer: &[u8]) -> Option<u64> {
    let at = memchr::memchr(STAMP as u8, answer)? + 1;
    std::str::from_utf8(answer.get(at..at + STAMP_DIGITS)?).ok()?.parse().ok()
}

/// Letters and digits in no order (xorshift), the same in every run.
fn letters(count: usize) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ALPHABET.get((state >> 58) as usize).copied().unwrap_or(b'-')
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_client::resp::{Args, Limits, Parse, parse_request};

    /// The command as the server reads it.
    fn parsed(bytes: &BytesMut) -> Vec<String> {
        let mut args = Args::new();
        let parse = parse_request(bytes, &Limits::default(), &mut args).unwrap();
        assert_eq!(parse, Parse::Complete { consumed: bytes.len() });
        args.iter(bytes).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
    }

    fn put(kind: Kind, script: Option<&str>) -> Vec<String> {
        let shape = Shape { kind, batch: 2, payload_bytes: 50 };
        let mut desk = Driver::new(shape, "sha", script).desk("q", 7);
        desk.look_at_clock();
        let mut out = BytesMut::new();
        desk.write_put(&mut out);
        parsed(&out)
    }

    #[test]
    fn a_stamped_put_says_when_it_was_sent() {
        for kind in [Kind::Haul, Kind::Http, Kind::Beanstalk] {
            let shape = Shape { kind, batch: 1, payload_bytes: STAMPED_BYTES_MIN };
            let mut desk = Driver::new(shape, "", None).desk("q", 0);
            let (mut plain, mut stamped) = (BytesMut::new(), BytesMut::new());
            desk.write_put(&mut plain);
            desk.write_stamped_put(1_234_567, &mut stamped);
            assert_eq!((plain.len(), sent_micros(&plain)), (stamped.len(), None), "{kind:?}");
            assert_eq!(sent_micros(&stamped), Some(1_234_567), "{kind:?}");
        }
    }

    #[test]
    fn mixed_puts_are_delayed_or_depend_in_turn() {
        let shape = Shape { kind: Kind::Haul, batch: 1, payload_bytes: 20 };
        let mut desk = Driver::new(shape, "", None).desk("q", 7);
        let mut puts = Vec::new();
        for _ in 0..4 {
            let mut out = BytesMut::new();
            desk.write_mixed_put(&mut out);
            puts.push(parsed(&out));
        }
        assert_eq!(puts[0][6..], ["DELAY", "0.05"]);
        assert_eq!(puts[2][6], "DEPENDS");
        assert_eq!(puts[2][7], puts[1][5]);
        assert_eq!((puts[1].len(), puts[3].len()), (6, 6));
    }

    #[test]
    fn every_driver_puts_data_of_the_size_asked_for() {
        let haul = put(Kind::Haul, None);
        assert_eq!(haul[..3], ["HAUL.PUT", "q", "bench"]);
        assert_eq!(haul[3].len(), 50);
        serde_json::from_str::<serde_json::Value>(&haul[3]).unwrap();
        let bulk = put(Kind::HaulBulk, None);
        assert_eq!((bulk.len(), bulk[0].as_str()), (3, "HAUL.MPUT"));
        assert_ne!(bulk[1], bulk[2]);
        let job: serde_json::Value = serde_json::from_str(&bulk[2]).unwrap();
        assert_eq!(job["data"]["x"].as_str().map(str::len), Some(42));
        let shape = Shape { kind: Kind::Beanstalk, batch: 1, payload_bytes: 50 };
        let mut out = BytesMut::new();
        Driver::new(shape, "", None).desk("q", 0).write_put(&mut out);
        assert!(out.starts_with(b"put 0 0 60 50\r\n{"));
        assert_eq!(out.len(), "put 0 0 60 50\r\n".len() + 50 + 2);
        let qless = put(Kind::Qless, Some("QlessAPI.put = function(now, queue,"));
        assert_eq!((qless.len(), qless[3].as_str(), qless[5].as_str()), (10, "put", "q"));
        assert_eq!((qless[8].len(), qless[9].as_str()), (50, "0"));
        let reqless = put(Kind::Qless, Some("QlessAPI.put = function(now, me, queue,"));
        assert_eq!((reqless.len(), reqless[5].as_str(), reqless[6].as_str()), (11, "bench-worker-7", "q"));
    }
}
