//! What a run came to: exit codes, their meaning, and the lines of its output. Pure.

use bytes::Bytes;
use haul_journal::{FullType, Post};

/// Lines that make jobs, of one job at most.
pub(crate) const FOLLOW_LINES_MAX: usize = 1000;
/// Bytes of output of one job at most.
pub(crate) const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Bytes of a result that are kept at most.
pub(crate) const RESULT_BYTES_MAX: usize = 16_777_215;

/// What an exit code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Could not finish, for a cause that was expected: again, later.
    Retry,
    /// Done.
    Ok,
    /// Ran as it should and cannot succeed.
    Failed,
    /// Something unexpected: again, later.
    Error,
}

impl Code {
    pub(crate) fn of(exitcode: u16) -> Self {
        match exitcode {
            200..=299 => Code::Ok,
            400..=499 => Code::Failed,
            500..=599 => Code::Error,
            _ => Code::Retry,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Code::Retry => "retry",
            Code::Ok => "ok",
            Code::Failed => "failed",
            Code::Error => "error",
        }
    }

    /// Whether the job has come to its end.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Code::Ok | Code::Failed)
    }
}

/// The exit code that the end of a process stands for; none: a signal.
pub(crate) fn of_status(status: Option<i32>) -> u16 {
    match status {
        Some(0) => 200,
        Some(status @ 100..=255) => status as u16,
        Some(64 | 65) => 400,
        Some(75) => 100,
        _ => 500,
    }
}

/// What one job came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) exitcode: u16,
    /// Why, if not ok.
    pub(crate) reason: String,
    /// What it printed.
    pub(crate) output: Bytes,
    /// What it returned; none: its output is its result.
    pub(crate) result: Option<Bytes>,
    /// There was more of the result than is kept.
    pub(crate) truncated: bool,
    /// Run time in microseconds.
    pub(crate) micros: u64,
    /// Its share of what was run around its batch.
    pub(crate) shared_micros: u64,
    /// Its share of what was run once for its context.
    pub(crate) once_micros: u64,
}

impl Outcome {
    pub(crate) fn error(reason: impl Into<String>) -> Self {
        Outcome { exitcode: 500, reason: reason.into(), ..Outcome::default() }
    }

    /// Bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.output.len() + self.result.as_ref().map_or(0, Bytes::len)
    }

    pub(crate) fn code(&self) -> Code {
        Code::of(self.exitcode)
    }
}

/// What a job's output asks for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Output {
    /// Jobs to make: type and payload.
    pub(crate) follow: Vec<(FullType, Bytes)>,
    /// The lines that are neither jobs nor comments.
    pub(crate) plain: Vec<u8>,
    /// Lines that meant to be jobs and are not.
    pub(crate) refused: Vec<String>,
    /// There were more lines that make jobs than are allowed.
    pub(crate) too_many: bool,
}

/// Reads a job's output line by line. New jobs are of the same tenant, whatever the line says.
pub(crate) fn scan(tenant: &str, output: &Bytes) -> Output {
    let mut out = Output::default();
    let mut from = 0;
    while from < output.len() {
        let rest = output.get(from..).unwrap_or_default();
        let length = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        let line = output.slice(from..from + length);
        from += length;
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let wanted = text.strip_prefix(b"J: ").or_else(|| text.strip_prefix(b"#J: "));
        match wanted {
            Some(wanted) => match follow(tenant, wanted) {
                Some(job) if out.follow.len() < FOLLOW_LINES_MAX => out.follow.push(job),
                Some(_) => out.too_many = true,
                None => out.refused.push(String::from_utf8_lossy(wanted).into_owned()),
            },
            None if text.starts_with(b"#") => {}
            None => out.plain.extend_from_slice(&line),
        }
    }
    out
}

fn follow(tenant: &str, wanted: &[u8]) -> Option<(FullType, Bytes)> {
    let bar = memchr::memchr(b'|', wanted)?;
    let jobtype = std::str::from_utf8(wanted.get(..bar)?).ok()?;
    let full = FullType::new(tenant, jobtype).ok()?;
    Some((full, Bytes::copy_from_slice(wanted.get(bar + 1..)?)))
}

/// A payload as a post of its own.
pub(crate) fn post(full: FullType, payload: Bytes) -> Post {
    // A line cannot hold an end of line, be empty, or begin as a comment.
    let raw = payload.is_empty() || payload.starts_with(b"#") || memchr::memchr(b'\n', &payload).is_some();
    Post { full, body: payload, raw, due_ms: None }
}

