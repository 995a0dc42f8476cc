//! What the reply decoder accepts, refuses, and how it resumes.

use super::super::{Frame, Limits, Protocol, ProtocolError};
use super::{Decoder, decode};
use bytes::{Buf, Bytes, BytesMut};
use proptest::prelude::*;

fn small() -> Limits {
    Limits {
        arguments_max: 3,
        argument_bytes_max: 8,
        request_bytes_max: 40,
        inline_bytes_max: 12,
        reply_depth_max: 2,
    }
}

fn one(input: &str) -> Frame {
    let (frame, consumed) = decode(input.as_bytes(), &Limits::default()).unwrap().unwrap();
    assert_eq!(consumed, input.len(), "{input:?}");
    frame
}

fn decode_in_pieces(input: &[u8], piece: usize, limits: &Limits) -> Result<Vec<Frame>, ProtocolError> {
    let (mut decoder, mut buf, mut frames) = (Decoder::new(), BytesMut::new(), Vec::new());
    for chunk in input.chunks(piece.max(1)) {
        buf.extend_from_slice(chunk);
        loop {
            let (consumed, frame) = decoder.feed(&buf, limits)?;
            buf.advance(consumed);
            match frame {
                Some(frame) => frames.push(frame),
                None => break,
            }
        }
    }
    Ok(frames)
}

#[test]
fn every_reply_type_is_read() {
    let cases = [
        ("+OK\r\n", Frame::ok()),
        ("-ERR no\r\n", Frame::Error("ERR no".into())),
        (":-12\r\n", Frame::Int(-12)),
        (":+12\r\n", Frame::Int(12)),
        ("$3\r\na\nb\r\n", Frame::bulk("a\nb")),
        ("$-1\r\n", Frame::Nil),
        ("*-1\r\n", Frame::NilArray),
        ("*0\r\n", Frame::Array(vec![])),
        (
            "*2\r\n*1\r\n:1\r\n$0\r\n\r\n",
            Frame::Array(vec![Frame::Array(vec![Frame::Int(1)]), Frame::bulk("")]),
        ),
        ("_\r\n", Frame::Nil),
        ("#t\r\n", Frame::Bool(true)),
        (",1.5\r\n", Frame::Double(1.5)),
        (",-inf\r\n", Frame::Double(f64::NEG_INFINITY)),
        ("(12345678901234567890\r\n", Frame::bulk("12345678901234567890")),
        ("!5\r\nERR x\r\n", Frame::Error("ERR x".into())),
        ("=7\r\ntxt:abc\r\n", Frame::bulk("abc")),
        ("~1\r\n:1\r\n", Frame::Set(vec![Frame::Int(1)])),
        (">1\r\n:1\r\n", Frame::Push(vec![Frame::Int(1)])),
        ("%1\r\n+a\r\n:1\r\n", Frame::Map(vec![(Frame::Simple("a".into()), Frame::Int(1))])),
        ("|1\r\n+a\r\n:1\r\n:7\r\n", Frame::Int(7)),
        ("*2\r\n|1\r\n+a\r\n:1\r\n:7\r\n:8\r\n", Frame::Array(vec![Frame::Int(7), Frame::Int(8)])),
    ];
    for (input, frame) in cases {
        assert_eq!(one(input), frame, "{input:?}");
    }
}

#[test]
fn what_is_no_reply_is_refused() {
    let cases = [
        ("x", ProtocolError::UnknownType(b'x')),
        (":\r\n", ProtocolError::InvalidNumber),
        (":1x\r\n", ProtocolError::InvalidNumber),
        (",x\r\n", ProtocolError::InvalidNumber),
        ("#x\r\n", ProtocolError::InvalidNumber),
        ("$-2\r\n", ProtocolError::InvalidBulkLength),
        ("$?\r\n", ProtocolError::InvalidBulkLength),
        ("*-2\r\n", ProtocolError::InvalidMultibulkLength),
        ("%-1\r\n", ProtocolError::InvalidMultibulkLength),
        ("$1\r\nabc", ProtocolError::MissingTerminator),
        ("+a\n", ProtocolError::MissingTerminator),
    ];
    for (input, error) in cases {
        assert_eq!(decode(input.as_bytes(), &Limits::default()), Err(error), "{input:?}");
    }
}

