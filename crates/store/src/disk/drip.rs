//! What the base writes, synced while it is written. It syncs its files itself, but only when they are whole: some ten megabytes at
//! once, and a sync of the log that comes then waits for all of them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::bites::{Bites, moment};
use super::io::Io;

/// Bytes given to the base between two syncs.
const PART_BYTES: usize = 1 << 20;

/// The files that have come into some folders since.
pub(crate) struct Drip<'a> {
    io: &'a dyn Io,
    folders: Vec<PathBuf>,
    known: HashSet<PathBuf>,
    bytes: usize,
}

impl<'a> Drip<'a> {
    /// Those that are there are of no interest; nor is a folder that is not.
    pub(crate) fn new(io: &'a dyn Io, folders: Vec<PathBuf>) -> Self {
        let known = folders.iter().filter_map(|folder| files(folder).ok()).flatten().collect();
        Drip { io, folders, known, bytes: 0 }
    }

    /// So much was written. Failures are the base's to find: its own syncs are told too.
    pub(crate) fn wrote(&mut self, bytes: usize, bites: &mut Bites<'_>) {
        self.bytes += bytes;
        if self.bytes < PART_BYTES {
            return;
        }
        self.bytes = 0;
        let began = moment();
        for path in self.folders.iter().filter_map(|folder| files(folder).ok()).flatten() {
            if !self.known.contains(&path) {
                let _ = File::open(path).and_then(|file| self.io.sync(&file));
            }
        }
        bites.rest_after(moment().saturating_sub(began));
    }
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Io for Counted {
        fn sync(&self, _: &File) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(io::Error::other("whoever wrote it is told too"))
        }
    }

    #[test]
    fn only_what_has_come_since_is_synced_and_only_now_and_then() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), "x").unwrap();
        let (io, urgent) = (Counted::default(), || true);
        let mut bites = Bites::new(&urgent);
        let mut drip = Drip::new(&io, vec![folder.path().to_owned(), folder.path().join("none")]);
        drip.wrote(PART_BYTES, &mut bites);
        assert_eq!(io.0.load(Ordering::Relaxed), 0, "there is nothing new");
        for name in ["new", "newer"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        drip.wrote(PART_BYTES - 1, &mut bites);
        assert_eq!(io.0.load(Ordering::Relaxed), 0, "not enough was written");
        drip.wrote(1, &mut bites);
        assert_eq!(io.0.load(Ordering::Relaxed), 2);
    }
}
