//! `tollgate bounds races`: the two cases of Intel MPX Explained with its published results, and the fixes.

use lab::suite::Lab;
use lab::table::{ColumnHeader, Document};

use super::params::MAX_POINTERS;
use crate::cli::{Effort, Error, Values, measure, published_claim, set};

/// Options of `tollgate bounds races`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of pointers in the array
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=MAX_POINTERS as i64))]
    pointers: u32,
    #[command(flatten)]
    effort: Effort,
}

const RACES: &str = "bounds/races";
const FIXES: &str = "bounds/race-fixes";
/// Levels of `case` with their headings.
const CASES: [(&str, &str); 2] = [
    ("false-negative", "False negative: every access is beyond its object"),
    ("false-positive", "False positive: every access is within its object"),
];
const IMPLEMENTATIONS: [(&str, &str); 3] = [
    ("mpx", "MPX of this CPU"),
    ("mpx-emulated", "MPX under QEMU"),
    ("model", "directory and tables in software"),
];

/// Measures and prints the tables. Returns the exit status: 0, or 1 if a measurement failed.
///
/// # Errors
/// Returns a usage error, or the reason if nothing can be measured.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let pointers = options.pointers.to_string();
    measure(
        &options.effort,
        &["races", "race-fixes"],
        |one| set(one, "pointers", &pointers),
        |values| write(values, &pointers),
        lab,
    )
}

fn write(values: &Values, pointers: &str) -> Result<String, Error> {
    let mut table = Document::new();
    table.line(&format!(
        "Two threads share {pointers} pointers: one changes them, the other checks accesses"
    ));
    for (case, name) in CASES {
        table.line("");
        table.line(name);
        let says = published_claim(&format!("mpx-race-{case}"))?.says;
        table.line(&format!("published: {says}"));
        table.table(headers(&["accesses", "reported", "wrong", "no race"]));
        for (implementation, name) in IMPLEMENTATIONS {
            let levels = |filled_by| {
                [("case", case), ("implementation", implementation), ("filled_by", filled_by)]
            };
            let median = |metric, filled_by| values.median(RACES, metric, &levels(filled_by));
            let cells = [
                median("accesses_made", "other-thread").text(&mut table, thousands),
                median("reported", "other-thread").text(&mut table, thousands),
                median("wrong", "other-thread").text(&mut table, percent),
                median("wrong", "same-thread").text(&mut table, percent),
            ];
            table.row([name.to_owned()].into_iter().chain(cells));
        }
    }
    fixes(&mut table, values);
    Ok(table.finish())
}

/// Adds the fixes of the software model and their costs.
fn fixes(table: &mut Document, values: &Values) {
    table.line("");
    table.line("Fixes of the software model; ns per access, and the ratio to none");
    table.table(headers(&["wrong", "ns, race", "ratio", "ns, no race", "ratio"]));
    for fix in ["none", "lock", "vector-entry", "cmpxchg-entry"] {
        let levels = |fix, filled_by| [("fix", fix), ("filled_by", filled_by)];
        let median = |metric, filled_by| values.median(FIXES, metric, &levels(fix, filled_by));
        let ratio = |filled_by| {
            let [fixed, none] = [fix, "none"].map(|fix| levels(fix, filled_by));
            values.ratio(FIXES, "access", &fixed, &none)
        };
        let cells = [
            median("wrong", "other-thread").text(table, percent),
            median("access", "other-thread").text(table, two_decimals),
            ratio("other-thread").text(table, two_decimals),
            median("access", "same-thread").text(table, two_decimals),
            ratio("same-thread").text(table, two_decimals),
        ];
        table.row([fix.to_owned()].into_iter().chain(cells));
    }
}

/// Returns the headers of a label and of columns of values.
fn headers(titles: &[&str]) -> Vec<ColumnHeader> {
    let titles = titles.iter().map(|title| ColumnHeader::right(*title));
    [ColumnHeader::left("")].into_iter().chain(titles).collect()
}

fn two_decimals(value: f64) -> String {
    format!("{value:.2}")
}

/// Formats a count with separators between thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

fn percent(share: f64) -> String {
    if share == 0.0 { "0".into() } else { format!("{:.4}%", share * 100.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands_separators_and_shares_four_decimals() {
        assert_eq!(
            [thousands(10_000_000.0), thousands(999.0), thousands(0.0)],
            ["10,000,000", "999", "0"]
        );
        assert_eq!([percent(0.0), percent(0.00064)], ["0", "0.0640%"]);
    }
}
