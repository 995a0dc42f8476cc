//! Numbers as the scripts' clients write them.

/// Reads a number: optional white space around it, a sign, decimal or exponent notation, or `0x` hexadecimal.
/// Not finite is not a number.
pub fn parse_number(text: &[u8]) -> Option<f64> {
    parse_short(text).or_else(|| parse_any(text))
}

/// Powers of ten that a double holds exactly.
const TENS: [f64; 18] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17];

/// Digits with at most one point, as nearly all numbers are. Both the digits and the power of ten are exact, so their
/// quotient is the nearest double.
fn parse_short(text: &[u8]) -> Option<f64> {
    const EXACT_MAX: u64 = 1 << 53;
    if text.len() >= TENS.len() {
        return None;
    }
    let (whole, rest) = digits(0, text);
    let (number, ten) = match rest {
        [] if !text.is_empty() => (whole, 1.0),
        // A point alone is no number.
        [b'.', decimals @ ..] if text.len() > 1 => match digits(whole, decimals) {
            (number, []) => (number, *TENS.get(decimals.len())?),
            _ => return None,
        },
        _ => return None,
    };
    (number <= EXACT_MAX).then(|| number as f64 / ten)
}

/// Reads the digits that a text begins with, behind those of `value`; answers what is left.
fn digits(mut value: u64, mut text: &[u8]) -> (u64, &[u8]) {
    while let [digit @ b'0'..=b'9', rest @ ..] = text {
        value = value * 10 + u64::from(digit - b'0');
        text = rest;
    }
    (value, text)
}

fn parse_any(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => parse_hex(hex)?,
        None if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') => digits.parse().ok()?,
        None => return None,
    };
    let value: f64 = if negative { -value } else { value };
    value.is_finite().then_some(value)
}

fn parse_hex(digits: &str) -> Option<f64> {
    let mut value = 0.0;
    if digits.is_empty() {
        return None;
    }
    for digit in digits.chars() {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{parse_any, parse_number, parse_short};

    proptest! {
        #[test]
        fn short_numbers_are_read_as_all_others(text in "[0-9]{0,18}[.]?[0-9]{0,8}") {
            let short = parse_short(text.as_bytes());
            prop_assert!(short.is_none() || short == parse_any(text.as_bytes()), "{short:?}");
            prop_assert_eq!(parse_number(text.as_bytes()), parse_any(text.as_bytes()));
        }

        #[test]
        fn times_are_short(micros in 0..4_000_000_000_000_000_u64) {
            let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
            prop_assert_eq!(parse_short(text.as_bytes()), text.parse().ok());
        }
    }

    #[test]
    fn what_is_no_short_number_is_left_to_the_other_way() {
        for text in ["", ".", "1..2", ".5.", "-1", "1e3", " 1", "9007199254740993", "123456789012345678"] {
            assert_eq!(parse_short(text.as_bytes()), None, "{text}");
        }
        for (text, value) in
            [("5.", 5.0), (".5", 0.5), ("0", 0.0), ("9007199254740992", 9_007_199_254_740_992.0)]
        {
            assert_eq!(parse_short(text.as_bytes()), Some(value), "{text}");
        }
    }

    #[test]
    fn numbers_are_read_as_the_scripts_do() {
        for (text, value) in
            [("0x10", 16.0), (" 1.5 ", 1.5), ("-2e3", -2000.0), ("+.5", 0.5), ("5.", 5.0), ("-0xA", -10.0)]
        {
            assert_eq!(parse_number(text.as_bytes()), Some(value), "{text}");
        }
        for text in ["", "abc", "1x", "nan", "inf", "-inf", "0x", "1e999", "--1", "1 2", "infinity"] {
            assert_eq!(parse_number(text.as_bytes()), None, "{text}");
        }
    }
}
