//! The page of a grid: names of rows, then panels of cells under leaning heads.

use super::sheet::{self, FAINT, INK, LABEL, LEAN, MILLIMETRES, TICK, TITLE, WIDTH};
use super::style::{self, Shape};
use super::svg::{Anchor, Svg, Text};
use super::{ChartError, font};
use crate::figure::{Cell, Grid, Panel};

/// Letters inside cells.
const INSIDE: f64 = 10.0;
const ROW: f64 = 17.0;
/// Between groups of rows, and between panels.
const GROUP: f64 = 5.0;
const GAP: f64 = 22.0;
/// What room is left widens cells by so much at most; and the narrowest of them.
const MORE: f64 = 24.0;
const NARROWEST: f64 = 22.0;
/// The narrowest page: notes want some room.
const LEAST_WIDTH: f64 = 400.0;
const EDGE: f64 = 16.0;

/// Draws cells as SVG.
pub(super) fn draw(grid: &Grid) -> Result<String, ChartError> {
    let page = Page::of(grid)?;
    let mut svg = Svg::default();
    sheet::title(&mut svg, &grid.title, EDGE);
    sheet::label_beside(&mut svg, &grid.factor, f64::midpoint(page.top, page.bottom()));
    for (row, y) in grid.rows.iter().zip(&page.rows) {
        let at = (page.left - 7.0, y + ROW / 2.0 + TICK * 0.36);
        svg.text(&row.name, text(at, TICK, Anchor::End, INK));
    }
    let mut left = page.left;
    for (at, (panel, cell)) in grid.panels.iter().zip(&page.cells).enumerate() {
        left += gap(&grid.panels, at);
        page.panel(&mut svg, panel, *cell, left);
        left += cell * panel.columns.len() as f64;
    }
    let notes = sheet::wrapped(&grid.notes, page.width);
    let under = page.bottom() + page.label + LABEL * 0.9;
    sheet::notes(&mut svg, &notes, under);
    let height = under + sheet::notes_height(&notes);
    Ok(svg.finish(page.width, height, MILLIMETRES * page.width / WIDTH))
}

struct Page {
    left: f64,
    /// Where the cells begin, under the heads.
    top: f64,
    /// How high labels of panels and of their columns are.
    label: f64,
    /// The top of each row.
    rows: Vec<f64>,
    /// How long the longest head is.
    heads: f64,
    /// How wide the cells of each panel are.
    cells: Vec<f64>,
    width: f64,
}

impl Page {
    fn of(grid: &Grid) -> Result<Self, ChartError> {
        let columns: usize = grid.panels.iter().map(|panel| panel.columns.len()).sum();
        if columns == 0 || grid.rows.is_empty() {
            return Err(ChartError::Empty(grid.id.clone()));
        }
        let names = grid.rows.iter().map(|row| font::width(&row.name, TICK));
        let left = 12.0 + LABEL * 1.4 + names.fold(0.0, f64::max) + 8.0;
        let heads = grid.panels.iter().flat_map(|panel| &panel.columns);
        let heads = heads.map(|head| font::width(head, TICK)).fold(0.0, f64::max);
        let mut cells: Vec<f64> = grid.panels.iter().map(needed).collect();
        let width = |cells: &[f64]| {
            let panels = grid.panels.iter().zip(cells).enumerate();
            let panels = panels.map(|(at, (panel, cell))| {
                gap(&grid.panels, at) + panel.columns.len() as f64 * cell
            });
            let last = cells.last().copied().unwrap_or_default() / 2.0;
            // The last head leans over the right edge of its column.
            let beyond = (heads * LEAN.to_radians().cos() - last).max(0.0);
            left + panels.sum::<f64>() + beyond + EDGE
        };
        let free = WIDTH - width(&cells);
        if free < 0.0 {
            return Err(ChartError::NoRoom { figure: grid.id.clone(), columns });
        }
        cells.iter_mut().for_each(|cell| *cell += (free / columns as f64).min(MORE));
        let used = width(&cells);
        let titles = font::width(&grid.title, TITLE) + 2.0 * EDGE;
        let labelled = grid.panels.iter().any(|panel| !panel.factor.is_empty());
        let label = if labelled { LABEL * 1.5 } else { 0.0 };
        let top = 18.0 + TITLE * 1.3 + label + heads * LEAN.to_radians().sin() + TICK;
        let mut rows = Vec::new();
        let mut y = top;
        for (at, row) in grid.rows.iter().enumerate() {
            y += if row.begins && at > 0 { GROUP } else { 0.0 };
            rows.push(y);
            y += ROW;
        }
        let width = used.max(titles).clamp(LEAST_WIDTH, WIDTH);
        Ok(Self { left, top, label, rows, heads, cells, width })
    }

