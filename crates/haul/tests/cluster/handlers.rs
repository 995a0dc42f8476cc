//! Stored handlers and the journal on several nodes: whichever node is asked, and whoever owns the tenant.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::*;

/// The status and the document of an answer.
fn ask(address: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(text).unwrap_or_else(|_| panic!("{answer}")))
}

/// Posts lines; their ids.
fn post(address: &str, tenant: u64, lines: &str) -> Vec<String> {
    let (status, answer) = ask(address, "POST", &format!("/tenant{tenant}/job/double/add"), lines);
    assert_eq!(status, 200, "{answer}");
    answer["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

fn add_handler(address: &str, tenant: u64) -> Value {
    let handler = json!({"lang": "sh", "body": "read n; echo $((n * 2))", "options": {"keepResult": true}});
    let (status, answer) =
        ask(address, "POST", &format!("/tenant{tenant}/handler/double/add"), &handler.to_string());
    assert_eq!(status, 200, "{answer}");
    answer["id"].clone()
}

fn result(address: &str, tenant: u64, id: &str) -> Value {
    let (status, answer) = ask(address, "GET", &format!("/tenant{tenant}/job/{id}?wait=60"), "");
    assert_eq!(status, 200, "{answer}");
    answer["result"].clone()
}

#[test]
fn a_handler_given_to_one_node_runs_what_another_is_posted() {
    let store = Store::new();
    let (one, two) = (store.whole_node("one", &["--shards", "4"]), store.whole_node("two", &[]));
    let mut client = one.connect();
    eventually("both nodes are there", || settled(&mut client, 2));
    let (first, second) = (one.http(), two.http());
    for tenant in 0..TENANTS {
        // Each way round, so that both ask for tenants that they own and for others.
        for (here, there) in [(&first, &second), (&second, &first)] {
            let version = add_handler(here, tenant);
            let ids = post(there, tenant, "1\n2\n3");
            let results: Vec<Value> = ids.iter().map(|id| result(here, tenant, id)).collect();
            assert_eq!(results, [json!("2\n"), json!("4\n"), json!("6\n")], "tenant {tenant}");
            let path = format!("/tenant{tenant}/handler/double");
            assert_eq!(ask(there, "GET", &path, "").1["id"], version);
            assert_eq!(ask(there, "DELETE", &path, ""), (200, json!({"ok": true, "count": 1})));
            assert_eq!(ask(here, "GET", &path, "").0, 404);
        }
    }
}

#[test]
fn what_a_killed_node_had_in_its_journal_is_run_when_it_is_back() {
    let store = Store::new();
    // What it was running when it was killed is free when its lock ends.
    let lock = ["--handler-lock", "2s"];
    let one = store.whole_node("one", &[&["--shards", "4"][..], &lock].concat());
    let two = store.whole_node("two", &lock);
    let mut client = one.connect();
    eventually("both nodes are there", || settled(&mut client, 2));
    let (first, second) = (one.http(), two.http());
    (0..TENANTS).for_each(|tenant| drop(add_handler(&first, tenant)));
    let lines: String = (0..50).map(|n| format!("{n}\n")).collect();
    let accepted: Vec<(u64, Vec<String>)> =
        (0..TENANTS).map(|tenant| (tenant, post(&second, tenant, &lines))).collect();
    // What was accepted is on its disk; how much of it is in the store already is chance.
    two.kill();
    let _two = store.whole_node("two", &lock);
    for (tenant, ids) in accepted {
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(result(&first, tenant, id), json!(format!("{}\n", n * 2)), "{id} of tenant {tenant}");
        }
    }
}
