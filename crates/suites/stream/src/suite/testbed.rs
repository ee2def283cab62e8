//! The testbed of one point: the NIC with its generator on one core, the application on others.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use lab::sample::Failure;
use machine::tsc::Tsc;

use super::application::{Application, LoopStats};
use super::dpdk::{self, Testpmd, TestpmdStats};
use super::params::Interface;
use super::stall::StallThreshold;
use super::testbed_config::{Cpus, TestbedConfig};
use crate::generator::{Generator, GeneratorCommand, LiveCounters, Pace, Report, Trial};
use crate::nic::descriptors::Descriptors;
use crate::nic::flow_table::looked_up;
use crate::nic::pipes::Pipes;
use crate::nic::{self, Nic, NicParams};
use crate::wire::Flow;
use crate::wire::packet::FLIT;
use crate::wire::sample::{SampleTraffic, Sizes};
use crate::wire::traffic::Packet;

/// Wait before the first packet of a trial, in which packets of earlier trials return.
const WAIT: Duration = Duration::from_micros(200);
/// Wait for the last packets of an offered load; later ones are lost.
const DRAIN: Duration = Duration::from_millis(5);
/// Wait for the last packets of a closed loop, which loses none.
const CLOSED_DRAIN: Duration = Duration::from_secs(1);
/// Maximum delay of the last packet of an offered load, besides stalls of the NIC; later ones count as not sent in time.
const MAX_DELAY: Duration = Duration::from_micros(20);

/// A running NIC, generator and application.
pub(super) struct Testbed {
    // Dropped in this order: applications before their NIC.
    applications: Applications,
    nic: Nic<GeneratorCommand>,
    config: TestbedConfig,
    tsc: Tsc,
    threshold: StallThreshold,
}

/// The application.
enum Applications {
    /// One core per thread of this process.
    Threads(Vec<Application>),
    /// Another process.
    Testpmd(Box<RefCell<Testpmd>>),
}

/// Result of a trial.
#[derive(Debug, Clone)]
pub(super) struct TrialReport {
    /// The generator's report.
    pub report: Report,
    /// Packets that were to be sent.
    pub asked: u64,
    /// Statistics of the application, all cores together.
    pub application: LoopStats,
    /// Statistics of testpmd, if it is the application. Its longest iterations are unknown.
    pub testpmd: Option<TestpmdStats>,
}

impl TrialReport {
    /// Returns the number of packets that were to be sent and were not echoed.
    pub(super) fn lost(&self) -> u64 {
        self.asked.saturating_sub(self.report.received)
    }

    /// Returns how long testpmd waited for its CPUs, in ticks; 0 if it is not the application, or unknown.
    pub(super) fn waited(&self, tsc: &Tsc) -> u64 {
        let waited = self.testpmd.and_then(|testpmd| testpmd.waited);
        waited.map_or(0, |waited| tsc.ticks(waited))
    }
}

impl Testbed {
    /// Starts all parts.
    ///
    /// # Errors
    /// Returns `failed` if the traffic cannot be generated or a part cannot run.
    pub(super) fn new(config: &TestbedConfig, cpus: &Cpus, tsc: &Tsc) -> Result<Self, Failure> {
        let sample = SampleTraffic {
            // As in the Ensō evaluation: one packet to each destination, replayed endlessly.
            packets: config.pipes,
            size: Sizes::One(config.packet_bytes),
            sources: 1,
            destinations: config.pipes,
        };
        let failed = |why: &dyn std::fmt::Display| Failure::failed(why.to_string());
        let traffic = Arc::new(sample.traffic().map_err(|why| failed(&why))?);
        let generator = Generator::new(Arc::clone(&traffic), Arc::new(LiveCounters::default()));
        let generator = generator.map_err(|why| failed(&why))?;
        let rule = |packet: &Packet| looked_up(&packet.flow, packet.syn);
        let flows: Vec<Flow> = traffic.packets().iter().map(rule).collect();
        let threshold = StallThreshold::new(tsc);
        let testbed = |applications, nic| Self {
            applications,
            nic,
            config: config.clone(),
            tsc: *tsc,
            threshold,
        };
        if let Interface::Dpdk = config.interface {
            let (nic, testpmd) = dpdk::start(config, cpus, generator, flows.into())?;
            return Ok(testbed(Applications::Testpmd(Box::new(RefCell::new(testpmd))), nic));
        }
        let nic = start_nic(cpus.nic, config, generator);
        let nic = nic.map_err(|why| failed(&why))?;
        let each = flows.chunks(config.pipes_per_core()).zip(&cpus.applications);
        let applications = each
            .map(|(flows, cpu)| {
                Application::start(*cpu, nic.port(), config, flows.into(), threshold)
            })
            .collect::<Result<_, _>>()?;
        Ok(testbed(Applications::Threads(applications), nic))
    }

