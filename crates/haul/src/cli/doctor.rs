//! `haul doctor`.

use std::path::PathBuf;
use std::process::ExitCode;

use haul_store::{DiskOptions, DiskStore, Store};

use crate::doctor;

#[derive(clap::Args)]
pub(super) struct Doctor {
    /// The data folder
    #[arg(long, env = "HAUL_DATA", value_name = "DIR", default_value = "haul-data")]
    data: PathBuf,
    /// Remove records that cannot be read and bodies that belong to no job
    #[arg(long)]
    repair: bool,
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the report is for people")]
pub(super) fn run(args: &Doctor) -> ExitCode {
    match examine(args) {
        Ok((report, removed)) => {
            report.lines().iter().for_each(|line| println!("{line}"));
            println!("{} jobs, {} bodies looked at", report.jobs, report.bodies);
            match (report.is_healthy(), removed) {
                (true, _) => println!("healthy"),
                (false, None) => println!("{} things are wrong; --repair removes what cannot be read", report.lines().len()),
                (false, Some(removed)) => println!("{removed} records removed; run doctor again to see what is left"),
            }
            ExitCode::from(u8::from(!report.is_healthy()))
        }
        Err(fault) => {
            eprintln!("haul doctor: {fault}");
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
