//! `haul copy`, `haul backup`, `haul restore`: whole data sets.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use haul_store::{Access, ObjectOptions, Place};

use super::failure::Failure;
use super::output::{Output, complain};
use super::reach::Reach;
use super::serverless::{Address, Talk};
use super::session::Global;
use crate::clock;
use crate::cluster::Meta;
use crate::copy::{Copied, Extent, Progress, Reader, Source, Stage, Target, copy};

/// How often progress is told on a terminal.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// And elsewhere, a line each.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Letters of the bar.
const BAR: usize = 24;
/// For the server to begin to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Copy a whole data set to another place: a folder, a bucket, a shared folder
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul copy --from /var/lib/haul --to s3://bucket/prefix
  haul copy --from s3://bucket/prefix --to /var/lib/haul
  haul copy --from s3://bucket/old --to s3://bucket/new --shards 64

The server must not be running on a folder that is copied from; nodes may go on serving a bucket, and what they
do after the copy began is not in it. What was copied is read again and compared. A copy that was cut off goes on
where it was when the same command is run again; until it is whole, no server serves it.")]
pub(super) struct Copy {
    /// A data folder, or s3://, gs://, az://, file:///
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Where to; nothing may be there yet
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// How many shards a bucket copied to has [default: as many as the source, or 8 from a folder]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: Option<u32>,
    #[command(flatten)]
    reach: Reach,
}

/// Write a consistent copy of a running server's data to a file
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul backup haul-2026-11-16.backup
  haul backup all.backup --http https://queue.example:4285
  haul backup all.backup --store s3://bucket/prefix

The server goes on; the copy is as of one moment. With --store the nodes are not asked: the bucket is read, each shard
as of one moment.")]
pub(super) struct Backup {
    /// The file; none may be there yet
    file: PathBuf,
    /// Read this store instead of asking a server
    #[arg(long, env = "HAUL_STORE", value_name = "URL")]
    store: Option<String>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    address: Address,
}

/// Make a data set from a backup
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul restore haul-2026-11-16.backup --to /var/lib/haul
  haul restore all.backup --to s3://bucket/prefix")]
pub(super) struct Restore {
    /// A file that `haul backup` wrote
    file: PathBuf,
    /// A folder, or s3://, gs://, az://, file:///; nothing may be there yet
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// How many shards a bucket has [default: as many as the backup, or 8 from a folder's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: Option<u32>,
    #[command(flatten)]
    reach: Reach,
}

impl Copy {
    pub(super) fn run(self, global: &Global) -> ExitCode {
        ended("copy", global, || {
            let machine = Machine::new(self.reach.access())?;
            machine.transfer(machine.source(&self.from)?, &self.to, self.shards)
        })
    }
}

impl Restore {
    pub(super) fn run(self, global: &Global) -> ExitCode {
        ended("restore", global, || {
            let machine = Machine::new(self.reach.access())?;
            machine.transfer(Source::file(self.file.clone())?, &self.to, self.shards)
        })
    }
}

impl Backup {
    pub(super) fn run(self, global: &Global) -> ExitCode {
        ended("backup", global, || match &self.store {
            None => self.fetch(global),
            Some(url) => {
                let machine = Machine::new(self.reach.access())?;
                let mut source = machine.source(url)?;
                let mut target = Target::file(self.file.clone(), source.shards())?;
                let copied = copy(&mut source, &mut target, &mut teller())?;
                target.finish()?;
                Ok(copied)
            }
        })
    }

