//! `haul doctor`: is a data folder sound; is a store fit, how fast is it, and is what is in it sound?

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use haul_store::{DiskOptions, DiskStore, Fault, ObjectOptions, ObjectReader, Place, Space, Store};
use serde_json::{Value, json};

use super::output::{Output, complain};
use super::reach::Reach;
use crate::clock;
use crate::cluster::{Meta, Register};
use crate::doctor::{self, Exam};

/// Small objects written and read to see how long that takes.
const TRIALS: usize = 10;
/// A store whose writes take longer makes every answer as late.
const SLOW_MS: f64 = 250.0;

/// Check a data folder, and repair it if asked; or check a store that nodes share
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul doctor --data /var/lib/haul
  haul doctor --data /var/lib/haul --repair
  haul doctor --store s3://bucket/prefix
  haul doctor --store s3://bucket/prefix --records

The server must not be running on a folder. A store is checked while nodes use it: credentials, the bucket, whether it
refuses to create what exists (conditional put), how long small requests take, and what data set is there; with --records
also every record of every shard, as with a folder.

Exit codes: 0 healthy, 1 something is wrong, 2 the folder or the store cannot be used.")]
pub(super) struct Doctor {
    /// The data folder
    #[arg(long, env = "HAUL_DATA", value_name = "DIR", default_value = "haul-data")]
    data: PathBuf,
    /// Remove records that cannot be read and bodies that belong to no job
    #[arg(long, conflicts_with = "store")]
    repair: bool,
    /// Check this store instead
    #[arg(long, env = "HAUL_STORE", value_name = "URL")]
    store: Option<String>,
    /// Read every record of every shard too
    #[arg(long, requires = "store")]
    records: bool,
    #[command(flatten)]
    reach: Reach,
}

/// What the doctor says in the end.
struct Verdict {
    lines: Vec<String>,
    document: Value,
    is_healthy: bool,
}

