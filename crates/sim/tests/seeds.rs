//! Thousands of seeds, and proof that a difference would be noticed.

#![allow(clippy::panic, clippy::print_stdout, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;

use haul_sim::{Answer, Model, Options, Outcome, Run, Step, Twist, replay, run_seed, shrink};

fn run(seed: u64, steps: usize, twist: Option<Twist>) -> Run {
    run_seed(seed, Options { steps, twist }, &mut |_, _| {})
}

fn none_fails(seeds: std::ops::Range<u64>, steps: usize) {
    for seed in seeds {
        if let Some(difference) = run(seed, steps, None).difference {
            panic!(
                "seed {seed}, step {}: {}\nto replay it: cargo run -p haul-sim -- --seed {seed} --steps {steps}",
                difference.step, difference.what
            );
        }
    }
}

#[test]
fn short_runs_of_many_seeds_show_no_difference() {
    none_fails(0..3000, 60);
}

#[test]
fn longer_runs_of_fewer_seeds_show_no_difference() {
    none_fails(10_000..11_000, 150);
}

#[test]
fn a_few_long_runs_show_no_difference() {
    none_fails(20_000..20_020, 2000);
}

#[test]
fn every_mistake_in_the_model_is_noticed_and_made_short() {
    let twists = [
        Twist::TiesAscending,
        Twist::HeartbeatClearsWarning,
        Twist::TagCountedOnce,
        Twist::SilentWarning,
        Twist::CompleteKeepsData,
    ];
    for twist in twists {
        let failing = (0..300).map(|seed| run(seed, 300, Some(twist))).find(|run| run.difference.is_some());
        let failing = failing.unwrap_or_else(|| panic!("{twist:?} goes unnoticed"));
        let steps = failing.steps.len();
        let short = shrink(failing.steps, Some(twist));
        assert!(replay(&short, Some(twist)).is_some(), "{twist:?}: the short script does not fail");
        assert!(replay(&short, None).is_none(), "{twist:?}: the short script fails without the mistake");
        assert!(
            short.len() <= 12 && short.len() <= steps,
            "{twist:?}: {} steps are left: {short:?}",
            short.len()
        );
    }
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for seed in 0..20 {
        let (one, again) = (run(seed, 200, None), run(seed, 200, None));
        assert_eq!(format!("{:?}", one.steps), format!("{:?}", again.steps), "seed {seed}");
    }
}

#[test]
fn every_command_does_something_and_every_outcome_happens() {
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    let mut refused: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..150 {
        let mut model = Model::new(None);
        for step in run(seed, 200, None).steps {
            match step {
                Step::Commit(outcome) => *outcomes.entry(format!("{outcome:?}")).or_default() += 1,
                Step::Call(call) => {
                    let command = format!("{:?}", call.command);
                    let word = command.split(['(', ' ', '{']).next().unwrap_or_default().to_owned();
                    match model.apply(&call).0 {
                        Answer::Refused(refusal) => *refused.entry(refusal.code()).or_default() += 1,
                        _ => *done.entry(word).or_default() += 1,
                    }
                }
            }
        }
    }
    println!("{done:?}\n{refused:?}\n{outcomes:?}");
    assert!(done.len() >= 52, "only {} commands succeed: {done:?}", done.len());
    assert!(done.values().all(|times| *times >= 5), "some hardly ever succeed: {done:?}");
    let codes = [
        "NOJOB",
        "NORECUR",
        "EXISTS",
        "NOTRUNNING",
        "NOTHELD",
        "WRONGQUEUE",
        "NOTDEPENDS",
        "NEEDED",
        "BADARG",
    ];
    codes.iter().for_each(|code| assert!(refused.contains_key(code), "{code} never happens"));
    let kinds = [Outcome::Kept, Outcome::Restarted, Outcome::Failed, Outcome::Full, Outcome::Crashed];
    kinds
        .iter()
        .for_each(|kind| assert!(outcomes.contains_key(&format!("{kind:?}")), "{kind:?} never happens"));
}
