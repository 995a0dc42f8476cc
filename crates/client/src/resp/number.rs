//! Decimal numbers as the protocol writes them.

use bytes::{BufMut, BytesMut};

/// The number after `*` or `$`, up to its line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// The value, and where the next byte after the line end stands.
    Value { value: i64, next: usize },
    /// The line end has not arrived yet.
    Incomplete,
    /// Not a number as Redis writes it: a sign only, a leading zero, more digits than fit, no CRLF.
    Invalid,
}

/// Longest run of digits that always fits an `i64`; no length comes near it.
const HEADER_DIGITS_MAX: usize = 18;

/// Reads the header number at `at`. Looks at no more than 22 bytes, however long the line is.
pub(super) fn header(buf: &[u8], at: usize) -> Header {
    let negative = buf.get(at) == Some(&b'-');
    let first = if negative { at + 1 } else { at };
    let mut value: i64 = 0;
    let mut position = first;
    loop {
        match buf.get(position) {
            None => return Header::Incomplete,
            Some(digit @ b'0'..=b'9') => {
                let leading_zero = position > first && value == 0;
                if leading_zero || position - first >= HEADER_DIGITS_MAX {
                    return Header::Invalid;
                }
                value = value * 10 + i64::from(digit - b'0');
                position += 1;
            }
            Some(b'\r') => break,
            Some(_) => return Header::Invalid,
        }
    }
    if position == first || (negative && value == 0) {
        return Header::Invalid;
    }
    match buf.get(position + 1) {
        None => Header::Incomplete,
        Some(b'\n') => Header::Value { value: if negative { -value } else { value }, next: position + 2 },
        Some(_) => Header::Invalid,
    }
}

/// A whole text as an integer; a sign of either kind is accepted.
pub(super) fn parse_int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    // Summed on the negative side, which is the larger one.
    let mut value: i64 = 0;
    for byte in digits {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Appends a line of an integer in decimal behind a byte that says what it is.
#[inline]
pub(super) fn write_decimal(kind: u8, value: i64, out: &mut BytesMut) {
    // Most are lengths of one or two digits: lines of known length, without a loop.
    match u8::try_from(value) {
        Ok(one @ 0..=9) => out.put_slice(&[kind, b'0' + one, b'\r', b'\n']),
        Ok(two @ 10..=99) => out.put_slice(&[kind, b'0' + two / 10, b'0' + two % 10, b'\r', b'\n']),
        _ => write_long(kind, value, out),
    }
}

fn write_long(kind: u8, value: i64, out: &mut BytesMut) {
    // Filled from its end: kind, sign, 19 digits and the line end at most.
    let mut line = [0_u8; 23];
    let (text, end) = line.split_at_mut(21);
    end.copy_from_slice(b"\r\n");
    let mut slots = text.iter_mut().rev();
    let mut used = 2;
    let mut put = |byte: u8| {
        slots.next().into_iter().for_each(|slot| *slot = byte);
        used += 1;
    };
    let mut rest = value.unsigned_abs();
    loop {
        put(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        put(b'-');
    }
    put(kind);
    out.put_slice(line.get(line.len() - used..).unwrap_or_default());
}

/// A double as Redis writes it: the shortest text that reads back to the same value, integers without a fraction.
pub(super) fn double_text(value: f64) -> String {
    const INTEGER_MAX: f64 = 4_503_599_627_370_496.0; // 2^52, as Redis
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value.fract() == 0.0 && value.abs() <= INTEGER_MAX {
        return value.to_string();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
    let trailing_zeros = exponent - (digits - 1);
    let size = exponent.abs();
    // The thresholds of Redis's fpconv_dtoa.
    let plain = if trailing_zeros >= 0 { size < digits + 7 } else { trailing_zeros > -7 || size < 4 };
    match (plain, exponent < 0) {
        (true, _) => value.to_string(),
        (false, true) => scientific,
        (false, false) => format!("{mantissa}e+{size}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_reads_numbers_the_way_redis_does() {
        assert_eq!(header(b"12\r\nx", 0), Header::Value { value: 12, next: 4 });
        assert_eq!(header(b"-1\r\n", 0), Header::Value { value: -1, next: 4 });
        assert_eq!(header(b"0\r\n", 0), Header::Value { value: 0, next: 3 });
        for incomplete in ["", "-", "1", "12\r"] {
            assert_eq!(header(incomplete.as_bytes(), 0), Header::Incomplete, "{incomplete:?}");
        }
        for invalid in
            ["\r\n", "-\r\n", "+1\r\n", "01\r\n", "00\r\n", "-0\r\n", "1\rx", "1x", "9999999999999999999"]
        {
            assert_eq!(header(invalid.as_bytes(), 0), Header::Invalid, "{invalid:?}");
        }
    }

    #[test]
    fn integers_read_and_write_at_their_ends() {
        for value in [0, 1, 9, -1, 10, 42, 99, 100, 255, 256, i64::MAX, i64::MIN] {
            let mut out = BytesMut::new();
            write_decimal(b':', value, &mut out);
            assert_eq!(out, format!(":{value}\r\n").as_bytes());
            assert_eq!(parse_int(value.to_string().as_bytes()), Some(value));
        }
        for text in ["", "-", "+", "1x", "9223372036854775808", "-9223372036854775809"] {
            assert_eq!(parse_int(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn doubles_are_written_as_redis_writes_them() {
        let cases = [
            (3.0, "3"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (1.5e300, "1.5e+300"),
            (1e21, "1e+21"),
            (1e-7, "1e-7"),
            (1_700_000_061.5, "1700000061.5"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (value, text) in cases {
            assert_eq!(double_text(value), text);
        }
    }
}
