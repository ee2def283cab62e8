//! Text tables and paragraphs for the terminal, shared by the reports and the commands of the suites.

use std::io::IsTerminal as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle,
};
use textwrap::{Options, WordSeparator, WordSplitter};

use crate::terminal::one_line;

/// Spaces between two columns of a table.
pub const COLUMN_GAP: usize = 2;
/// Narrowest page, in columns; a narrower terminal wraps lines itself.
const MIN_WIDTH: usize = 40;
/// Narrowest page on which the text of a table is wrapped within columns.
const MIN_COLUMNAR: usize = 60;
/// Minimum width of a column whose text is wrapped, if the text is longer.
const MIN_WRAPPED: usize = 20;
/// Spaces before the cells of a row in the labelled layout, and before their further lines.
const LABELLED_INDENTS: [usize; 2] = [2, 4];

/// Width and colour of the output. The default is 100 columns without colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Maximum width of a line in columns; smaller values count as 40.
    pub width: usize,
    /// Whether text is coloured.
    pub colour: bool,
}

impl Default for Page {
    fn default() -> Self {
        Self { width: 100, colour: false }
    }
}

/// Role of a text, shown by its colour or weight. The text itself always carries the same information.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Emphasis {
    /// Normal text.
    #[default]
    Plain,
    /// A heading: bold.
    Strong,
    /// A success: green.
    Good,
    /// A failure: red.
    Bad,
    /// A result to be checked: yellow.
    Doubtful,
    /// A secondary text: dimmed.
    Faint,
}

/// Text of one table cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableCell {
    /// The text; line ends separate its lines.
    pub text: String,
    /// How the text is emphasised.
    pub emphasis: Emphasis,
}

impl TableCell {
    /// Creates a cell of one line; control characters and line ends in `text` are replaced.
    pub fn new(text: impl Into<String>, emphasis: Emphasis) -> Self {
        Self { text: one_line(&text.into()).into_owned(), emphasis }
    }

    /// Creates a plain cell of several lines.
    pub fn from_lines(lines: &[String]) -> Self {
        let lines: Vec<_> = lines.iter().map(|line| one_line(line)).collect();
        Self { text: lines.join("\n"), emphasis: Emphasis::Plain }
    }
}

impl<T: Into<String>> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self::new(text, Emphasis::Plain)
    }
}

/// Title and alignment of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnHeader {
    /// The title.
    pub title: String,
    /// Whether the column is right-aligned, as numbers are.
    pub is_right: bool,
}

impl ColumnHeader {
    /// Creates the header of a left-aligned column.
    pub fn left(title: impl Into<String>) -> Self {
        Self { title: one_line(&title.into()).into_owned(), is_right: false }
    }

    /// Creates the header of a right-aligned column.
    pub fn right(title: impl Into<String>) -> Self {
        Self { is_right: true, ..Self::left(title) }
    }
}

impl Page {
    /// Returns the page of standard output: the terminal's width and, unless `NO_COLOR` is set, colour; the
    /// default if it is not a terminal.
    pub fn stdout() -> Self {
        let default = Self::default();
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let width = Table::new().width().map_or(default.width, usize::from);
        Self { width, colour }
    }

    /// Returns the width in columns, at least 40.
    pub fn columns(self) -> usize {
        self.width.max(MIN_WIDTH)
    }

    /// Renders a table that fits the page; each line ends with a line feed. Numbers, and words that fit a line, are not
    /// broken: if the page is too narrow for the columns, each row becomes a paragraph of labelled cells.
    pub fn table(self, headers: &[ColumnHeader], rows: Vec<Vec<TableCell>>) -> String {
        match fitted(headers, &rows, self.columns()) {
            Some(widths) => self.columnar(headers, rows, &widths),
            None => rows.iter().map(|row| self.labelled(headers, row)).collect(),
        }
    }

