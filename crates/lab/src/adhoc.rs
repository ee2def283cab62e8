//! The runs of suites' commands, e.g. `tollgate copy`, which are stored apart from those of `tollgate run`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::experiment::{Experiment, Profile};
use crate::journal::{self, Run};
use crate::plan;
use crate::point::Point;
use crate::quantity::format_duration;
use crate::run::{NoObserver, RunError, RunRequest, SESSION};
use crate::sample::{Failure, Sample};
use crate::schema::{self, JsonOutput};
use crate::statistics::median;
use crate::suite::{CommandError, Lab, Suite};
use crate::terminal;

/// A run of a suite's command.
pub struct AdhocRun<'a> {
    /// The suite.
    pub suite: &'a Suite,
    /// The experiments, in order.
    pub experiments: Vec<Experiment>,
    /// The profile.
    pub profile: Profile,
    /// The results folder; the run is stored in its subfolder `adhoc`.
    pub results: &'a Path,
    /// The options that the user enabled or set.
    pub options: BTreeMap<String, String>,
}

/// A finished run of a suite's command.
pub struct Measured {
    /// The run.
    pub run: Run,
    /// The exit status: 1 if a sample failed, else 0.
    pub status: i32,
}

/// Output options of the commands that measure.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct OutputArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Measured {
    /// Prints the values as JSON on standard output and returns the exit status.
    ///
    /// # Errors
    /// Returns the error of standard output.
    pub fn print_json(&self) -> std::io::Result<i32> {
        let value = schema::to_value(&self.to_output())?;
        writeln!(terminal::stdout(), "{}", terminal::json(&value))?;
        Ok(self.status)
    }

    fn to_output(&self) -> MeasuredOutput<'_> {
        let run = &self.run;
        let measured = run.record.experiments.iter().filter(|(id, _)| *id != SESSION);
        let experiments = measured.map(|(id, experiment)| {
            let samples = run.samples.iter().filter(|sample| sample.experiment == *id);
            let values = PointValues::of(samples);
            let metrics = run.record.metrics.get(&experiment.suite).into_iter().flatten();
            let units = metrics.map(|(name, metric)| (name.as_str(), metric.unit.as_str()));
            MeasuredExperiment {
                id,
                units: units.collect(),
                points: experiment.points.iter().map(|point| values.to_output(point)).collect(),
            }
        });
        MeasuredOutput {
            folder: run.folder.display().to_string(),
            host: &run.record.host,
            experiments: experiments.collect(),
        }
    }
}

/// JSON output of a suite's command.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MeasuredOutput<'a> {
    /// Folder of the run.
    folder: String,
    /// Name of the host.
    host: &'a str,
    /// The experiments measured.
    experiments: Vec<MeasuredExperiment<'a>>,
}

impl JsonOutput for MeasuredOutput<'_> {
    const NAME: &'static str = "suite";
    const WRITTEN_BY: &'static str =
        "tollgate copy|crossing|enclave|bounds --json, and tollgate stream search --json";
    const VERSION: u64 = 1;
}

/// Values of an experiment.
#[derive(Debug, Serialize, JsonSchema)]
struct MeasuredExperiment<'a> {
    /// ID, e.g. `copy/throughput`.
    id: &'a str,
    /// Metric to unit.
    units: BTreeMap<&'a str, &'a str>,
    /// All points, in the order of the declaration.
    points: Vec<MeasuredPoint<'a>>,
}

/// Values of a point.
#[derive(Debug, Serialize, JsonSchema)]
struct MeasuredPoint<'a> {
    /// One level per factor.
    point: &'a Point,
    /// Number of rounds with values.
    rounds: usize,
    /// Metric to median over the rounds; absent without values.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<BTreeMap<String, f64>>,
    /// Why there are no values; absent with values.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl AdhocRun<'_> {
    /// Measures the experiments and prints the values as JSON, or what `text` returns and the run's folder. Returns the
    /// exit status.
    ///
    /// # Errors
    /// As [`measure`](Self::measure), and the error of `text` or of standard output.
    pub fn measure_and_print(
        self,
        lab: &Lab,
        json: bool,
        text: impl FnOnce(&Run) -> Result<String, CommandError>,
    ) -> Result<i32, CommandError> {
        let measured = self.measure(lab, Duration::ZERO)?;
        if json {
            return Ok(measured.print_json()?);
        }
        let Measured { run, status } = measured;
        writeln!(terminal::stdout(), "{}\n{}", text(&run)?, run.folder.display())?;
        Ok(status)
    }

    /// Measures the experiments. Prints to standard error the expected duration, including `extra`, and the failures.
    ///
    /// # Errors
    /// Returns one line if the journal cannot be read or written, or the worker does not start.
    pub fn measure(self, lab: &Lab, extra: Duration) -> Result<Measured, RunError> {
        let each = self.experiments.iter().map(|one| plan::expected(one, self.suite));
        let time = format_duration(each.sum::<Duration>() + extra);
        print_note(&match machine::cpu::lacks_time() {
            true => format!("expected: {time}, and longer because this CPU is emulated"),
            false => format!("expected: at most {time}"),
        });
        let request = RunRequest {
            experiments: self.experiments,
            profile: self.profile,
            results: self.results.join("adhoc"),
            fresh: true,
            seed: None,
            time: None,
            min_rounds: BTreeMap::new(),
            is_enough: None,
            lacking: None,
            sides: Vec::new(),
            guests: None,
            hosts: None,
            waits: false,
            lock: None,
            options: self.options,
            interrupted: &AtomicBool::new(false),
        };
        let summary = lab.run(&request, &mut NoObserver)?;
        // A failure of every round is printed once.
        let faults = summary.faults.iter().filter_map(|sample| {
            let failure = sample.error.as_ref()?;
            Some(format!("{} {}: {failure}", sample.experiment, sample.point))
        });
        faults.collect::<BTreeSet<_>>().iter().for_each(|fault| print_note(fault));
        let run = journal::open(&summary.folder)?;
        Ok(Measured { run, status: i32::from(!summary.faults.is_empty()) })
    }
}

