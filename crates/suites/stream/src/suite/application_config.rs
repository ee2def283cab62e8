//! The application of a testbed: its options, and which points have one.

// Levels may be any number, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::Duration;

use lab::sample::Failure;

use super::alone;
use super::params::Interface;
use super::testbed_config::TestbedConfig;
use crate::application::{ApplicationKind, ApplicationSpec, BACKENDS, KEYS, backend_addresses};
use crate::host::descriptors::DriverKind;

/// Time to store a key: several times what it takes.
const PER_KEY: Duration = Duration::from_nanos(100);
/// Time of the measurements of an application and its engine alone.
const WITH_ENGINE: Duration = alone::BUDGET.saturating_mul(2);
/// Time to compile the rules of the log monitor: several times what it takes.
const COMPILE: Duration = Duration::from_secs(1);

impl TestbedConfig {
    /// Returns the application with its options.
    ///
    /// # Errors
    /// Returns `unavailable` if this machine lacks something.
    pub(super) fn application_spec(&self) -> Result<ApplicationSpec, Failure> {
        let backends = || backend_addresses(BACKENDS);
        Ok(match self.application {
            ApplicationKind::Echo => ApplicationSpec::Echo { nops: self.nops },
            ApplicationKind::MaglevEnso => ApplicationSpec::MaglevEnso { backends: backends() },
            ApplicationKind::Maglev => ApplicationSpec::Maglev { backends: backends() },
            ApplicationKind::KeyValue => ApplicationSpec::KeyValue { keys: KEYS, filled: true },
            ApplicationKind::LogMonitor => ApplicationSpec::log_monitor(&[])?,
            ApplicationKind::Telemetry => ApplicationSpec::telemetry(),
        })
    }

    /// Returns the memory of the application, in bytes.
    pub(super) fn application_memory(&self) -> u64 {
        match self.application {
            ApplicationKind::KeyValue => {
                ApplicationSpec::KeyValue { keys: KEYS, filled: true }.memory(self.cores)
            }
            ApplicationKind::Echo
            | ApplicationKind::MaglevEnso
            | ApplicationKind::Maglev
            | ApplicationKind::LogMonitor
            | ApplicationKind::Telemetry => 0,
        }
    }

    /// Estimates how long the application needs until it can process packets.
    pub(super) fn application_start(&self) -> Duration {
        match self.application {
            ApplicationKind::Echo => Duration::ZERO,
            // Each core looks at all keys.
            ApplicationKind::KeyValue => {
                WITH_ENGINE.saturating_add(PER_KEY.saturating_mul(KEYS as u32))
            }
            ApplicationKind::LogMonitor => WITH_ENGINE.saturating_add(COMPILE),
            ApplicationKind::MaglevEnso | ApplicationKind::Maglev | ApplicationKind::Telemetry => {
                alone::BUDGET
            }
        }
    }

    /// Checks that there is the configured application over the configured interface.
    ///
    /// # Errors
    /// Returns `unsupported` if there is not, `unavailable` if this machine lacks something.
    pub(super) fn check_application(&self) -> Result<(), Failure> {
        if self.application == ApplicationKind::Echo {
            return Ok(());
        }
        let name = self.application.name();
        if self.interface == Interface::Dpdk {
            return Err(Failure::unsupported("the application of dpdk is testpmd", "use echo"));
        }
        if self.nops > 0 {
            return Err(Failure::unsupported(
                format!("only the echo executes NOPs, not {name}"),
                "use nops 0",
            ));
        }
        let is_default = self.driver.kind() == DriverKind::default();
        if self.interface == Interface::Descriptors && !is_default {
            let why = format!("only the echo has other drivers than the default, not {name}");
            return Err(Failure::unsupported(why, "use the default driver, or echo"));
        }
        Ok(self.application.available()?)
    }
}

#[cfg(test)]
mod tests {
    use lab::sample::FailureKind;

    use super::super::testbed_config::config;
    use super::*;

    #[test]
    fn only_the_echo_has_every_interface_and_driver() {
        for (levels, said) in [
            ([("application", "maglev"), ("interface", "dpdk")], "testpmd"),
            ([("application", "telemetry"), ("nops", "1")], "NOPs, not telemetry"),
            ([("application", "key-value"), ("mbuf", "none")], "other drivers"),
        ] {
            let levels = [&[("interface", "descriptors")], &levels[..]].concat();
            let failure = config(&levels).check_application().unwrap_err();
            assert_eq!(failure.kind, FailureKind::Unsupported, "{failure}");
            assert!(failure.why.contains(said), "{failure}");
            let of_echo = levels.into_iter().filter(|(name, _)| *name != "application");
            config(&of_echo.collect::<Vec<_>>()).check_application().unwrap();
        }
    }

    #[test]
    fn a_store_needs_memory_and_time() {
        let [echo, store] = ["echo", "key-value"]
            .map(|name| config(&[("application", name), ("cores", "2"), ("pipes", "2")]));
        assert_eq!((echo.application_memory(), store.application_memory()), (0, 256 << 20));
        assert!(store.application_start() > echo.application_start());
        assert_eq!(store.application_spec().unwrap().kind(), ApplicationKind::KeyValue);
    }
}
