//! The folder: its lock, its format, what is not ours, reading only.

use super::*;

#[test]
fn a_second_store_is_told_who_has_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let first = DiskStore::open(small(folder.path())).unwrap();
    let second = DiskStore::open(small(folder.path())).err().unwrap();
    let pid = std::process::id();
    assert_eq!(second, Fault::Locked { path: folder.path().to_owned(), pid: Some(pid) });
    assert!(second.to_string().contains(&pid.to_string()), "{second}");
    drop(first);
    DiskStore::open(small(folder.path())).unwrap();
}

#[test]
fn another_process_with_the_lock_is_named() {
    let folder = tempfile::tempdir().unwrap();
    drop(DiskStore::open(small(folder.path())).unwrap());
    let lock = folder.path().join("LOCK");
    // flock(1) takes the lock, notes its shell's number, and holds on until its input ends.
    let script = format!("echo $$ > {0} && echo ready && read line", lock.display());
    let mut other = std::process::Command::new("flock")
        .arg(&lock)
        .args(["sh", "-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    io::BufRead::read_line(&mut io::BufReader::new(other.stdout.take().unwrap()), &mut ready).unwrap();
    let fault = DiskStore::open(small(folder.path())).err().unwrap();
    assert!(matches!(fault, Fault::Locked { pid: Some(pid), .. } if pid != std::process::id()), "{fault}");
    drop(other.stdin.take());
    other.wait().unwrap();
    DiskStore::open(small(folder.path())).unwrap();
}

#[test]
fn a_newer_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("FORMAT"), "haul-data 99\ncreated by haul-store 9.9.9\n").unwrap();
    let fault = DiskStore::open(small(folder.path())).err();
    assert_eq!(fault, Some(Fault::Format { found: 99, known: 1 }));
    fs::write(folder.path().join("FORMAT"), "shopping list").unwrap();
    assert!(matches!(DiskStore::open(small(folder.path())).err(), Some(Fault::Corrupt { .. })));
}

#[test]
fn a_folder_with_foreign_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.txt"), "mine").unwrap();
    let fault = DiskStore::open(small(folder.path())).err().unwrap();
    assert!(matches!(&fault, Fault::Unusable { what, .. } if what.contains("thesis.txt")), "{fault}");
    fs::remove_file(folder.path().join("thesis.txt")).unwrap();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    DiskStore::open(small(folder.path())).unwrap();
}

#[test]
fn a_path_that_is_a_file_is_unusable() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(DiskStore::open(small(file.path())).err(), Some(Fault::Unusable { .. })));
}

#[test]
fn reading_only_leaves_the_log_alone_and_refuses_commits() {
    let folder = tempfile::tempdir().unwrap();
    let read_only = DiskOptions { read_only: true, ..small(folder.path()) };
    assert!(matches!(DiskStore::open(read_only.clone()).err(), Some(Fault::Unusable { .. })), "no data yet");
    let mut store = DiskStore::open(small(folder.path())).unwrap();
    store.commit(put("a", "1")).unwrap();
    drop(store);
    let before: Vec<_> = segments(folder.path()).into_iter().map(|path| fs::read(path).unwrap()).collect();
    let mut store = DiskStore::open(read_only).unwrap();
    assert_eq!(keys(&mut store), ["a"]);
    assert_eq!(store.commit(put("b", "1")), Err(Fault::ReadOnly));
    Box::new(store).close().unwrap();
    let after: Vec<_> = segments(folder.path()).into_iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(!before.is_empty() && before == after);
}

#[test]
fn a_closed_store_leaves_one_segment_as_a_witness() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(small(folder.path())).unwrap();
    store.commit(put("a", "1")).unwrap();
    Box::new(store).close().unwrap();
    assert_eq!(segments(folder.path()).len(), 1);
    assert_eq!(keys(&mut DiskStore::open(small(folder.path())).unwrap()), ["a"]);
}
