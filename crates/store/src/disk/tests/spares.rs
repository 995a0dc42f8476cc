//! Segments that are made ready before the log needs them.

use std::collections::VecDeque;

use super::super::log::{Log, Position, Spares};
use super::*;

const SEGMENT_BYTES: u64 = 8 << 20;

fn log(folder: &Path, io: &Arc<Faulty>) -> (Log, Arc<Spares>) {
    let spares = Arc::new(Spares::new(folder.to_owned(), 2, SEGMENT_BYTES));
    let position = Position { sealed: VecDeque::new(), number: 0, sequence: 0 };
    (Log::new(Arc::clone(&spares), io.clone(), SEGMENT_BYTES, position), spares)
}

/// How long the files are whose names end so.
fn files(folder: &Path, suffix: &str) -> Vec<u64> {
    let all = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let wanted = all.filter(|entry| entry.file_name().to_string_lossy().ends_with(suffix));
    wanted.map(|entry| entry.metadata().unwrap().len()).collect()
}

fn large() -> Batch {
    put("key", "v".repeat(512 << 10))
}

#[test]
fn a_log_that_grows_asks_once_for_a_segment_and_moves_on_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let io = Faulty::new();
    let (mut log, spares) = log(folder.path(), &io);
    log.start_segment(0).unwrap();
    let mut asked = Vec::new();
    for number in 1..=8 {
        assert!(!log.needs_segment(512 << 10), "none is ready");
        log.append(&mut large(), 0).unwrap();
        if log.is_growing() {
            asked.push(number);
        }
    }
    assert_eq!(asked, [4], "when it has 2 MB, the frames' headers included");
    spares.make(io.as_ref(), SEGMENT_BYTES, &mut |_| ()).unwrap();
    assert!(log.needs_segment(512 << 10));
    log.seal();
    log.start_segment(512 << 10).unwrap();
    assert_eq!((files(folder.path(), ".log").len(), files(folder.path(), ".spare").len()), (2, 0));
    // Its blocks are written: nothing is gained by a third.
    spares.make(io.as_ref(), SEGMENT_BYTES, &mut |_| ()).unwrap();
    (0..8).for_each(|_| log.append(&mut large(), 0).unwrap());
    assert!(!log.needs_segment(512 << 10));
}

#[test]
fn one_segment_is_made_ready_and_none_where_there_is_little_room() {
    let folder = tempfile::tempdir().unwrap();
    let io = Faulty::new();
    let (_, spares) = log(folder.path(), &io);
    let room = 8 * SEGMENT_BYTES as i64;
    io.base_room.store(room - 1, Ordering::SeqCst);
    spares.make(io.as_ref(), SEGMENT_BYTES, &mut |_| ()).unwrap();
    assert!(files(folder.path(), ".spare").is_empty());
    io.base_room.store(room, Ordering::SeqCst);
    // The disk is full after all: it leaves nothing behind.
    io.room.store(SEGMENT_BYTES as i64 / 2, Ordering::SeqCst);
    spares.make(io.as_ref(), SEGMENT_BYTES, &mut |_| ()).unwrap_err();
    assert!(files(folder.path(), ".spare").is_empty());
    io.room.store(-1, Ordering::SeqCst);
    let mut rests = 0;
    (0..2).for_each(|_| spares.make(io.as_ref(), SEGMENT_BYTES, &mut |_| rests += 1).unwrap());
    assert_eq!(files(folder.path(), ".spare"), [SEGMENT_BYTES]);
    assert_eq!(rests, 32, "one after each part of 256 KB");
}

#[test]
fn a_store_moves_on_to_the_segment_that_was_made_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let options = DiskOptions { segment_bytes: SEGMENT_BYTES, ..DiskOptions::new(folder.path()) };
    let mut store = DiskStore::open(options.clone()).unwrap();
    let mut count = 0;
    // It is made beside the commits, and used by the first that comes then.
    while store.log.sealed_count() == 0 {
        store.commit(put(format!("{count:03}"), "v".repeat(64 << 10))).unwrap();
        count += 1;
    }
    let first = store.log.sealed_bytes();
    assert!((2 << 20..=SEGMENT_BYTES).contains(&first), "{first}");
    drop(store);
    let mut store = DiskStore::open(options).unwrap();
    assert_eq!(keys(&mut store).len(), count);
}
