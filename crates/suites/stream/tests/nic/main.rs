//! Tests of the software NIC and the host library, with a generator or a test-driven cable on the wire.
#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

mod applications;
mod descriptors;
mod dpdk;
mod fallback;
mod lifetimes;
mod loss;
#[path = "../mixture/mod.rs"]
mod mixture;
mod modelled_delays;
mod notifications;
mod pcie_bytes;
mod pipe_api;
mod rate_limit;
mod rings;
mod slow_application;
mod testbed;
mod timestamps;
mod wrap_around;
