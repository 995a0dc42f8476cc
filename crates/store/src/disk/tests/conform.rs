//! The suite that every store must pass, over disk stores of several shapes.

use super::*;
use crate::conformance;

fn check(options: impl Fn(&Path) -> DiskOptions, cases: u32) {
    let folder = tempfile::tempdir().unwrap();
    let mut open = |case: u32| -> Box<dyn Store> {
        Box::new(DiskStore::open(options(&folder.path().join(case.to_string()))).unwrap())
    };
    conformance::check(&mut open, cases);
}

#[test]
fn the_disk_store_conforms() {
    check(|path| DiskOptions::new(path), 4);
}

#[test]
fn it_conforms_with_many_small_segments_and_checkpoints() {
    let tiny = |path: &Path| DiskOptions {
        segment_bytes: 300,
        checkpoint_bytes: 900,
        log_bytes_max: 6000,
        ..DiskOptions::new(path)
    };
    check(tiny, 24);
}

#[test]
fn it_conforms_when_synced_by_interval() {
    let interval = |path: &Path| DiskOptions {
        durability: Durability::Interval(Duration::from_millis(2)),
        ..small(path)
    };
    check(interval, 6);
}
