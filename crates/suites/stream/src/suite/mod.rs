//! The suite's methods: their params, their metrics, and the testbed on which they measure.

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

mod application;
pub mod ceiling;
mod methods;
pub mod metrics;
pub mod params;
mod search;
mod single_trial;
pub mod stall;
mod testbed;
pub mod testbed_config;

pub(crate) use methods::METHODS;
