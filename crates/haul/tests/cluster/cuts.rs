//! Nodes that are paused, or cut off from each other or from the store.

use super::*;

#[test]
fn a_paused_node_is_fenced_and_acknowledges_nothing() {
    let store = Store::new();
    let one = store.node("one", &["--shards", "1"]);
    let mut zombie = one.connect();
    eventually("the shard is served", || settled(&mut zombie, 1));
    call(&mut zombie, "HAUL.PUT q k {} JID before");
    let mut reader = one.connect();
    let pid = Pid::from_raw(one.pid() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let two = store.node("two", &[]);
    let mut owner = two.connect();
    // It has taken the shard over from the node that gives no sign of life.
    let Frame::Array(jobs) = owner.call(&["HAUL.POP", "w2", "LOCK", LONG, "QUEUES", "q"]) else { panic!() };
    assert_eq!(json(&jobs[0]).unwrap()["jid"], "before");
    zombie.send(&["HAUL.PUT", "q", "k", "{}", "JID", "after"]).unwrap();
    reader.send(&["HAUL.GET", "before"]).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    // Whatever the paused node answers now is the truth: refused, or done through the new owner.
    let read = reader.read().unwrap();
    match &read {
        Frame::Error(text) => assert!(text.starts_with("TRYAGAIN"), "{text}"),
        frame => assert_eq!(json(frame).unwrap()["worker"], "w2", "an answer of the past"),
    }
    let put = zombie.read().unwrap();
    let there = owner.call(&["HAUL.GET", "after"]);
    match put {
        Frame::Error(text) => assert!(text.starts_with("TRYAGAIN"), "{text}"),
        _ => assert!(json(&there).is_some(), "acknowledged by a node that had lost the shard"),
    }
    eventually("the paused node is a node like others again", || {
        settled(&mut owner, 2)
            && zombie.try_call(&["HAUL.GET", "before"]).is_ok_and(|frame| json(&frame).is_some())
    });
}

#[test]
fn nodes_apart_go_on_with_what_they_own() {
    for cut in [Cut::Broken, Cut::Silent] {
        let store = Store::new();
        let wait = ["--hand-over-wait", "500"];
        let one = store.node_on_lines("one", &[&["--shards", "4"][..], &wait].concat());
        let two = store.node_on_lines("two", &wait);
        let (mut first, mut second) = (one.server.connect(), two.server.connect());
        eventually("both nodes are there", || settled(&mut first, 2) && settled(&mut second, 2));
        let owned = |client: &mut Client| -> Vec<(String, u64)> {
            let document = nodes(client);
            let shards = document["shards"].as_array().unwrap().iter();
            shards
                .map(|shard| (shard["node"].as_str().unwrap().to_owned(), shard["epoch"].as_u64().unwrap()))
                .collect()
        };
        let before = owned(&mut first);
        one.from_nodes.cut(cut);
        two.from_nodes.cut(cut);
        let mut acknowledged = Vec::new();
        for tenant in 0..TENANTS {
            for (at, client) in [&mut first, &mut second].into_iter().enumerate() {
                call(client, &format!("SELECT {tenant}"));
                let jid = format!("job-{tenant}-{at}");
                match call(client, &format!("HAUL.PUT q k {{}} JID {jid}")) {
                    Frame::Error(text) => assert!(text.starts_with("TRYAGAIN"), "{text}"),
                    _ => acknowledged.push((tenant, jid)),
                }
            }
            let here = acknowledged.iter().filter(|(of, _)| *of == tenant).count();
            assert_eq!(here, 1, "tenant {tenant} is served by its owner and by nobody else");
        }
        assert_eq!((owned(&mut first), owned(&mut second)), (before.clone(), before), "nothing has moved");
        one.from_nodes.cut(Cut::Not);
        two.from_nodes.cut(Cut::Not);
        for (tenant, jid) in acknowledged {
            for client in [&mut first, &mut second] {
                call(client, &format!("SELECT {tenant}"));
                eventually("both nodes see it", || match call(client, &format!("HAUL.GET {jid}")) {
                    Frame::Error(text) => {
                        assert!(text.starts_with("TRYAGAIN"), "{text}");
                        false
                    }
                    frame => json(&frame).unwrap()["jid"] == jid,
                });
            }
        }
    }
}

#[test]
#[ignore = "needs a store that is a service: tests/object/run starts one"]
fn a_node_cut_off_from_the_store_acknowledges_nothing_and_can_be_stopped() {
    for cut in [Cut::Broken, Cut::Silent] {
        let store = Store::new();
        let one = store.node_on_lines("one", &["--shards", "1", "--store-timeout", "2s"]);
        let line = one.to_store.as_ref().unwrap();
        let (mut writer, mut reader) = (one.server.connect(), one.server.connect());
        eventually("the shard is served", || settled(&mut writer, 1));
        call(&mut writer, "HAUL.PUT q k {} JID before");
        line.cut(cut);
        writer.send(&["HAUL.PUT", "q", "k", "{}", "JID", "after"]).unwrap();
        let two = store.node("two", &[]);
        let mut owner = two.connect();
        // Another has taken the shard over, and has given the job away.
        eventually("the shard is served elsewhere", || {
            let frame = owner.call(&["HAUL.POP", "w2", "LOCK", LONG, "QUEUES", "q"]);
            matches!(&frame, Frame::Array(jobs) if !jobs.is_empty())
        });
        // It has been no owner for long: a look is refused, or answered by the new one.
        match reader.call(&["HAUL.GET", "before"]) {
            Frame::Error(text) => assert!(text.starts_with("TRYAGAIN"), "{text}"),
            frame => assert_eq!(json(&frame).unwrap()["worker"], "w2", "an answer of the past"),
        }
        // Whoever waits is told, although the store is still out of reach.
        let put = writer.read().unwrap();
        let there = json(&owner.call(&["HAUL.GET", "after"])).is_some();
        match put {
            Frame::Error(text) => assert!(text.starts_with("TRYAGAIN"), "{text}"),
            _ => assert!(there, "acknowledged by a node that had lost the shard"),
        }
        line.cut(Cut::Not);
        eventually("it is a node like others again", || settled(&mut owner, 2));
        line.cut(cut);
        let stopping = std::thread::spawn(move || one.server.stop());
        eventually("it ends although it cannot reach the store", || stopping.is_finished());
    }
}
