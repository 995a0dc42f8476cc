//! Job ids: seven digits of milliseconds, the sysid, three digits of a sequence. Digits are base 64 in ASCII order, so
//! that ids of one server sort by time as text.

use std::fmt;
use std::sync::{Mutex, PoisonError};

const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
const TIME_DIGITS: usize = 7;
const SYSID_BYTES: usize = 7;
const ID_BYTES: usize = TIME_DIGITS + 1 + SYSID_BYTES + 1 + 3;

/// Sequence numbers there are: it wraps here.
pub const SEQUENCES: u32 = 64 * 64 * 64;

/// A number in `count` digits; what does not fit is cut off on the left.
pub fn digits(mut value: u64, count: usize) -> String {
    let mut out = vec![b'0'; count];
    for place in out.iter_mut().rev() {
        *place = DIGITS.get((value & 63) as usize).copied().unwrap_or(b'0');
        value >>= 6;
    }
    out.into_iter().map(char::from).collect()
}

/// The number these digits are.
pub fn value_of(text: &[u8]) -> Option<u64> {
    if text.len() > 10 {
        return None;
    }
    text.iter().try_fold(0, |value, byte| {
        let digit = DIGITS.binary_search(byte).ok()?;
        Some(value << 6 | digit as u64)
    })
}

/// Who made an id: two letters of the machine's name and four random digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sysid(String);

impl Sysid {
    /// From the machine's name and something random.
    pub fn new(host: &str, random: u64) -> Self {
        let short = host.split('.').next().unwrap_or_default();
        let letter = |found: Option<char>| found.filter(char::is_ascii_alphanumeric).unwrap_or('x');
        let (first, last) = (letter(short.chars().next()), letter(short.chars().next_back()));
        Sysid(format!("{first}{last}-{}", digits(random, 4)))
    }

    /// What is written as one; none if it is not.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, random) = text.split_once('-')?;
        let fine = host.len() == 2 && host.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (fine && random.len() == 4 && value_of(random.as_bytes()).is_some()).then(|| Sysid(text.to_owned()))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A job's id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// Milliseconds since 1970.
    pub ms: u64,
    /// Who made it.
    pub sysid: Sysid,
    /// Which of that millisecond.
    pub sequence: u32,
}

impl Id {
    /// What is written as one; none if it is not.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != ID_BYTES || !text.is_ascii() {
            return None;
        }
        let (ms, rest) = text.split_at_checked(TIME_DIGITS)?;
        let (sysid, sequence) = rest.strip_prefix('-')?.split_at_checked(SYSID_BYTES)?;
        Some(Id {
            ms: value_of(ms.as_bytes())?,
            sysid: Sysid::parse(sysid)?,
            sequence: value_of(sequence.strip_prefix('-')?.as_bytes())? as u32,
        })
    }

    /// The id `by` sequence numbers on.
    pub fn advanced(&self, by: u32) -> Id {
        Id { sequence: (self.sequence + by) % SEQUENCES, ..self.clone() }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", digits(self.ms, 7), self.sysid.as_str(), digits(u64::from(self.sequence), 3))
    }
}

/// Makes ids: never the same one twice, never one with an earlier time than the one before.
#[derive(Debug)]
pub struct Ids {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sysid: Sysid,
    ms: u64,
    next: u32,
    /// How often the numbers have begun again.
    wraps: u64,
}

impl Ids {
    /// Ids of this sysid.
    pub fn new(sysid: Sysid) -> Self {
        Ids { state: Mutex::new(State { sysid, ms: 0, next: 0, wraps: 0 }) }
    }

    /// The sysid in use.
    pub fn sysid(&self) -> Sysid {
        self.lock().sysid.clone()
    }

    /// From now on ids are made with another sysid.
    pub fn rename(&self, sysid: Sysid) {
        self.lock().sysid = sysid;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first of `count` ids whose sequence numbers follow each other. At most [`SEQUENCES`].
    pub fn take(&self, now_ms: u64, count: u32) -> Id {
        let mut state = self.lock();
        state.ms = state.ms.max(now_ms);
        if state.next + count.min(SEQUENCES) > SEQUENCES {
            // The numbers begin again, so the millisecond must be another one.
            (state.ms, state.next, state.wraps) = (state.ms + 1, 0, state.wraps + 1);
        }
        let id = Id { ms: state.ms, sysid: state.sysid.clone(), sequence: state.next };
        state.next += count.min(SEQUENCES);
        id
    }

    /// As [`take`](Ids::take), for what was made elsewhere at a known time; moved on by a millisecond each time the numbers
    /// begin again, so that very many of one moment stay apart.
    pub fn take_for(&self, ms: u64, count: u32) -> Id {
        let id = self.take(0, count);
        Id { ms: ms + self.lock().wraps, ..id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_round_trips() {
        let id = Id::parse("NC2oBN3-lt-0aZ~-000").unwrap();
        assert_eq!(crate::iso(id.ms), "2020-06-30T01:17:17.123Z");
        assert_eq!((id.sysid.as_str(), id.sequence), ("lt-0aZ~", 0));
        assert_eq!(id.to_string(), "NC2oBN3-lt-0aZ~-000");
        assert_eq!(id.advanced(65).to_string(), "NC2oBN3-lt-0aZ~-011");
    }

    #[test]
    fn what_is_no_id_is_none() {
        for text in [
            "",
            "NC2oBN3lt-0aZ~-000",
            "NC2oBN3-lt-0aZ~-00",
            "NC2oBN3-lt-0aZ~-0000",
            "NC2oBN3-l!-0aZ~-000",
            "NC2o N3-lt-0aZ~-000",
            "1593479837123",
        ] {
            assert!(Id::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn digits_are_in_ascii_order_and_seven_last_until_2109() {
        assert!(DIGITS.windows(2).all(|pair| pair[0] < pair[1]));
        let last = value_of(b"~~~~~~~").unwrap();
        assert!(crate::iso(last).starts_with("2109-"));
    }

    #[test]
    fn ids_never_repeat_and_time_never_runs_backwards() {
        let ids = Ids::new(Sysid::new("localhost.example", 7));
        let first = ids.take(5000, SEQUENCES - 1);
        let second = ids.take(4000, 1);
        let third = ids.take(4000, 2);
        assert_eq!((first.ms, first.sequence), (5000, 0));
        assert_eq!((second.ms, second.sequence), (5000, SEQUENCES - 1));
        assert_eq!((third.ms, third.sequence), (5001, 0));
        assert!(first.to_string() < second.to_string() && second.to_string() < third.to_string());
    }

    #[test]
    fn very_many_of_one_moment_made_elsewhere_stay_apart() {
        let ids = Ids::new(Sysid::new("localhost.example", 7));
        let first = ids.take_for(5000, SEQUENCES);
        let second = ids.take_for(5000, 1);
        assert_eq!((first.ms, first.sequence), (5000, 0));
        assert_eq!((second.ms, second.sequence), (5001, 0));
    }

    #[test]
    fn a_sysid_has_the_first_and_last_letter_of_the_short_host_name() {
        assert_eq!(Sysid::new("lighthost.example.com", 0).as_str(), "lt-0000");
        assert_eq!(Sysid::new("", 63).as_str(), "xx-000~");
    }
}
