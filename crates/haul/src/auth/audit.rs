//! The audit log: `audit.log` in the data folder, one JSON line for each thing an operator did or tried. Written by a
//! thread of its own; a full log becomes `audit.log.1` and so on, the oldest goes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use haul_engine::{Name, Reply};
use serde_json::{Map, Value, json};

use super::action::{Action, Part};
use super::{Access, Token, give_to_owner, tenant_text};
use crate::clock;
use crate::net::Remote;
use crate::shard::Outcome;

const FILE_NAME: &str = "audit.log";
/// Bytes of one file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files kept, the one being written included.
const FILES_MAX: usize = 8;
/// Entries waiting to be written.
const QUEUED_MAX: usize = 10_000;

/// One thing done, or tried.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: f64,
    /// The token's name; none: there is no authentication.
    pub(crate) token: Option<String>,
    pub(crate) peer: String,
    /// Through what: `redis`, `http`, `cli`, or `store` (another machine did it there).
    pub(crate) via: &'static str,
    pub(crate) tenant: Name,
    pub(crate) action: Action,
    /// `done`, or the code of the refusal.
    pub(crate) outcome: &'static str,
}

impl Entry {
    pub(crate) fn new(
        access: &Access,
        remote: &Remote,
        via: &'static str,
        tenant: &Name,
        action: Action,
    ) -> Self {
        Entry {
            at: clock::now(),
            token: access.token().map(str::to_owned),
            peer: remote.address.to_string(),
            via,
            tenant: tenant.clone(),
            action,
            outcome: "done",
        }
    }

    fn line(&self) -> Vec<u8> {
        let mut line = Map::new();
        line.insert("at".to_owned(), json!(self.at));
        line.insert("token".to_owned(), json!(self.token));
        line.insert("peer".to_owned(), json!(self.peer));
        line.insert("via".to_owned(), json!(self.via));
        line.insert("tenant".to_owned(), json!(tenant_text(&self.tenant)));
        self.action.write(&mut line);
        line.insert("outcome".to_owned(), json!(self.outcome));
        let mut line = Value::Object(line).to_string().into_bytes();
        line.push(b'\n');
        line
    }
}

/// A token came or went.
pub(crate) fn of_token(what: &'static str, token: &Token, via: &'static str, peer: Option<String>) -> Entry {
    let name = |text: String| Part::Name(Name::from(text));
    let parts = vec![
        ("name", name(token.name.clone())),
        ("role", name(token.role.to_string())),
        ("scope", name(token.tenant.to_string())),
    ];
    Entry {
        at: clock::now(),
        token: None,
        peer: peer.unwrap_or_default(),
        via,
        // Whose tokens there are is no tenant's business.
        tenant: Name::new(b"*"),
        action: Action { what, parts },
        outcome: "done",
    }
}

/// How the shard's answer is written down.
pub(crate) fn outcome(outcome: Option<&Outcome>) -> &'static str {
    match outcome {
        None => "STOPPING",
        Some(Outcome::Fault(_)) => "FAULT",
        Some(Outcome::Done { reply: Err(refusal), .. }) => refusal.code(),
        Some(Outcome::Done { reply: Ok(Reply::Stopped(Some(refusal))), .. }) => refusal.code(),
        Some(Outcome::Done { .. }) => "done",
    }
}

enum Message {
    Note(Box<Entry>),
    Stop,
}

/// Where entries are handed in. Never waits.
pub(crate) struct Audit {
    queue: Option<SyncSender<Message>>,
    lost: AtomicU64,
}

impl Audit {
    /// Writes into this folder.
    pub(crate) fn start(folder: &Path) -> io::Result<(Audit, JoinHandle<()>)> {
        // With a shared store nothing else makes it.
        fs::create_dir_all(folder)?;
        let (queue, entries) = sync_channel(QUEUED_MAX);
        let mut log = Log { folder: folder.to_owned(), file: None, bytes: 0, bytes_max: FILE_BYTES_MAX };
        let thread =
            std::thread::Builder::new().name("haul-audit".to_owned()).spawn(move || log.follow(&entries))?;
        Ok((Audit { queue: Some(queue), lost: AtomicU64::new(0) }, thread))
    }

    /// Forgets what it is told.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn none() -> Audit {
        Audit { queue: None, lost: AtomicU64::new(0) }
    }

    pub(crate) fn note(&self, entry: Entry) {
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(_)) = queue.try_send(Message::Note(Box::new(entry)))
            && self.lost.fetch_add(1, Ordering::Relaxed).is_multiple_of(QUEUED_MAX as u64)
        {
            tracing::error!("the audit log cannot be written as fast as operators act: entries are lost");
        }
    }

    /// What has been handed in is written, then the thread ends.
    pub(crate) fn stop(&self) {
        if let Some(queue) = &self.queue {
            let _ = queue.send(Message::Stop);
        }
    }
}