#[test]
fn every_limit_holds_at_itself_and_breaks_one_past_it() {
    let bulk = |bytes: usize| format!("${bytes}\r\n{}\r\n", "a".repeat(bytes));
    let cases = [
        (format!("*3\r\n{}", ":1\r\n".repeat(3)), None),
        (format!("*4\r\n{}", ":1\r\n".repeat(4)), Some(ProtocolError::TooBig)),
        (bulk(8), None),
        (bulk(9), Some(ProtocolError::InvalidBulkLength)),
        (format!("*3\r\n{}{}{}", bulk(7), bulk(6), bulk(5)), None),
        (format!("*3\r\n{}{}{}", bulk(7), bulk(6), bulk(6)), Some(ProtocolError::TooBig)),
        (format!("+{}\r\n", "a".repeat(12)), None),
        (format!("+{}\r\n", "a".repeat(13)), Some(ProtocolError::TooBigInline)),
        ("*1\r\n*1\r\n:1\r\n".to_owned(), None),
        ("*1\r\n*1\r\n*1\r\n:1\r\n".to_owned(), Some(ProtocolError::TooDeep)),
    ];
    for (input, error) in cases {
        assert_eq!(decode_in_pieces(input.as_bytes(), input.len(), &small()).err(), error, "{input:?}");
        assert_eq!(decode_in_pieces(input.as_bytes(), 1, &small()).err(), error, "{input:?}");
    }
}

/// A reply of many elements in small pieces is decoded in one pass; quadratic work would take minutes.
#[test]
fn a_large_reply_in_small_pieces_is_decoded_once() {
    let reply = Frame::Array(vec![Frame::bulk("x"); 200_000]);
    let mut out = BytesMut::new();
    reply.encode(Protocol::Resp2, &mut out);
    assert_eq!(decode_in_pieces(&out, 97, &Limits::default()), Ok(vec![reply]));
}

fn frames() -> impl Strategy<Value = Frame> {
    let leaf = prop_oneof![
        Just(Frame::Nil),
        any::<i64>().prop_map(Frame::Int),
        any::<f64>()
            .prop_filter("nan is not equal to itself", |value| !value.is_nan())
            .prop_map(Frame::Double),
        any::<bool>().prop_map(Frame::Bool),
        "[a-zA-Zäö ]{0,12}".prop_map(|text| Frame::Simple(text.into())),
        "[A-Z]{1,5} [a-z ]{0,12}".prop_map(Frame::Error),
        prop::collection::vec(any::<u8>(), 0..30).prop_map(|bytes| Frame::Bulk(Bytes::from(bytes))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let items = || prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            items().prop_map(Frame::Array),
            items().prop_map(Frame::Set),
            items().prop_map(Frame::Push),
            prop::collection::vec((inner.clone(), inner.clone()), 0..3).prop_map(Frame::Map),
        ]
    })
}

/// What RESP2 leaves of a frame.
fn flattened(frame: &Frame) -> Frame {
    let items = |items: &[Frame]| Frame::Array(items.iter().map(flattened).collect());
    match frame {
        Frame::Bool(value) => Frame::Int(i64::from(*value)),
        Frame::Double(value) => Frame::bulk(super::super::number::double_text(*value)),
        Frame::Array(inner) | Frame::Set(inner) | Frame::Push(inner) => items(inner),
        Frame::Map(pairs) => {
            Frame::Array(pairs.iter().flat_map(|(key, value)| [flattened(key), flattened(value)]).collect())
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(sent in prop::collection::vec(frames(), 1..4), piece in 1_usize..9) {
        let (mut resp2, mut resp3) = (BytesMut::new(), BytesMut::new());
        for frame in &sent {
            frame.encode(Protocol::Resp2, &mut resp2);
            frame.encode(Protocol::Resp3, &mut resp3);
        }
        let flat: Vec<_> = sent.iter().map(flattened).collect();
        for piece in [1, piece, usize::MAX] {
            prop_assert_eq!(decode_in_pieces(&resp2, piece, &Limits::default()), Ok(flat.clone()));
            prop_assert_eq!(decode_in_pieces(&resp3, piece, &Limits::default()), Ok(sent.clone()));
        }
    }

    #[test]
    fn a_double_reads_back_to_the_same_bits(value in any::<f64>().prop_filter("not a number", |v| !v.is_nan())) {
        let text = super::super::number::double_text(value);
        prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
    }

    #[test]
    fn random_bytes_never_panic(
        kinds in prop::collection::vec(prop::sample::select(b"$*%~>|+-:_,#(!=12\r\n".to_vec()), 0..60),
        noise in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        for input in [&kinds, &noise] {
            let whole = decode_in_pieces(input, usize::MAX, &small());
            prop_assert_eq!(decode_in_pieces(input, 1, &small()), whole);
        }
    }
}
