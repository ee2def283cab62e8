//! Layout and drawing of grids.

use super::font;
use super::style::{self, Shape};
use super::svg::{
    Anchor, FAINT, INK, LABEL, SLANT, Svg, TICK, TITLE, Text, WIDTH, WIDTH_MM, notes_height,
    title_height, wrapped_notes, wrapped_title,
};
use crate::figure::{Cell, FigureError, Grid, Panel};

/// Font size in cells.
const INSIDE: f64 = 10.0;
/// Height of a row.
const ROW: f64 = 17.0;
/// Gap between groups of rows, and between single columns.
const GROUP_GAP: f64 = 5.0;
/// Gap between panels.
const PANEL_GAP: f64 = 22.0;
/// Minimum width of a cell.
const MIN_CELL: f64 = 22.0;
/// Maximum widening of a cell into free space.
const MAX_WIDENING: f64 = 24.0;
/// Minimum width of the page, for its notes.
const MIN_WIDTH: f64 = 400.0;
const EDGE: f64 = 16.0;
/// Gap between the label of a panel and the legend of its marks.
const LEGEND_GAP: f64 = 14.0;
/// Meaning of the marks.
const WORDS: [(bool, &str); 2] = [(true, "yes"), (false, "no")];

/// Draws a grid as SVG.
pub(super) fn draw(grid: &Grid) -> Result<String, FigureError> {
    let page = Page::new(grid)?;
    let mut svg = Svg::default();
    svg.title(&page.title, EDGE);
    svg.y_label(&grid.factor, f64::midpoint(page.top, page.bottom()));
    for (row, y) in grid.rows.iter().zip(&page.rows) {
        let at = (page.left - 7.0, y + ROW / 2.0 + TICK * 0.36);
        svg.text(&row.name, Text::new(at, TICK, Anchor::End, INK));
    }
    let mut left = page.left;
    for (at, (panel, cell)) in grid.panels.iter().zip(&page.cells).enumerate() {
        left += gap(&grid.panels, at);
        page.panel(&mut svg, panel, *cell, left);
        left += cell * panel.columns.len() as f64;
    }
    let notes = wrapped_notes(&grid.notes, page.width);
    let under = page.bottom() + page.label + LABEL * 0.9;
    svg.notes(&notes, under);
    let height = under + notes_height(&notes);
    Ok(svg.finish(page.width, height, WIDTH_MM * page.width / WIDTH))
}

/// Positions and sizes of the parts of a grid.
struct Page {
    /// Lines of the title.
    title: Vec<String>,
    left: f64,
    /// Top of the cells, below the column titles.
    top: f64,
    /// Height of the labels of panels and of their factors.
    label: f64,
    /// Top of each row.
    rows: Vec<f64>,
    /// Length of the longest column title.
    titles: f64,
    /// Width of the cells of each panel.
    cells: Vec<f64>,
    width: f64,
}

impl Page {
    fn new(grid: &Grid) -> Result<Self, FigureError> {
        let columns: usize = grid.panels.iter().map(|panel| panel.columns.len()).sum();
        if columns == 0 || grid.rows.is_empty() {
            return Err(FigureError::nothing_to_draw(&grid.id));
        }
        let names = grid.rows.iter().map(|row| font::width(&row.name, TICK));
        let left = 12.0 + LABEL * 1.4 + names.fold(0.0, f64::max) + 8.0;
        let titles = grid.panels.iter().flat_map(|panel| &panel.columns);
        let titles = titles.map(|title| font::width(title, TICK)).fold(0.0, f64::max);
        let mut cells: Vec<f64> = grid.panels.iter().map(min_width).collect();
        let width = |cells: &[f64]| {
            let panels = grid.panels.iter().zip(cells).enumerate();
            let panels = panels.map(|(at, (panel, cell))| {
                gap(&grid.panels, at) + panel.columns.len() as f64 * cell
            });
            let last = cells.last().copied().unwrap_or_default() / 2.0;
            // The slanted title of the last column extends beyond its right edge.
            let overhang = (titles * SLANT.to_radians().cos() - last).max(0.0);
            left + panels.sum::<f64>() + overhang + EDGE
        };
        let free = WIDTH - width(&cells);
        if free < 0.0 {
            let what = format!(
                "{columns} columns do not fit the page; swap rows and columns or select fewer with 'where'"
            );
            return Err(FigureError::Drawing { figure: grid.id.clone(), what });
        }
        cells.iter_mut().for_each(|cell| *cell += (free / columns as f64).min(MAX_WIDENING));
        let used = width(&cells);
        let titled = font::width(&grid.title, TITLE) + 2.0 * EDGE;
        let width = used.max(titled).clamp(MIN_WIDTH, WIDTH);
        let title = wrapped_title(&grid.title, width - 2.0 * EDGE);
        let labelled = grid.panels.iter().any(|panel| !panel.factor.is_empty());
        let label = if labelled { LABEL * 1.5 } else { 0.0 };
        let top = 18.0 + title_height(&title) + label + titles * SLANT.to_radians().sin() + TICK;
        let mut rows = Vec::new();
        let mut y = top;
        for (at, row) in grid.rows.iter().enumerate() {
            y += if row.starts_group && at > 0 { GROUP_GAP } else { 0.0 };
            rows.push(y);
            y += ROW;
        }
        Ok(Self { title, left, top, label, rows, titles, cells, width })
    }

