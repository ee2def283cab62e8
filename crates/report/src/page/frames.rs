//! Elements of figures: titles with permanent links, notes, places for what the scripts draw, and grids as tables.

use maud::{Markup, html};

use super::figure::FigureData;
use crate::figure::{Cell, Grid};

/// Number of shades of a grid's cells, as in the style sheet.
const SHADES: f64 = 10.0;

/// Renders a figure; `index` is that of its data.
pub(super) fn curves(data: &FigureData, notes: &[String], index: usize) -> Markup {
    frame(
        &data.id,
        &data.title,
        notes,
        html! {
            div.plot data-figure=(index) {
                noscript { p { "Figures need JavaScript; " code { "tollgate plot " (data.id) } " draws this one." } }
            }
        },
    )
}

/// Renders a grid as a table.
pub(super) fn grid(grid: &Grid) -> Markup {
    frame(&grid.id, &grid.title, &grid.notes, grid_table(grid, ""))
}

/// Renders the grids of several sides, each with its name.
pub(super) fn grids(grids: &[(String, Grid)]) -> Markup {
    let Some((_, first)) = grids.first() else { return html! {} };
    let notes: Vec<(&str, &[String])> =
        grids.iter().map(|(name, it)| (name.as_str(), it.notes.as_slice())).collect();
    let tables = html! {
        @for (name, grid) in grids { p.part { (name) } (grid_table(grid, name)) }
    };
    frame(&first.id, &first.title, &named_notes(&notes), tables)
}

/// Returns the notes of several sides, each with the name of its side unless all have it.
pub(super) fn named_notes(sides: &[(&str, &[String])]) -> Vec<String> {
    let is_common = |note: &String| sides.iter().all(|(_, notes)| notes.contains(note));
    let named = sides.iter().flat_map(|(name, notes)| {
        let own = notes.iter().filter(|note| !is_common(note));
        own.map(move |note| format!("{name}: {note}"))
    });
    let common = sides.first().into_iter().flat_map(|(_, notes)| notes.iter());
    named.chain(common.filter(|note| is_common(note)).cloned()).collect()
}

/// Renders the table of a grid, of a side of a comparison if it has a name.
fn grid_table(grid: &Grid, side: &str) -> Markup {
    let label = format!("Values of {} {side}", grid.title);
    let has_groups = grid.panels.iter().any(|panel| !panel.factor.is_empty());
    html! {
            div.scroll tabindex="0" role="region" aria-label=(label.trim_end()) {
                table.grid {
                    thead {
                        tr {
                            th scope="col" rowspan=[has_groups.then_some("2")] { (grid.factor) }
                            @for panel in &grid.panels {
                                @let is_titled = !panel.factor.is_empty();
                                th.panel scope="colgroup" colspan=(panel.columns.len())
                                    rowspan=[(has_groups && !is_titled).then_some("2")] {
                                    (panel.label)
                                    @if is_titled { ", by " (panel.factor) }
                                }
                            }
                        }
                        @if has_groups {
                            tr {
                                @for panel in grid.panels.iter().filter(|panel| !panel.factor.is_empty()) {
                                    @for column in &panel.columns { th scope="col" { (column) } }
                                }
                            }
                        }
                    }
                    tbody {
                        @for (at, row) in grid.rows.iter().enumerate() {
                            tr.start[row.starts_group] {
                                th scope="row" { (row.name) }
                                @for panel in &grid.panels {
                                    @for (cell, detail) in panel.cells[at].iter().zip(&panel.details[at]) {
                                        (grid_cell(cell, detail))
                                    }
                                }
                            }
                        }
                    }
                }
            }
    }
}

fn grid_cell(cell: &Cell, detail: &str) -> Markup {
    let detail = (!detail.is_empty()).then_some(detail);
    match cell {
        Cell::Blank => html! { td {} },
        Cell::Absent => html! { td.absent { "—" } },
        Cell::Yes => html! { td.yes data-detail=[detail] { "yes" } },
        Cell::No => html! { td.no data-detail=[detail] { "no" } },
        Cell::Plain(text) => html! { td.number data-detail=[detail] { (text) } },
        Cell::Unresolved(text) => html! { td.number.unresolved data-detail=[detail] { (text) } },
        Cell::Shaded(text, share) => {
            let shade = (share * SHADES).round();
            html! { td class={ "number shade-" (shade) } data-detail=[detail] { (text) } }
        }
    }
}

/// Renders the title of a figure with a permanent link, its content and its notes.
fn frame(id: &str, title: &str, notes: &[String], content: Markup) -> Markup {
    html! {
        figure id={ "figure-" (id) } aria-labelledby={ "title-" (id) } {
            figcaption {
                h4 id={ "title-" (id) } { (title) }
                a.link href={ "#figure-" (id) } aria-label={ "Link to figure " (id) } { "#" (id) }
            }
            (content)
            @if !notes.is_empty() {
                ul.notes { @for note in notes { li { (note) } } }
            }
        }
    }
}
