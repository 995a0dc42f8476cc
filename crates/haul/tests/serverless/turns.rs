//! Whose job is next.

use serde_json::json;

use crate::support::{Server, has, until};

/// One tenant with very many jobs, stored or still in the journal, does not delay another's ten by more than two batches.
#[test]
fn a_large_backlog_of_one_tenant_does_not_delay_another() {
    if !has("/usr/bin/python3") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--contexts-max", "1"]);
    let handler = json!({"lang": "python", "body": "import time\ndef handle(p):\n    time.sleep(0.1)\n"});
    server.handler("big/handler/t", &handler);
    server.handler("small/handler/t", &handler);
    let used = |tenant: &str| server.usage(tenant)["jobs"].as_u64().unwrap();
    let backlog = server.post("big", "t", &"x\n".repeat(100_000));
    until("the large backlog runs", || used("big") > 0);
    let ten = || {
        let before = used("big");
        let ids = server.post("small", "t", &"y\n".repeat(10));
        for id in &ids {
            assert_eq!(server.result("small", id)["code"], "ok");
        }
        used("big") - before
    };
    let last = &backlog[99_999];
    assert_eq!(server.ask("GET", &format!("/big/job/{last}"), "").0, 404, "most of it is in the journal");
    // Their two batches of five, each behind at most one of the other's; a third may end while the answer is on its way.
    for stored in [false, true] {
        let between = ten();
        assert!(between <= 20, "{between} jobs of the large backlog ran meanwhile; stored: {stored}");
        if !stored {
            until("the backlog is stored", || server.ask("GET", &format!("/big/job/{last}"), "").0 == 200);
        }
    }
}

/// At most as many jobs of a tenant, or of a type, run at once as was set; whoever waits behind does not stop others.
#[test]
fn concurrency_is_bounded_by_tenant_and_type() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--contexts-max", "8"]);
    let handler = json!({"lang": "sh", "body": "sleep 0.3", "options": {"batchSize": 1}});
    // One look: two might see one job end and another begin.
    let running = |tenant: &str| {
        let (_, text) = server.send_as(tenant, "GET", "/api/v1/jobs?state=running&limit=1000", "", b"");
        let page: serde_json::Value = serde_json::from_slice(&text).unwrap();
        page["jobs"].as_array().unwrap().len()
    };
    for (tenant, option, value) in [("one", "serverless-concurrency", "2"), ("two", "t-max-concurrency", "3")]
    {
        let path = format!("/api/v1/config/{option}");
        let (status, text) = server.send_as(
            tenant,
            "PUT",
            &path,
            "application/json",
            format!("{{\"value\":\"{value}\"}}").as_bytes(),
        );
        assert!((200..300).contains(&status), "{}", String::from_utf8_lossy(&text));
        server.handler(&format!("{tenant}/handler/t"), &handler);
        server.handler(&format!("{tenant}/handler/u"), &handler);
        server.post(tenant, "t", &"x\n".repeat(10));
    }
    server.post("one", "u", &"x\n".repeat(10));
    let (mut most_one, mut most_two) = (0, 0);
    until("all have run", || {
        most_one = most_one.max(running("one"));
        most_two = most_two.max(running("two"));
        server.usage("one")["jobs"] == 20 && server.usage("two")["jobs"] == 10
    });
    assert!((1..=2).contains(&most_one), "{most_one} of the tenant at once");
    assert!((1..=3).contains(&most_two), "{most_two} of the type at once");
}
