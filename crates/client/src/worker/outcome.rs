//! What a handler can say about its job.

use std::time::Duration;

/// How a job went, as its handler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Done.
    Complete {
        /// What it leaves, any text.
        result: Option<String>,
    },
    /// Done here; it goes on in another queue.
    Next {
        /// That queue.
        queue: String,
        /// Not before this long from now.
        delay: Option<Duration>,
    },
    /// To be tried again: uses up one retry.
    Retry {
        /// Not before this long from now; without it, the worker's usual pause.
        delay: Option<Duration>,
    },
    /// Given back as if it had never been taken; next in line.
    Release,
    /// The handler has told the server itself (moved or cancelled the job, say): nothing more to report.
    Handled,
}

impl Outcome {
    /// Done, with nothing to show.
    #[must_use]
    pub fn done() -> Self {
        Self::Complete { result: None }
    }

    /// Done, with a result.
    pub fn result(result: impl Into<String>) -> Self {
        Self::Complete { result: Some(result.into()) }
    }

    /// Done here; it goes on in this queue.
    pub fn next(queue: impl Into<String>) -> Self {
        Self::Next { queue: queue.into(), delay: None }
    }
}

/// Why a job did not go well. Any error becomes one with `?`: its group is the name of the error's type, and the job is
/// tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError {
    pub(super) group: String,
    pub(super) message: String,
    pub(super) remedy: Remedy,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    Retry { delay: Option<Duration> },
    Fail,
}

impl HandlerError {
    /// Trying again may help.
    pub fn retry(group: impl Into<String>, message: impl Into<String>) -> Self {
        let remedy = Remedy::Retry { delay: None };
        Self { group: group.into(), message: message.into(), remedy }
    }

    /// Trying again would not help.
    pub fn fail(group: impl Into<String>, message: impl Into<String>) -> Self {
        Self { group: group.into(), message: message.into(), remedy: Remedy::Fail }
    }

    /// Tried again after this long, instead of the worker's usual pause. Makes a failure a retry.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.remedy = Remedy::Retry { delay: Some(delay) };
        self
    }
}

// Deliberately no `std::error::Error` for `HandlerError`: it would contradict this conversion.
impl<E: std::error::Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Some errors already tell their cause.
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            source = cause.source();
        }
        Self::retry(short_name(std::any::type_name::<E>()), message)
    }
}

/// `std::num::ParseIntError` is `ParseIntError`; what stands in angle brackets goes.
fn short_name(name: &str) -> &str {
    let plain = name.split('<').next().unwrap_or(name);
    plain.rsplit("::").next().unwrap_or(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("reading the order")]
    struct Wrapped(#[source] std::num::ParseIntError);

    #[test]
    fn an_error_becomes_a_retry_with_its_causes() {
        let error: HandlerError = Wrapped("x".parse::<u8>().unwrap_err()).into();
        assert_eq!(error, HandlerError::retry("Wrapped", "reading the order: invalid digit found in string"));
        assert_eq!(short_name("a::B<c::D>"), "B");
    }
}
