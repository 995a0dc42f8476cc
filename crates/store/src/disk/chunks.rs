//! The memory that batches are made and held in: chunks of one size, filled one after the other and used again when all that
//! is in them has reached the base. Each batch in memory of its own would be memory that the system has just taken back, and to
//! touch it for the first time costs more than to write to it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;

/// The size of a chunk, but for batches that are larger.
const CHUNK_BYTES: usize = 4 << 20;

/// Free chunks kept at most: about as much as a checkpoint sets free.
const CHUNKS_MAX: usize = 32;

/// Chunks that are free.
#[derive(Debug, Default)]
pub(crate) struct Chunks(Mutex<Vec<BytesMut>>);

impl Chunks {
    fn lock(&self) -> MutexGuard<'_, Vec<BytesMut>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One with room for so many bytes.
    fn give(&self, bytes: usize) -> BytesMut {
        let free = if bytes <= CHUNK_BYTES { self.lock().pop() } else { None };
        free.unwrap_or_else(|| BytesMut::with_capacity(bytes.max(CHUNK_BYTES)))
    }

    /// What is left of a chunk; it is kept if nobody has anything of it any more, and it is not too large.
    pub(crate) fn take_back(&self, mut rest: BytesMut) {
        if rest.try_reclaim(CHUNK_BYTES) && rest.capacity() < 2 * CHUNK_BYTES {
            let mut free = self.lock();
            if free.len() < CHUNKS_MAX {
                free.push(rest);
            }
        }
    }

    /// Gives the memory back.
    pub(crate) fn clear(&self) {
        *self.lock() = Vec::new();
    }
}

/// What the writer has: the rest of a chunk, and the one before it until a batch takes it along.
#[derive(Debug, Default)]
pub(crate) struct Room {
    rest: BytesMut,
    spent: Option<BytesMut>,
}

impl Room {
    /// Memory for a batch of about so many bytes; what it does not need comes back.
    pub(crate) fn give(&mut self, bytes: usize, chunks: &Chunks) -> BytesMut {
        if self.rest.capacity() < bytes {
            let full = std::mem::replace(&mut self.rest, chunks.give(bytes));
            self.spent = Some(full).filter(|full| full.capacity() > 0).or(self.spent.take());
        }
        std::mem::take(&mut self.rest)
    }

    /// What a batch left. Of a batch that was made elsewhere it is not worth to be kept.
    pub(crate) fn take_back(&mut self, rest: BytesMut) {
        if rest.capacity() > self.rest.capacity() {
            self.rest = rest;
        }
    }

    /// The chunk that is full: to be handed to [`Chunks`] when the batches made so far are no longer needed.
    pub(crate) fn take_spent(&mut self) -> Option<BytesMut> {
        self.spent.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(room: &mut Room, chunks: &Chunks, bytes: usize) -> bytes::Bytes {
        let mut batch = room.give(bytes, chunks);
        batch.resize(bytes, 7);
        room.take_back(batch.split_off(bytes));
        batch.freeze()
    }

    #[test]
    fn a_chunk_is_used_again_when_all_that_was_in_it_is_gone() {
        let (mut room, chunks) = (Room::default(), Chunks::default());
        let first = fill(&mut room, &chunks, CHUNK_BYTES / 2);
        let second = fill(&mut room, &chunks, CHUNK_BYTES / 4);
        assert_eq!(room.take_spent(), None, "there is room left");
        assert_eq!(first.as_ptr().wrapping_add(first.len()), second.as_ptr(), "one behind the other");
        let third = fill(&mut room, &chunks, CHUNK_BYTES / 2);
        let spent = room.take_spent().unwrap();
        assert_eq!(room.take_spent(), None);
        let place = first.as_ptr() as usize;
        drop((first, second));
        chunks.take_back(spent);
        // The third is in the second chunk; this one no longer fits there.
        let fourth = fill(&mut room, &chunks, 3 * (CHUNK_BYTES / 4));
        assert_eq!(fourth.as_ptr() as usize, place);
        drop(third);
    }

    #[test]
    fn a_chunk_that_somebody_reads_from_is_not_used_again() {
        let (mut room, chunks) = (Room::default(), Chunks::default());
        let read = fill(&mut room, &chunks, CHUNK_BYTES - 1);
        drop(fill(&mut room, &chunks, 2));
        chunks.take_back(room.take_spent().unwrap());
        assert!(chunks.lock().is_empty());
        assert!(read.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn so_many_are_kept_and_none_that_is_large() {
        let chunks = Chunks::default();
        (0..=CHUNKS_MAX).for_each(|_| chunks.take_back(BytesMut::with_capacity(CHUNK_BYTES)));
        assert_eq!(chunks.lock().len(), CHUNKS_MAX);
        chunks.clear();
        chunks.take_back(chunks.give(2 * CHUNK_BYTES));
        assert!(chunks.lock().is_empty());
        // A batch that was made elsewhere leaves nothing that is worth it.
        let mut room = Room::default();
        room.take_back(BytesMut::with_capacity(100));
        drop(room.give(CHUNK_BYTES, &chunks));
        chunks.take_back(room.take_spent().unwrap());
        assert!(chunks.lock().is_empty());
    }
}
