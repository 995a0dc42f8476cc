//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Samples are only written below their metric's heading.
#[derive(Default)]
pub(crate) struct Page {
    text: String,
}

/// One metric being written.
pub(crate) struct Metric<'a> {
    text: &'a mut String,
    name: &'static str,
}

/// A histogram's values: how many were at most each bound.
pub(crate) struct Distribution {
    pub(crate) up_to: Vec<(f64, u64)>,
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl Page {
    pub(crate) fn metric(&mut self, name: &'static str, kind: Kind, help: &str) -> Metric<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string has no way to fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Metric { text: &mut self.text, name }
    }

    pub(crate) fn single(&mut self, name: &'static str, kind: Kind, help: &str, value: f64) {
        self.metric(name, kind, help).sample(&[], value);
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

impl Metric<'_> {
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.line("", labels, None, value);
    }

    pub(crate) fn distribution(&mut self, labels: &[(&str, &str)], values: &Distribution) {
        for (bound, count) in &values.up_to {
            self.line("_bucket", labels, Some(&bound.to_string()), *count as f64);
        }
        self.line("_bucket", labels, Some("+Inf"), values.count as f64);
        self.line("_sum", labels, None, values.sum);
        self.line("_count", labels, None, values.count as f64);
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], bound: Option<&str>, value: f64) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let bound = bound.map(|bound| ("le", bound));
        for (at, (key, value)) in labels.iter().copied().chain(bound).enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            self.text.push_str(key);
            self.text.push_str("=\"");
            push_escaped(self.text, value);
            self.text.push('"');
        }
        if !labels.is_empty() || bound.is_some() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn push_escaped(text: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_histograms_are_whole() {
        let mut page = Page::default();
        page.metric("m", Kind::Gauge, "Help.").sample(&[("queue", "a\"b\\c\nd"), ("tenant", "é")], 1.5);
        let values = Distribution { up_to: vec![(0.5, 1), (1.0, 2)], count: 3, sum: 9.25 };
        page.metric("h", Kind::Histogram, "Help.").distribution(&[], &values);
        assert_eq!(
            page.finish(),
            "# HELP m Help.\n# TYPE m gauge\nm{queue=\"a\\\"b\\\\c\\nd\",tenant=\"é\"} 1.5\n\
             # HELP h Help.\n# TYPE h histogram\nh_bucket{le=\"0.5\"} 1\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 3\n\
             h_sum 9.25\nh_count 3\n"
        );
    }
}
