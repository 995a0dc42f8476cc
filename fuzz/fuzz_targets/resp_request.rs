//! Requests as a server reads them. Whole or in pieces, the same bytes give the same arguments or the same error, and
//! no argument stands outside the bytes it came from.
#![no_main]

use haul_client::resp::{Args, Limits, Parse, ProtocolError, parse_request};
use libfuzzer_sys::fuzz_target;

fn limits() -> Limits {
    Limits {
        arguments_max: 64,
        argument_bytes_max: 512,
        request_bytes_max: 2048,
        inline_bytes_max: 128,
        reply_depth_max: 8,
    }
}

type Requests = Vec<Vec<Vec<u8>>>;

/// Every request in the bytes, given `step` more bytes at a time.
fn parse(bytes: &[u8], step: usize) -> (Requests, Option<ProtocolError>) {
    let (mut requests, mut args, limits) = (Vec::new(), Args::new(), limits());
    let (mut start, mut end) = (0, step.min(bytes.len()));
    loop {
        let buffer = &bytes[start..end];
        match parse_request(buffer, &limits, &mut args) {
            Ok(Parse::Complete { consumed }) => {
                assert!(consumed > 0 && consumed <= buffer.len());
                if !args.is_empty() {
                    requests.push(args.iter(buffer).map(<[u8]>::to_vec).collect());
                }
                args.clear();
                start += consumed;
            }
            Ok(Parse::Incomplete { needed_at_least }) => {
                assert!(needed_at_least >= 1);
                if end == bytes.len() {
                    return (requests, None);
                }
                end = (end + step).min(bytes.len());
            }
            Err(error) => return (requests, Some(error)),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes, bytes.len().max(1));
    assert_eq!(whole, parse(bytes, 1));
    assert_eq!(whole, parse(bytes, 7));
});