/// The files.
struct Log {
    folder: PathBuf,
    file: Option<File>,
    bytes: u64,
    bytes_max: u64,
}

impl Log {
    fn follow(&mut self, entries: &Receiver<Message>) {
        let mut is_failing = false;
        while let Ok(Message::Note(entry)) = entries.recv() {
            match self.append(&entry.line()) {
                Ok(()) => is_failing = false,
                Err(error) => {
                    self.file = None;
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::error!(%error, "the audit log cannot be written");
                    }
                }
            }
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            let file =
                File::options().append(true).create(true).mode(0o600).open(self.folder.join(FILE_NAME))?;
            give_to_owner(&file, &self.folder)?;
            self.bytes = file.metadata()?.len();
            self.file = Some(file);
        }
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.bytes_max {
            self.file = None;
            self.turn()?;
            return self.append(line);
        }
        if let Some(file) = &mut self.file {
            // One write: a line of another process cannot come in between.
            file.write_all(line)?;
        }
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// The full file becomes the first of the old ones.
    fn turn(&self) -> io::Result<()> {
        for number in (0..FILES_MAX - 1).rev() {
            let from = path_of(&self.folder, number);
            if from.exists() {
                fs::rename(from, path_of(&self.folder, number + 1))?;
            }
        }
        Ok(())
    }
}

/// 0: the one being written.
fn path_of(folder: &Path, number: usize) -> PathBuf {
    match number {
        0 => folder.join(FILE_NAME),
        number => folder.join(format!("{FILE_NAME}.{number}")),
    }
}

/// Writes one entry from outside the server.
pub(crate) fn append(folder: &Path, entry: &Entry) -> io::Result<()> {
    Log { folder: folder.to_owned(), file: None, bytes: 0, bytes_max: u64::MAX }.append(&entry.line())
}

/// The last lines, the newest last, of the tenants this names; none: of all.
pub(crate) fn last(folder: &Path, count: usize, tenant: Option<&Name>) -> io::Result<Vec<String>> {
    let wanted = tenant.map(tenant_text);
    let mut lines: Vec<String> = Vec::new();
    for number in 0..FILES_MAX {
        if lines.len() >= count {
            break;
        }
        let text = match fs::read(path_of(folder, number)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        // The newest line may still be on its way to the disk.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let fits = |line: &&str| match (&wanted, serde_json::from_str::<Value>(line)) {
            (None, line) => line.is_ok(),
            (Some(tenant), Ok(line)) => line.get("tenant").and_then(Value::as_str) == Some(tenant),
            (Some(_), Err(_)) => false,
        };
        let room = count - lines.len();
        lines.extend(whole.lines().rev().filter(fits).take(room).map(str::to_owned));
    }
    lines.reverse();
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::super::action::Part;
    use super::*;

    fn entry(tenant: &str, what: &'static str) -> Entry {
        Entry {
            at: 1.0,
            token: Some("ops".to_owned()),
            peer: "127.0.0.1:1".to_owned(),
            via: "redis",
            tenant: super::super::tenant(tenant.as_bytes()),
            action: Action { what, parts: vec![("jid", Part::Name(Name::new(b"j1")))] },
            outcome: "done",
        }
    }

    #[test]
    fn entries_are_lines_of_json_and_the_last_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let (audit, thread) = Audit::start(folder.path()).unwrap();
        for what in ["cancel", "pause", "flush"] {
            audit.note(entry("acme", what));
        }
        audit.note(entry("default", "forget"));
        audit.stop();
        thread.join().unwrap();
        let lines = last(folder.path(), 2, None).unwrap();
        let line: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((lines.len(), &line["action"], &line["tenant"]), (2, &json!("flush"), &json!("acme")));
        assert_eq!(line["jid"], "j1");
        let own = last(folder.path(), 9, Some(&Name::new(b"acme"))).unwrap();
        assert_eq!(own.len(), 3, "a tenant's own lines only");
    }

    #[test]
    fn a_full_file_is_set_aside_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let line = entry("acme", "cancel").line();
        let bytes_max = 2 * line.len() as u64;
        let mut log = Log { folder: folder.path().to_owned(), file: None, bytes: 0, bytes_max };
        for _ in 0..2 * FILES_MAX + 1 {
            log.append(&line).unwrap();
        }
        assert!(
            path_of(folder.path(), FILES_MAX - 1).exists() && !path_of(folder.path(), FILES_MAX).exists()
        );
        assert_eq!(fs::read(path_of(folder.path(), 1)).unwrap().len() as u64, bytes_max, "full to the byte");
        assert_eq!(last(folder.path(), 1000, None).unwrap().len(), 2 * FILES_MAX - 1);
        assert_eq!(last(folder.path(), 3, None).unwrap().len(), 3);
    }
}
