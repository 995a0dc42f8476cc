//! What the request parser accepts, refuses, and how it resumes.

use super::super::{Limits, ProtocolError, encode_request};
use super::{Args, Parse, parse_request};
use bytes::BytesMut;
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

fn parse_all(input: &[u8], limits: &Limits) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
    parse_in_pieces(input, input.len().max(1), limits)
}

/// Feeds the input `piece` bytes at a time, as a connection would.
fn parse_in_pieces(input: &[u8], piece: usize, limits: &Limits) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
    let (mut buf, mut args, mut requests) = (Vec::new(), Args::new(), Vec::new());
    for chunk in input.chunks(piece) {
        buf.extend_from_slice(chunk);
        while !buf.is_empty() {
            match parse_request(&buf, limits, &mut args)? {
                Parse::Complete { consumed } => {
                    let request: Vec<_> = args.iter(&buf).map(<[u8]>::to_vec).collect();
                    for (index, arg) in request.iter().enumerate() {
                        assert_eq!(args.get(&buf, index), Some(arg.as_slice()));
                    }
                    if !request.is_empty() {
                        requests.push(request);
                    }
                    assert!(consumed > 0);
                    buf.drain(..consumed);
                }
                Parse::Incomplete { needed_at_least } => {
                    assert!(needed_at_least > 0);
                    break;
                }
            }
        }
    }
    Ok(requests)
}

fn words(line: &str) -> Result<Vec<String>, ProtocolError> {
    let requests = parse_all(format!("{line}\r\n").as_bytes(), &Limits::default())?;
    Ok(requests.into_iter().flatten().map(|word| String::from_utf8_lossy(&word).into_owned()).collect())
}

#[test]
fn arrays_of_bulk_strings_are_read_in_a_row() {
    let input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n";
    let requests = parse_all(input, &Limits::default()).unwrap();
    assert_eq!(requests, vec![vec![b"GET".to_vec(), b"k".to_vec()], vec![b"PING".to_vec()]]);
}

#[test]
fn empty_arrays_and_empty_lines_are_skipped() {
    let limits = Limits::default();
    let mut args = Args::new();
    let input = b"\r\n*0\r\n\n*-1\r\n  \r\nPING\r\n";
    assert_eq!(parse_request(input, &limits, &mut args).unwrap(), Parse::Complete { consumed: input.len() });
    assert_eq!(args.get(input, 0), Some(&b"PING"[..]));
    // With nothing whole behind them they are given back on their own.
    assert_eq!(
        parse_request(b"\r\n*0\r\n*1\r\n$4", &limits, &mut args).unwrap(),
        Parse::Complete { consumed: 6 }
    );
    assert!(args.is_empty());
    assert_eq!(
        parse_request(b"*1\r\n$4", &limits, &mut args).unwrap(),
        Parse::Incomplete { needed_at_least: 1 }
    );
}

#[test]
fn a_missing_part_of_an_argument_is_counted() {
    let mut args = Args::new();
    let parse = parse_request(b"*1\r\n$10\r\nabc", &Limits::default(), &mut args).unwrap();
    assert_eq!(parse, Parse::Incomplete { needed_at_least: 9 });
}

