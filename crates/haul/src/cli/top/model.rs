//! What is shown and what a key does to it. Pure: the loop performs what is answered.

use super::super::output::printable;

/// A place to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Queues,
    Workers,
    Running,
    Failures,
    QueueJobs(String),
    WorkerJobs(String),
    GroupJobs(String),
    Job(String),
}

/// The pages that Tab goes through.
pub(super) const TABS: [Page; 4] = [Page::Queues, Page::Workers, Page::Running, Page::Failures];

impl Page {
    pub(super) fn title(&self) -> String {
        match self {
            Page::Queues => "Queues".to_owned(),
            Page::Workers => "Workers".to_owned(),
            Page::Running => "Running".to_owned(),
            Page::Failures => "Failures".to_owned(),
            Page::QueueJobs(queue) => format!("Queue {}", printable(queue)),
            Page::WorkerJobs(worker) => format!("Worker {}", printable(worker)),
            Page::GroupJobs(group) => format!("Failed: {}", printable(group)),
            Page::Job(jid) => format!("Job {}", printable(jid)),
        }
    }

    fn is_of_jobs(&self) -> bool {
        !matches!(self, Page::Queues | Page::Workers | Page::Failures)
    }
}

/// A row of a table: which thing it is, and its cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: String,
    pub(super) cells: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Table { columns: Vec<&'static str>, rows: Vec<Row> },
    Text(Vec<String>),
}

/// A key, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Letter(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Back,
    Erase,
    Tab,
    Interrupt,
}

/// Something to do to jobs or queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Pause(String),
    Unpause(String),
    Retry(String),
    RetryGroup(String),
    Cancel(String),
}

impl Act {
    fn question(&self) -> String {
        match self {
            Act::Pause(queue) => format!("Pause {}? y/n", printable(queue)),
            Act::Unpause(queue) => format!("Unpause {}? y/n", printable(queue)),
            Act::Retry(jid) => format!("Retry {}? y/n", printable(jid)),
            Act::RetryGroup(group) => format!("Retry all that failed with {}? y/n", printable(group)),
            Act::Cancel(jid) => format!("Cancel {}? y/n", printable(jid)),
        }
    }
}

/// What the loop is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Draw,
    Look,
    Do(Act),
    Quit,
}

pub(super) struct Model {
    stack: Vec<Page>,
    content: Content,
    pub(super) selected: usize,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    sort: usize,
    is_reversed: bool,
    asked: Option<Act>,
    /// What happened last.
    pub(super) note: String,
    /// Rows the screen has for content; set when drawn.
    pub(super) height: usize,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            stack: vec![Page::Queues],
            content: Content::Text(vec!["Looking…".to_owned()]),
            selected: 0,
            filter: String::new(),
            is_typing: false,
            sort: 0,
            is_reversed: false,
            asked: None,
            note: String::new(),
            height: 20,
        }
    }
}

impl Model {
    pub(super) fn page(&self) -> &Page {
        self.stack.last().unwrap_or(&Page::Queues)
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    /// The line below: a question, the filter being typed, or what happened.
    pub(super) fn line(&self) -> String {
        match &self.asked {
            Some(act) => act.question(),
            None if self.is_typing => format!("/{}_", printable(&self.filter)),
            None => printable(&self.note),
        }
    }

    /// The column rows are sorted by, and whether the other way round.
    pub(super) fn sorting(&self) -> (usize, bool) {
        (self.sort, self.is_reversed)
    }

    pub(super) fn show(&mut self, mut content: Content) {
        if let Content::Table { rows, .. } = &mut content {
            sort(rows, self.sort, self.is_reversed);
        }
        // The same row stays selected when others come or go.
        let key = self.row().map(|row| row.key.clone());
        self.content = content;
        let found = key.and_then(|key| self.rows().iter().position(|row| row.key == key));
        self.selected = found.unwrap_or(self.selected).min(self.last());
    }

    /// The rows that pass the filter.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let Content::Table { rows, .. } = &self.content else { return Vec::new() };
        let needle = self.filter.to_lowercase();
        rows.iter().filter(|row| row.cells.iter().any(|cell| cell.to_lowercase().contains(&needle))).collect()
    }

