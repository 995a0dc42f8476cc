//! A command on its way to the server: its arguments, encoded as they are added.

use crate::resp::{write_array_header, write_bulk};
use bytes::{Bytes, BytesMut};
use std::time::Duration;

/// Whether a command may be sent again when its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Twice has the effect of once, or the second is refused.
    Safe,
    /// Twice may be one time too many.
    Unsafe,
}

/// A command being written.
#[derive(Debug)]
pub(crate) struct CommandBuilder {
    count: usize,
    body: BytesMut,
}

/// A command ready to be sent; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    count: usize,
    body: Bytes,
    pub(crate) repeat: Repeat,
}

impl CommandBuilder {
    pub(crate) fn new(name: &str) -> Self {
        Self { count: 0, body: BytesMut::with_capacity(128) }.arg(name)
    }

    pub(crate) fn arg(mut self, value: impl AsRef<[u8]>) -> Self {
        write_bulk(value.as_ref(), &mut self.body);
        self.count += 1;
        self
    }

    pub(crate) fn args<T: AsRef<[u8]>>(self, values: impl IntoIterator<Item = T>) -> Self {
        values.into_iter().fold(self, Self::arg)
    }

    /// `KEYWORD value`, if there is a value.
    pub(crate) fn option(self, keyword: &str, value: Option<impl AsRef<[u8]>>) -> Self {
        match value {
            Some(value) => self.arg(keyword).arg(value),
            None => self,
        }
    }

    /// `KEYWORD n`, if there is a number.
    pub(crate) fn number(self, keyword: &str, value: Option<impl ToString>) -> Self {
        self.option(keyword, value.map(|value| value.to_string()))
    }

    /// `KEYWORD seconds`, if there is a duration.
    pub(crate) fn duration(self, keyword: &str, value: Option<Duration>) -> Self {
        self.option(keyword, value.map(seconds))
    }

    /// `KEYWORD value` once for each value.
    pub(crate) fn each(self, keyword: &str, values: &[String]) -> Self {
        values.iter().fold(self, |command, value| command.arg(keyword).arg(value))
    }

    /// `KEYWORD`, if it is set.
    pub(crate) fn flag(self, keyword: &str, set: bool) -> Self {
        if set { self.arg(keyword) } else { self }
    }

    pub(crate) fn finish(self, repeat: Repeat) -> Command {
        Command { count: self.count, body: self.body.freeze(), repeat }
    }
}

impl Command {
    /// Appends the request's bytes.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        write_array_header(self.count, out);
        out.extend_from_slice(&self.body);
    }
}

/// A duration as the commands take it.
pub(crate) fn seconds(duration: Duration) -> String {
    duration.as_secs_f64().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_parts_appear_only_when_given() {
        let command = CommandBuilder::new("X")
            .option("A", None::<&str>)
            .number("B", Some(7))
            .duration("C", Some(Duration::from_millis(1500)))
            .each("D", &["d".to_owned()])
            .flag("E", false)
            .finish(Repeat::Safe);
        let mut out = BytesMut::new();
        command.write(&mut out);
        assert_eq!(
            std::str::from_utf8(&out).unwrap().replace("\r\n", " "),
            "*7 $1 X $1 B $1 7 $1 C $3 1.5 $1 D $1 d "
        );
    }
}
