//! What the lab asks of the suite.

use lab::method::{AnyMethod, Untyped};
use lab::point::{Level, Point};
use lab::run::Lab;
use lab::suite::{Capability, Data, Suite};

use crate::images::supplied;
use crate::kinds::{self, Kind};
use crate::setting::Setting;
use crate::{allocation, cross_thread, ecall, entered, factors, hand, heap, metrics, smallbank};

/// Allocators inside an enclave.
pub struct EnclaveSuite;

/// The user's own allocator that a point names, which is linked and executed: in `none` and the simulated kinds by this
/// process.
fn supplied(point: &Point) -> Option<String> {
    let allocator = point.get("allocator").map(Level::as_str);
    allocator.filter(|one| supplied::is_path(one)).map(String::from)
}

/// What all methods share.
const SUITE_WIDE: Untyped = Untyped {
    factors: || factors::FACTORS,
    metrics: || metrics::METRICS,
    code: supplied,
    artefacts: |point| supplied(point).map(|path| supplied::recipe(&path)).into_iter().collect(),
    ..Untyped::PLAIN
};

static ALLOCATION: Untyped = Untyped {
    name: "allocation",
    available: |point| entered::available(&Setting::of(point)?),
    expected: |point, _| allocation::expected(point),
    probe: || Ok(allocation::probe()),
    ..SUITE_WIDE
};

static ROOM: Untyped = Untyped {
    name: "room",
    available: |point| entered::available_with_own_heap(&Setting::of(point)?),
    expected: |point, _| allocation::expected(point),
    probe: || Ok(allocation::with_any_room()),
    ..SUITE_WIDE
};

static HEAP: Untyped = Untyped {
    name: "heap",
    available: |point| entered::available_with_own_heap(&Setting::of(point)?),
    expected: |point, _| heap::expected(point),
    probe: || Ok(heap::probe()),
    ..SUITE_WIDE
};

static ECALL: Untyped = Untyped {
    name: "ecall",
    available: |point| entered::available_with_own_heap(&Setting::of(point)?),
    expected: ecall::expected,
    probe: || Ok(ecall::probe()),
    ..SUITE_WIDE
};

static CROSS_THREAD: Untyped = Untyped {
    name: "cross-thread",
    available: cross_thread::available,
    expected: |point, _| cross_thread::expected(point),
    probe: || Ok(cross_thread::probe()),
    ..SUITE_WIDE
};

static SMALLBANK: Untyped = Untyped {
    name: "smallbank",
    available: |point| entered::available(&Setting::of(point)?),
    expected: |point, _| smallbank::expected(point),
    probe: || Ok(smallbank::probe()),
    ..SUITE_WIDE
};

static METHODS: &[&dyn AnyMethod] = &[&ALLOCATION, &ROOM, &HEAP, &ECALL, &CROSS_THREAD, &SMALLBANK];

impl Suite for EnclaveSuite {
    fn name(&self) -> &'static str {
        "enclave"
    }

    fn about(&self) -> &'static str {
        "allocators inside an enclave, entered by many threads, on a heap that cannot grow"
    }

    fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        METHODS
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../experiments.toml"),
            claims: include_str!("../claims.toml"),
            promises: include_str!("../promises.toml"),
            figures: include_str!("../figures.toml"),
        }
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
}

#[cfg(test)]
mod tests {
    use lab::experiment::Profile;
    use lab::point::Point;
    use lab::soundness;

    #[test]
    fn the_library_of_a_user_is_code() {
        let allocation = lab::suite::method(&crate::SUITE, "allocation").unwrap();
        let code = |allocator| allocation.code(&Point::from([("allocator", allocator)]));
        assert_eq!(code("./libmine.a").as_deref(), Some("./libmine.a"));
        assert_eq!((code("dlmalloc"), code("scudo")), (None, None));
        let ecall = lab::suite::method(&crate::SUITE, "ecall").unwrap();
        assert_eq!(ecall.code(&Point::default()), None);
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
