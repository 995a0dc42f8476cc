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
    let mut open = Open::default();
    let start = space(text, 0);
    let kind = text.get(start).and_then(|byte| Kind::of(*byte)).ok_or(fault(start))?;
    let mut at = value(text, start, &mut open)?;
    while let Some(closer) = open.last() {
        at = space(text, at);
        if text.get(at) == Some(&closer) {
            at += 1;
            open.pop();
            continue;
        }
        if !std::mem::take(&mut open.fresh) {
            at = space(text, expect(text, at, b',')?);
        }
        if closer == b'}' {
            at = space(text, string(text, at)?);
            at = space(text, expect(text, at, b':')?);
        }
        at = value(text, at, &mut open)?;
    }
    at = space(text, at);
    if at == text.len() { Ok(kind) } else { Err(fault(at)) }
}

impl Kind {
    /// By its first byte.
    fn of(byte: u8) -> Option<Kind> {
        Some(match byte {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'"' => Kind::String,
            b't' => Kind::True,
            b'f' => Kind::False,
            b'n' => Kind::Null,
            b'-' | b'0'..=b'9' => Kind::Number,
            _ => return None,
        })
    }
}

/// The closers that are owed: a bit for each, set for an object's.
#[derive(Default)]
struct Open {
    objects: [u64; DEPTH_MAX.div_ceil(64)],
    depth: usize,
    /// Just opened: no comma before what comes next.
    fresh: bool,
}

impl Open {
    fn push(&mut self, closer: u8) {
        if let Some(word) = self.objects.get_mut(self.depth / 64) {
            let bit = 1 << (self.depth % 64);
            *word = if closer == b'}' { *word | bit } else { *word & !bit };
        }
        self.depth += 1;
        self.fresh = true;
    }

    /// The innermost.
    #[inline]
    fn last(&self) -> Option<u8> {
        let at = self.depth.checked_sub(1)?;
        let word = self.objects.get(at / 64)?;
        Some(if word >> (at % 64) & 1 == 1 { b'}' } else { b']' })
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.fresh = false;
    }
}

/// Bytes looked at together.
const WORD: usize = 8;

/// A word of this byte.
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD])
}

/// Sets the high bit of the first byte that is zero; none before it, some after it perhaps.
fn zero(word: u64) -> u64 {
    word.wrapping_sub(all(1)) & !word
}

/// As [`zero`], for bytes that cannot stand for themselves in a string.
fn marked(word: u64) -> u64 {
    word.wrapping_sub(all(b' ')) & !word | zero(word ^ all(b'"')) | zero(word ^ all(b'\\'))
}

/// Where the first special byte is, or their number; `special` as [`zero`].
#[inline(always)]
fn first_in(word: u64, special: impl Fn(u64) -> u64) -> usize {
    (special(word) & all(0x80)).trailing_zeros() as usize / WORD
}

/// So many words without anything special, and a text is taken for a long one.
const LONG_WORDS: usize = 8;

/// How many bytes at the start are in lots without anything special. No lot waits for what was found in the one before: a
/// long text is done many times as fast as word by word.
#[inline(never)]
fn plain_lots(text: &[u8], special: impl Fn(u64) -> u64) -> usize {
    const LOT: usize = 4 * WORD;
    let is_plain = |lot: &&[u8; LOT]| {
        let (words, _) = lot.as_chunks();
        words.iter().fold(0, |marks, word| marks | special(u64::from_le_bytes(*word))) & all(0x80) == 0
    };
    let (lots, _) = text.as_chunks::<LOT>();
    LOT * lots.iter().take_while(is_plain).count()
}

/// Less than a word, with spaces, which are not special.
fn padded(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(all(b' '), |word, byte| word << 8 | u64::from(*byte))
}

fn fault(at: usize) -> Fault {
    Fault::Token(at + 1)
}

// Each of these looks at what begins at `at` and answers where it ends.