#[test]
fn inline_requests_are_split_as_redis_splits_them() {
    assert_eq!(words("SET  a\tb ").unwrap(), ["SET", "a", "b"]);
    assert_eq!(words(r#"a "b c" 'd e' f"g""#).unwrap(), ["a", "b c", "d e", "fg"]);
    assert_eq!(words(r#""\x41\n\"\\\q" '\'\n' """#).unwrap(), ["A\n\"\\q", "'\\n", ""]);
    assert_eq!(words(r#""\xzz""#).unwrap(), ["xzz"]);
    for unbalanced in [r#"a "b"#, "a 'b", r#""a"b"#, "'a'b", r#""a\"#] {
        assert_eq!(words(unbalanced), Err(ProtocolError::UnbalancedQuotes), "{unbalanced}");
    }
}

#[test]
fn errors_carry_the_texts_of_redis() {
    let cases: [(&[u8], &str); 8] = [
        (b"*x\r\n", "Protocol error: invalid multibulk length"),
        (b"*9999999999\r\n", "Protocol error: invalid multibulk length"),
        (b"*1\r\n$x\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$99999999999\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\nxyz", "Protocol error: expected '$', got 'x'"),
        (b"\"a\r\n", "Protocol error: unbalanced quotes in request"),
        (b"*1\r\n$1\r\nabc", "Protocol error: expected CRLF after bulk string"),
    ];
    for (input, text) in cases {
        assert_eq!(parse_all(input, &Limits::default()).unwrap_err().to_string(), text);
    }
    let long = vec![b'a'; 64 * 1024 + 2];
    let error = parse_all(&long, &Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "Protocol error: too big inline request");
}

#[test]
fn every_limit_holds_at_itself_and_breaks_one_past_it() {
    let bulk = |bytes: usize| format!("${bytes}\r\n{}\r\n", "a".repeat(bytes));
    let cases = [
        (format!("*3\r\n{}", bulk(1).repeat(3)), None),
        (format!("*4\r\n{}", bulk(1).repeat(4)), Some(ProtocolError::InvalidMultibulkLength)),
        (format!("*1\r\n{}", bulk(8)), None),
        (format!("*1\r\n{}", bulk(9)), Some(ProtocolError::InvalidBulkLength)),
        // 4 + 13 + 12 + 11 = 40 bytes
        (format!("*3\r\n{}{}{}", bulk(7), bulk(6), bulk(5)), None),
        (format!("*3\r\n{}{}{}", bulk(7), bulk(6), bulk(6)), Some(ProtocolError::TooBig)),
        (format!("{}\r\n", "a".repeat(12)), None),
        (format!("{}\r\n", "a".repeat(13)), Some(ProtocolError::TooBigInline)),
    ];
    for (input, error) in cases {
        assert_eq!(parse_all(input.as_bytes(), &small()).err(), error, "{input:?}");
        assert_eq!(parse_in_pieces(input.as_bytes(), 1, &small()).err(), error, "{input:?}");
    }
}

#[test]
fn an_announced_size_costs_no_memory() {
    let mut args = Args::new();
    let parse = parse_request(b"*1048576\r\n$16777216\r\n", &Limits::default(), &mut args).unwrap();
    assert_eq!(parse, Parse::Incomplete { needed_at_least: 16_777_218 });
    assert_eq!(args.spans.capacity(), 0);
}

#[test]
fn a_request_given_up_is_forgotten() {
    let mut args = Args::new();
    parse_request(b"*2\r\n$1\r\na\r\n", &Limits::default(), &mut args).unwrap();
    args.clear();
    let buf = b"*1\r\n$1\r\nb\r\n";
    parse_request(buf, &Limits::default(), &mut args).unwrap();
    assert_eq!(args.iter(buf).collect::<Vec<_>>(), [b"b"]);
}

/// A large request in small pieces: each byte is looked at a bounded number of times. Quadratic work on a million
/// arguments would take minutes here.
#[test]
fn a_large_request_in_small_pieces_is_parsed_once() {
    let args: Vec<&[u8]> = vec![b"x"; 200_000];
    let mut out = BytesMut::new();
    encode_request(&args, &mut out);
    let (limits, mut into) = (Limits::default(), Args::new());
    for end in (0..out.len()).step_by(97) {
        assert!(matches!(parse_request(&out[..end], &limits, &mut into).unwrap(), Parse::Incomplete { .. }));
    }
    assert_eq!(parse_request(&out, &limits, &mut into).unwrap(), Parse::Complete { consumed: out.len() });
    assert_eq!(into.len(), 200_000);
}

/// Bytes that come near the protocol more often than chance would.
fn near_protocol() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"*1\r\n".to_vec()),
        Just(b"*3\r\n".to_vec()),
        Just(b"$3\r\nabc\r\n".to_vec()),
        Just(b"$0\r\n\r\n".to_vec()),
        Just(b"*0\r\n".to_vec()),
        Just(b"PING \"a\\x41\" 'b'\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"$-1\r\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn what_is_encoded_is_parsed(requests in prop::collection::vec(
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..5)) {
        let mut out = BytesMut::new();
        for request in &requests {
            encode_request(request, &mut out);
        }
        prop_assert_eq!(parse_all(&out, &Limits::default()), Ok(requests));
    }

    #[test]
    fn pieces_of_any_size_give_the_same_result(input in near_protocol(), piece in 1_usize..9) {
        for limits in [Limits::default(), small()] {
            let whole = parse_all(&input, &limits);
            prop_assert_eq!(&parse_in_pieces(&input, 1, &limits), &whole);
            prop_assert_eq!(&parse_in_pieces(&input, piece, &limits), &whole);
        }
    }

    #[test]
    fn random_bytes_never_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_all(&input, &Limits::default());
        let _ = parse_all(&input, &small());
    }
}
