//! A store that nodes share, as operators see it: its tokens, `haul doctor --store`, copies that are cut off.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may fail by panicking, and one that waits has a deadline"
)]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use haul_client::resp::Frame;
use support::{Refused, Server, error_text, eventually};

fn url(folder: &Path) -> String {
    format!("file://{}", folder.join("store").display())
}

/// What the command line answers; its exit code must be this.
fn says(args: &[&str], code: i32) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_haul")).args(args).output().unwrap();
    let words =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "haul {args:?}: {words}");
    words.trim().to_owned()
}

fn node(folder: &Path, name: &str, extra: &[&str]) -> Result<Server, Refused> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.args(["serve", "--http", "off", "--node", "127.0.0.1:0", "--handlers", "off"]);
    command.args(["--presence-interval", "500", "--store", &url(folder)]);
    command.arg("--data").arg(folder.join(name)).args(extra);
    if !extra.contains(&"--redis") {
        command.args(["--redis", "127.0.0.1:0"]);
    }
    Server::spawn(command)
}

/// Whether the node lets this token in.
fn lets_in(node: &Server, token: &str) -> bool {
    match node.connect().call(&["AUTH", token]) {
        Frame::Error(text) => {
            assert!(text.starts_with("WRONGPASS"), "{text}");
            false
        }
        answer => answer == Frame::ok(),
    }
}

#[test]
fn nodes_that_share_a_store_share_its_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let store = url(folder.path());
    let ops = says(&["token", "add", "ops", "--role", "admin", "--tenant", "*", "--store", &store], 0);
    let one = node(folder.path(), "one", &["--shards", "2"]).unwrap();
    let two = node(folder.path(), "two", &[]).unwrap();
    for node in [&one, &two] {
        assert!(error_text(&node.connect().call(&["HAUL.LENGTH", "q"])).starts_with("NOAUTH"));
        assert!(lets_in(node, &ops));
        assert!(!lets_in(node, "haul_wrong"));
    }
    // One that is made and one that is removed while they run.
    let late = says(&["token", "add", "late", "--role", "work", "--store", &store], 0);
    let held: Vec<_> = [&one, &two]
        .map(|node| {
            eventually("the new token is let in", || lets_in(node, &late));
            let mut client = node.connect();
            assert_eq!(client.call(&["AUTH", &late]), Frame::ok());
            client
        })
        .into();
    assert!(says(&["token", "add", "late", "--role", "admin", "--store", &store], 1).contains("already"));
    says(&["token", "remove", "late", "--store", &store], 0);
    for node in [&one, &two] {
        eventually("the removed token is turned away", || !lets_in(node, &late));
        assert!(lets_in(node, &ops));
    }
    for mut client in held {
        eventually("who was let in with it is cut off", || {
            client.try_call(&["HAUL.LENGTH", "q"]).map_or(true, |answer| matches!(answer, Frame::Error(_)))
        });
    }
    assert!(says(&["token", "remove", "ops", "--store", &store], 1).contains("last token"));
    let listed = says(&["token", "list", "--store", &store, "--json"], 0);
    assert!(listed.contains("\"ops\"") && !listed.contains("late"), "{listed}");
    for name in ["one", "two"] {
        let path = folder.path().join(name).join("audit.log");
        eventually("each node has noted what it saw", || {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            log.contains("\"token-add\"") && log.contains("\"token-remove\"") && log.contains("\"late\"")
        });
        assert!(!folder.path().join(name).join("tokens.json").exists());
    }
}

#[test]
fn tokens_of_a_folder_are_not_forgotten_when_it_becomes_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let (store, data) = (url(folder.path()), folder.path().join("one"));
    let data = data.to_str().unwrap();
    let ops = says(&["token", "add", "ops", "--role", "admin", "--tenant", "*", "--data", data], 0);
    let refused = node(folder.path(), "one", &[]).err().unwrap();
    assert!(refused.log.contains("haul token copy --data"), "{refused:?}");
    says(&["token", "copy", "--data", data, "--store", &store], 0);
    says(&["token", "copy", "--data", data, "--store", &store], 0);
    assert!(lets_in(&node(folder.path(), "one", &[]).unwrap(), &ops));
    // Another token of that name is not replaced.
    says(&["token", "remove", "ops", "--last", "--data", data], 0);
    says(&["token", "add", "ops", "--role", "view", "--data", data], 0);
    assert!(says(&["token", "copy", "--data", data, "--store", &store], 1).contains("another token ops"));
}