#[inline]
fn space(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

#[inline]
fn expect(text: &[u8], at: usize, byte: u8) -> Result<usize, Fault> {
    if text.get(at) == Some(&byte) { Ok(at + 1) } else { Err(fault(at)) }
}

/// A scalar, or the opening of an array or object.
#[inline]
fn value(text: &[u8], at: usize, open: &mut Open) -> Result<usize, Fault> {
    match text.get(at) {
        Some(b'"') => string(text, at),
        Some(bracket @ (b'{' | b'[')) => {
            if open.depth == DEPTH_MAX {
                return Err(Fault::Depth(at + 1));
            }
            open.push(if *bracket == b'{' { b'}' } else { b']' });
            Ok(at + 1)
        }
        Some(b't') => word(text, at, b"true"),
        Some(b'f') => word(text, at, b"false"),
        Some(b'n') => word(text, at, b"null"),
        Some(b'-' | b'0'..=b'9') => number(text, at),
        _ => Err(fault(at)),
    }
}

fn word(text: &[u8], at: usize, word: &[u8]) -> Result<usize, Fault> {
    match text.get(at..) {
        Some(rest) if rest.starts_with(word) => Ok(at + word.len()),
        _ => Err(fault(at)),
    }
}

fn digits(text: &[u8], start: usize) -> Result<usize, Fault> {
    let mut at = start;
    while matches!(text.get(at), Some(b'0'..=b'9')) {
        at += 1;
    }
    if at == start { Err(fault(at)) } else { Ok(at) }
}

fn number(text: &[u8], mut at: usize) -> Result<usize, Fault> {
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    at = if text.get(at) == Some(&b'0') { at + 1 } else { digits(text, at)? };
    if text.get(at) == Some(&b'.') {
        at = digits(text, at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(text.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        at = digits(text, at)?;
    }
    Ok(at)
}

#[inline]
fn string(text: &[u8], at: usize) -> Result<usize, Fault> {
    let mut at = expect(text, at, b'"')?;
    for _ in 0..LONG_WORDS {
        let Some(word) = text.get(at..).and_then(|rest| rest.first_chunk::<WORD>()) else { break };
        let found = first_in(u64::from_le_bytes(*word), marked);
        at += found;
        match word.get(found) {
            None => {}
            Some(b'"') => return Ok(at + 1),
            Some(_) => at = escape(text, at)?,
        }
    }
    long_string(text, at)
}

/// What is left of a string that is long, or near the end of the text.
#[inline(never)]
fn long_string(text: &[u8], mut at: usize) -> Result<usize, Fault> {
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let lots = plain_lots(rest, marked);
        let (words, last) = rest.get(lots..).unwrap_or_default().as_chunks::<WORD>();
        at += lots;
        for word in words {
            let found = first_in(u64::from_le_bytes(*word), marked);
            at += found;
            if found < WORD {
                break;
            }
        }
        if at + last.len() == text.len() {
            at += first_in(padded(last), marked).min(last.len());
        }
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            _ => at = escape(text, at)?,
        }
    }
}

#[inline(never)]
fn escape(text: &[u8], at: usize) -> Result<usize, Fault> {
    let at = expect(text, at, b'\\')?;
    match text.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') => match unit(text, at)? {
            (0xd800..=0xdbff, at) => match unit(text, expect(text, at, b'\\')?)? {
                (0xdc00..=0xdfff, at) => Ok(at),
                (_, at) => Err(fault(at)),
            },
            (0xdc00..=0xdfff, at) => Err(fault(at)),
            (_, at) => Ok(at),
        },
        _ => Err(fault(at)),
    }
}

/// `uXXXX`.
fn unit(text: &[u8], at: usize) -> Result<(u32, usize), Fault> {
    let mut at = expect(text, at, b'u')?;
    let mut value = 0;
    for _ in 0..4 {
        let digit = text.get(at).and_then(|byte| char::from(*byte).to_digit(16)).ok_or(fault(at))?;
        value = value * 16 + digit;
        at += 1;
    }
    Ok((value, at))
}

/// Writes a string as the scripts do: `/` escaped too, DEL as an escape, other bytes copied.
pub(crate) fn push_lua_string(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + WORD + 2);
    out.push(b'"');
    push_escaped(out, text, |word| marked(word) | zero(word ^ all(b'/')) | zero(word ^ all(0x7f)));
    out.push(b'"');
}

/// Writes a string as plain JSON; what is not UTF-8 as `plain` says.
pub(crate) fn push_json_string(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + WORD + 2);
    out.push(b'"');
    let ascii = push_escaped(out, text, |word| marked(word) | word);
    if let Some(rest) = text.get(ascii..).filter(|rest| !rest.is_empty()) {
        push_escaped(out, super::plain::to_text(rest).as_bytes(), marked);
    }
    out.push(b'"');
}

/// Writes special bytes as escapes, all others as they are; stops at one that is not ASCII and special. Answers how many
/// were written.
#[inline]
fn push_escaped(out: &mut Vec<u8>, text: &[u8], special: impl Fn(u64) -> u64) -> usize {
    let (mut rest, mut clean) = (text, 0);
    // Whole words are copied, what is too much is taken back: that is the least work.
    while let Some((word, after)) = rest.split_first_chunk::<WORD>() {
        out.extend_from_slice(word);
        let found = first_in(u64::from_le_bytes(*word), &special);
        let Some(byte) = word.get(found) else {
            rest = after;
            clean += 1;
            if clean == LONG_WORDS {
                let (lots, after) = rest.split_at(plain_lots(rest, &special));
                out.extend_from_slice(lots);
                (rest, clean) = (after, 0);
            }
            continue;
        };
        out.truncate(out.len() - (WORD - found));
        if !byte.is_ascii() {
            return text.len() - rest.len() + found;
        }
        push_escape(out, *byte);
        rest = rest.get(found + 1..).unwrap_or_default();
    }
    while !rest.is_empty() {
        let word = padded(rest);
        let found = first_in(word, &special).min(rest.len());
        out.extend_from_slice(&word.to_le_bytes());
        out.truncate(out.len() - (WORD - found));
        match rest.get(found) {
            Some(byte) if byte.is_ascii() => push_escape(out, *byte),
            _ => return text.len() - rest.len() + found,
        }
        rest = rest.get(found + 1..).unwrap_or_default();
    }
    text.len()
}

