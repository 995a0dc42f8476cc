//! What is on disk of running jobs: a state folder with one folder for each, so that the next worker can tell what became
//! of it.
//!
//! ```text
//! STATE/adopt.lock                 held while leftovers are looked through
//! STATE/jobs/JID.ATTEMPT.PID/      job.json      whose job, and its guardian
//!                                  task.json     the leader of the task's session
//!                                  data          the job's data, also on standard input
//!                                  work/         the private folder, the task's working directory
//!                                  stderr        the log, at most half of what is kept
//!                                  stderr.old    the half before it
//!                                  outcome.json  how it ended, until the server has it
//! ```
//!
//! `job.json` and `outcome.json` are written beside and renamed: they are there whole or not at all. `task.json` is a file of
//! its own because replacing a file by renaming makes some file systems write it out at once, which every job would pay for.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::process::Identity;

/// Entries of a private folder that are counted, at most.
const ENTRIES_MAX: usize = 100_000;
/// Characters of a jid in a folder's name.
const JID_CHARS_MAX: usize = 64;

/// Whose job it is and which processes run it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub jid: String,
    pub attempt: u64,
    pub worker: String,
    pub queue: String,
    pub boot_id: String,
    pub guardian: Identity,
    /// The leader of the task's session; none before it was started. Kept in `task.json`.
    #[serde(skip)]
    pub task: Option<Identity>,
    /// In the environment of every process of the task.
    pub mark: String,
    /// When the lock ends, in seconds since 1970.
    pub lock_ends: Option<f64>,
}

/// The folder of one running job.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// The folder of all of them.
#[derive(Clone, Debug)]
pub struct State {
    path: PathBuf,
}

impl State {
    pub fn open(path: &Path) -> io::Result<Self> {
        private_dir().recursive(true).create(path.join("jobs"))?;
        Ok(State { path: fs::canonicalize(path)? })
    }

    /// Makes the folder of a job that is about to run.
    pub fn create(&self, record: &Record) -> io::Result<Folder> {
        let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
        let jid: String = record.jid.chars().take(JID_CHARS_MAX).map(plain).collect();
        let name = format!("{jid}.{}.{}", record.attempt, record.guardian.pid);
        let folder = Folder { path: self.path.join("jobs").join(name) };
        private_dir().create(&folder.path)?;
        folder.record(record)?;
        private_dir().create(folder.work())?;
        Ok(folder)
    }

    /// Every job's folder there is.
    pub fn folders(&self) -> Vec<Folder> {
        let entries = fs::read_dir(self.path.join("jobs")).into_iter().flatten().flatten();
        entries.map(|entry| Folder { path: entry.path() }).collect()
    }

    /// Only one worker looks through leftovers at a time; none: another does.
    pub fn lock(&self) -> Option<File> {
        let file =
            OpenOptions::new().create(true).append(true).mode(0o600).open(self.path.join("adopt.lock"));
        file.ok().filter(|file| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok())
    }
}

fn private_dir() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

impl Folder {
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub fn log(&self) -> PathBuf {
        self.path.join("stderr")
    }

    fn record(&self, record: &Record) -> io::Result<()> {
        write_whole(&self.path.join("job.json"), record, false)
    }

    pub fn record_task(&self, task: Identity) -> io::Result<()> {
        fs::write(self.path.join("task.json"), serde_json::to_vec(&task)?)
    }

    pub fn read_record(&self) -> Option<Record> {
        let record: Record = read(&self.path.join("job.json"))?;
        Some(Record { task: read(&self.path.join("task.json")), ..record })
    }

    /// `sync`: it must outlive the machine's going down, not only ours.
    pub fn keep_outcome(&self, outcome: &Outcome, sync: bool) -> io::Result<()> {
        write_whole(&self.path.join("outcome.json"), outcome, sync)
    }

    pub fn read_outcome(&self) -> Option<Outcome> {
        read(&self.path.join("outcome.json"))
    }

    /// Bytes of the private folder; counting stops where it is more than `most`.
    pub fn work_bytes(&self, most: u64) -> u64 {
        let (mut bytes, mut entries, mut folders) = (0, 0, vec![self.work()]);
        while let Some(folder) = folders.pop().filter(|_| bytes <= most && entries < ENTRIES_MAX) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                entries += 1;
                let Ok(found) = entry.metadata() else { continue };
                if found.is_dir() {
                    folders.push(entry.path());
                }
                bytes += std::os::unix::fs::MetadataExt::blocks(&found) * 512;
            }
        }
        bytes
    }

    pub fn remove(&self) {
        drop(fs::remove_dir_all(&self.path));
    }
}

fn write_whole(path: &Path, value: &impl Serialize, sync: bool) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    if sync {
        file.sync_all()?;
    }
    fs::rename(&beside, path)?;
    if sync && let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
