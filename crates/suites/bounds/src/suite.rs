//! What the lab asks of the suite.

use std::sync::LazyLock;
use std::time::Duration;

use lab::artefact::Recipe;
use lab::factor::Factor;
use lab::metric::Metric;
use lab::point::Point;
use lab::run::Lab;
use lab::sample::Failure;
use lab::suite::{Capability, Data, Probe, Suite};

use crate::way::{self, WAYS};
use crate::{assembler, hand, instructions, kernels, mpx};

/// What a bounds check costs.
pub struct BoundsSuite;

static FACTORS: LazyLock<Vec<Factor>> =
    LazyLock::new(|| first_of_each_name(WAYS.iter().flat_map(|way| way.factors), |it| it.name));

static METRICS: LazyLock<Vec<Metric>> =
    LazyLock::new(|| first_of_each_name(WAYS.iter().flat_map(|way| way.metrics), |it| it.name));

/// Ways share names; the first to declare one stands for all.
fn first_of_each_name<'a, T: Clone + 'a>(
    all: impl Iterator<Item = &'a T>,
    name: fn(&T) -> &'static str,
) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for item in all {
        if !kept.iter().any(|other| name(other) == name(item)) {
            kept.push(item.clone());
        }
    }
    kept
}

impl Suite for BoundsSuite {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn about(&self) -> &'static str {
        "pointers checked against their bounds: instructions, tables, programs, threads"
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
        let mut capabilities = vec![
            assembler::AS.capability(),
            instructions::audit::capability(),
            instructions::counted::capability(),
        ];
        capabilities.extend(kernels::capabilities());
        capabilities.push(mpx::capability());
        capabilities
    }

    fn by_hand(
        &self,
        arguments: &[String],
        lab: &Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        hand::main(arguments, lab)
    }

    fn available(&self, experiment: &str, point: &Point) -> Result<(), Failure> {
        (way::find(experiment)?.available)(point)
    }

    fn expected(&self, experiment: &str, point: &Point, budget: Duration) -> Duration {
        way::find(experiment).map_or(budget, |way| (way.expected)(point, budget))
    }

    fn artefacts(&self, experiment: &str, point: &Point) -> Vec<Recipe> {
        way::find(experiment).map_or_else(|_| Vec::new(), |way| (way.artefacts)(point))
    }

    fn probe(&self, experiment: &str) -> Result<Box<dyn Probe>, Failure> {
        way::find(experiment).map(|way| (way.probe)())
    }
}

#[cfg(test)]
mod tests {
    use lab::experiment::Profile;
    use lab::soundness;

    #[test]
    fn experiments_claims_and_figures_go_together() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn quick_is_quick_and_standard_takes_a_coffee() {
        let seconds = |profile| soundness::seconds(&crate::SUITE, profile).unwrap();
        let (quick, standard) = (seconds(Profile::Quick), seconds(Profile::Standard));
        println!("quick {quick:.0} s, standard {standard:.0} s");
        assert!(quick < 40.0 && standard < 1200.0, "quick {quick:.0} s, standard {standard:.0} s");
    }
}
