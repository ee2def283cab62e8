//! Tables as text, with notes on what is not there.

/// Columns of a line of notes.
const WIDTH: usize = 100;

/// What stands in a cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    /// A figure.
    Value(f64),
    /// Why there is none.
    Lacking(String),
    /// There is nothing to say.
    Nothing,
}

impl Cell {
    /// The figure changed.
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Value(value) => Self::Value(change(value)),
            other => other,
        }
    }

    /// Why there is no figure, where it was another's.
    pub(crate) fn without_value(self) -> Self {
        match self {
            Self::Value(_) => Self::Nothing,
            other => other,
        }
    }
}

/// Why figures are missing, each once and with a number, from 1.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
    /// The number of a note, which is added where it is new.
    pub(crate) fn number(&mut self, note: &str) -> usize {
        let known = self.0.iter().position(|one| one == note);
        known.unwrap_or_else(|| {
            self.0.push(note.into());
            self.0.len() - 1
        }) + 1
    }

    /// All of them, in lines.
    pub(crate) fn text(&self) -> String {
        let line = |(at, note)| wrapped(&format!("[{}] {note}", at + 1)) + "\n";
        self.0.iter().enumerate().map(line).collect()
    }
}

/// A table under way: a wide first column, then narrow ones of the same width.
pub(crate) struct Table {
    text: String,
    notes: Notes,
    first: usize,
    width: usize,
}

impl Table {
    /// With a first column and further ones so wide.
    pub(crate) fn new(first: usize, width: usize) -> Self {
        Self { text: String::new(), notes: Notes::default(), first, width }
    }

    /// A line over the whole width.
    pub(crate) fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    /// A row of words.
    pub(crate) fn row<S: AsRef<str>>(&mut self, name: &str, cells: &[S]) {
        let (first, width) = (self.first, self.width);
        let cells: String = cells.iter().map(|cell| format!("{:>width$}", cell.as_ref())).collect();
        self.line(&format!("{name:<first$}{cells}"));
    }

    /// A rule below a head of so many columns.
    pub(crate) fn rule(&mut self, columns: usize) {
        self.line(&"─".repeat(self.first + self.width * columns));
    }

    /// A cell's text: the figure as it is to be written, or a dash with the number of a note.
    pub(crate) fn cell(&mut self, cell: &Cell, write: impl Fn(f64) -> String) -> String {
        match cell {
            Cell::Value(value) => write(*value),
            Cell::Nothing => "—".into(),
            Cell::Lacking(why) => format!("— [{}]", self.notes.number(why)),
        }
    }

    /// All of it, with the notes behind.
    pub(crate) fn finish(self) -> String {
        let notes = self.notes.text();
        let separator = if notes.is_empty() { "" } else { "\n" };
        self.text + separator + &notes
    }
}

/// A note in lines that are not too wide.
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
    fn what_is_lacking_is_noted_once() {
        let mut table = Table::new(8, 8);
        let lacking = Cell::Lacking("no counters; show a PMU".into());
        let cells = [
            table.cell(&Cell::Value(2.5), |value| format!("{value:.1}")),
            table.cell(&lacking, |_| String::new()),
            table.cell(&lacking, |_| String::new()),
            table.cell(&Cell::Nothing, |_| String::new()),
        ];
        table.row("inline", &cells);
        let due = "inline       2.5   — [1]   — [1]       —\n\n[1] no counters; show a PMU\n";
        assert_eq!(table.finish(), due);
    }

    #[test]
    fn long_notes_are_broken() {
        let note = wrapped(&"word ".repeat(50));
        assert!(
            note.lines().all(|line| line.chars().count() <= WIDTH) && note.lines().count() == 3
        );
    }
}
