//! Whole data sets from one place to another: a folder, a bucket, a file (`haul backup`). What is copied is verified by
//! reading it again; a copy that was cut off goes on where it was when it is asked for again.
//!
//! - `source`: where records come from; `target`: where they go; `file`: a data set in one file.
//! - here: what happens to a record on the way, and the copy itself.
//!
//! All jobs of a tenant lie in one shard. Where the number of shards differs, each header goes to its tenant's shard and
//! takes its bodies along; bodies of different shards may have the same number, so they get new ones.

mod file;
mod source;
mod target;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use hashbrown::HashMap;
use haul_engine::{BodyId, renumber, tenant_of};
use haul_store::Space;
use sha2::{Digest, Sha256};

pub(crate) use file::{Reader, Writer, write_end, write_start};
pub(crate) use source::Source;
pub(crate) use target::Target;

use crate::cluster::shard_of;

/// A record on its way.
pub(crate) struct Record {
    pub(crate) shard: u32,
    pub(crate) space: Space,
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Those that were there already.
    pub(crate) kept: u64,
    pub(crate) digest: u128,
}

impl Copied {
    pub(crate) fn add(&mut self, record: &Record) -> u128 {
        let digest = digest(record);
        self.records += 1;
        self.bytes += (record.key.len() + record.value.len()) as u64;
        self.digest = self.digest.wrapping_add(digest);
        digest
    }
}

/// A fingerprint; those of all records, in any order, add up to that of the data set.
fn digest(record: &Record) -> u128 {
    let mut hash = Sha256::new();
    hash.update(record.shard.to_le_bytes());
    hash.update([u8::from(record.space == Space::Body)]);
    hash.update((record.key.len() as u64).to_le_bytes());
    hash.update(&record.key);
    hash.update(&record.value);
    let bytes: [u8; 32] = hash.finalize().into();
    let (half, _) = bytes.split_at(16);
    half.try_into().map_or(0, u128::from_le_bytes)
}

/// Where records of one number of shards go when there is another.
struct Moves {
    from: u32,
    to: u32,
    /// The shard that a body's header went to; filled by headers, emptied by bodies.
    homes: HashMap<(u32, BodyId), u32>,
}

impl Moves {
    /// Where the record goes, and as what. Headers come before bodies. None: a body that no header names.
    fn moved(&mut self, record: Record) -> anyhow::Result<Option<Record>> {
        if self.from == self.to {
            return Ok(Some(record));
        }
        let source = record.shard;
        let anew =
            |id: BodyId| BodyId(id.0.wrapping_mul(u64::from(self.from)).wrapping_add(u64::from(source)));
        match record.space {
            Space::Header => {
                let shard = shard_of(&tenant_of(&record.key)?, self.to);
                let mut named = Vec::new();
                let value = renumber(&record.key, &record.value, &mut |id| {
                    named.push(*id);
                    *id = anew(*id);
                })?;
                self.homes.extend(named.into_iter().map(|id| ((source, id), shard)));
                // What is not a job is left as it is, fields of later builds and all.
                Ok(Some(Record { shard, value: value.into(), ..record }))
            }
            Space::Body => {
                let Some(id) = BodyId::from_key(&record.key) else { return Ok(None) };
                let Some(shard) = self.homes.remove(&(source, id)) else { return Ok(None) };
                let key = Bytes::copy_from_slice(&anew(id).key());
                Ok(Some(Record { shard, key, ..record }))
            }
        }
    }
}

/// How far it is: records so far, and the part that they are of all, where that is known.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(Stage, &Copied, Option<f64>);

/// How much there is to copy, as well as it is known beforehand; 0 of anything is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Records(u64),
    Bytes(u64),
    /// One after the other.
    Shards(u32),
}

impl Extent {
    /// The part that is done, when a record of this shard is at hand. Estimates are never whole before the end.
    pub(crate) fn part(self, copied: &Copied, shard: u32) -> Option<f64> {
        let (done, all) = match self {
            Extent::Records(all) => (copied.records as f64, all as f64),
            Extent::Bytes(all) => (copied.bytes as f64, all as f64),
            Extent::Shards(all) => (f64::from(shard), f64::from(all)),
        };
        (all > 0.0).then(|| (done / all).min(0.99))
    }
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Looking,
    Copying,
    Verifying,
}

/// Copies everything and reads it again. What the target has already, from a copy that was cut off, stays; what it has
/// besides goes.
pub(crate) fn copy(
    source: &mut Source,
    target: &mut Target,
    progress: Progress<'_>,
) -> anyhow::Result<Copied> {
    let mut there: HashMap<(u32, Space, Bytes), u128> = HashMap::new();
    let mut seen = Copied::default();
    target.each(&mut |record| {
        let digest = seen.add(&record);
        there.insert((record.shard, record.space, record.key), digest);
        progress(Stage::Looking, &seen, None);
        Ok(())
    })?;
    let mut copied = Copied::default();
    let extent = source.extent();
    let mut moves = Moves { from: source.shards(), to: target.shards(), homes: HashMap::new() };
    source.each(&mut |record| {
        let from = record.shard;
        let Some(record) = moves.moved(record)? else { return Ok(()) };
        let digest = copied.add(&record);
        progress(Stage::Copying, &copied, extent.part(&copied, from));
        let old = match there.is_empty() {
            true => None,
            false => there.remove(&(record.shard, record.space, record.key.clone())),
        };
        if old == Some(digest) {
            copied.kept += 1;
            return Ok(());
        }
        target.put(record)
    })?;
    for (shard, space, key) in there.into_keys() {
        target.delete(shard, space, key)?;
    }
    target.flush()?;
    let mut read = Copied::default();
    target.each(&mut |record| {
        read.add(&record);
        progress(Stage::Verifying, &read, Extent::Records(copied.records).part(&read, 0));
        Ok(())
    })?;
    if (read.records, read.digest) != (copied.records, copied.digest) {
        anyhow::bail!(
            "the copy has {} records and is not what was written ({} records): copy again",
            read.records,
            copied.records
        );
    }
    Ok(copied)
}
