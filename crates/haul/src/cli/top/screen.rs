//! Drawing: a line of pages, the table or text, a line of what happened, a line of keys. Fits 80 by 24.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as Drawn, Table, TableState};

use super::super::output::printable;
use super::model::{Content, Model, Page, TABS};

/// The widest a name's column gets, before others have what they need.
const NAME_WIDTH_MAX: usize = 36;

pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model) {
    let lines = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(1), Constraint::Length(1)];
    let [top, middle, note, keys] = Layout::vertical(lines).areas(frame.area());
    model.height = usize::from(middle.height.saturating_sub(1)).max(1);
    frame.render_widget(Paragraph::new(title(model)), top);
    content(frame, model, middle);
    frame.render_widget(Paragraph::new(model.line()).style(Style::new().add_modifier(Modifier::BOLD)), note);
    frame.render_widget(
        Paragraph::new(help(model.page())).style(Style::new().add_modifier(Modifier::DIM)),
        keys,
    );
}

fn title(model: &Model) -> Line<'static> {
    let mut spans = vec![Span::styled("haul ", Style::new().add_modifier(Modifier::BOLD))];
    for (at, page) in TABS.iter().enumerate() {
        let style =
            if page == model.page() { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        spans.push(Span::styled(format!(" {} {} ", at + 1, page.title()), style));
    }
    if !TABS.contains(model.page()) {
        spans.push(Span::styled(
            format!(" {} ", model.page().title()),
            Style::new().add_modifier(Modifier::REVERSED),
        ));
    }
    if !model.filter.is_empty() {
        spans.push(Span::raw(format!("  filter: {}", printable(&model.filter))));
    }
    Line::from(spans)
}

fn help(page: &Page) -> &'static str {
    match page {
        Page::Queues => "Tab page  ↑↓ move  Enter jobs  p pause  / filter  s S sort  q quit",
        Page::Workers => "Tab page  ↑↓ move  Enter jobs  / filter  s S sort  q quit",
        Page::Failures => "Tab page  ↑↓ move  Enter jobs  r retry all  / filter  s S sort  q quit",
        Page::Job(_) => "Esc back  ↑↓ scroll  r retry  x cancel  q quit",
        _ => "Esc back  ↑↓ move  Enter job  r retry  x cancel  / filter  s S sort  q quit",
    }
}

fn content(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    match model.content() {
        Content::Text(lines) => {
            let from = model.selected.min(lines.len().saturating_sub(1));
            let shown = lines.iter().skip(from).take(usize::from(area.height));
            let text: Vec<Line<'_>> = shown.map(|line| Line::raw(printable(line))).collect();
            frame.render_widget(Paragraph::new(text), area);
        }
        Content::Table { columns, .. } => table(frame, model, columns, area),
    }
}

fn table(frame: &mut Frame<'_>, model: &Model, columns: &[&'static str], area: Rect) {
    let rows = model.rows();
    if rows.is_empty() {
        frame.render_widget(Paragraph::new("Nothing here."), area);
        return;
    }
    let (sorted, is_reversed) = model.sorting();
    let heads = columns.iter().enumerate().map(|(at, name)| match at == sorted {
        true if is_reversed => Cell::from(format!("{name}↓")),
        true => Cell::from(format!("{name}↑")),
        false => Cell::from(*name),
    });
    let widths = (0..columns.len()).map(|at| {
        let cells = rows.iter().filter_map(|row| row.cells.get(at));
        let widest = cells.map(|cell| printable(cell).chars().count()).max().unwrap_or(0);
        let head = columns.get(at).map_or(0, |name| name.chars().count() + 1);
        let width = u16::try_from(widest.clamp(head, NAME_WIDTH_MAX)).unwrap_or(u16::MAX);
        if at == 0 { Constraint::Min(width.min(24)) } else { Constraint::Length(width) }
    });
    let drawn = rows.iter().map(|row| Drawn::new(row.cells.iter().map(|cell| Cell::from(printable(cell)))));
    let table = Table::new(drawn, widths)
        .header(Drawn::new(heads).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(model.selected);
    frame.render_stateful_widget(table, area, &mut state);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::Row;
    use super::*;

    fn drawn(model: &mut Model) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..24).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn all_columns_of_the_queues_fit_eighty_by_twenty_four() {
        let mut model = Model::default();
        let cells = |name: &str| {
            let mut cells = vec![name.to_owned()];
            cells.extend((0..7).map(|at| (at * 1111).to_string()));
            cells.push("paused".to_owned());
            cells
        };
        let rows = vec![
            Row { key: "mail".into(), cells: cells("mail") },
            Row { key: "x".into(), cells: cells("a\u{1b}[2J very long name of a queue indeed, too long") },
        ];
        let columns = vec!["QUEUE", "WAIT", "RUN", "STALL", "SCHED", "DEP", "THROT", "RECUR", ""];
        model.show(Content::Table { columns, rows });
        let text = drawn(&mut model);
        for words in ["1 Queues", "4 Failures", "mail", "RECUR", "6666", "paused", "q quit", "a\\u{1b}[2J"] {
            assert!(text.contains(words), "{words} is not in\n{text}");
        }
    }
}
