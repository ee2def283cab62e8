//! The page that tables are set on: how wide it is, and whether it has colour.

use anstyle::{AnsiColor, Style};
use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle,
};
use lab::terminal::one_line;

/// How tables are set. Without a terminal: 100 columns, no colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// No line is wider than this many columns; at least 40.
    pub width: usize,
    /// Whether text is coloured.
    pub colour: bool,
}

impl Default for Page {
    fn default() -> Self {
        Self { width: 100, colour: false }
    }
}

/// What a text's colour says; nothing is said by colour alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Strong,
    Good,
    Bad,
    Doubtful,
    Faint,
}

/// A text in a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Entry {
    /// A text of one line: a line end in it would pass for the end of its row.
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: one_line(&text.into()).into_owned(), tone }
    }

    /// A text of several lines.
    pub(crate) fn of_lines(lines: &[String]) -> Self {
        let lines: Vec<_> = lines.iter().map(|line| one_line(line)).collect();
        Self { text: lines.join("\n"), tone: Tone::Plain }
    }
}

impl<T: Into<String>> From<T> for Entry {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// A column's title, and on which side its texts stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) title: String,
    pub(crate) right: bool,
}

impl Head {
    pub(crate) fn left(title: impl Into<String>) -> Self {
        Self { title: one_line(&title.into()).into_owned(), right: false }
    }

    pub(crate) fn right(title: impl Into<String>) -> Self {
        Self { right: true, ..Self::left(title) }
    }
}

/// Columns between two texts of a row.
pub(crate) const GAP: usize = 2;
/// Under this no table reads.
const NARROWEST: usize = 40;

impl Page {
    pub(crate) fn columns(self) -> usize {
        self.width.max(NARROWEST)
    }

    /// A table, no wider than the page, with a line's end behind each line.
    pub(crate) fn table(self, heads: &[Head], rows: Vec<Vec<Entry>>) -> String {
        let mut table = Table::new();
        // Where all fits nothing needs arranging; the dynamic arrangement may wrap even then.
        let arrangement = match natural(heads, &rows) <= self.columns() {
            true => ContentArrangement::Disabled,
            false => ContentArrangement::Dynamic,
        };
        let line = LineStyle::none().fill('─').junction('─');
        table
            .load_style(TableStyle::new().header_separator(line))
            .set_content_arrangement(arrangement)
            .set_width(u16::try_from(self.columns()).unwrap_or(u16::MAX));
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table.set_header(heads.iter().map(|head| set(&head.title, Tone::Strong, head.right)));
        for row in rows {
            let sides = heads.iter().map(|head| head.right);
            table.add_row(row.iter().zip(sides).map(|(e, right)| set(&e.text, e.tone, right)));
        }
        let last = heads.len().saturating_sub(1);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if index == last { 0 } else { GAP as u16 - 1 }));
        }
        let lines = table.lines().map(|line| line.replace('\u{a0}', " ").trim_end().to_string());
        lines.map(|line| line + "\n").collect()
    }

    /// A text in its tone.
    pub(crate) fn paint(self, text: &str, tone: Tone) -> String {
        let text = &*one_line(text);
        let style = match tone {
            _ if !self.colour => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Strong => Style::new().bold(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Bad => AnsiColor::Red.on_default(),
            Tone::Doubtful => AnsiColor::Yellow.on_default(),
            Tone::Faint => Style::new().dimmed(),
        };
        format!("{style}{text}{style:#}")
    }

    /// A paragraph, wrapped between words; all lines but the first begin with `indent` spaces.
    pub(crate) fn paragraph(self, text: &str, indent: usize, tone: Tone) -> String {
        let mut lines = vec![String::new()];
        for word in text.split_whitespace() {
            for piece in pieces(word, self.columns() - indent) {
                let line = lines.last().map_or(0, |line| line.chars().count());
                if line > 0 && line + 1 + piece.chars().count() > self.columns() {
                    lines.push(" ".repeat(indent));
                }
                if let Some(line) = lines.last_mut() {
                    if !line.trim().is_empty() {
                        line.push(' ');
                    }
                    line.push_str(&piece);
                }
            }
        }
        lines.iter().map(|line| self.paint(line, tone) + "\n").collect()
    }
}

/// How wide a table is without wrapping.
fn natural(heads: &[Head], rows: &[Vec<Entry>]) -> usize {
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let column = |(at, head): (usize, &Head)| {
        let widths = rows.iter().filter_map(|row| row.get(at)).map(|entry| longest(&entry.text));
        widths.fold(longest(&head.title), usize::max)
    };
    let widths: usize = heads.iter().enumerate().map(column).sum();
    widths + GAP * heads.len().saturating_sub(1)
}

/// A word in pieces that fit: a long path has no spaces to break at.
fn pieces(word: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    letters.chunks(width.max(1)).map(|piece| piece.iter().collect()).collect()
}

fn set(text: &str, tone: Tone, right: bool) -> Cell {
    let side = if right { CellAlignment::Right } else { CellAlignment::Left };
    let cell = Cell::new(text).set_alignment(side);
    match tone {
        Tone::Plain => cell,
        Tone::Strong => cell.add_attribute(Attribute::Bold),
        Tone::Good => cell.fg(Color::Green),
        Tone::Bad => cell.fg(Color::Red),
        Tone::Doubtful => cell.fg(Color::Yellow),
        Tone::Faint => cell.add_attribute(Attribute::Dim),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_makes_no_row() {
        let hostile = "na\nive\u{1b}[2J";
        let rows = vec![vec![
            Entry::from(hostile),
            Entry::of_lines(&[hostile.to_owned(), "more".to_owned()]),
        ]];
        let table = Page::default().table(&[Head::left(hostile), Head::right(hostile)], rows);
        let line = "na\u{fffd}ive\u{fffd}[2J";
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4, "{table}");
        let row = format!("{line}  {line}");
        assert_eq!([lines[0], lines[2]], [row.as_str(); 2]);
        assert_eq!(lines[3].trim(), "more");
    }

    #[test]
    fn text_from_outside_neither_moves_the_cursor_nor_colours() {
        let hostile = "a\u{1b}[31m\u{7}\u{9b}2Jb";
        for page in [Page::default(), Page { colour: true, ..Page::default() }] {
            for tone in [Tone::Plain, Tone::Good] {
                let table = page.table(
                    &[Head::left(hostile)],
                    vec![vec![Entry::new(hostile, tone)], vec![Entry::new("plain", tone)]],
                );
                let text = table + &page.paragraph(hostile, 2, tone) + &page.paint(hostile, tone);
                let escapes = text.matches('\u{1b}').count();
                let coloured = page.paint("x", tone).matches('\u{1b}').count() > 0;
                assert_eq!(escapes > 0, page.colour, "the title is bold: {text:?}");
                assert!(!text.contains(['\u{7}', '\u{9b}']), "{text:?}");
                let red = text.contains("[31m") && text.contains("\u{1b}[31m");
                assert!(!red, "{coloured} {text:?}");
            }
        }
    }
}
