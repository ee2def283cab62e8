//! One core of the application, and the statistics of its loop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use lab::sample::Failure;
use machine::SysError;
use machine::pin::spawn_pinned;

use super::params::Interface;
use super::stall::StallThreshold;
use super::testbed_config::TestbedConfig;
use crate::echo::{DescriptorsEcho, Echo, PipesEcho, work};
use crate::host;
use crate::nic::{Port, ticks};
use crate::wire::Flow;

/// Request number that ends the loop.
const END: u32 = u32::MAX;

/// Statistics of one core's loop since they were last read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct LoopStats {
    /// Packets echoed in iterations that did not stall.
    pub worked: u64,
    /// Duration of those iterations that had packets, in ticks.
    pub busy: u64,
    /// Duration of the longest iteration, in ticks.
    pub gap: u64,
    /// Duration of all stalled iterations with packets, in ticks. Packets that arrive during a stall show up in that
    /// iteration or in the next.
    pub stalled: u64,
    /// Duration of the longest of them, in ticks.
    pub longest_stall: u64,
    /// Duration of the last iteration, in ticks, if it stalled without packets; otherwise 0.
    last_stall: u64,
    /// Core clock when the statistics were read, in Hz.
    pub core_hertz: f64,
}

/// The loop's answer to a request.
type Answer = Result<LoopStats, Failure>;

/// One core of the application.
pub(super) struct Application {
    requests: Arc<AtomicU32>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl Application {
    /// Starts a core with one pipe or queue per flow, and waits until its loop runs.
    ///
    /// # Errors
    /// Returns why the thread or its echo cannot be set up.
    pub(super) fn start(
        cpu: usize,
        port: Port,
        config: &TestbedConfig,
        flows: Arc<[Flow]>,
        threshold: StallThreshold,
    ) -> Result<Self, Failure> {
        let requests = Arc::new(AtomicU32::new(0));
        let (answer, answers) = sync_channel(1);
        let config = config.clone();
        let run = Loop {
            requests: Arc::clone(&requests),
            answer: answer.clone(),
            nops: config.nops,
            threshold,
        };
        let body = move || {
            if let Err(why) = run_echo(&port, &config, &flows, run) {
                // `start` waits for this.
                let _ = answer.send(Err(why.into()));
            }
        };
        let thread = spawn_pinned(cpu, body).map_err(|why| {
            Failure::failed(format!("run the application on CPU {cpu}: {why}; name an allowed CPU"))
        })?;
        let application = Self { requests, answers, thread: Some(thread) };
        application.answer()?;
        Ok(application)
    }

    /// Returns the loop's statistics since the last call. The loop answers in an iteration without packets.
    ///
    /// # Errors
    /// Returns `failed` if the loop has stopped.
    pub(super) fn stats(&self) -> Result<LoopStats, Failure> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.answer()
    }

    fn answer(&self) -> Result<LoopStats, Failure> {
        let gone = || Failure::failed("the application stopped early");
        self.answers.recv().map_err(|_| gone())?
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.requests.store(END, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed, and shows as a missing answer.
            let _ = thread.join();
        }
    }
}

/// The polling loop of one core.
pub(super) struct Loop {
    requests: Arc<AtomicU32>,
    answer: SyncSender<Answer>,
    nops: u32,
    threshold: StallThreshold,
}

impl Loop {
    /// Echoes packets until the application is dropped or the NIC closes. Not inlined, so that the set-up of the echo does
    /// not affect the registers of the timed loop.
    #[inline(never)]
    pub(super) fn run(self, mut echo: impl Echo) {
        let Self { requests, answer, nops, threshold } = self;
        let mut answered = 0;
        // Reports that the loop runs.
        if answer.send(Ok(LoopStats::default())).is_err() {
            return;
        }
        let mut stats = LoopStats::default();
        let mut last = ticks();
        loop {
            let request = requests.load(Ordering::Relaxed);
            let Ok(packets) = echo.poll(|packet| work(packet, nops)) else { return };
            let now = ticks();
            let elapsed = now - last;
            last = now;
            stats.record(elapsed, packets, &threshold);
            if request != answered && (packets == 0 || request == END) {
                std::hint::cold_path();
                answered = request;
                let taken = stats.take();
                if request == END || answer.send(taken).is_err() {
                    return;
                }
                last = ticks();
            }
        }
    }
}

