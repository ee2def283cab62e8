//! One session of a run: measures what the journal lacks, round by round.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use machine::environment::Environment;
use machine::setting::Left;

use super::dispatcher::Dispatcher;
use super::location::Location;
use super::machine_lock::{LockRequest, MachineLock, purpose_of_run};
use super::passes::Passes;
use super::record::{Conditions, check_resumable, describe, new_record};
use super::remaining::RemainingWork;
use super::scheduler::{Extent, Scheduler};
use super::sink::JournalSink;
use super::supervisor::{Processes, Supervisor};
use super::{Delay, Event, Lab, RunError, RunObserver, RunRequest, RunSummary};
use crate::descendants;
use crate::journal::{CodeLog, Journal, JournalError, SessionRecord, latest, newest_of};
use crate::link::Origin;
use crate::option;
use crate::side::Side;

/// An open session.
pub(super) struct Session<'a> {
    pub(super) request: &'a RunRequest<'a>,
    dispatcher: Dispatcher<'a>,
    pub(super) sink: JournalSink<'a>,
    /// Held until the workers have ended; `None` if they are on other hosts, where the first takes it.
    _lock: Option<Arc<MachineLock>>,
}

impl<'a> Session<'a> {
    /// Takes the lock of the machine, starts the first worker, of each side, and opens the journal of its host.
    ///
    /// # Errors
    /// Returns an error if another run measures on this machine, the worker does not start, a system setting cannot be
    /// restored, or the journal cannot be opened or has samples of another definition.
    pub(super) fn open(
        lab: &'a Lab<'a>,
        request: &'a RunRequest<'a>,
        observer: &'a mut dyn RunObserver,
    ) -> Result<Self, RunError> {
        descendants::adopt().map_err(|e| RunError::Start(e.to_string()))?;
        let lock = match &request.hosts {
            None => Some(prepare_here(request, observer)?),
            Some(hosts) => {
                // Before the workers, which would wait for those of an earlier lab.
                check_no_other_lab(request, &hosts.name())?;
                None
            }
        };
        let options = option::with_defaults(lab.suites, &request.options);
        let location = Location::prepare(lab, request, &options, observer)?;
        if request.interrupted.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        let (mut supervisors, environments) = start_workers(request, &location, observer)?;
        let sides = request.sides.iter().zip(&environments);
        let sides = sides.map(|(side, environment)| side.record(environment)).collect();
        let origin = Origin::of(&environments[0]);
        let host = host_of(request, &origin);
        let folder = latest(&request.results, &host, request.profile, request.fresh)?.folder;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let conditions = Conditions::current(lab, request, &options, sides)
            .map_err(|e| RunError::Start(e.to_string()))?;
        let new =
            || new_record(lab, request.profile, request.seed, name, host.clone(), &conditions);
        let mut journal = Journal::open(&folder, new)?;
        let changed = |what| RunError::Changed { folder: folder.clone(), what };
        check_resumable(&journal.record, request, &conditions).map_err(changed)?;
        journal.record.sessions.push(SessionRecord::starting(environments[0].boot_id.clone()));
        let identified =
            environments.into_iter().map(|environment| (environment.id(), environment));
        journal.record.environments.extend(identified);
        for supervisor in &mut supervisors {
            let mut known = journal.record.environments.keys();
            known.try_for_each(|id| supervisor.admit(id.clone())).map_err(changed)?;
        }
        describe(&mut journal.record, lab, &request.experiments, &conditions.code);
        journal.save_record()?;
        location.open_logs(&folder)?;
        let code = CodeLog::open(&folder)?;
        let remaining = RemainingWork::of(request, lab.suites);
        let files = (journal, code);
        Ok(Self {
            request,
            dispatcher: Dispatcher::new(lab, options, location, supervisors),
            sink: JournalSink::new(files, origin.environment, remaining, request.time, observer),
            _lock: lock,
        })
    }

    /// Measures all experiments.
    ///
    /// # Errors
    /// Returns an error if consecutive workers are lost or the journal cannot be written.
    pub(super) fn run(mut self) -> Result<RunSummary, RunError> {
        match self.measure() {
            Ok(()) | Err(RunError::Interrupted) => {}
            Err(error) => return Err(error),
        }
        self.dispatcher.end();
        self.sink.finish(&self.dispatcher.origins()[0], self.dispatcher.is_interrupted())
    }

