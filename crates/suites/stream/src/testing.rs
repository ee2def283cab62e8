//! What tests of several modules share.

use proptest::test_runner::Config;

/// So many cases; `PROPTEST_CASES` in the environment asks for another number.
pub(crate) fn cases(usual: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    Config { cases: asked.unwrap_or(usual), failure_persistence: None, ..Config::default() }
}
