//! `haul-sim`: runs seeds, and replays the one that failed.

use std::ops::Range;
use std::process::ExitCode;

use clap::Parser;
use haul_sim::{Difference, Options, Step, run_cluster, run_seed, shrink};

/// Runs the engine against a naive model of it, on a store that fails on demand.
#[derive(Parser)]
#[command(name = "haul-sim", version, about)]
struct Arguments {
    /// Replay one seed and show every step
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the seeds from FROM up to, not including, TO; stops at the first failure
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range, default_value = "0..1000")]
    seeds: Range<u64>,
    /// Steps of each seed
    #[arg(long, default_value_t = 300)]
    steps: usize,
    /// Several nodes on one store instead: with pauses, partitions, skewed clocks and lost answers
    #[arg(long)]
    cluster: bool,
}

/// Seeds between two progress lines.
const PROGRESS_EVERY: u64 = 500;

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("write FROM..TO, for example 0..1000")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.cluster {
        return cluster(&arguments);
    }
    let options = Options { steps: arguments.steps, twist: None };
    match arguments.seed {
        Some(seed) => replay_seed(seed, options),
        None => run_seeds(arguments.seeds, options),
    }
}

#[expect(clippy::print_stdout, reason = "a command-line tool")]
fn cluster(arguments: &Arguments) -> ExitCode {
    let (seeds, told) = match arguments.seed {
        Some(seed) => (seed..seed + 1, true),
        None => (arguments.seeds.clone(), false),
    };
    let mut acknowledged = 0;
    for seed in seeds.clone() {
        let run = run_cluster(seed, arguments.steps, None, &mut |line| {
            if told {
                println!("{line}");
            }
        });
        match run {
            Ok(count) => acknowledged += count,
            Err(what) => {
                println!("seed {seed} fails: {what}");
                println!(
                    "\nto replay it:\n  cargo run -p haul-sim -- --cluster --seed {seed} --steps {}",
                    arguments.steps
                );
                return ExitCode::FAILURE;
            }
        }
    }
    println!("seeds {}..{} of nodes: {acknowledged} acknowledged, none lost", seeds.start, seeds.end);
    ExitCode::SUCCESS
}

#[expect(clippy::print_stdout, reason = "a command-line tool")]
fn replay_seed(seed: u64, options: Options) -> ExitCode {
    let run = run_seed(seed, options, &mut |number, step| println!("{number:5} {}", line(step)));
    let Some(Difference { what, .. }) = run.difference else {
        println!("seed {seed}: {} steps, no difference", run.steps.len());
        return ExitCode::SUCCESS;
    };
    println!("\n{what}\n\nshrinking...");
    let short = shrink(run.steps, None);
    println!("\nthe shortest script found that fails, {} steps:", short.len());
    short.iter().for_each(|step| println!("  {}", line(step)));
    if let Some(Difference { what, .. }) = haul_sim::replay(&short, None) {
        println!("\n{what}");
    }
    ExitCode::FAILURE
}

#[expect(clippy::print_stdout, reason = "a command-line tool")]
fn run_seeds(seeds: Range<u64>, options: Options) -> ExitCode {
    for seed in seeds.clone() {
        let run = run_seed(seed, options, &mut |_, _| {});
        if let Some(difference) = run.difference {
            println!("seed {seed} fails at step {}: {}", difference.step, difference.what);
            println!("\nto replay it:\n  cargo run -p haul-sim -- --seed {seed} --steps {}", options.steps);
            return ExitCode::FAILURE;
        }
        if (seed + 1 - seeds.start).is_multiple_of(PROGRESS_EVERY) {
            println!("{} of {} seeds, no difference", seed + 1 - seeds.start, seeds.end - seeds.start);
        }
    }
    println!("seeds {}..{}, {} steps each: no difference", seeds.start, seeds.end, options.steps);
    ExitCode::SUCCESS
}

/// A step on one line.
fn line(step: &Step) -> String {
    match step {
        Step::Call(call) => format!("{} [{}] {:?}", call.now, call.tenant, call.command),
        Step::Commit(outcome) => format!("-- {outcome:?}"),
    }
}