pub(super) fn run(args: &Doctor, json: bool) -> ExitCode {
    let verdict = match &args.store {
        None => examine(args).map_err(anyhow::Error::from),
        Some(url) => examine_store(args, url),
    };
    match verdict {
        Ok(verdict) => {
            // The exit code carries the verdict, whoever still reads.
            drop(Output { json }.say(&verdict.document, &verdict.lines.join("\n")));
            ExitCode::from(u8::from(!verdict.is_healthy))
        }
        Err(error) => {
            complain(&format!("haul doctor: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn examine(args: &Doctor) -> Result<Verdict, Fault> {
    let mut options = DiskOptions::new(&args.data);
    options.read_only = !args.repair;
    let mut store: Box<dyn Store> = Box::new(DiskStore::open(options)?);
    let report = doctor::examine(&mut *store)?;
    let removed = if args.repair { Some(doctor::repair(&mut *store, &report)?) } else { None };
    store.close()?;
    let (mut lines, is_healthy) = (report.lines(), report.is_healthy());
    let words = match (is_healthy, removed) {
        (true, _) => "healthy".to_owned(),
        (false, None) => {
            format!("{} things are wrong; --repair removes what cannot be read", lines.len())
        }
        (false, Some(removed)) => {
            format!("{removed} records removed; run doctor again to see what is left")
        }
    };
    let document = json!({
        "healthy": is_healthy, "wrong": lines, "jobs": report.jobs, "bodies": report.bodies, "removed": removed,
    });
    lines.extend([format!("{} jobs, {} bodies looked at", report.jobs, report.bodies), words]);
    Ok(Verdict { lines, document, is_healthy })
}

/// From the outside in: what does not hold makes the rest pointless.
fn examine_store(args: &Doctor, url: &str) -> anyhow::Result<Verdict> {
    let (runtime, place) = args.reach.open(url)?;
    let mut lines = vec![
        format!("{url} can be reached, read, written and listed"),
        "it refuses to create what exists: two nodes cannot own one shard".to_owned(),
    ];
    let times = runtime.block_on(Times::measure(&place))?;
    lines.extend(times.lines());
    let meta = runtime.block_on(Meta::read(&place))?;
    let (mut wrong, is_partial) = (Vec::new(), runtime.block_on(Meta::is_partial(&place))?);
    if is_partial {
        wrong.push(
            "the data set is a copy that is not whole: run the same `haul copy` again, which goes on where it was"
                .to_owned(),
        );
    }
    let nodes = runtime.block_on(Register::default().look(&place, ""))?.len();
    match &meta {
        None => lines.push("there is no data set yet: `haul serve --store` makes one".to_owned()),
        Some(meta) => {
            lines.push(format!("a data set of {} shards; {nodes} nodes are announced", meta.shards))
        }
    }
    let mut document = json!({
        "store": url, "put_ms": times.put_ms, "get_ms": times.get_ms, "list_ms": times.list_ms,
        "shards": meta.as_ref().map(|meta| meta.shards), "nodes": nodes,
    });
    if let Some(meta) = meta.filter(|_| args.records && !is_partial) {
        let (mut jobs, mut bodies) = (0, 0);
        for shard in 0..meta.shards {
            let report = examine_shard(&runtime, &place, shard)
                .with_context(|| format!("shard {shard} could not be read"))?;
            (jobs, bodies) = (jobs + report.jobs, bodies + report.bodies);
            wrong.extend(report.lines().into_iter().map(|line| format!("shard {shard}: {line}")));
        }
        lines.push(format!("{jobs} jobs, {bodies} bodies looked at"));
        if let Value::Object(document) = &mut document {
            document.extend([("jobs".to_owned(), json!(jobs)), ("bodies".to_owned(), json!(bodies))]);
        }
    }
    let is_healthy = wrong.is_empty();
    if let Value::Object(document) = &mut document {
        document.extend([("healthy".to_owned(), json!(is_healthy)), ("wrong".to_owned(), json!(wrong))]);
    }
    let verdict = if is_healthy { "healthy".to_owned() } else { format!("{} things are wrong", wrong.len()) };
    lines.extend(wrong);
    lines.push(verdict);
    Ok(Verdict { lines, document, is_healthy })
}

/// As of one moment, while its node goes on.
fn examine_shard(
    runtime: &tokio::runtime::Runtime,
    place: &Arc<Place>,
    shard: u32,
) -> Result<doctor::Report, Fault> {
    let options = ObjectOptions::new(place.clone(), Meta::folder(shard), runtime.handle().clone());
    let mut exam = Exam::default();
    if let Some(reader) = ObjectReader::open_existing(&options)? {
        reader.copy(&mut |space, key, value| {
            match space {
                Space::Header => exam.header(key, value),
                Space::Body => exam.body(key),
            }
            Ok(())
        })?;
        reader.close()?;
    }
    Ok(exam.finish())
}

/// What small requests take, in milliseconds: the median and the most.
struct Times {
    put_ms: (f64, f64),
    get_ms: (f64, f64),
    list_ms: (f64, f64),
}

impl Times {
    async fn measure(place: &Place) -> anyhow::Result<Times> {
        let id: String = clock::random_id().iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("probe/{id}");
        let (mut puts, mut gets, mut lists) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TRIALS {
            let began = clock::instant();
            place.write(&name, "probe".into()).await?;
            puts.push(began.elapsed());
            let began = clock::instant();
            place
                .read(&name)
                .await?
                .context("what was just written is not there: the store is not consistent")?;
            gets.push(began.elapsed());
            let began = clock::instant();
            place.list("nodes").await?;
            lists.push(began.elapsed());
        }
        place.remove(&name).await?;
        let told = |mut times: Vec<std::time::Duration>| {
            times.sort_unstable();
            let ms = |at: usize| times.get(at).map_or(0.0, |time| (time.as_secs_f64() * 1e4).round() / 10.0);
            (ms(TRIALS / 2), ms(TRIALS - 1))
        };
        Ok(Times { put_ms: told(puts), get_ms: told(gets), list_ms: told(lists) })
    }

    fn lines(&self) -> Vec<String> {
        let told = |what: &str, (median, most): (f64, f64)| format!("{what} {median} ms (at most {most})");
        let times =
            [told("a put takes", self.put_ms), told("a get", self.get_ms), told("a list", self.list_ms)];
        let mut lines = vec![times.join(", ")];
        if self.put_ms.0 > SLOW_MS {
            lines.push(format!(
                "that is slow: every answer takes at least {} ms; is the store in another region?",
                self.put_ms.0
            ));
        }
        lines
    }
}