    fn bottom(&self) -> f64 {
        self.rows.last().map_or(self.top, |last| last + ROW)
    }

    fn panel(&self, svg: &mut Svg, panel: &Panel, width: f64, left: f64) {
        let middle = left + width * panel.columns.len() as f64 / 2.0;
        if !panel.factor.is_empty() {
            let y = self.top - self.titles * SLANT.to_radians().sin() - TICK - LABEL * 0.6;
            svg.text(&panel.label, Text::new((left, y), LABEL, Anchor::Start, INK));
            if has_marks(panel) {
                legend(svg, left + font::width(&panel.label, LABEL) + LEGEND_GAP, y);
            }
            svg.x_label(&panel.factor, (middle, self.bottom() + LABEL * 1.5));
        }
        for (at, title) in panel.columns.iter().enumerate() {
            let x = left + (at as f64 + 0.5) * width;
            let style = Text::new((x, self.top - 6.0), TICK, Anchor::Start, INK);
            svg.text(title, Text { rotation: -SLANT, ..style });
        }
        for (cells, y) in panel.cells.iter().zip(&self.rows) {
            for (at, cell) in cells.iter().enumerate() {
                draw_cell(svg, cell, width, (left + at as f64 * width, *y));
            }
        }
    }
}

/// Returns the gap to the left of a panel.
fn gap(panels: &[Panel], at: usize) -> f64 {
    let is_column = |at: usize| panels[at].factor.is_empty();
    match at {
        0 => 0.0,
        at if is_column(at - 1) && is_column(at) => GROUP_GAP,
        _ => PANEL_GAP,
    }
}

fn draw_cell(svg: &mut Svg, cell: &Cell, width: f64, (x, y): (f64, f64)) {
    let (middle, centre) = (x + width / 2.0, y + ROW / 2.0);
    let mut write = |text: &str, colour: &str, background: &str| {
        let (width, height) = (width - 1.0, ROW - 1.0);
        let outline = format!("M{:.2} {:.2}h{width:.2}v{height:.2}h-{width:.2}Z", x + 0.5, y + 0.5);
        svg.path(&outline, &format!(r#"fill="{background}""#));
        let at = (middle, centre + INSIDE * 0.36);
        svg.text(text, Text::new(at, INSIDE, Anchor::Middle, colour));
    };
    match cell {
        Cell::Blank => {}
        Cell::Absent => write("–", FAINT, "#f2f2f2"),
        Cell::Plain(text) => write(text, INK, "#ffffff"),
        Cell::Unresolved(text) => write(text, FAINT, &style::cell_colours(0.0).0),
        Cell::Shaded(text, share) => {
            let (background, colour) = style::cell_colours(*share);
            write(text, colour, &background);
        }
        Cell::Yes => mark(svg, true, (middle, centre)),
        Cell::No => mark(svg, false, (middle, centre)),
    }
}

/// Returns the minimum width of the cells of a panel: that of its numbers, and of its label with the legend of its marks.
fn min_width(panel: &Panel) -> f64 {
    let numbers = numbers(panel).map(|text| font::width(text, INSIDE) + 6.0);
    let above = if panel.factor.is_empty() { 0.0 } else { label_width(panel) };
    numbers.fold(MIN_CELL.max(above / panel.columns.len() as f64), f64::max)
}

fn label_width(panel: &Panel) -> f64 {
    let label = font::width(&panel.label, LABEL);
    let words = WORDS.iter().map(|(_, word)| entry_width(word));
    if has_marks(panel) { label + LEGEND_GAP + words.sum::<f64>() } else { label }
}

fn has_marks(panel: &Panel) -> bool {
    panel.cells.iter().flatten().any(|cell| matches!(cell, Cell::Yes | Cell::No))
}

/// Returns the numbers in the cells of a panel.
fn numbers(panel: &Panel) -> impl Iterator<Item = &str> {
    panel.cells.iter().flatten().filter_map(|cell| match cell {
        Cell::Plain(text) | Cell::Unresolved(text) | Cell::Shaded(text, _) => Some(text.as_str()),
        Cell::Blank | Cell::Absent | Cell::Yes | Cell::No => None,
    })
}

/// Draws a filled circle for yes, an empty one for no.
fn mark(svg: &mut Svg, is_yes: bool, (x, y): (f64, f64)) {
    let style = match is_yes {
        true => format!(r#"fill="{}""#, style::YES),
        false => r##"fill="none" stroke="#9a9a9a" stroke-width="1""##.into(),
    };
    svg.path(&Shape::Circle.path(x, y, if is_yes { 5.0 } else { 4.2 }), &style);
}

/// Draws the meaning of the marks.
fn legend(svg: &mut Svg, left: f64, y: f64) {
    let mut x = left + 6.0;
    for (is_yes, word) in WORDS {
        mark(svg, is_yes, (x, y - TICK * 0.36));
        svg.text(word, Text::new((x + 10.0, y), TICK, Anchor::Start, FAINT));
        x += entry_width(word);
    }
}

/// Returns the width of a mark with its meaning.
fn entry_width(word: &str) -> f64 {
    20.0 + font::width(word, TICK) + 8.0
}
