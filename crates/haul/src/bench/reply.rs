//! Answers, looked at where they stand: how long one is, whether it is an error, which jobs it names. Nothing is
//! copied but the jids.

use memchr::memmem;

/// Jids, one after another in one buffer.
#[derive(Default)]
pub(super) struct Jids {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Jids {
    pub(super) fn push(&mut self, jid: &[u8]) {
        self.bytes.extend_from_slice(jid);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default())
    }

    /// Moves the last ones over, at most `count`.
    pub(super) fn take_into(&mut self, count: usize, other: &mut Jids) {
        let keep = self.len().saturating_sub(count);
        let from = keep.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        let mut start = from;
        for end in self.ends.drain(keep..) {
            other.push(self.bytes.get(start..end).unwrap_or_default());
            start = end;
        }
        self.bytes.truncate(from);
    }
}

/// The bytes are not an answer in the server's protocol.
#[derive(Debug, thiserror::Error)]
#[error("the server's answer is not in its protocol")]
pub(super) struct NotSpoken;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    Resp,
    Http,
    Beanstalk,
}

impl Speech {
    /// How many bytes the answer at the start of the buffer takes; none while it is incomplete.
    pub(super) fn length(self, buf: &[u8]) -> Result<Option<usize>, NotSpoken> {
        match self {
            Speech::Resp => resp_length(buf),
            Speech::Http => http_length(buf),
            Speech::Beanstalk => beanstalk_length(buf),
        }
    }

    /// Whether the server said no.
    pub(super) fn is_refusal(self, answer: &[u8]) -> bool {
        match self {
            Speech::Resp => answer.first() == Some(&b'-'),
            Speech::Http => answer.get(9) != Some(&b'2'),
            Speech::Beanstalk => !BEANSTALK_ANSWERS.iter().any(|word| answer.starts_with(word)),
        }
    }
}

/// What beanstalkd answers when all is well.
const BEANSTALK_ANSWERS: [&[u8]; 7] =
    [b"INSERTED ", b"RESERVED ", b"DELETED\r", b"USING ", b"WATCHING ", b"OK ", b"TIMED_OUT\r"];

