//! A simulated machine that drifts and stalls, as shared machines do.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A machine whose speed drifts from one measurement to the next.
pub(crate) struct Machine {
    pub(crate) random: Pcg64Mcg,
    drift: f64,
}

impl Machine {
    /// Share of the drift that remains at the next measurement.
    const MEMORY: f64 = 0.99;
    /// Long-term standard deviation of the drift, on the log scale: 10%.
    const DRIFT: f64 = 0.10;
    /// The noise of one measurement: 1%.
    const NOISE: f64 = 0.01;
    /// One measurement in 20 stalls.
    const STALLS: f64 = 0.05;

    pub(crate) fn new(seed: u64) -> Self {
        let mut machine = Self { random: Pcg64Mcg::seed_from_u64(seed), drift: 0.0 };
        machine.drift = Self::DRIFT * machine.normal();
        machine
    }

    /// Returns a standard normal number (Box-Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let (u, v): (f64, f64) = (self.random.random(), self.random.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Lets the time of some measurements pass.
    pub(crate) fn pass(&mut self, measurements: usize) {
        let memory = Self::MEMORY.powi(measurements as i32);
        self.drift =
            memory * self.drift + Self::DRIFT * (1.0 - memory * memory).sqrt() * self.normal();
    }

    /// Returns the measured duration of work whose true duration is `truth`.
    pub(crate) fn measure(&mut self, truth: f64) -> f64 {
        self.pass(1);
        let noise = Self::NOISE * self.normal();
        let stalls = self.random.random::<f64>() < Self::STALLS;
        let stall = if stalls { 1.0 - 5.0 * (1.0 - self.random.random::<f64>()).ln() } else { 1.0 };
        truth * (self.drift + noise).exp() * stall
    }
}
