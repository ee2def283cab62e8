//! The traffic of a testbed: its sizes and memory, and how it reaches the pipes or queues.

// Levels may be any number, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use lab::factor::{LevelType, Levels};
use lab::sample::Failure;

use super::params::Interface;
use super::testbed_config::TestbedConfig;
use crate::nic::PlacementOrder;
use crate::nic::flow_table::CAPACITY;
use crate::steering::Steering;
use crate::wire::sample::{CHECK_SEQUENCE, MAX_SIZE, MIN_SIZE, Sizes};
use crate::wire::traffic::{CACHE_LINE, WIRE_OVERHEAD, lines_of};

/// Sizes as levels: `64` to `1518`, or `imix`.
impl LevelType for Sizes {
    const LEVELS: Levels = Levels::Checked(sizes);

    fn from_level(level: &str) -> Option<Self> {
        level.parse().ok()
    }
}

fn sizes(text: &str) -> Result<String, String> {
    match text.parse() {
        Ok(Sizes::Imix) => Ok(text.into()),
        Ok(Sizes::One(size)) if (MIN_SIZE..=MAX_SIZE).contains(&size) => Ok(size.to_string()),
        _ => Err(format!("'{text}' is not 'imix' or a number from {MIN_SIZE} to {MAX_SIZE}")),
    }
}

impl TestbedConfig {
    /// Returns the mean size of a packet on the wire, with preamble and gap, in bits.
    pub fn wire_bits(&self) -> f64 {
        let overhead = WIRE_OVERHEAD.saturating_sub(u32::from(CHECK_SEQUENCE));
        self.packet_bytes.mean(|size| f64::from(overhead) + f64::from(size)) * 8.0
    }

    /// Returns the mean number of flits of a packet.
    pub(super) fn mean_flits(sizes: Sizes) -> f64 {
        sizes.mean(|size| lines_of(size.saturating_sub(CHECK_SEQUENCE)) as f64)
    }

    /// Returns the size of the traffic and its images in memory, in bytes.
    pub(super) fn traffic_memory(&self) -> u64 {
        let lines = Self::mean_flits(self.packet_bytes)
            * f64::from(self.application_traffic().packet_count());
        ((lines * CACHE_LINE as f64) as u64).saturating_mul(self.traffic_copies())
    }

