//! `haul handler`, `haul invoke`, `haul journal` and `haul demo`, as a person uses them.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use crate::support::{Server, until};

fn haul(server: &Server, words: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_haul")).args(words).env("HAUL_HTTP", &server.http).output();
    let Output { status, stdout, stderr } = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn a_handler_is_added_used_looked_at_and_deleted() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--handler-retry-time", "0"]);
    let script = data.path().join("shout.sh");
    std::fs::write(&script, "read line; test \"$line\" = bad && exit 65; echo \"$line\" | tr a-z A-Z\n")
        .unwrap();
    let file = format!("@{}", script.display());
    let keep = "{\"keepResult\":true}";
    let add = ["handler", "add", "acme", "shout", "--lang", "sh", &file, "--options", keep];
    let (code, id, _) = haul(&server, &add);
    assert_eq!((code, id.trim().len()), (0, 19), "{id}");
    let (code, told, _) = haul(&server, &["handler", "get", "acme", "shout"]);
    assert!(code == 0 && told.contains("tr a-z A-Z") && told.contains(id.trim()), "{told}");
    let (code, told, _) = haul(&server, &["handler", "list", "acme"]);
    assert!(code == 0 && told.contains("acme-shout") && told.contains("sh"), "{told}");
    assert_eq!(
        haul(&server, &["invoke", "acme", "shout", "hello", "--wait"]),
        (0, "HELLO\n".to_owned(), String::new())
    );
    let (code, told, why) = haul(&server, &["invoke", "acme", "shout", "bad", "--wait"]);
    assert!(code == 1 && told.is_empty() && why.contains("failed 400: exit 65"), "{code} {told} {why}");
    let (code, told, _) = haul(&server, &["invoke", "acme", "shout", "one\ntwo", "--wait", "--json"]);
    let results: Vec<serde_json::Value> =
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, &results[0]["result"], &results[1]["result"]), (0, &"ONE\n".into(), &"TWO\n".into()));
    let (code, ids, _) = haul(&server, &["invoke", "acme", "later", "x"]);
    assert_eq!((code, ids.trim().len()), (0, 19));
    let (code, told, _) = haul(&server, &["handler", "delete", "acme", "shout"]);
    assert_eq!((code, told.as_str()), (0, "1 versions deleted\n"));
    let (code, _, why) = haul(&server, &["handler", "get", "acme", "shout"]);
    assert!(code == 1 && why.contains("has no handler"), "{why}");
    let (code, _, why) = haul(&server, &["handler", "add", "acme", "x", "--lang", "cobol", "y"]);
    assert!(code == 1 && why.contains("node, python, php, sh, exec, http"), "{why}");
    // The journal, read up to its end.
    until("all is stored", || {
        let (code, told, _) =
            haul(&server, &["journal", "--data", &data.path().display().to_string(), "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!((code, &told["files"][0]["jobs"]), (0, &5.into()), "{told}");
        told["unread"] == 0
    });
    let (code, _, why) = haul(&server, &["journal", "--data", "/nowhere"]);
    assert!(code == 2 && why.contains("/nowhere/journal"), "{why}");
    let (code, _, why) = haul(&server, &["handler", "list", "acme", "--http", "127.0.0.1:9"]);
    assert!(code == 3 && why.contains("haul serve"), "{code} {why}");
}

#[test]
fn the_demo_shows_handlers_schedules_and_jobs_and_leaves_nothing_behind() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (http, redis) = (free(), free());
    let place = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_haul"))
        .args(["demo", "--http", &http, "--redis", &redis])
        .env("TMPDIR", place.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    told.read_line(&mut first).unwrap();
    assert!(first.contains(&format!("http://{http}/ui/?tenant=demo")), "{first}");
    let mut server = Server { http, child };
    until("jobs run", || server.usage("demo")["jobs"].as_u64().unwrap() > 5);
    let (_, recurring) = server.send_as("demo", "GET", "/api/v1/recurring", "", b"");
    let recurring: serde_json::Value = serde_json::from_slice(&recurring).unwrap();
    assert_eq!(recurring["recurring"].as_array().unwrap().len(), 2, "{recurring}");
    until("a schedule has made a job that ran", || {
        let (_, text) = server.send_as("demo", "GET", "/api/v1/jobs?klass=report&state=complete", "", b"");
        String::from_utf8_lossy(&text).contains("all is well")
    });
    let pid = rustix::process::Pid::from_raw(i32::try_from(server.child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(server.child.wait().unwrap().success());
    let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
