//! What a task prints. Standard output is its result, kept up to a bound and never looked into. Standard error is its
//! log: the last part is kept, and lines that begin with `::haul ` are told from the rest.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use haul_client::Json;

/// Of the log, shown on the job.
pub(crate) const SHOWN_BYTES_MAX: usize = 16 << 10;
/// Of the log, kept in each of the two files.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// A line of ours is no longer: what is longer is log.
const LINE_BYTES_MAX: usize = 64 << 10;
/// How lines of ours begin.
const PREFIX: &[u8] = b"::haul ";

/// What a task said by a line.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    /// `::haul progress [PERCENT] [MESSAGE]`
    Progress { percent: Option<f64>, message: Option<String> },
    /// `::haul checkpoint JSON`
    Checkpoint(Json),
    /// `::haul outcome CODE [MESSAGE]`
    Outcome { code: u16, message: String },
}

/// Everything one task printed.
#[derive(Debug)]
pub(crate) struct Output {
    result: Vec<u8>,
    result_max: usize,
    /// Of both streams.
    pub(crate) bytes: u64,
    pub(crate) result_bytes: u64,
    /// The last part of the log.
    shown: Vec<u8>,
    pub(crate) log_bytes: u64,
    /// The beginning of a line that may be ours.
    line: Vec<u8>,
    in_line: bool,
    understood: bool,
    file: Option<File>,
    file_bytes: u64,
    path: PathBuf,
}

impl Output {
    pub(crate) fn new(path: PathBuf, result_max: usize, understood: bool) -> Self {
        Output {
            result: Vec::new(),
            result_max,
            bytes: 0,
            result_bytes: 0,
            shown: Vec::new(),
            log_bytes: 0,
            line: Vec::new(),
            in_line: false,
            understood,
            file: None,
            file_bytes: 0,
            path,
        }
    }

    /// Some of standard output.
    pub(crate) fn result_part(&mut self, part: &[u8]) {
        self.bytes += part.len() as u64;
        self.result_bytes += part.len() as u64;
        let room = self.result_max.saturating_sub(self.result.len());
        self.result.extend(part.iter().take(room));
    }

    /// Some of standard error; what it said to us.
    pub(crate) fn log_part(&mut self, part: &[u8]) -> Vec<Said> {
        self.bytes += part.len() as u64;
        if !self.understood {
            self.log(part);
            return Vec::new();
        }
        let mut said = Vec::new();
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            self.piece(piece, &mut said);
        }
        said
    }

    /// A line, or a part of one.
    fn piece(&mut self, piece: &[u8], said: &mut Vec<Said>) {
        let ends = piece.ends_with(b"\n");
        if self.in_line {
            self.in_line = !ends;
            return self.log(piece);
        }
        self.line.extend_from_slice(piece);
        let known = self.line.len().min(PREFIX.len());
        let may_be_ours = self.line.get(..known) == PREFIX.get(..known) && self.line.len() <= LINE_BYTES_MAX;
        if may_be_ours && !ends {
            return;
        }
        let line = std::mem::take(&mut self.line);
        match understood(&line).filter(|_| may_be_ours) {
            Some(word) => said.push(word),
            None => {
                self.in_line = !ends;
                self.log(&line);
            }
        }
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) -> Vec<Said> {
        let line = std::mem::take(&mut self.line);
        match understood(&line) {
            Some(said) => vec![said],
            None => {
                self.log(&line);
                Vec::new()
            }
        }
    }

    fn log(&mut self, part: &[u8]) {
        if part.is_empty() {
            return;
        }
        self.log_bytes += part.len() as u64;
        self.shown.extend_from_slice(part);
        if self.shown.len() > 2 * SHOWN_BYTES_MAX {
            self.shown.drain(..self.shown.len() - SHOWN_BYTES_MAX);
        }
        self.keep(part);
    }

    /// A full file becomes the old one. A disk that takes nothing more does not stop the task.
    fn keep(&mut self, part: &[u8]) {
        if self.file.is_none() || self.file_bytes >= FILE_BYTES_MAX {
            if self.file.is_some() {
                drop(fs::rename(&self.path, self.path.with_extension("old")));
            }
            let fresh =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path);
            (self.file, self.file_bytes) = (fresh.ok(), 0);
        }
        if let Some(file) = &mut self.file {
            drop(file.write_all(part));
            self.file_bytes += part.len() as u64;
        }
    }

    pub(crate) fn result(&self) -> String {
        String::from_utf8_lossy(&self.result).into_owned()
    }

    pub(crate) fn is_result_cut(&self) -> bool {
        self.result_bytes > self.result.len() as u64
    }

    /// The last part of the log.
    pub(crate) fn shown(&self) -> &[u8] {
        self.shown.get(self.shown.len().saturating_sub(SHOWN_BYTES_MAX)..).unwrap_or_default()
    }
}

