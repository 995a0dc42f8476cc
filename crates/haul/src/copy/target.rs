//! Where records go. None can be served before it is whole: a folder and a file have another name until then, a bucket has
//! a mark that `haul serve` refuses.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use haul_store::{Batch, DiskOptions, DiskStore, ObjectOptions, ObjectStore, Place, Space, Store};

use super::Record;
use super::file::{Reader, Writer, write_end, write_start};
use super::source::pass;
use crate::cluster::Meta;

/// A batch is written when this much has gathered.
const BATCH_BYTES: usize = 4 << 20;

/// A data set in the making.
pub(crate) enum Target {
    Stores { stores: Vec<Box<dyn Store>>, gathered: Vec<(Batch, usize)>, end: End },
    File { path: PathBuf, writer: Option<Writer<BufWriter<File>>>, shards: u32 },
}

/// What makes it whole.
pub(crate) enum End {
    /// The folder gets its name.
    Folder(PathBuf),
    /// The mark goes.
    Bucket(Arc<Place>),
}

/// The name until it is whole.
fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

impl Target {
    pub(crate) fn folder(path: PathBuf) -> anyhow::Result<Self> {
        let is_free = match std::fs::read_dir(&path) {
            Ok(mut entries) => entries.next().is_none(),
            Err(_) => !path.exists(),
        };
        if !is_free {
            bail!("{} exists already; name a new folder", path.display());
        }
        let store = DiskStore::open(DiskOptions::new(partial(&path)))?;
        Ok(Target::Stores {
            stores: vec![Box::new(store)],
            gathered: vec![Default::default()],
            end: End::Folder(path),
        })
    }

    /// The caller has marked the bucket (`Meta::begin_copy`). Blocks: not for threads of a runtime.
    pub(crate) fn bucket(place: Arc<Place>, meta: &Meta, options: &ObjectOptions) -> anyhow::Result<Self> {
        let open = |shard| {
            let options =
                ObjectOptions { place: place.clone(), folder: Meta::folder(shard), ..options.clone() };
            ObjectStore::open(&options).map(|store| Box::new(store) as Box<dyn Store>)
        };
        let stores = (0..meta.shards).map(open).collect::<Result<Vec<_>, _>>()?;
        let gathered = stores.iter().map(|_| Default::default()).collect();
        Ok(Target::Stores { stores, gathered, end: End::Bucket(place) })
    }

    pub(crate) fn file(path: PathBuf, shards: u32) -> anyhow::Result<Self> {
        if path.exists() {
            bail!("{} exists already; name a new file", path.display());
        }
        let at = partial(&path);
        let file = File::create(&at).with_context(|| format!("{} cannot be written", at.display()))?;
        let mut out = BufWriter::new(file);
        write_start(&mut out, shards)?;
        Ok(Target::File { path, writer: Some(Writer::new(out)), shards })
    }

    pub(crate) fn shards(&self) -> u32 {
        match self {
            Target::Stores { stores, .. } => u32::try_from(stores.len()).unwrap_or(1),
            Target::File { shards, .. } => *shards,
        }
    }

    pub(crate) fn put(&mut self, record: Record) -> anyhow::Result<()> {
        match self {
            Target::File { writer, .. } => Ok(writer.as_mut().context("the file is whole")?.put(record)?),
            Target::Stores { gathered, .. } => {
                let shard = record.shard as usize;
                let (batch, bytes) = gathered.get_mut(shard).context("no such shard")?;
                *bytes += record.key.len() + record.value.len();
                batch.put(record.space, record.key, record.value);
                if *bytes >= BATCH_BYTES { self.write(shard) } else { Ok(()) }
            }
        }
    }

    /// Removes what the source does not have.
    pub(crate) fn delete(&mut self, shard: u32, space: Space, key: Bytes) -> anyhow::Result<()> {
        let Target::Stores { gathered, .. } = self else { return Ok(()) };
        gathered.get_mut(shard as usize).context("no such shard")?.0.delete(space, key);
        Ok(())
    }

    fn write(&mut self, shard: usize) -> anyhow::Result<()> {
        let Target::Stores { stores, gathered, .. } = self else { return Ok(()) };
        let (Some(store), Some(batch)) = (stores.get_mut(shard), gathered.get_mut(shard)) else {
            return Ok(());
        };
        let (batch, _) = std::mem::take(batch);
        if !batch.is_empty() {
            store.commit(batch)?;
        }
        Ok(())
    }

    /// Everything is written.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        match self {
            Target::Stores { stores, .. } => (0..stores.len()).try_for_each(|shard| self.write(shard)),
            Target::File { writer, .. } => {
                let Some(writer) = writer.take() else { return Ok(()) };
                let (mut out, records) = writer.finish()?;
                write_end(&mut out, records)?;
                out.flush()?;
                Ok(out.get_ref().sync_all()?)
            }
        }
    }

    /// Hands out what is there. A file has nothing before it is whole.
    pub(crate) fn each(&mut self, each: &mut dyn FnMut(Record) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match self {
            Target::Stores { stores, .. } => (0_u32..)
                .zip(stores)
                .try_for_each(|(shard, store)| pass(shard, each, |out| store.bodies().copy(out))),
            Target::File { writer: Some(_), .. } => Ok(()),
            Target::File { path, .. } => Reader::new(BufReader::new(File::open(partial(path))?))?.each(each),
        }
    }

    /// It is whole: closes it, under its own name. The place whose mark must go, if it is in one.
    pub(crate) fn finish(self) -> anyhow::Result<Option<Arc<Place>>> {
        match self {
            Target::File { path, .. } => {
                std::fs::rename(partial(&path), &path)?;
                Ok(None)
            }
            Target::Stores { stores, end, .. } => {
                stores.into_iter().try_for_each(Store::close)?;
                match end {
                    End::Bucket(place) => Ok(Some(place)),
                    End::Folder(path) => {
                        if path.exists() {
                            std::fs::remove_dir(&path)?;
                        }
                        std::fs::rename(partial(&path), &path)?;
                        Ok(None)
                    }
                }
            }
        }
    }
}
