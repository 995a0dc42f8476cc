use haul_store::Space;

use super::*;

#[test]
fn a_body_that_vanishes_is_noticed() {
    let mut world = with_a_body();
    let (space, key, _) = world.disk.records().into_iter().find(|(space, ..)| *space == Space::Body).unwrap();
    world.disk.tamper(space, &key, None);
    let what = world.check().unwrap_err();
    assert!(what.contains("missing"), "{what}");
}

#[test]
fn a_body_with_other_bytes_is_noticed() {
    let mut world = with_a_body();
    let (space, key, _) = world.disk.records().into_iter().find(|(space, ..)| *space == Space::Body).unwrap();
    world.disk.tamper(space, &key, Some(Bytes::from_static(b"other")));
    let what = world.check().unwrap_err();
    assert!(what.contains("GetMany"), "{what}");
}

#[test]
fn a_body_without_a_job_is_noticed() {
    let mut world = with_a_body();
    world.disk.tamper(Space::Body, &haul_engine::BodyId(99).key(), Some(Bytes::from_static(b"stray")));
    let what = world.check().unwrap_err();
    assert!(what.contains("without a job"), "{what}");
}

#[test]
fn a_record_that_vanishes_is_noticed_at_the_next_start() {
    let mut world = with_a_body();
    let records = world.disk.records();
    let (space, key, _) =
        records.into_iter().find(|(space, key, _)| *space == Space::Header && key[0] == b'j').unwrap();
    world.disk.tamper(space, &key, None);
    assert!(world.step(&Step::Commit(Outcome::Restarted)).is_err());
}

/// A world with one durable job whose data is a body.
fn with_a_body() -> World {
    let mut world = World::new(None);
    let put = haul_engine::Put {
        jid: "j".into(),
        queue: "a".into(),
        worker: Some("w1".into()),
        klass: Some("klass".into()),
        data: Some(Bytes::from("0123456789".repeat(6))),
        delay: 0.0,
        priority: None,
        tags: None,
        retries: None,
        depends: Vec::new(),
        throttles: Vec::new(),
        when: haul_engine::PutWhen::Always,
        trace: None,
    };
    let command = haul_engine::Command::Put(Box::new(put));
    let call = Call { tenant: "".into(), now: 1.0, clock: 1.0, rules: haul_engine::Rules::QLESS, command };
    world.step(&Step::Call(Box::new(call))).unwrap();
    world.step(&Step::Commit(Outcome::Kept)).unwrap();
    world
}
