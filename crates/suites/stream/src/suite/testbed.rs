//! The testbed of one point: the NIC with its generator on one core, the application on others.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::sample::Failure;
use machine::tsc::TickRate;

use super::application::{ApplicationCore, CoreApplication, CorePort};
use super::counts::ExpectedCounts;
use super::dpdk::{self, Testpmd, TestpmdStats};
use super::links::{self, Links};
use super::pages;
use super::params::Interface;
use super::testbed_config::{Cpus, TestbedConfig};
use crate::application::{CoreNumber, sum};
use crate::core_use::CoreStats;
use crate::generator::{
    Check, Expectation, Generator, GeneratorCommand, LiveCounters, Pace, Report, Trial,
};
use crate::host::descriptors::Sizes;
use crate::iterations::StallThreshold;
use crate::link::{Link, LinkEngine, LinkStatus};
use crate::nic::descriptor::{Descriptor, LongDescriptor, RxSize};
use crate::nic::descriptors::Descriptors;
use crate::nic::pipes::Pipes;
use crate::nic::{self, Counters, LinkMode, Nic, NicParams, Pages};
use crate::steering::{CorePipes, Steering};
use crate::wire::Wire;
use crate::wire::packet::FLIT;
use crate::wire::traffic::Traffic;
use crate::workload::application_traffic::Generated;

/// Wait before the first packet of a trial, in which packets of earlier trials return.
const WAIT: Duration = Duration::from_micros(200);
/// A stall before the wait does not count, e.g. when the thread that starts a trial takes the application's CPU.
const _: () = assert!(WAIT.as_nanos() > StallThreshold::REPORTED_WITHIN.as_nanos());
/// Minimum wait for the last packets of an offered load, and the divisor of its duration that gives a longer one. Later packets
/// are lost: an application that is slower than the load fills its rings first, which would count as carried.
const DRAIN: Duration = Duration::from_micros(100);
const DRAIN_PART: u32 = 100;
/// The same through the kernel, which delays packets for longer.
const LINK_DRAIN: Duration = Duration::from_millis(5);
/// Wait for the last packets of a closed loop, which loses none.
const CLOSED_DRAIN: Duration = Duration::from_secs(1);
/// Maximum delay of the last packet of an offered load, besides stalls of the NIC; later ones count as not sent in time.
const MAX_DELAY: Duration = Duration::from_micros(20);

/// Maximum number of warm-ups.
const MAX_WARM_UPS: u32 = 8;
/// No warm-up starts later than this: a machine on which the loops get no CPU must not make the sample time out.
const WARM_UPS: Duration = Duration::from_secs(1);

/// A running NIC, generator and application.
pub(super) struct Testbed {
    // Dropped in this order: applications before their NIC.
    applications: Applications,
    nic: Nic<GeneratorCommand>,
    config: TestbedConfig,
    traffic: Arc<Traffic>,
    /// What the application should count in a trial.
    expected_counts: ExpectedCounts,
    pages: Pages,
    rate: TickRate,
    /// Which iterations of the NIC's loop are stalls; the warm-up teaches what its packets cost.
    threshold: StallThreshold,
}

/// The application.
enum Applications {
    /// One core per thread of this process.
    Threads(Vec<ApplicationCore>),
    /// The same, with a link in place of a port of the NIC, whose engine is the other end.
    Link(ApplicationCore, Links),
    /// On another host, at the other end of the link of the NIC's engine.
    Remote(Arc<LinkStatus>, LinkMode),
    /// Another process.
    Testpmd(Box<RefCell<Testpmd>>),
}

/// Result of a trial.
#[derive(Debug, Clone, Default)]
pub(super) struct TrialReport {
    /// The generator's report.
    pub report: Report,
    /// Packets that were to be sent.
    pub asked: u64,
    /// Whether it was a closed loop.
    pub is_closed: bool,
    /// The NIC's counters of the trial.
    pub nic: Counters,
    /// Statistics of each application core; none of testpmd.
    pub application: Vec<CoreStats>,
    /// Statistics of testpmd, if it is the application.
    pub testpmd: Option<TestpmdStats>,
}

impl Testbed {
    /// Starts all parts.
    ///
    /// # Errors
    /// Returns `failed` if the traffic cannot be generated or a part cannot run.
    pub(super) fn new(
        config: &TestbedConfig,
        cpus: &Cpus,
        rate: TickRate,
    ) -> Result<Self, Failure> {
        Self::with_wire(config, cpus, rate, |generator| generator)
    }

