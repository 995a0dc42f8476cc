//! The tokens, and the file in the data folder that keeps them: `tokens.json`, only hashes, replaced as a whole.
//!
//! To change the format: 1. raise `VERSION`; 2. teach `parse` to read the old one; 3. keep an old file as a test.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Role, Scope, give_to_owner};

const VERSION: u32 = 1;
pub(crate) const FILE_NAME: &str = "tokens.json";
/// Written first, then renamed: whatever a crash leaves in it is never read.
const DRAFT_NAME: &str = "tokens.json.new";
/// Held while the file is changed, so that two changes at once do not lose one.
const LOCK_NAME: &str = "tokens.lock";
/// Tokens one server has at most.
pub(crate) const TOKENS_MAX: usize = 10_000;
/// How every token begins, so that it is recognised where it should not be.
const PREFIX: &str = "haul_";
/// Random bytes of a token.
const SECRET_BYTES: usize = 32;

/// A token in clear. Shown once, never stored, never logged.
#[derive(PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// From fresh entropy.
    pub(crate) fn new(entropy: &[u8; SECRET_BYTES]) -> Self {
        Secret(format!("{PREFIX}{}", hex(entropy)))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    fn hash(&self) -> Hash {
        Hash::of(self.0.as_bytes())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The SHA-256 of a token. Tokens are random, so a plain hash cannot be turned back by trying.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Hash([u8; 32]);

impl Hash {
    pub(crate) fn of(secret: &[u8]) -> Self {
        Hash(Sha256::digest(secret).into())
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash(…)")
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        unhex(&text).map(Hash).ok_or_else(|| serde::de::Error::custom("sha256 is not 64 hexadecimal digits"))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// What is known of a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    pub(crate) name: String,
    sha256: Hash,
    pub(crate) role: Role,
    pub(crate) tenant: Scope,
    /// Seconds since 1970.
    pub(crate) created_at: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<f64>,
}

impl Token {
    pub(crate) fn is_expired(&self, now: f64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// What a new token is to be.
#[derive(Debug)]
pub(crate) struct NewToken {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) tenant: Scope,
    pub(crate) expires_at: Option<f64>,
}

impl NewToken {
    pub(crate) fn token(self, secret: &Secret, now: f64) -> Token {
        Token {
            name: self.name,
            sha256: secret.hash(),
            role: self.role,
            tenant: self.tenant,
            created_at: now,
            expires_at: self.expires_at,
        }
    }
}

/// All tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tokens {
    list: Vec<Arc<Token>>,
    by_hash: HashMap<Hash, Arc<Token>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    tokens: Vec<Token>,
}

impl Tokens {
    fn new(list: Vec<Arc<Token>>) -> Self {
        let by_hash = list.iter().map(|token| (token.sha256, token.clone())).collect();
        Tokens { list, by_hash }
    }

    /// Those of all these.
    pub(crate) fn joined(all: &[Tokens]) -> Self {
        Tokens::new(all.iter().flat_map(|some| some.list.iter().cloned()).collect())
    }

    /// And this one.
    #[must_use]
    pub(crate) fn with(self, token: Token) -> Self {
        Tokens::new(self.list.into_iter().chain([Arc::new(token)]).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Token> {
        self.list.iter().map(Arc::as_ref)
    }

    /// The token whose secret this is, expired or not.
    pub(crate) fn find(&self, secret: &[u8]) -> Option<&Arc<Token>> {
        self.by_hash.get(&Hash::of(secret))
    }

    /// Whether just this token is still there.
    pub(crate) fn has(&self, token: &Token) -> bool {
        self.by_hash.get(&token.sha256).is_some_and(|known| known.as_ref() == token)
    }

    pub(crate) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_slice(bytes)?;
        if version != VERSION {
            bail!("it is of format {version}; this Haul reads format {VERSION}");
        }
        let stored: Stored = serde_json::from_slice(bytes)?;
        Ok(Tokens::new(stored.tokens.into_iter().map(Arc::new).collect()))
    }

    /// Reads the file; none: there is none.
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = folder.join(FILE_NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("the tokens in {} cannot be read", path.display()));
            }
        };
        Self::parse(&bytes).map(Some).with_context(|| {
            format!(
                "the tokens in {} cannot be read; restore the file, or remove it and make new tokens",
                path.display()
            )
        })
    }

    /// As it is stored.
    pub(crate) fn document(&self) -> anyhow::Result<Vec<u8>> {
        let stored = Stored { version: VERSION, tokens: self.iter().cloned().collect() };
        let mut bytes = serde_json::to_vec_pretty(&stored)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Replaces the file: after a crash it is the old one or the new one, whole.
    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let bytes = self.document()?;
        let draft = folder.join(DRAFT_NAME);
        let replace = || -> io::Result<()> {
            // A draft left behind by a crash may have other rights than these.
            if let Err(error) = fs::remove_file(&draft)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
            give_to_owner(&file, folder)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&draft, folder.join(FILE_NAME))?;
            File::open(folder)?.sync_all()
        };
        replace().with_context(|| format!("the tokens in {} cannot be written", folder.display()))
    }
}

/// The file as it was looked at last: another inode, time or length is another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    modified: (i64, i64),
    bytes: u64,
}

impl Stamp {
    /// None: there is no such file.
    pub(crate) fn of(path: &Path) -> Option<Stamp> {
        let meta = fs::metadata(path).ok()?;
        Some(Stamp { inode: meta.ino(), modified: (meta.mtime(), meta.mtime_nsec()), bytes: meta.len() })
    }
}

