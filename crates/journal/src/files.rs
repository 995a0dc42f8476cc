//! The journal's files: `journal.000001` and on, and `journal.pos`, which says up to where all of them are in the store.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::id::{Ids, Sysid};
use crate::record::{Step, step};

/// A place in the journal: everything before it has been dealt with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) file: u64,
    pub(crate) offset: u64,
}

pub(crate) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("journal.{number:06}"))
}

fn place_path(folder: &Path) -> PathBuf {
    folder.join("journal.pos")
}

/// The numbers of the files there are, in order.
pub(crate) fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix("journal."));
        let digits = digits.filter(|text| text.len() >= 6 && text.bytes().all(|byte| byte.is_ascii_digit()));
        found.extend(digits.and_then(|text| text.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Where reading goes on. A missing or damaged note means from the beginning: the store knows what it has.
pub(crate) fn read_place(folder: &Path) -> Place {
    let text = fs::read_to_string(place_path(folder)).unwrap_or_default();
    let parsed = text.trim_end().rsplit_once(' ').and_then(|(place, sum)| {
        let (file, offset) = place.split_once(' ')?;
        let fits = format!("{:08x}", crc32fast::hash(place.as_bytes())) == sum;
        fits.then_some(Place { file: file.parse().ok()?, offset: offset.parse().ok()? })
    });
    parsed.unwrap_or_default()
}

/// Notes where reading goes on. Not synced: an older note only means that more is read again.
pub(crate) fn write_place(folder: &Path, place: Place) -> io::Result<()> {
    let text = format!("{} {}", place.file, place.offset);
    let new = folder.join("journal.pos.new");
    fs::write(&new, format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes())))?;
    fs::rename(new, place_path(folder))
}

pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub(crate) fn create(folder: &Path, number: u64) -> io::Result<File> {
    let file = File::options().append(true).create_new(true).open(path(folder, number))?;
    sync_folder(folder)?;
    Ok(file)
}

pub(crate) fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut file = file;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::with_capacity(length);
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Up to where the records of a file are whole; what is not a job between them does not matter.
fn whole_bytes(text: &[u8], ids: &Ids) -> usize {
    let mut at = 0;
    while at < text.len() {
        match step(text, at, ids) {
            Step::Jobs { next, .. } | Step::Skip { next } | Step::Junk { next } => at = next,
            Step::Torn => break,
        }
    }
    at
}

/// Cuts off what a crash left unfinished at the end of a file; it was never acknowledged. What is cut off is kept beside
/// the file, in case it was not a crash but a damaged header. Answers how many bytes that were.
pub(crate) fn mend(folder: &Path, number: u64, ids: &Ids) -> io::Result<u64> {
    let path = path(folder, number);
    let text = fs::read(&path)?;
    let whole = whole_bytes(&text, ids);
    let torn = text.get(whole..).unwrap_or_default();
    if torn.is_empty() {
        return Ok(0);
    }
    let mut kept =
        File::options().append(true).create(true).open(path.with_extension(format!("{number:06}.torn")))?;
    kept.write_all(torn)?;
    kept.sync_all()?;
    let file = File::options().write(true).open(&path)?;
    file.set_len(whole as u64)?;
    file.sync_all()?;
    Ok(torn.len() as u64)
}

/// What a journal holds, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Each file: its name, bytes, jobs, lines that are no job, bytes torn off its end.
    pub files: Vec<(String, u64, usize, usize, u64)>,
    /// Which file is read, and up to where.
    pub read_to: (u64, u64),
    /// Jobs behind that place.
    pub unread: usize,
}

/// Looks at a journal without changing it.
pub fn inspect(folder: &Path) -> io::Result<Inspection> {
    let ids = Ids::new(Sysid::new("", 0));
    let place = read_place(folder);
    let mut seen = Inspection { read_to: (place.file, place.offset), ..Inspection::default() };
    for number in numbers(folder)? {
        let text = fs::read(path(folder, number))?;
        let (mut at, mut jobs, mut junk) = (0, 0, 0);
        while at < text.len() {
            match step(&text, at, &ids) {
                Step::Jobs { next, jobs: found } => {
                    jobs += found.len();
                    let here = Place { file: number, offset: at as u64 };
                    seen.unread += if here >= place { found.len() } else { 0 };
                    at = next;
                }
                Step::Skip { next } => at = next,
                Step::Junk { next } => (junk, at) = (junk + 1, next),
                Step::Torn => break,
            }
        }
        let name = format!("journal.{number:06}");
        seen.files.push((name, text.len() as u64, jobs, junk, (text.len() - at) as u64));
    }
    Ok(seen)
}
