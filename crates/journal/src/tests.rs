//! The journal as a whole: the contract of each call, every record kind, every torn byte.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::files::Place;
use crate::writer::{Rotation, Shared, Work, Writer};
use crate::{Entry, FullType, Ids, Journal, Options, Post, ReadError, Sysid, WriteError};

const NOW: u64 = 1_593_479_837_123;

fn ids() -> Arc<Ids> {
    Arc::new(Ids::new(Sysid::parse("lt-0aZ~").unwrap()))
}

fn open(folder: &Path) -> Journal {
    Journal::open(Options::new(folder), ids()).unwrap().0
}

fn post(body: &str) -> Post {
    Post {
        full: FullType::parse("client-job-type").unwrap(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        raw: false,
        due_ms: None,
    }
}

/// Everything there is to read, not yet told to be stored.
fn take(journal: &Journal, count: usize) -> (u64, Vec<Entry>) {
    let token = journal.read_reserve(count, 2000, NOW).unwrap();
    (token, journal.read(token, NOW).unwrap())
}

fn payloads(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(&entry.payload).into_owned()).collect()
}

fn text(folder: &Path, number: u64) -> String {
    fs::read_to_string(folder.join(format!("journal.{number:06}"))).unwrap()
}

#[tokio::test]
async fn lines_are_written_as_the_format_says_and_read_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let runs = journal.write(&post("one\n\n# a comment\ntwo|x|\r\nlast"), NOW).await.unwrap();
    assert_eq!(runs.iter().map(|(_, count)| count).sum::<u32>(), 3);
    let expected = "NC2oBN3-lt-0aZ~-000|client-job-type|one\n\
        NC2oBN3-lt-0aZ~-001|client-job-type|two|x|\r\n\
        NC2oBN3-lt-0aZ~-002|client-job-type|last\n";
    assert_eq!(text(folder.path(), 1), expected);
    let (_, entries) = take(&journal, 10);
    assert_eq!(payloads(&entries), ["one", "two|x|\r", "last"]);
    assert_eq!(entries[1].id.to_string(), "NC2oBN3-lt-0aZ~-001");
    assert_eq!((entries[0].full.tenant(), entries[0].full.jobtype()), ("client", "job-type"));
}

#[tokio::test]
async fn more_than_64_lines_and_raw_posts_are_batches() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let body = "p\n".repeat(65);
    journal.write(&post(&body), NOW).await.unwrap();
    let raw = Post { raw: true, body: Bytes::from_static(b"#\0\n#:EndBatch\nx"), ..post("") };
    journal.write(&raw, NOW).await.unwrap();
    let later = Post { due_ms: Some(NOW + 5), ..post("later") };
    journal.write(&later, NOW).await.unwrap();
    let expected = format!(
        "#:Batch date=2020-06-30T01:17:17.123Z,bytes=130,jobtype=client-job-type,id=NC2oBN3-lt-0aZ~-000\n{body}#:EndBatch\n\
        #:Batch date=2020-06-30T01:17:17.123Z,bytes=15,jobtype=client-job-type,id=NC2oBN3-lt-0aZ~-011,raw=1\n\
        #\0\n#:EndBatch\nx\n#:EndBatch\n\
        #:Batch date=2020-06-30T01:17:17.123Z,bytes=5,jobtype=client-job-type,id=NC2oBN3-lt-0aZ~-012,dt=1593479837128\n\
        later\n#:EndBatch\n"
    );
    assert_eq!(text(folder.path(), 1), expected);
    let (_, entries) = take(&journal, 100);
    assert_eq!(entries.len(), 67);
    assert_eq!(entries[64].id.to_string(), "NC2oBN3-lt-0aZ~-010");
    assert_eq!((&entries[65].payload[..], entries[65].raw), (&b"#\0\n#:EndBatch\nx"[..], true));
    assert_eq!(entries[66].due_ms, Some(NOW + 5));
    journal.write(&post(&"p\n".repeat(64)), NOW).await.unwrap();
    assert!(text(folder.path(), 1).ends_with("NC2oBN3-lt-0aZ~-022|client-job-type|p\n"));
}

