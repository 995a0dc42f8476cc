//! Why a subcommand did not do what was asked: the exit code, the sentence, and what to do next.

use std::io;

use haul_client::Error;
use serde_json::{Value, json};

/// What a subcommand ends with.
pub(super) type Done = Result<(), Failure>;

/// Shown at the end of `haul --help`.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused: the server said no (no such job, not held, ...); nothing changed
  2  wrong usage, or a file that cannot be read; nothing was sent
  3  the server cannot be reached, or did not answer
  4  nothing there: no job to pop, no result yet
`haul run` and `haul wait` exit with the job's own status once it has ended.

With --json every subcommand prints one JSON document on one line (events and put --many:
one for each); what went wrong goes to standard error as
{\"error\":{\"code\":...,\"message\":...,\"next\":...}}.";

#[derive(Debug)]
pub(super) enum Failure {
    /// The command line is wrong in a way only we can see.
    Usage(String),
    /// A no of our own, in the form of the server's.
    Refused { code: &'static str, message: String, next: String },
    /// The server said no, or nothing.
    Call(Error),
    /// As `Call`, with better advice than the code alone gives.
    Advised(Error, String),
    /// A job ended badly: the exit code is its own.
    Ended { exit: u8, message: String },
    /// The server's HTTP side does not answer.
    Unreachable { message: String, next: String },
    /// Nothing is wrong, and nothing came.
    Nothing(String),
    /// Standard output cannot be written to.
    Output(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Call(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

/// A failure as it is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) exit: u8,
    code: String,
    message: String,
    next: Option<String>,
}

impl Failure {
    /// There is no such job, found out by looking.
    pub(super) fn no_job(jid: &str) -> Self {
        let message = format!("there is no job {jid}");
        Failure::Refused { code: "NOJOB", message, next: next_step("NOJOB", "").unwrap_or_default() }
    }

    pub(super) fn no_recur(jid: &str) -> Self {
        let message = format!("there is no recurring job {jid}");
        Failure::Refused { code: "NORECUR", message, next: next_step("NORECUR", "").unwrap_or_default() }
    }

    /// None: whoever read our output has enough of it, which is no failure.
    pub(super) fn told(self, address: &str) -> Option<Told> {
        let told = |exit, code: &str, message: String, next: Option<String>| {
            Some(Told { exit, code: code.to_owned(), message, next })
        };
        match self {
            Failure::Usage(message) => told(2, "USAGE", message, None),
            Failure::Refused { code, message, next } => told(1, code, message, Some(next)),
            Failure::Ended { exit, message } => told(exit, "FAILED", message, None),
            Failure::Unreachable { message, next } => told(3, "UNREACHABLE", message, Some(next)),
            Failure::Nothing(message) => told(4, "NOTHING", message, None),
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Failure::Output(error) => {
                told(2, "OUTPUT", format!("the output cannot be written: {error}"), None)
            }
            Failure::Call(Error::Refused { code, message }) => {
                let next = next_step(&code, &message);
                told(1, &code, message, next)
            }
            Failure::Advised(Error::Refused { code, message }, next) => told(1, &code, message, Some(next)),
            Failure::Call(error) | Failure::Advised(error, _) => Some(without_answer(&error, address)),
        }
    }
}

fn without_answer(error: &Error, address: &str) -> Told {
    let (exit, code, message, next) = match error {
        Error::Tls(_) => (2, "USAGE", error.to_string(), None),
        Error::Encode(_) => (2, "USAGE", error.to_string(), None),
        Error::Address(_) => {
            (2, "USAGE", format!("--server: {error}"), Some("give it as 127.0.0.1:4286".to_owned()))
        }
        Error::Disconnected | Error::Timeout => (
            3,
            "UNKNOWN",
            format!("{address}: {error}; it may or may not have happened"),
            Some("look with `haul job` or `haul queues` before trying again".to_owned()),
        ),
        Error::Protocol(_) | Error::Decode(_) => (
            3,
            "UNREACHABLE",
            format!("{address}: {error}"),
            Some(
                "is this the Redis-protocol port of a Haul server of this version? `haul ping` tells"
                    .to_owned(),
            ),
        ),
        _ => (
            3,
            "UNREACHABLE",
            format!("no server at {address}: {error}"),
            Some("start one with `haul serve`, or name another with --server or HAUL_SERVER".to_owned()),
        ),
    };
    Told { exit, code: code.to_owned(), message, next }
}

/// What to do about a refusal, by its code.
fn next_step(code: &str, message: &str) -> Option<String> {
    let next = match code {
        "NOJOB" => {
            "it was cancelled, or purged some time after it was done; `haul jobs complete` lists those kept"
        }
        "NORECUR" => "`haul recur list` shows those there are",
        "EXISTS" => "look at it with `haul job`, or leave --nx away to put it again",
        "NOTRUNNING" => "`haul job` shows what became of it",
        "NOTHELD" => {
            "name the worker that popped it with --worker (and its --attempt), or take it away with `haul release`"
        }
        "NOTDEPENDS" => {
            "only a job in state depends can be changed; `haul move JID QUEUE --depends OTHER` puts one there"
        }
        "NEEDED" => "name the jobs that wait for it too: haul cancel JID OTHER",
        "TRYAGAIN" => "nothing happened; run it again",
        "FULL" => "make room on the server's disk, then run it again",
        "NOAUTH" => "show a token: HAUL_TOKEN or --token-file; `haul token add` makes one",
        "WRONGPASS" => {
            "the token was removed or has ended; `haul token list` on the server shows those there are"
        }
        "NOPERM" => "use a token of another role or tenant; `haul token add` makes one",
        "BADARG" => "`haul help` and the subcommand's name say what it takes",
        _ if message.contains("unknown command") => "is this a Haul server? `haul ping` tells",
        _ if message.contains("DB index") => "--tenant takes a number from 0 to 15, or a name",
        _ => return None,
    };
    Some(next.to_owned())
}

impl Told {
    /// For standard error.
    pub(super) fn text(&self, json: bool) -> String {
        if json {
            let next = self.next.as_ref().map_or(Value::Null, |next| json!(next));
            return json!({"error": {"code": self.code, "message": self.message, "next": next}}).to_string();
        }
        let code = match self.exit {
            1 if self.code != "FAILED" => format!("{} ", self.code),
            _ => String::new(),
        };
        let next = self.next.as_ref().map_or_else(String::new, |next| format!("\n  {next}"));
        format!("haul: {code}{}{next}", self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(failure: Failure) -> Told {
        failure.told("box:1").unwrap()
    }

    #[test]
    fn each_kind_has_its_exit_code() {
        let refused = Error::Refused { code: "NOTHELD".into(), message: "job j is held by w".into() };
        let io = Error::Io(std::sync::Arc::new(io::ErrorKind::ConnectionRefused.into()));
        let cases = [
            (Failure::Call(refused.clone()), 1),
            (Failure::Advised(refused, "x".into()), 1),
            (Failure::no_job("j"), 1),
            (Failure::Usage("x".into()), 2),
            (Failure::Call(Error::Address("x".into())), 2),
            (Failure::Call(io), 3),
            (Failure::Call(Error::Timeout), 3),
            (Failure::Nothing("x".into()), 4),
        ];
        for (failure, exit) in cases {
            assert_eq!(told(failure).exit, exit);
        }
        assert_eq!(Failure::Output(io::ErrorKind::BrokenPipe.into()).told("box:1"), None);
    }

    #[test]
    fn a_refusal_says_its_code_and_what_to_do_next() {
        let text = told(Failure::no_job("j")).text(false);
        assert!(text.starts_with("haul: NOJOB there is no job j\n  it was cancelled"), "{text}");
        let json: Value = serde_json::from_str(&told(Failure::no_job("j")).text(true)).unwrap();
        assert_eq!(json["error"]["code"], "NOJOB");
    }
}