/// One line of the answer to a batch.
fn batch_line(line: &[u8]) -> Option<u16> {
    let text = line.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

/// What the jobs of a batch came to, from the one answer to all of them: a line each, in order, that starts with the exit
/// code. Lines that make jobs and comments are not counted; they belong to the job whose line comes next, the last ones to
/// the last job.
pub(crate) fn of_batch(answer: &Bytes, count: usize) -> Vec<Outcome> {
    let (mut outcomes, mut pending) = (Vec::<Outcome>::new(), Vec::new());
    for line in answer.split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.starts_with(b"#") || text.starts_with(b"J: ") {
            pending.extend_from_slice(line);
            continue;
        }
        if outcomes.len() >= count {
            break;
        }
        let Some(exitcode) = batch_line(text) else { break };
        let text = String::from_utf8_lossy(text);
        let reason = text.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim().to_owned();
        pending.extend_from_slice(reason.as_bytes());
        let output = Bytes::from(std::mem::take(&mut pending));
        outcomes.push(Outcome { exitcode, reason, output, ..Outcome::default() });
    }
    let why = if outcomes.len() < count && counted(answer) > outcomes.len() {
        "invalid response"
    } else {
        "no response"
    };
    if let Some(last) = outcomes.last_mut().filter(|_| !pending.is_empty()) {
        let end: &[u8] = if pending.ends_with(b"\n") { b"" } else { b"\n" };
        last.output = Bytes::from([&pending, end, last.output.as_ref()].concat());
    }
    outcomes.resize_with(count, || Outcome::error(why));
    outcomes
}

/// How many lines stand for a job.
fn counted(answer: &[u8]) -> usize {
    let lines = answer.split(|byte| *byte == b'\n');
    lines.filter(|line| !line.is_empty() && !line.starts_with(b"#") && !line.starts_with(b"J: ")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_table_says() {
        for (exitcode, word, end) in [
            (100, "retry", false),
            (199, "retry", false),
            (200, "ok", true),
            (299, "ok", true),
            (400, "failed", true),
            (499, "failed", true),
            (500, "error", false),
            (599, "error", false),
            (300, "retry", false),
            (0, "retry", false),
            (99, "retry", false),
            (600, "retry", false),
        ] {
            assert_eq!((Code::of(exitcode).word(), Code::of(exitcode).is_end()), (word, end), "{exitcode}");
        }
    }

    #[test]
    fn process_ends_mean_what_the_table_says() {
        for (status, exitcode) in [
            (Some(0), 200),
            (Some(100), 100),
            (Some(199), 199),
            (Some(200), 200),
            (Some(255), 255),
            (Some(64), 400),
            (Some(65), 400),
            (Some(75), 100),
            (Some(1), 500),
            (Some(2), 500),
            (Some(99), 500),
            (None, 500),
        ] {
            assert_eq!(of_status(status), exitcode, "{status:?}");
        }
    }

    #[test]
    fn output_lines_make_jobs_of_the_same_tenant() {
        let text = "hello\nJ: next|a|b\n#J: newer|x\nJ:no|x\n j: no|x\nJ: other-tenant|forged\nJ: bad type|x\nJ: none\n# comment\nend";
        let seen = scan("client", &Bytes::from_static(text.as_bytes()));
        let follow: Vec<(&str, &[u8])> =
            seen.follow.iter().map(|(full, data)| (full.as_str(), &data[..])).collect();
        assert_eq!(
            follow,
            [("client-next", &b"a|b"[..]), ("client-newer", b"x"), ("client-other-tenant", b"forged"),]
        );
        assert_eq!(seen.plain, b"hello\nJ:no|x\n j: no|x\nend");
        assert_eq!(seen.refused, ["bad type|x", "none"]);
    }

    #[test]
    fn the_limit_of_output_lines_is_kept() {
        let at_limit = Bytes::from("J: t|x\n".repeat(FOLLOW_LINES_MAX));
        assert!(!scan("c", &at_limit).too_many);
        let beyond = Bytes::from("J: t|x\n".repeat(FOLLOW_LINES_MAX + 1));
        assert!(scan("c", &beyond).too_many);
    }

    #[test]
    fn a_batch_answer_is_aligned_by_its_lines() {
        let codes = |answer: &'static str, count| -> Vec<(u16, String)> {
            let outcomes = of_batch(&Bytes::from_static(answer.as_bytes()), count);
            outcomes.into_iter().map(|outcome| (outcome.exitcode, outcome.reason)).collect()
        };
        let none = |text: &str| text.to_owned();
        assert_eq!(codes("200\n404 not there\n", 2), [(200, none("")), (404, none("not there"))]);
        assert_eq!(codes("# hi\nJ: t|x\n200\n", 1), [(200, none(""))]);
        assert_eq!(codes("200\n", 2), [(200, none("")), (500, none("no response"))]);
        assert_eq!(codes("", 1), [(500, none("no response"))]);
        let lost = [(200, none("")), (500, none("invalid response")), (500, none("invalid response"))];
        assert_eq!(codes("200\nwhat\n200\n", 3), lost);
        assert_eq!(codes("200\n200\n200\n", 2), [(200, none("")), (200, none(""))]);
    }

    #[test]
    fn follow_ups_in_a_batch_answer_belong_to_the_job_they_precede() {
        let outcomes = of_batch(&Bytes::from_static(b"J: t|1\n200\nJ: t|2\n200\nJ: t|3\n"), 2);
        let seen: Vec<usize> =
            outcomes.iter().map(|outcome| scan("c", &outcome.output).follow.len()).collect();
        assert_eq!(seen, [1, 2]);
        // What stands behind the code is the result, wherever the follow-ups stand.
        let outcomes = of_batch(&Bytes::from_static(b"200 one\nJ: t|1\n200 two\nJ: t|2"), 2);
        let seen: Vec<Vec<u8>> = outcomes.iter().map(|outcome| scan("c", &outcome.output).plain).collect();
        assert_eq!(seen, [b"one", b"two"]);
    }
}
