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
    Checker { text, at: 0, open: Open::default() }.document()
}

struct Checker<'a> {
    text: &'a [u8],
    at: usize,
    open: Open,
}

/// The closers that are owed: a bit for each, set for an object's.
#[derive(Default)]
struct Open {
    objects: [u64; DEPTH_MAX.div_ceil(64)],
    depth: usize,
}

impl Open {
    fn push(&mut self, closer: u8) {
        if let Some(word) = self.objects.get_mut(self.depth / 64) {
            let bit = 1 << (self.depth % 64);
            *word = if closer == b'}' { *word | bit } else { *word & !bit };
        }
        self.depth += 1;
    }

    /// The innermost.
    fn last(&self) -> Option<u8> {
        let at = self.depth.checked_sub(1)?;
        let word = self.objects.get(at / 64)?;
        Some(if word >> (at % 64) & 1 == 1 { b'}' } else { b']' })
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

/// Bytes looked at together.
const LOT: usize = 16;

/// How many bytes there are before the first that is special.
#[inline]
fn before(text: &[u8], is_special: impl Fn(u8) -> bool) -> usize {
    let (lots, _) = text.as_chunks::<LOT>();
    // Without a branch for each byte, which is what lets the processor compare a lot at once.
    let any = |lot: &[u8; LOT]| lot.iter().fold(false, |any, byte| any | is_special(*byte));
    let clean = LOT * lots.iter().position(any).unwrap_or(lots.len());
    let rest = text.get(clean..).unwrap_or_default();
    clean + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len())
}

/// Bytes that cannot stand for themselves in a string. With `|`, not `||`: see [`before`].
fn is_marked(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

impl Checker<'_> {
    fn document(mut self) -> Result<Kind, Fault> {
        self.space();
        let kind = self.value()?;
        while self.open.depth > 0 {
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
        if self.open.depth == DEPTH_MAX {
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
        let Some(closer) = self.open.last() else { return Ok(()) };
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
            self.at += before(self.text.get(self.at..).unwrap_or_default(), is_marked);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                _ => return Err(self.fault()),
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
    out.reserve(text.len() + 2);
    out.push(b'"');
    push_escaped(out, text, |byte| is_marked(byte) | (byte == b'/') | (byte == 0x7f));
    out.push(b'"');
}

/// Writes a string as plain JSON; what is not UTF-8 as `plain` says.
pub(crate) fn push_json_string(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let ascii = push_escaped(out, text, |byte| is_marked(byte) | !byte.is_ascii());
    if let Some(rest) = text.get(ascii..).filter(|rest| !rest.is_empty()) {
        push_escaped(out, super::plain::to_text(rest).as_bytes(), is_marked);
    }
    out.push(b'"');
}

/// Writes special bytes as escapes, all others as they are; stops at one that is not ASCII and special. Answers how many
/// were written.
#[inline]
fn push_escaped(out: &mut Vec<u8>, text: &[u8], is_special: impl Fn(u8) -> bool) -> usize {
    let mut done = 0;
    loop {
        let rest = text.get(done..).unwrap_or_default();
        let plain = before(rest, &is_special);
        out.extend_from_slice(rest.get(..plain).unwrap_or(rest));
        done += plain;
        match rest.get(plain) {
            Some(byte) if byte.is_ascii() => push_escape(out, *byte),
            _ => return done,
        }
        done += 1;
    }
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let letter = match byte {
        b'"' | b'\\' | b'/' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend([byte >> 4, byte & 15].map(|digit| digit + if digit < 10 { b'0' } else { b'a' - 10 }));
            return;
        }
    };
    out.extend([b'\\', letter]);
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

    /// The key, one that needs no escaping; the value is written by the caller.
    #[inline(always)]
    pub(crate) fn key(&mut self, key: &'static str) -> &mut Vec<u8> {
        self.out.reserve(key.len() + 4);
        self.comma();
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// A key that is somebody's word; in plain style it must be text.
    pub(crate) fn key_bytes(&mut self, key: &[u8]) -> &mut Vec<u8> {
        self.comma();
        if self.lua {
            push_lua_string(self.out, key);
        } else {
            self.out.push(b'"');
            push_escaped(self.out, key, is_marked);
            self.out.push(b'"');
        }
        self.out.push(b':');
        self.out
    }

    #[inline(always)]
    fn comma(&mut self) {
        if self.any {
            self.out.push(b',');
        }
        self.any = true;
    }

    #[inline]
    pub(crate) fn string(&mut self, key: &'static str, value: &[u8]) {
        let lua = self.lua;
        let out = self.key(key);
        if lua { push_lua_string(out, value) } else { push_json_string(out, value) }
    }

    #[inline]
    pub(crate) fn number(&mut self, key: &'static str, value: f64) {
        push_g14(self.key(key), value);
    }

    #[inline]
    pub(crate) fn count(&mut self, key: &'static str, value: usize) {
        push_int(self.key(key), i64::try_from(value).unwrap_or(i64::MAX));
    }

    #[inline]
    pub(crate) fn raw(&mut self, key: &'static str, value: &[u8]) {
        self.key(key).extend_from_slice(value);
    }

    pub(crate) fn end(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    /// A string byte by byte.
    fn slow_string(text: &[u8], lua: bool) -> Vec<u8> {
        let escape = |byte: &u8| match *byte {
            b'"' => b"\\\"".to_vec(),
            b'\\' => b"\\\\".to_vec(),
            b'/' if lua => b"\\/".to_vec(),
            0x08 => b"\\b".to_vec(),
            b'\t' => b"\\t".to_vec(),
            b'\n' => b"\\n".to_vec(),
            0x0c => b"\\f".to_vec(),
            b'\r' => b"\\r".to_vec(),
            0x7f if !lua => vec![0x7f],
            0..=0x1f | 0x7f => format!("\\u{byte:04x}").into_bytes(),
            other => vec![other],
        };
        let text = if lua { text.to_vec() } else { crate::dialect::plain::to_text(text).as_bytes().to_vec() };
        [b"\"".to_vec(), text.iter().flat_map(escape).collect(), b"\"".to_vec()].concat()
    }

    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![8 => b' '..=b'~', 1 => any::<u8>(), 1 => prop::sample::select(b"\"\\/\n\x7f\xc3\xa9\xf4".to_vec())];
        prop_oneof![prop::collection::vec(byte, 0..80), ".{0,40}".prop_map(String::into_bytes)]
    }

    proptest! {
        #[test]
        fn strings_are_written_as_byte_by_byte(text in texts()) {
            let (mut lua, mut json) = (Vec::new(), Vec::new());
            push_lua_string(&mut lua, &text);
            push_json_string(&mut json, &text);
            prop_assert_eq!(lua, slow_string(&text, true));
            prop_assert_eq!(json, slow_string(&text, false));
        }

        #[test]
        fn a_string_is_checked_as_byte_by_byte(text in texts()) {
            let document = [b"\"", text.as_slice(), b"\""].concat();
            // Up to the first byte that ends it or may not stand there; what follows an escape is looked at elsewhere.
            let end = text.iter().position(|byte| matches!(byte, 0..=0x1f | b'"' | b'\\'));
            match end.map(|at| (at, text[at])) {
                None => prop_assert_eq!(check(&document), Ok(Kind::String)),
                Some((_, b'\\')) => {}
                Some((at, b'"')) => prop_assert_eq!(check(&document[..at + 2]), Ok(Kind::String)),
                Some((at, _)) => prop_assert_eq!(check(&document), Err(Fault::Token(at + 2))),
            }
        }
    }

    #[test]
    fn closers_are_owed_in_order_at_any_depth() {
        let mut text: Vec<u8> =
            (0..900).flat_map(|at| if at % 3 == 0 { b"[".as_slice() } else { b"{\"a\":" }).copied().collect();
        text.push(b'1');
        let closers = |at: usize| if at.is_multiple_of(3) { b']' } else { b'}' };
        text.extend((0..900).rev().map(closers));
        assert!(check(&text).is_ok());
        let middle = text.len() - 450;
        text[middle] = if text[middle] == b']' { b'}' } else { b']' };
        assert_eq!(check(&text), Err(Fault::Token(middle + 1)));
    }

    #[test]
    fn strings_are_escaped_as_the_scripts_do() {
        let mut out = Vec::new();
        push_lua_string(&mut out, b"a/\"\\\x01\x7f\xff\n");
        assert_eq!(out, b"\"a\\/\\\"\\\\\\u0001\\u007f\xff\\n\"");
    }
}