/// What a line says, if it is one of ours.
fn understood(line: &[u8]) -> Option<Said> {
    let rest = std::str::from_utf8(line.strip_prefix(PREFIX)?).ok()?.trim_end_matches(['\n', '\r']);
    let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let rest = rest.trim();
    match word {
        "progress" => {
            let (first, others) = rest.split_once(' ').unwrap_or((rest, ""));
            let percent = first
                .trim_end_matches('%')
                .parse::<f64>()
                .ok()
                .filter(|percent| (0.0..=100.0).contains(percent));
            let message = if percent.is_some() { others.trim() } else { rest };
            let message = Some(message.chars().take(500).collect::<String>()).filter(|text| !text.is_empty());
            (percent.is_some() || message.is_some()).then_some(Said::Progress { percent, message })
        }
        "checkpoint" => Json::from_text(rest).ok().map(Said::Checkpoint),
        "outcome" => {
            let (code, message) = rest.split_once(' ').unwrap_or((rest, ""));
            let code = code.parse().ok().filter(|code| (100..=599).contains(code))?;
            Some(Said::Outcome { code, message: message.trim().to_owned() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(folder: &tempfile::TempDir) -> Output {
        Output::new(folder.path().join("stderr"), 4, true)
    }

    #[test]
    fn lines_of_ours_are_told_from_the_log_however_they_arrive() {
        let folder = tempfile::tempdir().unwrap();
        let text = b"a ::haul progress 1\n::haul progress 40% half way\n::haul nonsense\n::haul checkpoint {\"at\": 7}\nend";
        let wanted = [
            Said::Progress { percent: Some(40.0), message: Some("half way".into()) },
            Said::Checkpoint(Json::from_text("{\"at\": 7}").unwrap()),
        ];
        for size in [1, 2, 7, 1000] {
            let mut output = output(&folder);
            let mut said = Vec::new();
            for part in text.chunks(size) {
                said.extend(output.log_part(part));
            }
            said.extend(output.finish());
            assert_eq!(said, wanted, "in parts of {size}");
            assert_eq!(output.shown(), b"a ::haul progress 1\n::haul nonsense\nend", "in parts of {size}");
        }
    }

    #[test]
    fn the_result_is_cut_and_the_log_keeps_its_last_part() {
        let folder = tempfile::tempdir().unwrap();
        let mut output = output(&folder);
        output.result_part(b"abc");
        assert!(!output.is_result_cut());
        output.result_part(b"def");
        assert!(output.is_result_cut() && output.result() == "abcd");
        for _ in 0..3000 {
            output.log_part(&[b'x'; 4000]);
        }
        output.log_part(b"\nlast");
        output.finish();
        assert_eq!(output.shown().len(), SHOWN_BYTES_MAX);
        assert!(output.shown().ends_with(b"last"));
        let on_disk: u64 = ["stderr", "stderr.old"]
            .iter()
            .map(|name| fs::metadata(folder.path().join(name)).unwrap().len())
            .sum();
        assert!(on_disk <= 2 * FILE_BYTES_MAX + 8000, "{on_disk}");
    }

    #[test]
    fn outcomes_have_a_class() {
        assert_eq!(
            understood(b"::haul outcome 404 gone\n"),
            Some(Said::Outcome { code: 404, message: "gone".into() })
        );
        for line in [
            "::haul outcome 99",
            "::haul outcome x",
            "::haul progress",
            "::haul checkpoint {",
            "haul progress 1",
        ] {
            assert_eq!(understood(line.as_bytes()), None, "{line}");
        }
    }
}
