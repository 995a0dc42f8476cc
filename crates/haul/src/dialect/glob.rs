//! Redis's glob patterns: `*`, `?`, `[a-c]`, `[^x]`, `\` before anything. Linear in memory, no recursion.

/// Whether the text matches the pattern.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on if what follows the last `*` fails: that `*` then takes one more byte.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
            continue;
        }
        match one(pattern, p, text.get(t).copied().unwrap_or_default()) {
            Some(next) => {
                p = next;
                t += 1;
            }
            None => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

/// Where the pattern goes on after matching one byte, if it does.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => class(pattern, at + 1, byte),
        b'\\' if at + 1 < pattern.len() => (pattern.get(at + 1) == Some(&byte)).then_some(at + 2),
        literal => (*literal == byte).then_some(at + 1),
    }
}

fn class(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match *pattern.get(at)? {
            b']' => return (found != negated).then_some(at + 1),
            b'\\' if at + 1 < pattern.len() => {
                found |= pattern.get(at + 1) == Some(&byte);
                at += 2;
            }
            low => match (pattern.get(at + 1), pattern.get(at + 2)) {
                (Some(b'-'), Some(&high)) if high != b']' => {
                    let (low, high) = if low <= high { (low, high) } else { (high, low) };
                    found |= (low..=high).contains(&byte);
                    at += 3;
                }
                _ => {
                    found |= low == byte;
                    at += 1;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text) in [
            ("*", ""),
            ("ql:*", "ql:j:1"),
            ("h?llo", "hello"),
            ("h[a-f]llo", "hello"),
            ("h[^x]llo", "hello"),
            ("a\\*b", "a*b"),
            ("*a*b*", "xxaybz"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("a*b", "acbd"),
            ("[", "a"),
            ("a\\*b", "axb"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }
}
