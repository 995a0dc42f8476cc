//! Where records come from.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use haul_store::{
    DiskOptions, DiskStore, EachRecord, Fault, ObjectOptions, ObjectReader, Place, Space, Store as _,
};

use super::file::Reader;
use super::{Extent, Record};
use crate::cluster::Meta;

/// A data set to be read.
pub(crate) enum Source {
    /// A data folder that no server has open.
    Folder(Box<DiskStore>),
    /// A store that nodes may be serving.
    Bucket { options: ObjectOptions, shards: u32 },
    /// A backup.
    File { path: PathBuf, shards: u32 },
}

impl Source {
    pub(crate) fn folder(path: PathBuf) -> anyhow::Result<Self> {
        anyhow::ensure!(path.is_dir(), "there is no data folder {}", path.display());
        let options = DiskOptions { read_only: true, ..DiskOptions::new(path) };
        let opened = DiskStore::open(options);
        Ok(Source::Folder(Box::new(opened.map_err(|fault| {
            match fault {
                locked @ Fault::Locked { .. } => anyhow::Error::new(locked)
                    .context("stop the server, or use `haul backup`, which copies from a running one"),
                fault => fault.into(),
            }
        })?)))
    }

    pub(crate) fn bucket(place: &Arc<Place>, meta: &Meta, options: ObjectOptions) -> Self {
        Source::Bucket { options: ObjectOptions { place: place.clone(), ..options }, shards: meta.shards }
    }

    pub(crate) fn file(path: PathBuf) -> anyhow::Result<Self> {
        let shards = open(&path)?.shards;
        Ok(Source::File { path, shards })
    }

    pub(crate) fn shards(&self) -> u32 {
        match self {
            Source::Folder(_) => 1,
            Source::Bucket { shards, .. } | Source::File { shards, .. } => *shards,
        }
    }

    /// What tells how far a copy of it is.
    pub(crate) fn extent(&self) -> Extent {
        match self {
            Source::Folder(store) => Extent::Records(store.bodies().about().unwrap_or(0)),
            Source::Bucket { shards, .. } => Extent::Shards(*shards),
            Source::File { path, .. } => Extent::Bytes(path.metadata().map_or(0, |file| file.len())),
        }
    }

    /// Hands out every record; of each shard headers first, as of one moment.
    pub(crate) fn each(&mut self, each: &mut dyn FnMut(Record) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match self {
            Source::Folder(store) => pass(0, each, |out| store.bodies().copy(out)),
            Source::Bucket { options, shards } => (0..*shards).try_for_each(|shard| {
                let options = ObjectOptions { folder: Meta::folder(shard), ..options.clone() };
                let Some(reader) = ObjectReader::open_existing(&options)? else { return Ok(()) };
                pass(shard, each, |out| reader.copy(out))?;
                Ok(reader.close()?)
            }),
            Source::File { path, .. } => open(path)?.each(each),
        }
    }
}

fn open(path: &std::path::Path) -> anyhow::Result<Reader<BufReader<File>>> {
    let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Reader::new(BufReader::new(file)).with_context(|| format!("{} cannot be used", path.display()))
}

/// Hands a store's records on; an error of who takes them is not lost on the way through the store.
pub(super) fn pass(
    shard: u32,
    each: &mut dyn FnMut(Record) -> anyhow::Result<()>,
    copy: impl FnOnce(EachRecord<'_>) -> Result<(), Fault>,
) -> anyhow::Result<()> {
    let mut failed = None;
    let passed = copy(&mut |space: Space, key, value| {
        let record =
            Record { shard, space, key: Bytes::copy_from_slice(key), value: Bytes::copy_from_slice(value) };
        each(record).map_err(|error| {
            let fault = Fault::Retry { what: error.to_string() };
            failed = Some(error);
            fault
        })
    });
    passed.map_err(|fault| failed.unwrap_or_else(|| fault.into()))
}
