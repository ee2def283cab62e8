//! Methods with a role on each of two hosts: the `generator` sends packets through a network interface of its host, and the
//! `dut`, the device under test, returns them through one of the other host.
//!
//! All rates and times are taken by the generator, so the clocks of the hosts need not agree. The device under test counts, and
//! answers each message of the generator with the number of packets that it has processed by then.

mod dut;
mod generator;
mod interface;
mod metrics;

use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::option::{OptionValue, SuiteOption};
use lab::sample::Failure;
use machine::tsc::Tsc;

use super::params::{ClosedParams, CommonParams, LoadParams};
use super::testbed::{Testbed, TrialReport};
use super::testbed_config::{Cpus, TestbedConfig};
use super::{UNAVAILABLE, links, one_trial, sample_duration, stall};
use crate::generator::Expectation;
use crate::link::LinkKind;

/// The options that name the interface of each role.
pub(crate) const OPTIONS: [SuiteOption; 2] = [
    SuiteOption {
        name: "generator-interface",
        enables: "interface of the role 'generator' on its host, as [NAMESPACE/]NAME[:QUEUE], e.g. eth1",
        value: OptionValue::Text,
    },
    SuiteOption {
        name: "dut-interface",
        enables: "interface of the role 'dut' on its host, as [NAMESPACE/]NAME[:QUEUE], e.g. eth1",
        value: OptionValue::Text,
    },
];

/// Name of the value with which the device under test answers: the packets that it has processed.
const PACKETS: &str = "packets";

/// Closed loop: sends the next packet as soon as one is echoed.
pub(super) static RATE: TwoHostMethod<ClosedParams> = TwoHostMethod {
    name: "two-host-rate",
    how: "The generator keeps a fixed number of packets in flight to the application on the other host; its \
          clock gives the rate, from the first packet sent to the last received. It checks returned packets, \
          and neither side may count more packets than the one before it.",
    load: |params, config| Load::Window(params.window.min(config.max_window())),
};

/// Open loop with round-trip times: sends at a fixed rate.
pub(super) static RTT: TwoHostMethod<LoadParams> = TwoHostMethod {
    name: "two-host-rtt",
    how: "The generator sends at a fixed rate to the application on the other host and takes round-trip times \
          by its own clock, of every packet or one in up to 19. It checks returned packets, and neither side \
          may count more packets than the one before it.",
    load: |params, _| Load::Rate(params.load.0),
};

/// A method of two roles; only these fields differ between methods.
pub(super) struct TwoHostMethod<P> {
    name: &'static str,
    /// How a sample is timed and verified, in two sentences.
    how: &'static str,
    load: fn(&P, &TestbedConfig) -> Load,
}

/// What the generator sends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Load {
    /// As fast as packets are echoed, with this number in flight.
    Window(u64),
    /// At this rate, in bit/s on the wire.
    Rate(f64),
}

impl Load {
    /// Runs a trial, with round-trip times unless it is a closed loop.
    fn run(self, testbed: &Testbed, duration: Duration) -> Result<TrialReport, Failure> {
        match self {
            Self::Window(window) => testbed.closed(window, duration),
            Self::Rate(rate) => testbed.offer(rate, duration, true),
        }
    }

    /// Returns why a trial is void, or `None` if the loops of this host are no reason for it.
    fn void(self, trial: &TrialReport, tsc: &Tsc) -> Option<String> {
        match self {
            Self::Window(_) => stall::void_rate(trial),
            Self::Rate(_) => stall::void(trial, tsc),
        }
    }
}

/// A role of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Dut,
    Generator,
}

impl Role {
    fn of(context: &Context) -> Result<Self, Failure> {
        match context.role {
            "dut" => Ok(Self::Dut),
            "generator" => Ok(Self::Generator),
            other => Err(Failure::failed(format!(
                "role '{other}' is unknown; declare the experiment with roles = [\"dut\", \"generator\"]"
            ))),
        }
    }

    /// Returns the option that names its interface.
    fn option(self) -> &'static str {
        match self {
            Self::Generator => OPTIONS[0].name,
            Self::Dut => OPTIONS[1].name,
        }
    }

    /// Returns the CPU of its loop. Both roles may run on one host, so they never choose the same of two.
    fn cpu(self, allowed: &[usize]) -> Result<usize, Failure> {
        if let [only] = allowed {
            return Ok(*only);
        }
        let Cpus { nic, applications } = Cpus::select(allowed, 1)?;
        Ok(match self {
            Self::Generator => nic,
            Self::Dut => applications[0],
        })
    }
}

