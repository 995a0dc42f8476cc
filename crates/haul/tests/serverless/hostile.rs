//! What a handler may not do. Whatever one tries, the next job of another tenant is not disturbed.

use std::process::Command;

use serde_json::json;

use crate::support::{Server, has};

/// A server with a well-behaved neighbour.
struct World {
    server: Server,
    data: tempfile::TempDir,
}

impl World {
    fn new(extra: &[&str]) -> World {
        let data = tempfile::tempdir().unwrap();
        let mut all = vec!["--handler-retry-time", "0"];
        all.extend(extra);
        let server = Server::start(data.path(), &all);
        server.handler(
            "good/handler/t",
            &json!({"lang": "python", "body": "def handle(p):\n    return p\n", "options": {"keepResult": true}}),
        );
        World { server, data }
    }

    /// Runs one deed; its code and reason. The neighbour must not notice.
    fn attempt(&self, lang: &str, body: &str, options: serde_json::Value) -> (String, String) {
        self.server.handler("evil/handler/t", &json!({"lang": lang, "body": body, "options": options}));
        let seen = self.server.invoke("evil", "t", "x");
        assert_eq!(self.server.invoke("good", "t", "fine")["result"], "fine", "{body}");
        let text = |key: &str| seen[key].as_str().unwrap_or_default().to_owned();
        (text("code"), text("reason"))
    }

    fn python(&self, code: &str) -> (String, String) {
        self.python_with(code, json!({"timeoutMs": 20_000}))
    }

    fn python_with(&self, code: &str, options: serde_json::Value) -> (String, String) {
        let code = code.replace('\n', "\n    ");
        let body = format!(
            "import os, time, socket\ndef handle(payload):\n    {code}\n    return 'got away with it'\n"
        );
        self.attempt("python", &body, options)
    }

    fn must_fail(&self, code: &str, why: &str) {
        let (word, reason) = self.python(code);
        assert_eq!(word, "abandoned", "{code}: {reason}");
        assert!(reason.contains(why), "{code}: {reason}");
    }
}

#[test]
fn files_environment_and_privileges_are_out_of_reach() {
    if !has("/usr/bin/python3") {
        return;
    }
    let world = World::new(&[]);
    let folder = world.data.path().display();
    for path in ["/etc/passwd", "/etc/shadow", "/proc/self/environ", "/proc/1/environ", "/root/.profile"] {
        world.must_fail(&format!("open('{path}').read()"), "PermissionError");
    }
    world.must_fail(&format!("os.listdir('{folder}')"), "PermissionError");
    world.must_fail(&format!("open('{folder}/journal/journal.000001').read()"), "PermissionError");
    world.must_fail("os.listdir('/tmp')", "PermissionError");
    world.must_fail("os.listdir('..')", "PermissionError");
    world.must_fail("open('/tmp/left-behind', 'w')", "PermissionError");
    world.must_fail("os.setuid(0)", "PermissionError");
    world.must_fail("os.chroot('.')", "PermissionError");
    let shown = "assert not [key for key in os.environ if key not in ('PATH', 'HOME', 'TMPDIR', 'LANG', 'PWD', \
        'HAUL_TENANT', 'HAUL_JOBTYPE', 'HAUL_JOB_ID', 'LC_CTYPE')], os.environ";
    assert_eq!(world.python(shown).0, "ok");
}

#[test]
fn other_processes_are_out_of_reach() {
    if !has("/usr/bin/python3") {
        return;
    }
    let world = World::new(&[]);
    world.must_fail(&format!("os.kill({}, 9)", world.server.child.id()), "Error");
    // These may end the handler itself, and nothing else: the neighbour and the server live on.
    for deed in ["os.kill(os.getppid(), 9)", "os.kill(-1, 9)", "os.kill(0, 9)", "os.kill(1, 9)", "os.abort()"]
    {
        world.python(deed);
    }
    for script in ["kill -9 $PPID", "kill -9 -1", "kill -9 0", "kill -STOP $PPID; sleep 1"] {
        world.attempt("sh", script, json!({"timeoutMs": 3000}));
    }
}

#[test]
fn forks_without_end_end() {
    if !has("/usr/bin/python3") {
        return;
    }
    let world = World::new(&[]);
    world.must_fail(
        "while True:\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)",
        "too many processes",
    );
    // A true bomb: every child goes on too. However its answers get mixed up, it is its own job that fails.
    let (word, _) = world.python("while True:\n    os.fork()");
    assert_eq!(word, "abandoned");
    // The processor time of all children together is the job's.
    let busy = "for at in range(4):\n    if os.fork() == 0:\n        while True: pass\ntime.sleep(60)";
    let (word, reason) = world.python(busy);
    assert_eq!((&*word, &*reason), ("abandoned", "timeout"));
    let (word, reason) =
        world.attempt("sh", "for at in 1 2 3 4; do (while :; do :; done) & done; wait", json!({}));
    assert_eq!((&*word, &*reason), ("abandoned", "timeout"));
    // What a job leaves behind goes before the next job of the same context.
    let body = "import os, time\ndef handle(payload):\n    found = os.path.exists('mark')\n    open('mark', 'w').close()\n    \
        if payload == 'x' and os.fork() == 0:\n        time.sleep(600)\n        os._exit(0)\n    return found\n";
    let handler = json!({"lang": "python", "body": body, "options": {"keepResult": true}});
    world.server.handler("evil/handler/left", &handler);
    assert_eq!(world.server.invoke("evil", "left", "x")["result"], false);
    assert_eq!(
        world.server.invoke("evil", "left", "y")["result"],
        false,
        "a new context: the old one had a process left"
    );
    assert_eq!(world.server.invoke("evil", "left", "y")["result"], true, "a tidy one is kept");
}

