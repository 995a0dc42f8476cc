//! The life of a job, transition by transition, with time as an argument.

use std::sync::Arc;

use haul_engine::{Engine, JobView, State};
use haul_journal::{FullType, Id};

use super::*;
use crate::serverless::view;

const LOCK: f64 = 300.0;
/// When the jobs are accepted: what their ids say.
const MADE: f64 = 1_593_479_837.123;

struct World {
    engine: Engine,
}

impl World {
    fn ask(&mut self, now: f64, command: Command) -> Result<Reply, Refusal> {
        let call = Call { tenant: Name::from("client"), now, clock: now, rules: RULES, command };
        let reply = self.engine.apply(call);
        assert!(self.engine.audit().is_empty());
        reply
    }

    fn add(&mut self, now: f64, sequence: u32, due: Option<f64>) -> Name {
        let id = Id { sequence, ..Id::parse("NC2oBN3-lt-0aZ~-000").unwrap() };
        let entry = Entry::new(
            id.clone(),
            Arc::new(FullType::parse("client-t").unwrap()),
            Bytes::from_static(b"payload"),
            due.map(|due| (due * 1000.0) as u64),
        );
        let _ = self.ask(now, Command::Put(Box::new(put_of(&entry, now * 1000.0))));
        Name::from(id.to_string())
    }