    /// Starts all parts, with a wire made of the generator.
    ///
    /// # Errors
    /// See [`Testbed::new`].
    pub(super) fn with_wire<W: Wire<Command = GeneratorCommand>>(
        config: &TestbedConfig,
        cpus: &Cpus,
        rate: TickRate,
        wire: impl FnOnce(Generator) -> W,
    ) -> Result<Self, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::failed(why.to_string());
        let Generated { traffic, matching } = config.traffic()?;
        let traffic = Arc::new(traffic);
        let generator = Generator::new(Arc::clone(&traffic), Arc::new(LiveCounters::default()));
        let generator = generator.map_err(|why| failed(&why))?;
        let rules = config.application_traffic().rules();
        let pages = pages::of(config)?;
        let testbed = |applications, nic| Self {
            applications,
            nic,
            config: config.clone(),
            traffic: Arc::clone(&traffic),
            expected_counts: ExpectedCounts::new(config, matching),
            pages,
            rate,
            threshold: StallThreshold::NEVER,
        };
        if let Interface::Dpdk = config.interface {
            let (nic, testpmd) = dpdk::start(config, pages, cpus, wire(generator), rules.into())?;
            return Ok(testbed(Applications::Testpmd(Box::new(RefCell::new(testpmd))), nic));
        }
        let spec = config.application_spec()?;
        if let Some(kind) = config.interface.link() {
            let application = CoreApplication::new(&spec, CoreNumber::ONLY, &traffic);
            let started = links::start(kind, (config, application), cpus, rate, wire(generator));
            let (nic, application, links) = started?;
            return Ok(testbed(Applications::Link(application, links), nic));
        }
        let nic = start_nic(cpus.nic, config, wire(generator));
        let nic = nic.map_err(|why| failed(&why))?;
        // Until the NIC has a doorbell, and its answer arrives.
        let delay = rate.ticks(config.pcie.doorbell + config.pcie.transfer);
        let threshold = StallThreshold::new(rate).with_delay(delay);
        let (pipes, per_core) = (config.pipes as usize, config.pipes_per_core());
        let cores = CorePipes::of_cores(&rules, pipes, per_core, config.steering);
        let applications = cores
            .into_iter()
            .zip(&cpus.applications)
            .zip(CoreNumber::all(config.cores))
            .map(|((of_core, cpu), number)| {
                let port = CorePort::Nic(nic.port().with_pages(pages), of_core);
                let application = CoreApplication::new(&spec, number, &traffic);
                ApplicationCore::start(*cpu, config, application, port, threshold)
            })
            .collect::<Result<_, _>>()?;
        Ok(testbed(Applications::Threads(applications), nic))
    }

    /// Starts a NIC whose wire is a link to another host, which has the application.
    ///
    /// # Errors
    /// Returns `failed` if the traffic cannot be generated or the NIC cannot run.
    pub(super) fn with_link(
        config: &TestbedConfig,
        cpu: usize,
        rate: TickRate,
        (link, status, mode): (Box<dyn Link>, Arc<LinkStatus>, LinkMode),
    ) -> Result<Self, Failure> {
        let Generated { traffic, .. } = config.traffic()?;
        let traffic = Arc::new(traffic);
        let generator = Generator::new(Arc::clone(&traffic), Arc::new(LiveCounters::default()))?;
        let params = NicParams { cpu, ..NicParams::default() };
        let nic = Nic::start(params, LinkEngine::new(link, Arc::clone(&status)), generator);
        Ok(Self {
            applications: Applications::Remote(status, mode),
            nic: nic.map_err(|why| Failure::failed(why.to_string()))?,
            config: config.clone(),
            traffic,
            // What it counts is on its host.
            expected_counts: ExpectedCounts::default(),
            pages: pages::of(config)?,
            rate,
            threshold: StallThreshold::NEVER,
        })
    }

    /// Runs warm-ups until each loop has learnt what its packets cost, which takes more than one if the host interrupts
    /// them or if iterations are long. Until then no iteration of the NIC's loop is a stall. Testpmd learns nothing.
    ///
    /// # Errors
    /// Returns those of the trial.
    pub(super) fn warm_up(
        &mut self,
        trial: impl Fn(&Self) -> Result<TrialReport, Failure>,
    ) -> Result<(), Failure> {
        let (mut cost, start) = (None, Instant::now());
        for _ in 0..MAX_WARM_UPS {
            let TrialReport { report, application, .. } = trial(self)?;
            cost = report.packet_cost.or(cost);
            let has_learnt = cost.is_some() && application.iter().all(|core| core.has_learnt);
            if has_learnt || start.elapsed() > WARM_UPS {
                break;
            }
        }
        self.threshold = StallThreshold::new(self.rate).with_cost(cost.unwrap_or(0));
        Ok(())
    }

    /// Runs a closed loop: sends a packet whenever one is echoed or consumed, with `window` packets in flight, for `duration`.
    ///
    /// # Errors
    /// Returns `failed` if a part has stopped, `check` if an echoed packet is wrong, `unsupported` if the NIC does not know when
    /// packets are consumed.
    pub(super) fn closed(&self, window: u64, duration: Duration) -> Result<TrialReport, Failure> {
        self.config.check_closed_loop()?;
        let pace = Pace::Closed { window };
        let (duration, drain) = (self.rate.ticks(duration), self.rate.ticks(CLOSED_DRAIN));
        let trial = self.run(Trial { pace, duration, drain, ..self.trial() })?;
        Ok(TrialReport { asked: trial.report.sent, ..trial })
    }

    /// Runs a closed loop of `count` packets, of which every byte is compared, whatever the point verifies. It takes as long as
    /// the packets need; a part that takes longer than `limit` loses them.
    ///
    /// # Errors
    /// See [`Testbed::closed`].
    pub(super) fn count(
        &self,
        window: u64,
        count: u64,
        limit: Duration,
    ) -> Result<TrialReport, Failure> {
        self.config.check_closed_loop()?;
        let (pace, limit) = (Pace::Closed { window }, self.rate.ticks(limit));
        let trial = Trial { pace, count, duration: limit, drain: limit, ..self.trial() };
        Ok(TrialReport { asked: count, ..self.run(Trial { check: Check::All, ..trial })? })
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
        let asked = self.traffic.packets_of((load / 8.0 * duration.as_secs_f64()) as u64).max(1);
        let trial = Trial {
            pace: Pace::bits(load, self.rate.hertz),
            count: asked,
            duration: self.rate.ticks(duration + MAX_DELAY),
            drain: self.rate.ticks(self.drain(duration)),
            times,
            ..self.trial()
        };
        // Includes packets that the generator did not send because it stalled.
        Ok(TrialReport { asked, ..self.run(trial)? })
    }

    /// Returns the wait for the last packets of an offered load.
    fn drain(&self, duration: Duration) -> Duration {
        match self.config.interface.link() {
            Some(_) => LINK_DRAIN,
            None => DRAIN.max(duration / DRAIN_PART),
        }
    }

    fn trial(&self) -> Trial {
        Trial {
            wait: self.rate.ticks(WAIT),
            drain: self.rate.ticks(LINK_DRAIN),
            check: self.config.check,
            expectation: self.config.expectation(),
            threshold: self.threshold,
            learns: self.threshold == StallThreshold::NEVER,
            ..Trial::default()
        }
    }

    fn run(&self, trial: Trial) -> Result<TrialReport, Failure> {
        self.clear()?;
        let (before, processed_before) = (self.nic.current_counters(), self.processed());
        let (answer, report) = std::sync::mpsc::sync_channel(1);
        self.nic.command(GeneratorCommand::Start(trial, answer));
        let report = report.recv().map_err(|_| Failure::failed("the NIC stopped early"))?;
        match &self.applications {
            Applications::Link(_, links) => links.check()?,
            Applications::Remote(status, _) => links::check_status(status)?,
            Applications::Threads(_) | Applications::Testpmd(_) => {}
        }
        // Before the statistics, which the loop answers in an iteration without packets.
        let processed = self.processed() - processed_before;
        let (application, testpmd) = self.stats()?;
        let nic = self.nic.current_counters().since(&before);
        check(&report)?;
        self.config.check_missing(&report)?;
        let counts = sum(application.iter().map(|core| core.counts.as_slice()));
        let is_closed = matches!(trial.pace, Pace::Closed { .. });
        self.expected_counts.check(&report, is_closed, &counts)?;
        let report = match report.expectation {
            Expectation::Nothing => {
                // What the NIC knows is more recent: a poll of pipes processes many packets before the loop counts them.
                let consumed = report.consumed.unwrap_or(processed);
                report.consumed_by(consumed)
            }
            Expectation::Same | Expectation::Byte | Expectation::Images | Expectation::Answers => {
                report
            }
        };
        Ok(TrialReport { report, asked: 0, is_closed, nic, application, testpmd })
    }

    /// Returns the stall that a test can plant in the first core of the application.
    #[cfg(test)]
    pub(super) fn planted_stall(&self) -> Option<&super::planted_stall::PlantedStall> {
        match &self.applications {
            Applications::Threads(threads) => threads.first().map(|it| &it.state.planted_stall),
            Applications::Link(thread, _) => Some(&thread.state.planted_stall),
            Applications::Remote(..) | Applications::Testpmd(_) => None,
        }
    }

    /// Returns how packets pass the kernel, e.g. `AF_XDP, copy mode, native XDP`; `None` if they do not.
    pub(super) fn link(&self) -> Option<String> {
        match &self.applications {
            Applications::Link(_, links) => Some(links.mode().to_string()),
            Applications::Remote(_, mode) => Some(mode.to_string()),
            Applications::Threads(_) | Applications::Testpmd(_) => None,
        }
    }

    /// Returns the number of flows for whose rule the flow table has no space; `None` if they need none.
    pub(super) fn flows_without_rule(&self) -> Option<u64> {
        match (&self.applications, self.config.steering) {
            (Applications::Link(..) | Applications::Remote(..), _)
            | (_, Steering::Hash | Steering::RoundRobin) => None,
            (_, Steering::Rules) => Some(self.nic.current_counters().rules_refused),
        }
    }

    /// Describes the pages of shared memory, e.g. `rings 2 MiB, buffers 2 MiB`.
    pub(super) fn memory_pages(&self) -> String {
        match &self.applications {
            Applications::Threads(_) => self.nic.pages(),
            Applications::Link(..) | Applications::Remote(..) | Applications::Testpmd(_) => {
                self.pages.name().into()
            }
        }
    }

    /// Returns the number of packets that the application has processed by now; 0 if it is testpmd or on another host: these
    /// return them all.
    fn processed(&self) -> u64 {
        match &self.applications {
            Applications::Threads(threads) => threads.iter().map(ApplicationCore::processed).sum(),
            Applications::Link(thread, _) => thread.processed(),
            Applications::Remote(..) | Applications::Testpmd(_) => 0,
        }
    }

    /// Sets the statistics of the application to zero.
    fn clear(&self) -> Result<(), Failure> {
        match &self.applications {
            Applications::Threads(threads) => core_stats(threads).map(|_| ()),
            Applications::Link(thread, _) => thread.stats().map(|_| ()),
            Applications::Remote(..) => Ok(()),
            Applications::Testpmd(testpmd) => testpmd.borrow_mut().clear(),
        }
    }

    /// Returns the statistics of the application since they were set to zero.
    fn stats(&self) -> Result<(Vec<CoreStats>, Option<TestpmdStats>), Failure> {
        match &self.applications {
            Applications::Threads(threads) => Ok((core_stats(threads)?, None)),
            Applications::Link(thread, _) => Ok((vec![thread.stats()?], None)),
            Applications::Remote(..) => Ok((Vec::new(), None)),
            Applications::Testpmd(testpmd) => {
                Ok((Vec::new(), Some(testpmd.borrow_mut().stats(self.rate)?)))
            }
        }
    }
}

