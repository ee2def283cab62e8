//! Tables as text, with notes on missing values.

/// Maximum width of a note.
const WIDTH: usize = 100;

/// Content of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Value(f64),
    /// The reason why the value is missing.
    Missing(String),
    Empty,
}

impl Cell {
    /// Applies a function to the value.
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Value(value) => Self::Value(change(value)),
            other => other,
        }
    }

    /// Returns the reason only.
    pub(crate) fn without_value(self) -> Self {
        match self {
            Self::Value(_) => Self::Empty,
            other => other,
        }
    }
}

/// Distinct notes, numbered from 1.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
    /// Returns the number of a note and adds the note if it is new.
    pub(crate) fn number(&mut self, note: &str) -> usize {
        let known = self.0.iter().position(|one| one == note);
        known.unwrap_or_else(|| {
            self.0.push(note.into());
            self.0.len() - 1
        }) + 1
    }

    /// Returns all notes as lines.
    pub(crate) fn text(&self) -> String {
        let line = |(index, note)| wrapped(&format!("[{}] {note}", index + 1)) + "\n";
        self.0.iter().enumerate().map(line).collect()
    }
}

/// Table builder: a wide first column, then columns of equal width.
pub(crate) struct Table {
    text: String,
    notes: Notes,
    first: usize,
    width: usize,
}

impl Table {
    /// Creates a table with the widths of the first and of the other columns.
    pub(crate) fn new(first: usize, width: usize) -> Self {
        Self { text: String::new(), notes: Notes::default(), first, width }
    }

    /// Adds a line across all columns.
    pub(crate) fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    /// Adds a row.
    pub(crate) fn row<S: AsRef<str>>(&mut self, name: &str, cells: &[S]) {
        let (first, width) = (self.first, self.width);
        let cells: String = cells.iter().map(|cell| format!("{:>width$}", cell.as_ref())).collect();
        self.line(&format!("{name:<first$}{cells}"));
    }

    /// Adds a rule below a header.
    pub(crate) fn rule(&mut self, columns: usize) {
        self.line(&"─".repeat(self.first + self.width * columns));
    }

    /// Returns the text of a cell: the formatted value, or a dash with the number of a note.
    pub(crate) fn cell(&mut self, cell: &Cell, format: impl Fn(f64) -> String) -> String {
        match cell {
            Cell::Value(value) => format(*value),
            Cell::Empty => "—".into(),
            Cell::Missing(reason) => format!("— [{}]", self.notes.number(reason)),
        }
    }

    /// Returns the table followed by the notes.
    pub(crate) fn finish(self) -> String {
        let notes = self.notes.text();
        let separator = if notes.is_empty() { "" } else { "\n" };
        self.text + separator + &notes
    }
}

/// Breaks a note into lines.
pub(crate) fn wrapped(note: &str) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    for word in note.split_whitespace() {
        let last = lines.len() - 1;
        let fits = lines[last].chars().count() + 1 + word.chars().count() <= WIDTH;
        match (lines[last].is_empty(), fits) {
            (true, _) => lines[last].push_str(word),
            (false, true) => lines[last] += &format!(" {word}"),
            (false, false) => lines.push(format!("    {word}")),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_noted_once() {
        let mut table = Table::new(8, 8);
        let missing = Cell::Missing("no counters; expose a PMU".into());
        let cells = [
            table.cell(&Cell::Value(2.5), |value| format!("{value:.1}")),
            table.cell(&missing, |_| String::new()),
            table.cell(&missing, |_| String::new()),
            table.cell(&Cell::Empty, |_| String::new()),
        ];
        table.row("inline", &cells);
        let expected =
            "inline       2.5   — [1]   — [1]       —\n\n[1] no counters; expose a PMU\n";
        assert_eq!(table.finish(), expected);
    }

    #[test]
    fn long_notes_are_wrapped() {
        let note = wrapped(&"word ".repeat(50));
        assert!(
            note.lines().all(|line| line.chars().count() <= WIDTH) && note.lines().count() == 3
        );
    }
}
