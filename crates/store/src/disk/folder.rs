//! The data folder: one process at a time (`LOCK`), one known format (`FORMAT`). Nothing else in the
//! folder is looked at before both are settled.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::io::sync_folder;
use crate::Fault;

/// The newest format of the folder as a whole. To change it:
/// 1. raise this number; 2. say in `FORMAT.md` what is different; 3. teach `open` to read the old one;
/// 4. keep a folder of the old one as a fixture in the tests.
pub(crate) const FORMAT: u32 = 1;

const LOCK_NAME: &str = "LOCK";
const FORMAT_NAME: &str = "FORMAT";
const FORMAT_DRAFT: &str = "FORMAT.new";
/// What an empty data folder may contain: our own beginnings, a file system's root, and tokens made before the first
/// start.
const HARMLESS: [&str; 7] =
    [LOCK_NAME, FORMAT_DRAFT, "lost+found", "tokens.json", "tokens.json.new", "tokens.lock", "audit.log"];

/// A locked data folder of a known format; the lock goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Locks the folder and checks its format. Creates both unless `read_only`.
    pub(crate) fn open(path: &Path, read_only: bool) -> Result<Self, Fault> {
        let unusable = |error: io::Error| Fault::Unusable { path: path.to_owned(), what: error.to_string() };
        if !read_only {
            fs::create_dir_all(path).map_err(unusable)?;
        }
        let lock = lock(path)?;
        match fs::read_to_string(path.join(FORMAT_NAME)) {
            Ok(text) => check_format(path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                check_empty(path)?;
                if read_only {
                    return Err(Fault::Unusable {
                        path: path.to_owned(),
                        what: "it has no data yet".to_owned(),
                    });
                }
                create_format(path).map_err(unusable)?;
            }
            Err(error) => return Err(unusable(error)),
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where fjall lives.
    pub(crate) fn base(&self) -> PathBuf {
        self.path.join("base")
    }

    /// Where the log's segments are.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }
}

fn lock(path: &Path) -> Result<File, Fault> {
    let unusable = |error: io::Error| Fault::Unusable { path: path.to_owned(), what: error.to_string() };
    let name = path.join(LOCK_NAME);
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(name).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(Fault::Locked { path: path.to_owned(), pid });
        }
        Err(TryLockError::Error(error)) => return Err(unusable(error)),
    }
    // The number is only for the message to a second process: a full disk must not stop a start here.
    let noted = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    if let Err(error) = noted {
        tracing::warn!(%error, "could not note the process number in the lock file");
    }
    Ok(file)
}

fn check_format(path: &Path, text: &str) -> Result<(), Fault> {
    let version = text.lines().next().and_then(|line| line.strip_prefix("haul-data "));
    let Some(found) = version.and_then(|version| version.trim().parse::<u32>().ok()) else {
        let what =
            format!("{}: does not start with \"haul-data\" and a number", path.join(FORMAT_NAME).display());
        return Err(Fault::Corrupt { what });
    };
    if found > FORMAT { Err(Fault::Format { found, known: FORMAT }) } else { Ok(()) }
}

fn check_empty(path: &Path) -> Result<(), Fault> {
    let unusable = |what: String| Fault::Unusable { path: path.to_owned(), what };
    for entry in fs::read_dir(path).map_err(|error| unusable(error.to_string()))? {
        let name = entry.map_err(|error| unusable(error.to_string()))?.file_name();
        let name = name.to_string_lossy();
        if !HARMLESS.contains(&name.as_ref()) {
            return Err(unusable(format!(
                "it is not empty (it has {name:?}) and has no {FORMAT_NAME} file: give an empty folder, or a Haul one"
            )));
        }
    }
    Ok(())
}

fn create_format(path: &Path) -> io::Result<()> {
    let draft = path.join(FORMAT_DRAFT);
    let mut file = File::create(&draft)?;
    write!(file, "haul-data {FORMAT}\ncreated by haul-store {}\n", env!("CARGO_PKG_VERSION"))?;
    file.sync_all()?;
    fs::rename(draft, path.join(FORMAT_NAME))?;
    sync_folder(path)?;
    // The folder's own name, too: a power cut must not take a new data folder away as a whole.
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or(Ok(()), sync_folder)
}
