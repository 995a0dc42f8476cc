//! Numbers as Lua and C print them: `%.14g`, `%.17g`, `%.20f`.

/// `%.14g`: how the scripts write numbers into JSON.
pub(crate) fn push_g14(out: &mut Vec<u8>, value: f64) {
    push_g(out, value, 14);
}

/// `%.17g`: how the scripts store numbers in hashes.
pub(crate) fn g17(value: f64) -> Vec<u8> {
    let mut out = Vec::new();
    push_g(&mut out, value, 17);
    out
}

/// `%.20f`, exact as C prints it.
pub(crate) fn f20(value: f64) -> Vec<u8> {
    format!("{value:.20}").into_bytes()
}

fn push_g(out: &mut Vec<u8>, value: f64, digits: usize) {
    if value == value.trunc() && value.abs() < 1e14 && (value != 0.0 || value.is_sign_positive()) {
        push_int(out, value as i64);
        return;
    }
    if !value.is_finite() {
        let word = if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        out.extend_from_slice(word.as_bytes());
        return;
    }
    // Rust's exponent form gives the correctly rounded digits; C's rule for which form to use is applied to it.
    let precision = digits - 1;
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        out.extend_from_slice(trim_zeros(mantissa).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
    } else {
        let decimals = usize::try_from(precision as i32 - exponent).unwrap_or(0);
        out.extend_from_slice(trim_zeros(&format!("{value:.decimals$}")).as_bytes());
    }
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Decimal digits of a whole number.
pub(crate) fn push_int(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_captured() {
        for (value, text) in [
            (1_700_000_061.123_456_7, "1700000061.1235"),
            (60.0, "60"),
            (1e14, "1e+14"),
            (-0.0, "-0"),
            (1e-7, "1e-07"),
            (0.5, "0.5"),
            (-17.25, "-17.25"),
            (1e20, "1e+20"),
            (0.0001, "0.0001"),
            (0.000_012, "1.2e-05"),
            (99_999_999_999_999.0, "99999999999999"),
            (12_345_678_901_234.567, "12345678901235"),
            (f64::INFINITY, "inf"),
        ] {
            let mut out = Vec::new();
            push_g14(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        assert_eq!(g17(2.7), b"2.7000000000000002");
        assert_eq!(g17(1_700_000_061.123_456_7), b"1700000061.1234567");
        assert_eq!(f20(1_700_000_001.123_456_7), b"1700000001.12345671653747558594");
    }
}
