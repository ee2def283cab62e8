//! Expected duration of a run.

use std::path::Path;
use std::time::Duration;

use lab::experiment::Experiment;
use lab::format::count;
use lab::journal::{self, Run};
use lab::quantity::format_duration;
use lab::statistics::{INTERVAL_ROUNDS, rounds_needed};
use lab::summary::{Unit, summarise};
use vm::guest::Accelerator;

use crate::error::CliError;
use crate::output::print_message;
use crate::select::{method_of, suite_of};

/// Typical time of the boot of a guest with two CPUs, by accelerator.
const BOOT_BY_TCG: Duration = Duration::from_secs(45);
const BOOT_BY_KVM: Duration = Duration::from_secs(5);

/// Reports the expected duration of the rounds of a profile, on this host or in a guest of this accelerator.
pub(super) fn report_rounds(
    experiments: &[Experiment],
    guest: Option<Accelerator>,
) -> Result<(), CliError> {
    let line = rounds_line(expected_duration(experiments)?, guest);
    print_message(&format!("{}: {line}", points_of(experiments)));
    Ok(())
}

fn rounds_line(time: Duration, guest: Option<Accelerator>) -> String {
    let about = |boot: Duration| format!("about {}", format_duration(time + boot));
    match guest {
        None => about(Duration::ZERO),
        Some(Accelerator::Kvm) => format!("{} with the boot of the guest", about(BOOT_BY_KVM)),
        Some(Accelerator::Tcg) => {
            let about = about(BOOT_BY_TCG);
            format!("{about} with the boot of the guest, and longer because its CPU is emulated")
        }
    }
}

/// `1200 points in 31 experiments`
fn points_of(experiments: &[Experiment]) -> String {
    let points: usize = experiments.iter().map(|one| one.points.len()).sum();
    format!("{} in {}", count(points, "point"), count(experiments.len(), "experiment"))
}

/// Reports how much is measured in a given time, and whether it is too short for verdicts; refuses one that is too short
/// for a round of any experiment.
pub(super) fn report_time(experiments: &[Experiment], time: Duration) -> Result<(), CliError> {
    let mut shortest = Duration::MAX;
    for experiment in experiments {
        let all_rounds = lab::plan::expected(experiment, suite_of(experiment)?);
        shortest = shortest.min(all_rounds / experiment.effort.rounds.max(1));
    }
    // An estimate of zero means that the machine cannot measure the points.
    if !experiments.is_empty() && time < shortest {
        let round = format_duration(shortest);
        let line = format!("the given time is too short for one round, about {round}; allow more");
        return Err(CliError::usage(line));
    }
    let rounds = experiments.iter().map(|one| one.effort.rounds).max().unwrap_or(1);
    let one_round = expected_duration(experiments)? / rounds;
    let expected = time.as_secs_f64() / one_round.as_secs_f64().max(1e-3);
    let expected = count(expected.floor().max(1.0) as usize, "round");
    let points = points_of(experiments);
    print_message(&format!("{points}: {} for about {expected}", format_duration(time)));
    let needed = one_round * INTERVAL_ROUNDS as u32;
    if needed > time {
        let needed = format_duration(needed);
        print_message(&format!(
            "--for: {INTERVAL_ROUNDS} rounds, which verdicts need, take about {needed}; use a longer time or resume"
        ));
    }
    Ok(())
}

/// Reports the duration until every interval has its target width: estimated from the newest run if it
/// has all points, else that of all rounds.
pub(super) fn report_target(
    experiments: &[Experiment],
    target: &str,
    results: &Path,
) -> Result<(), CliError> {
    let newest = journal::newest(results).ok().and_then(|folder| journal::open(&folder).ok());
    let time = match &newest {
        Some(run) => estimated_duration(experiments, run)?,
        None => None,
    };
    match time {
        Some(time) => print_message(&format!(
            "intervals within {target}: about {} in total, estimated from earlier rounds",
            format_duration(time)
        )),
        None => print_message(&format!(
            "intervals within {target}: about {} for all rounds; a better estimate follows the first ones",
            format_duration(expected_duration(experiments)?)
        )),
    }
    Ok(())
}

fn expected_duration(experiments: &[Experiment]) -> Result<Duration, CliError> {
    let mut time = Duration::ZERO;
    for experiment in experiments {
        time += lab::plan::expected(experiment, suite_of(experiment)?);
    }
    Ok(time)
}

/// Estimates the duration from the spread of an earlier run; `None` if that run lacks a point.
fn estimated_duration(experiments: &[Experiment], run: &Run) -> Result<Option<Duration>, CliError> {
    let mut time = Duration::ZERO;
    for experiment in experiments {
        let method = method_of(experiment)?;
        let Ok(summary) = summarise(run, &experiment.id(), &experiment.metric, Unit::Own) else {
            return Ok(None);
        };
        for point in &experiment.points {
            let row = summary.rows.iter().find(|row| row.point == *point);
            let Some(row) = row else { return Ok(None) };
            // Unavailable points take no time.
            let Some(estimate) = &row.estimate else { continue };
            let effort = &experiment.effort;
            let needed = rounds_needed(estimate, effort.resolve).unwrap_or(usize::MAX);
            let rounds = needed.clamp(effort.min_rounds as usize, effort.rounds as usize);
            let sample = method.expected(point, effort.budget);
            time += sample * u32::try_from(rounds).unwrap_or(u32::MAX);
        }
    }
    Ok(Some(time))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use lab::catalogue::Catalogue;
    use lab::experiment::Profile;
    use lab::suite::Purpose;

    use super::*;
    use crate::suites::SUITES;

    #[test]
    fn the_forecast_of_a_guest_includes_its_boot() {
        let time = Duration::from_secs(10);
        assert_eq!(rounds_line(time, None), "about 10.0 s");
        let by = |accelerator| rounds_line(time, Some(accelerator));
        assert_eq!(by(Accelerator::Kvm), "about 15.0 s with the boot of the guest");
        assert!(by(Accelerator::Tcg).starts_with("about 55.0 s with the boot of the guest, and"));
    }

    #[test]
    fn the_quick_profile_takes_minutes() {
        let boundaries = SUITES.iter().filter(|suite| suite.purpose() == Purpose::Boundary);
        let boundaries: Vec<_> = boundaries.copied().collect();
        let catalogue = Catalogue::load(&boundaries, &[]).unwrap();
        let all = catalogue.experiments(Profile::Quick).unwrap();
        // Few machines have the compilers of MPX.
        let (optional, others): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|one| ["kernels-published", "table-instructions"].contains(&&*one.name));
        assert_eq!(optional.len(), 2);
        for (experiments, limit) in [(others, 360), (optional, 150)] {
            let time = expected_duration(&experiments).unwrap();
            assert!(time < Duration::from_secs(limit), "{time:?}");
        }
    }
}
