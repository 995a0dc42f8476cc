//! Checkpoints: what survives reaches the base, what cancels out does not, pins are honoured.

use super::*;

#[test]
fn no_checkpoint_rests_while_those_who_write_are_slowed_down() {
    // What went wrong: with a log of 128 MB the checkpoint went easy until it was three quarters full.
    let mut options = DiskOptions::new("unused");
    assert_eq!(easy_bytes(&options), 160 << 20);
    for log_bytes_max in [64 << 10, 128 << 20, 1 << 30] {
        options.log_bytes_max = log_bytes_max;
        assert!(pace(1 << 20, easy_bytes(&options) as u64, log_bytes_max).is_zero(), "{log_bytes_max}");
    }
}

#[test]
fn what_is_put_and_deleted_between_checkpoints_never_reaches_the_base() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    for at in 0..1000 {
        let mut batch = put(format!("key{at}"), "1");
        batch.put(Space::Body, format!("key{at}"), "body");
        store.commit(batch).unwrap();
        if at % 10 != 0 {
            let mut batch = Batch::default();
            batch.delete(Space::Header, format!("key{at}"));
            batch.delete(Space::Body, format!("key{at}"));
            store.commit(batch).unwrap();
        }
    }
    store.flush().unwrap();
    let stats = store.stats();
    assert_eq!((stats.checkpoints, stats.records_checkpointed), (1, 200));
    assert_eq!((stats.log_bytes, stats.pending_bytes), (0, 0));
    assert_eq!(keys(&mut store).len(), 100);
}

#[test]
fn the_log_is_bounded_and_its_segments_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(small(folder.path())).unwrap();
    for at in 0..2000 {
        store.commit(put(format!("key{:02}", at % 50), format!("{at}").repeat(60))).unwrap();
        assert!(store.stats().log_bytes <= 64 << 10);
    }
    assert!(store.stats().checkpoints >= 3);
    assert!(segments(folder.path()).len() < 20);
    drop(store);
    let mut store = DiskStore::open(small(folder.path())).unwrap();
    let all = headers(&mut store);
    assert_eq!(all.len(), 50);
    assert_eq!(all[49].1, "1999".repeat(60));
}

#[test]
fn a_store_at_rest_writes_out_what_is_pending_and_keeps_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    let value = "x".repeat(1 << 20);
    let most = REST_BYTES / (1 << 20);
    for at in 0..most - 1 {
        store.commit(put(format!("key{at}"), value.clone())).unwrap();
    }
    store.rest();
    let pending = store.stats().pending_bytes;
    let least = ((most - 1) * (4 + value.len())) as u64;
    assert!((least..REST_BYTES as u64).contains(&pending), "too little: {pending}");
    store.commit(put("last", value.clone())).unwrap();
    store.rest();
    store.wait_for_checkpoint().unwrap();
    let stats = store.stats();
    assert_eq!((stats.checkpoints, stats.pending_bytes, stats.log_bytes), (1, 0, 0));
    store.rest();
    assert_eq!(store.stats().checkpoints, 1, "there is nothing more");
    store.commit(put("later", value)).unwrap();
    drop(store);
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    assert_eq!(keys(&mut store).len(), most + 1);
}

#[test]
fn segments_are_kept_to_be_written_again_up_to_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("log")).unwrap();
    let spares = Spares::new(folder.path().join("log"), 2, 0);
    for number in 1..=3 {
        fs::write(segment::path(&folder.path().join("log"), number), "x").unwrap();
        spares.take_in(number).unwrap();
    }
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let left: Vec<String> = segments(folder.path()).iter().map(name).collect();
    assert_eq!(left, ["0000000000000001.spare", "0000000000000002.spare"]);
    spares.clear();
    assert!(segments(folder.path()).is_empty());
    // A store that was killed leaves them; the next one deletes them.
    fs::remove_dir(folder.path().join("log")).unwrap();
    drop(DiskStore::open(small(folder.path())).unwrap());
    fs::write(segment::spare(&folder.path().join("log"), 7), "x").unwrap();
    drop(DiskStore::open(small(folder.path())).unwrap());
    assert!(segments(folder.path()).is_empty());
}

#[test]
fn a_batch_larger_than_the_log_may_be_is_still_taken() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(small(folder.path())).unwrap();
    for at in 0..3 {
        store.commit(put(format!("key{at}"), "x".repeat(100 << 10))).unwrap();
        store.commit(put(format!("small{at}"), "x")).unwrap();
    }
    assert!(store.stats().stalls > 0);
    drop(store);
    assert_eq!(keys(&mut DiskStore::open(small(folder.path())).unwrap()).len(), 6);
}

#[test]
fn segments_that_the_base_contains_are_not_replayed() {
    // A crash between the checkpoint and the deletion of its segments leaves them behind.
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    store.commit(put("a", "1")).unwrap();
    let first = segments(folder.path());
    let bytes = fs::read(&first[0]).unwrap();
    store.flush().unwrap();
    store.commit(put("a", "2")).unwrap();
    store.flush().unwrap();
    drop(store);
    let last = segments(folder.path());
    assert!(last.len() == 1 && last != first);
    fs::write(&first[0], bytes).unwrap();
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    assert_eq!(headers(&mut store), [("a".to_owned(), "2".to_owned())]);
    assert_eq!(segments(folder.path()), last);
}

