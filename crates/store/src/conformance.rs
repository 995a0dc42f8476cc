//! The suite every store must pass. A case is a number: opening the same number again must give what was
//! committed there, a new number an empty store. Each check fails by panicking, as tests do.

#![allow(clippy::unwrap_used, reason = "a failed check is a failed test")]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::batch::KEY_BYTES_MAX;
use crate::{Batch, Fault, Space, Store};

/// Opens the store of that case number. The one opened before is closed or dropped by then.
pub type Open<'a> = &'a mut dyn FnMut(u32) -> Box<dyn Store>;

/// Runs everything; `cases` random histories are compared with a plain map.
pub fn check(open: Open<'_>, cases: u32) {
    committed_records_are_loaded(open(1), open);
    an_empty_batch_is_accepted(open(2));
    large_and_empty_values_are_kept(open(3), open);
    many_small_records_are_kept(open(4), open);
    keys_may_be_any_bytes(open(5), open);
    limits_are_refused_and_harmless(open(6));
    pinned_bodies_outlive_their_deletion(open(7), open);
    an_error_ends_the_load(open(8));
    random_histories_match_a_map(open, 100, cases);
}

/// All headers and all bodies of a store.
type Contents = (BTreeMap<Bytes, Bytes>, BTreeMap<Bytes, Bytes>);

/// Reads everything a store has.
pub fn contents(store: &mut dyn Store) -> Contents {
    let mut headers = BTreeMap::new();
    let load = store.load(&mut |key, value| {
        let old = headers.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        assert_eq!(old, None, "a header was loaded twice");
        Ok(())
    });
    load.unwrap();
    let reader = store.bodies();
    let mut keys = BTreeSet::new();
    let listed = reader.keys(&mut |key| {
        assert!(keys.insert(Bytes::copy_from_slice(key)), "a body was listed twice");
        Ok(())
    });
    listed.unwrap();
    let bodies = keys.into_iter().map(|key| (key.clone(), reader.get(&key).unwrap().unwrap())).collect();
    let contents = (headers, bodies);
    assert_eq!(copied(reader.as_ref()), contents, "a copy has something else");
    contents
}

/// What a copy hands out.
pub fn copied(reader: &dyn crate::Bodies) -> Contents {
    let mut contents = Contents::default();
    let copy = reader.copy(&mut |space, key, value| {
        let records = if space == Space::Header { &mut contents.0 } else { &mut contents.1 };
        let old = records.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        assert_eq!(old, None, "a record was copied twice");
        Ok(())
    });
    copy.unwrap();
    contents
}

fn put(store: &mut dyn Store, space: Space, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
    let mut batch = Batch::default();
    batch.put(space, key, value);
    store.commit(batch).unwrap();
}

fn delete(store: &mut dyn Store, space: Space, key: impl AsRef<[u8]>) {
    let mut batch = Batch::default();
    batch.delete(space, key);
    store.commit(batch).unwrap();
}

fn committed_records_are_loaded(mut store: Box<dyn Store>, open: Open<'_>) {
    assert_eq!(contents(store.as_mut()), Contents::default());
    let mut batch = Batch::default();
    batch.put(Space::Header, "a", "1");
    batch.put(Space::Header, "b", "1");
    batch.put(Space::Body, "a", "body");
    batch.put(Space::Header, "a", "2");
    store.commit(batch).unwrap();
    put(store.as_mut(), Space::Header, "c", "1");
    put(store.as_mut(), Space::Header, "c", "2");
    delete(store.as_mut(), Space::Header, "b");
    delete(store.as_mut(), Space::Header, "never there");
    delete(store.as_mut(), Space::Body, "never there");
    let headers = BTreeMap::from([("a".into(), "2".into()), ("c".into(), "2".into())]);
    let expected = (headers, BTreeMap::from([("a".into(), "body".into())]));
    assert_eq!(contents(store.as_mut()), expected, "before reopening");
    assert_eq!(store.stats().commits, 6);
    drop(store);
    let mut store = open(1);
    assert_eq!(contents(store.as_mut()), expected, "after a crash");
    delete(store.as_mut(), Space::Header, "c");
    store.close().unwrap();
    let mut store = open(1);
    assert_eq!(contents(store.as_mut()).0.into_keys().collect::<Vec<_>>(), ["a"], "after closing");
    delete(store.as_mut(), Space::Header, "a");
    delete(store.as_mut(), Space::Body, "a");
    put(store.as_mut(), Space::Header, "a", "3");
    store.close().unwrap();
    let expected = (BTreeMap::from([("a".into(), "3".into())]), BTreeMap::new());
    assert_eq!(contents(open(1).as_mut()), expected, "after the end");
}