    /// Runs a closed loop: sends a packet whenever one is echoed, with `window` packets in flight, for `duration`.
    ///
    /// # Errors
    /// Returns `failed` if a part has stopped, `check` if an echoed packet is wrong.
    pub(super) fn closed(&self, window: u64, duration: Duration) -> Result<TrialReport, Failure> {
        let pace = Pace::Closed { window };
        let (duration, drain) = (self.tsc.ticks(duration), self.tsc.ticks(CLOSED_DRAIN));
        let trial = Trial { pace, duration, drain, ..self.trial() };
        let mut trial = self.run(trial)?;
        trial.asked = trial.report.sent;
        Ok(trial)
    }

    /// Runs an open loop: sends at `load` bit/s on the wire for `duration`, with round-trip times if `times`.
    ///
    /// # Errors
    /// See [`Testbed::closed`].
    pub(super) fn offer(
        &self,
        load: f64,
        duration: Duration,
        times: bool,
    ) -> Result<TrialReport, Failure> {
        let asked = (load / self.config.wire_bits() * duration.as_secs_f64()).round() as u64;
        let trial = Trial {
            pace: Pace::bits(load, self.tsc.hertz),
            count: asked.max(1),
            duration: self.tsc.ticks(duration + MAX_DELAY),
            times,
            ..self.trial()
        };
        let mut trial = self.run(trial)?;
        // Includes packets that the generator did not send because it stalled.
        trial.asked = asked.max(1);
        Ok(trial)
    }

    fn trial(&self) -> Trial {
        Trial {
            wait: self.tsc.ticks(WAIT),
            drain: self.tsc.ticks(DRAIN),
            check: self.config.check,
            modification: self.config.modification(),
            stall: self.threshold.stall,
            allowed: self.threshold.allowed,
            ..Trial::default()
        }
    }

    fn run(&self, trial: Trial) -> Result<TrialReport, Failure> {
        self.clear()?;
        let (answer, report) = std::sync::mpsc::sync_channel(1);
        self.nic.command(GeneratorCommand::Start(trial, answer));
        let report = report.recv().map_err(|_| Failure::failed("the NIC stopped early"))?;
        let (application, testpmd) = self.stats()?;
        let Report { received, corrupted, late, .. } = report;
        if corrupted + late > 0 {
            return Err(Failure::check(format!(
                "of {received} echoed packets, {corrupted} were corrupted and {late} were duplicates \
                 or out of order"
            )));
        }
        Ok(TrialReport { report, asked: 0, application, testpmd })
    }

    /// Sets the statistics of the application to zero.
    fn clear(&self) -> Result<(), Failure> {
        match &self.applications {
            Applications::Threads(threads) => loop_stats(threads).map(|_| ()),
            Applications::Testpmd(testpmd) => testpmd.borrow_mut().clear(),
        }
    }

    /// Returns the statistics of the application since they were set to zero.
    fn stats(&self) -> Result<(LoopStats, Option<TestpmdStats>), Failure> {
        match &self.applications {
            Applications::Threads(threads) => Ok((loop_stats(threads)?, None)),
            Applications::Testpmd(testpmd) => {
                let mut testpmd = testpmd.borrow_mut();
                let stats = testpmd.stats()?;
                let mut loops = LoopStats::default();
                (loops.worked, loops.busy) = (stats.forward.worked, stats.forward.busy);
                loops.core_hertz = testpmd.core_hertz();
                Ok((loops, Some(stats)))
            }
        }
    }
}

/// Returns the statistics of all cores since the last call.
fn loop_stats(applications: &[Application]) -> Result<LoopStats, Failure> {
    let mut all = LoopStats::default();
    for application in applications {
        let LoopStats { worked, busy, gap, stalled, longest_stall, core_hertz, .. } =
            application.stats()?;
        all.worked += worked;
        all.busy += busy;
        all.gap = all.gap.max(gap);
        all.stalled += stalled;
        all.longest_stall = all.longest_stall.max(longest_stall);
        all.core_hertz += core_hertz / applications.len() as f64;
    }
    Ok(all)
}

/// Starts a NIC with the configured interface.
///
/// # Errors
/// Returns why the NIC thread cannot run.
fn start_nic(
    cpu: usize,
    config: &TestbedConfig,
    generator: Generator,
) -> Result<Nic<GeneratorCommand>, nic::Error> {
    let params = NicParams { cpu, doorbell: config.doorbell, transfer: config.transfer };
    match config.interface.notify() {
        Some(notify) => {
            let pipes = Pipes::new(notify, (config.ring / FLIT) as u32, config.notifications);
            Nic::start(params, pipes, generator)
        }
        None => Nic::start(params, Descriptors::new(config.depth, config.depth), generator),
    }
}
