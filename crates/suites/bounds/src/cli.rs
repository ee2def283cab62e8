//! Common code of the commands: the measurement of the suite's experiments, and the values of the run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lab::adhoc::{AdhocRun, OutputArgs};
use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::experiment::{self, Experiment, Profile};
use lab::journal::Run;
use lab::point::Point;
use lab::sample::FailureKind;
use lab::suite::Lab;
use lab::summary::{Row, Samples, Unit, paired, summarise};
use lab::table::Document;

use crate::SUITE;

/// Error of a command, printed for the user.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Options of every command.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Effort {
    /// Number of rounds, each in a fresh process
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=i64::from(experiment::MAX_ROUNDS)))]
    pub(crate) rounds: u32,
    /// Results folder
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(crate) results: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl Effort {
    /// Sets the exact number of rounds of an experiment.
    pub(crate) fn apply(&self, experiment: &mut Experiment) {
        experiment.effort.rounds = self.rounds;
        experiment.effort.min_rounds = self.rounds;
    }
}

/// Measures experiments of the profile `quick`, changed by `adapt`, and prints the text that `write` returns. Returns
/// the exit status.
pub(crate) fn measure(
    effort: &Effort,
    names: &[&str],
    adapt: impl Fn(&mut Experiment),
    write: impl Fn(&Values) -> Result<String, Error>,
    lab: &Lab,
) -> Result<i32, Error> {
    let all = Catalogue::of_suite(&SUITE)?.experiments(Profile::Quick)?;
    let mut experiments: Vec<_> =
        all.into_iter().filter(|one| names.contains(&one.name.as_str())).collect();
    for one in &mut experiments {
        effort.apply(one);
        adapt(one);
    }
    let adhoc = AdhocRun {
        suite: &SUITE,
        experiments,
        profile: Profile::Quick,
        results: &effort.results,
        options: BTreeMap::new(),
    };
    adhoc.measure_and_print(lab, effort.output.json, |run| write(&Values { run }))
}

/// Sets a factor to the same level in all points.
pub(crate) fn set(experiment: &mut Experiment, factor: &str, level: &str) {
    let with_level = |point: &Point| point.with(factor, level);
    experiment.points = experiment.points.iter().map(with_level).collect();
    experiment.twins = experiment.twins.iter().map(with_level).collect();
    experiment.baseline = with_level(&experiment.baseline);
}

/// Values of a run.
pub(crate) struct Values<'a> {
    run: &'a Run,
}

impl Values<'_> {
    /// Returns the median of a metric over rounds at the point with these levels, or the reason why it is missing.
    pub(crate) fn median(&self, experiment: &str, metric: &str, levels: &[(&str, &str)]) -> Cell {
        let rows = summarise(self.run, experiment, metric, Unit::Own).map(|it| it.rows);
        let row = rows.unwrap_or_default().into_iter().find(|row| has_levels(&row.point, levels));
        row.map_or(Cell::Empty, |row| cell(&row))
    }

    /// Returns the ratio of a metric at two points, paired within rounds.
    pub(crate) fn ratio(
        &self,
        experiment: &str,
        metric: &str,
        numerator: &[(&str, &str)],
        denominator: &[(&str, &str)],
    ) -> Cell {
        let Some(samples) = Samples::newest(self.run, experiment) else {
            return Cell::Empty;
        };
        let observed = samples.observed(metric, Unit::Own).points;
        let find = |levels| observed.iter().find(|(point, _)| has_levels(point, levels));
        let ratio = match (find(numerator), find(denominator)) {
            (Some((_, above)), Some((_, below))) => paired(above, below).ok(),
            _ => None,
        };
        let missing = || {
            let [above, below] = [numerator, denominator]
                .map(|levels| self.median(experiment, metric, levels).without_value());
            if above == Cell::Empty { below } else { above }
        };
        ratio.map_or_else(missing, |ratio| Cell::Value(ratio.ratio))
    }
}

fn has_levels(point: &Point, levels: &[(&str, &str)]) -> bool {
    levels.iter().all(|(factor, level)| point.text(factor) == *level)
}

fn cell(row: &Row) -> Cell {
    if let Some(estimate) = row.estimate {
        return Cell::Value(estimate.median);
    }
    let failed = row.errors.iter().next().map(|(kind, fault)| {
        let void = if *kind == FailureKind::Void { "void " } else { "" };
        let remedy = fault.remedy.as_ref().map(|remedy| format!("; {remedy}"));
        format!("{void}{}{}", fault.why, remedy.unwrap_or_default())
    });
    // A valid round without this metric has a core clock, a void one has none.
    let all_void = row.void_rounds > 0 && row.core_hertz.is_none();
    let void = || Some(void_reason(row.void_causes.keys().next().filter(|_| all_void)?));
    failed.or_else(void).map_or(Cell::Empty, Cell::Missing)
}

/// Returns the reason for a missing value if all samples are void.
pub(crate) fn void_reason(cause: &str) -> String {
    format!("void in every round: {cause}; reduce the load of the machine, or raise --rounds")
}

/// Finds a published claim by its ID.
///
/// # Errors
/// Returns an error if `claims.toml` does not contain it.
pub(crate) fn published_claim(id: &str) -> Result<Claim, Error> {
    let claims = Catalogue::of_suite(&SUITE)?.claims()?;
    let claim = claims.into_iter().find(|claim| claim.id == id);
    claim.ok_or_else(|| format!("bounds/claims.toml: no claim '{id}'; restore it").into())
}

/// Content of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Value(f64),
    /// The reason why the value is missing.
    Missing(String),
    Empty,
}

impl Cell {
    /// Applies a function to the value.
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Value(value) => Self::Value(change(value)),
            Self::Missing(_) | Self::Empty => self,
        }
    }

    /// Returns the reason only.
    pub(crate) fn without_value(self) -> Self {
        match self {
            Self::Value(_) | Self::Empty => Self::Empty,
            Self::Missing(_) => self,
        }
    }

    /// Returns the formatted value, or a dash with the mark of a footnote.
    pub(crate) fn text(&self, document: &mut Document, format: impl Fn(f64) -> String) -> String {
        match self {
            Self::Value(value) => format(*value),
            Self::Empty => "—".into(),
            Self::Missing(reason) => format!("— {}", document.footnote(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_have_footnotes() {
        let mut document = Document::default();
        let mut text = |cell: Cell| cell.text(&mut document, |value| format!("{value:.1}"));
        assert_eq!(text(Cell::Value(2.5)), "2.5");
        assert_eq!(text(Cell::Missing("no counters; expose a PMU".into())), "— [1]");
        assert_eq!(text(Cell::Empty), "—");
        assert_eq!(document.finish(), "\n[1] no counters; expose a PMU\n");
    }
}
