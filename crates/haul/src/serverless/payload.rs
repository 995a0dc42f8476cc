//! Payloads as a job's data. Data is JSON everywhere else in Haul, so that every client can show it: JSON is kept as it
//! is, other text becomes a JSON string, other bytes a small object. Both ways, nothing is lost and nothing is taken for
//! something else.

use bytes::Bytes;

use crate::dialect::args;
use crate::dialect::json::push_json_string;

const HEX: &[u8] = b"{\"$hex\":\"";

/// The data that stands for a payload.
pub(crate) fn to_data(payload: &Bytes) -> Bytes {
    // A JSON string would read as text that was made one.
    let ambiguous = payload.first() == Some(&b'"') || payload.starts_with(HEX);
    let spaced = payload.first().is_none_or(u8::is_ascii_whitespace)
        || payload.last().is_none_or(u8::is_ascii_whitespace);
    if !ambiguous && !spaced && args::kind(payload).is_ok() {
        return payload.clone();
    }
    Bytes::from(to_text(payload))
}

/// Bytes as JSON: text is a string, anything else an object that says so.
pub(crate) fn to_text(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 16);
    if std::str::from_utf8(payload).is_ok() {
        push_json_string(&mut out, payload);
    } else {
        out.extend_from_slice(HEX);
        for byte in payload.iter() {
            out.extend_from_slice(format!("{byte:02x}").as_bytes());
        }
        out.extend_from_slice(b"\"}");
    }
    out
}

/// The payload that data stands for.
pub(crate) fn to_payload(data: Bytes) -> Bytes {
    if data.first() == Some(&b'"')
        && let Ok(text) = serde_json::from_slice::<String>(&data)
    {
        return Bytes::from(text);
    }
    let digits = data.strip_prefix(HEX).and_then(|rest| rest.strip_suffix(b"\"}".as_slice()));
    match digits.and_then(unhex) {
        Some(bytes) => Bytes::from(bytes),
        None => data,
    }
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_survives_and_is_json_meanwhile() {
        for payload in [
            &b""[..],
            b"hello",
            b"{\"a\":1}",
            b"[1,2]",
            b"17",
            b"\"a string\"",
            b"\"",
            b" 1",
            b"1 ",
            b"two\nlines\n",
            b"\xff\xfe\x00",
            b"{\"$hex\":\"00\"}",
            "ä\u{1f600}\u{0}".as_bytes(),
            b"nul\x00byte",
            b"{\"a\":",
        ] {
            let data = to_data(&Bytes::copy_from_slice(payload));
            assert!(args::kind(&data).is_ok(), "{data:?}");
            assert_eq!(&to_payload(data)[..], payload);
        }
    }

    #[test]
    fn data_put_by_others_is_given_as_it_is() {
        assert_eq!(&to_payload(Bytes::from_static(b"{ \"a\": 1 }"))[..], b"{ \"a\": 1 }");
        assert_eq!(&to_payload(Bytes::from_static(b"\"text\""))[..], b"text");
    }
}
