//! The workload of a testbed: the traffic of its application, and what that returns.

// Levels may be any number, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use lab::sample::Failure;

use super::params::Interface;
use super::testbed_config::TestbedConfig;
use crate::application::{BACKENDS, KEYS};
use crate::generator::{Expectation, Report};
use crate::workload::application_traffic::{ApplicationTraffic, Generated};
use crate::workload::params::Workload;

/// Divisor of the number of requested values: more missing ones show that the store does not keep what it is given.
const MAX_MISSING: u64 = 20;

impl TestbedConfig {
    /// Returns the traffic of the application.
    pub(super) fn application_traffic(&self) -> ApplicationTraffic {
        ApplicationTraffic {
            application: self.application,
            workload: self.workload,
            sizes: self.packet_bytes,
            flows: self.flows,
            steering: self.steering,
            pipes: self.pipes,
            cores: self.cores,
            keys: KEYS as u64,
            backends: BACKENDS,
        }
    }

    /// Checks that the key-value store has nearly all values.
    ///
    /// # Errors
    /// Returns `check` if it has not.
    pub(super) fn check_missing(&self, report: &Report) -> Result<(), Failure> {
        let values = report.received.saturating_mul(self.workload.requests_per_packet.into());
        match report.missing {
            Some(missing) if missing > values / MAX_MISSING => Err(Failure::check(format!(
                "the key-value store has no value for {missing} of {values} requests"
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that there is traffic of the configured workload for the configured application.
    ///
    /// # Errors
    /// Returns `unsupported` with what to use instead.
    pub(super) fn check_workload(&self) -> Result<(), Failure> {
        self.application_traffic().check()?;
        if self.workload.workload == Workload::SynFlood && self.interface == Interface::Dpdk {
            return Err(Failure::unsupported(
                "testpmd exchanges the addresses in which syn-flood has its marks",
                "use another workload",
            ));
        }
        Ok(())
    }

    /// Checks that a closed loop can have this application.
    ///
    /// # Errors
    /// Returns `unsupported` with what to use instead.
    pub(super) fn check_closed_loop(&self) -> Result<(), Failure> {
        let is_receiver = self.expectation() == Expectation::Nothing;
        if is_receiver && self.interface.notify().is_none() {
            return Err(Failure::unsupported(
                "a closed loop needs to know when packets are consumed, which only pipes tell",
                "use pipes or an offered load",
            ));
        }
        Ok(())
    }

    /// Returns what the application returns.
    pub fn expectation(&self) -> Expectation {
        match self.interface {
            Interface::Dpdk => self.dpdk.expectation(),
            Interface::Pipes
            | Interface::PipesPerPacket
            | Interface::PipesPrefetch
            | Interface::Descriptors
            | Interface::AfXdp
            | Interface::AfPacket
            | Interface::Tap => self.application_traffic().expectation(),
        }
    }

    /// Returns how many times the traffic is in memory: twice if it has images.
    pub(super) fn traffic_copies(&self) -> u64 {
        match self.expectation() {
            Expectation::Images | Expectation::Answers => 2,
            Expectation::Same | Expectation::Byte | Expectation::Nothing => 1,
        }
    }

    /// Generates the traffic, with what the application is expected to return. It is replayed endlessly.
    ///
    /// # Errors
    /// Returns why it cannot be generated.
    pub(super) fn traffic(&self) -> Result<Generated, Failure> {
        let of = self.application_traffic();
        let generated = of.packets()?;
        // The kernel guarantees the order of a flow only.
        let generated = match self.interface.link() {
            Some(_) => generated,
            None => generated.map(|traffic| of.in_order(traffic))?,
        };
        match self.interface {
            Interface::Dpdk => Ok(generated.map(|traffic| self.dpdk.with_expected(traffic))?),
            Interface::Pipes
            | Interface::PipesPerPacket
            | Interface::PipesPrefetch
            | Interface::Descriptors
            | Interface::AfXdp
            | Interface::AfPacket
            | Interface::Tap => Ok(generated.map(|traffic| of.with_expected(traffic))?),
        }
    }
}

#[cfg(test)]
mod tests {
    use lab::sample::FailureKind;

    use super::super::testbed_config::config;
    use crate::wire::sample::Sizes;

    #[test]
    fn impossible_workloads_are_refused_with_another() {
        for (levels, said) in [
            (&[("application", "key-value")][..], "use workload zipf-0.99 or uniform"),
            (&[("application", "log-monitor"), ("workload", "uniform")], "use workload in-turn"),
            (&[("workload", "cached"), ("flows", "3")], "leave flows at per-pipe"),
            (&[("application", "key-value"), ("workload", "uniform"), ("flows", "3")], "per-pipe"),
            (
                &[
                    ("application", "key-value"),
                    ("workload", "uniform"),
                    ("steering", "hash"),
                    ("pipes", "2"),
                    ("cores", "2"),
                ],
                "use steering rules",
            ),
            (&[("workload", "syn-flood"), ("packet_bytes", "128")], "use packet_bytes 64"),
            (&[("workload", "syn-flood"), ("interface", "dpdk")], "use another workload"),
        ] {
            let failure = config(levels).check_workload().unwrap_err();
            assert_eq!(failure.kind, FailureKind::Unsupported);
            let text = failure.to_string();
            assert!(text.contains(said) && !text.contains('\n'), "{text}");
        }
        for levels in [
            &[][..],
            &[("workload", "syn-flood")],
            &[("application", "key-value"), ("workload", "zipf-0.99"), ("steering", "hash")],
            &[("application", "log-monitor"), ("flows", "100")],
        ] {
            config(levels).check_workload().unwrap();
        }
    }

    #[test]
    fn sizes_are_those_of_the_traffic() {
        let size = |levels: &[(&str, &str)]| config(levels).packet_bytes;
        assert_eq!(size(&[("packet_bytes", "imix")]), Sizes::Imix);
        assert_eq!(size(&[("application", "log-monitor")]), Sizes::One(1518));
        let requests =
            |count| size(&[("application", "key-value"), ("requests_per_packet", count)]);
        assert_eq!([requests("1"), requests("60")], [Sizes::One(94), Sizes::One(1510)]);
    }

    #[test]
    fn a_closed_loop_of_a_receiver_needs_pipes() {
        let of = |interface| {
            config(&[("application", "log-monitor"), ("interface", interface)]).check_closed_loop()
        };
        of("pipes").unwrap();
        let failure = of("descriptors").unwrap_err();
        assert!(failure.to_string().contains("use pipes or an offered load"), "{failure}");
        config(&[("interface", "descriptors")]).check_closed_loop().unwrap();
    }
}
