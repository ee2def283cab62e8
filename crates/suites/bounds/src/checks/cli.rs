//! `tollgate bounds checks`: the ten sequences of Intel MPX Explained, with published and measured values.

use clap::Args;
use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::point::{Filter, Point};
use lab::suite::Lab;
use lab::table::{ColumnHeader, Document};

use crate::SUITE;
use crate::cli::Cell;
use crate::cli::{Effort, Error, Values, measure};

/// Mechanisms in the order of the columns.
const MECHANISMS: [&str; 6] = ["none", "mpx", "branch", "cmov", "mask", "fat-pointer"];
/// Bounds and address of each row, with its name in Intel MPX Explained.
const ROWS: [(&str, &str, &str); 5] = [
    ("none", "register", "no check"),
    ("one", "register", "bndcl r +"),
    ("one", "lea", "bndcl m +"),
    ("both", "register", "bndcl r + bndcu r +"),
    ("both", "lea", "bndcl m + bndcu m +"),
];

/// Options of `tollgate bounds checks`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    effort: Effort,
}

/// Measures and prints the table. Returns the exit status: 0, or 1 if a measurement failed.
///
/// # Errors
/// Returns a usage error, or the reason if nothing can be measured.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let claims = Catalogue::of_suite(&SUITE)?.claims()?;
    measure(&options.effort, &["checks"], |_| {}, |values| table(values, &claims), lab)
}

/// Returns two tables: instructions per cycle, and cycles per sequence.
fn table(values: &Values, claims: &[Claim]) -> Result<String, Error> {
    let mut document = Document::new();
    for (title, metric) in [
        ("Instructions per core cycle of check sequences", "ipc"),
        ("Core cycles per check sequence with its access", "sequence"),
    ] {
        if metric != "ipc" {
            document.line("");
        }
        document.line(title);
        let has = |claim: &Claim| claim.metric.as_deref() == Some(metric);
        let is_published = claims.iter().any(has);
        let mut headers = vec![ColumnHeader::left("check sequence"), ColumnHeader::left("access")];
        headers.extend(is_published.then(|| ColumnHeader::right("published")));
        headers.extend(MECHANISMS.map(ColumnHeader::right));
        document.table(headers);
        for access in ["load", "store"] {
            for (bounds, address, name) in ROWS {
                let point = |by: &str| {
                    Point::from([
                        ("checked_by", by),
                        ("access", access),
                        ("bounds", bounds),
                        ("address", address),
                    ])
                };
                let published_mechanism = if bounds == "none" { "none" } else { "mpx" };
                let mut cells = vec![name.to_owned(), access.to_owned()];
                let published = || published(claims, metric, &point(published_mechanism));
                cells.extend(is_published.then(published));
                let value = |by| cell(values, metric, &point(by), &mut document);
                cells.extend(MECHANISMS.map(value));
                document.row(cells);
            }
        }
    }
    Ok(document.finish())
}

fn published(claims: &[Claim], metric: &str, point: &Point) -> String {
    let is = |claim: &&Claim| {
        let Filter(filter) = &claim.filter;
        claim.metric.as_deref() == Some(metric)
            && filter.len() == point.levels().len()
            && claim.filter.matches(point)
    };
    let value = claims.iter().find(is).and_then(|claim| Some(claim.published.as_ref()?.value));
    value.map_or_else(String::new, |value| format!("{value:.2}"))
}

/// Returns the median over rounds, the number of a note if it is missing, or nothing if the point was not requested.
fn cell(values: &Values, metric: &str, point: &Point, document: &mut Document) -> String {
    let levels: Vec<_> = point.levels().map(|(name, level)| (name, level.as_str())).collect();
    match values.median("bounds/checks", metric, &levels) {
        Cell::Value(value) => format!("{value:.2}"),
        Cell::Missing(why) => document.footnote(&why),
        Cell::Empty => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_are_found_by_point() {
        let claims = Catalogue::of_suite(&SUITE).unwrap().claims().unwrap();
        let value = |by, access, bounds, address| {
            let levels =
                [("checked_by", by), ("access", access), ("bounds", bounds), ("address", address)];
            published(&claims, "ipc", &Point::from(levels))
        };
        assert_eq!(value("none", "load", "none", "register"), "2.00");
        assert_eq!(value("mpx", "load", "both", "lea"), "1.50");
        assert_eq!(value("mpx", "store", "both", "register"), "3.00");
        assert_eq!(value("branch", "store", "both", "register"), "");
    }
}
