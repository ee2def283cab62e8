//! Experiments of the suite measured by hand, and the figures that they gave.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use lab::adhoc::{AdhocRun, Measured};
use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::experiment::{self, Experiment, Profile};
use lab::journal::Run;
use lab::point::Point;
use lab::run::Lab;
use lab::sample::FailureKind;
use lab::summary::{Row, Unit, newest_environment, paired, rounds, summarise};

use super::Error;
use super::text::Cell;
use crate::SUITE;

/// The words that every measurement by hand takes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Effort {
    /// Rounds, each in a fresh process
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=i64::from(experiment::MAX_ROUNDS)))]
    pub(crate) rounds: u32,
    /// The folder of all results
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(crate) results: PathBuf,
}

impl Effort {
    /// Just as many rounds as asked for.
    pub(crate) fn apply(&self, one: &mut Experiment) {
        one.effort.rounds = self.rounds;
        one.effort.min_rounds = self.rounds;
    }
}

/// Measures some experiments as they are under `quick`, changed by `adapt`, and prints what `write` makes
/// of them. Gives the exit status.
pub(crate) fn measure(
    effort: &Effort,
    names: &[&str],
    adapt: impl Fn(&mut Experiment),
    write: impl Fn(&Figures) -> Result<String, Error>,
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
    let Measured { run, status } = adhoc.measure(lab, Duration::ZERO)?;
    let mut out = lab::terminal::stdout();
    writeln!(out, "{}\n{}", write(&Figures { run: &run })?, run.folder.display())?;
    Ok(status)
}

/// The same level in all points.
pub(crate) fn set(one: &mut Experiment, factor: &str, level: &str) {
    let changed = |point: &Point| point.with(factor, level);
    one.points = one.points.iter().map(changed).collect();
    one.twins = one.twins.iter().map(changed).collect();
    one.baseline = changed(&one.baseline);
}

/// What a run gave.
pub(crate) struct Figures<'a> {
    run: &'a Run,
}

impl Figures<'_> {
    /// The median of a metric over rounds at the point that has these levels, or why there is none.
    pub(crate) fn median(&self, experiment: &str, metric: &str, levels: &[(&str, &str)]) -> Cell {
        let rows = summarise(self.run, experiment, metric, Unit::Own).map(|it| it.rows);
        let row = rows.unwrap_or_default().into_iter().find(|row| has(&row.point, levels));
        row.map_or(Cell::Nothing, |row| cell(&row))
    }

    /// The ratio of a metric at two points, taken inside rounds.
    pub(crate) fn ratio(
        &self,
        experiment: &str,
        metric: &str,
        of: &[(&str, &str)],
        to: &[(&str, &str)],
    ) -> Cell {
        let Some(environment) = newest_environment(self.run, experiment) else {
            return Cell::Nothing;
        };
        let observed = rounds(self.run, experiment, metric, environment, Unit::Own).points;
        let find = |levels| observed.iter().find(|(point, _)| has(point, levels));
        let ratio = match (find(of), find(to)) {
            (Some((_, above)), Some((_, below))) => paired(above, below).ok(),
            _ => None,
        };
        let lacking = || {
            let [above, below] =
                [of, to].map(|it| self.median(experiment, metric, it).without_value());
            if above == Cell::Nothing { below } else { above }
        };
        ratio.map_or_else(lacking, |ratio| Cell::Value(ratio.ratio))
    }
}

fn has(point: &Point, levels: &[(&str, &str)]) -> bool {
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
    // A round that counts and has no such metric is none that was void; it has a clock.
    let all_void = row.void_rounds > 0 && row.core_hertz.is_none();
    let void = || Some(void(row.void_causes.keys().next().filter(|_| all_void)?));
    failed.or_else(void).map_or(Cell::Nothing, Cell::Lacking)
}

/// Why there is no figure where all samples are void.
pub(crate) fn void(cause: &str) -> String {
    format!("void in every round: {cause}; quiet the machine, or raise --rounds")
}

/// A claim of the seed's.
///
/// # Errors
/// Where there is none of that name.
pub(crate) fn claimed(id: &str) -> Result<Claim, Error> {
    let claims = Catalogue::of_suite(&SUITE)?.claims()?;
    let claim = claims.into_iter().find(|claim| claim.id == id);
    claim.ok_or_else(|| format!("bounds/claims.toml: no claim '{id}'; put it back").into())
}