#[tokio::test]
async fn reservations_follow_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    journal.write(&post("a\nb\nc\nd\n"), NOW).await.unwrap();
    assert!(matches!(journal.read_reserve(1, 0, NOW), Err(ReadError::MissingTimeout)));
    let first = journal.read_reserve(2, 1000, NOW).unwrap();
    let second = journal.read_reserve(9, 1000, NOW).unwrap();
    assert_eq!(payloads(&journal.read(first, NOW).unwrap()), ["a", "b"]);
    assert!(matches!(journal.read(first, NOW), Err(ReadError::AlreadyRead)));
    assert!(matches!(journal.read(77, NOW), Err(ReadError::TokenExpired)));
    assert_eq!(payloads(&journal.read(second, NOW).unwrap()), ["c", "d"]);
    // In any order; the read point waits for the first.
    journal.rsync(second, NOW).unwrap();
    assert_eq!(journal.read_point(), (1, 0));
    journal.rsync(second, NOW).unwrap();
    journal.rsync(4711, NOW).unwrap();
    journal.rsync(first, NOW).unwrap();
    assert_eq!(journal.read_point(), (1, fs::metadata(folder.path().join("journal.000001")).unwrap().len()));
    assert_eq!(journal.backlog_bytes(), 0);
    assert!(take(&journal, 9).1.is_empty());
}

#[tokio::test]
async fn what_is_not_stored_in_time_comes_back_first_and_in_order_read_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    journal.write(&post("a\nb\nc\nd\ne\n"), NOW).await.unwrap();
    let read = journal.read_reserve(2, 1000, NOW).unwrap();
    journal.read(read, NOW).unwrap();
    let _unread = journal.read_reserve(1, 1000, NOW).unwrap();
    let kept = journal.read_reserve(1, 5000, NOW).unwrap();
    let late = NOW + 1000;
    assert!(matches!(journal.read(read, late), Err(ReadError::TokenExpired)));
    let again = journal.read_reserve(9, 1000, late).unwrap();
    assert_eq!(payloads(&journal.read(again, late).unwrap()), ["a", "b", "c", "e"]);
    // Too late: the lines are somebody else's now.
    journal.rsync(read, late).unwrap();
    assert_eq!(journal.read_point(), (1, 0));
    journal.read_cancel(again);
    assert_eq!(payloads(&journal.read(kept, late).unwrap()), ["d"]);
    let third = journal.read_reserve(2, 1000, late).unwrap();
    assert_eq!(payloads(&journal.read(third, late).unwrap()), ["a", "b"]);
}

#[tokio::test]
async fn wsync_waits_for_buffered_writes_and_for_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    journal.wsync().unwrap().await.unwrap().unwrap();
    assert_eq!(journal.syncs(), 0);
    for _ in 0..100 {
        journal.write_buffered(&post("x"), NOW).unwrap();
    }
    journal.wsync().unwrap().await.unwrap().unwrap();
    assert_eq!(take(&journal, 1000).1.len(), 100);
}

/// What has arrived is written and synced together, and each is told.
#[test]
fn writes_that_arrive_together_share_one_sync() {
    let folder = tempfile::tempdir().unwrap();
    let at = Place { file: 1, offset: 0 };
    let shared = Arc::new(Shared::new(folder.path().to_owned(), at, 0));
    let rotation = Rotation { bytes_max: u64::MAX, ms_max: u64::MAX };
    let file = crate::files::create(folder.path(), 1).unwrap();
    let (works, theirs) = std::sync::mpsc::channel();
    let mut told: Vec<_> = (0..100)
        .map(|_| {
            let (done, ack) = tokio::sync::oneshot::channel();
            works.send(Work { bytes: b"line\n".to_vec(), now_ms: NOW, done: Some(done) }).unwrap();
            ack
        })
        .collect();
    drop(works);
    Writer { shared: shared.clone(), file, at, rotation, began_ms: None, broken: false }.run(&theirs);
    assert!(told.iter_mut().all(|ack| ack.try_recv() == Ok(Ok(()))));
    assert_eq!(shared.syncs.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(shared.durable(), Place { file: 1, offset: 500 });
}

/// A write that cannot be made durable is refused; what was acknowledged stays, and writing goes on once it can.
#[tokio::test]
async fn a_write_that_fails_is_refused_and_nothing_else_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) =
        Journal::open(Options { file_bytes_max: 1, ..Options::new(folder.path()) }, ids()).unwrap();
    journal.write(&post("first"), NOW).await.unwrap();
    // The next file cannot be made: something is in its place.
    let obstacle = folder.path().join("journal.000002");
    fs::create_dir(&obstacle).unwrap();
    for _ in 0..2 {
        assert!(matches!(journal.write(&post("refused"), NOW).await, Err(WriteError::Disk(_))));
    }
    fs::remove_dir(obstacle).unwrap();
    journal.write(&post("second"), NOW).await.unwrap();
    assert_eq!(payloads(&take(&journal, 9).1), ["first", "second"]);
    drop(journal);
    assert_eq!(payloads(&take(&open(folder.path()), 9).1), ["first", "second"]);
}

