//! `haul put`: one job from the arguments, or many from standard input.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use haul_client::Json;
use serde::Deserialize;
use serde_json::json;

use super::failure::{Done, Failure};
use super::session::Session;
use super::value;

/// Jobs and bytes that go together: a batch is put as a whole or not at all.
const BATCH_JOBS_MAX: usize = 1000;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The longest line read. The server's own limit is lower, and says so.
const LINE_BYTES_MAX: usize = 64 << 20;
/// What is read ahead; the lines that are there already make a batch.
const READ_BYTES: usize = 1 << 20;

/// Put a job into a queue; prints its id
#[derive(clap::Args)]
#[command(after_help = r#"Examples:
  haul put mail email '{"to":"a@b.c"}'
  haul put mail email @letter.json --priority 5 --delay 10m
  echo '{"n":1}' | haul put math square - --jid job-1 --nx
  haul put mail report --depends job-1 --tag weekly --throttle smtp
  haul put --many < jobs.ndjson

Each line of --many is a job: {"queue":"mail","klass":"email","data":{"to":"a@b.c"}}, and optionally jid, priority,
delay and retries (numbers; delay in seconds), tags, depends and throttles (lists), nx (true). Lines are put in batches;
each batch as a whole or not at all."#)]
pub(super) struct Put {
    /// The queue
    #[arg(required_unless_present = "many")]
    queue: Option<String>,
    /// The kind of job: what the worker does with it
    #[arg(required_unless_present = "many")]
    klass: Option<String>,
    /// JSON; - reads standard input, @FILE a file
    #[arg(default_value = "null", allow_negative_numbers = true)]
    data: String,
    /// Its id; otherwise the server makes one
    #[arg(long)]
    jid: Option<String>,
    /// A larger one runs sooner
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Not before this long from now: 90, 90s, 5m, 2h, 1d
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    delay: Option<Duration>,
    /// How often it may be tried again [default: 5]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// A tag; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Not before this job is complete; may be repeated
    #[arg(long, value_name = "JID")]
    depends: Vec<String>,
    /// A throttle it is subject to; may be repeated
    #[arg(long = "throttle", value_name = "ID")]
    throttles: Vec<String>,
    /// Refuse if there is a job of that id, instead of putting it again
    #[arg(long, requires = "jid")]
    nx: bool,
    /// Read jobs from standard input, one JSON object a line
    #[arg(long, conflicts_with_all = ["queue", "klass", "data", "jid", "priority", "delay", "retries", "tags", "depends", "throttles"])]
    many: bool,
}

impl Put {
    pub(super) async fn run(self, session: &Session) -> Done {
        if self.many {
            return put_many(session, std::io::stdin().lock()).await;
        }
        let data = value::json(&self.data)?;
        let line = Line {
            queue: self.queue.unwrap_or_default(),
            klass: self.klass.unwrap_or_default(),
            data,
            jid: self.jid,
            priority: self.priority,
            delay: self.delay.map(|delay| delay.as_secs_f64()),
            retries: self.retries,
            tags: self.tags,
            depends: self.depends,
            throttles: self.throttles,
            nx: self.nx,
        };
        let jid = session.client.put(&line.put()).await?;
        session.out.say(&json!({"jid": jid}), &jid)
    }
}

/// A job as a line of `--many` writes it: the form of `HAUL.MPUT`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    queue: String,
    klass: String,
    #[serde(default)]
    data: Json,
    jid: Option<String>,
    priority: Option<i64>,
    delay: Option<f64>,
    retries: Option<u32>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    depends: Vec<String>,
    #[serde(default)]
    throttles: Vec<String>,
    #[serde(default)]
    nx: bool,
}

impl Line {
    fn read(text: &[u8]) -> Result<Self, String> {
        let line: Line = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        match line.delay.map(Duration::try_from_secs_f64) {
            Some(Err(error)) => Err(format!("delay: {error}")),
            _ => Ok(line),
        }
    }

    fn put(self) -> haul_client::Put {
        let mut put = haul_client::Put::new(self.queue, self.klass, &self.data);
        put = self.jid.into_iter().fold(put, haul_client::Put::jid);
        put = self.priority.into_iter().fold(put, haul_client::Put::priority);
        let delay = self.delay.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        put = delay.into_iter().fold(put, haul_client::Put::delay);
        put = self.retries.into_iter().fold(put, haul_client::Put::retries);
        put = self.tags.into_iter().fold(put, haul_client::Put::tag);
        put = self.depends.into_iter().fold(put, haul_client::Put::depends);
        put = self.throttles.into_iter().fold(put, haul_client::Put::throttle);
        if self.nx { put.nx() } else { put }
    }
}

