//! Which side was the bottleneck of a trial, and what its packets cost.

use machine::tsc::Tsc;

use super::testbed::TrialReport;
use crate::core_use::{CoreStats, CoreUse, Engine};
use crate::generator::Report;
use crate::iterations::LoopTimes;
use crate::losses::Losses;

/// The side that limited a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bottleneck {
    /// Neither core was saturated, or the offered load was carried.
    Neither,
    /// An application core.
    Application,
    /// The core of NIC and generator, which is the instrument.
    Nic,
    /// Both were saturated.
    Both,
    /// The core of NIC and generator was not saturated, and of the application it is unknown.
    Unknown,
}

impl Bottleneck {
    /// Returns its name in samples.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Neither => "none",
            Self::Application => "application",
            Self::Nic => "NIC",
            Self::Both => "NIC and application",
            Self::Unknown => "unknown",
        }
    }

    /// Returns its number in trials: 1 for the application plus 2 for the NIC, or 4 if it is unknown.
    pub(super) fn code(self) -> f64 {
        match self {
            Self::Neither => 0.0,
            Self::Application => 1.0,
            Self::Nic => 2.0,
            Self::Both => 3.0,
            Self::Unknown => 4.0,
        }
    }

    /// Returns the bottleneck with a number. A side that is known to be one takes precedence over an unknown one.
    pub(super) fn of_code(code: f64) -> Self {
        let code = code as u8;
        let application = match (code & 1 != 0, code & 4 != 0) {
            (false, true) => None,
            (saturated, _) => Some(saturated),
        };
        Self::of_sides(code & 2 != 0, application)
    }

    /// Returns the bottleneck of several trials.
    pub(super) fn and(self, other: Self) -> Self {
        Self::of_code(f64::from(self.code() as u8 | other.code() as u8))
    }

    /// Returns the bottleneck of which it is known whether the sides are saturated; `None` if that is unknown.
    fn of_sides(nic: bool, application: Option<bool>) -> Self {
        match (nic, application) {
            (false, Some(false)) => Self::Neither,
            (false, Some(true)) => Self::Application,
            (false, None) => Self::Unknown,
            (true, Some(false) | None) => Self::Nic,
            (true, Some(true)) => Self::Both,
        }
    }

    /// Returns whether the instrument limited an offered load, alone or together with the application.
    pub(super) fn is_instrument(self) -> bool {
        match self {
            Self::Neither | Self::Application | Self::Unknown => false,
            Self::Nic | Self::Both => true,
        }
    }
}

impl TrialReport {
    /// Returns the number of packets that were to be sent and were not echoed.
    pub(super) fn lost(&self) -> u64 {
        self.asked.saturating_sub(self.report.received)
    }

    /// Returns the packets that were not echoed, by cause.
    pub(super) fn losses(&self) -> Losses {
        Losses::of(self.asked, &self.report, &self.nic)
    }

    /// Returns how long testpmd waited for its CPUs, in ticks; 0 if it is not the application, or unknown.
    pub(super) fn waited(&self) -> u64 {
        self.testpmd.and_then(|testpmd| testpmd.waited).unwrap_or(0)
    }

    /// Returns the use of each application core; of none if it is testpmd, whose polling is unknown.
    pub(super) fn application_use(&self) -> Vec<CoreUse> {
        let elapsed = self.application_time();
        let of_core = |core: &CoreStats| {
            CoreUse::of(&core.iterations, elapsed, core.iterations.empty_iteration())
        };
        self.application.iter().map(of_core).collect()
    }

    /// Returns the share of the time in iterations with packets of the busiest application core; `None` if it is unknown.
    pub(super) fn application_busy(&self) -> Option<f64> {
        match &self.testpmd {
            Some(testpmd) => testpmd.busy(self.application_time()),
            None => self.application_use().iter().map(|core| core.busy).reduce(f64::max),
        }
    }

    /// Returns the time in which the application had packets to process, in ticks. The wait for lost packets is no part
    /// of it.
    pub(super) fn application_time(&self) -> u64 {
        let Report { start, ended_sending, ended, .. } = self.report;
        let end = if self.lost() == 0 { ended } else { ended_sending };
        end.saturating_sub(start)
    }

    /// Returns whether the instrument limited the trial. In a closed loop it did unless the application was the bottleneck:
    /// if no core was saturated, each waited for the other, and a faster NIC would shorten the round trip. This may be so if
    /// it is unknown whether the application was saturated.
    pub(super) fn is_limited(&self) -> bool {
        match self.bottleneck() {
            Bottleneck::Application => false,
            Bottleneck::Neither | Bottleneck::Unknown => self.is_closed,
            Bottleneck::Nic | Bottleneck::Both => true,
        }
    }

