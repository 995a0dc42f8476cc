//! Frames: one batch as bytes in the log, and back. Pure: no files here. `FORMAT.md` draws the bytes;
//! change both together, and the version of the segment.
//!
//! A checksum starts with the segment's salt, a random number: neither old bytes nor bytes that a
//! client put into a body can pass for a frame.

use crate::Batch;
use crate::batch::ROOM_BYTES;

/// Bytes before a frame's payload.
pub(crate) const HEADER_BYTES: usize = ROOM_BYTES;

const MAGIC: [u8; 4] = *b"HFrm";

/// What a frame says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// The number of the batch; each is one more than the last.
    pub(crate) sequence: u64,
    /// The number up to which all batches were durable when this one was written.
    pub(crate) durable: u64,
}

/// What is at some offset of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A whole frame, and where the next one starts.
    Frame { label: Label, payload: &'a [u8], end: usize },
    /// Zeros: nothing was written here.
    End,
    /// Neither.
    Bad(&'static str),
}

/// How long the frame of this batch is.
pub(crate) fn frame_bytes(batch: &Batch) -> usize {
    batch.buffer_bytes()
}

/// Makes a frame of the batch, in the batch itself, with the zeros behind it that end the log. No record begins with a
/// zero: they end the batch too.
pub(crate) fn encode(batch: &mut Batch, salt: u64, label: Label) -> &[u8] {
    let out = batch.buffer();
    if let Some((head, payload)) = out.split_first_chunk_mut::<HEADER_BYTES>() {
        *head = encode_head(salt, label, payload);
    }
    out.extend_from_slice(&[0; HEADER_BYTES]);
    out
}

fn encode_head(salt: u64, label: Label, payload: &[u8]) -> [u8; HEADER_BYTES] {
    let mut rest = [0; HEADER_BYTES - 8];
    let fields = (payload.len() as u32)
        .to_le_bytes()
        .into_iter()
        .chain(label.sequence.to_le_bytes())
        .chain(label.durable.to_le_bytes())
        .chain(checksum(salt, payload).to_le_bytes());
    rest.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
    let crc = checksum(salt, &rest).to_le_bytes();
    let mut head = [0; HEADER_BYTES];
    let bytes = MAGIC.into_iter().chain(crc).chain(rest);
    head.iter_mut().zip(bytes).for_each(|(byte, field)| *byte = field);
    head
}

fn checksum(salt: u64, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&salt.to_le_bytes());
    crc.update(bytes);
    crc.finalize()
}

/// Looks at `offset` of a segment's bytes.
pub(crate) fn read_at(segment: &[u8], offset: usize, salt: u64) -> Found<'_> {
    let rest = segment.get(offset..).unwrap_or_default();
    let Some((head, after)) = rest.split_first_chunk::<HEADER_BYTES>() else {
        return if is_zero(rest) { Found::End } else { Found::Bad("cut off within a frame's header") };
    };
    if is_zero(head) {
        return Found::End;
    }
    let Some((label, length, crc)) = decode_head(head, salt) else {
        return Found::Bad("a frame's header does not match its checksum");
    };
    let Some(payload) = after.get(..length) else { return Found::Bad("cut off within a frame") };
    if checksum(salt, payload) != crc {
        return Found::Bad("a frame does not match its checksum");
    }
    Found::Frame { label, payload, end: offset + HEADER_BYTES + length }
}

/// The label, the payload's length, the payload's checksum; nothing if the header's checksum is wrong.
fn decode_head(head: &[u8; HEADER_BYTES], salt: u64) -> Option<(Label, usize, u32)> {
    let (magic, rest) = head.split_first_chunk::<4>()?;
    let (crc, fields) = rest.split_first_chunk::<4>()?;
    if *magic != MAGIC || checksum(salt, fields) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (length, rest) = fields.split_first_chunk::<4>()?;
    let (sequence, rest) = rest.split_first_chunk::<8>()?;
    let (durable, rest) = rest.split_first_chunk::<8>()?;
    let (crc, _) = rest.split_first_chunk::<4>()?;
    let label = Label { sequence: u64::from_le_bytes(*sequence), durable: u64::from_le_bytes(*durable) };
    Some((label, u32::from_le_bytes(*length) as usize, u32::from_le_bytes(*crc)))
}

/// The first whole frame after `offset` that was written when batch `batch` was durable: the proof that a
/// bad place at `offset`, where that batch should be, is damage and not a torn end.
pub(crate) fn proof_after(segment: &[u8], offset: usize, salt: u64, batch: u64) -> Option<(usize, Label)> {
    let from = offset + 1;
    let rest = segment.get(from..)?;
    let starts = rest.windows(MAGIC.len()).enumerate().filter(|(_, window)| **window == MAGIC);
    starts.map(|(at, _)| from + at).find_map(|at| match read_at(segment, at, salt) {
        Found::Frame { label, .. } if label.durable >= batch => Some((at, label)),
        _ => None,
    })
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Space;

    fn sample() -> Batch {
        let mut batch = Batch::default();
        batch.put(Space::Header, "a", "one");
        batch.put(Space::Body, "b", vec![7; 300]);
        batch.put(Space::Body, "empty", "");
        batch.delete(Space::Header, "c");
        batch.delete(Space::Body, "d");
        batch
    }

    fn framed(salt: u64, label: Label) -> Vec<u8> {
        encode(&mut sample(), salt, label).to_vec()
    }

    #[test]
    fn a_frame_is_read_back() {
        let label = Label { sequence: 9, durable: 8 };
        let bytes = framed(77, label);
        assert_eq!(bytes.len(), frame_bytes(&sample()) + HEADER_BYTES);
        let Found::Frame { label: read, payload, end } = read_at(&bytes, 0, 77) else { panic!("no frame") };
        assert_eq!((read, end), (label, frame_bytes(&sample())));
        assert_eq!(read_at(&bytes, end, 77), Found::End);
        assert_eq!(Batch::of(payload), Some(sample()));
        assert!(matches!(read_at(&bytes, 0, 78), Found::Bad(_)), "another segment's salt");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut bytes = framed(1, Label { sequence: 1, durable: 0 });
        for bit in 0..frame_bytes(&sample()) * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(read_at(&bytes, 0, 1), Found::Bad(_)), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_frame_behind_a_bad_place_is_found() {
        let mut bytes = framed(1, Label { sequence: 1, durable: 0 });
        let first = frame_bytes(&sample());
        bytes.truncate(first);
        bytes.extend_from_slice(&framed(1, Label { sequence: 2, durable: 1 }));
        bytes.extend_from_slice(&[0; 100]);
        assert_eq!(proof_after(&bytes, 0, 1, 1), Some((first, Label { sequence: 2, durable: 1 })));
        assert_eq!(proof_after(&bytes, 0, 1, 2), None, "written before batch 2 was durable");
        assert_eq!(proof_after(&bytes, first, 1, 1), None);
        assert_eq!(read_at(&bytes, 2 * first, 1), Found::End);
    }

    #[test]
    fn malformed_payloads_are_refused() {
        for payload in [&[9, 0, 0][..], &[0, 0, 0], &[1], &[1, 1, 0, 9, 0, 0, 0, 1], &[3, 5, 0, 1]] {
            assert_eq!(Batch::of(payload), None);
        }
    }
}
