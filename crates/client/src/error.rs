//! What can go wrong with a call, sorted by what the caller can do about it.

use crate::resp::ProtocolError;
use std::sync::Arc;

/// Why a call has no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server said no, and nothing changed. The code is stable (`docs/reference/refusals.md`); the message is for people.
    #[error("{code} {message}")]
    Refused {
        /// The first word of the error, for example `NOTHELD`.
        code: String,
        /// The rest.
        message: String,
    },
    /// The connection broke after the request was sent and before its answer came: it may or may not have happened.
    #[error("the connection broke before the answer came")]
    Disconnected,
    /// No answer within the request timeout: it may or may not have happened.
    #[error("no answer in time")]
    Timeout,
    /// The server cannot be reached; nothing was sent.
    #[error("cannot reach the server: {0}")]
    Io(Arc<std::io::Error>),
    /// The server sent something that is not the Redis protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The answer is not of the form this command has.
    #[error("unexpected answer: {0}")]
    Decode(String),
    /// The data given cannot be written as JSON; nothing was sent.
    #[error("data is not JSON: {0}")]
    Encode(String),
    /// TLS cannot be set up with these files; nothing was sent.
    #[error("TLS: {0}")]
    Tls(String),
    /// The address given is not one; nothing was sent.
    #[error("not an address: {0}")]
    Address(String),
}

impl Error {
    /// From the text of an error reply.
    pub(crate) fn refused(text: &str) -> Self {
        let (code, message) = text.split_once(' ').unwrap_or((text, ""));
        Self::Refused { code: code.to_owned(), message: message.to_owned() }
    }

    /// The refusal's code, if the server refused.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Another worker, or a later attempt, holds the lock.
    #[must_use]
    pub fn is_not_held(&self) -> bool {
        self.code() == Some("NOTHELD")
    }

    /// The job is not running.
    #[must_use]
    pub fn is_not_running(&self) -> bool {
        self.code() == Some("NOTRUNNING")
    }

    /// There is no such job.
    #[must_use]
    pub fn is_no_job(&self) -> bool {
        self.code() == Some("NOJOB")
    }

    /// A put with `nx` named a job that exists.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        self.code() == Some("EXISTS")
    }

    /// An argument is missing, of the wrong kind or beyond a limit.
    #[must_use]
    pub fn is_bad_argument(&self) -> bool {
        self.code() == Some("BADARG")
    }

    /// Other jobs depend on the job to be cancelled.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.code() == Some("NEEDED")
    }

    /// The server's disk is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.code() == Some("FULL")
    }

    /// The command could not be made durable and did not happen. [`crate::Client`] repeats these by itself until the
    /// request timeout.
    #[must_use]
    pub fn is_try_again(&self) -> bool {
        self.code() == Some("TRYAGAIN")
    }

    /// The caller no longer holds the job: stop working on it.
    #[must_use]
    pub fn is_lock_lost(&self) -> bool {
        self.is_not_held() || self.is_not_running() || self.is_no_job()
    }

    /// The same call may succeed later without anybody changing anything about it.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused { .. } => self.is_try_again() || self.is_full(),
            Self::Disconnected | Self::Timeout | Self::Io(_) | Self::Protocol(_) => true,
            Self::Decode(_) | Self::Encode(_) | Self::Address(_) | Self::Tls(_) => false,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_split_into_code_and_message() {
        let error = Error::refused("NOTHELD job j1 is held by w2");
        assert!(error.is_not_held() && error.is_lock_lost() && !error.is_passing());
        assert_eq!(error.to_string(), "NOTHELD job j1 is held by w2");
        assert_eq!(Error::refused("NOJOB").code(), Some("NOJOB"));
    }
}
