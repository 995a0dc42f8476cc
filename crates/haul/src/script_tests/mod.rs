//! The script tests of `tests/scripts`, below the wire: dialect, engine and store without sockets. The same files are
//! run over the wire by `tests/reference/run.py`, and there against the original scripts too.

mod expect;
mod parse;
mod rig;

use std::path::{Path, PathBuf};

use haul_store::{DiskOptions, DiskStore, MemoryDisk, Store};

use parse::Case;
use rig::Rig;

/// Cases that speak only to a connection (transactions, scripts) are for the wire.
const CASES_BELOW_THE_WIRE_AT_LEAST: usize = 800;

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scripts");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "script"));
    files.sort();
    files
}

/// Runs every case that can be run below the wire; complains about all that fail.
fn run_all(mut rig_for: impl FnMut() -> Rig) {
    let (mut ran, mut failures) = (0, Vec::new());
    for file in scripts() {
        let mut rig = rig_for();
        for case in parse::read(&file) {
            if case.steps.iter().all(rig::is_below_the_wire) {
                ran += 1;
                failures.extend(run(&mut rig, &case));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {ran} cases fail:\n{}", failures.len(), failures.join("\n"));
    assert!(ran >= CASES_BELOW_THE_WIRE_AT_LEAST, "only {ran} cases ran");
}

fn run(rig: &mut Rig, case: &Case) -> Option<String> {
    rig.empty();
    for step in &case.steps {
        let (frame, events) = rig.run(step);
        if let Some(complaint) = expect::check(step, &frame, &events) {
            return Some(format!("{}:{}: {}\n  {complaint}", case.file, step.line, case.title));
        }
    }
    None
}

#[test]
fn the_scripts_hold_on_the_engine_in_memory() {
    run_all(|| {
        let disk = MemoryDisk::default();
        Rig::new(Box::new(move || Box::new(disk.open()) as Box<dyn Store>), None)
    });
}

#[test]
fn the_scripts_hold_when_the_state_is_loaded_again_after_every_command() {
    run_all(|| {
        let disk = MemoryDisk::default();
        Rig::new(Box::new(move || Box::new(disk.open()) as Box<dyn Store>), Some(1))
    });
}

#[test]
fn the_scripts_hold_on_the_disk_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    run_all(|| {
        number += 1;
        let mut options = DiskOptions::new(folder.path().join(number.to_string()));
        // What the power cut test is about is not what this one is about.
        options.durability = haul_store::Durability::Interval(std::time::Duration::from_millis(50));
        let open = move || Box::new(DiskStore::open(options.clone()).unwrap()) as Box<dyn Store>;
        Rig::new(Box::new(open), Some(60))
    });
}