    fn bottom(&self) -> f64 {
        self.rows.last().map_or(self.top, |last| last + ROW)
    }

    fn panel(&self, svg: &mut Svg, panel: &Panel, width: f64, left: f64) {
        let middle = left + width * panel.columns.len() as f64 / 2.0;
        if !panel.factor.is_empty() {
            let y = self.top - self.heads * LEAN.to_radians().sin() - TICK - LABEL * 0.6;
            svg.text(&panel.label, text((left, y), LABEL, Anchor::Start, INK));
            if panel.cells.iter().flatten().any(|cell| matches!(cell, Cell::Yes | Cell::No)) {
                key(svg, left + font::width(&panel.label, LABEL) + 14.0, y);
            }
            sheet::label_under(svg, &panel.factor, (middle, self.bottom() + LABEL * 1.5));
        }
        for (at, head) in panel.columns.iter().enumerate() {
            let x = left + (at as f64 + 0.5) * width;
            let how = text((x, self.top - 6.0), TICK, Anchor::Start, INK);
            svg.text(head, Text { turn: -LEAN, ..how });
        }
        for (cells, y) in panel.cells.iter().zip(&self.rows) {
            for (at, cell) in cells.iter().enumerate() {
                draw_cell(svg, cell, width, (left + at as f64 * width, *y));
            }
        }
    }
}

/// What is left free before a panel.
fn gap(panels: &[Panel], at: usize) -> f64 {
    let is_column = |at: usize| panels[at].factor.is_empty();
    match at {
        0 => 0.0,
        at if is_column(at - 1) && is_column(at) => GROUP,
        _ => GAP,
    }
}

fn draw_cell(svg: &mut Svg, cell: &Cell, width: f64, (x, y): (f64, f64)) {
    let (middle, centre) = (x + width / 2.0, y + ROW / 2.0);
    let mut write = |words: &str, colour: &str, ground: &str| {
        let (width, height) = (width - 1.0, ROW - 1.0);
        let outline = format!("M{:.2} {:.2}h{width:.2}v{height:.2}h-{width:.2}Z", x + 0.5, y + 0.5);
        svg.path(&outline, &format!(r#"fill="{ground}""#));
        let at = (middle, centre + INSIDE * 0.36);
        svg.text(words, text(at, INSIDE, Anchor::Middle, colour));
    };
    match cell {
        Cell::Blank => {}
        Cell::Absent => write("–", FAINT, "#f2f2f2"),
        Cell::Plain(words) => write(words, INK, "#ffffff"),
        Cell::Unresolved(words) => write(words, FAINT, &style::shade(0.0).0),
        Cell::Shaded(words, share) => {
            let (ground, colour) = style::shade(*share);
            write(words, colour, &ground);
        }
        Cell::Yes => mark(svg, true, (middle, centre)),
        Cell::No => mark(svg, false, (middle, centre)),
    }
}

/// How wide the cells of a panel must be.
fn needed(panel: &Panel) -> f64 {
    numbers(panel).map(|words| font::width(words, INSIDE) + 6.0).fold(NARROWEST, f64::max)
}

/// The numbers in a panel's cells.
fn numbers(panel: &Panel) -> impl Iterator<Item = &str> {
    panel.cells.iter().flatten().filter_map(|cell| match cell {
        Cell::Plain(words) | Cell::Unresolved(words) | Cell::Shaded(words, _) => {
            Some(words.as_str())
        }
        Cell::Blank | Cell::Absent | Cell::Yes | Cell::No => None,
    })
}

fn text(at: (f64, f64), size: f64, anchor: Anchor, colour: &str) -> Text<'_> {
    Text { at, size, anchor, turn: 0.0, colour }
}

/// Yes is full and No empty: shapes that need no colour.
fn mark(svg: &mut Svg, is_yes: bool, (x, y): (f64, f64)) {
    let how = match is_yes {
        true => format!(r#"fill="{}""#, style::YES),
        false => r##"fill="none" stroke="#9a9a9a" stroke-width="1""##.into(),
    };
    svg.path(&Shape::Circle.path(x, y, if is_yes { 5.0 } else { 4.2 }), &how);
}

/// What the marks mean.
fn key(svg: &mut Svg, left: f64, y: f64) {
    let mut x = left + 6.0;
    for (is_yes, word) in [(true, "yes"), (false, "no")] {
        mark(svg, is_yes, (x, y - TICK * 0.36));
        svg.text(word, text((x + 10.0, y), TICK, Anchor::Start, FAINT));
        x += 20.0 + font::width(word, TICK) + 8.0;
    }
}