    /// Returns the side that limited the rate. An offered load that was carried has none.
    pub(super) fn bottleneck(&self) -> Bottleneck {
        if !self.is_closed && self.lost() == 0 {
            return Bottleneck::Neither;
        }
        // A generator that is behind its schedule at the end cannot send at this load.
        let is_late = self.losses().not_sent > self.lost() / 2;
        let nic = is_late || self.report.core_use().is_saturated();
        Bottleneck::of_sides(nic, self.is_application_saturated())
    }

    /// Returns whether an application core was saturated; `None` if it is unknown.
    fn is_application_saturated(&self) -> Option<bool> {
        match &self.testpmd {
            Some(testpmd) => testpmd.is_saturated(self.application_time()),
            None => Some(self.application_use().iter().any(CoreUse::is_saturated)),
        }
    }
}

impl TrialReport {
    /// Returns the core cycles that the application needs per packet, without polling in vain; `None` without packets.
    pub(super) fn cycles_per_packet(&self, tsc: &Tsc) -> Option<f64> {
        if let Some(testpmd) = &self.testpmd {
            return testpmd.cycles_per_packet(tsc.hertz);
        }
        let packets: u64 = self.application.iter().map(|core| core.iterations.packets).sum();
        let cycles = |core: &CoreStats| Some(core.work() / tsc.hertz * core.core_hertz?);
        let cycles = self.application.iter().map(cycles).sum::<Option<f64>>()?;
        (packets > 0).then(|| cycles / packets as f64)
    }

    /// Returns the core cycles that the application alone needs per packet; `None` if that was not measured.
    pub(super) fn work_cycles(&self, tsc: &Tsc) -> Option<f64> {
        let [core] = &self.application[..] else { return None };
        Some(core.alone? / tsc.hertz * core.core_hertz?)
    }

    /// Returns the only application core if it processed packets as fast as it can, or if the loop was closed. Of a load that it
    /// carries the rate is that of the load, and an iteration has too few packets to share its cost.
    fn loaded_core(&self) -> Option<&CoreStats> {
        let [core] = &self.application[..] else { return None };
        let is_loaded = self.is_closed || self.is_application_saturated() == Some(true);
        is_loaded.then_some(core)
    }

    /// Returns the core cycles per packet that the interface adds to the work; `None` if the work was not measured, or the core was
    /// not [loaded](Self::loaded_core).
    pub(super) fn io_cycles(&self, tsc: &Tsc) -> Option<f64> {
        self.loaded_core()?;
        Some(self.cycles_per_packet(tsc)? - self.work_cycles(tsc)?)
    }

    /// Returns the rate as a share of that of the application alone; `None` as with [`io_cycles`](Self::io_cycles).
    pub(super) fn of_alone(&self) -> Option<f64> {
        Some(self.report.rate() * self.loaded_core()?.alone?)
    }

    /// Returns the core cycles that an engine of the application needs per packet; `None` if that was not measured.
    pub(super) fn engine_cycles(&self, engine: Engine, tsc: &Tsc) -> Option<f64> {
        let [core] = &self.application[..] else { return None };
        Some(core.ticks_of(engine)? / tsc.hertz * core.core_hertz?)
    }

    /// Returns the rate as a share of that of an engine of the application; `None` as with [`io_cycles`](Self::io_cycles).
    pub(super) fn of_engine(&self, engine: Engine) -> Option<f64> {
        Some(self.report.rate() * self.loaded_core()?.ticks_of(engine)?)
    }

    /// Returns the core cycles that the application's cores spend per echoed packet, without stalls; `None` without packets,
    /// or if it is unknown.
    pub(super) fn cycles_with_polling(&self, tsc: &Tsc) -> Option<f64> {
        let time = self.application_time();
        let cycles = |core: &CoreStats| {
            let available = time.saturating_sub(core.iterations.interrupted);
            Some(available as f64 / tsc.hertz * core.core_hertz?)
        };
        let cycles = match &self.testpmd {
            Some(testpmd) => testpmd.cycles(time, tsc.hertz)?,
            None => self.application.iter().map(cycles).sum::<Option<f64>>()?,
        };
        let packets = self.report.received;
        (packets > 0).then(|| cycles / packets as f64)
    }

