//! The tokens in force: lets callers in, and notices by itself when they change or one ends.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::shared::SharedTokens;
use super::tokens::{FILE_NAME, Stamp, Token, Tokens};
use super::{Access, Role, Scope};
use crate::clock;
use crate::net::Peer;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often tokens in a store are read although nobody said that they have changed.
const READ_EVERY: Duration = Duration::from_secs(60);

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No such token, or it has ended.
    Wrong,
    /// The same, and once too often.
    TooOften,
}

/// Hears of tokens that came to a store or went from it.
pub(crate) type Tell<'a> = dyn Fn(&'static str, &Token) + Send + Sync + 'a;

/// Who is let in.
pub(crate) struct Gate {
    home: Home,
    tokens: RwLock<Arc<Tokens>>,
    /// Without any token: nobody is let in, instead of everybody.
    is_closed_without_tokens: bool,
    /// Grows when anything changes that an [`Access`] given out may rest on.
    generation: AtomicU64,
    changed: watch::Sender<u64>,
}

/// Where the tokens are.
enum Home {
    /// In a data folder, and the file as it was just before it was read first.
    Folder(PathBuf, Option<Stamp>),
    /// In the store that nodes share; how often to look at its mark, and the one just before they were read first.
    Shared { tokens: SharedTokens, every: Duration, mark: Option<Bytes> },
}

