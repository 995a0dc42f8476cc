//! The real binary as a server on a folder and a port of its own, for tests that talk to it as users do.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running server; dropping it kills it and removes its data.
pub(crate) struct Server {
    /// `127.0.0.1:PORT` of the Redis-protocol side.
    pub(crate) address: String,
    pub(crate) data_dir: tempfile::TempDir,
    child: Child,
}

impl Server {
    /// Starts on a new folder and a free port, and waits until it is ready.
    pub(crate) fn start(extra_args: &[&str]) -> Server {
        let data_dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_haul"))
            .args(["serve", "--redis", "127.0.0.1:0", "--http", "off", "--log-format", "text", "--data"])
            .arg(data_dir.path())
            .args(extra_args)
            .env_remove("HAUL_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let address = loop {
            let from = seen.len();
            if log.read_line(&mut seen).unwrap() == 0 {
                panic!("the server did not start:\n{seen}");
            }
            if let Some((_, rest)) = seen.get(from..).unwrap().split_once("redis=") {
                break rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        // A full pipe would stop the server: what it says further is read and dropped.
        std::thread::spawn(move || drop(log.read_to_end(&mut Vec::new())));
        Server { address, data_dir, child }
    }

    /// Asks it to stop (SIGTERM) and waits until it has.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
