//! A core that echoes, and what it shares with who watches it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use machine::SysError;

use crate::echo::{DescriptorsEcho, Echo, PipesEcho, work};
use crate::host::{self, descriptors};
use crate::nic::{InterfaceConfig, Port};
use crate::wire::Flow;

/// What the cores share with who watches them.
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// Packets that each core has echoed.
    pub(super) packets: Vec<Count>,
    /// Pipes that get none, for the NIC has no place for their flows.
    pub(super) unbound: AtomicUsize,
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
            unbound: AtomicUsize::new(0),
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

/// The meetings of a core with the others. It comes to each, even if it fails or panics before: they would wait
/// for ever.
pub(super) struct Meetings<'a> {
    shared: &'a Shared,
    was_ready: bool,
    was_at_end: bool,
}

impl<'a> Meetings<'a> {
    /// None was yet.
    pub(super) fn of(shared: &'a Shared) -> Self {
        Self { shared, was_ready: false, was_at_end: false }
    }

    fn ready(&mut self) {
        self.was_ready = true;
        self.shared.ready.wait();
    }

    fn end(&mut self) {
        self.was_at_end = true;
        self.shared.end.wait();
    }
}

impl Drop for Meetings<'_> {
    fn drop(&mut self) {
        if self.was_at_end {
            return;
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        if !self.was_ready {
            self.ready();
        }
        self.end();
    }
}

/// One core.
pub(super) struct Core<'a> {
    pub(super) count: &'a AtomicU64,
    pub(super) meetings: Meetings<'a>,
    pub(super) cycles: u32,
}

impl Core<'_> {
    /// Echoes until all stop; does the last thing before its pipes go. One that ends before its time stops all.
    pub(super) fn run(
        mut self,
        port: &Port,
        config: InterfaceConfig,
        flows: &[Flow],
        prefetch: bool,
        last: impl FnOnce(),
    ) -> Result<(), SysError> {
        match config {
            InterfaceConfig::Pipes { ring, notifications, .. } => {
                let sizes = host::Sizes { ring, notifications };
                self.echo(&mut PipesEcho::new(port, sizes, flows, prefetch)?, last);
            }
            InterfaceConfig::Descriptors { rx, tx } => {
                let sizes = descriptors::Sizes { rx, tx };
                self.echo(&mut DescriptorsEcho::new(port, sizes, flows)?, last);
            }
        }
        Ok(())
    }

    fn echo(&mut self, echo: &mut impl Echo, last: impl FnOnce()) {
        let shared = self.meetings.shared;
        shared.unbound.fetch_add(echo.unbound(), Ordering::Relaxed);
        self.meetings.ready();
        let (mut echoed, cycles) = (0_u64, self.cycles);
        while !shared.stop.load(Ordering::Relaxed) {
            // Where the NIC has gone, who watches sees it too.
            let Ok(packets) = echo.poll(|packet| work(packet, cycles)) else { break };
            if packets > 0 {
                echoed = echoed.wrapping_add(packets);
                self.count.store(echoed, Ordering::Relaxed);
            }
        }
        self.meetings.end();
        last();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::host::NicClosed;

    /// Where a core panics.
    #[derive(Clone, Copy, PartialEq)]
    enum Panics {
        Nowhere,
        BeforeReady,
        BeforeEnd,
    }

    impl Panics {
        fn here(self, at: Self) {
            if self == at {
                std::panic::resume_unwind(Box::new("planted"));
            }
        }
    }

    impl Echo for Panics {
        fn poll(&mut self, _: impl FnMut(&mut [u8])) -> Result<u64, NicClosed> {
            self.here(Self::BeforeEnd);
            Ok(0)
        }

        fn unbound(&self) -> usize {
            self.here(Self::BeforeReady);
            0
        }
    }

    #[test]
    fn no_core_waits_for_one_that_panicked() {
        for panics in [Panics::BeforeReady, Panics::BeforeEnd] {
            let shared = Arc::new(Shared::new(3));
            let (ended, ends) = channel();
            for core in 0..3 {
                let (shared, ended) = (Arc::clone(&shared), ended.clone());
                let mut interface = if core == 1 { panics } else { Panics::Nowhere };
                std::thread::spawn(move || {
                    let echoed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        let meetings = Meetings::of(&shared);
                        let count = &shared.packets[core].0;
                        Core { count, meetings, cycles: 0 }.echo(&mut interface, || {});
                    }));
                    ended.send((core, echoed.is_ok())).unwrap();
                });
            }
            // Who watches comes too; a hang must fail the test.
            let watching = Arc::clone(&shared);
            std::thread::spawn(move || watching.ready.wait());
            let mut all: Vec<_> =
                (0..3).map(|_| ends.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
            all.sort_unstable();
            assert_eq!(all, [(0, true), (1, false), (2, true)]);
            assert!(shared.stop.load(Ordering::Relaxed));
        }
    }
}
