//! Times as people say them. Nothing here reads a clock: now is an argument, in seconds since 1970.

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// "3m ago", "in 2h", "now". Histories are kept to the second, so nothing finer is told.
pub(super) fn relative(now: f64, when: f64) -> String {
    let distance = (when - now).abs();
    match when - now {
        _ if !distance.is_finite() => "never".to_owned(),
        _ if distance < 1.0 => "now".to_owned(),
        after if after > 0.0 => format!("in {}", span(distance)),
        _ => format!("{} ago", span(distance)),
    }
}

/// "850ms", "42s", "3m 12s", "2h 5m", "3d 4h".
pub(super) fn span(seconds: f64) -> String {
    if seconds < 1.0 {
        return format!("{:.0}ms", seconds.max(0.0) * 1000.0);
    }
    let whole = seconds.round() as u64;
    let pair = |large: u64, letter: char, small: u64, other: char| match whole % large / small {
        0 => format!("{}{letter}", whole / large),
        rest => format!("{}{letter} {rest}{other}", whole / large),
    };
    match whole {
        0..MINUTE => format!("{whole}s"),
        MINUTE..HOUR => pair(MINUTE, 'm', 1, 's'),
        HOUR..DAY => pair(HOUR, 'h', MINUTE, 'm'),
        _ => pair(DAY, 'd', HOUR, 'h'),
    }
}

/// The time of day, "12:00:03" (UTC).
pub(super) fn time_of_day(when: f64) -> String {
    let second = when.max(0.0) as u64 % DAY;
    format!("{:02}:{:02}:{:02}", second / HOUR, second % HOUR / MINUTE, second % MINUTE)
}

/// Seconds since 1970 at the start of a day written `2024-05-31` (UTC).
pub(super) fn date(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let mut part = || parts.next()?.parse::<u64>().ok();
    let (year, month, day) = (part()?, part()?, part()?);
    let months = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = months.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    if parts.next().is_some() || !(1970..=9999).contains(&year) || !(1..=*length).contains(&day) {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let before: u64 = months.iter().take(usize::try_from(month).ok()? - 1).sum();
    Some((years + before + day - 1) * DAY)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_now() {
        let cases =
            [(100.0, "now"), (97.0, "3s ago"), (-80.0, "3m ago"), (7400.0, "in 2h 1m"), (100.7, "now")];
        for (when, words) in cases {
            assert_eq!(relative(100.0, when), words);
        }
        assert_eq!(relative(100.0, f64::INFINITY), "never");
    }

    #[test]
    fn spans_have_at_most_two_units() {
        let cases = [
            (0.85, "850ms"),
            (59.4, "59s"),
            (60.0, "1m"),
            (192.0, "3m 12s"),
            (7500.0, "2h 5m"),
            (273_600.0, "3d 4h"),
        ];
        for (seconds, words) in cases {
            assert_eq!(span(seconds), words);
        }
    }

    #[test]
    fn dates_are_read_and_wrong_ones_are_not() {
        assert_eq!(date("1970-01-01"), Some(0));
        assert_eq!(date("2024-02-29"), Some(1_709_164_800));
        assert_eq!(date("2000-12-31"), Some(978_220_800));
        for wrong in [
            "",
            "2024",
            "2023-02-29",
            "2024-13-01",
            "2024-00-01",
            "2024-01-00",
            "2024-01-01-1",
            "1969-12-31",
            "x-1-1",
        ] {
            assert_eq!(date(wrong), None, "{wrong}");
        }
        assert_eq!(time_of_day(1_709_164_800.0 + 3_723.9), "01:02:03");
    }
}
