//! Expectations: whether a reply and its events are what a script says.

use haul_client::resp::Frame;
use serde_json::Value;

use super::parse::{Step, words};

/// A complaint, or none.
pub(super) fn check(step: &Step, frame: &Frame, events: &[(Vec<u8>, Vec<u8>)]) -> Option<String> {
    for want in &step.expected {
        if !matches(frame, want) {
            return Some(format!("want {}\n  got  {frame:?}", String::from_utf8_lossy(want)));
        }
    }
    if step.expected.is_empty() && matches!(frame, Frame::Error(_)) {
        return Some(format!("got {frame:?}"));
    }
    let show = |events: &[(Vec<u8>, Vec<u8>)]| {
        let show = |(channel, payload): &(Vec<u8>, Vec<u8>)| {
            format!("{} {}", String::from_utf8_lossy(channel), String::from_utf8_lossy(payload))
        };
        events.iter().map(show).collect::<Vec<_>>().join("; ")
    };
    match &step.events {
        Some(want) if want != events => Some(format!("want events {}\n  got  {}", show(want), show(events))),
        _ => None,
    }
}

fn matches(frame: &Frame, want: &[u8]) -> bool {
    let space = want.iter().position(|byte| *byte == b' ').unwrap_or(want.len());
    let (kind, rest) = (&want[..space], want.get(space + 1..).unwrap_or_default());
    match kind {
        b"any" => true,
        b"nil" => *frame == Frame::Nil,
        b"ok" => matches!(frame, Frame::Simple(text) if rest.is_empty() || text.as_bytes() == rest),
        b"text" => text_of(frame).is_some_and(|text| text == rest),
        b"json" => decoded(frame).is_some_and(|got| same(&got, &serde_json::from_slice(rest).unwrap())),
        b"has" => decoded(frame).is_some_and(|got| has(&got, &serde_json::from_slice(rest).unwrap())),
        b"list" => flat(frame).is_some_and(|got| alike(&got, &words(rest))),
        b"set" => {
            let (mut got, mut want) = (flat(frame).unwrap_or_default(), words(rest));
            got.sort();
            want.sort();
            flat(frame).is_some() && got == want
        }
        b"hash" => pairs(frame) == Some(sorted_pairs(&words(rest))),
        b"error" => matches!(frame, Frame::Error(text) if message(text).as_bytes() == rest.trim_ascii_end()),
        _ if kind.starts_with(b":") => {
            *frame == Frame::Int(String::from_utf8_lossy(&kind[1..]).parse().unwrap())
        }
        _ if want.starts_with(b"\"") => text_of(frame).is_some_and(|text| alike(&[text], &words(want))),
        _ => panic!("unknown expectation {}", String::from_utf8_lossy(want)),
    }
}

/// Errors without the script envelope; CR and LF are spaces on the wire.
fn message(text: &str) -> String {
    let text = text.strip_prefix("ERR ").unwrap_or(text);
    let text = text.strip_prefix("user_script:1: ").unwrap_or(text);
    text.replace(['\r', '\n'], " ").trim_end().to_owned()
}

fn text_of(frame: &Frame) -> Option<Vec<u8>> {
    match frame {
        Frame::Bulk(bytes) => Some(bytes.to_vec()),
        Frame::Double(value) => Some(format!("{value}").into_bytes()),
        _ => None,
    }
}

fn flat(frame: &Frame) -> Option<Vec<Vec<u8>>> {
    let one = |frame: &Frame| match frame {
        Frame::Nil => b"(nil)".to_vec(),
        Frame::Int(value) => value.to_string().into_bytes(),
        other => text_of(other).unwrap_or_default(),
    };
    match frame {
        Frame::Array(items) | Frame::Set(items) => Some(items.iter().map(one).collect()),
        Frame::Map(items) | Frame::Pairs(items) => {
            Some(items.iter().flat_map(|(first, second)| [one(first), one(second)]).collect())
        }
        _ => None,
    }
}

fn sorted_pairs(list: &[Vec<u8>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs: Vec<_> = list.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    pairs.sort();
    pairs
}

fn pairs(frame: &Frame) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    flat(frame).map(|list| sorted_pairs(&list))
}

/// The same words; a score may be written in more digits than it needs.
fn alike(got: &[Vec<u8>], want: &[Vec<u8>]) -> bool {
    let number = |text: &[u8]| -> Option<f64> {
        text.iter().any(|byte| b".e".contains(byte)).then(|| std::str::from_utf8(text).ok()?.parse().ok())?
    };
    let one = |(got, want): (&Vec<u8>, &Vec<u8>)| {
        got == want || (number(got).is_some() && number(got) == number(want))
    };
    got.len() == want.len() && got.iter().zip(want).all(one)
}

fn decoded(frame: &Frame) -> Option<Value> {
    let decode = |frame: &Frame| serde_json::from_slice::<Value>(&text_of(frame)?).ok();
    match frame {
        Frame::Array(items) => Some(Value::Array(items.iter().map(decode).collect::<Option<_>>()?)),
        other => decode(other),
    }
}

fn same(got: &Value, want: &Value) -> bool {
    match (got, want) {
        (Value::Number(got), Value::Number(want)) => got.as_f64() == want.as_f64(),
        (Value::Array(got), Value::Array(want)) => {
            got.len() == want.len() && got.iter().zip(want).all(|(got, want)| same(got, want))
        }
        (Value::Object(got), Value::Object(want)) => {
            got.len() == want.len()
                && want.iter().all(|(key, want)| got.get(key).is_some_and(|got| same(got, want)))
        }
        (got, want) => got == want,
    }
}

fn has(got: &Value, want: &Value) -> bool {
    match (got, want) {
        (Value::Object(got), Value::Object(want)) if !want.is_empty() => {
            want.iter().all(|(key, want)| got.get(key).is_some_and(|got| has(got, want)))
        }
        (Value::Array(got), Value::Array(want)) => {
            got.len() == want.len() && got.iter().zip(want).all(|(got, want)| has(got, want))
        }
        (got, want) => same(got, want),
    }
}
