//! The list of suites.

use lab::suite::Suite;

/// All suites, in the order of lists and runs. A new suite is one line here.
pub(crate) static SUITES: &[&Suite] = &[
    &copy::SUITE,
    &crossing::SUITE,
    &enclave::SUITE,
    &bounds::SUITE,
    &stream::SUITE,
    &planted::SUITE,
];