    /// Renders a table with columns of the given widths.
    fn columnar(
        self,
        headers: &[ColumnHeader],
        rows: Vec<Vec<TableCell>>,
        widths: &[usize],
    ) -> String {
        let mut table = Table::new();
        let line = LineStyle::none().fill('─').junction('─');
        table
            .load_style(TableStyle::new().header_separator(line))
            .set_content_arrangement(ContentArrangement::Disabled);
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let cell = |text: &str, emphasis, (header, width): (&ColumnHeader, &usize)| {
            styled_cell(&wrapped_cell(text, *width), emphasis, header.is_right)
        };
        let columns = || headers.iter().zip(widths);
        table.set_header(columns().map(|column| cell(&column.0.title, Emphasis::Strong, column)));
        for row in rows {
            let cells = row.iter().zip(columns());
            table.add_row(cells.map(|(it, column)| cell(&it.text, it.emphasis, column)));
        }
        let last = headers.len().saturating_sub(1);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if index == last { 0 } else { COLUMN_GAP as u16 - 1 }));
        }
        let lines = table.lines().map(|line| line.replace('\u{a0}', " ").trim_end().to_string());
        lines.map(|line| line + "\n").collect()
    }

    /// Renders a row with a label for each cell that has a text: the first cell, then the others indented, numbers in
    /// one line.
    fn labelled(self, headers: &[ColumnHeader], row: &[TableCell]) -> String {
        let mut text = String::new();
        let mut numbers: Vec<String> = Vec::new();
        let [indent, further] = LABELLED_INDENTS;
        let line = |line: &str, first, emphasis| self.lines(line, [first, further], emphasis);
        for (index, (cell, header)) in row.iter().zip(headers).enumerate() {
            let mut lines = cell.text.lines().filter(|line| !line.is_empty());
            let Some(start) = lines.next() else { continue };
            let start = match header.title.as_str() {
                "" => start.to_owned(),
                title => format!("{title}: {start}"),
            };
            if index > 0 && header.is_right {
                // Its label and its unit stay with a number.
                numbers.push(start.split_whitespace().collect::<Vec<_>>().join("\u{a0}"));
                continue;
            }
            if !numbers.is_empty() {
                text += &line(&std::mem::take(&mut numbers).join(", "), indent, Emphasis::Plain);
            }
            text += &match index {
                0 => line(&start, 0, first_emphasis(cell.emphasis)),
                _ => line(&start, indent, cell.emphasis),
            };
            text.extend(lines.map(|it| line(it, indent, cell.emphasis)));
        }
        if !numbers.is_empty() {
            text += &line(&numbers.join(", "), indent, Emphasis::Plain);
        }
        text
    }

    /// Renders a text with its emphasis; control characters and line ends are replaced.
    pub fn paint(self, text: &str, emphasis: Emphasis) -> String {
        let text = &*one_line(text);
        let style = match emphasis {
            _ if !self.colour => return text.to_owned(),
            Emphasis::Plain => return text.to_owned(),
            Emphasis::Strong => Style::new().bold(),
            Emphasis::Good => AnsiColor::Green.on_default(),
            Emphasis::Bad => AnsiColor::Red.on_default(),
            Emphasis::Doubtful => AnsiColor::Yellow.on_default(),
            Emphasis::Faint => Style::new().dimmed(),
        };
        format!("{style}{text}{style:#}")
    }

    /// Renders a paragraph wrapped between words; all lines but the first start with `indent` spaces.
    pub fn paragraph(self, text: &str, indent: usize, emphasis: Emphasis) -> String {
        self.lines(text, [0, indent], emphasis)
    }

    /// Renders a paragraph with the indents of its first line and of the others.
    fn lines(self, text: &str, [first, others]: [usize; 2], emphasis: Emphasis) -> String {
        let lines = self.wrapped(text, first, others);
        lines.iter().map(|line| self.paint(line, emphasis) + "\n").collect()
    }

    /// Renders a paragraph to the right of a label. The text starts in column `indent`; the label
    /// must be shorter.
    pub fn item(self, label: &str, emphasis: Emphasis, indent: usize, text: &str) -> String {
        let label = one_line(label);
        let gap = " ".repeat(indent.saturating_sub(label.chars().count()));
        let emphasis = if label.is_empty() { Emphasis::Plain } else { emphasis };
        let start = self.paint(&label, emphasis) + &gap;
        let lines = self.wrapped(text, indent, indent);
        let lines = lines.iter().map(|line| one_line(line).into_owned() + "\n");
        let text: String = lines.collect();
        start + text.get(indent..).unwrap_or("\n")
    }

    /// Wraps a text between words, with the first line and the others indented.
    fn wrapped(self, text: &str, first: usize, others: usize) -> Vec<String> {
        let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let [first, others] = [first, others].map(|indent| " ".repeat(indent));
        let options =
            wrap_options(self.columns()).initial_indent(&first).subsequent_indent(&others);
        textwrap::wrap(&text, options).iter().map(|line| line.replace('\u{a0}', " ")).collect()
    }
}

/// Returns options that break lines at spaces, and words only if they are longer than a line.
fn wrap_options<'a>(width: usize) -> Options<'a> {
    Options::new(width)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
}

/// Distinct footnotes, numbered from 1.
#[derive(Debug, Default)]
pub struct Footnotes(Vec<String>);

impl Footnotes {
    /// Returns the mark of a footnote, e.g. `[1]`, and adds the footnote if it is new.
    pub fn mark(&mut self, note: &str) -> String {
        let index = self.0.iter().position(|known| known == note).unwrap_or_else(|| {
            self.0.push(note.into());
            self.0.len() - 1
        });
        format!("[{}]", index + 1)
    }