#[test]
fn a_pinned_body_outlives_a_checkpoint_of_its_deletion() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    let mut batch = Batch::default();
    batch.put(Space::Body, "in the base", "1");
    store.commit(batch).unwrap();
    store.flush().unwrap();
    let mut batch = Batch::default();
    batch.put(Space::Body, "in memory", "2");
    store.commit(batch).unwrap();
    let bodies = store.bodies();
    let pin = bodies.pin();
    let mut batch = Batch::default();
    batch.delete(Space::Body, "in the base");
    batch.delete(Space::Body, "in memory");
    store.commit(batch).unwrap();
    store.flush().unwrap();
    assert_eq!(bodies.get(b"in the base").unwrap(), Some("1".into()));
    assert_eq!(bodies.get(b"in memory").unwrap(), Some("2".into()));
    drop(pin);
    assert_eq!(bodies.get(b"in the base").unwrap(), None);
    assert_eq!(bodies.get(b"in memory").unwrap(), None);
    let mut listed = 0;
    let counted = bodies.keys(&mut |_| {
        listed += 1;
        Ok(())
    });
    counted.unwrap();
    assert_eq!(listed, 0);
}

#[test]
fn readers_and_commits_go_on_during_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(small(folder.path())).unwrap();
    let mut batch = Batch::default();
    batch.put(Space::Body, "constant", "here");
    store.commit(batch).unwrap();
    let bodies = store.bodies();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                assert_eq!(bodies.get(b"constant").unwrap(), Some("here".into()));
            }
        });
        // Pinned bodies that are deleted at once, checked by a third thread.
        let (sender, receiver) = std::sync::mpsc::channel::<(crate::Pin, String)>();
        scope.spawn(|| {
            for (pin, key) in receiver {
                assert!(bodies.get(key.as_bytes()).unwrap().is_some(), "{key} was pinned");
                drop(pin);
            }
        });
        for at in 0..1500 {
            let mut batch = Batch::default();
            batch.put(Space::Body, format!("body{at}"), "x".repeat(200));
            if at >= 20 {
                let key = format!("body{}", at - 20);
                sender.send((bodies.pin(), key.clone())).unwrap();
                batch.delete(Space::Body, key);
            }
            store.commit(batch).unwrap();
        }
        drop(sender);
        stop.store(true, Ordering::SeqCst);
    });
    assert!(store.stats().checkpoints > 3);
    let mut listed = 0;
    let counted = bodies.keys(&mut |_| {
        listed += 1;
        Ok(())
    });
    counted.unwrap();
    assert_eq!(listed, 21);
}

#[test]
fn a_reader_that_outlives_the_store_fails_and_blocks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(small(folder.path())).unwrap();
    store.commit(put("a", "1")).unwrap();
    let bodies = store.bodies();
    drop(store);
    assert!(matches!(bodies.get(b"a"), Err(Fault::Retry { .. })));
    DiskStore::open(small(folder.path())).unwrap();
}

#[test]
fn past_half_of_its_limit_the_log_slows_down() {
    let (frame, max) = (1 << 20, 400 << 20);
    assert_eq!(pace(frame, 200 << 20, max), Duration::ZERO);
    assert_eq!(pace(frame, 300 << 20, max), Duration::from_micros(31_250));
    assert_eq!(pace(frame, 400 << 20, max), Duration::from_micros(62_500));
    assert_eq!(pace(64 << 20, 900 << 20, max), PACE_MAX);
    assert_eq!(pace(100, 0, 0), Duration::ZERO);
}

/// Bodies by number, all in one batch.
fn put_bodies(store: &mut DiskStore, numbers: std::ops::Range<u64>, text: &str) {
    let mut batch = Batch::default();
    numbers.for_each(|at| batch.put(Space::Body, at.to_be_bytes(), format!("{text} {at}")));
    store.commit(batch).unwrap();
    store.flush().unwrap();
}

#[test]
fn bodies_that_are_read_one_after_the_other_are_what_the_store_has() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    put_bodies(&mut store, 0..1000, "first");
    let bodies = store.bodies();
    let read = |at: u64| {
        bodies.get(&at.to_be_bytes()).unwrap().map(|body| String::from_utf8(body.to_vec()).unwrap())
    };
    for at in 0..300 {
        assert_eq!(read(at), Some(format!("first {at}")));
    }
    // Two that read along each other, one who jumps, and what nobody put.
    for at in (0..100).flat_map(|at| [300 + 2 * at, 301 + 2 * at, 7, 999 - at]) {
        assert_eq!(read(at), Some(format!("first {at}")));
    }
    assert_eq!((read(1000), read(1001), read(u64::MAX)), (None, None, None));

    // What was read ahead does not outlive a change of the base, written out or not.
    assert_eq!(read(500), Some("first 500".to_owned()));
    put_bodies(&mut store, 501..510, "second");
    let mut batch = Batch::default();
    batch.put(Space::Body, 510_u64.to_be_bytes(), "third");
    (511..520_u64).for_each(|at| batch.delete(Space::Body, at.to_be_bytes()));
    store.commit(batch).unwrap();
    for _ in 0..2 {
        assert_eq!(
            (501..510).map(&read).collect::<Vec<_>>(),
            (501..510).map(|at| Some(format!("second {at}"))).collect::<Vec<_>>()
        );
        assert_eq!((read(510).as_deref(), read(511), read(519)), (Some("third"), None, None));
        assert_eq!(read(520), Some("first 520".to_owned()));
        store.flush().unwrap();
    }
}

