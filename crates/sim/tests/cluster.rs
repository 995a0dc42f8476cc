//! Thousands of seeds of nodes that fail, and proof that a fault of ours would be noticed.

#![allow(clippy::panic, reason = "a test may fail by panicking")]

use haul_sim::{Flaw, run_cluster};

fn run(seed: u64, steps: usize, flaw: Option<Flaw>) -> Result<u64, String> {
    run_cluster(seed, steps, flaw, &mut |_| {})
}

#[test]
fn nothing_acknowledged_is_lost_and_no_job_is_held_twice() {
    let mut acknowledged = 0;
    for seed in 0..2000 {
        match run(seed, 300, None) {
            Ok(count) => acknowledged += count,
            Err(what) => {
                panic!("seed {seed}: {what}\nto replay it: cargo run -p haul-sim -- --cluster --seed {seed}")
            }
        }
    }
    assert!(acknowledged > 20_000, "hardly anything was done: {acknowledged}");
}

#[test]
fn a_node_that_answers_for_a_shard_it_lost_is_noticed() {
    assert!((0..2000).any(|seed| run(seed, 300, Some(Flaw::ZombieAcknowledges)).is_err()));
}

#[test]
fn an_answer_before_its_commit_is_noticed() {
    assert!((0..200).any(|seed| run(seed, 300, Some(Flaw::EarlyAnswer)).is_err()));
}
