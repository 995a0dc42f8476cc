//! Copies of what is being served: nobody waits for them, and what was acknowledged before one began is in it.

use super::*;

/// Runs `haul` and expects it to succeed.
fn haul(words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_haul")).args(words).output().unwrap();
    assert!(output.status.success(), "haul {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A server on a folder, whatever store the nodes of this run have.
fn serve(data: &str) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.args(["serve", "--redis", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", data]);
    command.env_remove("HAUL_STORE_ENDPOINT").env_remove("HAUL_STORE_ALLOW_HTTP");
    Server::spawn(command).unwrap()
}

/// Puts jobs of all tenants until told to stop; how many were acknowledged so far.
struct Load {
    ended: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Load {
    fn start(mut client: Client) -> Load {
        let (ended, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count) = (ended.clone(), acknowledged.clone());
        let thread = std::thread::spawn(move || {
            // With data that is kept apart from its job.
            let data = format!("\"{}\"", "x".repeat(200));
            for at in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                client.call(&["SELECT", &(at % TENANTS).to_string()]);
                let put = client.call(&["HAUL.PUT", "q", "k", &data, "JID", &format!("job-{at}")]);
                assert_eq!(text(&put).unwrap(), format!("job-{at}"));
                count.store(at + 1, Ordering::Release);
            }
        });
        Load { ended, acknowledged, thread }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    fn reach(&self, count: u64) {
        eventually("the jobs are put", || self.acknowledged() >= count);
    }

    fn end(self) -> u64 {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.acknowledged.load(Ordering::Acquire)
    }
}

/// The first `acknowledged` jobs are there with their data, and none that came after `ended`.
fn has_all(client: &mut Client, acknowledged: u64, ended: u64) {
    for at in 0..ended + 100 {
        client.call(&["SELECT", &(at % TENANTS).to_string()]);
        let job = json(&client.call(&["HAUL.GET", &format!("job-{at}")]));
        match job {
            Some(job) => {
                assert!(at < ended, "job-{at} was put after the backup");
                assert_eq!(job["data"].as_str().unwrap().len(), 200);
                assert_eq!(job["state"], "waiting");
            }
            None => assert!(at >= acknowledged, "job-{at} was acknowledged before the backup began"),
        }
    }
}

#[test]
fn a_live_server_is_backed_up_over_http_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let server = serve(&path("data"));
    let load = Load::start(server.connect());
    load.reach(300);
    let began = load.acknowledged();
    haul(&["backup", &path("file"), "--http", &server.http()]);
    // One that was sent when the backup ended may be in it.
    let ended = load.acknowledged() + 1;
    load.reach(ended + 50);
    load.end();
    drop(server);
    haul(&["restore", &path("file"), "--to", &path("restored")]);
    let restored = serve(&path("restored"));
    has_all(&mut restored.connect(), began, ended);
    // The same file makes a store for nodes.
    let store = Store::new();
    haul(&["restore", &path("file"), "--to", &store.url, "--shards", "3"]);
    let node = store.node("one", &[]);
    has_all(&mut node.connect(), began, ended);
}

#[test]
fn nodes_are_backed_up_while_they_serve() {
    let store = Store::new();
    let (one, two) = (store.node("one", &["--shards", "4"]), store.node("two", &[]));
    let mut client = two.connect();
    eventually("both nodes are there", || settled(&mut client, 2));
    let load = Load::start(one.connect());
    load.reach(60);
    let began = load.acknowledged();
    let file = store.folder.path().join("file").display().to_string();
    haul(&["backup", &file, "--store", &store.url]);
    let ended = load.acknowledged() + 1;
    load.reach(ended + 20);
    let all = load.end();
    let restored = Store::new();
    haul(&["restore", &file, "--to", &restored.url]);
    let node = restored.node("one", &[]);
    has_all(&mut node.connect(), began, ended);
    // Whoever served meanwhile serves on, fenced by nobody.
    assert!(settled(&mut client, 2));
    has_all(&mut client, all, all);
}
