//! JSON, twice: a checker for what users hand in (RFC 8259, any bytes inside strings), and writers in the two styles
//! the dialects need.

use super::number::{push_g14, push_int};

/// Arrays and objects within each other, at most.
const DEPTH_MAX: usize = 1000;

/// What a JSON text is at its top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    False,
    True,
    Number,
    String,
    Array,
    Object,
}

/// Why a text is no JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// At this character, counted from 1.
    Token(usize),
    /// Nested too deep, at this character.
    Depth(usize),
}

/// Checks a text; says what it is.
pub(crate) fn check(text: &[u8]) -> Result<Kind, Fault> {
    Checker { text, at: 0, open: Vec::new() }.document()
}

struct Checker<'a> {
    text: &'a [u8],
    at: usize,
    /// The closers we owe, innermost last.
    open: Vec<u8>,
}

impl Checker<'_> {
    fn document(mut self) -> Result<Kind, Fault> {
        self.space();
        let kind = self.value()?;
        while !self.open.is_empty() {
            self.step()?;
        }
        self.space();
        if self.at == self.text.len() { Ok(kind) } else { Err(self.fault()) }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn fault(&self) -> Fault {
        Fault::Token(self.at + 1)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.fault())
    }

    /// A scalar, or the opening of an array or object with its first element.
    fn value(&mut self) -> Result<Kind, Fault> {
        match self.peek() {
            Some(b'{') => self.opened(b'}').map(|()| Kind::Object),
            Some(b'[') => self.opened(b']').map(|()| Kind::Array),
            Some(b'"') => self.string().map(|()| Kind::String),
            Some(b't') => self.word(b"true").map(|()| Kind::True),
            Some(b'f') => self.word(b"false").map(|()| Kind::False),
            Some(b'n') => self.word(b"null").map(|()| Kind::Null),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| Kind::Number),
            _ => Err(self.fault()),
        }
    }

    fn opened(&mut self, closer: u8) -> Result<(), Fault> {
        self.at += 1;
        if self.open.len() == DEPTH_MAX {
            return Err(Fault::Depth(self.at));
        }
        self.space();
        if self.peek() == Some(closer) {
            self.at += 1;
            return Ok(());
        }
        self.open.push(closer);
        self.member(closer)
    }

    fn member(&mut self, closer: u8) -> Result<(), Fault> {
        if closer == b'}' {
            self.string()?;
            self.space();
            self.expect(b':')?;
            self.space();
        }
        // Recursion is bounded by DEPTH_MAX, but each level costs little stack: the parts are small.
        self.value().map(|_| ())
    }

    /// After a value inside an array or object: the next member, or the end.
    fn step(&mut self) -> Result<(), Fault> {
        let Some(&closer) = self.open.last() else { return Ok(()) };
        self.space();
        if self.peek() == Some(closer) {
            self.at += 1;
            self.open.pop();
            return Ok(());
        }
        self.expect(b',')?;
        self.space();
        self.member(closer)
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Fault> {
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(());
        }
        Err(self.fault())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.fault()) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), Fault> {
        self.expect(b'"')?;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(0..=0x1f) | None => return Err(self.fault()),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                let unit = self.unit()?;
                match unit {
                    0xd800..=0xdbff => {
                        self.expect(b'\\')?;
                        if !matches!(self.unit()?, 0xdc00..=0xdfff) {
                            return Err(self.fault());
                        }
                        Ok(())
                    }
                    0xdc00..=0xdfff => Err(self.fault()),
                    _ => Ok(()),
                }
            }
            _ => Err(self.fault()),
        }
    }

    /// `uXXXX`.
    fn unit(&mut self) -> Result<u32, Fault> {
        self.expect(b'u')?;
        let mut value = 0;
        for _ in 0..4 {
            let digit =
                self.peek().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(|| self.fault())?;
            value = value * 16 + digit;
            self.at += 1;
        }
        Ok(value)
    }
}

/// Writes a string as the scripts do: `/` escaped too, DEL as an escape, other bytes copied.
pub(crate) fn push_lua_string(out: &mut Vec<u8>, text: &[u8]) {
    push_string(out, text, true);
}

