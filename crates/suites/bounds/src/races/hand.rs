//! `tollgate bounds races`: the seed's two cases with what it published, and what ends them.

use lab::run::Lab;

use super::setting::MAX_POINTERS;
use crate::hand::Error;
use crate::hand::measured::{Effort, Figures, claimed, measure, set};
use crate::hand::text::{Table, wrapped};

/// The words of `tollgate bounds races`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Pointers in the array
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=MAX_POINTERS as i64))]
    pointers: u32,
    #[command(flatten)]
    effort: Effort,
}

const RACES: &str = "bounds/races";
const FIXES: &str = "bounds/race-fixes";
/// The levels of `case` with what an access is in each.
const CASES: [(&str, &str); 2] = [
    ("false-negative", "False negative: every access is beyond its object"),
    ("false-positive", "False positive: every access is inside its object"),
];
const IMPLEMENTATIONS: [(&str, &str); 3] = [
    ("mpx", "MPX of this processor"),
    ("mpx-emulated", "MPX under QEMU"),
    ("model", "directory and tables in software"),
];

/// Measures and prints the tables. Gives the exit status.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let pointers = options.pointers.to_string();
    measure(
        &options.effort,
        &["races", "race-fixes"],
        |one| set(one, "pointers", &pointers),
        |figures| write(figures, &pointers),
        lab,
    )
}

fn write(figures: &Figures, pointers: &str) -> Result<String, Error> {
    let mut table = Table::new(34, 13);
    table.line(&format!(
        "Two threads at {pointers} pointers: one changes them, the other checks accesses"
    ));
    for (case, name) in CASES {
        table.line("");
        table.line(name);
        let says = claimed(&format!("mpx-race-{case}"))?.says;
        table.line(&wrapped(&format!("published: {says}")));
        table.row("", &["accesses", "reported", "wrong", "wrong alone"]);
        table.rule(4);
        for (implementation, name) in IMPLEMENTATIONS {
            let of = |filled_by| {
                [("case", case), ("implementation", implementation), ("filled_by", filled_by)]
            };
            let median = |metric, filled_by| figures.median(RACES, metric, &of(filled_by));
            let cells = [
                table.cell(&median("accesses_made", "other-thread"), whole),
                table.cell(&median("reported", "other-thread"), whole),
                table.cell(&median("wrong", "other-thread"), percent),
                table.cell(&median("wrong", "same-thread"), percent),
            ];
            table.row(name, &cells);
        }
    }
    fixes(&mut table, figures);
    Ok(table.finish())
}

/// What ends the race in software, and its cost.
fn fixes(table: &mut Table, figures: &Figures) {
    table.line("");
    table.line("What ends it, in software; ns an access, and the ratio to none");
    table.row("", &["wrong", "ns, raced", "ratio", "ns, alone", "ratio"]);
    table.rule(5);
    for fix in ["none", "lock", "vector-entry", "cmpxchg-entry"] {
        let of = |fix, filled_by| [("fix", fix), ("filled_by", filled_by)];
        let median = |metric, filled_by| figures.median(FIXES, metric, &of(fix, filled_by));
        let ratio =
            |filled_by| figures.ratio(FIXES, "access", &of(fix, filled_by), &of("none", filled_by));
        let cells = [
            table.cell(&median("wrong", "other-thread"), percent),
            table.cell(&median("access", "other-thread"), figure),
            table.cell(&ratio("other-thread"), figure),
            table.cell(&median("access", "same-thread"), figure),
            table.cell(&ratio("same-thread"), figure),
        ];
        table.row(fix, &cells);
    }
}

fn figure(value: f64) -> String {
    format!("{value:.2}")
}

/// A count with its thousands apart.
fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let apart = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    apart.collect::<Vec<_>>().join(",")
}

fn percent(share: f64) -> String {
    if share == 0.0 { "0".into() } else { format!("{:.4}%", share * 100.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_as_the_seed_does() {
        assert_eq!([whole(10_000_000.0), whole(999.0), whole(0.0)], ["10,000,000", "999", "0"]);
        assert_eq!([percent(0.0), percent(0.00064)], ["0", "0.0640%"]);
    }
}
