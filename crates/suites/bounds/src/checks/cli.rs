//! `tollgate bounds checks`: the ten sequences of Intel MPX Explained, with published and measured values.

use std::fmt::Write as _;

use clap::Args;
use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::point::{Filter, Point};
use lab::run::Lab;

use crate::SUITE;
use crate::cli::text::{Cell, Notes};
use crate::cli::{Effort, Error, Values, measure};

/// Mechanisms and widths of the columns.
const MECHANISMS: [(&str, usize); 6] =
    [("none", 8), ("mpx", 8), ("branch", 9), ("cmov", 8), ("mask", 8), ("fat-pointer", 13)];
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
    let (mut text, mut notes) = (String::new(), Notes::default());
    for (title, metric) in [
        ("Instructions per core cycle of check sequences", "ipc"),
        ("Core cycles per check sequence with its access", "sequence"),
    ] {
        writeln!(text, "{title}")?;
        let has = |claim: &Claim| claim.metric.as_deref() == Some(metric);
        let is_published = claims.iter().any(has);
        head(&mut text, is_published)?;
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
                let mut line = format!("{name:<22}{access:<8}");
                if is_published {
                    let point = point(published_mechanism);
                    line += &format!("{:>10}", published(claims, metric, &point));
                }
                for (mechanism, width) in MECHANISMS {
                    line +=
                        &format!("{:>width$}", cell(values, metric, &point(mechanism), &mut notes));
                }
                writeln!(text, "{}", line.trim_end())?;
            }
        }
        writeln!(text)?;
    }
    Ok(text + &notes.text())
}

fn head(text: &mut String, is_published: bool) -> std::fmt::Result {
    write!(text, "{:<22}{:<8}", "check sequence", "access")?;
    if is_published {
        write!(text, "{:>10}", "published")?;
    }
    for (mechanism, width) in MECHANISMS {
        write!(text, "{mechanism:>width$}")?;
    }
    writeln!(text)
}

fn published(claims: &[Claim], metric: &str, point: &Point) -> String {
    let is = |claim: &&Claim| {
        let Filter(filter) = &claim.filter;
        claim.metric.as_deref() == Some(metric)
            && filter.len() == point.0.len()
            && claim.filter.matches(point)
    };
    let value = claims.iter().find(is).and_then(|claim| Some(claim.published.as_ref()?.value));
    value.map_or_else(String::new, |value| format!("{value:.2}"))
}

/// Returns the median over rounds, the number of a note if it is missing, or nothing if the point was not requested.
fn cell(values: &Values, metric: &str, point: &Point, notes: &mut Notes) -> String {
    let levels: Vec<_> =
        point.0.iter().map(|(name, level)| (name.as_str(), level.as_str())).collect();
    match values.median("bounds/checks", metric, &levels) {
        Cell::Value(value) => format!("{value:.2}"),
        Cell::Missing(why) => format!("[{}]", notes.number(&why)),
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
