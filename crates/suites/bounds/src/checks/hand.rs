//! `tollgate bounds checks`: the seed's ten sequences by hand, its figures beside ours.

use std::fmt::Write as _;

use clap::Args;
use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::point::{Filter, Point};
use lab::run::Lab;

use crate::SUITE;
use crate::hand::Error;
use crate::hand::measured::{Effort, Figures, measure};
use crate::hand::text::{Cell, Notes};

/// The mechanisms in the order of the columns, with what each is wide.
const MECHANISMS: [(&str, usize); 6] =
    [("none", 8), ("mpx", 8), ("branch", 9), ("cmov", 8), ("mask", 8), ("fat-pointer", 13)];
/// The seed's rows: bounds and address, with its names.
const ROWS: [(&str, &str, &str); 5] = [
    ("none", "register", "no check"),
    ("one", "register", "bndcl r +"),
    ("one", "lea", "bndcl m +"),
    ("both", "register", "bndcl r + bndcu r +"),
    ("both", "lea", "bndcl m + bndcu m +"),
];

/// The words of `tollgate bounds checks`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    effort: Effort,
}

/// Measures the sequences and prints the table. Gives the exit status: 0, or 1 where measuring failed.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let claims = Catalogue::of_suite(&SUITE)?.claims()?;
    measure(&options.effort, &["checks"], |_| {}, |figures| table(figures, &claims), lab)
}

/// The seed's table with ours in columns: instructions a cycle, then the cycles of a whole sequence.
fn table(figures: &Figures, claims: &[Claim]) -> Result<String, Error> {
    let (mut text, mut notes) = (String::new(), Notes::default());
    for (title, metric) in [
        ("Instructions a core cycle of check sequences", "ipc"),
        ("Core cycles of a check sequence with its access", "sequence"),
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
                let seeds = if bounds == "none" { "none" } else { "mpx" };
                let mut line = format!("{name:<22}{access:<8}");
                if is_published {
                    line += &format!("{:>10}", published(claims, metric, &point(seeds)));
                }
                for (mechanism, width) in MECHANISMS {
                    line += &format!(
                        "{:>width$}",
                        cell(figures, metric, &point(mechanism), &mut notes)
                    );
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

/// The median over rounds; the number of a note for what cannot be measured, nothing for what is not asked.
fn cell(figures: &Figures, metric: &str, point: &Point, notes: &mut Notes) -> String {
    let levels: Vec<_> =
        point.0.iter().map(|(name, level)| (name.as_str(), level.as_str())).collect();
    match figures.median("bounds/checks", metric, &levels) {
        Cell::Value(value) => format!("{value:.2}"),
        Cell::Lacking(why) => format!("[{}]", notes.number(&why)),
        Cell::Nothing => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_seed_has_its_published_value() {
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