    /// Passes through all experiments until each is complete or the time is used up, with further rounds for claims that
    /// lack some in a part of it.
    ///
    /// # Errors
    /// See [`measure_round`](Self::measure_round).
    fn measure(&mut self) -> Result<(), RunError> {
        let request = self.request;
        let extent = match (request.time, request.is_enough) {
            (None, _) => Extent::Rounds,
            (Some(_), None) => Extent::UntilNarrow,
            (Some(_), Some(_)) => Extent::Unlimited,
        };
        let scheduler = |one| Scheduler::new(one, self.dispatcher.origins(), extent);
        let mut schedulers: Vec<_> = request.experiments.iter().map(scheduler).collect();
        let rounds = request.experiments.iter().map(|one| one.effort.rounds).collect();
        let passes = Passes::new(rounds, self.sink.seed());
        let reserved = self.reserved();
        self.sink.set_time(request.time, reserved);
        self.sink.report_work();
        let finished = self.make_passes(&mut schedulers, &passes, 0)?;
        if reserved.is_zero() {
            return Ok(());
        }
        // Rounds that are required may have used up the time.
        let until = request.time.max(self.required_time(reserved));
        self.sink.set_time(until, Duration::ZERO);
        self.measure_further(&mut schedulers)?;
        self.sink.set_time(request.time, Duration::ZERO);
        schedulers.iter_mut().for_each(Scheduler::resume);
        self.make_passes(&mut schedulers, &passes, finished)?;
        Ok(())
    }

    /// Returns the time at which further rounds end if rounds are required, whatever the time to spend.
    fn required_time(&self, reserved: Duration) -> Option<Duration> {
        (!self.request.min_rounds.is_empty()).then(|| self.sink.elapsed() + reserved)
    }

    /// Makes passes, from a number on, until all experiments are complete or stopped. Returns the number of passes.
    ///
    /// # Errors
    /// See [`measure_round`](Self::measure_round).
    fn make_passes(
        &mut self,
        schedulers: &mut [Scheduler],
        passes: &Passes,
        first: u32,
    ) -> Result<u32, RunError> {
        let count = self.request.time.is_none().then(|| passes.count());
        let mut pass = first;
        while !schedulers.iter().all(Scheduler::is_complete) {
            for (index, round) in passes.visits(pass) {
                let scheduler = &mut schedulers[index];
                if scheduler.is_complete() {
                    continue;
                }
                // After further rounds, those of the schedule have other numbers.
                let round = if first == 0 { round } else { scheduler.next_round() };
                let experiment = scheduler.experiment();
                let announced = Event::Round { experiment, round, pass, passes: count };
                self.measure_round(scheduler, round, None, announced)?;
            }
            pass += 1;
            if self.is_enough(pass, passes) {
                break;
            }
        }
        Ok(pass)
    }

    /// Returns whether the user's condition ends the run after this number of passes.
    fn is_enough(&self, finished: u32, passes: &Passes) -> bool {
        let is_checked = finished.is_multiple_of(passes.count())
            && (finished / passes.count()).is_power_of_two();
        let is_enough = self.request.is_enough.filter(|_| is_checked);
        is_enough.is_some_and(|is_enough| is_enough(self.sink.journal().folder()))
    }

    /// Measures what is missing of a round, or `only` some items of it. Returns whether it measured any sample.
    ///
    /// # Errors
    /// Returns [`RunError::Interrupted`] if the user interrupts the run.
    pub(super) fn measure_round(
        &mut self,
        scheduler: &mut Scheduler,
        round: u32,
        only: Option<&BTreeSet<usize>>,
        announced: Event,
    ) -> Result<bool, RunError> {
        let experiment = scheduler.experiment();
        let (start, mut samples, mut announced) = (Instant::now(), 0, Some(announced));
        // Twice: if a point that was unavailable before is available now, the other points follow it.
        for _ in 0..2 {
            let pending = scheduler.pending(round, only, &self.sink);
            if pending.is_empty() {
                break;
            }
            let is_required = only.is_none() && round < self.request.required_rounds(experiment);
            if !is_required && !self.sink.has_time_for(experiment, pending.len()) {
                scheduler.stop();
                if !self.sink.has_reserved() {
                    self.sink.report_remaining(experiment, 0, 0);
                }
                return Ok(samples > 0);
            }
            if let Some(event) = announced.take() {
                self.sink.observe(event);
            }
            for batch in pending.chunks(experiment.batch) {
                self.dispatcher.execute(experiment, round, batch, &mut self.sink)?;
                if self.dispatcher.is_interrupted() {
                    self.sink.sync()?;
                    return Err(RunError::Interrupted);
                }
            }
            self.sink.sync()?;
            samples += pending.len();
        }
        match only {
            _ if samples == 0 => {}
            // The items of a part may take more time than others.
            Some(_) => self.sink.record_further_round(experiment, round),
            None => self.sink.record_round(experiment, samples, start.elapsed()),
        }
        let required = self.request.required_rounds(experiment);
        scheduler.finish_round(round, required, &mut self.sink)?;
        Ok(samples > 0)
    }
}