#[test]
fn memory_and_disk_have_an_end() {
    if !has("/usr/bin/python3") {
        return;
    }
    let world = World::new(&[]);
    world.must_fail("bytearray(4 << 30)", "MemoryError");
    // Slowly, it is seen before the kernel says no.
    world.must_fail("kept = []\nwhile True:\n    kept.append(bytearray(1 << 20))", "emory");
    // Each of them keeps to the limit, all together do not.
    let many = "for at in range(8):\n    if os.fork() == 0:\n        kept = bytearray(os.urandom(1 << 20)) * 100\n        \
        time.sleep(60)\ntime.sleep(60)";
    let (word, reason) = world.python(many);
    assert_eq!((&*word, &*reason), ("abandoned", "too much memory (memoryMb)"));
    world.must_fail("open('x', 'wb').write(b'x' * (100 << 20))", "Error");
    let files = "at = 0\nwhile True:\n    at += 1\n    open('f%d' % at, 'wb').write(b'x' * (20 << 20))";
    let (word, reason) = world.python(files);
    assert_eq!((&*word, &*reason), ("abandoned", "too much in its folder"));
    let names = "at = 0\nwhile True:\n    at += 1\n    open('f%d' % at, 'wb').close()";
    // As long as it takes: some disks make few files in a second.
    let patient = json!({"timeoutMs": 120_000, "cpuMs": 120_000});
    assert_eq!(world.python_with(names, patient).1, "too much in its folder");
    // Output without end.
    assert_eq!(world.python("while True:\n    print('x' * 100000)").0, "abandoned");
    let (word, reason) = world.attempt("sh", "yes", json!({}));
    assert_eq!((&*word, &*reason), ("abandoned", "too much output"));
    let busy = json!({"cpuMs": 500});
    assert_eq!(world.attempt("python", "def handle(p):\n    while True: pass\n", busy.clone()).1, "timeout");
    assert_eq!(world.attempt("sh", "while :; do :; done", busy).1, "timeout");
    assert_eq!(world.attempt("sh", "sleep 60", json!({"timeoutMs": 300})).1, "timeout");
}

#[test]
fn the_network_is_off_unless_it_was_allowed() {
    if !has("/usr/bin/python3") {
        return;
    }
    let world = World::new(&[]);
    let (host, port) = world.server.http.split_once(':').unwrap();
    let connect = format!("socket.create_connection(('{host}', {port}), 5)");
    world.must_fail(&connect, "Error");
    world
        .must_fail("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))", "Error");
    world.must_fail("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "PermissionError");
    world.must_fail("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "PermissionError");
    let body = format!("import socket\ndef handle(payload):\n    {connect}\n");
    assert_eq!(world.attempt("python", &body, json!({"network": true})).0, "ok");
}

#[test]
fn a_tenant_cannot_be_forged() {
    let world = World::new(&[]);
    let script =
        "echo 'J: good-t|forged'; echo 'J: good|forged'; echo 'J: ../x|y'; echo 'J: a,b|y'; echo 'J: |y'";
    assert_eq!(world.attempt("sh", script, json!({})).0, "ok");
    // Both names are types of the tenant itself; the others are none.
    assert_eq!(world.server.usage("good")["jobs"], 1, "nothing but the neighbour's own job");
    crate::support::until("its own jobs", || {
        world.server.jobs("evil", "good-t").len() == 1 && world.server.jobs("evil", "good").len() == 1
    });
}

/// Where the kernel lacks a part, the server says so, or refuses to start if that was demanded.
#[test]
fn a_system_that_cannot_confine_is_told() {
    let lacking = "echo 0 > /proc/sys/user/max_pid_namespaces && exec \"$@\"";
    let under = || {
        let mut command = Command::new("unshare");
        command.args(["-Ur", "sh", "-c", lacking, "sh", env!("CARGO_BIN_EXE_haul")]);
        command
    };
    if !under().arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: this system has no user namespaces to take something away in");
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let told = under()
        .args(["serve", "--redis", "127.0.0.1:0", "--http", "127.0.0.1:0", "--require-confinement", "--data"])
        .arg(data.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!told.status.success() && text.contains("lacks") && text.contains("namespaces"), "{text}");
    let data = tempfile::tempdir().unwrap();
    drop(Server::with(under(), data.path(), &[]));
}
