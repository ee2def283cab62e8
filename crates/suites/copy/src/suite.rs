//! What the lab asks of the suite.

use std::sync::LazyLock;
use std::time::Duration;

use lab::factor::Factor;
use lab::metric::Metric;
use lab::point::Point;
use lab::run::Lab;
use lab::sample::Failure;
use lab::suite::{Data, Probe, Suite};
use machine::capability::Capability;

use crate::limit::mbw;
use crate::{factors, faults, frames, hand, mediation, metrics, throughput};

/// Copies into memory that another process or host sees.
pub struct CopySuite;

static FACTORS: LazyLock<Vec<Factor>> = LazyLock::new(|| {
    let parts = [factors::FACTORS, frames::FACTORS, mediation::FACTORS, faults::FACTORS];
    first_of_each_name(parts.concat(), |factor| factor.name)
});

static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    let parts = [metrics::METRICS, frames::METRICS, mediation::METRICS, faults::METRICS];
    first_of_each_name(parts.concat(), |metric| metric.name)
});

/// Experiments share names such as `length`; the first to declare one stands for all.
fn first_of_each_name<T>(all: Vec<T>, name: fn(&T) -> &'static str) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for item in all {
        if !kept.iter().any(|other| name(other) == name(&item)) {
            kept.push(item);
        }
    }
    kept
}

impl Suite for CopySuite {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn about(&self) -> &'static str {
        "copies into memory that another process or host sees"
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../experiments.toml"),
            claims: include_str!("../claims.toml"),
            promises: include_str!("../promises.toml"),
            figures: include_str!("../figures.toml"),
        }
    }

    fn factors(&self) -> &'static [Factor] {
        &FACTORS
    }

    fn metrics(&self) -> &'static [Metric] {
        &METRICS
    }

    fn capabilities(&self) -> Vec<Capability> {
        vec![mbw::capability()]
    }

    fn available(&self, experiment: &str, point: &Point) -> Result<(), Failure> {
        match experiment {
            "frames" => frames::available(point),
            "mediation" => mediation::available(point),
            "faults" => faults::available(point),
            _ => throughput::available(point),
        }
    }

    fn expected(&self, experiment: &str, point: &Point, budget: Duration) -> Duration {
        match experiment {
            "frames" => frames::expected(point, budget),
            "mediation" => mediation::expected(point, budget),
            "faults" => faults::expected(point, budget),
            _ => throughput::expected(point, budget),
        }
    }

    fn probe(&self, experiment: &str) -> Result<Box<dyn Probe>, Failure> {
        Ok(match experiment {
            "frames" => frames::probe(),
            "mediation" => mediation::probe(),
            "faults" => faults::probe(),
            "throughput" => throughput::probe(),
            other => {
                let ways = "throughput, frames, mediation, faults";
                return Err(Failure::failed(format!(
                    "nothing is measured as '{other}'; set measured_as to one of {ways}"
                )));
            }
        })
    }

    fn by_hand(
        &self,
        arguments: &[String],
        lab: &Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        hand::main(arguments, lab)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::experiment::{self, Profile};
    use lab::sample::FailureKind;
    use std::collections::BTreeSet;

    const SUITES: &[&dyn Suite] = &[&crate::SUITE];

    fn experiments(profile: Profile) -> Vec<experiment::Experiment> {
        let text = CopySuite.data().experiments;
        experiment::read("experiments.toml", text, Some("copy"), SUITES, profile).unwrap()
    }

    #[test]
    fn every_experiment_is_sound_in_every_profile() {
        for profile in [Profile::Quick, Profile::Standard, Profile::Full] {
            for experiment in experiments(profile) {
                assert!(!experiment.twins.is_empty(), "{} has no twins", experiment.id());
                for point in &experiment.points {
                    if let Err(failure) = CopySuite.available(&experiment.measured_as, point) {
                        let lacking = [FailureKind::Unavailable, FailureKind::Unsupported];
                        assert!(
                            lacking.contains(&failure.kind),
                            "{}: {point}: {failure}",
                            experiment.id()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn quick_is_quick_and_standard_takes_a_coffee() {
        let seconds = |profile| -> f64 {
            let all = experiments(profile);
            all.iter().map(|one| lab::plan::expected(one, &CopySuite).as_secs_f64()).sum()
        };
        let (quick, standard) = (seconds(Profile::Quick), seconds(Profile::Standard));
        println!("quick {quick:.0} s, standard {standard:.0} s");
        assert!(quick < 150.0 && standard < 2700.0, "quick {quick:.0} s, standard {standard:.0} s");
    }

    #[test]
    fn every_claim_fits_its_experiment() {
        let standard = experiments(Profile::Standard);
        let mut ids = BTreeSet::new();
        let data = CopySuite.data();
        for (file, text) in [("claims.toml", data.claims), ("promises.toml", data.promises)] {
            for claim in lab::claim::read(file, text).unwrap() {
                let claim = lab::claim::check(&claim, SUITES, &standard).unwrap();
                assert!(ids.insert(claim.id.clone()), "{} twice", claim.id);
                let needs: usize =
                    standard.iter().map(|one| lab::claim::needs(&claim, one).len()).sum();
                assert!(
                    needs > 0 || claim.experiment == "lab/session",
                    "{} needs no point",
                    claim.id
                );
            }
        }
    }

    #[test]
    fn experiments_and_figures_go_together() {
        let standard = experiments(Profile::Standard);
        let names: BTreeSet<_> = standard.iter().map(|one| one.id()).collect();
        assert_eq!(names.len(), standard.len(), "an experiment is declared twice");
        let file: toml::Table = toml::from_str(CopySuite.data().figures).unwrap();
        let figures = file["figure"].as_array().unwrap();
        assert!(figures.len() >= 3);
        for figure in figures {
            let experiment = figure["experiment"].as_str().unwrap();
            let experiment = standard.iter().find(|one| one.id() == experiment).unwrap();
            let filter = figure.get("where").cloned().unwrap_or(toml::Table::new().into());
            let wanted: lab::point::Filter = filter.try_into().unwrap();
            let wanted = wanted.spelled(CopySuite.factors()).unwrap();
            let shown = experiment.points.iter().filter(|point| wanted.matches(point)).count();
            assert!(shown >= 4, "figure {} shows {shown} points", figure["id"]);
            for key in ["x", "series"] {
                let Some(factor) = figure.get(key).and_then(toml::Value::as_str) else { continue };
                assert!(experiment.baseline.get(factor).is_some(), "{}: {factor}", figure["id"]);
            }
        }
    }
}