/// The file, held for a change.
pub(crate) struct Change {
    folder: PathBuf,
    pub(crate) tokens: Tokens,
    _lock: File,
}

impl Change {
    /// Waits for its turn. The folder is made if it is missing: tokens come before the first start.
    pub(crate) fn begin(folder: &Path) -> anyhow::Result<Change> {
        let lock = || -> io::Result<File> {
            fs::create_dir_all(folder)?;
            let lock = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(folder.join(LOCK_NAME))?;
            give_to_owner(&lock, folder)?;
            lock.lock()?;
            Ok(lock)
        };
        let lock = lock().with_context(|| format!("the folder {} cannot be used", folder.display()))?;
        let tokens = Tokens::read(folder)?.unwrap_or_default();
        Ok(Change { folder: folder.to_owned(), tokens, _lock: lock })
    }

    /// None: there is a token of this name already.
    pub(crate) fn add(self, new: NewToken, secret: &Secret, now: f64) -> anyhow::Result<Option<Token>> {
        if self.tokens.iter().any(|token| token.name == new.name) {
            return Ok(None);
        }
        if self.tokens.list.len() >= TOKENS_MAX {
            bail!("there are {TOKENS_MAX} tokens, which is the most there can be; remove some first");
        }
        let token = new.token(secret, now);
        self.tokens.with(token.clone()).write(&self.folder)?;
        Ok(Some(token))
    }

    /// None: there is no token of this name.
    pub(crate) fn remove(self, name: &str) -> anyhow::Result<Option<Token>> {
        let Some(token) = self.tokens.iter().find(|token| token.name == name).cloned() else {
            return Ok(None);
        };
        let list = self.tokens.list.iter().filter(|token| token.name != name).cloned().collect();
        Tokens::new(list).write(&self.folder)?;
        Ok(Some(token))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A token in the file of this folder; its secret.
    pub(crate) fn make(folder: &Path, name: &str, role: Role, tenant: &str) -> String {
        let secret = Secret::new(&crate::clock::entropy().unwrap());
        let new = NewToken { name: name.to_owned(), role, tenant: tenant.parse().unwrap(), expires_at: None };
        Change::begin(folder).unwrap().add(new, &secret, 1.0).unwrap().unwrap();
        secret.expose().to_owned()
    }

    #[test]
    fn a_token_is_found_by_its_secret_and_the_file_does_not_hold_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Tokens::read(folder.path()).unwrap().is_none());
        let secret = make(folder.path(), "shop", Role::Work, "acme");
        assert!(secret.starts_with("haul_") && secret.len() == 5 + 64);
        let tokens = Tokens::read(folder.path()).unwrap().unwrap();
        let token = tokens.find(secret.as_bytes()).unwrap();
        assert_eq!(
            (token.name.as_str(), token.role, token.tenant.to_string()),
            ("shop", Role::Work, "acme".into())
        );
        assert!(tokens.find(b"haul_").is_none());
        let path = folder.path().join(FILE_NAME);
        assert!(!fs::read_to_string(&path).unwrap().contains(&secret[5..]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{:?}", Secret(secret.clone())).contains(&secret[5..]));
    }

    #[test]
    fn names_are_unique_and_removal_is_by_name() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), "a", Role::View, "*");
        let secret = Secret::new(&[7; 32]);
        let again = || NewToken { name: "a".into(), role: Role::Admin, tenant: Scope::Any, expires_at: None };
        assert!(Change::begin(folder.path()).unwrap().add(again(), &secret, 1.0).unwrap().is_none());
        assert!(Change::begin(folder.path()).unwrap().remove("b").unwrap().is_none());
        assert!(Change::begin(folder.path()).unwrap().remove("a").unwrap().is_some());
        assert!(Tokens::read(folder.path()).unwrap().unwrap().is_empty());
    }

    #[test]
    fn a_torn_draft_is_ignored_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), "a", Role::View, "*");
        fs::write(folder.path().join(DRAFT_NAME), b"{\"version\":1,\"tok").unwrap();
        assert_eq!(Tokens::read(folder.path()).unwrap().unwrap().iter().count(), 1);
        make(folder.path(), "b", Role::View, "*");
        assert_eq!(Tokens::read(folder.path()).unwrap().unwrap().iter().count(), 2);
        assert!(!folder.path().join(DRAFT_NAME).exists());
    }

    #[test]
    fn a_file_that_is_not_ours_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        for text in
            ["", "{", "{\"version\":2,\"tokens\":[]}", "{\"version\":1}", "{\"version\":1,\"tokens\":[{}]}"]
        {
            fs::write(folder.path().join(FILE_NAME), text).unwrap();
            let error = format!("{:#}", Tokens::read(folder.path()).unwrap_err());
            assert!(error.contains(FILE_NAME), "{error}");
            assert!(Change::begin(folder.path()).is_err(), "a broken file is never overwritten");
        }
    }

    #[test]
    fn the_default_tenant_has_one_meaning_and_odd_names_are_refused() {
        for name in ["default", "0"] {
            assert_eq!(name.parse::<Scope>().unwrap(), Scope::Tenant(haul_engine::Name::new(b"")));
        }
        assert_eq!("*".parse::<Scope>().unwrap(), Scope::Any);
        let longest = "x".repeat(super::super::NAME_BYTES_MAX);
        assert!(longest.parse::<Scope>().is_ok());
        for name in ["", "a b", "é", "a/b", &format!("{longest}x")] {
            assert!(name.parse::<Scope>().is_err(), "{name}");
        }
    }
}