fn an_empty_batch_is_accepted(mut store: Box<dyn Store>) {
    store.commit(Batch::default()).unwrap();
    assert_eq!(contents(store.as_mut()), Contents::default());
    store.close().unwrap();
}

fn large_and_empty_values_are_kept(mut store: Box<dyn Store>, open: Open<'_>) {
    let large: Bytes = (0..16_u32 << 20).map(|at| (at % 251) as u8).collect::<Vec<_>>().into();
    put(store.as_mut(), Space::Body, "large", large.clone());
    put(store.as_mut(), Space::Body, "empty", "");
    put(store.as_mut(), Space::Header, "empty", "");
    for _ in 0..2 {
        let reader = store.bodies();
        assert!(reader.get(b"large").unwrap() == Some(large.clone()));
        assert_eq!(reader.get(b"empty").unwrap(), Some(Bytes::new()));
        assert_eq!(contents(store.as_mut()).0, BTreeMap::from([("empty".into(), Bytes::new())]));
        drop(reader);
        store.close().unwrap();
        store = open(3);
    }
}

fn many_small_records_are_kept(mut store: Box<dyn Store>, open: Open<'_>) {
    for round in 0..20_u32 {
        let mut batch = Batch::default();
        for at in 0..1000_u32 {
            let key = (round * 500 + at).to_be_bytes().to_vec();
            batch.put(Space::Header, key.clone(), round.to_le_bytes());
            batch.put(Space::Body, key, "b");
        }
        store.commit(batch).unwrap();
    }
    drop(store);
    let (headers, bodies) = contents(open(4).as_mut());
    assert_eq!((headers.len(), bodies.len()), (10_500, 10_500));
    let first = headers.into_values().next().unwrap();
    assert_eq!(first, 0_u32.to_le_bytes().as_slice());
}

fn keys_may_be_any_bytes(mut store: Box<dyn Store>, open: Open<'_>) {
    let longest = vec![0xAB; KEY_BYTES_MAX];
    let keys = [vec![0], vec![0, 0], vec![0xFF; 300], b"a\n\0b".to_vec(), "schlüssel".into(), longest];
    for (at, key) in keys.iter().enumerate() {
        put(store.as_mut(), Space::Header, key.clone(), at.to_string());
        put(store.as_mut(), Space::Body, key.clone(), at.to_string());
    }
    store.close().unwrap();
    let expected: BTreeMap<Bytes, Bytes> =
        keys.iter().enumerate().map(|(at, key)| (key.clone().into(), at.to_string().into())).collect();
    assert_eq!(contents(open(5).as_mut()), (expected.clone(), expected));
}

fn limits_are_refused_and_harmless(mut store: Box<dyn Store>) {
    for key in [vec![], vec![1; KEY_BYTES_MAX + 1]] {
        let mut batch = Batch::default();
        batch.put(Space::Header, "fine", "1");
        batch.delete(Space::Body, key);
        assert!(matches!(store.commit(batch), Err(Fault::TooLarge { .. })));
    }
    assert_eq!(contents(store.as_mut()), Contents::default());
    put(store.as_mut(), Space::Header, "fine", "1");
    store.close().unwrap();
}

