//! Unit tests that join several modules of this crate.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lab::soundness;
use machine::setting::Setting;
use proptest::test_runner::Config;

mod descriptors;
mod remote;

/// Set if a test may change a system setting temporarily, as in `scripts/test`.
const CHANGES_SETTINGS: &str = "TOLLGATE_TEST_SETTINGS";

/// Huge pages that were added to the kernel's pool until this is dropped.
pub(crate) struct HugePages {
    _setting: Option<Setting>,
    _alone: MutexGuard<'static, ()>,
}

/// Enlarges the kernel's pool if tests may change settings. One test at a time has it.
pub(crate) fn more_huge_pages(count: usize) -> HugePages {
    static POOL: Mutex<()> = Mutex::new(());
    let _alone = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let enlarged = || {
        std::env::var_os(CHANGES_SETTINGS)?;
        let pool = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
        let pool = Setting::record(pool).ok()?;
        let now: usize = pool.original().parse().ok()?;
        pool.set(&now.checked_add(count)?.to_string()).ok()?;
        Some(pool)
    };
    HugePages { _setting: enlarged(), _alone }
}

/// The number of cases; the environment variable `PROPTEST_CASES` overrides it.
pub(crate) fn cases(usual: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    Config { cases: asked.unwrap_or(usual), failure_persistence: None, ..Config::default() }
}

#[test]
fn experiments_claims_and_figures_are_consistent() {
    assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
}
