//! `haul config`: the server's options for this tenant.

use serde_json::{Value, json};

use super::failure::{Done, Failure};
use super::output::Table;
use super::session::Session;

/// Look at and change options
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul config get
  haul config get heartbeat
  haul config set heartbeat 120
  haul config set mail-heartbeat 600      only for the queue mail
  haul config unset heartbeat")]
pub(super) struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show one option, or all
    #[command(after_help = "Examples:\n  haul config get\n  haul config get heartbeat")]
    Get {
        /// The option
        option: Option<String>,
    },
    /// Change an option
    #[command(
        after_help = "Examples:\n  haul config set heartbeat 120\n  haul config set mail-heartbeat 600"
    )]
    Set {
        /// The option
        option: String,
        /// Its value
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Give an option its default back
    #[command(after_help = "Examples:\n  haul config unset heartbeat\n  haul config unset heartbeat --json")]
    Unset {
        /// The option
        option: String,
    },
}

impl Config {
    pub(super) async fn run(self, session: &Session) -> Done {
        match self.verb {
            Verb::Get { option: None } => all(session).await,
            Verb::Get { option: Some(option) } => match session.client.config_get(&option).await? {
                Some(value) => session.out.say(&json!({"option": option, "value": value}), &value),
                None => {
                    if session.out.json {
                        session.out.value(&json!({"option": option, "value": null}))?;
                    }
                    Err(Failure::Nothing(format!(
                        "{option} is not set and has no default; `haul config get` lists all"
                    )))
                }
            },
            Verb::Set { option, value } => {
                session.client.config_set(&option, &value).await?;
                session.out.say(&json!({"option": option, "value": value}), &format!("{option} is {value}"))
            }
            Verb::Unset { option } => {
                session.client.config_unset(&option).await?;
                let value = session.client.config_get(&option).await?;
                let text = match &value {
                    Some(value) => format!("{option} is {value} again"),
                    None => format!("{option} is not set"),
                };
                session.out.say(&json!({"option": option, "value": value}), &text)
            }
        }
    }
}

async fn all(session: &Session) -> Done {
    let options = session.client.config().await?;
    let mut table = Table::new(&["OPTION", "VALUE"]);
    for (option, value) in &options {
        let value = value.as_str().map_or_else(|| Value::to_string(value), str::to_owned);
        table.row([option.clone(), value]);
    }
    session.out.say(&options, &table.text())
}