#[inline(always)]
fn push_escape(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' | b'\\' | b'/' => out.extend_from_slice(&[b'\\', byte]),
        _ => push_control(out, byte),
    }
}

fn push_control(out: &mut Vec<u8>, byte: u8) {
    let letter = match byte {
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
    out.extend_from_slice(&[b'\\', letter]);
}

/// A list, with what an empty one is written as.
pub(crate) fn push_list<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    empty: &str,
    mut each: impl FnMut(&mut Vec<u8>, T),
) {
    let mut items = items.into_iter();
    let mut next = items.next();
    if next.is_none() {
        return out.extend_from_slice(empty.as_bytes());
    }
    let start = out.len();
    out.push(b'[');
    while let Some(item) = next {
        if out.len() > start + 1 {
            out.push(b',');
        }
        each(out, item);
        next = items.next();
    }
    if out.len() == start + 1 {
        out.truncate(start);
        out.extend_from_slice(empty.as_bytes());
    } else {
        out.push(b']');
    }
}

/// What is written around a key.
const KEY_FRAME: &[u8] = b",\"\":";
/// Room for a key with its frame.
const KEY_ROOM: usize = 32;

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
        let length = key.len() + KEY_FRAME.len();
        if length > KEY_ROOM {
            return self.key_bytes(key.as_bytes());
        }
        // Put together first, so that there is one copy, of known length; the compiler knows the rest.
        let mut text = [b','; KEY_ROOM];
        if let Some(room) = text.get_mut(1..length) {
            room.fill(b'"');
        }
        if let Some(room) = text.get_mut(2..2 + key.len()) {
            room.copy_from_slice(key.as_bytes());
        }
        if let Some(colon) = text.get_mut(length - 1) {
            *colon = b':';
        }
        let from = usize::from(!self.any);
        self.any = true;
        self.out.extend_from_slice(text.get(from..length).unwrap_or_default());
        self.out
    }

    /// A key that is somebody's word; in plain style it must be text.
    pub(crate) fn key_bytes(&mut self, key: &[u8]) -> &mut Vec<u8> {
        self.comma();
        if self.lua {
            push_lua_string(self.out, key);
        } else {
            self.out.push(b'"');
            push_escaped(self.out, key, marked);
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

    #[inline(always)]
    pub(crate) fn string(&mut self, key: &'static str, value: &[u8]) {
        let lua = self.lua;
        let out = self.key(key);
        if lua { push_lua_string(out, value) } else { push_json_string(out, value) }
    }

    #[inline(always)]
    pub(crate) fn number(&mut self, key: &'static str, value: f64) {
        push_g14(self.key(key), value);
    }

    #[inline(always)]
    pub(crate) fn count(&mut self, key: &'static str, value: usize) {
        push_int(self.key(key), i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// A word of ours, which needs no escaping.
    #[inline(always)]
    pub(crate) fn word(&mut self, key: &'static str, word: &'static str) {
        let out = self.key(key);
        out.push(b'"');
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
    }

    #[inline(always)]
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
        // Also behind a long piece without anything special.
        let some = prop_oneof![prop::collection::vec(byte, 0..80), ".{0,40}".prop_map(String::into_bytes)];
        let plain = prop_oneof![Just(0_usize), 0..300_usize];
        (plain, some).prop_map(|(plain, some)| [vec![b'x'; plain], some].concat())
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
        fn strings_with_escapes_are_accepted_whole_and_no_shorter(pieces in prop::collection::vec(("x{0,120}", any::<char>()), 0..6), tail in 0..12_usize) {
            let text: String = pieces.iter().map(|(plain, odd)| format!("{plain}{odd}")).collect();
            let document = serde_json::to_string(&text).unwrap();
            let spaced = format!("{document}{}", " ".repeat(tail));
            prop_assert_eq!(check(spaced.as_bytes()), Ok(Kind::String));
            let cut = &document.as_bytes()[..document.len() - 1];
            prop_assert_eq!(check(cut), Err(Fault::Token(document.len())));
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
    fn members_have_their_keys_whole_however_long() {
        const LONG: &str = "a-key-that-is-longer-than-any-that-is-written";
        let mut out = Vec::new();
        let mut object = Object::lua(&mut out);
        object.raw(LONG, b"1");
        object.raw("a-key-of-twenty-eight-letter", b"2");
        object.raw("", b"3");
        object.word("b", "word");
        object.raw(LONG, b"4");
        object.end();
        let text =
            format!("{{\"{LONG}\":1,\"a-key-of-twenty-eight-letter\":2,\"\":3,\"b\":\"word\",\"{LONG}\":4}}");
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn strings_are_escaped_as_the_scripts_do() {
        let mut out = Vec::new();
        push_lua_string(&mut out, b"a/\"\\\x01\x7f\xff\n");
        assert_eq!(out, b"\"a\\/\\\"\\\\\\u0001\\u007f\xff\\n\"");
    }
}