#[tokio::test]
async fn files_rotate_by_size_and_age_and_go_when_they_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { file_bytes_max: 100, ..Options::new(folder.path()) };
    let (journal, _) = Journal::open(options, ids()).unwrap();
    let long = "x".repeat(60);
    for _ in 0..3 {
        journal.write(&post(&long), NOW).await.unwrap();
    }
    assert!(folder.path().join("journal.000002").exists());
    journal.write(&post("after an hour"), NOW + 3_600_000).await.unwrap();
    assert!(folder.path().join("journal.000003").exists());
    let (token, entries) = take(&journal, 100);
    assert_eq!(entries.len(), 4);
    journal.rsync(token, NOW).unwrap();
    assert!(!folder.path().join("journal.000001").exists() && !folder.path().join("journal.000002").exists());
}

#[tokio::test]
async fn a_new_start_reads_on_where_the_old_one_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    journal.write(&post("a\nb\nc\n"), NOW).await.unwrap();
    let token = journal.read_reserve(2, 1000, NOW).unwrap();
    journal.rsync(token, NOW).unwrap();
    drop(journal);
    let journal = open(folder.path());
    assert_eq!(payloads(&take(&journal, 9).1), ["c"]);
    drop(journal);
    // A damaged note means from the beginning.
    fs::write(folder.path().join("journal.pos"), "1 90 00000000\n").unwrap();
    assert_eq!(payloads(&take(&open(folder.path()), 9).1), ["a", "b", "c"]);
}

#[tokio::test]
async fn too_much_that_is_not_stored_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) =
        Journal::open(Options { backlog_bytes_max: 30, ..Options::new(folder.path()) }, ids()).unwrap();
    journal.write(&post("a"), NOW).await.unwrap();
    assert!(matches!(journal.write(&post("b"), NOW).await, Err(WriteError::Behind(_))));
    let (token, _) = take(&journal, 9);
    journal.rsync(token, NOW).unwrap();
    journal.write(&post("b"), NOW).await.unwrap();
}

/// Records of every kind, each with the payloads it holds. `#` and blank lines and what is not a job hold none.
fn records() -> Vec<(Vec<u8>, Vec<&'static [u8]>)> {
    let head = "#:Batch date=2020-06-30T01:17:17.123Z,";
    let batch = |keys: &str, body: &str| {
        let end = if body.ends_with('\n') { "" } else { "\n" };
        format!("{head}bytes={},jobtype=client-job-type{keys}\n{body}{end}#:EndBatch\n", body.len())
            .into_bytes()
    };
    vec![
        (b"NC2oBN3-lt-0aZ~-000|client-job-type|one\n".to_vec(), vec![b"one"]),
        (b"NC2oBN3-lt-0aZ~-001|client-job-type|x|y|\n".to_vec(), vec![b"x|y|"]),
        (b"NC2oBN3-lt-0aZ~-002|client-job-type|\n".to_vec(), vec![b""]),
        (batch(",id=NC2oBN3-lt-0aZ~-003", "a\n#c\n\nb\n"), vec![b"a", b"b"]),
        (b"# a comment\n".to_vec(), vec![]),
        (b"\n".to_vec(), vec![]),
        (b" C2oBN3-lt-0aZ~-001|client-job-type|erased\n".to_vec(), vec![]),
        (b"#C2oBN3-lt-0aZ~-001|client-job-type|erased\n".to_vec(), vec![]),
        (batch(",id=NC2oBN3-lt-0aZ~-006,raw=1,new=key", "r\n#:EndBatch\nz"), vec![b"r\n#:EndBatch\nz"]),
        (batch(",id=NC2oBN3-lt-0aZ~-007,raw=1", ""), vec![b""]),
        (batch("", "foreign\nlines"), vec![b"foreign", b"lines"]),
        (b"2020-06-30T01:17:17.123Z|client-job-type|dated\n".to_vec(), vec![b"dated"]),
        (b"1593479837123|client-job-type|digits\n".to_vec(), vec![b"digits"]),
        (b"what is this\n".to_vec(), vec![]),
        (b"NC2oBN3-lt-0aZ~-008|nohyphen|x\n".to_vec(), vec![]),
        (b"NC2oBN3-lt-0aZ~-009|client-job-type|\x00\xff last\n".to_vec(), vec![b"\x00\xff last"]),
    ]
}