/// Writes a string as plain JSON; what is not UTF-8 as `plain` says.
pub(crate) fn push_json_string(out: &mut Vec<u8>, text: &[u8]) {
    push_string(out, super::plain::to_text(text).as_bytes(), false);
}

fn push_string(out: &mut Vec<u8>, text: &[u8], lua: bool) {
    out.push(b'"');
    let mut plain = 0;
    for (at, &byte) in text.iter().enumerate() {
        let short: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'/' if lua => b"\\/",
            0x08 => b"\\b",
            b'\t' => b"\\t",
            b'\n' => b"\\n",
            0x0c => b"\\f",
            b'\r' => b"\\r",
            0..=0x1f => b"",
            0x7f if lua => b"",
            _ => continue,
        };
        out.extend_from_slice(text.get(plain..at).unwrap_or_default());
        if short.is_empty() {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
        } else {
            out.extend_from_slice(short);
        }
        plain = at + 1;
    }
    out.extend_from_slice(text.get(plain..).unwrap_or_default());
    out.push(b'"');
}

/// A list, with what an empty one is written as.
pub(crate) fn push_list<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    empty: &str,
    mut each: impl FnMut(&mut Vec<u8>, T),
) {
    let start = out.len();
    out.push(b'[');
    for item in items {
        if out.len() > start + 1 {
            out.push(b',');
        }
        each(out, item);
    }
    if out.len() == start + 1 {
        out.truncate(start);
        out.extend_from_slice(empty.as_bytes());
    } else {
        out.push(b']');
    }
}

/// Writes an object member by member.
pub(crate) struct Object<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    any: bool,
    lua: bool,
}

impl<'a> Object<'a> {
    /// In the scripts' style.
    pub(crate) fn lua(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Object { out, any: false, lua: true }
    }

    /// In plain style.
    pub(crate) fn json(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Object { out, any: false, lua: false }
    }

    /// The key; the value is written by the caller.
    pub(crate) fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.key_bytes(key.as_bytes())
    }

    pub(crate) fn key_bytes(&mut self, key: &[u8]) -> &mut Vec<u8> {
        if self.any {
            self.out.push(b',');
        }
        self.any = true;
        push_string(self.out, key, self.lua);
        self.out.push(b':');
        self.out
    }

    pub(crate) fn string(&mut self, key: &str, value: &[u8]) {
        let lua = self.lua;
        let out = self.key(key);
        if lua { push_lua_string(out, value) } else { push_json_string(out, value) }
    }

    pub(crate) fn number(&mut self, key: &str, value: f64) {
        push_g14(self.key(key), value);
    }

    pub(crate) fn count(&mut self, key: &str, value: usize) {
        push_int(self.key(key), i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(crate) fn raw(&mut self, key: &str, value: &[u8]) {
        self.key(key).extend_from_slice(value);
    }

    pub(crate) fn end(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checker_accepts_rfc_8259_and_nothing_else() {
        for (text, kind) in [
            ("{}", Kind::Object),
            (" [1, 2.5e-3, \"a\\u00e9\\ud83d\\ude00\", null, true, {\"a\":[]}] ", Kind::Array),
            ("null", Kind::Null),
            ("false", Kind::False),
            ("-0.5", Kind::Number),
            ("\"x\"", Kind::String),
            ("{\"a\":1,\"a\":2}", Kind::Object),
        ] {
            assert_eq!(check(text.as_bytes()), Ok(kind), "{text}");
        }
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\":}",
            "NaN",
            "0x1F",
            "01",
            "1.",
            "\"\\ud800\"",
            "[1] x",
            "{'a':1}",
            "\"\n\"",
            "tru",
            "[",
            "{\"a\"}",
        ] {
            assert!(check(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(check(b""), Err(Fault::Token(1)));
    }

    #[test]
    fn nesting_of_1000_is_accepted_and_1001_is_not() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check(nested(1000).as_bytes()), Ok(Kind::Array));
        assert_eq!(check(nested(1001).as_bytes()), Err(Fault::Depth(1001)));
    }

    #[test]
    fn strings_are_escaped_as_the_scripts_do() {
        let mut out = Vec::new();
        push_lua_string(&mut out, b"a/\"\\\x01\x7f\xff\n");
        assert_eq!(out, b"\"a\\/\\\"\\\\\\u0001\\u007f\xff\\n\"");
    }
}
