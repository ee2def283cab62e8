//! `tollgate bounds tables`: the seed's table of what tables of bounds cost, with this machine's figures.

use lab::run::Lab;

use super::setting::MAX_COUNT;
use crate::hand::Error;
use crate::hand::measured::{Effort, Figures, claimed, measure, set};
use crate::hand::text::{Cell, Table};

/// The words of `tollgate bounds tables`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Tables; the seed makes 3,000
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(1..=MAX_COUNT as i64))]
    count: u32,
    #[command(flatten)]
    effort: Effort,
}

const EXPERIMENT: &str = "bounds/tables";
const HEAD: [&str; 7] =
    ["µs/table", "ratio", "user µs", "system µs", "faults", "user ins.", "sys. ins."];
/// The levels of `life` with the seed's names for them, and what its claims are called.
const LIVES: [(&str, &str); 2] =
    [("kept", "Only allocation"), ("freed", "Allocation and de-allocation")];

/// Measures and prints the table. Gives the exit status.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let count = options.count.to_string();
    measure(
        &options.effort,
        &["tables"],
        |one| {
            set(one, "count", &count);
            one.keep(|point| point.text("slots") == "own");
        },
        |figures| write(figures, &count),
        lab,
    )
}

fn write(figures: &Figures, count: &str) -> Result<String, Error> {
    let mut table = Table::new(29, 10);
    table.line(&format!("{count} tables of bounds of 4 MiB, one for each pointer that is stored"));
    for (life, name) in LIVES {
        table.line("");
        table.row(name, &HEAD);
        table.rule(HEAD.len());
        published_row(&mut table, life)?;
        for tables in ["inline", "trap", "arena"] {
            our_row(&mut table, figures, life, tables);
        }
        our_row(&mut table, figures, life, "none");
    }
    table.line("");
    table.line(
        "A store is a pointer's with its memory; 'none' is that alone, to which ratios and instructions are.",
    );
    Ok(table.finish())
}

fn published_row(table: &mut Table, life: &str) -> Result<(), Error> {
    let value = |end: &str| -> Result<Cell, Error> {
        let published = claimed(&format!("mpx-tables-{life}{end}"))?.published;
        Ok(published.map_or(Cell::Nothing, |published| Cell::Value(published.value)))
    };
    let ratio = table.cell(&value("")?, times);
    let [user, kernel] = [value("-user-instructions")?, value("-kernel-instructions")?];
    let [user, kernel] = [user, kernel].map(|cell| table.cell(&cell, more));
    table.row("published: MPX, by the kernel", &["", &ratio, "", "", "", &user, &kernel]);
    Ok(())
}

fn our_row(table: &mut Table, figures: &Figures, life: &str, tables: &str) {
    let of = |tables, counted| [("tables", tables), ("life", life), ("counted", counted)];
    let median = |metric| figures.median(EXPERIMENT, metric, &of(tables, "time"));
    let micro = |cell: Cell| cell.map(|ns| ns / 1000.0);
    let instructions = |metric| match tables {
        "none" => Cell::Nothing,
        _ => {
            let (above, below) = (of(tables, "instructions"), of("none", "instructions"));
            figures.ratio(EXPERIMENT, metric, &above, &below)
        }
    };
    let cells = [
        table.cell(&micro(median("table")), figure),
        table.cell(&median("over_baseline"), times),
        table.cell(&micro(median("user")), figure),
        table.cell(&micro(median("system")), figure),
        table.cell(&median("faults"), figure),
        table.cell(&instructions("user_instructions"), more),
        table.cell(&instructions("system_instructions"), more),
    ];
    let name = match tables {
        "none" => match median("store") {
            Cell::Value(ns) => format!("none: {} µs a store", figure(ns / 1000.0)),
            _ => "none".into(),
        },
        other => other.into(),
    };
    table.row(&name, &cells);
}

fn figure(value: f64) -> String {
    format!("{value:.2}")
}

fn times(value: f64) -> String {
    format!("{value:.2}×")
}

/// A ratio as so much more.
fn more(ratio: f64) -> String {
    format!("{:+.1}%", (ratio - 1.0) * 100.0)
}
