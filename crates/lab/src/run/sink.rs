//! Destinations of samples: the journal, the observer and the summary of the session.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use machine::environment::Environment;
use machine::usage::Usage;

use super::remaining::RemainingWork;
use super::{Event, RunError, RunObserver, RunSummary};
use crate::experiment::{Experiment, Profile};
use crate::journal::{CodeLog, Journal, Voids};
use crate::link::Origin;
use crate::metric::{Better, Metric};
use crate::point::Point;
use crate::sample::{Failure, Item, MAX_ATTEMPTS, Sample};
use crate::timed_code::TimedCode;

/// The experiment of the lab's overhead.
pub(crate) const SESSION: &str = "lab/session";

/// Returns whether an experiment is that of the lab's overhead, which no suite declares.
pub fn is_lab_experiment(id: &str) -> bool {
    id == SESSION
}

/// The metric of the time that a session spent outside of samples.
pub(crate) const OUTSIDE_SAMPLES: &str = "outside_samples";

/// The metrics of the lab's overhead.
pub(crate) const METRICS: [Metric; 2] = [
    Metric::new(
        OUTSIDE_SAMPLES,
        "share",
        Better::Lower,
        "Share of the session's wall time outside samples",
    )
    .from_time(),
    Metric::new("peak_memory", "B", Better::Lower, "Peak resident memory of the lab's process"),
];

/// The remedy if all attempts at a point are void.
const QUIETER: &str = "stop other programs, fix the core clock (cpupower frequency-set) or use a machine with fewer \
                       neighbours, then run with --fresh";

/// The journal of a run and what a session adds to it.
pub(super) struct JournalSink<'a> {
    journal: Journal,
    code: CodeLog,
    observer: &'a mut dyn RunObserver,
    profile: Profile,
    remaining: RemainingWork,
    /// The number of this session.
    session: u32,
    summary: RunSummary,
    start: Instant,
    /// The time to spend; `None` without limit.
    time: Option<Duration>,
    /// The part of it for further rounds, before they start.
    reserved: Duration,
    seconds_in_samples: f64,
}

impl<'a> JournalSink<'a> {
    pub(super) fn new(
        (journal, code): (Journal, CodeLog),
        environment: String,
        remaining: RemainingWork,
        time: Option<Duration>,
        observer: &'a mut dyn RunObserver,
    ) -> Self {
        let folder = journal.folder().to_owned();
        observer.event(Event::Opened { folder: &folder, samples: journal.lines() });
        let summary = RunSummary {
            folder,
            environment,
            samples: 0,
            faults: Vec::new(),
            time: Duration::ZERO,
            interrupted: false,
        };
        Self {
            profile: journal.record.profile,
            session: journal.record.last_session(),
            journal,
            code,
            observer,
            remaining,
            summary,
            start: Instant::now(),
            time,
            reserved: Duration::ZERO,
            seconds_in_samples: 0.0,
        }
    }

    /// Returns the run's seed.
    pub(super) fn seed(&self) -> u64 {
        self.journal.record.seed
    }

    /// Returns the number of this session.
    pub(super) fn session(&self) -> u32 {
        self.session
    }

    /// Passes an event to the observer.
    pub(super) fn observe(&mut self, event: Event<'_>) {
        self.observer.event(event);
    }

    /// Returns the journal.
    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Appends a sample to the journal.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written.
    pub(super) fn keep(&mut self, sample: Sample) -> Result<(), RunError> {
        let sample = Sample { session: self.session, ..sample };
        self.journal.append(&sample)?;
        self.observer.event(Event::Sample(&sample));
        self.seconds_in_samples += sample.seconds;
        self.summary.samples += 1;
        self.remaining.record(&sample);
        if sample.error.as_ref().is_some_and(|failure| failure.kind.is_fault()) {
            self.summary.faults.push(sample);
        }
        Ok(())
    }