    fn row(&self) -> Option<&Row> {
        self.rows().get(self.selected).copied()
    }

    fn last(&self) -> usize {
        match &self.content {
            Content::Table { .. } => self.rows().len().saturating_sub(1),
            Content::Text(lines) => lines.len().saturating_sub(1),
        }
    }

    fn go(&mut self, stack: Vec<Page>) -> Step {
        self.stack = stack;
        self.content = Content::Text(Vec::new());
        (self.selected, self.sort, self.is_reversed) = (0, 0, false);
        self.filter.clear();
        self.note.clear();
        Step::Look
    }

    pub(super) fn press(&mut self, key: Key) -> Step {
        if key == Key::Interrupt {
            return Step::Quit;
        }
        if let Some(act) = self.asked.take() {
            return if key == Key::Letter('y') { Step::Do(act) } else { Step::Draw };
        }
        if self.is_typing {
            return self.typed(key);
        }
        match key {
            Key::Up | Key::Letter('k') => self.selected = self.selected.saturating_sub(1),
            Key::Down | Key::Letter('j') => self.selected = (self.selected + 1).min(self.last()),
            Key::PageUp => self.selected = self.selected.saturating_sub(self.height),
            Key::PageDown => self.selected = (self.selected + self.height).min(self.last()),
            Key::Tab => return self.tab(None),
            Key::Letter(digit @ '1'..='4') => return self.tab(digit.to_digit(10)),
            Key::Enter => return self.enter(),
            Key::Back => return self.back(),
            Key::Letter('q') => return Step::Quit,
            Key::Letter('/') => self.is_typing = true,
            Key::Letter('s') => return self.sort_next(),
            Key::Letter('S') => {
                self.is_reversed = !self.is_reversed;
                return Step::Look;
            }
            Key::Letter(letter) => self.asked = self.act(letter),
            Key::Erase | Key::Interrupt => {}
        }
        Step::Draw
    }

    fn typed(&mut self, key: Key) -> Step {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Back => {
                self.is_typing = false;
                self.filter.clear();
            }
            Key::Erase => drop(self.filter.pop()),
            Key::Letter(letter) => self.filter.push(letter),
            _ => {}
        }
        self.selected = self.selected.min(self.last());
        Step::Draw
    }

    fn tab(&mut self, number: Option<u32>) -> Step {
        let first = self.stack.first().unwrap_or(&Page::Queues);
        let at = TABS.iter().position(|page| page == first).unwrap_or(0);
        let next = number.map_or((at + 1) % TABS.len(), |number| number as usize - 1);
        match TABS.get(next) {
            Some(page) => self.go(vec![page.clone()]),
            None => Step::Draw,
        }
    }

    fn enter(&mut self) -> Step {
        let Some(key) = self.row().map(|row| row.key.clone()) else { return Step::Draw };
        let page = match self.page() {
            Page::Queues => Page::QueueJobs(key),
            Page::Workers => Page::WorkerJobs(key),
            Page::Failures => Page::GroupJobs(key),
            _ => Page::Job(key),
        };
        let stack = self.stack.iter().cloned().chain([page]).collect();
        self.go(stack)
    }

    fn back(&mut self) -> Step {
        if !self.filter.is_empty() {
            self.filter.clear();
            return Step::Draw;
        }
        if self.stack.len() < 2 {
            return Step::Draw;
        }
        let mut stack = std::mem::take(&mut self.stack);
        stack.pop();
        self.go(stack)
    }

    fn sort_next(&mut self) -> Step {
        if let Content::Table { columns, .. } = &self.content {
            self.sort = (self.sort + 1) % columns.len().max(1);
            // The largest number first is what one looks for.
            self.is_reversed = self.sort > 0;
        }
        Step::Look
    }

    /// What a letter asks for, on this page and row.
    fn act(&self, letter: char) -> Option<Act> {
        let key = match self.page() {
            Page::Job(jid) => jid.clone(),
            _ => self.row()?.key.clone(),
        };
        match (letter, self.page()) {
            ('p', Page::Queues) => {
                let is_paused = self.row()?.cells.iter().any(|cell| cell == "paused");
                Some(if is_paused { Act::Unpause(key) } else { Act::Pause(key) })
            }
            ('r', Page::Failures) => Some(Act::RetryGroup(key)),
            ('r', page) if page.is_of_jobs() => Some(Act::Retry(key)),
            ('x', page) if page.is_of_jobs() => Some(Act::Cancel(key)),
            _ => None,
        }
    }
}