/// Recovery at every byte: exactly the records that were whole are read, and writing goes on behind them.
#[tokio::test]
async fn a_file_of_every_record_kind_torn_at_every_byte_yields_exactly_what_was_acknowledged() {
    let records = records();
    let whole: Vec<u8> = records.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    for cut in 0..=whole.len() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("journal.000001"), &whole[..cut]).unwrap();
        let (mut end, mut expected) = (0, Vec::new());
        for (bytes, payloads) in &records {
            end += bytes.len();
            if end <= cut {
                expected.extend(payloads.iter().map(|payload| payload.to_vec()));
            }
        }
        expected.push(b"more".to_vec());
        let journal = open(folder.path());
        journal.write(&post("more"), NOW).await.unwrap();
        let (_, entries) = take(&journal, 1000);
        let found: Vec<Vec<u8>> = entries.iter().map(|entry| entry.payload.to_vec()).collect();
        assert_eq!(found, expected, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_damaged_batch_in_the_middle_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#:Batch date=2020-06-30T01:17:17.123Z,bytes=3,jobtype=client-job-type,id=NC2oBN3-lt-0aZ~-000\n\
        a\nb\nc\n#:EndBatch\n\
        #:Batch bytes=1\nx\n\
        NC2oBN3-lt-0aZ~-009|client-job-type|good\n";
    fs::write(folder.path().join("journal.000001"), text).unwrap();
    let journal = open(folder.path());
    assert_eq!(payloads(&take(&journal, 9).1), ["good"]);
    let seen = crate::inspect(folder.path()).unwrap();
    assert_eq!((seen.files[0].2, seen.unread), (1, 1));
    assert!(seen.files[0].3 > 0);
}

#[tokio::test]
async fn a_record_larger_than_a_read_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let raw = Post { raw: true, body: Bytes::from(vec![b'x'; 5 << 20]), ..post("") };
    journal.write(&raw, NOW).await.unwrap();
    journal.write(&post("next"), NOW).await.unwrap();
    let (_, entries) = take(&journal, 9);
    assert_eq!(entries.iter().map(|entry| entry.payload.len()).collect::<Vec<_>>(), [5 << 20, 4]);
}

/// A batch that would wrap the sequence is two.
#[tokio::test]
async fn a_post_of_more_lines_than_there_are_sequence_numbers_is_split() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let count = crate::SEQUENCES as usize + 3;
    let runs = journal.write(&post(&"x\n".repeat(count)), NOW).await.unwrap();
    assert_eq!(runs.iter().map(|(_, count)| *count as usize).collect::<Vec<_>>(), [count - 3, 3]);
    let (_, entries) = take(&journal, count + 1);
    let mut seen: Vec<String> = entries.iter().map(|entry| entry.id.to_string()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

/// One tenant with very many lines does not keep another's few waiting behind them; within a tenant the order stays.
#[tokio::test]
async fn tenants_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let many: String = (0..200_000).map(|at| format!("{at}\n")).collect();
    journal.write(&post(&many), NOW).await.unwrap();
    let few = Post { full: FullType::parse("small-t").unwrap(), ..post("a\nb\nc\n") };
    journal.write(&few, NOW).await.unwrap();
    journal.write(&post("last"), NOW).await.unwrap();
    let (token, entries) = take(&journal, 10);
    assert_eq!(payloads(&entries), ["0", "1", "2", "3", "4", "5", "6", "a", "b", "c"]);
    journal.rsync(token, NOW).unwrap();
    // The point stays where all before it is stored: a new start reads the few again, the store does not mind.
    drop(journal);
    let journal = open(folder.path());
    let mut seen = Vec::new();
    loop {
        let (token, entries) = take(&journal, 5000);
        journal.rsync(token, NOW).unwrap();
        if entries.is_empty() {
            break;
        }
        seen.extend(entries.into_iter().filter(|entry| entry.full.tenant() == "client"));
    }
    let expected: Vec<String> = (0..200_000).map(|at| at.to_string()).chain(["last".to_owned()]).collect();
    assert_eq!(payloads(&seen), expected);
    assert_eq!(journal.backlog_bytes(), 0);
}
