//! The suite's methods: their params, their metrics, and the testbed on which they measure.

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