    /// Writes the generated code of a point unless it was written for the same environment.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn keep_code(&mut self, code: TimedCode) -> Result<(), RunError> {
        Ok(self.code.add(&TimedCode { session: self.session, ..code })?)
    }

    /// Adds an environment to the run record unless it is known.
    ///
    /// # Errors
    /// Returns an error if the record cannot be written.
    pub(super) fn record_environment(&mut self, environment: Environment) -> Result<(), RunError> {
        let known = self.journal.record.environments.insert(environment.id(), environment);
        if known.is_none() {
            self.journal.save_record()?;
        }
        Ok(())
    }

    /// Adds one error for an item that was void in every round; its void samples stay in the journal. A later session
    /// that measures no new sample of it reports the same error.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written.
    pub(super) fn give_up(
        &mut self,
        experiment: &Experiment,
        item: &Item,
        round: u32,
        origin: &Origin,
    ) -> Result<(), RunError> {
        let voids = self.journal.voids(&experiment.id(), item, &origin.environment);
        let Voids { attempts, cause, is_reported } = voids.cloned().unwrap_or_default();
        let rounds = match round + 1 {
            1 => "1 round".into(),
            rounds => format!("{rounds} rounds"),
        };
        let why = format!("in every round, {attempts} tries in {rounds}; the last: {cause}");
        let failure = Failure { remedy: Some(QUIETER.into()), ..Failure::void(why) };
        let sample = Sample {
            experiment: experiment.id(),
            point: item.point.clone(),
            twin: item.twin,
            round,
            attempt: MAX_ATTEMPTS,
            error: Some(failure),
            ..blank(origin)
        };
        if is_reported {
            self.summary.faults.push(sample);
            return Ok(());
        }
        self.keep(sample)
    }

    /// Returns how much of the time to spend is left; `None` without limit.
    pub(super) fn time_left(&self) -> Option<Duration> {
        self.time.map(|time| time.saturating_sub(self.start.elapsed()))
    }

    /// Sets the time to spend, and the part of it that [`has_time_for`](Self::has_time_for) leaves for later.
    pub(super) fn set_time(&mut self, time: Option<Duration>, reserved: Duration) {
        (self.time, self.reserved) = (time, reserved);
    }

    /// Returns the time since the start of the session.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns whether a part of the time is left for later.
    pub(super) fn has_reserved(&self) -> bool {
        !self.reserved.is_zero()
    }

    /// Returns the expected time of `samples` samples of an experiment.
    pub(super) fn time_of(&self, experiment: &Experiment, samples: usize) -> Duration {
        self.remaining.time(experiment, samples)
    }

    /// Returns whether `samples` samples of an experiment can be started: its first round always, if time is left;
    /// others only if they are expected to end in time.
    pub(super) fn has_time_for(&self, experiment: &Experiment, samples: usize) -> bool {
        self.time_left().is_none_or(|left| {
            // Further rounds need those of the first pass.
            let (expected, reserved) = match self.remaining.has_round(experiment) {
                true => (self.remaining.time(experiment, samples), self.reserved),
                false => (Duration::ZERO, Duration::ZERO),
            };
            let left = left.saturating_sub(reserved);
            !left.is_zero() && expected <= left
        })
    }

    /// Records the wall time of a round with `samples` samples.
    pub(super) fn record_round(&mut self, experiment: &Experiment, samples: usize, wall: Duration) {
        self.remaining.record_round(experiment, samples, wall);
    }

    /// Sets the remaining samples of an experiment, `required` of them even if no time is left, and reports the
    /// remaining work.
    pub(super) fn report_remaining(
        &mut self,
        experiment: &Experiment,
        samples: u64,
        required: u64,
    ) {
        self.remaining.set(experiment, samples, required);
        self.report_work();
    }

    /// Reports the remaining work.
    pub(super) fn report_work(&mut self) {
        self.observer.event(self.remaining.event(self.time_left()));
    }

    /// Reports that the target interval takes `rounds` rounds of at most `max_rounds`, with `samples` more samples.
    pub(super) fn report_projection(
        &mut self,
        experiment: &Experiment,
        rounds: usize,
        max_rounds: usize,
        samples: usize,
    ) {
        self.observer.event(Event::Projected {
            experiment,
            rounds: rounds.min(max_rounds),
            time: self.remaining.time(experiment, samples),
            limited: rounds > max_rounds,
        });
    }

    /// Records that a round of this session has only the items that claims need.
    pub(super) fn record_further_round(&mut self, experiment: &Experiment, round: u32) {
        if let Some(session) = self.journal.record.sessions.last_mut() {
            session.further_rounds.entry(experiment.id()).or_default().insert(round);
        }
    }

    /// Writes the run record.
    ///
    /// # Errors
    /// Returns an error if the record cannot be written.
    pub(super) fn save_record(&self) -> Result<(), RunError> {
        Ok(self.journal.save_record()?)
    }

    /// Flushes the journal to disk.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub(super) fn sync(&self) -> Result<(), RunError> {
        Ok(self.journal.sync()?)
    }

    /// Ends the session: adds the lab's overhead if there are new samples, and flushes the journal.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written.
    pub(super) fn finish(
        mut self,
        origin: &Origin,
        interrupted: bool,
    ) -> Result<RunSummary, RunError> {
        // The lab's overhead in a guest is that of the emulation, and on another host that of the network.
        let record = &self.journal.record;
        if self.summary.samples > 0 && record.guests.is_none() && record.hosts.is_empty() {
            let overhead = self.overhead(origin);
            self.journal.append(&overhead)?;
        }
        self.journal.end_session()?;
        Ok(RunSummary { time: self.start.elapsed(), interrupted, ..self.summary })
    }

    /// Returns the overhead of the lab as a sample.
    fn overhead(&self, origin: &Origin) -> Sample {
        let wall = self.start.elapsed().as_secs_f64();
        let values = [
            (OUTSIDE_SAMPLES.to_owned(), (1.0 - self.seconds_in_samples / wall).max(0.0)),
            ("peak_memory".to_owned(), Usage::of_process().peak_memory as f64),
        ];
        Sample {
            experiment: SESSION.into(),
            point: Point::from([("profile", self.profile.name())]),
            round: u32::try_from(self.journal.lines()).unwrap_or(u32::MAX),
            session: self.session,
            attempt: 1,
            seconds: wall,
            values: values.into(),
            ..blank(origin)
        }
    }
}

/// Returns an empty sample of now.
fn blank(origin: &Origin) -> Sample {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Sample {
        host: origin.host.clone(),
        environment: origin.environment.clone(),
        at: now.map_or(0.0, |time| time.as_secs_f64()),
        ..Sample::default()
    }
}
