//! `haul bench`: a load generator for Haul and, with the same bytes, for Redis with a qless script and for beanstalkd.
//!
//! A map: `driver` writes a server's commands, `reply` reads its answers, `link` is a connection, `load` keeps the
//! connections busy, `pause` waits for a moment, `server` asks the server what it spent, `append` is the disk without a server, `synced` a server
//! without jobs, `report` shows it all. One thread, so that the generator
//! leaves the cores to the server. It knows servers only by their addresses.

mod append;
mod driver;
mod histogram;
mod link;
mod load;
mod pause;
mod reply;
mod report;
mod server;
mod synced;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

use driver::{Driver, Kind, Shape};
use load::{Goal, Seat, Stage};
use reply::Speech;
use report::{Phase, Report};

/// Jobs in each call that fills a backlog.
const FILL_BATCH: usize = 500;
/// Jobs one command carries at most: what a pop gives at most.
const BATCH_MAX: usize = 10_000;
/// Connections, commands in flight and queues at most.
const COUNT_MAX: u64 = 100_000;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Workload {
    /// Jobs are put and stay
    Put,
    /// Each connection puts, pops and completes, as many at a time as the pipeline is deep
    Lifecycle,
    /// All the puts, then all the pops, then all the completes, each measured for itself
    Phases,
    /// Half of the connections wait for jobs, the others put --rate a second: how long from put to delivery
    Delivery,
    /// As lifecycle, with delayed and dependent jobs and a heartbeat for each
    Mixed,
}

/// Put a server under load and measure it
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul bench
  haul bench --driver haul-bulk --batch 100 --pipeline 1 --duration 10
  haul bench --driver ping --pipeline 1
  haul bench --driver synced-ping --pipeline 1 --payload 200 --folder /var/lib/haul
  haul bench --workload delivery --connections 2 --rate 50
  haul bench --tenants a,b,c,d --connections 64
  haul bench --driver append --batch 100 --payload 700 --folder /var/lib/haul
  haul bench --driver append --batch 1 --workload delivery --rate 50
  haul bench --driver beanstalk --address 127.0.0.1:11300
  haul bench --driver qless --script qless.lua --rename-extend --address 127.0.0.1:6379

The jobs go to queues named bench-0, bench-1, ...; those of the workload put stay there.")]
pub(crate) struct Bench {
    /// The server: Haul, Redis, or beanstalkd
    #[arg(long, env = "HAUL_SERVER", value_name = "HOST:PORT", default_value = "127.0.0.1:4286")]
    address: String,
    /// The HTTP side of the server, for the drivers http and http-bulk
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4285")]
    http: String,
    /// Which commands to send
    #[arg(long, value_enum, default_value = "haul")]
    driver: Kind,
    #[arg(long, value_enum, default_value = "lifecycle")]
    workload: Workload,
    /// Connections that work at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    connections: u64,
    /// Commands sent together on each connection
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    pipeline: u64,
    /// Jobs in each command of the drivers haul-bulk and http-bulk, and in each sync of append
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=BATCH_MAX as u64))]
    batch: u64,
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, conflicts_with = "jobs")]
    duration: f64,
    /// How many jobs to measure, instead of how long; `phases` needs it
    #[arg(long, value_name = "N")]
    jobs: Option<u64>,
    /// Bytes of each job's data
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    payload: usize,
    /// Queues, dealt out to the connections in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    queues: u64,
    /// Tenants, dealt out to the connections in turn: a,b,c; each tenant is in one shard of a shared store
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tenants: Vec<String>,
    /// Waiting jobs to put in before measuring
    #[arg(long, value_name = "N", default_value_t = 0)]
    backlog: u64,
    /// Puts, or syncs, a second, all connections together, for the workload delivery
    #[arg(long, value_name = "N", default_value_t = 100.0)]
    rate: f64,
    /// Where the drivers append and synced-ping have their file
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// The Lua text of qless or reqless, for the driver qless
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Rename the script's helper table.extend, which Redis 7 does not let it define
    #[arg(long)]
    rename_extend: bool,
}

