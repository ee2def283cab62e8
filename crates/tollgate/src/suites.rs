//! The list of suites.

use lab::sample::Failure;
use lab::suite::Suite;
use vm::patched_linux::Patch;

/// All suites, in the order of lists and runs. A new suite is one line here.
pub(crate) static SUITES: &[&Suite] = &[
    &copy::SUITE,
    &crossing::SUITE,
    &enclave::SUITE,
    &bounds::SUITE,
    &stream::SUITE,
    &planted::SUITE,
];

/// The patches of Linux that a guest's declaration can name.
pub(crate) static PATCHES: [Patch; 2] = [crossing::patched::PATCH, bounds::TABLES_PATCH];

/// Checks that the CPU itself executes what is in ring 0 of a guest of KVM. Some KVMs emulate it, and the times of their
/// guests are not those of this CPU.
///
/// # Errors
/// Returns `unavailable` with the observation.
pub(crate) fn check_ring_0() -> Result<(), Failure> {
    crossing::guest::ring_0()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Metrics without a unit of time that derive from times. A name that ends in `_` is the start of several.
    const FROM_TIME: [&str; 17] = [
        "bounds/confidence",
        "bounds/off_integer",
        "bounds/over_baseline",
        "bounds/port_",
        "bounds/shares_",
        "bounds/table_system_share",
        "copy/slowdown",
        "crossing/clock_moved",
        "crossing/follows_core_clock",
        "crossing/in_over_out",
        "enclave/load_in_ecalls",
        "stream/busy_",
        "stream/of_alone",
        "stream/of_ceiling",
        "stream/of_hyperscan",
        "stream/of_store",
        "stream/polling_",
    ];

    #[test]
    fn each_metric_that_derives_from_time_states_so() {
        let mut seen = BTreeSet::new();
        for suite in SUITES {
            for metric in lab::suite::metrics(suite) {
                let name = format!("{}/{}", suite.name(), metric.name);
                let is_start = |one: &&&str| match one.ends_with('_') {
                    true => name.starts_with(**one),
                    false => name == **one,
                };
                let listed = FROM_TIME.iter().find(is_start);
                if matches!(metric.unit, "1" | "share" | "B") {
                    assert_eq!(metric.is_timed(), listed.is_some(), "{name}");
                    seen.extend(listed);
                }
            }
        }
        assert_eq!(seen, FROM_TIME.iter().collect());
    }

    #[test]
    fn the_modules_of_timed_code_are_in_the_program() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let program = report::bundle::Program::read(&file).unwrap();
        for suite in SUITES {
            for method in suite.methods() {
                let declared = method.timed_modules();
                for module in declared.iter().copied().chain([method.module()]) {
                    let name = format!("{}/{}: {module}", suite.name(), method.name());
                    assert_eq!(module.split("::").next(), Some(suite.name()), "{name}");
                }
                for module in declared {
                    assert!(program.has_module(module), "{}: no {module}", method.name());
                }
            }
        }
    }
}