fn pinned_bodies_outlive_their_deletion(mut store: Box<dyn Store>, open: Open<'_>) {
    put(store.as_mut(), Space::Body, "old", "from the base");
    store.close().unwrap();
    store = open(7);
    put(store.as_mut(), Space::Body, "new", "from memory");
    let reader = store.bodies();
    let pin = reader.pin();
    let second = pin.clone();
    delete(store.as_mut(), Space::Body, "old");
    put(store.as_mut(), Space::Body, "later", "put after the pin");
    delete(store.as_mut(), Space::Body, "new");
    let both = |what| {
        assert_eq!(reader.get(b"old").unwrap(), Some("from the base".into()), "{what}");
        assert_eq!(reader.get(b"new").unwrap(), Some("from memory".into()), "{what}");
    };
    both("under the pin");
    drop(pin);
    both("under its clone");
    put(store.as_mut(), Space::Body, "new", "again");
    assert_eq!(reader.get(b"new").unwrap(), Some("again".into()), "a new body under an old key");
    drop(second);
    put(store.as_mut(), Space::Body, "other", "1");
    assert_eq!(reader.get(b"old").unwrap(), None);
    assert_eq!(reader.get(b"new").unwrap(), Some("again".into()));
    let late = reader.pin();
    assert_eq!(reader.get(b"old").unwrap(), None, "a pin taken after the deletion");
    drop((late, reader));
    drop(store);
    assert_eq!(contents(open(7).as_mut()).1.len(), 3, "new, later, other");
}

fn an_error_ends_the_load(mut store: Box<dyn Store>) {
    put(store.as_mut(), Space::Header, "a", "1");
    put(store.as_mut(), Space::Header, "b", "1");
    let mut calls = 0;
    let result = store.load(&mut |_, _| {
        calls += 1;
        Err(Fault::Fenced)
    });
    assert_eq!((result, calls), (Err(Fault::Fenced), 1));
    store.close().unwrap();
}

/// A step of a random history.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Puts and deletes; the key is one of few.
    Commit(Vec<(Space, u8, Option<u16>)>),
    Crash,
    Close,
    Check,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let space = prop_oneof![Just(Space::Header), Just(Space::Body)];
    let change = (space, 0..24_u8, prop_oneof![2 => (0..3000_u16).prop_map(Some), 1 => Just(None)]);
    let step = prop_oneof![
        12 => prop::collection::vec(change, 0..12).prop_map(Step::Commit),
        1 => Just(Step::Crash),
        1 => Just(Step::Close),
        2 => Just(Step::Check),
    ];
    prop::collection::vec(step, 1..60)
}

/// Runs `cases` random histories, each on the case number from `first` on, and compares with a map.
pub fn random_histories_match_a_map(open: Open<'_>, first: u32, cases: u32) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let case = std::cell::Cell::new(first);
    let open = std::cell::RefCell::new(open);
    let result = runner.run(&steps(), |steps| {
        case.set(case.get() + 1);
        let mut reopen = || (open.borrow_mut())(case.get());
        run_history(&mut reopen, steps);
        Ok(())
    });
    assert_eq!(result, Ok(()));
}

fn run_history(open: &mut dyn FnMut() -> Box<dyn Store>, steps: Vec<Step>) {
    let mut store = open();
    let mut model = Contents::default();
    for step in steps {
        match step {
            Step::Commit(changes) => store.commit(batch_of(changes, &mut model)).unwrap(),
            Step::Crash => {
                drop(store);
                store = open();
            }
            Step::Close => {
                store.close().unwrap();
                store = open();
            }
            Step::Check => assert_eq!(contents(store.as_mut()), model),
        }
    }
    drop(store);
    assert_eq!(contents(open().as_mut()), model);
}

/// One change per key, in the batch and in the model.
fn batch_of(changes: Vec<(Space, u8, Option<u16>)>, model: &mut Contents) -> Batch {
    let mut batch = Batch::default();
    let changes: BTreeMap<(Space, u8), Option<u16>> =
        changes.into_iter().map(|(space, key, value)| ((space, key), value)).collect();
    for ((space, key), value) in changes {
        let key = Bytes::from(vec![key]);
        let records = if space == Space::Header { &mut model.0 } else { &mut model.1 };
        if let Some(value) = value {
            let value = Bytes::from(value.to_string().repeat(usize::from(value % 97)));
            records.insert(key.clone(), value.clone());
            batch.put(space, key, value);
        } else {
            records.remove(&key);
            batch.delete(space, key);
        }
    }
    batch
}