    /// Returns the packets per iteration with packets of all application cores; `None` if it is unknown.
    pub(super) fn packets_per_iteration(&self) -> Option<f64> {
        let sum = |of: fn(&LoopTimes) -> u64| -> u64 {
            self.application.iter().map(|core| of(&core.iterations)).sum()
        };
        let (packets, working) = (sum(|it| it.packets), sum(|it| it.working));
        (working > 0).then(|| packets as f64 / working as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::dpdk::{ForwardStats, TestpmdStats};

    /// A closed loop of 1000 ticks with testpmd, whose core is busy for some of them and found full bursts in some of its
    /// iterations, and a NIC that is or is not saturated.
    fn trial(busy: u64, full: f64, nic: u64, cores: usize) -> TrialReport {
        let iterations = LoopTimes { working: 1, packets: 10, busy: nic, ..LoopTimes::default() };
        let (sent, received, ended_sending, ended) = (10, 10, 1000, 1000);
        let report =
            Report { sent, received, ended_sending, ended, iterations, ..Report::default() };
        let forward =
            ForwardStats { busy, worked: 10, full: Some(full), ..ForwardStats::default() };
        let testpmd = TestpmdStats { forward, waited: Some(0), cores, core_hertz: 1e9 };
        let (asked, testpmd, is_closed) = (sent, Some(testpmd), true);
        TrialReport { report, asked, testpmd, is_closed, ..TrialReport::default() }
    }

    #[test]
    fn testpmd_is_saturated_if_it_is_always_busy_with_full_bursts() {
        for (busy, full, nic, cores, bottleneck) in [
            (800, 1.0, 500, 1, Bottleneck::Neither),
            (980, 1.0, 500, 1, Bottleneck::Application),
            // It may find few packets in each of many iterations.
            (980, 0.7, 500, 1, Bottleneck::Unknown),
            // Of several cores, one may be busy.
            (800, 1.0, 500, 2, Bottleneck::Unknown),
            (980, 0.7, 990, 1, Bottleneck::Nic),
            (980, 1.0, 990, 1, Bottleneck::Both),
            (800, 1.0, 990, 1, Bottleneck::Nic),
        ] {
            let trial = trial(busy, full, nic, cores);
            assert_eq!(trial.bottleneck(), bottleneck, "{busy} of {cores} cores, {full}, {nic}");
            assert_eq!(trial.is_limited(), bottleneck != Bottleneck::Application);
            assert_eq!(Bottleneck::of_code(bottleneck.code()), bottleneck);
            let is_instrument = matches!(bottleneck, Bottleneck::Nic | Bottleneck::Both);
            assert_eq!(bottleneck.is_instrument(), is_instrument, "of an offered load");
        }
        let carried = TrialReport { is_closed: false, ..trial(980, 1.0, 990, 1) };
        assert_eq!(carried.bottleneck(), Bottleneck::Neither);
    }

    /// A trial of 1 ms with 1000 packets, in which the loop of the application's only core was busy for some of the ticks.
    fn with_work(busy: u64, is_closed: bool, tsc: &Tsc) -> TrialReport {
        let elapsed = tsc.ticks(std::time::Duration::from_millis(1));
        let iterations = LoopTimes {
            working: 10,
            packets: 1000,
            busy: busy * elapsed / 100,
            ..LoopTimes::default()
        };
        let core = CoreStats {
            iterations,
            queues: 1,
            core_hertz: Some(1e9),
            alone: Some(100.0),
            engine: Some((Engine::Store, 50.0)),
            ..CoreStats::default()
        };
        let (sent, received, ended_sending, ended) = (1000, 1000, elapsed, elapsed);
        let report = Report { sent, received, ended_sending, ended, ..Report::default() };
        TrialReport {
            report,
            asked: sent,
            is_closed,
            application: vec![core],
            ..TrialReport::default()
        }
    }

    #[test]
    fn io_and_shares_are_those_of_a_loaded_core() {
        let Some(tsc) = machine::untested::tsc("stream: the split into I/O and work") else {
            return;
        };
        for (busy, is_closed, is_loaded) in [
            (3, false, false),
            (90, false, false),
            (99, false, true),
            (3, true, true),
            (99, true, true),
        ] {
            let trial = with_work(busy, is_closed, tsc);
            assert!(
                trial.work_cycles(tsc).is_some()
                    && trial.engine_cycles(Engine::Store, tsc).is_some()
            );
            let split = [trial.io_cycles(tsc), trial.of_alone(), trial.of_engine(Engine::Store)];
            assert_eq!(split.map(|value| value.is_some()), [is_loaded; 3], "{busy}%, {is_closed}");
            assert_eq!(trial.of_engine(Engine::Hyperscan), None, "not measured");
            let named = super::super::metrics::utilisation(&trial, tsc);
            for name in ["io_cycles_per_packet", "of_alone", "of_store"] {
                let is_recorded = named.iter().any(|(recorded, _)| *recorded == name);
                assert_eq!(is_recorded, is_loaded, "{name}: {busy}%, {is_closed}");
            }
        }
        let two = with_work(99, true, tsc);
        let two = TrialReport { application: [&two.application[..]; 2].concat(), ..two };
        assert_eq!((two.io_cycles(tsc), two.of_alone()), (None, None));
    }

    #[test]
    fn several_trials_have_the_bottlenecks_of_each() {
        let [neither, nic, unknown] = [Bottleneck::Neither, Bottleneck::Nic, Bottleneck::Unknown];
        assert_eq!(neither.and(unknown), unknown);
        assert_eq!(unknown.and(nic), nic);
        assert_eq!(unknown.and(Bottleneck::Application), Bottleneck::Application);
        assert_eq!(nic.and(Bottleneck::Application), Bottleneck::Both);
    }
}