/// Checks that what returned is what should.
fn check(report: &Report) -> Result<(), Failure> {
    let Report { received, corrupted, late, .. } = report;
    match (report.expectation, corrupted + late) {
        (_, 0) => Ok(()),
        (Expectation::Nothing, _) => Err(Failure::check(format!(
            "{received} packets returned from an application that should consume all"
        ))),
        (Expectation::Same | Expectation::Byte | Expectation::Images | Expectation::Answers, _) => {
            Err(Failure::check(format!(
                "of {received} returned packets, {corrupted} were corrupted and {late} were \
                 duplicates or out of order in their pipe"
            )))
        }
    }
}

/// Returns the statistics of each core since the last call.
fn core_stats(applications: &[ApplicationCore]) -> Result<Vec<CoreStats>, Failure> {
    applications.iter().map(ApplicationCore::stats).collect()
}

/// Starts a NIC with the configured interface.
///
/// # Errors
/// Returns why the NIC thread cannot run.
fn start_nic(
    cpu: usize,
    config: &TestbedConfig,
    wire: impl Wire<Command = GeneratorCommand>,
) -> Result<Nic<GeneratorCommand>, nic::Error> {
    let params = NicParams { cpu, pcie: config.pcie, placement: config.placement };
    match config.interface.notify() {
        Some(notify) => {
            let pipes = Pipes::new(notify, (config.ring / FLIT) as u32, config.notifications);
            Nic::start(params, pipes, wire)
        }
        None => {
            let Sizes { rx, tx } = config.ring_sizes();
            match config.driver.kind().size {
                RxSize::Short => Nic::start(params, Descriptors::<Descriptor>::new(rx, tx), wire),
                RxSize::Long => {
                    Nic::start(params, Descriptors::<LongDescriptor>::new(rx, tx), wire)
                }
            }
        }
    }
}
