//! Data sets that go from place to place and come back the same, whatever the number of shards; and copies that were cut off.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use haul_engine::{Call, Command, Name, Put, PutWhen, Reply, Rules};
use haul_store::{Access, DiskOptions, DiskStore, ObjectOptions, Place, Store as _};

use super::*;
use crate::cluster::Meta;
use crate::shard::{Core, Publish};

struct Nobody;

impl Publish for Nobody {
    fn publish(&mut self, _: &Name, _: Vec<haul_engine::Event>) {}
}

const TENANTS: usize = 20;

fn call(tenant: usize, command: Command) -> Call {
    let tenant = Name::from(format!("tenant-{tenant}"));
    Call { tenant, now: 1.0, clock: 1.0, rules: Rules::NATIVE, command }
}

/// A folder with jobs of many tenants, short data and long.
fn fill(folder: &Path) {
    let store = DiskStore::open(DiskOptions::new(folder)).unwrap();
    let mut core = Core::load(Box::new(store)).unwrap();
    for tenant in 0..TENANTS {
        for at in 0..5 {
            let data = format!("\"{tenant}-{at}-{}\"", "x".repeat(at * 40));
            let put = Put {
                jid: Name::from(format!("job-{at}")),
                queue: Name::from("q"),
                worker: None,
                klass: Some(Name::from("k")),
                data: Some(data.into()),
                delay: 0.0,
                priority: None,
                tags: Some(vec![Name::from("tag")]),
                retries: None,
                depends: Vec::new(),
                throttles: Vec::new(),
                when: PutWhen::Always,
                trace: None,
            };
            let (done, _) = tokio::sync::oneshot::channel();
            let calls = vec![call(tenant, Command::Put(Box::new(put)))];
            core.apply(
                crate::shard::Request { calls, watched: Vec::new(), wait: None, done: done.into() },
                1.0,
            );
        }
        core.finish().unwrap().release(&mut Nobody);
    }
    core.close().unwrap();
}

/// Every job's data, by tenant and jid, as the server would show it.
fn jobs(folder: &Path) -> BTreeMap<(usize, String), Bytes> {
    let store = DiskStore::open(DiskOptions::new(folder)).unwrap();
    let bodies = store.bodies();
    let mut core = Core::load(Box::new(store)).unwrap();
    assert_eq!(core.engine().audit(), []);
    let mut found = BTreeMap::new();
    for tenant in 0..TENANTS {
        for at in 0..5 {
            let jid = format!("job-{at}");
            let (done, mut answer) = tokio::sync::oneshot::channel();
            let calls = vec![call(tenant, Command::Get { jid: Name::from(jid.clone()) })];
            core.apply(
                crate::shard::Request { calls, watched: Vec::new(), wait: None, done: done.into() },
                1.0,
            );
            core.finish().unwrap().release(&mut Nobody).into_iter().for_each(|answer| answer.send());
            let outcome = answer.try_recv().unwrap().outcomes.unwrap().pop().unwrap();
            let crate::shard::Outcome::Done { reply: Ok(Reply::Job(Some(job))), .. } = outcome else {
                panic!("{outcome:?}")
            };
            let data = match job.data {
                haul_engine::Text::Short(name) => Bytes::copy_from_slice(name.bytes()),
                haul_engine::Text::Long(id) => bodies.get(&id.key()).unwrap().unwrap(),
            };
            found.insert((tenant, jid), data);
        }
    }
    found
}

