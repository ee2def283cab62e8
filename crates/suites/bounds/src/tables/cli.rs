//! `tollgate bounds tables`: the cost of bounds tables, next to the values of Intel MPX Explained.

use lab::suite::Lab;
use lab::table::{ColumnHeader, Document};

use super::params::{Counted, MAX_COUNT, SlotMemory, TableLifetime, TableStrategy};
use crate::cli::Cell;
use crate::cli::{Effort, Error, Values, measure, published_claim, set};
use crate::kernels;

/// Options of `tollgate bounds tables`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of tables; Intel MPX Explained uses 3000
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(1..=MAX_COUNT as i64))]
    count: u32,
    #[command(flatten)]
    effort: Effort,
}

const EXPERIMENT: &str = "bounds/tables";
/// Experiment that counts the instructions of the published program.
const PROGRAM: &str = "bounds/table-instructions";
const HEAD: [&str; 7] =
    ["µs/table", "ratio", "user µs", "system µs", "faults", "user ins.", "sys. ins."];

/// Returns the name of a lifetime in Intel MPX Explained.
fn published_name(life: TableLifetime) -> &'static str {
    match life {
        TableLifetime::Kept => "Only allocation",
        TableLifetime::Freed => "Allocation and de-allocation",
    }
}

/// Measures and prints the table. Returns the exit status: 0, or 1 if a measurement failed.
///
/// # Errors
/// Returns a usage error, or the reason if nothing can be measured.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let count = options.count.to_string();
    let in_program = u64::from(options.count).min(kernels::tables::MAX_COUNT);
    measure(
        &options.effort,
        &["tables", "table-instructions"],
        |one| {
            match one.name.as_str() {
                "table-instructions" => set(one, "count", &in_program.to_string()),
                _ => set(one, "count", &count),
            }
            // The points of the program have no such factor.
            one.keep(|point| ["", SlotMemory::Own.name()].contains(&point.text("slots")));
        },
        |values| write(values, &count),
        lab,
    )
}

fn write(values: &Values, count: &str) -> Result<String, Error> {
    let mut table = Document::new();
    table.line(&format!("{count} bounds tables of 4 MiB, one per stored pointer"));
    let mut strategies = TableStrategy::ALL;
    strategies.sort_by_key(|tables| tables.is_baseline());
    for life in TableLifetime::ALL {
        table.line("");
        let headers = HEAD.map(ColumnHeader::right);
        table.table([ColumnHeader::left(published_name(life))].into_iter().chain(headers));
        published_row(&mut table, life)?;
        program_row(&mut table, values, life);
        for tables in strategies {
            measured_row(&mut table, values, life, tables);
        }
    }
    table.line("");
    table.line(
        "A store includes the memory of its pointer; ratios and instructions are relative to 'none',",
    );
    table.line("those of GCC to the same program without MPX.");
    Ok(table.finish())
}

fn published_row(table: &mut Document, life: TableLifetime) -> Result<(), Error> {
    let value = |suffix: &str| -> Result<Cell, Error> {
        let published = published_claim(&format!("mpx-tables-{life}{suffix}"))?.published;
        Ok(published.map_or(Cell::Empty, |published| Cell::Value(published.value)))
    };
    let ratio = value("")?.text(table, times);
    let [user, kernel] = [value("-user-instructions")?, value("-kernel-instructions")?];
    let [user, kernel] = [user, kernel].map(|cell| cell.text(table, percent_more));
    table.row(["published: MPX, in the kernel", "", &ratio, "", "", "", &user, &kernel]);
    Ok(())
}

/// Writes the row of the published program, of which only instructions in user mode are measured.
fn program_row(table: &mut Document, values: &Values, life: TableLifetime) {
    let levels = |mechanism| [("mechanism", mechanism), ("life", life.name())];
    let [mpx, plain] = ["gcc-mpx", "gcc-mpx-none"].map(levels);
    let user = values.ratio(PROGRAM, "user_instructions", &mpx, &plain).text(table, percent_more);
    table.row(["MPX by GCC, no tables made", "", "", "", "", "", &user, ""]);
}

fn measured_row(table: &mut Document, values: &Values, life: TableLifetime, tables: TableStrategy) {
    let levels = |tables: TableStrategy, counted: Counted| {
        [("tables", tables.name()), ("life", life.name()), ("counted", counted.name())]
    };
    let median = |metric| values.median(EXPERIMENT, metric, &levels(tables, Counted::Time));
    let micro = |cell: Cell| cell.map(|ns| ns / 1000.0);
    let instructions = |metric| match tables {
        TableStrategy::None => Cell::Empty,
        TableStrategy::Inline | TableStrategy::Trap | TableStrategy::Arena => {
            let [tables, none] =
                [tables, TableStrategy::None].map(|tables| levels(tables, Counted::Instructions));
            values.ratio(EXPERIMENT, metric, &tables, &none)
        }
    };
    let cells = [
        micro(median("table")).text(table, two_decimals),
        median("over_baseline").text(table, times),
        micro(median("user")).text(table, two_decimals),
        micro(median("system")).text(table, two_decimals),
        median("faults").text(table, two_decimals),
        instructions("user_instructions").text(table, percent_more),
        instructions("system_instructions").text(table, percent_more),
    ];
    let name = match tables {
        TableStrategy::None => match median("store") {
            Cell::Value(ns) => format!("none: {} µs per store", two_decimals(ns / 1000.0)),
            Cell::Missing(_) | Cell::Empty => "none".into(),
        },
        TableStrategy::Inline | TableStrategy::Trap | TableStrategy::Arena => tables.to_string(),
    };
    table.row([name].into_iter().chain(cells));
}

fn two_decimals(value: f64) -> String {
    format!("{value:.2}")
}

fn times(value: f64) -> String {
    format!("{value:.2}×")
}

/// Formats a ratio as a relative increase.
fn percent_more(ratio: f64) -> String {
    format!("{:+.1}%", (ratio - 1.0) * 100.0)
}
