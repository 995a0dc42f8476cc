//! The script format: cases, steps, expectations. `tests/reference/run.py` describes it.

use std::path::Path;

pub(super) struct Case {
    pub(super) file: String,
    pub(super) title: String,
    pub(super) steps: Vec<Step>,
}

pub(super) struct Step {
    pub(super) line: usize,
    pub(super) dialect: String,
    pub(super) words: Vec<Vec<u8>>,
    pub(super) expected: Vec<Vec<u8>>,
    /// Channel and payload; none: not looked at.
    pub(super) events: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

pub(super) fn read(path: &Path) -> Vec<Case> {
    let text = std::fs::read(path).unwrap();
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let bare = line.trim_ascii();
        if let Some(title) = line.strip_prefix(b"case ") {
            let title = String::from_utf8_lossy(title).into_owned();
            cases.push(Case { file: file.clone(), title, steps: Vec::new() });
        } else if !bare.is_empty() && !bare.starts_with(b"#") && bare != b"@fix" {
            take(cases.last_mut().unwrap(), number + 1, bare);
        }
    }
    cases
}

fn take(case: &mut Case, line: usize, bare: &[u8]) {
    if let Some(expected) = bare.strip_prefix(b"= ") {
        case.steps.last_mut().unwrap().expected.push(expected.to_vec());
    } else if let Some(event) = bare.strip_prefix(b"! ") {
        let events = case.steps.last_mut().unwrap().events.get_or_insert_default();
        if event != b"none" {
            let space = event.iter().position(|byte| *byte == b' ').unwrap();
            events.push((event[..space].to_vec(), event[space + 1..].to_vec()));
        }
    } else {
        let end = bare.iter().position(|byte| *byte == b' ').unwrap_or(bare.len());
        let dialect = String::from_utf8_lossy(&bare[..end]).into_owned();
        let words = words(&bare[end..]);
        case.steps.push(Step { line, dialect, words, expected: Vec::new(), events: None });
    }
}

/// Words split at spaces; single quotes are literal, double quotes know escapes.
pub(super) fn words(text: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut at = 0;
    loop {
        while text.get(at) == Some(&b' ') {
            at += 1;
        }
        match text.get(at) {
            None => return out,
            Some(b'\'') => {
                let end = at + 1 + text[at + 1..].iter().position(|byte| *byte == b'\'').unwrap();
                out.push(text[at + 1..end].to_vec());
                at = end + 1;
            }
            Some(b'"') => {
                let (word, end) = quoted(text, at + 1);
                out.push(word);
                at = end;
            }
            Some(_) => {
                let end =
                    text[at..].iter().position(|byte| *byte == b' ').map_or(text.len(), |length| at + length);
                out.push(text[at..end].to_vec());
                at = end;
            }
        }
    }
}

fn quoted(text: &[u8], mut at: usize) -> (Vec<u8>, usize) {
    let mut word = Vec::new();
    loop {
        match text[at] {
            b'"' => return (word, at + 1),
            b'\\' if text[at + 1] == b'x' => {
                let hex = std::str::from_utf8(&text[at + 2..at + 4]).unwrap();
                word.push(u8::from_str_radix(hex, 16).unwrap());
                at += 4;
            }
            b'\\' => {
                word.push(match text[at + 1] {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'f' => 12,
                    b'0' => 0,
                    other => other,
                });
                at += 2;
            }
            byte => {
                word.push(byte);
                at += 1;
            }
        }
    }
}
