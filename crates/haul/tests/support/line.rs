//! A line between two processes that can be cut: a forwarder on a port of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often a line looks whether it was cut.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// As long as the other end is not there, it is as if it refused.
const CONNECT_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It works.
    Not,
    /// Nothing passes, and nobody is told: what was sent arrives when the line works again.
    Silent,
    /// Connections end, and no new ones are made.
    Broken,
    /// It is gone for good.
    Gone,
}

pub(crate) struct Line {
    /// Where it begins.
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy)]
struct State {
    cut: Cut,
    to: SocketAddr,
}

impl Line {
    pub(crate) fn new(to: SocketAddr) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { cut: Cut::Not, to }));
        let shared = state.clone();
        std::thread::spawn(move || accept(&listener, &shared));
        Line { address, state }
    }

    pub(crate) fn cut(&self, cut: Cut) {
        self.state.lock().unwrap().cut = cut;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.cut(Cut::Gone);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, state: &Arc<Mutex<State>>) {
    for stream in listener.incoming().map_while(Result::ok) {
        let State { cut, to } = *state.lock().unwrap();
        match cut {
            Cut::Gone => return,
            Cut::Broken => drop(stream.shutdown(Shutdown::Both)),
            Cut::Not | Cut::Silent => {
                let state = state.clone();
                std::thread::spawn(move || join(stream, to, &state));
            }
        }
    }
}

fn join(from: TcpStream, to: SocketAddr, state: &Arc<Mutex<State>>) {
    let Ok(other) = TcpStream::connect_timeout(&to, CONNECT_MAX) else {
        return drop(from.shutdown(Shutdown::Both));
    };
    let (Ok(back_from), Ok(back_to)) = (other.try_clone(), from.try_clone()) else { return };
    let shared = state.clone();
    std::thread::spawn(move || pump(back_from, back_to, &shared));
    pump(from, other, state);
}

/// One direction, until one end closes or the line breaks. What is read when the line is cut waits, or is lost.
fn pump(mut from: TcpStream, mut to: TcpStream, state: &Mutex<State>) {
    let _ = to.set_nodelay(true);
    from.set_read_timeout(Some(LOOK_EVERY)).unwrap();
    let mut buffer = [0; 64 << 10];
    while passes(state) {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                if !passes(state) || to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Waits while the line is silent; whether it works then.
fn passes(state: &Mutex<State>) -> bool {
    loop {
        let cut = state.lock().unwrap().cut;
        match cut {
            Cut::Not => return true,
            Cut::Silent => std::thread::sleep(LOOK_EVERY),
            Cut::Broken | Cut::Gone => return false,
        }
    }
}
