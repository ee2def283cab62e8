//! Known delays and faults that test the instrument itself.
//!
//! The suite runs on the machine at hand and uses everything that a real suite uses: orders, fresh
//! processes, the journal, resuming, claims.

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

mod delay;
mod fault;
mod guest;
mod model;
mod parts;

use lab::suite::Suite;

/// The suite.
pub static SUITE: Suite = Suite::new(
    "planted",
    "known delays and faults that test the instrument itself",
    lab::suite_data!(),
    &[
        &delay::Delay,
        &model::Model,
        &fault::Faults,
        &parts::Roles,
        &parts::EdgeSearch,
        &parts::Prepared,
        &guest::InGuest,
    ],
)
.self_test();