    /// Checks that packets can be directed to the pipes or queues as configured.
    ///
    /// # Errors
    /// Returns what cannot be.
    pub(super) fn check_steering(&self) -> Result<(), Failure> {
        let (flows, pipes) = (self.application_traffic().flow_count(), self.pipes);
        let is_grouped =
            matches!(self.packet_bytes, Sizes::One(_)) && self.steering != Steering::RoundRobin;
        if self.placement == PlacementOrder::ByPipe && !is_grouped {
            return Err(Failure::unsupported(
                "packets of several sizes, and those directed round-robin, are not placed by pipe",
                "use placement wire-order",
            ));
        }
        match (self.steering, self.interface) {
            (
                Steering::Hash | Steering::RoundRobin,
                Interface::AfXdp | Interface::AfPacket | Interface::Tap,
            ) => Err(Failure::unsupported(
                "the kernel directs the packets of a link",
                "use steering rules",
            )),
            (Steering::Rules, _) if flows < pipes => Err(Failure::unsupported(
                format!("{flows} flows leave some of {pipes} pipes without packets"),
                "use at least one flow per pipe",
            )),
            (Steering::Rules, _) if flows as usize > CAPACITY => Err(Failure::unsupported(
                format!("the flow table has {CAPACITY} rules, and {flows} flows need one each"),
                "use steering hash",
            )),
            (Steering::Rules | Steering::Hash | Steering::RoundRobin, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::testbed_config::config;
    use super::*;
    use crate::nic::fallback::{Fallback, Policy};
    use crate::nic::flow_table::FlowTable;
    use crate::wire::traffic::Traffic;

    /// Returns the pipe of each packet of `rounds` rounds, as the NIC directs them.
    fn steered(config: &TestbedConfig, traffic: &Traffic, rounds: usize) -> Vec<Option<u32>> {
        let mut table = FlowTable::default();
        for (flow, pipe) in
            config.application_traffic().rules().iter().zip((0..config.pipes).cycle())
        {
            table.insert(*flow, pipe).unwrap();
        }
        let policy = config.steering.policy();
        let pipes = policy.map_or(Vec::new(), |_| (0..config.pipes).collect());
        let mut fallback = Fallback::new(pipes, policy.unwrap_or(Policy::Hash));
        let mut each = Vec::new();
        for _ in 0..rounds {
            each.extend(traffic.packets().iter().map(|packet| {
                table.steer(&packet.flow, packet.syn).or_else(|| fallback.pipe(&packet.flow))
            }));
        }
        each
    }

    proptest! {
        #![proptest_config(crate::tests::cases(64))]

        #[test]
        fn the_packets_of_a_sequence_are_those_of_a_pipe(
            flows in 1u32..100, pipes in 1u32..20,
            steering in prop_oneof![Just("rules"), Just("hash"), Just("round-robin")],
            size in prop_oneof![Just("64"), Just("imix")],
        ) {
            let levels = [
                ("flows", flows.to_string()), ("pipes", pipes.to_string()),
                ("steering", steering.into()), ("packet_bytes", size.into()),
            ];
            let levels = levels.each_ref().map(|(name, level)| (*name, level.as_str()));
            let config = config(&levels);
            prop_assume!(config.check_steering().is_ok());
            check(&config, 3);
        }
    }

    /// Checks that each sequence is that of a pipe, and that size and number of packets are those of the configuration.
    fn check(config: &TestbedConfig, rounds: usize) {
        let traffic = config.traffic().unwrap().traffic;
        let sequences = traffic.sequences().unwrap();
        let (mut of_pipe, mut packets) = (BTreeMap::new(), BTreeMap::<u32, u32>::new());
        for (index, pipe) in steered(config, &traffic, rounds).into_iter().enumerate() {
            let pipe = pipe.expect("a pipe");
            let sequence = sequences[index % traffic.len()];
            assert_eq!(*of_pipe.entry(pipe).or_insert(sequence), sequence);
            *packets.entry(sequence).or_default() += 1;
        }
        assert_eq!(of_pipe.len(), packets.len(), "no two pipes share one");
        let bits = traffic.total_wire_bytes() as f64 * 8.0 / traffic.len() as f64;
        assert!((bits - config.wire_bits()).abs() < 1e-6);
        let flits = traffic.packets().iter().map(|packet| lines_of(packet.length)).sum::<usize>();
        let mean = TestbedConfig::mean_flits(config.packet_bytes);
        assert!((flits as f64 / traffic.len() as f64 - mean).abs() < 1e-6);
    }

    #[test]
    fn the_traffic_of_each_application_reaches_the_pipes_in_order() {
        for (application, workload, steering) in [
            ("maglev", "cached", "rules"),
            ("maglev-enso", "syn-flood", "rules"),
            ("telemetry", "zipf-0.99", "rules"),
            ("telemetry", "uniform", "hash"),
            ("key-value", "uniform", "rules"),
            ("log-monitor", "in-turn", "rules"),
        ] {
            let levels = [
                ("application", application),
                ("workload", workload),
                ("steering", steering),
                ("pipes", "3"),
                ("cores", "2"),
                ("requests_per_packet", "40"),
            ];
            let config = config(&levels);
            config.check_steering().unwrap();
            config.check_workload().unwrap();
            check(&config, 1);
            let traffic = config.traffic().unwrap().traffic;
            assert_eq!(
                traffic.len() as u32,
                config.application_traffic().packet_count(),
                "{application}"
            );
            let has_images = traffic.word().is_some();
            assert_eq!(config.traffic_copies() == 2, has_images, "{application}");
        }
    }

    #[test]
    fn impossible_steering_is_refused() {
        for (levels, said) in [
            ([("flows", "3"), ("pipes", "4"), ("steering", "rules")], "3 flows leave"),
            ([("flows", "8193"), ("pipes", "1"), ("steering", "rules")], "steering hash"),
            ([("interface", "tap"), ("pipes", "1"), ("steering", "hash")], "steering rules"),
        ] {
            let why = config(&levels).check_steering().unwrap_err().to_string();
            assert!(why.contains(said), "{why}");
        }
        let many = [("flows", "65521"), ("pipes", "8191"), ("steering", "round-robin")];
        let why = config(&many).traffic().unwrap_err().to_string();
        assert!(why.contains("multiple of 8191"), "{why}");
        let few = [("flows", "3"), ("pipes", "4"), ("steering", "hash")];
        config(&few).check_steering().unwrap();
    }

    #[test]
    fn the_window_fits_one_pipe_whatever_the_traffic() {
        let window = |levels: &[(&str, &str)]| {
            config(&[&[("depth", "1024"), ("pipes", "4")], levels].concat()).max_window()
        };
        assert_eq!([window(&[]), window(&[("flows", "5")])], [511, 511]);
        assert_eq!(window(&[("flows", "1"), ("steering", "round-robin")]), 511);
    }
}