struct Rig {
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Rig {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Rig { folder: tempfile::tempdir().unwrap(), runtime: runtime.unwrap() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn place(&self, name: &str) -> (Arc<Place>, ObjectOptions) {
        let url = format!("file://{}", self.path(name).display());
        let place = Arc::new(Place::new(&url, &Access::default()).unwrap());
        let options = ObjectOptions::new(place.clone(), "", self.runtime.handle().clone());
        (place, options)
    }

    /// Copies to a bucket.
    fn to_bucket(&self, mut source: Source, name: &str, shards: u32) -> anyhow::Result<Copied> {
        let (place, options) = self.place(name);
        let meta = self.runtime.block_on(Meta::begin_copy(&place, Some(shards)))?;
        let mut target = Target::bucket(place, &meta, &options)?;
        let copied = copy(&mut source, &mut target, &mut |_, _, _| {})?;
        let place = target.finish()?.unwrap();
        self.runtime.block_on(Meta::end_copy(&place))?;
        Ok(copied)
    }

    fn read_bucket(&self, name: &str) -> Source {
        let (place, options) = self.place(name);
        let meta = self.runtime.block_on(Meta::read(&place)).unwrap().unwrap();
        Source::bucket(&place, &meta, options)
    }
}

fn to_folder(mut source: Source, folder: std::path::PathBuf) -> anyhow::Result<Copied> {
    let mut target = Target::folder(folder)?;
    let copied = copy(&mut source, &mut target, &mut |_, _, _| {})?;
    target.finish()?;
    Ok(copied)
}

#[test]
fn a_folder_goes_to_shards_to_other_shards_to_a_file_and_back() {
    let rig = Rig::new();
    fill(&rig.path("one"));
    let before = jobs(&rig.path("one"));
    rig.to_bucket(Source::folder(rig.path("one")).unwrap(), "four", 4).unwrap();
    rig.to_bucket(rig.read_bucket("four"), "three", 3).unwrap();
    let mut source = rig.read_bucket("three");
    let mut file = Target::file(rig.path("backup"), source.shards()).unwrap();
    copy(&mut source, &mut file, &mut |_, _, _| {}).unwrap();
    file.finish().unwrap();
    to_folder(Source::file(rig.path("backup")).unwrap(), rig.path("back")).unwrap();
    assert_eq!(jobs(&rig.path("back")), before);
}

#[test]
fn a_copy_that_was_cut_off_goes_on_and_cannot_be_served_before() {
    let rig = Rig::new();
    fill(&rig.path("one"));
    let (place, options) = rig.place("bucket");
    let meta = rig.runtime.block_on(Meta::begin_copy(&place, Some(4))).unwrap();
    let mut target = Target::bucket(place.clone(), &meta, &options).unwrap();
    let mut left = 150;
    let mut source = Source::folder(rig.path("one")).unwrap();
    let mut moves = Moves { from: 1, to: 4, homes: HashMap::new() };
    let cut = source.each(&mut |record| {
        left -= 1;
        anyhow::ensure!(left > 0, "cut off");
        target.put(moves.moved(record)?.unwrap())
    });
    assert!(cut.is_err());
    target.flush().unwrap();
    // Not of this data set: must go.
    let stray = Record { shard: 0, space: Space::Header, key: "jstray".into(), value: "x".into() };
    target.put(stray).unwrap();
    target.flush().unwrap();
    target.finish().unwrap();
    drop(source);
    let refused = rig.runtime.block_on(Meta::open(&place, None)).unwrap_err().to_string();
    assert!(refused.contains("not whole"), "{refused}");
    let copied = rig.to_bucket(Source::folder(rig.path("one")).unwrap(), "bucket", 4).unwrap();
    assert_eq!(copied.kept, 149);
    assert!(copied.records > copied.kept);
    assert!(rig.runtime.block_on(Meta::open(&place, None)).is_ok());
    to_folder(rig.read_bucket("bucket"), rig.path("back")).unwrap();
    assert_eq!(jobs(&rig.path("back")), jobs(&rig.path("one")));
}

#[test]
fn progress_goes_up_stage_by_stage_and_is_never_whole_before_the_end() {
    let rig = Rig::new();
    fill(&rig.path("one"));
    rig.to_bucket(Source::folder(rig.path("one")).unwrap(), "bucket", 4).unwrap();
    let mut file = Target::file(rig.path("backup"), 4).unwrap();
    copy(&mut rig.read_bucket("bucket"), &mut file, &mut |_, _, _| {}).unwrap();
    file.finish().unwrap();
    let sources = [
        Source::folder(rig.path("one")).unwrap(),
        rig.read_bucket("bucket"),
        Source::file(rig.path("backup")).unwrap(),
    ];
    for (at, mut source) in sources.into_iter().enumerate() {
        let mut told: Vec<(Stage, f64)> = Vec::new();
        let mut target = Target::file(rig.path(&format!("copy-{at}")), source.shards()).unwrap();
        let copied = copy(&mut source, &mut target, &mut |stage, _, part| told.push((stage, part.unwrap())));
        let copying = told.iter().filter(|(stage, _)| *stage == Stage::Copying);
        assert_eq!(copying.count() as u64, copied.unwrap().records);
        for pair in told.windows(2) {
            let [(stage, part), (next, later)] = pair else { panic!() };
            assert!(stage != next || part <= later, "{pair:?}");
        }
        assert!(told.iter().all(|(_, part)| (0.0..=0.99).contains(part)));
        assert!(told.iter().any(|(stage, part)| *stage == Stage::Copying && *part > 0.7), "{at}");
    }
}

#[test]
fn what_is_there_is_not_overwritten() {
    let rig = Rig::new();
    fill(&rig.path("one"));
    fill(&rig.path("two"));
    assert!(to_folder(Source::folder(rig.path("one")).unwrap(), rig.path("two")).is_err());
    rig.to_bucket(Source::folder(rig.path("one")).unwrap(), "bucket", 2).unwrap();
    let again = rig.to_bucket(Source::folder(rig.path("one")).unwrap(), "bucket", 2).unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");
}

#[test]
fn a_backup_that_was_cut_off_or_changed_is_refused() {
    let rig = Rig::new();
    fill(&rig.path("one"));
    let mut source = Source::folder(rig.path("one")).unwrap();
    let mut file = Target::file(rig.path("backup"), 1).unwrap();
    copy(&mut source, &mut file, &mut |_, _, _| {}).unwrap();
    file.finish().unwrap();
    let whole = std::fs::read(rig.path("backup")).unwrap();
    let check = |bytes: &[u8]| Reader::new(bytes)?.each(&mut |_| Ok(()));
    assert!(check(whole.as_slice()).is_ok());
    for end in [0, 5, 20, whole.len() / 2, whole.len() - 1] {
        assert!(check(&whole[..end]).is_err(), "cut at {end}");
    }
    for at in [0, 16, 24, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        assert!(check(damaged.as_slice()).is_err(), "changed at {at}");
    }
}
