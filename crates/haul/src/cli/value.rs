//! Arguments with a form of their own: durations, dates, JSON given here, in a file or on standard input.

use std::io::Read;
use std::time::Duration;

use haul_client::Json;

use super::failure::Failure;
use super::moment;

/// The longest duration taken: a hundred years.
const SECONDS_MAX: f64 = 100.0 * 366.0 * 86_400.0;
/// The most that is read from a file or from standard input as one value.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// `90`, `90s`, `5m`, `2h`, `1d`; with a fraction too.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let (digits, scale) = match text.char_indices().next_back() {
        Some((at, 's')) => (text.get(..at), 1.0),
        Some((at, 'm')) => (text.get(..at), 60.0),
        Some((at, 'h')) => (text.get(..at), 3600.0),
        Some((at, 'd')) => (text.get(..at), 86_400.0),
        _ => (Some(text), 1.0),
    };
    let plain = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
    let seconds = plain.and_then(|digits| digits.parse::<f64>().ok()).map(|number| number * scale);
    match seconds {
        Some(seconds) if seconds <= SECONDS_MAX => Ok(Duration::from_secs_f64(seconds)),
        Some(_) => Err("longer than a hundred years".to_owned()),
        None => Err("not a duration; write it as 90, 90s, 5m, 2h or 1d".to_owned()),
    }
}

/// `1000`, `64k`, `10m`, `2g`: bytes, in steps of 1024.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (text.get(..at), 10),
        Some((at, 'm' | 'M')) => (text.get(..at), 20),
        Some((at, 'g' | 'G')) => (text.get(..at), 30),
        _ => (Some(text), 0),
    };
    let number = digits.and_then(|digits| digits.parse::<u64>().ok());
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "not a size; write it as 1000, 64k, 10m or 2g".to_owned())
}

/// As `duration`, and longer than nothing.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be longer than nothing".to_owned()),
        longer => Ok(longer),
    }
}

/// A day, as seconds since 1970.
pub(super) fn date(text: &str) -> Result<u64, String> {
    moment::date(text).ok_or_else(|| "not a day; write it as 2024-05-31".to_owned())
}

/// The text itself; what standard input holds for `-`; what a file holds for `@file`.
pub(super) fn text(argument: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match argument.strip_prefix('@') {
        None if argument != "-" => return Ok(argument.to_owned()),
        None => std::io::stdin().lock().take(TEXT_BYTES_MAX + 1).read_to_string(&mut text),
        Some(path) => {
            std::fs::File::open(path).and_then(|file| file.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text))
        }
    };
    match read {
        Ok(bytes) if bytes as u64 > TEXT_BYTES_MAX => {
            Err(Failure::Usage(format!("{argument} holds more than {TEXT_BYTES_MAX} bytes")))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::Usage(format!("{argument} cannot be read: {error}"))),
    }
}

/// As `text`, and JSON.
pub(super) fn json(argument: &str) -> Result<Json, Failure> {
    let text = text(argument)?;
    Json::from_text(text.trim()).map_err(|error| {
        Failure::Usage(format!(
            "{error}\n  a plain text needs quotes of its own: '\"hello\"'; a file is named as @file"
        ))
    })
}

/// As `json`, if it is given.
pub(super) fn optional_json(argument: Option<&str>) -> Result<Option<Json>, Failure> {
    argument.map(json).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_form() {
        for (text, seconds) in [
            ("90", 90.0),
            ("90s", 90.0),
            ("5m", 300.0),
            ("2h", 7200.0),
            ("1d", 86_400.0),
            ("1.5m", 90.0),
            ("0", 0.0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        assert!(duration("36600d").is_ok() && duration("36601d").is_err());
        assert!(interval("0").is_err() && interval("1").is_ok());
    }

    #[test]
    fn sizes_are_read_in_every_form() {
        for (text, wanted) in [("1000", 1000), ("64k", 64 << 10), ("10m", 10 << 20), ("2G", 2 << 30)] {
            assert_eq!(bytes(text), Ok(wanted), "{text}");
        }
        for text in ["", "k", "-1", "1.5m", "99999999999g"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "s", "5x", "-1", "1e3", "inf", "NaN", "5 m", "m5", "1..2", "5é"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
