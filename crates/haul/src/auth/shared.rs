//! The tokens of nodes that share a store: an object for each token, `tokens/NAME.json`, of the same form as the file of a data
//! folder. To make one is to create its object, only if it is absent: two who change tokens at once need no lock.
//! After each change a mark is written; nodes look at the mark alone, and read the tokens when it is another one.

use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use haul_store::Place;

use super::tokens::{NewToken, Secret, TOKENS_MAX, Token, Tokens};
use crate::clock;

const FOLDER: &str = "tokens";
const MARK: &str = "tokens-changed";
/// Tokens read at once.
const READS_AT_ONCE: usize = 32;

/// Those of one store.
#[derive(Clone)]
pub(crate) struct SharedTokens {
    place: Arc<Place>,
}

impl SharedTokens {
    pub(crate) fn new(place: Arc<Place>) -> Self {
        SharedTokens { place }
    }

    pub(crate) fn url(&self) -> &str {
        self.place.url()
    }

    /// What changes with every change.
    pub(crate) async fn mark(&self) -> anyhow::Result<Option<Bytes>> {
        Ok(self.place.read(MARK).await?)
    }

    async fn names(&self) -> anyhow::Result<Vec<String>> {
        let listed = self.place.list(FOLDER).await?;
        Ok(listed.into_iter().map(|one| one.name).filter(|name| name.ends_with(".json")).collect())
    }

    /// All of them, by name.
    pub(crate) async fn read(&self) -> anyhow::Result<Tokens> {
        let mut names = self.names().await?;
        names.sort_unstable();
        let reads = names.into_iter().map(|name| self.read_one(name));
        let all: Vec<Tokens> =
            futures_util::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
        Ok(Tokens::joined(&all))
    }

    /// One that was removed meanwhile is none.
    async fn read_one(&self, name: String) -> anyhow::Result<Tokens> {
        let at = format!("{FOLDER}/{name}");
        let Some(bytes) = self.place.read(&at).await? else { return Ok(Tokens::default()) };
        Tokens::parse(&bytes).with_context(|| {
            format!(
                "the token in {}/{at} cannot be read; remove that object and make a new token",
                self.url()
            )
        })
    }

    /// None: there is a token of this name already.
    pub(crate) async fn add(
        &self,
        new: NewToken,
        secret: &Secret,
        now: f64,
    ) -> anyhow::Result<Option<Token>> {
        let token = new.token(secret, now);
        Ok(self.create(&token).await?.then_some(token))
    }

    /// False: there is one of this name already.
    pub(crate) async fn create(&self, token: &Token) -> anyhow::Result<bool> {
        if self.names().await?.len() >= TOKENS_MAX {
            bail!("there are {TOKENS_MAX} tokens, which is the most there can be; remove some first");
        }
        let bytes: Bytes = Tokens::joined(&[]).with(token.clone()).document()?.into();
        let is_new = self.place.create(&object(&token.name), bytes.clone()).await?
            // Or an attempt of this very call whose answer was lost: every token's hash is its own.
            || self.place.read(&object(&token.name)).await? == Some(bytes);
        if is_new {
            self.tell().await?;
        }
        Ok(is_new)
    }

    /// None: there is no token of this name.
    pub(crate) async fn remove(&self, name: &str) -> anyhow::Result<Option<Token>> {
        let found = self.read_one(format!("{name}.json")).await?;
        let Some(token) = found.iter().next().cloned() else { return Ok(None) };
        self.place.remove(&object(name)).await?;
        self.tell().await?;
        Ok(Some(token))
    }

    async fn tell(&self) -> anyhow::Result<()> {
        let mark: String = clock::random_id().iter().map(|byte| format!("{byte:02x}")).collect();
        let told = self.place.write(MARK, mark.into()).await;
        told.context("it is done, but the nodes will notice only within a minute")
    }
}

fn object(name: &str) -> String {
    format!("{FOLDER}/{name}.json")
}
