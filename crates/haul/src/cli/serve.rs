//! `haul serve`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::output::complain;
use crate::config::{self, Raw};

/// Run the server
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul serve
  haul serve --data /var/lib/haul --durability always
  HAUL_REDIS=127.0.0.1:6380 haul serve --config /etc/haul.toml")]
pub(super) struct Serve {
    /// A TOML file with these settings, named as the flags are
    #[arg(long, env = "HAUL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Box<Raw>,
}

impl Serve {
    pub(super) fn run(self) -> ExitCode {
        match self.serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&format!("haul: {error:#}"));
                ExitCode::from(2)
            }
        }
    }

    fn serve(self) -> anyhow::Result<()> {
        let file = self.config.as_deref().map_or_else(|| Ok(Raw::default()), config::read_file)?;
        let config = self.settings.resolve(file)?;
        start_logs(&config);
        if let Some(file) = &self.config {
            tracing::info!(file = %file.display(), "configuration file read");
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("haul-io").build()?;
        runtime.block_on(crate::serve::run(config))
    }
}

fn start_logs(config: &config::Config) {
    let filter = tracing_subscriber::EnvFilter::new(&config.log_filter);
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(std::io::stderr);
    if config.json_logs {
        builder.json().init()
    } else {
        builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init()
    }
}
