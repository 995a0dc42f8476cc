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
    let whole = value as i64;
    if whole as f64 == value && whole.unsigned_abs() < 100_000_000_000_000 {
        if whole != 0 || value.is_sign_positive() {
            push_int(out, whole);
            return;
        }
    } else if digits == 14
        && let Some(moment) = Moment::of(value)
    {
        moment.push_g14(out);
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

/// With all the digits it takes to read the same number again: a time to the microsecond has more than the scripts print.
pub(crate) fn push_exact(out: &mut Vec<u8>, value: f64) {
    let whole = value as i64;
    if whole as f64 == value && whole.unsigned_abs() < 1_000_000_000_000_000 {
        push_int(out, whole);
    } else if !Moment::of(value).is_some_and(|moment| moment.push_exact(out)) {
        out.extend_from_slice(format!("{value}").as_bytes());
    }
}

/// A number of the size of a time, taken apart. Nearly all numbers that are not whole are times, and the general way to
/// write one costs as much as the rest of a job.
struct Moment {
    value: f64,
    whole: u64,
    /// In units of 2^-bits.
    fraction: u64,
    bits: u32,
}

impl Moment {
    /// From here on two neighbours are further apart than 1e-7,
    const FROM: f64 = 536_870_912.0;
    /// and up to here less than 1e-6.
    const UNTIL: f64 = 8_589_934_592.0;

    fn of(value: f64) -> Option<Moment> {
        if !(Self::FROM..Self::UNTIL).contains(&value) {
            return None;
        }
        let (exponent, mantissa) = (value.to_bits() >> 52, value.to_bits() & ((1 << 52) - 1) | 1 << 52);
        let bits = u32::try_from((1023 + 52_u64).checked_sub(exponent)?).ok()?;
        Some(Moment { value, whole: mantissa >> bits, fraction: mantissa & ((1 << bits) - 1), bits })
    }

    /// The fraction in units of one part in `parts`, rounded; none if it is just between two.
    fn rounded(&self, parts: u64) -> Option<u64> {
        let (scaled, half) = (self.fraction * parts, 1 << (self.bits - 1));
        (scaled & ((1 << self.bits) - 1) != half).then_some((scaled + half) >> self.bits)
    }

    fn push_g14(&self, out: &mut Vec<u8>) {
        let (parts, decimals) = if self.whole < 1_000_000_000 { (100_000, 5) } else { (10_000, 4) };
        // Just between two, the even one.
        let rounded = self.rounded(parts).unwrap_or_else(|| {
            let below = (self.fraction * parts) >> self.bits;
            below + below % 2
        });
        match rounded == parts {
            true => push_int(out, self.whole as i64 + 1),
            false => self.push(out, rounded, decimals),
        }
    }

    /// The shortest text that reads as this number, of these the nearest; false: it takes more care.
    fn push_exact(&self, out: &mut Vec<u8>) -> bool {
        const MICROS: u64 = 1_000_000;
        // No two numbers of six decimals read as the same one, and one of seven always reads as this one.
        if let Some(micros) = self.rounded(MICROS)
            && (self.whole * MICROS + micros) as f64 / MICROS as f64 == self.value
        {
            match micros == MICROS {
                true => push_int(out, self.whole as i64 + 1),
                false => self.push(out, micros, 6),
            }
            return true;
        }
        let Some(tenths) = self.rounded(10 * MICROS) else { return false };
        self.push(out, tenths, 7);
        true
    }

    /// The whole part and so many decimals, zeros at the end left out.
    fn push(&self, out: &mut Vec<u8>, mut fraction: u64, decimals: usize) {
        push_int(out, self.whole as i64);
        let mut text = [b'0'; 8];
        let mut used = 0;
        for (at, digit) in text.iter_mut().enumerate().take(decimals + 1).skip(1).rev() {
            *digit = b'0' + (fraction % 10) as u8;
            if used == 0 && !fraction.is_multiple_of(10) {
                used = at + 1;
            }
            fraction /= 10;
        }
        let [point, ..] = &mut text;
        *point = b'.';
        out.extend_from_slice(text.get(..used).unwrap_or_default());
    }
}

/// Decimal digits of a whole number.
pub(crate) fn push_int(out: &mut Vec<u8>, value: i64) {
    if let Ok(digit @ 0..=9) = u8::try_from(value) {
        out.push(b'0' + digit);
        return;
    }
    let mut text = [0; 20];
    let mut from = text.len();
    let mut rest = value.unsigned_abs();
    let (pairs, _) = text.as_chunks_mut::<2>();
    for pair in pairs.iter_mut().rev() {
        let last = (rest % 100) as u8;
        *pair = [b'0' + last / 10, b'0' + last % 10];
        rest /= 100;
        from -= 2;
        if rest == 0 {
            break;
        }
    }
    if text.get(from) == Some(&b'0') {
        from += 1;
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(text.get(from..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(push: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// `%.14g` the general way, of a number with ten digits before the point or nine.
    fn slow_g14(value: f64) -> String {
        let decimals = if format!("{value:.13e}").ends_with("e9") { 4 } else { 5 };
        trim_zeros(&format!("{value:.decimals$}")).to_owned()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn times_are_written_as_the_general_way_writes_them(bits in Moment::FROM.to_bits()..Moment::UNTIL.to_bits(), zeros in 0..24) {
            let value = f64::from_bits(bits >> zeros << zeros).max(Moment::FROM);
            prop_assert_eq!(text(|out| push_exact(out, value)), format!("{value}"));
            prop_assert_eq!(text(|out| push_g14(out, value)), slow_g14(value));
        }

        #[test]
        fn times_to_a_few_decimals_are_too(whole in 536_870_912_u64..8_589_934_590, part in 0_u64..100_000_000, decimals in 0..8) {
            let unit = 10_u64.pow(decimals as u32);
            let value = whole as f64 + (part % unit) as f64 / unit as f64;
            prop_assert_eq!(text(|out| push_exact(out, value)), format!("{value}"));
            prop_assert_eq!(text(|out| push_g14(out, value)), slow_g14(value));
        }
    }

    #[test]
    fn times_next_to_a_whole_second_and_between_two_decimals_are_too() {
        for whole in [536_870_912.0, 999_999_999.0, 1_000_000_000.0, 1_700_000_000.0, 4_294_967_296.0_f64] {
            for value in [whole.next_down(), whole.next_up(), whole + 0.5, whole + 0.031_25, whole + 0.093_75]
            {
                assert_eq!(text(|out| push_exact(out, value)), format!("{value}"));
                if value > Moment::FROM {
                    assert_eq!(text(|out| push_g14(out, value)), slow_g14(value));
                }
            }
        }
    }

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
