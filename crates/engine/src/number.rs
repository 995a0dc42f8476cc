//! Numbers as the scripts' clients write them.

/// Reads a number: optional white space around it, a sign, decimal or exponent notation, or `0x` hexadecimal.
/// Not finite is not a number.
pub fn parse_number(text: &[u8]) -> Option<f64> {
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
    use super::parse_number;

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