fn resp_length(buf: &[u8]) -> Result<Option<usize>, NotSpoken> {
    let (mut at, mut left) = (0, 1_usize);
    while left > 0 {
        let Some(rest) = buf.get(at..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
        let Some(line_end) = memchr::memchr(b'\n', rest) else { return Ok(None) };
        left -= 1;
        at += line_end + 1;
        match rest.first() {
            Some(b'+' | b'-' | b':') => {}
            Some(b'$') => at += number(rest, line_end)?.map_or(0, |bytes| bytes + 2),
            Some(b'*') => left += number(rest, line_end)?.unwrap_or(0),
            _ => return Err(NotSpoken),
        }
    }
    Ok((at <= buf.len()).then_some(at))
}

fn http_length(buf: &[u8]) -> Result<Option<usize>, NotSpoken> {
    const MARK: &[u8] = b"\r\ncontent-length: ";
    let Some(head) = memmem::find(buf, b"\r\n\r\n") else { return Ok(None) };
    let lines = buf.get(..head + 2).unwrap_or_default();
    let body = match memmem::find(lines, MARK) {
        Some(at) => {
            let digits = lines.get(at + MARK.len()..).unwrap_or_default();
            let end = memchr::memchr(b'\r', digits).unwrap_or(0);
            let text =
                digits.get(..end).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or(NotSpoken)?;
            text.parse::<usize>().map_err(|_| NotSpoken)?
        }
        None => 0,
    };
    let length = head + 4 + body;
    Ok((length <= buf.len()).then_some(length))
}

/// A line; behind `RESERVED id bytes` and `OK bytes` follow as many bytes and a line's end.
fn beanstalk_length(buf: &[u8]) -> Result<Option<usize>, NotSpoken> {
    let Some(line_end) = memchr::memchr(b'\n', buf) else { return Ok(None) };
    let line = std::str::from_utf8(buf.get(..line_end).unwrap_or_default()).map_err(|_| NotSpoken)?;
    let mut words = line.split_ascii_whitespace();
    let body = match words.next() {
        Some("RESERVED" | "OK") => {
            let bytes = words.next_back().and_then(|word| word.parse::<usize>().ok()).ok_or(NotSpoken)?;
            bytes + 2
        }
        _ => 0,
    };
    let length = line_end + 1 + body;
    Ok((length <= buf.len()).then_some(length))
}

/// The number in a header; none for -1.
fn number(rest: &[u8], line_end: usize) -> Result<Option<usize>, NotSpoken> {
    let digits = rest.get(1..line_end.saturating_sub(1)).ok_or(NotSpoken)?;
    if digits == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(digits).map_err(|_| NotSpoken)?;
    text.parse().map(Some).map_err(|_| NotSpoken)
}

/// Collects the jids of the jobs in an answer to pop: beanstalkd's one, or those in JSON, whatever wraps it.
pub(super) fn collect_jids(answer: &[u8], jids: &mut Jids) {
    const MARK: &[u8] = b"\"jid\":\"";
    if let Some(id) = answer.strip_prefix(b"RESERVED ") {
        return jids.push(id.split(|byte| *byte == b' ').next().unwrap_or_default());
    }
    let mut rest = answer;
    while let Some(at) = memmem::find(rest, MARK) {
        let from = rest.get(at + MARK.len()..).unwrap_or_default();
        let end = memchr::memchr(b'"', from).unwrap_or(from.len());
        jids.push(from.get(..end).unwrap_or_default());
        rest = from.get(end..).unwrap_or_default();
    }
}

/// How many jobs an answer says are complete: one for a single complete, one for each element of a bulk one.
pub(super) fn count_complete(answer: &[u8]) -> usize {
    let mark: &[u8] = match answer.first() {
        Some(b'H') => b"\"state\":\"complete\"",
        Some(b'D') => b"DELETED\r\n",
        _ => b"complete\r\n",
    };
    memmem::find_iter(answer, mark).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_answer_is_known_once_it_is_whole() {
        for whole in
            ["+PONG\r\n", "$3\r\nabc\r\n", "$-1\r\n", "*2\r\n$1\r\na\r\n*1\r\n:5\r\n", "*0\r\n", "*-1\r\n"]
        {
            for cut in 0..whole.len() {
                assert_eq!(resp_length(&whole.as_bytes()[..cut]).unwrap(), None, "{whole:?} cut at {cut}");
            }
            assert_eq!(resp_length(format!("{whole}+next").as_bytes()).unwrap(), Some(whole.len()));
        }
        assert!(resp_length(b"hello\r\n").is_err());
    }

    #[test]
    fn beanstalkds_answers_are_known_once_they_are_whole() {
        for whole in ["INSERTED 5\r\n", "RESERVED 5 3\r\na\nb\r\n", "DELETED\r\n", "TIMED_OUT\r\n"] {
            for cut in 0..whole.len() {
                assert_eq!(
                    beanstalk_length(&whole.as_bytes()[..cut]).unwrap(),
                    None,
                    "{whole:?} cut at {cut}"
                );
            }
            assert_eq!(beanstalk_length(format!("{whole}DELETED").as_bytes()).unwrap(), Some(whole.len()));
            assert!(!Speech::Beanstalk.is_refusal(whole.as_bytes()));
        }
        assert!(Speech::Beanstalk.is_refusal(b"OUT_OF_MEMORY\r\n"));
        let mut jids = Jids::default();
        collect_jids(b"RESERVED 57 3\r\nabc\r\n", &mut jids);
        assert_eq!(jids.iter().collect::<Vec<_>>(), [b"57".as_slice()]);
    }

    #[test]
    fn jids_are_found_in_every_dialect() {
        let mut jids = Jids::default();
        collect_jids(br#"[{"tags":{},"jid":"a1","data":"{}"},{"jid":"b22"}]"#, &mut jids);
        assert_eq!(jids.iter().collect::<Vec<_>>(), [b"a1".as_slice(), b"b22"]);
        let mut last = Jids::default();
        jids.take_into(1, &mut last);
        assert_eq!(last.iter().collect::<Vec<_>>(), [b"b22".as_slice()]);
        assert_eq!(jids.iter().collect::<Vec<_>>(), [b"a1".as_slice()]);
        jids.take_into(5, &mut last);
        assert_eq!((jids.len(), last.len()), (0, 2));
    }

    #[test]
    fn completes_are_counted_one_by_one() {
        assert_eq!(count_complete(b"$8\r\ncomplete\r\n"), 1);
        assert_eq!(count_complete(b"*2\r\n$8\r\ncomplete\r\n$7\r\nNOTHELD\r\n"), 1);
    }
}
