//! `haul copy`, `haul backup`, `haul restore`: whole data sets.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use haul_store::{Access, ObjectOptions, Place};

use super::output::{Output, complain};
use super::serverless::Address;
use super::session::Global;
use crate::clock;
use crate::cluster::Meta;
use crate::copy::{Copied, Source, Stage, Target, check, copy};

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// For the server to begin to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a bucket is reached.
#[derive(clap::Args, Clone)]
struct Reach {
    /// Where the store's service is, if not at its usual address, such as http://127.0.0.1:9000
    #[arg(long, env = "HAUL_STORE_ENDPOINT", value_name = "URL")]
    store_endpoint: Option<String>,
    /// Let that address be without TLS
    #[arg(long, env = "HAUL_STORE_ALLOW_HTTP")]
    store_allow_http: bool,
}

impl Reach {
    fn access(&self) -> Access {
        Access {
            endpoint: self.store_endpoint.clone(),
            allow_http: self.store_allow_http,
            ..Access::default()
        }
    }
}

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
  haul backup all.backup --http 10.0.0.5:4285
  haul backup all.backup --store s3://bucket/prefix

The server goes on; the copy is as of one moment. With --store the nodes are not asked: the bucket is read, each shard
as of one moment. Over TLS: curl -H \"Authorization: Bearer $HAUL_TOKEN\" -o FILE https://HOST/api/v1/backup")]
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
        let token = global.secret().map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
        let bytes = download(&self.address.http, token.as_deref(), &partial)?;
        let records = check(BufReader::new(File::open(&partial)?))
            .context("what the server sent is not whole; try again")?;
        std::fs::rename(&partial, &self.file)?;
        Ok(Copied { records, bytes, ..Copied::default() })
    }
}

/// HTTP/1.0: what follows the head is the file, to the end.
fn download(address: &str, token: Option<&str>, to: &Path) -> anyhow::Result<u64> {
    let stream = TcpStream::connect(address)
        .with_context(|| format!("no server answers at {address}; name its HTTP address with --http"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let bearer = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    write!(&stream, "GET /api/v1/backup HTTP/1.0\r\nHost: {address}\r\n{bearer}\r\n")?;
    let mut answer = BufReader::new(stream);
    let mut status = String::new();
    answer.read_line(&mut status)?;
    loop {
        let mut line = String::new();
        if answer.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
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
    let mut file = File::create(to).with_context(|| format!("{} cannot be written", to.display()))?;
    let bytes = std::io::copy(&mut answer, &mut file)?;
    file.sync_all()?;
    Ok(bytes)
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
        let place = Place::new(url, &self.access)?;
        let name: String = clock::random_id().iter().map(|byte| format!("{byte:02x}")).collect();
        self.runtime.block_on(place.probe(&format!("probe/{name}")))?;
        Ok(Arc::new(place))
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

/// Tells how far it is, on a terminal.
fn teller() -> impl FnMut(Stage, &Copied) {
    let began = clock::instant();
    let mut told = began;
    let shown = std::io::stderr().is_terminal();
    move |stage, copied| {
        let now = clock::instant();
        if !shown || now.duration_since(told) < TELL_EVERY {
            return;
        }
        told = now;
        let word = match stage {
            Stage::Looking => "looking at what is there",
            Stage::Copying => "copying",
            Stage::Verifying => "verifying",
        };
        let megabytes = copied.bytes >> 20;
        let seconds = now.duration_since(began).as_secs_f64();
        let line = format!("\r{word}: {} records, {megabytes} MB, {seconds:.0}s\x1b[K", copied.records);
        let mut out = std::io::stderr().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

fn ended(what: &str, global: &Global, run: impl FnOnce() -> anyhow::Result<Copied>) -> ExitCode {
    match run() {
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
