//! `haul doctor`.

use std::path::PathBuf;
use std::process::ExitCode;

use haul_store::{DiskOptions, DiskStore, Store};

use super::output::{Output, complain};
use crate::doctor;

/// Check a data folder, and repair it if asked; the server must not be running on it
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul doctor --data /var/lib/haul
  haul doctor --data /var/lib/haul --repair

Exit codes: 0 healthy, 1 something is wrong, 2 the folder cannot be opened.")]
pub(super) struct Doctor {
    /// The data folder
    #[arg(long, env = "HAUL_DATA", value_name = "DIR", default_value = "haul-data")]
    data: PathBuf,
    /// Remove records that cannot be read and bodies that belong to no job
    #[arg(long)]
    repair: bool,
}

pub(super) fn run(args: &Doctor) -> ExitCode {
    match examine(args) {
        Ok((report, removed)) => {
            let mut lines = report.lines();
            let verdict = match (report.is_healthy(), removed) {
                (true, _) => "healthy".to_owned(),
                (false, None) => {
                    format!("{} things are wrong; --repair removes what cannot be read", lines.len())
                }
                (false, Some(removed)) => {
                    format!("{removed} records removed; run doctor again to see what is left")
                }
            };
            lines.extend([format!("{} jobs, {} bodies looked at", report.jobs, report.bodies), verdict]);
            // The exit code carries the verdict, whoever still reads.
            drop(Output { json: false }.text(&lines.join("\n")));
            ExitCode::from(u8::from(!report.is_healthy()))
        }
        Err(fault) => {
            complain(&format!("haul doctor: {fault}"));
            ExitCode::from(2)
        }
    }
}

fn examine(args: &Doctor) -> Result<(doctor::Report, Option<usize>), haul_store::Fault> {
    let mut options = DiskOptions::new(&args.data);
    options.read_only = !args.repair;
    let mut store: Box<dyn Store> = Box::new(DiskStore::open(options)?);
    let report = doctor::examine(&mut *store)?;
    let removed = if args.repair { Some(doctor::repair(&mut *store, &report)?) } else { None };
    store.close()?;
    Ok((report, removed))
}