/// Prints a line to standard error, if it is open.
fn print_note(line: &str) {
    let _ = writeln!(terminal::stderr(), "{line}");
}

/// The valid samples of each point, without twins, by round.
#[derive(Debug, Default)]
pub struct PointValues {
    samples: BTreeMap<Point, BTreeMap<u32, BTreeMap<String, f64>>>,
    failures: BTreeMap<Point, Failure>,
}

impl PointValues {
    /// Groups the valid samples by point and round.
    pub fn of<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Self {
        let mut values = Self::default();
        for sample in samples {
            let point = sample.point.clone();
            if let Some(failure) = &sample.error {
                values.failures.entry(point).or_insert_with(|| failure.clone());
            } else if sample.is_valid() && !sample.twin {
                values
                    .samples
                    .entry(point)
                    .or_default()
                    .insert(sample.round, sample.values.clone());
            }
        }
        values
    }

    /// Returns the values of a metric of a point, by round.
    pub fn rounds(&self, point: &Point, metric: &str) -> BTreeMap<u32, f64> {
        let rounds = self.samples.get(point).into_iter().flatten();
        rounds.filter_map(|(round, values)| Some((*round, *values.get(metric)?))).collect()
    }

    /// Returns the median of a metric of a point over its rounds.
    pub fn median(&self, point: &Point, metric: &str) -> Option<f64> {
        median(&self.rounds(point, metric).into_values().collect::<Vec<_>>())
    }

    /// Returns the median of the ratio of a metric of one point to another, computed per round.
    pub fn ratio(&self, of: &Point, to: &Point, metric: &str) -> Option<f64> {
        let to = self.rounds(to, metric);
        let of = self.rounds(of, metric).into_iter();
        median(&of.filter_map(|(round, value)| Some(value / to.get(&round)?)).collect::<Vec<_>>())
    }

    fn to_output<'p>(&self, point: &'p Point) -> MeasuredPoint<'p> {
        let Some(rounds) = self.samples.get(point) else {
            let error = Some(self.missing_reason(point));
            return MeasuredPoint { point, rounds: 0, values: None, error };
        };
        let metrics: BTreeSet<&String> = rounds.values().flat_map(BTreeMap::keys).collect();
        let medians = metrics
            .into_iter()
            .filter_map(|metric| Some((metric.clone(), self.median(point, metric)?)));
        MeasuredPoint { point, rounds: rounds.len(), values: Some(medians.collect()), error: None }
    }

    /// Returns why a point has no value.
    pub fn missing_reason(&self, point: &Point) -> String {
        let failure = self.failures.get(point);
        failure.map_or_else(|| "no valid sample".into(), ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(level: &str, round: u32, value: f64) -> Sample {
        let values = BTreeMap::from([("wall".to_owned(), value)]);
        Sample { point: Point::from([("length", level)]), round, values, ..Sample::default() }
    }

    #[test]
    fn values_are_grouped_by_round_and_ratios_computed_per_round() {
        let twin = Sample { twin: true, ..sample("1 B", 1, 99.0) };
        let void = Sample { void: Some("the clock moved".into()), ..sample("1 B", 1, 98.0) };
        let failed = Sample { error: Some(Failure::check("no")), ..sample("2 B", 2, 97.0) };
        let all = [
            sample("1 B", 0, 10.0),
            void,
            sample("1 B", 1, 40.0),
            twin,
            sample("2 B", 0, 5.0),
            sample("2 B", 1, 10.0),
            failed,
        ];
        let values = PointValues::of(&all);
        let [one, two] = ["1 B", "2 B"].map(|level| Point::from([("length", level)]));
        assert_eq!(values.rounds(&one, "wall"), BTreeMap::from([(0, 10.0), (1, 40.0)]));
        assert_eq!(values.median(&one, "wall"), Some(25.0));
        assert_eq!(values.ratio(&one, &two, "wall"), Some(3.0));
        assert_eq!(values.median(&one, "cpu"), None);
        assert_eq!(values.missing_reason(&two), "check: no");
        assert_eq!(values.missing_reason(&one), "no valid sample");
        let json = |point| serde_json::to_value(values.to_output(point)).unwrap();
        assert_eq!(
            json(&one),
            json!({ "point": { "length": "1 B" }, "rounds": 2, "values": { "wall": 25.0 } })
        );
        let three = Point::from([("length", "3 B")]);
        assert_eq!(
            json(&three),
            json!({ "point": { "length": "3 B" }, "rounds": 0, "error": "no valid sample" })
        );
    }
}
