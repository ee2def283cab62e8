//! What the lab asks of the suite.

use std::time::Duration;

use lab::artefact::Recipe;
use lab::factor::Factor;
use lab::metric::Metric;
use lab::point::{Level, Point};
use lab::run::Lab;
use lab::sample::Failure;
use lab::suite::{Capability, Data, Probe, Suite};

use crate::images::supplied;
use crate::kinds::{self, Kind};
use crate::setting::Setting;
use crate::{allocation, cross_thread, ecall, entered, factors, hand, heap, metrics, smallbank};

/// Allocators inside an enclave.
pub struct EnclaveSuite;

impl Suite for EnclaveSuite {
    fn name(&self) -> &'static str {
        "enclave"
    }

    fn about(&self) -> &'static str {
        "allocators inside an enclave, entered by many threads, on a heap that cannot grow"
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
        factors::FACTORS
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    fn capabilities(&self) -> Vec<Capability> {
        Kind::ALL.into_iter().map(kinds::capability).collect()
    }

    fn by_hand(
        &self,
        arguments: &[String],
        lab: &Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        hand::main(arguments, lab)
    }

    fn available(&self, experiment: &str, point: &Point) -> Result<(), Failure> {
        match experiment {
            "cross-thread" => cross_thread::available(point),
            "heap" | "room" | "ecall" => entered::available_with_own_heap(&Setting::of(point)?),
            _ => entered::available(&Setting::of(point)?),
        }
    }

    fn expected(&self, experiment: &str, point: &Point, budget: Duration) -> Duration {
        match experiment {
            "heap" => heap::expected(point),
            "ecall" => ecall::expected(point, budget),
            "cross-thread" => cross_thread::expected(point),
            "smallbank" => smallbank::expected(point),
            _ => allocation::expected(point),
        }
    }

    /// An allocator of a user's own is linked and executed, in `none` and the simulated kinds by this process.
    fn code(&self, _: &str, point: &Point) -> Option<String> {
        let allocator = point.get("allocator").map(Level::as_str);
        allocator.filter(|one| supplied::is_path(one)).map(String::from)
    }

    fn artefacts(&self, _: &str, point: &Point) -> Vec<Recipe> {
        let allocator = point.get("allocator").map(Level::as_str);
        allocator.filter(|one| supplied::is_path(one)).map(supplied::recipe).into_iter().collect()
    }

    fn probe(&self, experiment: &str) -> Result<Box<dyn Probe>, Failure> {
        Ok(match experiment {
            "allocation" => allocation::probe(),
            "room" => allocation::with_any_room(),
            "heap" => heap::probe(),
            "ecall" => ecall::probe(),
            "cross-thread" => cross_thread::probe(),
            "smallbank" => smallbank::probe(),
            other => {
                let ways = "allocation, room, heap, ecall, cross-thread, smallbank";
                return Err(Failure::failed(format!(
                    "nothing is measured as '{other}'; set measured_as to one of {ways}"
                )));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use lab::experiment::Profile;
    use lab::point::Point;
    use lab::soundness;
    use lab::suite::Suite;

    #[test]
    fn the_library_of_a_user_is_code() {
        let code =
            |allocator| crate::SUITE.code("allocation", &Point::from([("allocator", allocator)]));
        assert_eq!(code("./libmine.a").as_deref(), Some("./libmine.a"));
        assert_eq!((code("dlmalloc"), code("scudo")), (None, None));
        assert_eq!(crate::SUITE.code("ecall", &Point::default()), None);
    }

    #[test]
    fn experiments_claims_and_figures_go_together() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn quick_is_quick_and_standard_takes_a_coffee() {
        let seconds = |profile| soundness::seconds(&crate::SUITE, profile).unwrap();
        let (quick, standard) = (seconds(Profile::Quick), seconds(Profile::Standard));
        println!("quick {quick:.0} s, standard {standard:.0} s");
        assert!(quick < 30.0 && standard < 1200.0, "quick {quick:.0} s, standard {standard:.0} s");
    }
}