    /// Renders all footnotes.
    pub fn text(&self, page: Page) -> String {
        let line =
            |(index, note)| page.paragraph(&format!("[{}] {note}", index + 1), 4, Emphasis::Plain);
        self.0.iter().enumerate().map(line).collect()
    }
}

/// Text of several tables with lines between them and footnotes at the end, without colour.
#[derive(Debug)]
pub struct Document {
    page: Page,
    text: String,
    headers: Vec<ColumnHeader>,
    rows: Vec<Vec<TableCell>>,
    notes: Footnotes,
}

impl Document {
    /// Creates an empty document with the width of standard output.
    pub fn new() -> Self {
        Self::with_page(Page { colour: false, ..Page::stdout() })
    }

    /// Creates an empty document.
    pub fn with_page(page: Page) -> Self {
        let (headers, rows) = (Vec::new(), Vec::new());
        Self { page, text: String::new(), headers, rows, notes: Footnotes::default() }
    }

    /// Ends the table and adds a paragraph, or an empty line if `text` is empty.
    pub fn line(&mut self, text: &str) {
        self.end_table();
        self.text += &self.page.paragraph(text, 4, Emphasis::Plain);
    }

    /// Starts a table.
    pub fn table(&mut self, headers: impl IntoIterator<Item = ColumnHeader>) {
        self.end_table();
        self.headers = headers.into_iter().collect();
    }

    /// Adds a row to the table.
    pub fn row<C: Into<TableCell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns the mark of a footnote and adds the footnote if it is new.
    pub fn footnote(&mut self, note: &str) -> String {
        self.notes.mark(note)
    }

    /// Returns the text.
    pub fn finish(mut self) -> String {
        self.end_table();
        let notes = self.notes.text(self.page);
        let separator = if notes.is_empty() { "" } else { "\n" };
        self.text + separator + &notes
    }

    fn end_table(&mut self) {
        if !self.headers.is_empty() {
            let rows = std::mem::take(&mut self.rows);
            self.text += &self.page.table(&std::mem::take(&mut self.headers), rows);
        }
    }
}

