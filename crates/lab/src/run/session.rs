//! One session of a run: what is still to be measured, round by round.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use machine::setting::Left;

use super::ahead::Ahead;
use super::hand::{Hand, Said};
use super::record::{Shared, describe, new_record, now, same_definitions};
use super::{Event, Lab, RunError, RunObserver, RunRequest, RunSummary, stopping};
use crate::descendants;
use crate::experiment::Experiment;
use crate::journal::{Journal, Settled, Voids, latest};
use crate::message::WAITING;
use crate::option;
use crate::plan::{self, Item};
use crate::sample::{Failure, FailureKind, MAX_ATTEMPTS, Sample};

/// An item that is void in each of so many rounds from the first is given up, although more rounds are wanted.
const VOID_ROUNDS: u32 = 10;
/// What helps where every try is void.
const QUIETER: &str = "stop other programs, fix the core clock (cpupower frequency-set) or use a machine with fewer neighbours, then run with --fresh";

pub(super) struct Session<'a> {
    pub(super) lab: &'a Lab<'a>,
    pub(super) wanted: &'a RunRequest<'a>,
    pub(super) watch: &'a mut dyn RunObserver,
    pub(super) journal: Journal,
    pub(super) hands: Vec<Hand>,
    pub(super) started: u64,
    pub(super) sender: SyncSender<Said>,
    pub(super) said: Receiver<Said>,
    pub(super) environment: String,
    pub(super) ended: RunSummary,
    /// What this machine cannot measure is asked once a session.
    pub(super) unavailable: HashSet<(String, Item)>,
    pub(super) begun: Instant,
    /// Seconds spent inside samples.
    pub(super) inside: f64,
    ahead: Ahead,
}

/// Tells which settings were restored that a killed run had left changed, and fails with all that were not.
fn tell_left(left: Left, watch: &mut dyn RunObserver) -> Result<(), RunError> {
    for setting in &left.restored {
        watch.event(Event::Restored(setting));
    }
    if left.failed.is_empty() { Ok(()) } else { Err(RunError::Settings(left.failed)) }
}

impl<'a> Session<'a> {
    pub(super) fn open(
        lab: &'a Lab<'a>,
        wanted: &'a RunRequest<'a>,
        watch: &'a mut dyn RunObserver,
    ) -> Result<Self, RunError> {
        descendants::adopt().map_err(|e| RunError::Worker(e.to_string()))?;
        // What an earlier run left changed would pass for how this machine is.
        tell_left(machine::setting::restore_left(), watch)?;
        let (sender, said) = sync_channel(WAITING);
        let hand = Hand::start(0, sender.clone()).map_err(RunError::Worker)?;
        let here = hand.hello.environment.clone();
        let environment = here.id();
        let place = latest(&wanted.results, &here.hostname, wanted.profile, wanted.fresh)?;
        let name = place.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let shared = Shared {
            options: option::values(&wanted.options),
            nice: machine::priority::current().map_err(|e| RunError::Worker(e.to_string()))?,
        };
        let new = || {
            let how = (wanted.profile, wanted.seed);
            new_record(lab, how, name, here.hostname.clone(), &shared)
        };
        let mut journal = Journal::open(&place.folder, new)?;
        same_definitions(&journal.record, &wanted.experiments, &shared)
            .map_err(|what| RunError::Changed { folder: place.folder.clone(), what })?;
        journal.record.environments.insert(environment.clone(), here);
        describe(&mut journal.record, lab, &wanted.experiments);
        journal.save_record()?;
        watch.event(Event::Opened { folder: &place.folder, samples: journal.lines() });
        let ended = RunSummary {
            folder: place.folder,
            environment: environment.clone(),
            samples: 0,
            faults: Vec::new(),
            interrupted: false,
        };
        Ok(Self {
            lab,
            wanted,
            watch,
            journal,
            hands: vec![hand],
            started: 1,
            sender,
            said,
            environment,
            ended,
            unavailable: HashSet::new(),
            begun: Instant::now(),
            inside: 0.0,
            ahead: Ahead::of(&wanted.experiments, lab.suites),
        })
    }

    pub(super) fn run(mut self) -> Result<RunSummary, RunError> {
        for experiment in &self.wanted.experiments {
            if !self.interrupted() {
                self.experiment(experiment)?;
            }
        }
        self.hands.clear();
        if self.ended.samples > 0 {
            let own = self.own_cost();
            self.journal.append(&own)?;
        }
        self.journal.sync()?;
        self.ended.interrupted = self.interrupted();
        Ok(self.ended)
    }

    pub(super) fn interrupted(&self) -> bool {
        self.wanted.interrupted.load(Ordering::Relaxed)
    }

    fn experiment(&mut self, experiment: &Experiment) -> Result<(), RunError> {
        self.watch.event(Event::Experiment { experiment });
        let items = plan::items(experiment);
        let mut values = vec![Vec::new(); items.len()];
        let mut enough = vec![false; items.len()];
        let mut voids = vec![0u32; items.len()];
        let mut told = false;
        for round in 0..experiment.effort.rounds {
            self.round(experiment, &items, &enough, round)?;
            if self.interrupted() {
                return Ok(());
            }
            for (at, item) in items.iter().enumerate() {
                if enough[at] {
                    continue;
                }
                match self.journal.settled(&experiment.id(), item, round, &self.environment) {
                    Some(Settled::Value(value)) => values[at].push(value),
                    Some(Settled::Void) => voids[at] += 1,
                    Some(Settled::NoValue) | None => {}
                }
                let rounds = round + 1;
                let last = rounds == experiment.effort.rounds;
                if voids[at] == rounds && (last || rounds >= VOID_ROUNDS) {
                    self.always_void(experiment, item, round)?;
                    enough[at] = true;
                    continue;
                }
                enough[at] = self.is_unavailable(experiment, item)
                    || stopping::narrow(&values[at], &experiment.effort);
            }
            let open = enough.iter().filter(|enough| !**enough).count() as u64;
            let rounds = u64::from(experiment.effort.rounds - round - 1);
            self.ahead.remains(experiment, open * rounds);
            self.watch.event(self.ahead.event());
            if round + 1 == experiment.effort.min_rounds && !told {
                told = true;
                self.tell_projected(experiment, &values, &enough, round + 1);
            }
            if enough.iter().all(|enough| *enough) {
                break;
            }
        }
        Ok(())
    }

