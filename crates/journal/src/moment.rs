//! Dates as the journal writes them: `2020-06-30T01:17:17.123Z`.

const DAY_MS: i64 = 86_400_000;

/// Days since 1970-01-01 of a date of the Gregorian calendar (the usual reckoning in eras of 400 years from 1 March).
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days_of`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Milliseconds since 1970 as text.
pub fn iso(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let (days, of_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", of_day % 1000)
}

/// The same day and time so many years later; 29 February becomes 1 March where there is none.
pub fn years_later(ms: u64, years: u32) -> u64 {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let (year, month, day) = date_of(ms.div_euclid(DAY_MS));
    let later = days_of(year + i64::from(years), month, day) * DAY_MS + ms.rem_euclid(DAY_MS);
    u64::try_from(later).unwrap_or(u64::MAX)
}

/// Text as milliseconds since 1970: a date, with a time and a zone or without; or 13 digits and fewer, which are it.
pub fn parse_iso(text: &str) -> Option<u64> {
    if !text.is_empty() && text.len() <= 14 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let (date, rest) = text.split_once(['T', ' ']).unwrap_or((text, ""));
    let mut parts = date.split('-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || date.len() != 10 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_of(year, month, day);
    if date_of(days) != (year, month, day) {
        return None;
    }
    let (time, offset) = zone(rest)?;
    u64::try_from(days * DAY_MS + clock_ms(time)? - offset).ok()
}

fn number(text: &str) -> Option<i64> {
    if text.is_empty() || text.len() > 4 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// The time without its zone, and the zone in milliseconds east.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = text.rfind(['+', '-']) else { return Some((text, 0)) };
    let (time, zone) = text.split_at_checked(at)?;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    Some((time, sign * (number(hours)? * 60 + number(minutes)?) * 60_000))
}

fn clock_ms(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = whole.split(':').map(number);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{fraction}00").get(..3)?.parse::<i64>().ok()?;
    Some(((hour * 60 + minute) * 60 + second) * 1000 + thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_round_trip() {
        for (text, ms) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2020-06-30T01:17:17.123Z", 1_593_479_837_123),
            ("2000-02-29T23:59:59.999Z", 951_868_799_999),
            ("2109-05-15T07:35:11.103Z", 4_398_046_511_103),
        ] {
            assert_eq!(iso(ms), text);
            assert_eq!(parse_iso(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn years_are_those_of_the_calendar() {
        for (from, years, to) in [
            ("2020-06-30T01:17:17.123Z", 1000, "3020-06-30T01:17:17.123Z"),
            ("2020-02-29T23:59:59.999Z", 1000, "3020-02-29T23:59:59.999Z"),
            ("2000-02-29T00:00:00.000Z", 1000, "3000-03-01T00:00:00.000Z"),
            ("2099-12-31T23:59:59.999Z", 1, "2100-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso(years_later(parse_iso(from).unwrap(), years)), to, "{from}");
        }
    }

    #[test]
    fn other_spellings_are_understood() {
        for text in ["2020-06-30T03:17:17.123+02:00", "1593479837123", "2020-06-30 01:17:17.1234Z"] {
            assert_eq!(parse_iso(text), Some(1_593_479_837_123), "{text}");
        }
        assert_eq!(parse_iso("2020-06-30"), Some(1_593_475_200_000));
        for text in ["", "x", "2020-6-30", "2020-13-01", "2021-02-29", "2020-06-30T25:00:00Z", "1969-12-31"] {
            assert_eq!(parse_iso(text), None, "{text}");
        }
    }
}
