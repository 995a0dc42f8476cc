//! `haul completions`.

use clap_complete::Shell;

use super::failure::Done;
use super::output::Output;

/// Print a shell's completions for this command line
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul completions bash > /etc/bash_completion.d/haul
  haul completions zsh > ~/.zfunc/_haul
  haul completions fish > ~/.config/fish/completions/haul.fish")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self, mut command: clap::Command) -> Done {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "haul", &mut script);
        Output { json: false }.text(&String::from_utf8_lossy(&script))
    }
}
