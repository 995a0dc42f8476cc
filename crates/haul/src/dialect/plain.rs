//! Bytes as text and back, without loss. Names are any bytes; JSON, URLs and screens want text. A byte that is not part of
//! UTF-8 is written as one character, U+10FE00 plus its value; so are the bytes of such characters themselves. Whoever
//! sends one of these characters means its byte, whichever it is: that is also how `.` and `..` get into a URL's path.

use std::borrow::Cow;

/// The character that stands for the byte 0.
const FIRST: u32 = 0x10_FE00;
/// What each of these characters begins with in UTF-8.
const FIRST_BYTE: u8 = 0xf4;

fn stand_in(byte: u8) -> char {
    char::from_u32(FIRST + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that a character stands for.
fn stood_for(character: char) -> Option<u8> {
    u8::try_from(u32::from(character).checked_sub(FIRST)?).ok()
}

/// Whether none of the characters stands for a byte. Hardly any text has even their first byte.
fn is_clean(text: &str) -> bool {
    memchr::memchr(FIRST_BYTE, text.as_bytes()).is_none()
        || !text.contains(|character| stood_for(character).is_some())
}

/// The text of these bytes.
pub(crate) fn to_text(bytes: &[u8]) -> Cow<'_, str> {
    if let Some(text) = std::str::from_utf8(bytes).ok().filter(|text| is_clean(text)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match stood_for(character) {
                None => out.push(character),
                Some(_) => {
                    out.extend(character.encode_utf8(&mut [0; 4]).bytes().map(stand_in));
                }
            }
        }
        out.extend(chunk.invalid().iter().copied().map(stand_in));
    }
    Cow::Owned(out)
}

/// The bytes that this text means.
pub(crate) fn to_bytes(text: &str) -> Cow<'_, [u8]> {
    if is_clean(text) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut out = Vec::with_capacity(text.len());
    for character in text.chars() {
        match stood_for(character) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_text_stays_and_what_is_not_is_told_byte_by_byte() {
        assert_eq!(to_text("naïve \u{ef80} 🦀".as_bytes()), "naïve \u{ef80} 🦀");
        assert_eq!(to_text(b"q\xff\x80"), "q\u{10feff}\u{10fe80}");
        assert_eq!(to_bytes("\u{10fe2e}\u{10fe2e}").as_ref(), b"..");
        assert_eq!(to_text(b".."), "..");
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let text = to_text(&bytes).into_owned();
            prop_assert_eq!(to_bytes(&text).into_owned(), bytes);
        }

        #[test]
        fn text_with_stand_ins_comes_back(text in "[a\u{10fe00}-\u{10feff}é]{0,12}") {
            let told = to_text(text.as_bytes()).into_owned();
            prop_assert_eq!(to_bytes(&told).into_owned(), text.as_bytes());
        }
    }
}