/// Takes the lock of this machine, on which the run measures, and restores settings that a killed run had changed. The
/// worker must not capture them as its environment.
///
/// # Errors
/// Returns an error if another run measures here or a setting is not restored.
fn prepare_here(
    request: &RunRequest,
    observer: &mut dyn RunObserver,
) -> Result<Arc<MachineLock>, RunError> {
    let lock = take_lock(request, observer)?;
    report_restored(machine::setting::restore_left(), observer)?;
    Ok(lock)
}

/// Checks that no other lab measures the newest run of a host in the results folder.
fn check_no_other_lab(request: &RunRequest, host: &str) -> Result<(), RunError> {
    let Some(folder) = newest_of(&request.results, host, request.profile) else { return Ok(()) };
    match Journal::check_unlocked(&folder) {
        Err(JournalError::Locked(folder)) if request.fresh => {
            Err(RunError::Busy(format!("results in {}", folder.display())))
        }
        checked => Ok(checked?),
    }
}

/// Returns the host of a run: the name of the guests or hosts on which it is measured, or of this host.
fn host_of(request: &RunRequest, origin: &Origin) -> String {
    match (&request.guests, &request.hosts) {
        (Some(guests), _) => guests.name.clone(),
        (None, Some(hosts)) => hosts.name(),
        (None, None) => origin.host.clone(),
    }
}

/// Returns the lock of the machine: that of the request, or a new one.
fn take_lock(
    request: &RunRequest,
    observer: &mut dyn RunObserver,
) -> Result<Arc<MachineLock>, RunError> {
    if let Some(lock) = &request.lock {
        return Ok(Arc::clone(lock));
    }
    let purpose = purpose_of_run(&request.results)?;
    let (waits, interrupted) = (request.waits, request.interrupted);
    let exclusive = LockRequest { purpose: &purpose, is_shared: false, waits, interrupted };
    Ok(Arc::new(MachineLock::take(exclusive, observer)?))
}

/// Starts the first worker of each side, or of this program without sides; returns the supervisors and the environments of
/// their workers.
fn start_workers<'a>(
    request: &RunRequest<'a>,
    location: &Location,
    observer: &mut dyn RunObserver,
) -> Result<(Vec<Supervisor<'a>>, Vec<Environment>), RunError> {
    let (processes, mut supervisors, mut environments) =
        (Processes::default(), Vec::new(), Vec::new());
    let this_program = [Side::default()];
    let sides = if request.sides.is_empty() { &this_program[..] } else { &request.sides };
    for (index, side) in sides.iter().enumerate() {
        let supervisor = Supervisor::new(request.interrupted, side.clone(), processes.clone());
        let mut supervisor = supervisor.with_location(location.clone().of_side(index));
        let mut report = |delay: Delay| {
            observer.event(Event::Delayed(&delay));
            Ok(())
        };
        environments.push(supervisor.ensure_workers(1, &mut report)?.remove(0));
        supervisors.push(supervisor);
    }
    Ok((supervisors, environments))
}

/// Reports the system settings of a killed run that were restored.
///
/// # Errors
/// Returns [`RunError::Settings`] if a setting was not restored.
fn report_restored(left: Left, observer: &mut dyn RunObserver) -> Result<(), RunError> {
    for setting in &left.restored {
        observer.event(Event::Restored(setting));
    }
    if left.failed.is_empty() { Ok(()) } else { Err(RunError::Settings(left.failed)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Restored(Vec<PathBuf>);

    impl RunObserver for Restored {
        fn event(&mut self, event: Event<'_>) {
            if let Event::Restored(setting) = event {
                self.0.push(setting.to_owned());
            }
        }
    }

    #[test]
    fn a_setting_that_cannot_be_restored_ends_the_run_before_it_starts() {
        let restored = || vec![PathBuf::from("/sys/restored")];
        let mut observer = Restored(Vec::new());
        let left = Left { restored: restored(), ..Left::default() };
        assert!(report_restored(left, &mut observer).is_ok());
        let error = |path: &str| machine::SysError {
            attempt: "cannot restore".into(),
            source: std::io::Error::other(format!("{path}: no")),
            remedy: "do it".into(),
        };
        let failed = vec![error("/sys/one"), error("/sys/two")];
        let left = Left { restored: restored(), failed };
        let line = report_restored(left, &mut observer).unwrap_err().to_string();
        let expected =
            "cannot restore: /sys/one: no; do it; also: cannot restore: /sys/two: no; do it";
        assert_eq!(line, expected);
        assert_eq!(observer.0, ["/sys/restored", "/sys/restored"].map(PathBuf::from));
    }
}
