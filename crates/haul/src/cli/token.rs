//! `haul token`: who may use the server. Works on the data folder, with the server up or down.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::failure::{Done, Failure};
use super::moment;
use super::output::{Output, Table};
use super::session::Global;
use super::value;
use crate::auth::action::{Action, Part};
use crate::auth::audit::{self, Entry};
use crate::auth::tokens::{Change, NewToken, Secret, Tokens};
use crate::auth::{Role, Scope, Token as Known, check_name};
use crate::clock;

/// Make and remove the tokens that callers must show
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul token add ops --role admin --data /var/lib/haul
  haul token add shop --role work --tenant acme > shop.token
  haul token list
  haul token remove shop

A server asks for a token as soon as there is one, on both ports. It notices changes within
a second. Callers show theirs as `Authorization: Bearer TOKEN`, with AUTH over the Redis
protocol, and to this command line as HAUL_TOKEN or --token-file.")]
pub(super) struct Token {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Make a token and print it, this once; --tenant names its tenant, or * for all
    #[command(after_help = "Examples:
  haul token add ops --role admin --tenant '*'
  haul token add shop --role work --tenant acme --expires 90d
  HAUL_TOKEN=$(haul token add ci --role operate) haul ping")]
    Add(Add),
    /// List the tokens: names, roles, tenants, never the tokens themselves
    #[command(after_help = "Examples:\n  haul token list\n  haul token list --data /var/lib/haul --json")]
    List {
        #[command(flatten)]
        folder: Folder,
    },
    /// Remove a token; connections that were let in with it are cut off
    #[command(after_help = "Examples:\n  haul token remove shop\n  haul token remove ops --last")]
    Remove {
        /// The token's name
        name: String,
        /// Remove it although it is the last: a server on this folder then asks for none
        #[arg(long)]
        last: bool,
        #[command(flatten)]
        folder: Folder,
    },
}

#[derive(clap::Args)]
struct Folder {
    /// The server's data folder
    #[arg(long, env = "HAUL_DATA", value_name = "DIR", default_value = "haul-data")]
    data: PathBuf,
}

#[derive(clap::Args)]
struct Add {
    /// A name for it, shown in lists and in the audit log
    name: String,
    /// What its bearer may do
    #[arg(long, value_enum)]
    role: Role,
    /// When it ends, from now: 12h, 90d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = value::interval)]
    expires: Option<Duration>,
    #[command(flatten)]
    folder: Folder,
}

impl Token {
    pub(super) fn run(self, global: &Global) -> Done {
        let out = Output { json: global.json };
        match self.verb {
            Verb::Add(add) => add.run(global.tenant.as_deref(), out),
            Verb::List { folder } => list(&folder.data, out),
            Verb::Remove { name, last, folder } => remove(&name, last, &folder.data, out),
        }
    }
}

fn unusable(error: anyhow::Error) -> Failure {
    Failure::Usage(format!("{error:#}"))
}

fn refused(code: &'static str, message: String, next: &str) -> Failure {
    Failure::Refused { code, message, next: next.to_owned() }
}

impl Add {
    fn run(self, tenant: Option<&str>, out: Output) -> Done {
        check_name("a token's name", &self.name).map_err(Failure::Usage)?;
        let tenant: Scope = tenant.unwrap_or("default").parse().map_err(Failure::Usage)?;
        let now = clock::now();
        let expires_at = self.expires.map(|expires| now + expires.as_secs_f64());
        let secret = Secret::new(&clock::entropy().map_err(unusable)?);
        let new = NewToken { name: self.name.clone(), role: self.role, tenant, expires_at };
        let change = Change::begin(&self.folder.data).map_err(unusable)?;
        let Some(token) = change.add(new, &secret, now).map_err(unusable)? else {
            let message = format!("there is a token {} already", self.name);
            return Err(refused("EXISTS", message, "take another name, or `haul token remove` it first"));
        };
        write_down(&self.folder.data, "token-add", &token)?;
        let mut shown = described(&token);
        if let Value::Object(shown) = &mut shown {
            shown.insert("token".to_owned(), json!(secret.expose()));
        }
        out.say(&shown, secret.expose())
    }
}

fn described(token: &Known) -> Value {
    json!({
        "name": token.name,
        "role": token.role,
        "tenant": token.tenant,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
    })
}

fn list(data: &Path, out: Output) -> Done {
    let tokens = Tokens::read(data).map_err(unusable)?.unwrap_or_default();
    let now = clock::now();
    let mut table = Table::new(&["NAME", "ROLE", "TENANT", "CREATED", "EXPIRES"]);
    for token in tokens.iter() {
        let expires = token.expires_at.map_or_else(|| "never".to_owned(), |at| moment::relative(now, at));
        let created = moment::relative(now, token.created_at);
        table.row([token.name.clone(), token.role.to_string(), token.tenant.to_string(), created, expires]);
    }
    let all: Vec<Value> = tokens.iter().map(described).collect();
    out.say(&all, &table.text_or("no tokens: a server on this folder asks for none"))
}

fn remove(name: &str, last: bool, data: &Path, out: Output) -> Done {
    let change = Change::begin(data).map_err(unusable)?;
    if !last && change.tokens.iter().count() == 1 && change.tokens.iter().any(|token| token.name == name) {
        let message = format!("{name} is the last token: without it a server on this folder asks for none");
        return Err(refused("LAST", message, "make another one first, or insist with --last"));
    }
    let Some(token) = change.remove(name).map_err(unusable)? else {
        return Err(refused(
            "NOTOKEN",
            format!("there is no token {name}"),
            "`haul token list` shows those there are",
        ));
    };
    write_down(data, "token-remove", &token)?;
    out.say(&described(&token), &format!("{name} is removed"))
}

/// Into the audit log, also while the server writes there.
fn write_down(data: &Path, what: &'static str, token: &Known) -> Done {
    let name = |text: String| Part::Name(haul_engine::Name::from(text));
    let parts = vec![
        ("name", name(token.name.clone())),
        ("role", name(token.role.to_string())),
        ("scope", name(token.tenant.to_string())),
    ];
    let entry = Entry {
        at: clock::now(),
        token: None,
        peer: format!("user {}", rustix::process::getuid().as_raw()),
        via: "cli",
        // Whose tokens there are is no tenant's business.
        tenant: haul_engine::Name::new(b"*"),
        action: Action { what, parts },
        outcome: "done",
    };
    audit::append(data, &entry)
        .map_err(|error| Failure::Usage(format!("done, but the audit log cannot be written: {error}")))
}
