//! What a data set in a bucket is: written once, when it is made.

use anyhow::{Context, bail};
use haul_store::Place;
use serde::{Deserialize, Serialize};

use crate::clock;

/// Where it lies.
const OBJECT: &str = "haul.json";
/// Lies there while a copy is not whole.
const COPYING: &str = "copying";
/// The layout of the bucket.
const FORMAT: u32 = 1;
/// Shards of a new data set, unless set.
const SHARDS: u32 = 8;
/// The most there may be.
pub(crate) const SHARDS_MAX: u32 = 4096;

/// The data set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) format: u32,
    /// How many shards the tenants are spread over; fixed.
    pub(crate) shards: u32,
    /// What nodes of this data set prove to each other that they know. Who can read the bucket can read all jobs anyway.
    pub(crate) secret: String,
    pub(crate) created_at: f64,
}

impl Meta {
    /// Reads it; none: there is no data set.
    pub(crate) async fn read(place: &Place) -> anyhow::Result<Option<Meta>> {
        let Some(bytes) = place.read(OBJECT).await? else { return Ok(None) };
        let meta: Meta = serde_json::from_slice(&bytes)
            .with_context(|| format!("{}/{OBJECT} is damaged; restore it from a backup", place.url()))?;
        if meta.format > FORMAT {
            bail!(
                "the data in {} has format {}, this Haul knows formats up to {FORMAT}: use a newer Haul",
                place.url(),
                meta.format
            );
        }
        Ok(Some(meta))
    }

    /// Makes the data set that a copy goes to, marked as not whole; or goes on with one that was begun.
    pub(crate) async fn begin_copy(place: &Place, shards: Option<u32>) -> anyhow::Result<Meta> {
        if !Self::is_partial(place).await? {
            if Self::read(place).await?.is_some() {
                bail!("there is a data set in {} already; name another place", place.url());
            }
            place.write(COPYING, "a copy that is not whole yet\n".into()).await?;
        }
        Self::make(place, shards).await
    }

    /// Whether there is a copy that is not whole.
    pub(crate) async fn is_partial(place: &Place) -> anyhow::Result<bool> {
        Ok(place.read(COPYING).await?.is_some())
    }

    /// The copy is whole.
    pub(crate) async fn end_copy(place: &Place) -> anyhow::Result<()> {
        Ok(place.remove(COPYING).await?)
    }

    /// Reads it, or makes the data set.
    pub(crate) async fn open(place: &Place, shards: Option<u32>) -> anyhow::Result<Meta> {
        if Self::is_partial(place).await? {
            bail!(
                "the copy in {} is not whole: run the same `haul copy` again, which goes on where it was",
                place.url()
            );
        }
        Self::make(place, shards).await
    }

    async fn make(place: &Place, shards: Option<u32>) -> anyhow::Result<Meta> {
        if let Some(meta) = Self::read(place).await? {
            return meta.with_shards(shards, place);
        }
        let secret: String = clock::entropy()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let shards_new = shards.unwrap_or(SHARDS);
        let meta = Meta { format: FORMAT, shards: shards_new, secret, created_at: clock::now() };
        if place.create(OBJECT, serde_json::to_vec_pretty(&meta)?.into()).await? {
            return Ok(meta);
        }
        // Another node was first.
        let meta = Self::read(place).await?.context("the data set vanished while it was made")?;
        meta.with_shards(shards, place)
    }

    fn with_shards(self, wanted: Option<u32>, place: &Place) -> anyhow::Result<Meta> {
        match wanted {
            Some(wanted) if wanted != self.shards => bail!(
                "the data in {} has {} shards, not {wanted}; the count is fixed when the data is made. Leave out --shards, or copy the data to a new place with `haul copy --shards {wanted}`",
                place.url(),
                self.shards
            ),
            _ => Ok(self),
        }
    }

    /// The folder of a shard's database.
    pub(crate) fn folder(shard: u32) -> String {
        format!("shards/{shard:04}")
    }
}