fn sort(rows: &mut [Row], column: usize, is_reversed: bool) {
    let cell = |row: &Row| row.cells.get(column).cloned().unwrap_or_default();
    rows.sort_by(|a, b| {
        let (a, b) = (cell(a), cell(b));
        let order = match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(a), Ok(b)) => a.total_cmp(&b),
            _ => a.cmp(&b),
        };
        if is_reversed { order.reverse() } else { order }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let mut model = Model::default();
        let row = |name: &str, waiting: &str, state: &str| Row {
            key: name.to_owned(),
            cells: vec![name.to_owned(), waiting.to_owned(), state.to_owned()],
        };
        let rows = vec![row("b", "9", "paused"), row("a", "10", ""), row("c", "2", "")];
        model.show(Content::Table { columns: vec!["QUEUE", "WAITING", ""], rows });
        model
    }

    fn keys(model: &Model) -> String {
        model.rows().iter().map(|row| row.key.as_str()).collect()
    }

    #[test]
    fn rows_are_sorted_filtered_and_the_same_one_stays_selected() {
        let mut model = model();
        assert_eq!(keys(&model), "abc");
        model.press(Key::Down);
        assert_eq!(model.press(Key::Letter('s')), Step::Look);
        model.show(model.content().clone());
        assert_eq!((keys(&model), model.selected), ("abc".to_owned(), 1));
        for key in ['/', 'p', 'a', 'u'] {
            model.press(Key::Letter(key));
        }
        assert_eq!((keys(&model), model.selected, model.line()), ("b".to_owned(), 0, "/pau_".to_owned()));
        model.press(Key::Back);
        assert_eq!(keys(&model).len(), 3);
    }

    #[test]
    fn what_changes_something_asks_first() {
        let mut model = model();
        assert_eq!(model.press(Key::Letter('p')), Step::Draw);
        assert_eq!(model.line(), "Pause a? y/n");
        assert_eq!(model.press(Key::Letter('n')), Step::Draw);
        model.press(Key::Down);
        model.press(Key::Letter('p'));
        assert_eq!(model.press(Key::Letter('y')), Step::Do(Act::Unpause("b".into())));
        assert_eq!(model.press(Key::Letter('x')), Step::Draw);
        assert_eq!(model.line(), "", "queues are not cancelled");
    }

    #[test]
    fn one_looks_closer_and_comes_back() {
        let mut model = model();
        assert_eq!(model.press(Key::Enter), Step::Look);
        assert_eq!(model.page(), &Page::QueueJobs("a".into()));
        let rows = vec![Row { key: "j1".into(), cells: vec!["j1".into()] }];
        model.show(Content::Table { columns: vec!["JID"], rows });
        model.press(Key::Enter);
        assert_eq!(model.page(), &Page::Job("j1".into()));
        model.press(Key::Letter('x'));
        assert_eq!(model.press(Key::Letter('y')), Step::Do(Act::Cancel("j1".into())));
        model.press(Key::Back);
        model.press(Key::Back);
        assert_eq!(model.page(), &Page::Queues);
        model.press(Key::Letter('4'));
        assert_eq!(model.page(), &Page::Failures);
        assert_eq!(model.press(Key::Letter('q')), Step::Quit);
    }
}
