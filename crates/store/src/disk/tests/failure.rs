//! The disk full, syncs failing, writes cut short.

use super::*;

#[test]
fn a_full_disk_keeps_nothing_of_the_batch_and_the_store_goes_on() {
    for room in [0, 1, 20, 70, 90] {
        let folder = tempfile::tempdir().unwrap();
        let disk = Faulty::new();
        let mut store = DiskStore::open_with(DiskOptions::new(folder.path()), disk.clone()).unwrap();
        store.commit(put("a", "1")).unwrap();
        disk.room.store(room, Ordering::SeqCst);
        let fault = store.commit(put("b", "x".repeat(100))).unwrap_err();
        assert!(matches!(fault, Fault::Full { .. }), "{fault}");
        assert!(matches!(store.commit(put("c", "x".repeat(100))), Err(Fault::Full { .. })));
        assert_eq!(keys(&mut store), ["a"], "reads go on");
        disk.room.store(-1, Ordering::SeqCst);
        store.commit(put("d", "1")).unwrap();
        drop(store);
        let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
        assert_eq!(keys(&mut store), ["a", "d"], "room {room}");
    }
}

#[test]
fn no_room_for_a_new_segment_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Faulty::new();
    let mut store = DiskStore::open_with(small(folder.path()), disk.clone()).unwrap();
    disk.room.store(10, Ordering::SeqCst);
    assert!(matches!(store.commit(put("a", "1")), Err(Fault::Full { .. })));
    assert!(segments(folder.path()).is_empty());
    disk.room.store(-1, Ordering::SeqCst);
    store.commit(put("b", "1")).unwrap();
    drop(store);
    assert_eq!(keys(&mut DiskStore::open(small(folder.path())).unwrap()), ["b"]);
}

#[test]
fn short_writes_are_continued() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Faulty::new();
    disk.short.store(7, Ordering::SeqCst);
    let mut store = DiskStore::open_with(small(folder.path()), disk).unwrap();
    store.commit(put("a", "x".repeat(1000))).unwrap();
    drop(store);
    assert_eq!(keys(&mut DiskStore::open(small(folder.path())).unwrap()), ["a"]);
}

#[test]
fn a_failed_sync_poisons_until_reopened() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Faulty::new();
    let mut store = DiskStore::open_with(small(folder.path()), disk.clone()).unwrap();
    store.commit(put("a", "1")).unwrap();
    disk.fail_sync.store(true, Ordering::SeqCst);
    assert!(matches!(store.commit(put("b", "1")), Err(Fault::Retry { .. })));
    disk.fail_sync.store(false, Ordering::SeqCst);
    assert!(matches!(store.commit(put("c", "1")), Err(Fault::Retry { .. })), "a sync is never tried again");
    assert!(matches!(Box::new(store).close(), Err(Fault::Retry { .. })));
    let mut store = DiskStore::open(small(folder.path())).unwrap();
    let found = keys(&mut store);
    assert!(found == ["a"] || found == ["a", "b"], "{found:?}");
    store.commit(put("d", "1")).unwrap();
}

fn synced_by_interval(folder: &Path, disk: &Arc<Faulty>) -> DiskStore {
    let durability = Durability::Interval(Duration::from_millis(1));
    DiskStore::open_with(DiskOptions { durability, ..small(folder) }, disk.clone()).unwrap()
}

#[test]
fn a_failed_sync_in_the_background_poisons_the_next_commits() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Faulty::new();
    let mut store = synced_by_interval(folder.path(), &disk);
    disk.fail_sync.store(true, Ordering::SeqCst);
    let failed = (0..100_000).find_map(|_| store.commit(put("a", "1")).err());
    assert!(matches!(failed, Some(Fault::Retry { .. })), "{failed:?}");
}

#[test]
fn after_a_failed_sync_in_the_background_no_segment_is_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Faulty::new();
    let mut store = synced_by_interval(folder.path(), &disk);
    store.commit(put("a", "1")).unwrap();
    disk.fail_sync.store(true, Ordering::SeqCst);
    let _ = store.commit(put("b", "1"));
    while store.tail.failed().is_none() {
        std::thread::yield_now();
    }
    // The system tells of lost pages once: the next sync would say that all is well.
    disk.fail_sync.store(false, Ordering::SeqCst);
    let segments = || std::fs::read_dir(folder.path().join("log")).unwrap().count();
    let before = segments();
    for _ in 0..3 {
        assert!(matches!(store.commit(put("c", "x".repeat(20_000))), Err(Fault::Retry { .. })));
    }
    assert_eq!(segments(), before);
}

#[test]
fn when_the_base_finds_no_room_the_log_fills_and_recovers() {
    for full_by in ["a write that fails", "a look at the free room"] {
        let folder = tempfile::tempdir().unwrap();
        let disk = Faulty::new();
        let mut store = DiskStore::open_with(small(folder.path()), disk.clone()).unwrap();
        if full_by == "a write that fails" {
            disk.fail_base.store(true, Ordering::SeqCst);
        } else {
            disk.base_room.store(100, Ordering::SeqCst);
        }
        let mut kept = Vec::new();
        let fault = loop {
            let key = format!("key{:05}", kept.len());
            match store.commit(put(key.clone(), "x".repeat(500))) {
                Ok(()) => kept.push(key),
                Err(fault) => break fault,
            }
        };
        assert!(matches!(fault, Fault::Full { .. }), "{fault}");
        assert!(store.stats().log_bytes <= 64 << 10);
        assert!(store.stats().checkpoint_failures > 0);
        assert_eq!(keys(&mut store), kept, "reads go on");
        assert!(matches!(store.commit(put("no", "x".repeat(500))), Err(Fault::Full { .. })));
        disk.fail_base.store(false, Ordering::SeqCst);
        disk.base_room.store(i64::MAX, Ordering::SeqCst);
        store.commit(put("yes", "x".repeat(500))).unwrap();
        kept.push("yes".to_owned());
        assert!(store.stats().checkpoints > 0);
        drop(store);
        assert_eq!(keys(&mut DiskStore::open(small(folder.path())).unwrap()), kept);
    }
}