/// Runs a benchmark and shows its result.
#[expect(clippy::print_stderr, reason = "for the person who waits")]
pub(crate) fn run(bench: &Bench, token: Option<&str>, json: bool) -> ExitCode {
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| tokio::task::LocalSet::new().block_on(&runtime, measure(bench, token)));
    let shown = result.and_then(|report| {
        let text = if json { report.json() + "\n" } else { report.to_string() };
        match std::io::stdout().write_all(text.as_bytes()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => written.context("the result could not be written"),
        }
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("haul bench: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Whether what is asked for can be done together.
fn check(bench: &Bench) -> anyhow::Result<()> {
    if bench.workload == Workload::Phases && bench.jobs.is_none() {
        bail!("the workload phases needs --jobs");
    }
    if !(bench.duration > 0.0 && bench.duration.is_finite()) {
        bail!("--duration must be more than 0 seconds, not {}", bench.duration);
    }
    if bench.workload == Workload::Mixed && bench.driver != Kind::Haul {
        bail!("the workload mixed is for the driver haul only");
    }
    let has_tenants = bench.driver.speech() == Speech::Resp && bench.driver != Kind::SyncedPing;
    if !bench.tenants.is_empty() && !has_tenants {
        bail!("--tenants is for the drivers of the Redis protocol that ask Haul");
    }
    if bench.workload == Workload::Delivery {
        if !matches!(bench.driver, Kind::Haul | Kind::Http | Kind::Beanstalk | Kind::Append) {
            bail!(
                "the workload delivery is for the drivers haul, http, beanstalk and append: others have no pop that waits"
            );
        }
        if bench.connections < 2 || bench.queues > 1 {
            bail!("the workload delivery needs at least 2 connections and one queue");
        }
        if !(bench.rate > 0.0 && bench.rate.is_finite()) {
            bail!("--rate must be more than 0, not {}", bench.rate);
        }
        if bench.payload < driver::STAMPED_BYTES_MIN {
            bail!("the workload delivery needs --payload {} at least", driver::STAMPED_BYTES_MIN);
        }
    }
    Ok(())
}

async fn measure(bench: &Bench, token: Option<&str>) -> anyhow::Result<Report> {
    check(bench)?;
    let script = script(bench)?;
    if bench.driver == Kind::Append {
        let shape = Shape { kind: Kind::Append, batch: bench.batch as usize, payload_bytes: bench.payload };
        let desk = Driver::new(shape, "", None).desk("bench-0", 0);
        let pace = if bench.workload == Workload::Delivery { 1.0 / bench.rate } else { 0.0 };
        let (worked, spent) = append::run(&bench.folder, desk, bench.duration, pace)?;
        return Ok(Report {
            setting: report::Setting::of(bench),
            phases: vec![Phase::new("append", worked, spent)],
        });
    }
    if bench.driver == Kind::SyncedPing {
        return measure_synced(bench).await;
    }
    let mut server = server::Server::connect(&bench.address, bench.driver.speech(), token).await?;
    let sha = match &script {
        Some(text) => server.load_script(text).await?,
        None => String::new(),
    };
    let shape = Shape { kind: bench.driver, batch: bench.batch as usize, payload_bytes: bench.payload };
    let driver = Driver::new(shape, &sha, script.as_deref()).with_token(token);
    if bench.backlog > 0 {
        fill(bench, &driver, token).await?;
    }
    let mut seats = seats(bench, &driver, &bench.address, bench.pipeline as usize).await?;
    let goal = goal(bench);
    let mut phases = Vec::new();
    for stage in stages(bench) {
        let before = server.usage().await?;
        let (worked, back) = load::run(seats, stage, goal).await?;
        seats = back;
        let spent = server.spent_since(&before).await?;
        phases.push(Phase::new(stage.name(), worked, spent));
    }
    Ok(Report { setting: report::Setting::of(bench), phases })
}

fn goal(bench: &Bench) -> Goal {
    match bench.jobs {
        Some(jobs) => Goal::Jobs(jobs),
        None => Goal::Seconds(bench.duration),
    }
}

/// The server is a thread of this process.
async fn measure_synced(bench: &Bench) -> anyhow::Result<Report> {
    let server = synced::start(&bench.folder, bench.payload)?;
    let shape = Shape { kind: Kind::SyncedPing, batch: 1, payload_bytes: bench.payload };
    let driver = Driver::new(shape, "", None);
    let seats = seats(bench, &driver, &server.address, bench.pipeline as usize).await?;
    let before = server.spent();
    let (worked, _) = load::run(seats, Stage::Ping, goal(bench)).await?;
    let spent = server.spent().since(&before);
    Ok(Report { setting: report::Setting::of(bench), phases: vec![Phase::new("ping", worked, spent)] })
}

fn stages(bench: &Bench) -> Vec<Stage> {
    match (bench.driver, bench.workload) {
        (Kind::Ping, _) => vec![Stage::Ping],
        (_, Workload::Put) => vec![Stage::Put],
        (_, Workload::Lifecycle) => vec![Stage::Cycle],
        (_, Workload::Phases) => vec![Stage::Put, Stage::Pop, Stage::Complete],
        (_, Workload::Delivery) => vec![Stage::Deliver],
        (_, Workload::Mixed) => vec![Stage::Mixed],
    }
}

/// The script's text as it is to be loaded.
fn script(bench: &Bench) -> anyhow::Result<Option<String>> {
    match (&bench.script, bench.driver) {
        (Some(path), Kind::Qless) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("the script {} could not be read", path.display()))?;
            Ok(Some(if bench.rename_extend { rename_extend(&text) } else { text }))
        }
        (None, Kind::Qless) => bail!("the driver qless needs the Lua text: --script FILE"),
        _ => Ok(None),
    }
}

/// Redis 7 lets a script change neither `table` nor the globals.
fn rename_extend(text: &str) -> String {
    text.replace("function table.extend", "local function table_extend")
        .replace("table.extend", "table_extend")
}

async fn seats(bench: &Bench, driver: &Driver, address: &str, pipeline: usize) -> anyhow::Result<Vec<Seat>> {
    let mut seats = Vec::new();
    for number in 0..bench.connections {
        let queue = format!("bench-{}", number % bench.queues);
        let mut desk = driver.desk(&queue, number);
        desk.tenant = bench.tenants.get(number as usize % bench.tenants.len().max(1)).cloned();
        let address = if desk.speech() == Speech::Http { &bench.http } else { address };
        let seat = Seat::connect(address, desk, pipeline).await?;
        let producers = bench.connections / 2;
        let is_producer = bench.workload == Workload::Delivery && number < producers;
        // In turn, not all at once.
        let (first, pace) = (number as f64 / bench.rate, producers as f64 / bench.rate);
        seats.push(if is_producer { seat.paced(first, pace) } else { seat });
    }
    Ok(seats)
}

/// Puts the backlog in, the fastest way the server has.
async fn fill(bench: &Bench, driver: &Driver, token: Option<&str>) -> anyhow::Result<()> {
    let (driver, pipeline) = match bench.driver {
        Kind::Haul | Kind::HaulBulk | Kind::Http | Kind::HttpBulk => {
            let shape = Shape { kind: Kind::HaulBulk, batch: FILL_BATCH, payload_bytes: bench.payload };
            (Driver::new(shape, "", None).with_token(token), 1)
        }
        _ => (driver.clone(), 64),
    };
    let seats = seats(bench, &driver, &bench.address, pipeline).await?;
    load::run(seats, Stage::Put, Goal::Jobs(bench.backlog)).await?;
    Ok(())
}