    fn round(
        &mut self,
        experiment: &Experiment,
        items: &[Item],
        enough: &[bool],
        round: u32,
    ) -> Result<(), RunError> {
        let order = plan::order(experiment, items.len(), round, self.journal.record.seed);
        let pending: Vec<_> = order
            .into_iter()
            .enumerate()
            .filter(|(_, at)| !enough[*at] && !self.is_measured(experiment, &items[*at], round))
            .map(|(position, at)| (position as u32, items[at].clone()))
            .collect();
        for batch in pending.chunks(experiment.batch) {
            self.carry_out(experiment, round, batch)?;
            if self.interrupted() {
                break;
            }
        }
        if !pending.is_empty() {
            self.journal.sync()?;
        }
        Ok(())
    }

    fn is_measured(&self, experiment: &Experiment, item: &Item, round: u32) -> bool {
        self.is_unavailable(experiment, item)
            || self.journal.settled(&experiment.id(), item, round, &self.environment).is_some()
    }

    fn is_unavailable(&self, experiment: &Experiment, item: &Item) -> bool {
        self.unavailable.contains(&(experiment.id(), Item { twin: false, ..item.clone() }))
    }

    /// Makes an item that is void in every round an error, once; its void samples stay in the journal. A
    /// later session that measures nothing new of it reports the same.
    fn always_void(
        &mut self,
        experiment: &Experiment,
        item: &Item,
        round: u32,
    ) -> Result<(), RunError> {
        let voids = self.journal.voids(&experiment.id(), item, &self.environment);
        let Voids { tries, cause, told } = voids.cloned().unwrap_or_default();
        let rounds = round + 1;
        let rounds = if rounds == 1 { "1 round".into() } else { format!("{rounds} rounds") };
        let why = format!("in every round, {tries} tries in {rounds}; the last: {cause}");
        let sample = Sample {
            experiment: experiment.id(),
            point: item.point.clone(),
            twin: item.twin,
            round,
            host: self.journal.record.host.clone(),
            environment: self.environment.clone(),
            attempt: MAX_ATTEMPTS,
            at: now(),
            error: Some(Failure {
                remedy: Some(QUIETER.into()),
                ..Failure::new(FailureKind::Void, why)
            }),
            ..Sample::default()
        };
        if told {
            self.ended.faults.push(sample);
            return Ok(());
        }
        self.keep(sample)
    }

    /// Journals a sample as soon as it is there.
    pub(super) fn keep(&mut self, sample: Sample) -> Result<(), RunError> {
        self.journal.append(&sample)?;
        self.watch.event(Event::Sample(&sample));
        self.inside += sample.seconds;
        self.ended.samples += 1;
        self.ahead.passed(&sample);
        match sample.error.as_ref().map(|failure| failure.kind) {
            Some(FailureKind::Unavailable | FailureKind::Unsupported) => {
                let item = Item { point: sample.point, twin: false };
                self.unavailable.insert((sample.experiment, item));
            }
            Some(_) => self.ended.faults.push(sample),
            None => {}
        }
        Ok(())
    }

    fn tell_projected(
        &mut self,
        experiment: &Experiment,
        values: &[Vec<f64>],
        enough: &[bool],
        rounds: u32,
    ) {
        let effort = &experiment.effort;
        let needed: Vec<_> = values
            .iter()
            .zip(enough)
            .filter(|(_, enough)| !**enough)
            .filter_map(|(values, _)| stopping::projected(values, effort))
            .collect();
        let Some(&most) = needed.iter().max() else {
            return;
        };
        let limit = effort.rounds as usize;
        let left: usize =
            needed.iter().map(|all| all.min(&limit).saturating_sub(rounds as usize)).sum();
        self.watch.event(Event::Projected {
            experiment,
            rounds: most.min(limit),
            time: self.ahead.time(experiment, left),
            limited: most > limit,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Told(Vec<PathBuf>);

    impl RunObserver for Told {
        fn event(&mut self, event: Event<'_>) {
            if let Event::Restored(setting) = event {
                self.0.push(setting.to_owned());
            }
        }
    }

    #[test]
    fn a_setting_that_cannot_be_restored_ends_the_run_before_it_starts() {
        let restored = || vec![PathBuf::from("/sys/restored")];
        let mut told = Told(Vec::new());
        let left = Left { restored: restored(), ..Left::default() };
        assert!(tell_left(left, &mut told).is_ok());
        let refusal = |path: &str| machine::SysError {
            attempt: "cannot restore".into(),
            source: std::io::Error::other(format!("{path}: no")),
            remedy: "do it".into(),
        };
        let failed = vec![refusal("/sys/one"), refusal("/sys/two")];
        let left = Left { restored: restored(), failed };
        let line = tell_left(left, &mut told).unwrap_err().to_string();
        let due = "cannot restore: /sys/one: no; do it; also: cannot restore: /sys/two: no; do it";
        assert_eq!(line, due);
        assert_eq!(told.0, ["/sys/restored", "/sys/restored"].map(PathBuf::from));
    }
}
