//! How the application has packets directed to its pipes or queues: by a rule per flow, or by the NIC's fallback.

// Numbers may be any levels, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use lab::factor::LevelType;

use crate::nic::configuration::Configuration;
use crate::nic::fallback::Policy;
use crate::wire::Flow;

/// How packets reach the pipes or queues of an application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, LevelType, clap::ValueEnum)]
pub enum Steering {
    /// By a rule per flow in the NIC's flow table; flow *i* goes to pipe *i* modulo the number of pipes.
    #[default]
    Rules,
    /// Without rules, by the hash of the flow, as in receive-side scaling.
    Hash,
    /// Without rules, packet by packet to each pipe in turn.
    RoundRobin,
}

impl Steering {
    /// Returns the policy for packets without a rule; `None` if each flow has one.
    pub fn policy(self) -> Option<Policy> {
        match self {
            Self::Rules => None,
            Self::Hash => Some(Policy::Hash),
            Self::RoundRobin => Some(Policy::RoundRobin),
        }
    }
}

/// The pipes or queues of one core, and which packets the NIC is to direct to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CorePipes {
    /// Number of pipes or queues.
    pub pipes: usize,
    /// Flows with a rule, each with the index of its pipe on this core.
    pub rules: Vec<(usize, Flow)>,
    /// Request for packets without a rule. It concerns the pipes of all cores, so one of them makes it.
    pub fallback: Option<Configuration>,
}

impl CorePipes {
    /// Returns one pipe for packets of all flows.
    pub fn of_all_flows() -> Self {
        let fallback = Configuration::Fallback { pipes: 1, round_robin: false };
        Self { pipes: 1, rules: Vec::new(), fallback: Some(fallback) }
    }

    /// Returns one pipe per flow, each with a rule.
    pub fn per_flow(flows: &[Flow]) -> Self {
        Self {
            pipes: flows.len(),
            rules: flows.iter().copied().enumerate().collect(),
            fallback: None,
        }
    }

    /// Distributes `pipes` pipes over cores, `per_core` to each but the last, which may have fewer, and `flows` over the pipes.
    /// The flows are rules, in the order in which packets of all flows arrive.
    pub fn of_cores(
        flows: &[Flow],
        pipes: usize,
        per_core: usize,
        steering: Steering,
    ) -> Vec<Self> {
        let (pipes, per_core) = (pipes.max(1), per_core.max(1));
        let mut cores: Vec<_> = (0..pipes)
            .step_by(per_core)
            .map(|first| Self {
                pipes: per_core.min(pipes.saturating_sub(first)),
                ..Self::default()
            })
            .collect();
        match steering.policy() {
            None => {
                let by_pipe = flows.iter().zip((0..pipes).cycle());
                for (flow, pipe) in by_pipe {
                    let core = pipe.checked_div(per_core).unwrap_or(0);
                    let on_core = pipe.checked_rem(per_core).unwrap_or(0);
                    cores[core].rules.push((on_core, *flow));
                }
            }
            Some(policy) => {
                let round_robin = policy == Policy::RoundRobin;
                let all = u32::try_from(pipes).unwrap_or(u32::MAX);
                cores[0].fallback = Some(Configuration::Fallback { pipes: all, round_robin });
            }
        }
        cores
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::frame::UDP;

    fn flows(count: u32) -> Vec<Flow> {
        let flow = |to: u32| Flow {
            source: 0.into(),
            destination: to.into(),
            source_port: 0,
            destination_port: 80,
            protocol: UDP,
        };
        (0..count).map(flow).collect()
    }

    proptest! {
        #[test]
        fn flow_i_goes_to_pipe_i_modulo_all(count in 0u32..200, pipes in 1usize..40, per_core in 1usize..12) {
            let flows = flows(count);
            let cores = CorePipes::of_cores(&flows, pipes, per_core, Steering::Rules);
            prop_assert_eq!(cores.len(), pipes.div_ceil(per_core));
            prop_assert_eq!(cores.iter().map(|core| core.pipes).sum::<usize>(), pipes);
            let mut found = vec![None; count as usize];
            for (core, of) in cores.iter().enumerate() {
                prop_assert!(of.fallback.is_none());
                for (pipe, flow) in &of.rules {
                    prop_assert!(*pipe < of.pipes);
                    let before = found[flow.destination.to_bits() as usize].replace(core * per_core + pipe);
                    prop_assert!(before.is_none());
                }
            }
            let expected: Vec<_> = (0..count as usize).map(|flow| Some(flow % pipes)).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn one_core_requests_the_fallback_for_all_pipes() {
        for (steering, round_robin) in [(Steering::Hash, false), (Steering::RoundRobin, true)] {
            let cores = CorePipes::of_cores(&flows(9), 5, 2, steering);
            let pipes: Vec<_> = cores.iter().map(|core| core.pipes).collect();
            assert_eq!(pipes, [2, 2, 1]);
            assert!(cores.iter().all(|core| core.rules.is_empty()));
            assert_eq!(cores[0].fallback, Some(Configuration::Fallback { pipes: 5, round_robin }));
            assert!(cores[1..].iter().all(|core| core.fallback.is_none()));
        }
    }
}
