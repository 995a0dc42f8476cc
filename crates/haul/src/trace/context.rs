//! A trace context as W3C writes it: `00-<trace>-<span>-<flags>`, in hexadecimal digits.

use std::fmt;

use crate::clock;

/// Which trace, which span of it, and whether it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
    pub(crate) sampled: bool,
}

impl Context {
    /// Reads a `traceparent`. Later versions may have more behind what is known; version `ff` is none.
    pub(crate) fn parse(text: &[u8]) -> Option<Context> {
        let text = std::str::from_utf8(text).ok()?;
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = digits(version)?;
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, span, [flags]) = (digits(trace)?, digits(span)?, digits(flags)?);
        let none = trace == [0; 16] || span == [0; 8];
        (!none).then_some(Context { trace, span, sampled: flags & 1 == 1 })
    }

    /// The beginning of a new trace.
    pub(crate) fn root() -> Context {
        Context { trace: clock::random_id(), span: new_span(), sampled: true }
    }

    /// A new span of the same trace.
    pub(crate) fn child(self) -> Context {
        Context { span: new_span(), ..self }
    }
}

/// A new span's id.
pub(crate) fn new_span() -> [u8; 8] {
    let [a, b, c, d, e, f, _, _, _, _, _, _, _, _, g, h] = clock::random_id();
    [a, b, c, d, e, f, g, h]
}

/// `2 * N` lower-case hexadecimal digits.
fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !lower || text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(if self.sampled { "-01" } else { "-00" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_written_is_read() {
        let context = Context::parse(TEXT.as_bytes()).unwrap();
        assert!(context.sampled);
        assert_eq!(context.to_string(), TEXT);
        let quiet = TEXT.replace("-01", "-00");
        assert!(!Context::parse(quiet.as_bytes()).unwrap().sampled);
        let later = TEXT.replacen("00", "01", 1) + "-more";
        assert!(Context::parse(later.as_bytes()).is_some());
        let root = Context::root();
        assert_eq!(Context::parse(root.to_string().as_bytes()), Some(root));
        assert_eq!((root.child().trace, root.child().span == root.span), (root.trace, false));
    }

    #[test]
    fn what_is_none_is_not_read() {
        for text in [
            "",
            "00",
            "nonsense",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Context::parse(text.as_bytes()), None, "{text}");
        }
    }
}