    /// Takes what the server sends, and makes sure that it is whole.
    fn fetch(&self, global: &Global) -> anyhow::Result<Copied> {
        ensure!(!self.file.exists(), "{} exists already; name a new file", self.file.display());
        let mut partial = self.file.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let progress = &mut teller();
        let (answer, extent) = self.ask(global)?;
        let file =
            File::create(&partial).with_context(|| format!("{} cannot be written", partial.display()))?;
        let mut kept = Kept { from: answer, to: BufWriter::new(file) };
        let not_whole = "what the server sent is not whole; try again";
        let sent = read(&mut kept, Stage::Copying, extent, progress).context(not_whole)?;
        kept.to.flush()?;
        kept.to.get_ref().sync_all()?;
        let written = BufReader::new(File::open(&partial)?);
        let copied = read(written, Stage::Verifying, Extent::Records(sent.records), progress)?;
        ensure!(copied == sent, "{} is not what the server sent; is the disk sound?", partial.display());
        std::fs::rename(&partial, &self.file)?;
        Ok(copied)
    }

    /// The file as it comes, and how much will. HTTP/1.0: what follows the head is the file, to the end.
    fn ask(&self, global: &Global) -> anyhow::Result<(BufReader<Box<dyn Talk>>, Extent)> {
        let told = |failure: Failure| match failure.told(&global.server) {
            Some(told) => anyhow::anyhow!(told.text(false)),
            None => anyhow::anyhow!("it was cut off"),
        };
        let mut stream = self.address.connect(global, PATIENCE).map_err(told)?;
        let token = global.secret().map_err(told)?;
        let bearer = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let (address, _) = self.address.parts();
        let head = format!("GET /api/v1/backup HTTP/1.0\r\nHost: {address}\r\n{bearer}\r\n");
        let no_answer = || {
            format!("the server at {address} does not answer; does it speak TLS, or should it not? See --tls")
        };
        stream.write_all(head.as_bytes()).and_then(|()| stream.flush()).with_context(no_answer)?;
        let mut answer = BufReader::new(stream);
        let mut status = String::new();
        answer.read_line(&mut status).with_context(no_answer)?;
        let mut records = 0;
        loop {
            let mut line = String::new();
            if answer.read_line(&mut line)? == 0 || line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("x-haul-records")
            {
                records = value.trim().parse().unwrap_or(0);
            }
        }
        if status.split(' ').nth(1) != Some("200") {
            let mut problem = String::new();
            answer.take(4096).read_to_string(&mut problem)?;
            let document: serde_json::Value = serde_json::from_str(&problem).unwrap_or_default();
            let told =
                document.pointer("/error/message").and_then(|text| text.as_str()).unwrap_or(problem.trim());
            bail!("the server said no: {told}");
        }
        Ok((answer, Extent::Records(records)))
    }
}

/// What is read is written too.
struct Kept<R, W> {
    from: R,
    to: W,
}

impl<R: Read, W: Write> Read for Kept<R, W> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let length = self.from.read(into)?;
        self.to.write_all(into.get(..length).unwrap_or_default())?;
        Ok(length)
    }
}

/// Reads a backup to its end.
fn read(input: impl Read, stage: Stage, extent: Extent, progress: Progress<'_>) -> anyhow::Result<Copied> {
    let mut copied = Copied::default();
    Reader::new(input)?.each(&mut |record| {
        copied.add(&record);
        progress(stage, &copied, extent.part(&copied, record.shard));
        Ok(())
    })?;
    Ok(copied)
}

/// What reaches buckets.
struct Machine {
    runtime: tokio::runtime::Runtime,
    access: Access,
}

