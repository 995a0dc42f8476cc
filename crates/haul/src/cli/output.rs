//! What subcommands print: one JSON document for scripts, or aligned text for people.
//!
//! Written with `writeln!`, not `println!`: a reader that closes the pipe (`haul events | head`) must not be a panic.

use std::io::{self, Write};

use serde::Serialize;

use super::failure::Done;

/// Characters of a job's data that a table shows.
pub(super) const DATA_CHARS_MAX: usize = 48;

#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) json: bool,
}

impl Output {
    /// The value as one line of JSON, or the text, whichever was asked for.
    pub(super) fn say(self, value: &impl Serialize, text: &str) -> Done {
        if self.json { self.value(value) } else { self.text(text) }
    }

    pub(super) fn value(self, value: &impl Serialize) -> Done {
        let mut line = serde_json::to_vec(value).map_err(io::Error::from)?;
        // Data is kept as it was written, line breaks and all; in JSON they can only stand between its parts.
        line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        line.push(b'\n');
        write(&line)
    }

    /// A text, with a line end if it lacks one; nothing if it is empty.
    pub(super) fn text(self, text: &str) -> Done {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        write(format!("{text}{end}").as_bytes())
    }
}

fn write(bytes: &[u8]) -> Done {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// For standard error. There is nobody left to tell if that fails.
pub(super) fn complain(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// Rows under a heading, in aligned columns. A column of numbers is set to the right.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heading: &[&str]) -> Self {
        Table { rows: vec![heading.iter().map(|word| (*word).to_owned()).collect()] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// The table, or the sentence if it has no rows.
    pub(super) fn text_or(&self, nothing: &str) -> String {
        if self.rows.len() < 2 { nothing.to_owned() } else { self.text() }
    }

    pub(super) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let shapes: Vec<(usize, bool)> = (0..columns).map(|column| self.shape(column)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&shapes).map(|(cell, (width, right))| {
                let room = " ".repeat(width.saturating_sub(cell.chars().count()));
                if *right { format!("{room}{cell}") } else { format!("{cell}{room}") }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// How wide a column is and whether it holds only numbers.
    fn shape(&self, column: usize) -> (usize, bool) {
        let cells = || self.rows.iter().filter_map(|row| row.get(column));
        let width = cells().map(|cell| cell.chars().count()).max().unwrap_or(0);
        (width, cells().skip(1).all(|cell| cell.parse::<f64>().is_ok()))
    }
}

/// Labels and values under each other; a value of several lines is indented.
pub(super) fn fields(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (label, value) in pairs {
        let gap = format!("\n{}", " ".repeat(width + 4));
        let value = value.lines().map(printable).collect::<Vec<_>>().join(&gap);
        text.push_str(format!("  {label:width$}  {value}").trim_end());
        text.push('\n');
    }
    text
}

/// Without characters that would move a terminal's cursor: names can hold anything.
pub(super) fn printable(text: &str) -> String {
    let escape = |character: char| match character {
        control if control.is_control() => control.escape_default().to_string(),
        other => other.to_string(),
    };
    text.chars().map(escape).collect()
}

/// At most so many characters.
pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// "1 job", "2 jobs".
pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_set_to_the_right() {
        let mut table = Table::new(&["NAME", "WAITING"]);
        assert_eq!(table.text_or("nothing"), "nothing");
        table.row(["mail".to_owned(), "7".to_owned()]);
        table.row(["é\u{1b}[2J".to_owned(), "1200".to_owned()]);
        assert_eq!(table.text(), "NAME        WAITING\nmail              7\né\\u{1b}[2J     1200\n");
    }

    #[test]
    fn fields_are_aligned_and_long_values_indented() {
        assert_eq!(
            fields(&[("a", "1".into()), ("long", "x\ny".into())]),
            "  a     1\n  long  x\n        y\n"
        );
    }

    #[test]
    fn texts_are_cut_at_a_character() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöü", 2), "äö…");
    }
}