impl Default for Document {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the widths at which the columns of a table fit a page; the widest columns are narrowed first. `None` if they
/// do not fit without breaking words or numbers, or if the page is too narrow for wrapped columns.
fn fitted(headers: &[ColumnHeader], rows: &[Vec<TableCell>], page: usize) -> Option<Vec<usize>> {
    let columns = headers.iter().enumerate();
    let (natural, least): (Vec<usize>, Vec<usize>) = columns
        .map(|(at, header)| {
            let cells = || rows.iter().filter_map(|row| row.get(at)).map(|cell| &*cell.text);
            let longest = cells().map(longest_line).max().unwrap_or_default();
            let natural = longest.max(longest_line(&header.title));
            let word = cells().map(longest_word).max().unwrap_or_default();
            let least = if header.is_right { longest } else { word.max(natural.min(MIN_WRAPPED)) };
            (natural, least.max(longest_word(&header.title)))
        })
        .unzip();
    let at = |max: usize| -> Vec<usize> {
        natural.iter().zip(&least).map(|(natural, least)| (*natural).min(max.max(*least))).collect()
    };
    let gaps = COLUMN_GAP * headers.len().saturating_sub(1);
    let widest = natural.iter().copied().max().unwrap_or_default();
    let narrowest = if page < MIN_COLUMNAR { widest } else { 0 };
    let widths = (narrowest..=widest).rev().map(at);
    widths.into_iter().find(|widths| widths.iter().sum::<usize>() + gaps <= page)
}

/// Returns the length of the longest line of a text, in columns.
fn longest_line(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or_default()
}

/// Returns the length of the longest word of a text, in columns.
fn longest_word(text: &str) -> usize {
    text.split([' ', '\n']).map(|word| word.chars().count()).max().unwrap_or_default()
}

/// Wraps each line of a cell that is longer than the column.
fn wrapped_cell(text: &str, width: usize) -> String {
    let wrapped = |line| match longest_line(line) > width {
        true => textwrap::fill(line, wrap_options(width)),
        false => line.to_owned(),
    };
    text.lines().map(wrapped).collect::<Vec<_>>().join("\n")
}

/// Returns the emphasis of the first cell of a labelled row, which is its heading.
fn first_emphasis(emphasis: Emphasis) -> Emphasis {
    if emphasis == Emphasis::Plain { Emphasis::Strong } else { emphasis }
}

fn styled_cell(text: &str, emphasis: Emphasis, is_right: bool) -> Cell {
    let alignment = if is_right { CellAlignment::Right } else { CellAlignment::Left };
    let cell = Cell::new(text).set_alignment(alignment);
    match emphasis {
        Emphasis::Plain => cell,
        Emphasis::Strong => cell.add_attribute(Attribute::Bold),
        Emphasis::Good => cell.fg(Color::Green),
        Emphasis::Bad => cell.fg(Color::Red),
        Emphasis::Doubtful => cell.fg(Color::Yellow),
        Emphasis::Faint => cell.add_attribute(Attribute::Dim),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_in_a_cell_do_not_start_a_row() {
        let hostile = "na\nive\u{1b}[2J";
        let rows = vec![vec![
            TableCell::from(hostile),
            TableCell::from_lines(&[hostile.to_owned(), "more".to_owned()]),
        ]];
        let headers = [ColumnHeader::left(hostile), ColumnHeader::right(hostile)];
        let table = Page::default().table(&headers, rows);
        let line = "na\u{fffd}ive\u{fffd}[2J";
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4, "{table}");
        let row = format!("{line}  {line}");
        assert_eq!([lines[0], lines[2]], [row.as_str(); 2]);
        assert_eq!(lines[3].trim(), "more");
    }

    #[test]
    fn a_document_has_tables_lines_and_distinct_footnotes() {
        let mut document = Document::with_page(Page { width: 40, colour: false });
        document.line("one");
        document.table([ColumnHeader::left(""), ColumnHeader::right("time")]);
        let marks = ["no counters", "no counters", "no SGX"].map(|note| document.footnote(note));
        assert_eq!(marks, ["[1]", "[1]", "[2]"]);
        document.row(["inline", "2.5"]);
        document.row(["trap", &format!("— {}", marks[0])]);
        document.line("");
        document.line(&"word ".repeat(10));
        let expected = "one\n         time\n─────────────\ninline    2.5\ntrap    — [1]\n\n\
            word word word word word word word word\n    word word\n\n[1] no counters\n[2] no SGX\n";
        assert_eq!(document.finish(), expected);
    }

    #[test]
    fn words_and_numbers_of_a_table_stay_whole() {
        let id = "stream/throughput-vs-packet-size";
        let about = "Highest load without loss by packet size";
        let headers = [
            ColumnHeader::left("experiment"),
            ColumnHeader::right("time"),
            ColumnHeader::left("about"),
        ];
        let rows = || vec![vec![TableCell::from(id), "5.0 s".into(), about.into()]];
        let table = |width| Page { width, colour: false }.table(&headers, rows());
        for width in 1..=100 {
            let text = table(width);
            for part in [id, "experiment", "5.0 s", "Highest", "without"] {
                assert!(text.contains(part), "{width}:\n{text}");
            }
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width.max(40), "{width}:\n{text}");
        }
        assert_eq!(table(100).lines().count(), 3);
        assert_eq!(table(62).lines().count(), 4, "{}", table(62));
        let labelled = "experiment: stream/throughput-vs-packet-size\n  time: 5.0 s\n  \
            about: Highest load without loss by packet size\n";
        assert_eq!(table(50), labelled);
        assert!(table(40).ends_with("  about: Highest load without loss by\n    packet size\n"));
    }

    #[test]
    fn an_item_has_a_label_and_an_indented_text() {
        let page = Page { width: 40, colour: false };
        let text = page.item("copy", Emphasis::Strong, 10, &"word ".repeat(9));
        let lines = ["copy      ", "          "].iter().zip([6, 3]);
        let lines =
            lines.map(|(start, words)| format!("{start}{}\n", ["word"].repeat(words).join(" ")));
        assert_eq!(text, lines.collect::<String>());
        assert_eq!(page.item("copy", Emphasis::Plain, 10, ""), "copy      \n");
    }

    #[test]
    fn control_characters_in_text_are_replaced() {
        let hostile = "a\u{1b}[31m\u{7}\u{9b}2Jb";
        for page in [Page::default(), Page { colour: true, ..Page::default() }] {
            for emphasis in [Emphasis::Plain, Emphasis::Good] {
                let table = page.table(
                    &[ColumnHeader::left(hostile)],
                    vec![vec![TableCell::new(hostile, emphasis)], vec![TableCell::from("plain")]],
                );
                let paragraph = page.paragraph(hostile, 2, emphasis);
                let text = table + &paragraph + &page.paint(hostile, emphasis);
                assert_eq!(text.contains('\u{1b}'), page.colour, "the title is bold: {text:?}");
                assert!(!text.contains(['\u{7}', '\u{9b}']), "{text:?}");
                assert!(!text.contains("\u{1b}[31m"), "{text:?}");
            }
        }
    }
}
