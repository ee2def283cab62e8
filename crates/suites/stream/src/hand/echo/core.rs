//! A core that echoes, and what it shares with who watches it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use machine::Refusal;

use crate::echo::{DescriptorsEcho, Interface, PipesEcho, work};
use crate::host::{self, descriptors};
use crate::nic::{Form, Port};
use crate::wire::flow::Flow;

/// What the cores share with who watches them.
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// Packets that each core has echoed.
    pub(super) packets: Vec<Count>,
    /// Pipes that get none, for the NIC has no place for their flows.
    pub(super) without_place: AtomicUsize,
    /// Where all wait until the last is ready, and the cores until the last has come to its end.
    pub(super) ready: Barrier,
    pub(super) end: Barrier,
}

/// On lines of its own, for it is written often.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Count(pub(super) AtomicU64);

impl Shared {
    /// Of so many cores, none of which has begun.
    pub(super) fn new(cores: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            packets: (0..cores).map(|_| Count::default()).collect(),
            without_place: AtomicUsize::new(0),
            // Who watches them waits too.
            ready: Barrier::new(cores.saturating_add(1)),
            end: Barrier::new(cores),
        }
    }

    /// Packets that all have echoed.
    pub(super) fn all(&self) -> u64 {
        self.packets.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }
}

/// One core.
pub(super) struct Core<'a> {
    pub(super) count: &'a AtomicU64,
    pub(super) shared: &'a Shared,
    pub(super) cycles: u32,
}

impl Core<'_> {
    /// Echoes until all stop; does the last thing before its pipes go.
    pub(super) fn run(
        self,
        port: &Port,
        form: Form,
        flows: &[Flow],
        prefetch: bool,
        last: impl FnOnce(),
    ) -> Result<(), Refusal> {
        match form {
            Form::Pipes { ring, notifications, .. } => {
                let sizes = host::Sizes { ring, notifications };
                self.echo(&mut PipesEcho::new(port, sizes, flows, prefetch)?, last);
            }
            Form::Descriptors { rx, tx } => {
                let sizes = descriptors::Sizes { rx, tx };
                self.echo(&mut DescriptorsEcho::new(port, sizes, flows)?, last);
            }
        }
        Ok(())
    }

    fn echo(&self, echo: &mut impl Interface, last: impl FnOnce()) {
        self.shared.without_place.fetch_add(echo.without_place(), Ordering::Relaxed);
        self.shared.ready.wait();
        let (mut echoed, cycles) = (0_u64, self.cycles);
        while !self.shared.stop.load(Ordering::Relaxed) {
            // Where the NIC has gone, who watches sees it too.
            let Ok(packets) = echo.turn(|packet| work(packet, cycles)) else { break };
            if packets > 0 {
                echoed = echoed.wrapping_add(packets);
                self.count.store(echoed, Ordering::Relaxed);
            }
        }
        self.shared.end.wait();
        last();
    }
}