/// Lines on their way in.
struct Lines<R> {
    reader: BufReader<R>,
    /// Lines read so far.
    number: usize,
}

struct Batch {
    puts: Vec<haul_client::Put>,
    first_line: usize,
    last_line: usize,
}

impl<R: Read> Lines<R> {
    /// The jobs that are there already, at least one; none at the end. A slow writer's jobs do not wait for a full batch.
    fn batch(&mut self) -> Result<Option<Batch>, Failure> {
        let mut batch = Batch { puts: Vec::new(), first_line: self.number + 1, last_line: self.number };
        let (mut text, mut bytes) = (Vec::new(), 0);
        loop {
            text.clear();
            let limit = LINE_BYTES_MAX as u64 + 1;
            let read = (&mut self.reader).take(limit).read_until(b'\n', &mut text);
            let read =
                read.map_err(|error| Failure::Usage(format!("standard input cannot be read: {error}")))?;
            if read == 0 {
                break;
            }
            self.number += 1;
            if read > LINE_BYTES_MAX {
                return Err(Failure::Usage(format!(
                    "line {} is longer than {LINE_BYTES_MAX} bytes",
                    self.number
                )));
            }
            if !text.trim_ascii().is_empty() {
                let line = Line::read(&text);
                let line =
                    line.map_err(|why| Failure::Usage(format!("line {}: not a job: {why}", self.number)))?;
                batch.puts.push(line.put());
                bytes += read;
            }
            batch.last_line = self.number;
            let full = batch.puts.len() >= BATCH_JOBS_MAX || bytes >= BATCH_BYTES_MAX;
            if full || (!batch.puts.is_empty() && !self.reader.buffer().contains(&b'\n')) {
                break;
            }
        }
        Ok(Some(batch).filter(|batch| !batch.puts.is_empty()))
    }
}

async fn put_many(session: &Session, input: impl Read) -> Done {
    let mut lines = Lines { reader: BufReader::with_capacity(READ_BYTES, input), number: 0 };
    let mut done = 0;
    loop {
        let first_line = lines.number + 1;
        let batch = lines.batch().map_err(|failure| stopped(failure, done, first_line))?;
        let Some(batch) = batch else { break };
        let jids = session.client.put_many(&batch.puts).await.map_err(|error| {
            let next = format!(
                "lines {} to {} were refused together ({done} jobs before them were put); correct them and go on from there with tail -n +{}",
                batch.first_line, batch.last_line, batch.first_line
            );
            Failure::Advised(error, next)
        })?;
        done += jids.len();
        for jid in &jids {
            session.out.say(&json!({"jid": jid}), jid)?;
        }
    }
    if done == 0 { Err(Failure::Nothing("there was no job on standard input".to_owned())) } else { Ok(()) }
}

fn stopped(failure: Failure, done: usize, first_line: usize) -> Failure {
    match failure {
        Failure::Usage(why) => {
            Failure::Usage(format!("{why}\n  {done} jobs were put; nothing from line {first_line} on was"))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Lines<&[u8]> {
        Lines { reader: BufReader::with_capacity(READ_BYTES, text.as_bytes()), number: 0 }
    }

    #[test]
    fn lines_are_read_in_batches_and_blank_ones_skipped() {
        let job = "{\"queue\":\"q\",\"klass\":\"k\"}\n";
        let text = format!("\n{}", job.repeat(BATCH_JOBS_MAX + 1));
        let mut lines = lines(&text);
        let first = lines.batch().unwrap().unwrap();
        assert_eq!(
            (first.puts.len(), first.first_line, first.last_line),
            (BATCH_JOBS_MAX, 1, BATCH_JOBS_MAX + 1)
        );
        let second = lines.batch().unwrap().unwrap();
        assert_eq!((second.puts.len(), second.first_line), (1, BATCH_JOBS_MAX + 2));
        assert!(lines.batch().unwrap().is_none());
    }

    #[test]
    fn a_wrong_line_is_named() {
        for wrong in [
            "{}",
            "[1]",
            "x",
            r#"{"queue":"q","klass":"k","dalay":1}"#,
            r#"{"queue":"q","klass":"k","delay":-1}"#,
        ] {
            let text = format!("\n{wrong}\n");
            let Err(Failure::Usage(why)) = lines(&text).batch() else { panic!("{wrong} was taken") };
            assert!(why.starts_with("line 2: not a job"), "{why}");
        }
    }
}
