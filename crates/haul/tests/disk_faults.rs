//! What the disk can do to a server: fill up, tear the last write, flip a bit, be read-only, be somebody else's. Nothing
//! acknowledged is lost, nothing panics, and the message says which file and what to do.
//!
//! Failing syncs and lost answers need a disk that obeys: `src/shard/tests.rs` has those.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

mod support;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use haul_client::resp::Frame;
use support::{Client, Random, Refused, Server, assert_healthy, doctor, error_text, eventually, text};

/// A file system of its own, gone with the value. None (with the reason printed) where the test may not mount one.
struct Mount {
    folder: tempfile::TempDir,
}

impl Mount {
    fn new(options: &str) -> Option<Mount> {
        let folder = tempfile::tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).output();
        match mount {
            Ok(output) if output.status.success() => Some(Mount { folder }),
            Ok(output) => {
                eprintln!(
                    "skipped: no file system can be mounted: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                None
            }
            Err(error) => {
                eprintln!("skipped: there is no mount command: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn remount(&self, options: &str) {
        let status =
            Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path()).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

/// A document of that many bytes that does not compress.
fn noise(bytes: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut random = Random::new(1);
    let text: String = (2..bytes).map(|_| char::from(DIGITS[random.below(64) as usize])).collect();
    format!("\"{text}\"")
}

fn put(client: &mut Client, jid: &str, data: &str) -> Frame {
    client.call(&["HAUL.PUT", "q", "k", data, "JID", jid])
}

/// Puts jobs until one is refused; the jids that were acknowledged, and the refusal.
fn put_until_refused(client: &mut Client, prefix: &str, data: &str) -> (Vec<String>, String) {
    let mut acknowledged = Vec::new();
    for number in 0..100_000 {
        let jid = format!("{prefix}{number}");
        match put(client, &jid, data) {
            Frame::Error(refusal) => return (acknowledged, refusal),
            answer => assert_eq!(text(&answer), Some(jid.clone())),
        }
        acknowledged.push(jid);
    }
    panic!("the disk never filled up");
}

/// Every job is there, with its data, and no other is.
fn assert_exactly(client: &mut Client, jids: &[String], data: &str) {
    for jid in jids {
        let job = client.json(&["HAUL.GET", jid]);
        assert_eq!(job["data"].to_string(), data, "{jid}");
    }
    let mut listed = client.names(&["HAUL.JOBS", "waiting", "QUEUE", "q", "COUNT", "1000000"]);
    let mut expected = jids.to_vec();
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself() {
    let Some(disk) = Mount::new("size=160m") else { return };
    let data_folder = disk.path().join("data");
    let flags = ["--log-bytes-max", "8000000"];
    let server = Server::start(&data_folder, &flags);
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![1; 40 << 20]).unwrap();
    let data = noise(64 << 10);
    let mut client = server.connect();

    let (mut jids, refusal) = put_until_refused(&mut client, "before", &data);
    assert!(refusal.starts_with("FULL the disk is full"), "{refusal}");
    assert!(!jids.is_empty());
    eprintln!("{} jobs until full: {refusal}", jids.len());

    // Everything that looks goes on, everything that writes is refused, and a refused write leaves no trace.
    assert_exactly(&mut client, &jids, &data);
    assert_eq!(client.json(&["HAUL.QUEUES", "q"])["waiting"], jids.len());
    let sha = "ed7cb6988e28750518b1c1f25c98d865dc370952";
    let by_qless = client.call(&["EVALSHA", sha, "0", "get", "1", &jids[0]]);
    assert!(text(&by_qless).unwrap().contains(&data[1..40]));
    assert!(client.refusal(&["HAUL.POP", "w", "QUEUES", "q"]).starts_with("FULL"));
    assert!(client.refusal(&["HAUL.CANCEL", &jids[0]]).starts_with("FULL"));
    assert!(error_text(&client.call(&["EVALSHA", sha, "0", "pop", "1", "q", "w", "1"])).starts_with("FULL"));
    assert_exactly(&mut client, &jids, &data);

    fs::remove_file(&ballast).unwrap();
    eventually("a put after the disk has room again", || match put(&mut client, "after", &data) {
        Frame::Error(refusal) => {
            assert!(refusal.starts_with("FULL"), "{refusal}");
            false
        }
        _ => true,
    });
    jids.push("after".to_owned());
    assert_exactly(&mut client, &jids, &data);
    server.kill();
    let server = Server::start(&data_folder, &flags);
    assert_exactly(&mut server.connect(), &jids, &data);
    assert!(server.stop().success());
    assert_healthy(&data_folder);
}

#[test]
fn a_start_on_a_full_disk_serves_what_is_there() {
    let Some(disk) = Mount::new("size=160m") else { return };
    let data_folder = disk.path().join("data");
    let server = Server::start(&data_folder, &["--log-bytes-max", "8000000"]);
    assert_eq!(text(&put(&mut server.connect(), "j", "1")).as_deref(), Some("j"));
    server.kill();
    let mut ballast = File::create(disk.path().join("ballast")).unwrap();
    while ballast.write(&[1; 1 << 16]).is_ok() {}

    match Server::try_start(&data_folder, &["--log-bytes-max", "8000000"]) {
        Ok(server) => {
            let mut client = server.connect();
            assert_exactly(&mut client, &["j".to_owned()], "1");
            // The log's last segment gave up what it had reserved: that much may still fit.
            let (more, refusal) = put_until_refused(&mut client, "more", &noise(64 << 10));
            assert!(refusal.starts_with("FULL") && more.len() < 100, "{} more: {refusal}", more.len());
            let all = [more, vec!["j".to_owned()]].concat();
            let args = [vec!["HAUL.MGET".to_owned()], all].concat();
            let Frame::Array(jobs) = client.call(&args) else { panic!("not jobs") };
            assert!(!jobs.contains(&Frame::Nil));
        }
        // The base may need room just to open; then it says so and nothing is harmed.
        Err(refused) => {
            assert!(refused.code == Some(2) && refused.log.contains("No space left"), "{refused:?}")
        }
    }
    fs::remove_file(disk.path().join("ballast")).unwrap();
    assert_healthy(&data_folder);
    let server = Server::start(&data_folder, &["--log-bytes-max", "8000000"]);
    assert_eq!(server.connect().json(&["HAUL.GET", "j"])["data"], 1);
}

/// The segment of the log that was written last, and where its frames end.
fn newest_segment(data_folder: &Path) -> (PathBuf, u64) {
    let entries = fs::read_dir(data_folder.join("log")).unwrap();
    let mut segments: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    let newest = segments.pop().unwrap();
    let bytes = fs::read(&newest).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    (newest, end as u64)
}

/// A folder with ten jobs in its log, put one after the other by a server that was killed.
fn killed_with_ten_jobs(data_folder: &Path) {
    let server = Server::start(data_folder, &[]);
    let mut client = server.connect();
    for number in 0..10 {
        assert_eq!(text(&put(&mut client, &format!("j{number}"), "[1]")), Some(format!("j{number}")));
    }
    server.kill();
}

#[test]
fn a_torn_last_write_is_dropped_and_nothing_before_it() {
    for torn_bytes in [1, 7, 33] {
        let folder = tempfile::tempdir().unwrap();
        killed_with_ten_jobs(folder.path());
        let (segment, end) = newest_segment(folder.path());
        File::options().write(true).open(&segment).unwrap().set_len(end - torn_bytes).unwrap();

        let server = Server::start(folder.path(), &[]);
        assert!(server.log().contains("dropped the end of the log"), "{}", server.log());
        let mut client = server.connect();
        let kept: Vec<String> = (0..9).map(|number| format!("j{number}")).collect();
        assert_exactly(&mut client, &kept, "[1]");
        assert_eq!(text(&put(&mut client, "next", "[1]")).as_deref(), Some("next"));
        server.kill();
        assert_healthy(folder.path());
        let server = Server::start(folder.path(), &[]);
        assert_exactly(&mut server.connect(), &[kept, vec!["next".to_owned()]].concat(), "[1]");
    }
}

#[test]
fn a_flipped_bit_in_the_log_is_reported_with_its_file_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    killed_with_ten_jobs(folder.path());
    let (segment, end) = newest_segment(folder.path());
    let mut file = File::options().read(true).write(true).open(&segment).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(end / 2)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(end / 2)).unwrap();
    file.write_all(&[byte[0] ^ 4]).unwrap();

    let refused = refused(Server::try_start(folder.path(), &[]));
    assert_eq!(refused.code, Some(2), "{}", refused.log);
    assert!(refused.log.contains("the data is damaged"), "{}", refused.log);
    assert!(refused.log.contains(&segment.display().to_string()), "{}", refused.log);
    assert!(refused.log.contains("at offset "), "{}", refused.log);
    assert!(!refused.log.contains("panicked"), "{}", refused.log);
    let (code, words) = doctor(folder.path());
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("at offset ") && !words.contains("panicked"), "{words}");

    file.seek(SeekFrom::Start(end / 2)).unwrap();
    file.write_all(&byte).unwrap();
    assert_healthy(folder.path());
}

/// Whatever byte of the base's files is damaged, the server either starts and answers or says that it cannot.
#[test]
fn damage_anywhere_in_the_base_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.connect();
    for number in 0..50 {
        put(&mut client, &format!("j{number}"), &noise(2000));
    }
    assert!(server.stop().success());
    let base = folder.path().join("base");
    for name in files(&base).iter().map(|file| file.strip_prefix(folder.path()).unwrap()) {
        let copy = tempfile::tempdir().unwrap();
        let all = folder.path().join(".");
        assert!(
            Command::new("cp").arg("-a").args([&all, &copy.path().to_owned()]).status().unwrap().success()
        );
        let file = copy.path().join(name);
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        match bytes.get_mut(middle) {
            Some(byte) => *byte ^= 0x10,
            None => continue,
        }
        fs::write(&file, &bytes).unwrap();
        let said = match Server::try_start(copy.path(), &[]) {
            Ok(server) => {
                let mut client = server.connect();
                for number in 0..50 {
                    client.call(&["HAUL.GET", &format!("j{number}")]);
                }
                server.assert_serving();
                server.log()
            }
            Err(refused) => {
                assert_eq!(refused.code, Some(2), "{}: {}", file.display(), refused.log);
                refused.log
            }
        };
        assert!(!said.contains("panicked"), "{}: {said}", name.display());
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn refused(start: Result<Server, Refused>) -> Refused {
    start.err().expect("the server started")
}

#[test]
fn a_second_process_on_the_folder_is_told_who_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let refused = refused(Server::try_start(folder.path(), &[]));
    assert_eq!(refused.code, Some(2), "{}", refused.log);
    assert!(refused.log.contains("is in use by another process"), "{}", refused.log);
    assert!(refused.log.contains(&format!("process {}", server.pid())), "{}", refused.log);
    let (code, words) = doctor(folder.path());
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains(&format!("process {}", server.pid())), "{words}");
    server.assert_serving();
}