#[test]
fn a_node_that_others_can_reach_needs_a_token_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let refused = node(folder.path(), "one", &["--redis", "0.0.0.0:0"]).err().unwrap();
    assert!(refused.log.contains("--store file://"), "{refused:?}");
    says(&["token", "add", "ops", "--role", "admin", "--store", &url(folder.path())], 0);
    assert!(node(folder.path(), "one", &["--redis", "0.0.0.0:0"]).is_ok());
}

#[test]
fn who_does_not_know_the_secret_is_turned_away_by_a_node() {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().unwrap();
    let one = node(folder.path(), "one", &["--shards", "1"]).unwrap();
    let log = one.log();
    let line = log.lines().find(|line| line.contains("joining the nodes")).unwrap();
    let address = line.split("node=").nth(1).unwrap().trim().trim_matches('"').to_owned();
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
    stream.write_all(&[0; 64]).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() < 64, "an alert at most: {answer:?}");
    one.wait_for("a node was turned away");
    one.assert_serving();
}

/// A data folder with jobs, short data and long.
fn filled(data: &Path, jobs: usize) {
    let server = Server::start(data, &["--handlers", "off"]);
    let mut client = server.connect();
    for tenant in 0..8 {
        assert_eq!(client.call(&["SELECT", &tenant.to_string()]), Frame::ok());
        for start in (0..jobs / 8).step_by(500) {
            let puts = (start..(start + 500).min(jobs / 8)).map(|at| {
                let data = "x".repeat(at % 7 * 200);
                format!("{{\"queue\":\"q\",\"klass\":\"k\",\"data\":\"{data}\"}}")
            });
            let words: Vec<String> = std::iter::once("HAUL.MPUT".to_owned()).chain(puts).collect();
            assert!(matches!(client.call(&words), Frame::Array(_)));
        }
    }
    assert!(server.stop().success());
}

#[test]
fn a_copy_that_was_killed_goes_on_and_nobody_serves_it_before() {
    const JOBS: usize = 8000;
    let folder = tempfile::tempdir().unwrap();
    let (data, store) = (folder.path().join("from"), url(folder.path()));
    filled(&data, JOBS);
    let args = ["copy", "--from", data.to_str().unwrap(), "--to", &store, "--shards", "4"];
    let copying = Command::new(env!("CARGO_BIN_EXE_haul")).args(args).stderr(Stdio::null()).spawn();
    let mut copying = copying.unwrap();
    eventually("the copy has begun", || folder.path().join("store/copying").exists());
    copying.kill().unwrap();
    copying.wait().unwrap();
    if folder.path().join("store/copying").exists() {
        let refused = node(folder.path(), "one", &[]).err().unwrap();
        assert!(refused.log.contains("is not whole"), "{refused:?}");
        assert!(says(&["doctor", "--store", &store], 1).contains("not whole"));
        let again = says(&args, 0);
        assert!(again.contains("copying") && again.contains("verifying [") && again.contains("all verified"));
    }
    let told = says(&["doctor", "--store", &store, "--records", "--json"], 0);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((told["jobs"].as_u64(), told["shards"].as_u64()), (Some(JOBS as u64), Some(4)));
    assert!(says(&args, 2).contains("already"), "and it is not copied over");
    let node = node(folder.path(), "one", &[]).unwrap();
    let mut client = node.connect();
    client.call(&["SELECT", "3"]);
    assert_eq!(client.call(&["HAUL.LENGTH", "q"]), Frame::Int(JOBS as i64 / 8));
}

#[test]
fn the_doctor_says_what_is_wrong_with_a_store_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let store = url(folder.path());
    let told = says(&["doctor", "--store", &store], 0);
    for words in
        ["can be reached", "two nodes cannot own one shard", "a put takes", "no data set yet", "healthy"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
    let one = node(folder.path(), "one", &["--shards", "2"]).unwrap();
    let told = says(&["doctor", "--store", &store, "--records"], 0);
    assert!(told.contains("a data set of 2 shards; 1 nodes") && told.contains("0 jobs"), "{told}");
    drop(one);
    for (url, words) in [("ftp://x/y", "s3://bucket/prefix"), ("file:///proc/nowhere", "/proc/nowhere")] {
        let told = says(&["doctor", "--store", url], 2);
        assert!(told.contains(words), "{told}");
    }
    let nobody = ["doctor", "--store", "s3://bucket", "--store-endpoint", "http://127.0.0.1:1"];
    assert!(says(&nobody, 2).contains("--store-allow-http"));
}
