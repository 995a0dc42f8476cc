//! Who may do what. No sockets.
//!
//! - `role`: the four roles, and the one each command needs.
//! - `tokens`: the tokens and the file that keeps them, hashed.
//! - `shared`: the tokens of nodes that share a store.
//! - `gate`: the tokens in force: lets callers in, and notices when they change.
//! - `sessions`: who logged in on the page.
//! - `audit`: the log of what operators did; `action`: what of a command it says.

pub(crate) mod action;
pub(crate) mod audit;
pub(crate) mod gate;
pub(crate) mod role;
pub(crate) mod sessions;
pub(crate) mod shared;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tokens;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use haul_engine::Name;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use audit::Audit;
pub(crate) use gate::{Denied, Gate};
pub(crate) use role::{Role, needs};
pub(crate) use sessions::Sessions;
pub(crate) use shared::SharedTokens;
pub(crate) use tokens::Token;

/// The longest name of a tenant that a token can be for, and of a token.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// Gives a file made by root to whoever the data folder belongs to: the server that reads it need not be root.
pub(crate) fn give_to_owner(file: &File, folder: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = std::fs::metadata(folder)?;
    std::os::unix::fs::fchown(file, Some(owner.uid()), Some(owner.gid()))
}

/// Whose jobs a caller may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those of this tenant.
    Tenant(Name),
    /// Those of whichever tenant the caller chooses.
    Any,
}

/// The tenant of this name: the default one has three.
pub(crate) fn tenant(name: &[u8]) -> Name {
    match name {
        b"" | b"0" | b"default" => Name::new(b""),
        name => Name::new(name),
    }
}

/// How a tenant is called when talking to people.
pub(crate) fn tenant_text(tenant: &Name) -> String {
    if tenant.is_empty() { "default".to_owned() } else { tenant.to_string() }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scope::Any => f.write_str("*"),
            Scope::Tenant(name) => f.write_str(&tenant_text(name)),
        }
    }
}

impl std::str::FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Scope::Any);
        }
        check_name("a tenant", text)?;
        Ok(Scope::Tenant(tenant(text.as_bytes())))
    }
}

/// Names that can be typed, put into a header and read in a log.
pub(crate) fn check_name(what: &str, text: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'@');
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(plain) {
        return Err(format!("{what} has 1 to {NAME_BYTES_MAX} letters, digits or . _ - @"));
    }
    Ok(())
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a caller that was let in may do.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) role: Role,
    pub(crate) scope: Scope,
    /// None: there is no authentication.
    token: Option<Arc<Token>>,
    /// The state of the gate that this was true in.
    pub(crate) generation: u64,
}

impl Access {
    /// The token's name.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref().map(|token| token.name.as_str())
    }

    /// Whether these figures and settings, which are no tenant's own, are this caller's business.
    pub(crate) fn is_server_wide(&self) -> bool {
        self.scope == Scope::Any
    }

    /// The tenant of a caller that chose none.
    pub(crate) fn home(&self) -> Name {
        match &self.scope {
            Scope::Tenant(tenant) => tenant.clone(),
            Scope::Any => Name::new(b""),
        }
    }

    /// Whether the caller may choose this tenant.
    pub(crate) fn admits(&self, tenant: &Name) -> bool {
        match &self.scope {
            Scope::Tenant(own) => own == tenant,
            Scope::Any => true,
        }
    }

    /// The role that is lacking, if one is.
    pub(crate) fn lacks(&self, needed: Role) -> Option<Role> {
        (self.role < needed).then_some(needed)
    }
}
