//! The interfaces: which engine the NIC has, and which echo the application runs.

// Levels may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::io;
use std::sync::Arc;

use lab::factor::LevelType;
use machine::SysError;

use super::application::Loop;
use super::setting::Setting;
use crate::echo::{self, DescriptorsEcho, PipesEcho};
use crate::generator::{Generator, Order};
use crate::host;
use crate::nic::descriptors::Descriptors;
use crate::nic::layout::FLIT;
use crate::nic::pipes::{Notify, Pipes};
use crate::nic::{Error, Nic, Port, Settings};
use crate::wire::flow::Flow;

/// Bytes of a buffer of descriptors, with the room before it.
const BUFFER: u64 = 2112;

/// How packets reach the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Interface {
    /// Pipes, and a notification of what has come since the last.
    Pipes,
    /// Pipes, and a notification of every packet.
    PipesPerPacket,
    /// Pipes, whose notifications are asked for before they are needed.
    PipesPrefetch,
    /// A descriptor and a buffer for each packet.
    Descriptors,
}

impl Interface {
    /// Bytes of memory that all its rings and buffers take.
    pub fn memory(self, setting: &Setting) -> u64 {
        let each = match self {
            Self::Descriptors => u64::from(setting.depth).saturating_mul(2 * BUFFER),
            Self::Pipes | Self::PipesPerPacket | Self::PipesPrefetch => setting.ring as u64,
        };
        u64::from(setting.pipes).saturating_mul(each)
    }

    /// Starts a NIC that has it.
    ///
    /// # Errors
    /// Where it cannot run.
    pub fn start(
        self,
        cpu: usize,
        setting: &Setting,
        generator: Generator,
    ) -> Result<Nic<Order>, Error> {
        let settings = Settings { cpu, doorbell: setting.doorbell, transfer: setting.transfer };
        let pipes =
            |notify| Pipes::new(notify, (setting.ring / FLIT) as u32, setting.notifications);
        match self {
            Self::Pipes | Self::PipesPrefetch => {
                Nic::start(settings, pipes(Notify::Reactively), generator)
            }
            Self::PipesPerPacket => Nic::start(settings, pipes(Notify::EveryPacket), generator),
            Self::Descriptors => {
                let descriptors = Descriptors::new(setting.depth, setting.depth);
                Nic::start(settings, descriptors, generator)
            }
        }
    }

    /// Runs the echo of one core by it, until the loop's end.
    ///
    /// # Errors
    /// Where it cannot be set up.
    pub(super) fn run(
        self,
        port: &Port,
        setting: &Setting,
        flows: &Arc<[Flow]>,
        run: Loop,
    ) -> Result<(), SysError> {
        match self {
            Self::Pipes | Self::PipesPerPacket | Self::PipesPrefetch => {
                let sizes =
                    host::Sizes { ring: setting.ring, notifications: setting.notifications };
                let prefetch = self == Self::PipesPrefetch;
                let echo = PipesEcho::new(port, sizes, flows, prefetch)?;
                run.run(all_have_a_place(echo, flows)?);
            }
            Self::Descriptors => {
                let sizes = host::descriptors::Sizes { rx: setting.depth, tx: setting.depth };
                run.run(all_have_a_place(DescriptorsEcho::new(port, sizes, flows)?, flows)?);
            }
        }
        Ok(())
    }
}

/// Packets of flows that the NIC cannot tell would be lost by no fault of the interface.
fn all_have_a_place<E: echo::Interface>(echo: E, flows: &[Flow]) -> Result<E, SysError> {
    let without = echo.without_place();
    if without == 0 {
        return Ok(echo);
    }
    Err(SysError {
        attempt: format!("bind {} flows", flows.len()),
        source: io::Error::other(format!(
            "the NIC's flow table has no place for {without} of them"
        )),
        remedy: "ask for fewer pipes".into(),
    })
}
