//! `haul audit`: what operators did.

use std::path::PathBuf;

use serde_json::Value;

use super::failure::{Done, Failure};
use super::moment;
use super::output::{Output, Table};
use super::session::Global;
use crate::auth::{audit, tenant};
use crate::clock;

/// Show what operators did: who cancelled, paused, changed options, made tokens
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul audit
  haul audit --count 500 --tenant acme
  haul audit --data /var/lib/haul --json | jq 'select(.action == \"flush\")'

With --json one line for each, as in the file audit.log of the data folder.")]
pub(super) struct Audit {
    /// How many, the newest
    #[arg(long, value_name = "N", default_value_t = 50)]
    count: usize,
    /// The server's data folder
    #[arg(long, env = "HAUL_DATA", value_name = "DIR", default_value = "haul-data")]
    data: PathBuf,
}

/// What has a column of its own.
const COLUMNS: [&str; 7] = ["at", "token", "peer", "via", "tenant", "action", "outcome"];

impl Audit {
    pub(super) fn run(&self, global: &Global) -> Done {
        let out = Output { json: global.json };
        let tenant = global.tenant.as_ref().map(|name| tenant(name.as_bytes()));
        let lines = audit::last(&self.data, self.count, tenant.as_ref()).map_err(|error| {
            Failure::Usage(format!("the audit log in {} cannot be read: {error}", self.data.display()))
        })?;
        if out.json {
            return out.text(&lines.join("\n"));
        }
        let now = clock::now();
        let mut table = Table::new(&["WHEN", "WHO", "FROM", "TENANT", "ACTION", "OUTCOME", "WHAT"]);
        for line in lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
            let at = line.get("at").and_then(Value::as_f64).unwrap_or(0.0);
            let rest = line.as_object().into_iter().flatten();
            let rest = rest.filter(|(key, _)| !COLUMNS.contains(&key.as_str()));
            let what: Vec<String> = rest.map(|(key, value)| format!("{key}={value}")).collect();
            table.row([
                moment::relative(now, at),
                text("token"),
                text("peer"),
                text("tenant"),
                text("action"),
                text("outcome"),
                what.join(" "),
            ]);
        }
        out.text(&table.text_or("nothing yet"))
    }
}
