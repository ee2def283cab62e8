//! `tollgate stream search`: the largest load that loses nothing, and that which loses little.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lab::adhoc::{AdhocRun, Measured, OutputArgs, PointValues};
use lab::experiment::{Effort, Experiment, MAX_ROUNDS, Profile};
use lab::factor::find;
use lab::method::{Params, complete};
use lab::point::Point;
use lab::quantity;
use lab::run::Lab;
use lab::sample::Sample;
use lab::suite::UsageError;
use lab::summary::CLASS;

use super::Error;
use crate::SUITE;
use crate::suite::params::SearchParams;

/// How long a full trial may last.
const DURATIONS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(600);

/// The name that the experiment has in the journal, and how it is measured.
const NAME: &str = "search";
const MEASURED_AS: &str = "throughput";
/// Metrics to print, with their descriptions.
const SHOWN: [(&str, &str); 4] = [
    ("ndr", "NDR, nothing lost, confirmed"),
    ("ndr_strict", "NDR with void trials counted as loss"),
    ("pdr", "PDR, at most 0.5% lost, confirmed"),
    ("rfc2544", "RFC 2544, one trial a load"),
];

/// Options of `tollgate stream search`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How packets reach the application: pipes, pipes-per-packet, pipes-prefetch, descriptors
    #[arg(long, default_value = "pipes")]
    interface: String,
    /// Bytes of each packet on the wire, with check sequence
    #[arg(long, default_value = "64", allow_negative_numbers = true)]
    packet_bytes: String,
    /// Cores of the application
    #[arg(long, default_value = "1", allow_negative_numbers = true)]
    cores: String,
    /// Pipes of all cores together; two a core where nothing is said
    #[arg(long, allow_negative_numbers = true)]
    pipes: Option<String>,
    /// Bytes of each pipe's ring
    #[arg(long, default_value = "2 MiB", allow_hyphen_values = true)]
    ring: String,
    /// Packets that each pipe or queue holds; 'ring': as many as the ring does
    #[arg(long, default_value = "ring", allow_negative_numbers = true)]
    depth: String,
    /// What of each packet that comes back is compared: none, one-word, all
    #[arg(long, default_value = "one-word")]
    check: String,
    /// Instructions that do nothing, for each packet
    #[arg(long, default_value = "0", allow_negative_numbers = true)]
    cycles: String,
    /// The largest rate that is tried, Gbps
    #[arg(long, default_value = "100", allow_negative_numbers = true)]
    maximum: String,
    /// How long a full trial lasts; the source's last 1 s
    #[arg(long, default_value = "100 ms", allow_hyphen_values = true)]
    duration: String,
    /// How often the whole search is repeated, each time in a fresh process
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    iters: u32,
    /// The folder of results
    #[arg(long, default_value = "results")]
    results: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// Searches and prints what was found. Gives the exit status: 0, or 1 where measuring failed.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let given = options.point()?;
    let point = complete(SearchParams::FACTORS, &given);
    let adhoc = AdhocRun {
        suite: &SUITE,
        experiments: vec![options.experiment(&point)?],
        profile: Profile::Standard,
        results: &options.results,
        options: BTreeMap::new(),
    };
    let measured = adhoc.measure(lab, Duration::ZERO)?;
    let Measured { run, status } = &measured;
    let gathered = PointValues::of(&run.samples);
    if gathered.median(&point, SHOWN[0].0).is_none() {
        return Err(format!(
            "nothing was found: {}",
            missing_reason(&gathered, &run.samples, &point)
        )
        .into());
    }
    if options.output.json {
        return Ok(measured.print_json()?);
    }
    let found = Found { gathered: &gathered, samples: &run.samples, point: &point, given: &given };
    let mut out = lab::terminal::stdout();
    write!(out, "{}", found.text())?;
    writeln!(out, "every trial: {}", run.folder.join("samples.jsonl").display())?;
    Ok(*status)
}

/// Why no sample counts.
fn missing_reason(gathered: &PointValues, samples: &[Sample], point: &Point) -> String {
    let void = samples.iter().rev().find_map(|sample| sample.void.as_ref());
    void.map_or_else(
        || gathered.missing_reason(point),
        |cause| format!("every sample is void: {cause}"),
    )
}

impl Options {
    fn point(&self) -> Result<Point, Error> {
        let two_per_core = || match self.cores.parse::<u64>() {
            Ok(cores) => cores.saturating_mul(2).to_string(),
            Err(_) => self.cores.clone(),
        };
        let levels = [
            ("interface", self.interface.clone()),
            ("packet_bytes", self.packet_bytes.clone()),
            ("cores", self.cores.clone()),
            ("pipes", self.pipes.clone().unwrap_or_else(two_per_core)),
            ("ring", self.ring.clone()),
            ("depth", self.depth.clone()),
            ("check", self.check.clone()),
            ("cycles", self.cycles.clone()),
            ("maximum", self.maximum.clone()),
        ];
        let level = |(name, text): (&str, String)| {
            find(SearchParams::FACTORS, name)?.level(&text).map(|level| (name.to_string(), level))
        };
        let point = levels.into_iter().map(level).collect::<Result<_, String>>();
        Ok(point.map_err(UsageError::new)?)
    }

    fn experiment(&self, point: &Point) -> Result<Experiment, Error> {
        let budget = quantity::duration(&self.duration)
            .map_err(|why| UsageError::new(format!("--duration: {why}")))?;
        if !DURATIONS.contains(&budget) {
            let given = &self.duration;
            let why = format!("--duration: '{given}' is not from 1 ms to 10 min; give another");
            return Err(UsageError::new(why).into());
        }
        let rounds = self.iters;
        Ok(Experiment {
            suite: lab::suite::Suite::name(&SUITE).into(),
            name: NAME.into(),
            method: MEASURED_AS.into(),
            about: "The largest load without loss, by hand".into(),
            metric: SHOWN[0].0.into(),
            baseline: point.clone(),
            defaults: Point::default(),
            sweeps: Vec::new(),
            points: vec![point.clone()],
            twins: Vec::new(),
            roles: Vec::new(),
            blocking: Vec::new(),
            batch: 1,
            limit: None,
            effort: Effort { min_rounds: rounds, rounds, budget, resolve: 0.0 },
        })
    }
}

/// What was found, for printing.
struct Found<'a> {
    gathered: &'a PointValues,
    samples: &'a [Sample],
    point: &'a Point,
    /// The levels that options set.
    given: &'a Point,
}

impl Found<'_> {
    /// A metric in Mpps, the median of the iterations.
    fn mpps(&self, metric: &str) -> Option<f64> {
        self.gathered.median(self.point, metric).map(|packets| packets / 1e6)
    }

    /// How near the cores were in each iteration that counts.
    fn classes(&self) -> Vec<&str> {
        let counted = self.samples.iter().filter(|sample| sample.is_valid());
        counted.filter_map(|sample| sample.covariates.get(CLASS)).map(|it| it.as_str()).collect()
    }

    fn text(&self) -> String {
        let mut text = format!("{}; cores {}\n", self.given, self.classes().join(", "));
        for (metric, about) in SHOWN {
            let value = self.mpps(metric).map_or("—".into(), |mpps| format!("{mpps:.2}"));
            text += &format!("{value:>9} Mpps  {about}\n");
        }
        text
    }
}