/// Runs the echo of one core over the configured interface until the loop ends.
///
/// # Errors
/// Returns why the echo cannot be set up.
fn run_echo(
    port: &Port,
    config: &TestbedConfig,
    flows: &Arc<[Flow]>,
    echo_loop: Loop,
) -> Result<(), SysError> {
    match config.interface {
        Interface::Pipes | Interface::PipesPerPacket | Interface::PipesPrefetch => {
            let sizes = host::Sizes { ring: config.ring, notifications: config.notifications };
            let prefetch = config.interface.prefetches();
            let echo = PipesEcho::new(port, sizes, flows, prefetch)?;
            echo_loop.run(check_all_bound(echo, flows)?);
        }
        Interface::Descriptors => {
            let sizes = host::descriptors::Sizes { rx: config.depth, tx: config.depth };
            echo_loop.run(check_all_bound(DescriptorsEcho::new(port, sizes, flows)?, flows)?);
        }
        // Its application is another process.
        Interface::Dpdk => {}
    }
    Ok(())
}

/// Returns `echo` if all its flows are bound. Otherwise the NIC would drop packets through no fault of the
/// interface.
fn check_all_bound<E: Echo>(echo: E, flows: &[Flow]) -> Result<E, SysError> {
    let unbound = echo.unbound();
    if unbound == 0 {
        return Ok(echo);
    }
    Err(SysError {
        attempt: format!("bind {} flows", flows.len()),
        source: io::Error::other(format!(
            "the NIC's flow table has no space for {unbound} of them"
        )),
        remedy: "use fewer pipes".into(),
    })
}

impl LoopStats {
    #[inline(always)]
    fn record(&mut self, elapsed: u64, packets: u64, threshold: &StallThreshold) {
        let stall = if threshold.is_stall(elapsed, packets) { elapsed } else { 0 };
        if packets > 0 {
            if self.last_stall + stall > 0 {
                std::hint::cold_path();
                self.stalled += self.last_stall + stall;
                self.longest_stall = self.longest_stall.max(self.last_stall).max(stall);
            }
            if stall == 0 {
                self.worked += packets;
                self.busy += elapsed;
            }
        }
        self.last_stall = if packets == 0 { stall } else { 0 };
        if elapsed > self.gap {
            self.gap = elapsed;
        }
    }

    /// Returns the statistics, with the current core clock, and resets them.
    fn take(&mut self) -> Answer {
        let core_hertz = machine::core_clock::hertz()?;
        let taken = Self { core_hertz, ..*self };
        *self = Self::default();
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_iterations_with_packets_count_as_work() {
        let threshold = StallThreshold { stall: 1000, allowed: 10 };
        let mut stats = LoopStats::default();
        stats.record(50, 0, &threshold);
        stats.record(80, 4, &threshold);
        stats.record(1500, 100, &threshold);
        stats.record(1500, 10, &threshold);
        let LoopStats { worked, busy, gap, stalled, .. } = stats;
        assert_eq!((worked, busy, gap, stalled), (104, 1580, 1500, 1500));
    }

    #[test]
    fn a_stall_without_packets_loses_nothing() {
        let threshold = StallThreshold { stall: 1000, allowed: 10 };
        let mut stats = LoopStats::default();
        stats.record(5000, 0, &threshold);
        stats.record(20, 0, &threshold);
        stats.record(20, 3, &threshold);
        assert_eq!((stats.gap, stats.stalled), (5000, 0));
        stats.record(5000, 0, &threshold);
        stats.record(1100, 3, &threshold);
        stats.record(20, 3, &threshold);
        assert_eq!(
            (stats.stalled, stats.longest_stall),
            (6100, 5000),
            "packets that came during the stall are in the next iteration"
        );
    }
}
