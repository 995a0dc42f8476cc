//! The object store on a shared folder. Against real servers: `tests/object/run`.

use std::time::Duration;

use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn options(folder: &std::path::Path, name: &str, runtime: &tokio::runtime::Runtime) -> ObjectOptions {
    let place = Place::new(&format!("file://{}", folder.display()), &Access::default()).unwrap();
    let mut options = ObjectOptions::new(Arc::new(place), name, runtime.handle().clone());
    options.flush_interval = Duration::from_millis(1);
    options
}

fn batch(key: &'static str) -> Batch {
    let mut batch = Batch::default();
    batch.put(Space::Header, key, "value");
    batch
}

fn keys(store: &mut ObjectStore) -> Vec<Bytes> {
    let mut keys = Vec::new();
    store
        .load(&mut |key, _| {
            keys.push(Bytes::copy_from_slice(key));
            Ok(())
        })
        .unwrap();
    keys
}

#[test]
fn a_shared_folder_conforms() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let open = &mut |case: u32| {
        let options = options(folder.path(), &format!("case-{case}"), &runtime);
        Box::new(ObjectStore::open(&options).unwrap()) as Box<dyn Store>
    };
    crate::conformance::check(open, 10);
}

#[test]
fn an_earlier_handle_is_fenced_and_keeps_nothing() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let options = options(folder.path(), "shard", &runtime);
    let mut first = ObjectStore::open(&options).unwrap();
    first.commit(batch("a")).unwrap();
    let mut second = ObjectStore::open(&options).unwrap();
    assert!(second.stats().epoch > first.stats().epoch);
    assert_eq!(first.commit(batch("b")), Err(Fault::Fenced));
    assert_eq!(first.commit(batch("c")), Err(Fault::Fenced), "and stays so");
    second.commit(batch("d")).unwrap();
    assert_eq!(keys(&mut second), ["a", "d"]);
}

#[test]
fn a_fenced_handle_that_only_looks_notices_once_it_is_not_trusted_any_more() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let mut options = options(folder.path(), "shard", &runtime);
    options.trust = Duration::ZERO;
    let mut first = ObjectStore::open(&options).unwrap();
    first.commit(Batch::default()).unwrap();
    let _second = ObjectStore::open(&options).unwrap();
    assert_eq!(first.commit(Batch::default()), Err(Fault::Fenced));
}

#[test]
fn batches_on_their_way_share_writes_and_come_true_in_order() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let mut options = options(folder.path(), "shard", &runtime);
    options.flush_interval = Duration::from_millis(50);
    let mut store = ObjectStore::open(&options).unwrap();
    let before = options.place.requests().now();
    let tickets: Vec<Ticket> = (0..200).map(|_| store.submit(batch("a")).unwrap()).collect();
    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
    let puts = options.place.requests().now().puts - before.puts;
    assert!(puts < 100, "{puts} writes for 200 batches");
    assert_eq!(store.stats().commits, 200);
}

#[test]
fn what_was_on_its_way_at_a_crash_is_kept_whole_or_not_at_all() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let options = options(folder.path(), "shard", &runtime);
    for _ in 0..5 {
        let mut store = ObjectStore::open(&options).unwrap();
        let mut both = batch("a");
        both.put(Space::Header, "b", "value");
        let before = keys(&mut store).len();
        drop(store.submit(both).unwrap());
        drop(store);
        let mut store = ObjectStore::open(&options).unwrap();
        let after = keys(&mut store).len();
        assert!(after == before || after == 2, "{after}");
        let mut none = Batch::default();
        none.delete(Space::Header, "a");
        none.delete(Space::Header, "b");
        store.commit(none).unwrap();
    }
}

#[test]
fn a_place_creates_reads_lists_and_removes() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let place = Place::new(&format!("file://{}/x", folder.path().display()), &Access::default()).unwrap();
    runtime.block_on(async {
        place.probe("probe/1").await.unwrap();
        assert_eq!(place.read("nodes/a").await.unwrap(), None);
        assert!(place.create("nodes/a", "1".into()).await.unwrap());
        assert!(!place.create("nodes/a", "2".into()).await.unwrap());
        assert_eq!(place.read("nodes/a").await.unwrap(), Some("1".into()));
        place.write("nodes/a", "3".into()).await.unwrap();
        let listed = place.list("nodes").await.unwrap();
        assert_eq!(listed.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a"]);
        assert!(listed[0].modified_ms > 1_600_000_000_000);
        let before = place.requests().now();
        assert_eq!((before.errors, before.bytes_received), (0, 1));
        place.remove("nodes/a").await.unwrap();
        place.remove("nodes/a").await.unwrap();
        assert!(place.list("nodes").await.unwrap().is_empty());
        let after = place.requests().now();
        assert_eq!((after.deletes - before.deletes, after.lists - before.lists), (2, 1));
        assert!(after.put_seconds > 0.0 && after.get_seconds > 0.0);
    });
}

#[test]
fn a_wrong_url_is_named() {
    for url in ["nonsense", "ftp://host/x", "s3:///x"] {
        let fault = Place::new(url, &Access::default()).unwrap_err();
        assert!(matches!(&fault, Fault::Refused { url: named, .. } if named == url), "{fault}");
    }
}

#[test]
#[ignore = "needs a server: tests/object/run starts it"]
fn a_server_conforms() {
    let variable = |name: &str| std::env::var(name).ok();
    let access = Access {
        endpoint: variable("HAUL_STORE_ENDPOINT"),
        allow_http: variable("HAUL_STORE_ALLOW_HTTP").is_some(),
        ..Access::default()
    };
    let run = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let url = format!("{}/conformance-{run}", variable("HAUL_STORE_URL").unwrap());
    let place = Arc::new(Place::new(&url, &access).unwrap());
    let runtime = runtime();
    runtime.block_on(place.probe("probe/1")).unwrap();
    let open = &mut |case: u32| {
        let mut options = ObjectOptions::new(place.clone(), format!("case-{case}"), runtime.handle().clone());
        options.flush_interval = Duration::from_millis(1);
        Box::new(ObjectStore::open(&options).unwrap()) as Box<dyn Store>
    };
    crate::conformance::check(open, 5);
    let options = ObjectOptions::new(place.clone(), "fencing", runtime.handle().clone());
    let mut first = ObjectStore::open(&options).unwrap();
    let mut second = ObjectStore::open(&options).unwrap();
    assert_eq!(first.commit(batch("a")), Err(Fault::Fenced));
    second.commit(batch("b")).unwrap();
}
