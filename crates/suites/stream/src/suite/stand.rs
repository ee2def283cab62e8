//! The NIC with its generator on one core and the application on others, put up for one point.

use std::sync::Arc;
use std::time::Duration;

use lab::sample::Failure;
use machine::tsc::Tsc;

use super::application::{Application, Figures};
use super::setting::{Cpus, Setting};
use super::stall::Patience;
use crate::generator::{Generator, Live, Order, Pace, Report, Trial};
use crate::nic::Nic;
use crate::nic::flow_table::looked_up;
use crate::wire::flow::Flow;
use crate::wire::sample::{Sample, Sizes};
use crate::wire::traffic::Packet;

/// How long a trial waits before its first packet: what others left under way has come by then.
const WAIT: Duration = Duration::from_micros(200);
/// How long it waits for the last ones of a load; later they are lost.
const DRAIN: Duration = Duration::from_millis(5);
/// How long it waits for them where nothing may be lost.
const ALL: Duration = Duration::from_secs(1);
/// By how much the last packet of a load may be late. Those that are later were not sent in time.
const LATE: Duration = Duration::from_micros(20);

/// All that takes part in a measurement.
pub(super) struct Stand {
    // In this order: applications go before their NIC.
    applications: Vec<Application>,
    nic: Nic<Order>,
    setting: Setting,
    tsc: Tsc,
    patience: Patience,
}

/// What came of a trial.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    /// What the generator says.
    pub report: Report,
    /// Packets that were to be sent.
    pub asked: u64,
    /// How many of them a tick; 0 where they go as they come back.
    pub rate: f64,
    /// What the application says, all cores together.
    pub application: Figures,
}

impl Tried {
    /// Packets that were to be sent and did not come back.
    pub(super) fn lost(&self) -> u64 {
        self.asked.saturating_sub(self.report.received)
    }
}

impl Stand {
    /// Puts it up.
    ///
    /// # Errors
    /// Where the traffic cannot be made, or a part cannot run.
    pub(super) fn new(setting: &Setting, cpus: &Cpus, tsc: &Tsc) -> Result<Self, Failure> {
        let sample = Sample {
            // As the source's files: one packet to each destination, replayed without end.
            packets: setting.pipes,
            size: Sizes::One(setting.packet_bytes),
            sources: 1,
            destinations: setting.pipes,
        };
        let failed = |why: &dyn std::fmt::Display| Failure::failed(why.to_string());
        let traffic = Arc::new(sample.traffic().map_err(|why| failed(&why))?);
        let generator = Generator::new(Arc::clone(&traffic), Arc::new(Live::default()));
        let generator = generator.map_err(|why| failed(&why))?;
        let nic = setting.interface.start(cpus.nic, setting, generator);
        let nic = nic.map_err(|why| failed(&why))?;
        let rule = |packet: &Packet| looked_up(&packet.flow, packet.syn);
        let flows: Vec<Flow> = traffic.packets().iter().map(rule).collect();
        let patience = Patience::of(tsc);
        let each = flows.chunks(setting.pipes_a_core()).zip(&cpus.applications);
        let applications = each
            .map(|(flows, cpu)| {
                Application::start(*cpu, nic.port(), setting, flows.into(), patience)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { applications, nic, setting: setting.clone(), tsc: *tsc, patience })
    }

    /// Sends a packet whenever one comes back, with `window` packets under way, for `duration`.
    ///
    /// # Errors
    /// Where a part has ended, or something came back that was not sent.
    pub(super) fn closed(&self, window: u64, duration: Duration) -> Result<Tried, Failure> {
        let pace = Pace::Closed { window };
        let (duration, drain) = (self.tsc.ticks(duration), self.tsc.ticks(ALL));
        let trial = Trial { pace, duration, drain, ..self.trial() };
        let mut tried = self.run(trial)?;
        tried.asked = tried.report.sent;
        Ok(tried)
    }

    /// So many bits a second on the wire for so long.
    ///
    /// # Errors
    /// As for [`Stand::closed`].
    pub(super) fn offer(
        &self,
        load: f64,
        duration: Duration,
        times: bool,
    ) -> Result<Tried, Failure> {
        let asked = (load / self.setting.wire_bits() * duration.as_secs_f64()).round() as u64;
        let trial = Trial {
            pace: Pace::bits(load, self.tsc.hertz),
            count: asked.max(1),
            duration: self.tsc.ticks(duration + LATE),
            times,
            ..self.trial()
        };
        let mut tried = self.run(trial)?;
        tried.asked = asked.max(1);
        // Also those that the generator did not send, for it stood still itself.
        tried.rate = load / self.setting.wire_bits() / self.tsc.hertz;
        Ok(tried)
    }

    fn trial(&self) -> Trial {
        Trial {
            wait: self.tsc.ticks(WAIT),
            drain: self.tsc.ticks(DRAIN),
            check: self.setting.check,
            stall: self.patience.stall,
            allowed: self.patience.allowed,
            ..Trial::default()
        }
    }

    fn run(&self, trial: Trial) -> Result<Tried, Failure> {
        self.figures()?;
        let (answer, report) = std::sync::mpsc::sync_channel(1);
        self.nic.order(Order::Start(trial, answer));
        let report = report.recv().map_err(|_| Failure::failed("the NIC ended before its time"))?;
        let application = self.figures()?;
        let Report { received, corrupted, late, .. } = report;
        if corrupted + late > 0 {
            return Err(Failure::check(format!(
                "of {received} packets that came back {corrupted} were not as they should be, and {late} \
                 came again or behind a later one"
            )));
        }
        Ok(Tried { report, asked: 0, rate: 0.0, application })
    }

    /// What all cores did since this was last asked.
    fn figures(&self) -> Result<Figures, Failure> {
        let mut all = Figures::default();
        for application in &self.applications {
            let Figures { worked, busy, gap, stood, core_hertz, .. } = application.figures()?;
            all.worked += worked;
            all.busy += busy;
            all.gap = all.gap.max(gap);
            all.stood += stood;
            all.core_hertz += core_hertz / self.applications.len() as f64;
        }
        Ok(all)
    }
}