#[test]
fn bodies_that_follow_each_other_are_at_hand_and_read_on_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    let mut batch = Batch::default();
    (0..1000_u64).for_each(|number| batch.put(Space::Body, number.to_be_bytes(), number.to_string()));
    store.commit(batch).unwrap();
    store.flush().unwrap();
    let bodies = store.bodies();
    let at_hand = |number: u64| bodies.at_hand(&number.to_be_bytes());
    assert_eq!((at_hand(0), bodies.is_low()), (None, false), "nobody has asked for anything");
    // From the second on it is a run.
    for number in 0..2_u64 {
        assert_eq!(bodies.get(&number.to_be_bytes()), Ok(Some(number.to_string().into())));
    }
    let mut read = 2;
    while let Some(body) = at_hand(read) {
        assert_eq!(body, read.to_string());
        read += 1;
        if bodies.is_low() {
            assert!(!bodies.is_low(), "one is told, once");
            bodies.read_on();
        }
    }
    assert_eq!(read, 1000, "it was read on before there was nothing left");
    // What the base has now is read anew.
    assert_eq!(bodies.get(&500_u64.to_be_bytes()), Ok(Some("500".into())));
    assert_eq!(bodies.get(&501_u64.to_be_bytes()), Ok(Some("501".into())));
    assert!(at_hand(502).is_some());
    store.commit(put("key", "value")).unwrap();
    store.flush().unwrap();
    assert_eq!(at_hand(503), None, "a checkpoint empties it");
}

/// Of jobs that are put together the highest jid is taken first, often the last: each body of such a backlog was read for itself.
#[test]
fn bodies_that_are_asked_for_downwards_are_read_ahead_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    put_bodies(&mut store, 0..6000, "body");
    for lot in [6000_usize, 1500, 500, 40] {
        store.load(&mut |_, _| Ok(())).unwrap();
        let (bodies, mut alone) = (store.bodies(), 0);
        let lots = (0..6000_u64).collect::<Vec<_>>();
        for number in lots.chunks(lot).flat_map(|lot| lot.iter().rev()) {
            let key = number.to_be_bytes();
            let body = bodies.at_hand(&key).unwrap_or_else(|| {
                alone += 1;
                bodies.get(&key).unwrap().unwrap()
            });
            assert_eq!(body, format!("body {number}"));
            if bodies.is_low() {
                bodies.read_on();
            }
        }
        assert!(alone <= 5 * 6000 / lot.max(256), "{alone} of lots of {lot} were read for themselves");
    }
}

fn bodies_of(numbers: std::ops::Range<u64>, body: &str) -> Batch {
    let mut batch = Batch::default();
    numbers.for_each(|number| batch.put(Space::Body, number.to_be_bytes(), body));
    batch
}

#[test]
fn a_number_that_is_given_again_is_never_at_hand_with_the_body_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    store.commit(bodies_of(0..10, "old")).unwrap();
    store.flush().unwrap();
    let mut gone = Batch::default();
    (6..9_u64).for_each(|number| gone.delete(Space::Body, number.to_be_bytes()));
    store.commit(gone).unwrap();
    store.commit(bodies_of(8..9, "new")).unwrap();
    let bodies = store.bodies();
    let get = |number: u64| bodies.get(&number.to_be_bytes()).unwrap();
    let at_hand = |number: u64| bodies.at_hand(&number.to_be_bytes());
    assert_eq!((get(0), get(1)), (Some("old".into()), Some("old".into())));
    assert_eq!((at_hand(2), at_hand(9)), (Some("old".into()), Some("old".into())));
    assert_eq!((at_hand(6), at_hand(8), get(6), get(8)), (None, None, None, Some("new".into())));

    // What is loaded again may give a number again whose body was read while it was another's.
    assert_eq!(at_hand(3), Some("old".into()));
    store.load(&mut |_, _| Ok(())).unwrap();
    assert_eq!((at_hand(4), get(4)), (None, Some("old".into())));
}

#[test]
fn large_bodies_are_read_ahead_without_giving_up_those_wanted_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(DiskOptions::new(folder.path())).unwrap();
    store.commit(bodies_of(0..60, &"x".repeat(100 << 10))).unwrap();
    store.flush().unwrap();
    let bodies = store.bodies();
    (0..2_u64).for_each(|number| assert!(bodies.get(&number.to_be_bytes()).unwrap().is_some()));
    for number in 2..60_u64 {
        assert!(bodies.at_hand(&number.to_be_bytes()).is_some(), "{number}");
        if bodies.is_low() {
            bodies.read_on();
        }
    }
}