/// What a role needs for a sample.
struct Side<'a> {
    config: &'a TestbedConfig,
    load: Load,
    cpu: usize,
    tsc: &'static Tsc,
}

impl<P: Params + AsRef<CommonParams>> Method for TwoHostMethod<P> {
    type Params = P;

    fn name(&self) -> &'static str {
        self.name
    }

    fn how(&self) -> &'static str {
        self.how
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    /// Checks what is the same on every host. What a host lacks is known to its role only.
    fn available(&self, params: &P) -> Result<(), Failure> {
        link_of(&TestbedConfig::new(params.as_ref())).map(|_| ())
    }

    fn expected(&self, params: &P, budget: Duration) -> Duration {
        match self.available(params) {
            Ok(()) => sample_duration(params.as_ref(), one_trial(budget)),
            Err(_) => UNAVAILABLE,
        }
    }

    fn foreign_code(&self, params: &P) -> Vec<&'static str> {
        params.as_ref().foreign_code()
    }

    fn probe(&self) -> Result<Box<dyn Probe<P>>, Failure> {
        Ok(Box::new(TwoHostProbe { load: self.load }))
    }
}

/// The probe of a [`TwoHostMethod`].
struct TwoHostProbe<P> {
    load: fn(&P, &TestbedConfig) -> Load,
}

impl<P: Params + AsRef<CommonParams>> Probe<P> for TwoHostProbe<P> {
    fn measure(&mut self, context: &mut Context, params: &P) -> Result<Measurement, Failure> {
        let config = TestbedConfig::new(params.as_ref());
        let kind = link_of(&config)?;
        let role = Role::of(context)?;
        let (link, watch) = interface::open(role, kind, context.options)?;
        let (cpu, tsc) = (role.cpu(context.cpus)?, context.tsc()?);
        let side = Side { config: &config, load: (self.load)(params, &config), cpu, tsc };
        match role {
            Role::Generator => generator::measure(context, &side, link, watch),
            Role::Dut => dut::measure(context, &side, link, watch),
        }
    }
}

/// Returns how packets pass the interfaces of a configuration.
///
/// # Errors
/// Returns `unsupported` if it has no interfaces, or an application that returns no packets.
fn link_of(config: &TestbedConfig) -> Result<LinkKind, Failure> {
    let kind = config.interface.link().filter(|kind| *kind != LinkKind::Tap).ok_or_else(|| {
        Failure::unsupported(
            format!("interface {} does not connect two hosts", config.interface),
            "use af-xdp or af-packet",
        )
    })?;
    links::check_config(config)?;
    config.check_steering()?;
    config.check_application()?;
    config.check_workload()?;
    match config.expectation() {
        Expectation::Nothing => {
            let name = config.application.name();
            Err(Failure::unsupported(
                format!("{name} returns no packets"),
                "use another application",
            ))
        }
        Expectation::Same | Expectation::Byte | Expectation::Images | Expectation::Answers => {
            Ok(kind)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testbed_config::config;
    use super::*;

    #[test]
    fn only_interfaces_of_linux_connect_hosts() {
        let link = |levels: &[(&str, &str)]| {
            link_of(&config(&[&[("depth", "4096")], levels].concat())).map_err(|why| why.why)
        };
        assert_eq!(link(&[("interface", "af-packet")]), Ok(LinkKind::AfPacket));
        assert_eq!(link(&[("interface", "af-xdp")]), Ok(LinkKind::AfXdp));
        for (levels, expected) in [
            (&[("interface", "pipes")][..], "does not connect two hosts"),
            (&[("interface", "tap")], "does not connect two hosts"),
            (&[("interface", "af-xdp"), ("cores", "2"), ("pipes", "2")], "one core"),
            (&[("interface", "af-xdp"), ("application", "log-monitor")], "returns no packets"),
        ] {
            let why = link(levels).unwrap_err();
            assert!(why.contains(expected), "{levels:?}: {why}");
        }
    }

    #[test]
    fn roles_on_one_host_use_different_cpus() {
        let cpus: Vec<_> = machine::topology::allowed_cpus();
        if cpus.len() < 2 {
            return machine::untested::note("stream: two roles on one host", &"one CPU");
        }
        assert_ne!(Role::Dut.cpu(&cpus), Role::Generator.cpu(&cpus));
        assert_eq!(Role::Dut.cpu(&[7]), Ok(7), "a role needs one CPU");
    }
}
