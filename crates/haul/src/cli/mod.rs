//! The command line: a file for each subcommand. Everything but `serve` and `doctor` talks to a server as a client.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{self, Raw};

mod doctor;

/// A durable job queue: nothing acknowledged is ever lost, nothing runs twice at once.
#[derive(Parser)]
#[command(name = "haul", version, about, long_about = None, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the server
    #[command(after_help = "Examples:\n  haul serve\n  haul serve --data /var/lib/haul --durability always\n  HAUL_REDIS=127.0.0.1:6380 haul serve --config /etc/haul.toml")]
    Serve {
        /// A TOML file with these settings, named as the flags are
        #[arg(long, env = "HAUL_CONFIG", value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<Raw>,
    },
    /// Check a data folder, and repair it if asked; the server must not be running on it
    #[command(after_help = "Examples:\n  haul doctor --data /var/lib/haul\n  haul doctor --data /var/lib/haul --repair\n\nExit codes: 0 healthy, 1 something is wrong, 2 the folder cannot be opened.")]
    Doctor(doctor::Doctor),
}

/// Runs the command line.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Verb::Serve { config, settings } => serve(config, *settings),
        Verb::Doctor(doctor) => doctor::run(&doctor),
    }
}

fn serve(file: Option<PathBuf>, settings: Raw) -> ExitCode {
    let read = file.as_deref().map_or_else(|| Ok(Raw::default()), config::read_file);
    let config = match read.and_then(|file| settings.resolve(file)) {
        Ok(config) => config,
        Err(error) => return complain(&error),
    };
    start_logs(config.json_logs);
    if let Some(file) = &file {
        tracing::info!(file = %file.display(), "configuration file read");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("haul-io").build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(crate::serve::run(config)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error),
    }
}

fn start_logs(json: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("HAUL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,fjall=warn,lsm_tree=warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(std::io::stderr);
    if json { builder.json().init() } else { builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init() }
}

#[expect(clippy::print_stderr, reason = "this is where the command line speaks to people")]
fn complain(error: &anyhow::Error) -> ExitCode {
    eprintln!("haul: {error:#}");
    ExitCode::from(2)
}