#[test]
fn a_read_only_folder_is_refused_with_the_reason() {
    let Some(disk) = Mount::new("size=160m") else { return };
    let data_folder = disk.path().join("data");
    killed_with_ten_jobs(&data_folder);
    disk.remount("ro");
    let refused = refused(Server::try_start(&data_folder, &[]));
    assert_eq!(refused.code, Some(2), "{}", refused.log);
    assert!(refused.log.contains("cannot be used as a data folder"), "{}", refused.log);
    assert!(refused.log.contains("Read-only file system"), "{}", refused.log);
    disk.remount("rw");
    assert_healthy(&data_folder);
}

#[test]
fn a_folder_that_cannot_be_made_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").unwrap();
    for data in [file.clone(), file.join("below")] {
        let refused = refused(Server::try_start(&data, &[]));
        assert_eq!(refused.code, Some(2), "{}", refused.log);
        assert!(refused.log.contains(&data.display().to_string()), "{}", refused.log);
    }
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.txt"), "years of work").unwrap();
    let refused = refused(Server::try_start(folder.path(), &[]));
    assert_eq!(refused.code, Some(2), "{}", refused.log);
    assert!(refused.log.contains("thesis.txt"), "{}", refused.log);
}

#[test]
fn a_newer_format_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    killed_with_ten_jobs(folder.path());
    let format = folder.path().join("FORMAT");
    let known = fs::read_to_string(&format).unwrap();
    fs::write(&format, "haul-data 999\n").unwrap();
    let refused = refused(Server::try_start(folder.path(), &[]));
    assert_eq!(refused.code, Some(2), "{}", refused.log);
    assert!(refused.log.contains("format 999") && refused.log.contains("newer Haul"), "{}", refused.log);
    fs::write(&format, "nonsense").unwrap();
    assert_eq!(Server::try_start(folder.path(), &[]).err().unwrap().code, Some(2));
    fs::write(&format, known).unwrap();
    assert_healthy(folder.path());
}