impl Gate {
    /// With the tokens of this data folder.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        let stamp = Stamp::of(&folder.join(FILE_NAME));
        let tokens = Tokens::read(folder)?.unwrap_or_default();
        Ok(Gate::new(Home::Folder(folder.to_owned(), stamp), tokens))
    }

    /// With the tokens of a store, looked at so often.
    pub(crate) async fn open_shared(shared: SharedTokens, every: Duration) -> anyhow::Result<Self> {
        let mark = shared.mark().await?;
        let tokens = shared.read().await?;
        Ok(Gate::new(Home::Shared { tokens: shared, every, mark }, tokens))
    }

    fn new(home: Home, tokens: Tokens) -> Self {
        Gate {
            home,
            tokens: RwLock::new(Arc::new(tokens)),
            is_closed_without_tokens: false,
            generation: AtomicU64::new(1),
            changed: watch::Sender::new(1),
        }
    }

    /// When the last token is removed nobody gets in, instead of everybody: for addresses that others can reach.
    #[must_use]
    pub(crate) fn closed_without_tokens(mut self, is_closed: bool) -> Self {
        self.is_closed_without_tokens = is_closed;
        self
    }

    fn tokens(&self) -> Arc<Tokens> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there are tokens, and so callers must show one.
    pub(crate) fn is_required(&self) -> bool {
        self.is_closed_without_tokens || !self.tokens().is_empty()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Tells when the generation grows.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Without a token: everything where there is no authentication, nothing otherwise.
    pub(crate) fn enter_unnamed(&self) -> Option<Access> {
        let generation = self.generation();
        (!self.is_required()).then_some(Access {
            role: Role::Admin,
            scope: Scope::Any,
            token: None,
            generation,
        })
    }

    /// With a token, and its name if the caller gave one. Who fails too often is told only that; a right token is
    /// always let in, so that one caller cannot lock out another behind the same address.
    pub(crate) fn enter(&self, name: Option<&[u8]>, secret: &[u8], peer: &Peer) -> Result<Access, Denied> {
        let generation = self.generation();
        let tokens = self.tokens();
        let found = tokens.find(secret).filter(|token| !token.is_expired(clock::now()));
        let fits =
            |given: &[u8]| given == b"default" || found.is_some_and(|token| token.name.as_bytes() == given);
        match found.filter(|_| name.is_none_or(fits)) {
            Some(token) => Ok(Access {
                role: token.role,
                scope: token.tenant.clone(),
                token: Some(token.clone()),
                generation,
            }),
            None if peer.may_fail() => {
                tracing::warn!(peer = %peer.ip(), "a wrong token was shown");
                Err(Denied::Wrong)
            }
            None => Err(Denied::TooOften),
        }
    }

    /// The same access in the present state of things, if it still stands.
    pub(crate) fn renew(&self, access: &Access) -> Option<Access> {
        let generation = self.generation();
        match &access.token {
            None => self.enter_unnamed(),
            Some(token) => {
                let stands = self.tokens().has(token) && !token.is_expired(clock::now());
                stands.then(|| Access { generation, ..access.clone() })
            }
        }
    }

    fn grow(&self) {
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        self.changed.send_replace(generation);
    }

    fn replace(&self, tokens: Tokens) {
        tracing::info!(tokens = tokens.iter().count(), "the tokens have changed");
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
        self.grow();
    }

    /// Reads the file if it is another one than at the last look.
    fn look(&self, folder: &Path, last: &mut Option<Stamp>) {
        let stamp = Stamp::of(&folder.join(FILE_NAME));
        if stamp == *last {
            return;
        }
        *last = stamp;
        match Tokens::read(folder) {
            Ok(Some(tokens)) => self.replace(tokens),
            Ok(None) => tracing::error!(
                "the file of the tokens is gone: those read last stay in force; remove tokens with `haul token remove`"
            ),
            Err(error) => tracing::error!(error = format!("{error:#}"), "the tokens read last stay in force"),
        }
    }

    /// Reads the store's tokens if they have changed, or if it is time to; tells of each that came or went.
    async fn look_shared(
        &self,
        shared: &SharedTokens,
        seen: &mut (Option<Bytes>, f64),
        tell: &Tell<'_>,
    ) -> anyhow::Result<()> {
        let (last, read_at) = seen;
        let mark = shared.mark().await?;
        if mark == *last && clock::now() - *read_at < READ_EVERY.as_secs_f64() {
            return Ok(());
        }
        let (now, before) = (shared.read().await?, self.tokens());
        (*last, *read_at) = (mark, clock::now());
        if now == *before {
            return Ok(());
        }
        if now.is_empty() && last.is_none() {
            anyhow::bail!("they are gone from {}; remove tokens with `haul token remove`", shared.url());
        }
        now.iter().filter(|token| !before.has(token)).for_each(|token| tell("token-add", token));
        before.iter().filter(|token| !now.has(token)).for_each(|token| tell("token-remove", token));
        self.replace(now);
        Ok(())
    }

    /// Looks at the tokens, and at their ends, for ever. Tells of each that came to a store or went from it: who did
    /// that has no audit log.
    pub(crate) async fn watch(self: Arc<Self>, tell: Box<Tell<'static>>) {
        let mut looked_at = clock::now();
        let (mut stamp, mut seen) = match &self.home {
            Home::Folder(_, stamp) => (*stamp, (None, looked_at)),
            Home::Shared { mark, .. } => (None, (mark.clone(), looked_at)),
        };
        let mut is_in_trouble = false;
        loop {
            match &self.home {
                Home::Folder(folder, _) => {
                    tokio::time::sleep(LOOK_EVERY).await;
                    self.look(folder, &mut stamp);
                }
                Home::Shared { tokens, every, .. } => {
                    tokio::time::sleep(*every).await;
                    let looked = self.look_shared(tokens, &mut seen, &*tell).await;
                    if let (Err(error), false) = (&looked, is_in_trouble) {
                        tracing::error!(error = format!("{error:#}"), "the tokens read last stay in force");
                    }
                    is_in_trouble = looked.is_err();
                }
            }
            let now = clock::now();
            let ended = |at: f64| looked_at < at && at <= now;
            if self.tokens().iter().any(|token| token.expires_at.is_some_and(ended)) {
                self.grow();
            }
            looked_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tests::make;
    use super::super::tokens::{Change, NewToken, Secret};
    use super::*;
    use haul_store::Place;
    use std::sync::Mutex;

    #[test]
    fn without_tokens_all_is_open_and_with_one_it_must_be_shown() {
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::open(folder.path()).unwrap();
        let open = gate.enter_unnamed().unwrap();
        assert_eq!((open.role, open.scope.clone(), open.token()), (Role::Admin, Scope::Any, None));
        let secret = make(folder.path(), "shop", Role::Work, "acme");
        let mut last = None;
        gate.look(folder.path(), &mut last);
        assert!(gate.enter_unnamed().is_none() && gate.renew(&open).is_none());
        let peer = Peer::none();
        let access = gate.enter(None, secret.as_bytes(), &peer).unwrap();
        assert_eq!((access.role, access.token()), (Role::Work, Some("shop")));
        for name in ["shop", "default"] {
            assert!(gate.enter(Some(name.as_bytes()), secret.as_bytes(), &peer).is_ok());
        }
        for (name, secret) in [(Some("other"), secret.as_str()), (None, "haul_x"), (None, "")] {
            let outcome = gate.enter(name.map(str::as_bytes), secret.as_bytes(), &peer);
            assert_eq!(outcome.err(), Some(Denied::Wrong));
        }
    }

    #[test]
    fn removal_is_noticed_and_the_last_one_does_not_open_a_public_server() {
        let folder = tempfile::tempdir().unwrap();
        let secret = make(folder.path(), "shop", Role::Work, "acme");
        for is_closed in [false, true] {
            let gate = Gate::open(folder.path()).unwrap().closed_without_tokens(is_closed);
            let access = gate.enter(None, secret.as_bytes(), &Peer::none()).unwrap();
            let mut last = Stamp::of(&folder.path().join(FILE_NAME));
            gate.look(folder.path(), &mut last);
            assert_eq!(access.generation, gate.generation(), "nothing has changed");
            if !is_closed {
                make(folder.path(), "other", Role::View, "*");
                gate.look(folder.path(), &mut last);
                assert!(gate.renew(&access).is_some_and(|renewed| renewed.generation > access.generation));
                Change::begin(folder.path()).unwrap().remove("other").unwrap();
                continue;
            }
            Change::begin(folder.path()).unwrap().remove("shop").unwrap();
            gate.look(folder.path(), &mut last);
            assert!(gate.renew(&access).is_none() && gate.is_required());
            std::fs::write(folder.path().join(FILE_NAME), "torn").unwrap();
            gate.look(folder.path(), &mut last);
            assert!(gate.enter_unnamed().is_none());
        }
    }

    #[test]
    fn a_token_that_has_ended_is_a_wrong_one() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Secret::new(&[1; 32]);
        let token = |expires_at| NewToken {
            name: format!("t{expires_at}"),
            role: Role::View,
            tenant: Scope::Any,
            expires_at: Some(expires_at),
        };
        Change::begin(folder.path()).unwrap().add(token(2.0), &secret, 1.0).unwrap();
        let gate = Gate::open(folder.path()).unwrap();
        assert_eq!(gate.enter(None, secret.expose().as_bytes(), &Peer::none()).err(), Some(Denied::Wrong));
    }

    #[test]
    fn who_fails_too_often_is_told_so_and_a_right_token_still_counts() {
        let folder = tempfile::tempdir().unwrap();
        let secret = make(folder.path(), "a", Role::View, "*");
        let gate = Gate::open(folder.path()).unwrap();
        let peer = Peer::none();
        for _ in 0..crate::net::FAILURES_MAX {
            assert_eq!(gate.enter(None, b"x", &peer).err(), Some(Denied::Wrong));
        }
        assert_eq!(gate.enter(None, b"x", &peer).err(), Some(Denied::TooOften));
        assert!(gate.enter(None, secret.as_bytes(), &peer).is_ok());
    }

    fn shared(folder: &Path) -> SharedTokens {
        let url = format!("file://{}", folder.display());
        SharedTokens::new(Arc::new(Place::new(&url, &haul_store::Access::default()).unwrap()))
    }

    fn named(name: &str) -> (NewToken, Secret) {
        let new = NewToken { name: name.into(), role: Role::Work, tenant: Scope::Any, expires_at: None };
        (new, Secret::new(&clock::entropy().unwrap()))
    }

    #[tokio::test]
    async fn tokens_of_a_store_are_noticed_told_of_and_kept_when_they_vanish() {
        let folder = tempfile::tempdir().unwrap();
        let store = shared(folder.path());
        let gate = Gate::open_shared(store.clone(), LOOK_EVERY).await.unwrap();
        assert!(gate.enter_unnamed().is_some());
        let told = Mutex::new(Vec::new());
        let tell = |what: &'static str, token: &Token| told.lock().unwrap().push((what, token.name.clone()));
        let mut seen = (None, clock::now());
        let (new, secret) = named("shop");
        assert!(store.add(new, &secret, 1.0).await.unwrap().is_some());
        gate.look_shared(&store, &mut seen, &tell).await.unwrap();
        let access = gate.enter(None, secret.expose().as_bytes(), &Peer::none()).unwrap();
        let (again, other) = named("shop");
        assert!(store.add(again, &other, 1.0).await.unwrap().is_none(), "names are unique");
        let (new, other) = named("ops");
        store.add(new, &other, 1.0).await.unwrap();
        assert!(store.remove("shop").await.unwrap().is_some());
        assert!(store.remove("shop").await.unwrap().is_none());
        gate.look_shared(&store, &mut seen, &tell).await.unwrap();
        assert!(gate.renew(&access).is_none());
        assert!(gate.enter(None, other.expose().as_bytes(), &Peer::none()).is_ok());
        let entry = |what, name: &str| (what, name.to_owned());
        let expected = [entry("token-add", "shop"), entry("token-add", "ops"), entry("token-remove", "shop")];
        assert_eq!(*told.lock().unwrap(), expected);
        // Whoever empties the bucket does not open the server.
        std::fs::remove_dir_all(folder.path()).unwrap();
        std::fs::create_dir(folder.path()).unwrap();
        assert!(gate.look_shared(&store, &mut seen, &tell).await.is_err());
        assert!(gate.enter_unnamed().is_none());
        assert!(gate.enter(None, other.expose().as_bytes(), &Peer::none()).is_ok());
    }

    #[tokio::test]
    async fn a_stores_last_token_that_is_removed_opens_it_as_a_folders_does() {
        let folder = tempfile::tempdir().unwrap();
        let store = shared(folder.path());
        let (new, secret) = named("only");
        store.add(new, &secret, 1.0).await.unwrap();
        let gate = Gate::open_shared(store.clone(), LOOK_EVERY).await.unwrap();
        assert!(gate.enter_unnamed().is_none());
        store.remove("only").await.unwrap();
        gate.look_shared(&store, &mut (None, clock::now()), &|_: &'static str, _: &Token| ()).await.unwrap();
        assert!(gate.enter_unnamed().is_some());
    }

    #[tokio::test]
    async fn a_token_in_a_store_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let store = shared(folder.path());
        std::fs::create_dir(folder.path().join("tokens")).unwrap();
        std::fs::write(folder.path().join("tokens/torn.json"), "{").unwrap();
        let error = Gate::open_shared(store, LOOK_EVERY).await.err().unwrap();
        assert!(format!("{error:#}").contains("tokens/torn.json"), "{error:#}");
    }
}
