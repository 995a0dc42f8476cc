//! Replies as a client reads them. In pieces they are what they are as a whole, and what was read is written and read
//! again as the same.
#![no_main]

use haul_client::resp::{Decoder, Frame, Limits, Protocol, decode};
use libfuzzer_sys::fuzz_target;

fn limits() -> Limits {
    Limits {
        arguments_max: 256,
        argument_bytes_max: 1024,
        request_bytes_max: 4096,
        inline_bytes_max: 256,
        reply_depth_max: 8,
    }
}

/// The first frame, given one more byte at a time.
fn in_pieces(bytes: &[u8]) -> Option<Frame> {
    let (mut decoder, mut buffer) = (Decoder::new(), Vec::new());
    for byte in bytes {
        buffer.push(*byte);
        let (used, frame) = decoder.feed(&buffer, &limits()).ok()?;
        buffer.drain(..used);
        if frame.is_some() {
            return frame;
        }
    }
    None
}

/// NaN is not equal to itself; its bytes are.
fn written(frame: &Frame) -> Vec<u8> {
    let mut out = Default::default();
    frame.encode(Protocol::Resp3, &mut out);
    out.to_vec()
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some((frame, used))) = decode(bytes, &limits()) else { return };
    assert!(used <= bytes.len());
    let pieces = in_pieces(&bytes[..used]).expect("a whole frame is one in pieces, too");
    assert_eq!(written(&frame), written(&pieces));
    let out = written(&frame);
    let wide = Limits {
        request_bytes_max: 1 << 20,
        argument_bytes_max: 1 << 20,
        inline_bytes_max: 1 << 20,
        ..limits()
    };
    let (again, used) = decode(&out, &wide).expect("what was written can be read").expect("all of it");
    assert_eq!((written(&again), used), (out.clone(), out.len()));
});
