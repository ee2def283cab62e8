//! `tollgate run --slurm` on a real cluster of this machine: munge, slurmctld and two slurmd.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod cluster;
#[path = "../harness/mod.rs"]
mod harness;
mod refusals;
mod runs;
