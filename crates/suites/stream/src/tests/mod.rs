//! Unit tests that join several modules of this crate.

use lab::soundness;
use proptest::test_runner::Config;

mod descriptors;
mod remote;

/// The number of cases; the environment variable `PROPTEST_CASES` overrides it.
pub(crate) fn cases(usual: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    Config { cases: asked.unwrap_or(usual), failure_persistence: None, ..Config::default() }
}

#[test]
fn experiments_claims_and_figures_are_consistent() {
    assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
}
