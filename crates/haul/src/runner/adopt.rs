//! What earlier workers left in the state folder. A living guardian goes on by itself and is left alone; what a dead one
//! left is ended, told, and removed.

use haul_client::Client;
use haul_guard::folder::{Folder, Record, State};
use haul_guard::outcome::{Outcome, Teller};
use haul_guard::process::{self, Identity};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Guardians that go on by themselves, with the job and worker each is about.
    pub(super) living: Vec<(Identity, String, String)>,
    /// Jobs whose end was told for a guardian that could not, with how it went.
    pub(super) told: Vec<(String, &'static str)>,
    /// Folders whose end could not be told yet.
    pub(super) waiting: usize,
}

/// Looks through the state folder. `ours`: guardians known to this worker, which are left alone.
pub(super) async fn look(client: &Client, state: &State, ours: &[i32]) -> Found {
    let mut found = Found::default();
    let Some(_lock) = state.lock() else { return found };
    let boot_id = process::boot_id();
    let mut is_away = false;
    for folder in state.folders() {
        let Some(record) = folder.read_record() else {
            // Cut off before its first line: there was no task yet. A guardian at work writes it at once.
            if is_old(&folder) {
                folder.remove();
            }
            continue;
        };
        let same_boot = record.boot_id == boot_id;
        if same_boot && record.guardian.is_alive() {
            if !ours.contains(&record.guardian.pid) {
                found.living.push((record.guardian, record.jid, record.worker));
            }
            continue;
        }
        if same_boot {
            process::kill_marked(record.task, &record.mark);
        }
        let outcome = folder.read_outcome().unwrap_or_else(|| orphaned(&record, same_boot));
        let teller = Teller { worker: record.worker, jid: record.jid.clone(), attempt: record.attempt };
        // Once is enough to learn that the server is away.
        let told = if is_away { None } else { teller.tell(client, &outcome).await.ok() };
        match told {
            Some(word) => {
                folder.remove();
                found.told.push((record.jid, word));
            }
            None => {
                is_away = true;
                drop(folder.keep_outcome(&outcome, true));
                found.waiting += 1;
            }
        }
    }
    found
}

/// A job whose guardian is gone without a word. That is no failure of the job: it is tried again at once.
fn orphaned(record: &Record, same_boot: bool) -> Outcome {
    let (group, message) = match same_boot {
        true => (
            "guardian-died",
            format!("its guardian, process {}, was killed, and the task with it", record.guardian.pid),
        ),
        false => ("host-restarted", "the machine it ran on was started anew".to_owned()),
    };
    Outcome::Retry { delay: std::time::Duration::ZERO, group: group.to_owned(), message }
}

fn is_old(folder: &Folder) -> bool {
    let made = std::fs::metadata(folder.work())
        .or_else(|_| std::fs::metadata(folder.data().with_file_name("")))
        .and_then(|found| found.modified());
    let made = made.ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    made.is_none_or(|at| crate::clock::now() - at.as_secs_f64() > 60.0)
}