impl Machine {
    fn new(access: Access) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        Ok(Machine { runtime, access })
    }

    fn place(&self, url: &str) -> anyhow::Result<Arc<Place>> {
        Ok(Arc::new(self.runtime.block_on(crate::serve::open_place(url, &self.access))?))
    }

    fn options(&self, place: &Arc<Place>) -> ObjectOptions {
        ObjectOptions::new(place.clone(), "", self.runtime.handle().clone())
    }

    fn source(&self, at: &str) -> anyhow::Result<Source> {
        if !at.contains("://") {
            return Source::folder(at.into());
        }
        let place = self.place(at)?;
        let meta = self.runtime.block_on(Meta::read(&place))?;
        let meta = meta.with_context(|| format!("there is no data set in {at}"))?;
        Ok(Source::bucket(&place, &meta, self.options(&place)))
    }

    fn transfer(&self, mut source: Source, to: &str, shards: Option<u32>) -> anyhow::Result<Copied> {
        let mut target = if to.contains("://") {
            let place = self.place(to)?;
            let shards = shards.or(Some(source.shards()).filter(|count| *count > 1));
            let meta = self.runtime.block_on(Meta::begin_copy(&place, shards))?;
            let options = self.options(&place);
            Target::bucket(place, &meta, &options)?
        } else {
            ensure!(shards.is_none_or(|count| count == 1), "a folder has one shard");
            Target::folder(to.into())?
        };
        let copied = copy(&mut source, &mut target, &mut teller())?;
        if let Some(place) = target.finish()? {
            self.runtime.block_on(Meta::end_copy(&place))?;
        }
        Ok(copied)
    }
}

/// Tells how far it is: on a terminal in one line that changes, elsewhere in a line now and then and when a stage begins.
fn teller() -> impl FnMut(Stage, &Copied, Option<f64>) {
    let mut stage_now = None;
    let (mut began, mut told) = (clock::instant(), clock::instant());
    let is_terminal = std::io::stderr().is_terminal();
    let every = if is_terminal { TELL_EVERY } else { LINE_EVERY };
    move |stage, copied, part| {
        let now = clock::instant();
        let is_new = stage_now.replace(stage) != Some(stage);
        if is_new {
            began = now;
        }
        if is_new || now.duration_since(told) >= every {
            told = now;
            let line = line(stage, copied, part, now.duration_since(began).as_secs_f64());
            let line = if is_terminal { format!("\r{line}\x1b[K") } else { line + "\n" };
            let mut out = std::io::stderr().lock();
            let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        }
    }
}

/// How far it is after so many seconds of a stage.
fn line(stage: Stage, copied: &Copied, part: Option<f64>, seconds: f64) -> String {
    let word = match stage {
        Stage::Looking => "looking at what is there",
        Stage::Copying => "copying",
        Stage::Verifying => "verifying",
    };
    let bar = part.map_or_else(String::new, |part| {
        let full = (part * BAR as f64) as usize;
        format!(" [{}{}] {:.0}%", "#".repeat(full), ".".repeat(BAR.saturating_sub(full)), part * 100.0)
    });
    let rate = if seconds < 1.0 {
        String::new()
    } else {
        format!(", {:.1} MB/s", copied.bytes as f64 / seconds / 1e6)
    };
    format!("{word}{bar} {} records, {} MB{rate}", copied.records, copied.bytes / 1_000_000)
}

fn ended(what: &str, global: &Global, run: impl FnOnce() -> anyhow::Result<Copied>) -> ExitCode {
    let outcome = run();
    if std::io::stderr().is_terminal() {
        // The line that tells how far it is has had its time.
        let _ = std::io::stderr().write_all(b"\r\x1b[K");
    }
    match outcome {
        Ok(copied) => {
            let value = serde_json::json!({
                "records": copied.records, "bytes": copied.bytes, "kept": copied.kept,
            });
            let kept = match copied.kept {
                0 => String::new(),
                kept => format!(", {kept} of them there already"),
            };
            let text = format!("{} records, {} bytes{kept}: all verified", copied.records, copied.bytes);
            drop(Output { json: global.json }.say(&value, &text));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&format!("haul {what}: {error:#}"));
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_bar_a_percentage_and_a_rate_where_they_are_known() {
        let copied = Copied { records: 1200, bytes: 50_000_000, ..Copied::default() };
        assert_eq!(
            line(Stage::Copying, &copied, Some(0.5), 4.0),
            "copying [############............] 50% 1200 records, 50 MB, 12.5 MB/s"
        );
        assert_eq!(line(Stage::Looking, &copied, None, 0.2), "looking at what is there 1200 records, 50 MB");
        assert!(line(Stage::Verifying, &copied, Some(0.0), 0.0).starts_with("verifying [...."));
    }
}
