//! `haul token`: who may use the server. Works on the data folder, with the server up or down; or on the store that nodes share.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::failure::{Done, Failure};
use super::moment;
use super::output::{Output, Table};
use super::reach::Reach;
use super::session::Global;
use super::value;
use crate::auth::audit;
use crate::auth::tokens::{Change, NewToken, Secret, Tokens};
use crate::auth::{Role, Scope, SharedTokens, Token as Known, check_name};
use crate::clock;

/// Make and remove the tokens that callers must show
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul token add ops --role admin --data /var/lib/haul
  haul token add shop --role work --tenant acme > shop.token
  haul token list
  haul token remove shop
  haul token add ops --role admin --tenant '*' --store s3://bucket/prefix

With --store the tokens are those of all nodes that share the store.

A server asks for a token as soon as there is one, on both ports. It notices changes within
a second, nodes within one presence interval. Callers show theirs as `Authorization: Bearer TOKEN`, with AUTH over the Redis
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
        home: Home,
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
        home: Home,
    },
    /// Put the tokens of a data folder into a store, so that all its nodes know them
    #[command(after_help = "Examples:\n  haul token copy --data /var/lib/haul --store s3://bucket/prefix")]
    Copy {
        #[command(flatten)]
        home: Home,
    },
}

/// Where the tokens are.
#[derive(clap::Args)]
struct Home {
    /// The server's data folder
    #[arg(long, env = "HAUL_DATA", value_name = "DIR", default_value = "haul-data")]
    data: PathBuf,
    /// The store that nodes share, instead
    #[arg(long, env = "HAUL_STORE", value_name = "URL")]
    store: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

/// The tokens of a store.
struct Store {
    runtime: tokio::runtime::Runtime,
    tokens: SharedTokens,
}

impl Home {
    /// None: they are in the folder.
    fn store(&self) -> anyhow::Result<Option<Store>> {
        let Some(url) = &self.store else { return Ok(None) };
        let (runtime, place) = self.reach.open(url)?;
        Ok(Some(Store { runtime, tokens: SharedTokens::new(place) }))
    }

    fn read(&self) -> anyhow::Result<Tokens> {
        match self.store()? {
            None => Ok(Tokens::read(&self.data)?.unwrap_or_default()),
            Some(store) => store.runtime.block_on(store.tokens.read()),
        }
    }

    fn add(&self, new: NewToken, secret: &Secret, now: f64) -> anyhow::Result<Option<Known>> {
        match self.store()? {
            None => Change::begin(&self.data)?.add(new, secret, now),
            Some(store) => store.runtime.block_on(store.tokens.add(new, secret, now)),
        }
    }

    /// Not the last one, unless `last` insists.
    fn remove(&self, name: &str, last: bool) -> Result<Option<Known>, Failure> {
        match self.store().map_err(unusable)? {
            None => {
                let change = Change::begin(&self.data).map_err(unusable)?;
                check_last(&change.tokens, name, last)?;
                change.remove(name).map_err(unusable)
            }
            Some(Store { runtime, tokens }) => {
                check_last(&runtime.block_on(tokens.read()).map_err(unusable)?, name, last)?;
                runtime.block_on(tokens.remove(name)).map_err(unusable)
            }
        }
    }

    /// Into the folder's audit log, also while the server writes there; nodes that share a store note in theirs what they see.
    fn write_down(&self, what: &'static str, token: &Known) -> Done {
        if self.store.is_some() {
            return Ok(());
        }
        let peer = format!("user {}", rustix::process::getuid().as_raw());
        audit::append(&self.data, &audit::of_token(what, token, "cli", Some(peer)))
            .map_err(|error| Failure::Usage(format!("done, but the audit log cannot be written: {error}")))
    }
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
    home: Home,
}

impl Token {
    pub(super) fn run(self, global: &Global) -> Done {
        let out = Output { json: global.json };
        match self.verb {
            Verb::Add(add) => add.run(global.tenant.as_deref(), out),
            Verb::List { home } => list(&home, out),
            Verb::Remove { name, last, home } => remove(&name, last, &home, out),
            Verb::Copy { home } => copy(&home, out),
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
        let Some(token) = self.home.add(new, &secret, now).map_err(unusable)? else {
            let message = format!("there is a token {} already", self.name);
            return Err(refused("EXISTS", message, "take another name, or `haul token remove` it first"));
        };
        self.home.write_down("token-add", &token)?;
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

fn list(home: &Home, out: Output) -> Done {
    let tokens = home.read().map_err(unusable)?;
    let now = clock::now();
    let mut table = Table::new(&["NAME", "ROLE", "TENANT", "CREATED", "EXPIRES"]);
    for token in tokens.iter() {
        let expires = token.expires_at.map_or_else(|| "never".to_owned(), |at| moment::relative(now, at));
        let created = moment::relative(now, token.created_at);
        table.row([token.name.clone(), token.role.to_string(), token.tenant.to_string(), created, expires]);
    }
    let all: Vec<Value> = tokens.iter().map(described).collect();
    out.say(&all, &table.text_or("no tokens: a server asks for none"))
}

fn check_last(tokens: &Tokens, name: &str, last: bool) -> Done {
    if !last && tokens.iter().count() == 1 && tokens.iter().any(|token| token.name == name) {
        let message = format!("{name} is the last token: without it a server asks for none");
        return Err(refused("LAST", message, "make another one first, or insist with --last"));
    }
    Ok(())
}

fn remove(name: &str, last: bool, home: &Home, out: Output) -> Done {
    let Some(token) = home.remove(name, last)? else {
        return Err(refused(
            "NOTOKEN",
            format!("there is no token {name}"),
            "`haul token list` shows those there are",
        ));
    };
    home.write_down("token-remove", &token)?;
    out.say(&described(&token), &format!("{name} is removed"))
}

/// What is in the store already stays; another token of the same name there is not replaced.
fn copy(home: &Home, out: Output) -> Done {
    let Some(store) = home.store().map_err(unusable)? else {
        return Err(Failure::Usage("name the store with --store".to_owned()));
    };
    let tokens = Tokens::read(&home.data).map_err(unusable)?;
    let tokens =
        tokens.ok_or_else(|| Failure::Usage(format!("there are no tokens in {}", home.data.display())))?;
    let there = store.runtime.block_on(store.tokens.read()).map_err(unusable)?;
    if let Some(other) =
        tokens.iter().find(|token| there.iter().any(|one| one.name == token.name && one != *token))
    {
        let message = format!("there is another token {} in the store; nothing was copied", other.name);
        return Err(refused("EXISTS", message, "`haul token remove` one of the two"));
    }
    for token in tokens.iter().filter(|token| !there.has(token)) {
        store.runtime.block_on(store.tokens.create(token)).map_err(unusable)?;
    }
    let all: Vec<Value> = tokens.iter().map(described).collect();
    out.say(&all, &format!("{} tokens are in the store", all.len()))
}