    fn take(&mut self, now: f64, sysid: &str) -> Vec<Name> {
        match self.ask(now, Command::Pop(pop_of("t", 10, &Name::from(sysid), LOCK))) {
            Ok(Reply::Jobs(jobs)) => jobs.into_iter().map(|job| job.jid).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, now: f64, jid: &Name, release: Release, sysid: &str) -> Result<Reply, Refusal> {
        let command = command_of(jid.clone(), release, &Name::from(sysid)).unwrap();
        self.ask(now, command)
    }

    fn job(&mut self, jid: &Name) -> JobView {
        match self.ask(1.0, Command::Get { jid: jid.clone() }) {
            Ok(Reply::Job(Some(job))) => *job,
            other => panic!("{other:?}"),
        }
    }
}

fn world() -> World {
    World { engine: Engine::default() }
}

fn retry(delay: f64) -> Release {
    Release::Retry { delay, group: "error-500".to_owned(), message: Bytes::from_static(b"why") }
}

#[test]
fn accepted_is_eligible_at_once_or_when_it_is_due() {
    let mut world = world();
    let now = world.add(100.0, 0, None);
    let later = world.add(100.0, 1, Some(150.0));
    assert_eq!(world.job(&later).state, State::Scheduled);
    assert_eq!(world.take(149.9, "S"), [now]);
    assert_eq!(world.take(150.0, "S"), [later]);
}

#[test]
fn an_existing_id_is_left_as_it_is() {
    let mut world = world();
    let jid = world.add(100.0, 0, None);
    world.take(101.0, "S");
    world.add(102.0, 0, None);
    assert_eq!(world.job(&jid).state, State::Running);
}

#[test]
fn a_taken_job_is_locked_for_five_minutes_and_no_one_else_gets_it() {
    let mut world = world();
    let jid = world.add(100.0, 0, None);
    world.take(110.0, "S");
    let job = world.job(&jid);
    assert_eq!((job.state, job.worker, job.expires), (State::Running, Name::from("S"), 410.0));
    assert!(world.take(409.9, "T").is_empty());
}

#[test]
fn a_refresh_moves_the_end_of_the_owners_lock_only() {
    let mut world = world();
    let jid = world.add(100.0, 0, None);
    world.take(110.0, "S");
    let beat = |sysid: &str| {
        let (worker, lock) = (Name::from(sysid), Lock::Seconds(LOCK));
        Command::Heartbeat(Heartbeat { jid: jid.clone(), worker, attempt: None, lock, data: None })
    };
    assert!(world.ask(120.0, beat("T")).is_err());
    assert_eq!(world.job(&jid).expires, 410.0);
    assert!(world.ask(139.0, beat("S")).is_ok());
    assert_eq!(world.job(&jid).expires, 439.0);
}

/// It never reported: no retry is spent, and it keeps its place in line.
#[test]
fn a_lock_that_ran_out_frees_the_job_for_anybody_before_newer_ones() {
    let mut world = world();
    let old = world.add(100.0, 0, None);
    world.take(110.0, "S");
    let new = world.add(120.0, 1, None);
    assert_eq!(world.take(410.1, "T"), [old.clone(), new]);
    let job = world.job(&old);
    assert_eq!((job.worker, job.retries - job.remaining), (Name::from("T"), 0.0));
    // The first owner has lost it: what it says changes nothing.
    assert!(world.release(411.0, &old, Release::Archive { result: Bytes::from_static(b"1") }, "S").is_err());
    assert!(world.release(411.0, &old, retry(300.0), "S").is_err());
    assert_eq!(world.job(&old).state, State::Running);
}

#[test]
fn retry_waits_its_delay_and_is_counted() {
    let mut world = world();
    let jid = world.add(100.0, 0, None);
    world.take(110.0, "S");
    world.release(120.0, &jid, retry(300.0), "S").unwrap();
    assert!(world.take(419.9, "S").is_empty());
    assert_eq!(world.take(420.0, "S"), std::slice::from_ref(&jid));
    let job = world.job(&jid);
    assert_eq!(job.retries - job.remaining, 1.0);
}

#[test]
fn archive_and_bury_end_a_job() {
    let mut world = world();
    let (done, failed) = (world.add(100.0, 0, None), world.add(100.0, 1, None));
    world.take(110.0, "S");
    world.release(120.0, &done, Release::Archive { result: Bytes::from_static(b"1") }, "S").unwrap();
    let message = Bytes::from_static(b"no");
    let bury = Release::Bury { group: "failed-404".to_owned(), message, entry: None };
    world.release(120.0, &failed, bury, "S").unwrap();
    assert_eq!(world.job(&done).state, State::Complete);
    let job = world.job(&failed);
    assert_eq!((job.state, job.failure.unwrap().group), (State::Failed, Name::from("failed-404")));
    assert!(world.take(1e6, "S").is_empty());
}

/// Table 3.3 in its own words: the date and the owner of a job after each event.
#[test]
fn every_event_leaves_the_date_and_the_owner_of_the_table() {
    let mut world = world();
    let at = |seconds: f64| ((MADE + seconds) * 1000.0).round() as u64;
    let seen = |world: &mut World, jid: &Name| {
        let seen = view::seen(&world.job(jid), None);
        (seen.dt_ms, seen.lock)
    };
    let nobody = String::new;
    // Accepted: the requested start, else its creation, however much later it was stored.
    let jid = world.add(MADE + 7.0, 0, None);
    let later = world.add(MADE + 7.0, 1, Some(MADE + 5000.0));
    assert_eq!(seen(&mut world, &jid), (at(0.0), nobody()));
    assert_eq!(seen(&mut world, &later), (at(5000.0), nobody()));
    // Picked by S.
    world.take(MADE + 10.0, "S");
    assert_eq!(seen(&mut world, &jid), (at(310.0), "S".to_owned()));
    // Refreshed, by S alone.
    for (sysid, now, end) in [("T", 20.0, 310.0), ("S", 39.0, 339.0)] {
        let (worker, lock) = (Name::from(sysid), Lock::Seconds(LOCK));
        let beat = Heartbeat { jid: jid.clone(), worker, attempt: None, lock, data: None };
        let _ = world.ask(MADE + now, Command::Heartbeat(beat));
        assert_eq!(seen(&mut world, &jid), (at(end), "S".to_owned()), "{sysid}");
    }
    // Abandoned: the date is unchanged until another takes it.
    assert_eq!(world.take(MADE + 338.9, "T"), []);
    assert_eq!(seen(&mut world, &jid), (at(339.0), "S".to_owned()));
    assert_eq!(world.take(MADE + 340.0, "T"), std::slice::from_ref(&jid));
    assert_eq!(seen(&mut world, &jid), (at(640.0), "T".to_owned()));
    // Given back without having run.
    world.ask(MADE + 350.0, Command::Timeout { jids: vec![jid.clone()] }).unwrap();
    assert_eq!(seen(&mut world, &jid), (at(350.0) / 1000 * 1000, nobody()), "whole seconds");
    assert_eq!(view::seen(&world.job(&jid), None).retries, 0);
    // To be tried again.
    world.take(MADE + 351.0, "S");
    world.release(MADE + 360.0, &jid, retry(300.0), "S").unwrap();
    assert_eq!(seen(&mut world, &jid), (at(660.0), nobody()));
    assert_eq!(view::seen(&world.job(&jid), None).retries, 1);
    // Archived: a thousand years of the calendar later.
    world.take(MADE + 660.0, "S");
    world.release(MADE + 661.0, &jid, Release::Archive { result: Bytes::from_static(b"1") }, "S").unwrap();
    let done = view::seen(&world.job(&jid), Some(at(661.0)));
    assert_eq!((done.done_ms, done.lock.as_str()), (Some(at(661.0)), "__done"));
    assert_eq!(haul_journal::iso(done.dt_ms), "3020-06-30T01:28:18.123Z");
    assert_eq!(done.create_ms, at(0.0));
}
