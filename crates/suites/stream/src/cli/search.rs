//! `tollgate stream search`: finds the highest loads with zero and with partial loss (NDR and PDR).

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lab::adhoc::{AdhocRun, Measured, OutputArgs, PointValues};
use lab::experiment::{Effort, Experiment, MAX_ROUNDS, Profile};
use lab::factor::find;
use lab::measure::BOTTLENECK;
use lab::method::{Params, complete};
use lab::point::{Level, Point};
use lab::proximity;
use lab::quantity;
use lab::sample::{Sample, Trial};
use lab::suite::Lab;
use lab::suite::UsageError;

use super::Error;
use super::workload::WorkloadOptions;
use crate::SUITE;
use crate::losses::Losses;
use crate::suite::check_supported;
use crate::suite::params::SearchParams;

/// Allowed durations of a full trial.
const DURATIONS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(600);

/// Name of the experiment in the journal.
const NAME: &str = "search";
/// Method of the experiment.
const METHOD: &str = "throughput";
/// Metrics to print, with their descriptions.
const PRINTED: [(&str, &str); 4] = [
    ("ndr_strict", "NDR: no loss, confirmed, void trials included"),
    ("ndr", "NDR of valid trials"),
    ("pdr", "PDR: at most 0.5% loss, confirmed"),
    ("rfc2544", "RFC 2544: one trial per load"),
];

/// Options of `tollgate stream search`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Interface between NIC and application: pipes, pipes-per-packet, pipes-prefetch, descriptors or dpdk
    #[arg(long, default_value = "pipes")]
    interface: String,
    #[command(flatten)]
    workload: WorkloadOptions,
    /// Packet size on the wire, including the FCS, in bytes; or imix (64, 594 and 1518 B as 7:4:1). Packets of requests
    /// and log lines have their own
    #[arg(long, value_name = "BYTES", default_value = "64", allow_negative_numbers = true)]
    packet_bytes: String,
    /// Application cores
    #[arg(long, value_name = "N", default_value = "1", allow_negative_numbers = true)]
    cores: String,
    /// Total number of pipes [default: two per core]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pipes: Option<String>,
    /// Number of flows of the traffic, or per-pipe
    #[arg(long, value_name = "N", default_value = "per-pipe", allow_negative_numbers = true)]
    flows: String,
    /// How packets reach the pipes: rules (one per flow), hash (of the flow) or round-robin (packet by packet)
    #[arg(long, default_value = "rules")]
    steering: String,
    /// Size of each pipe's ring [default: 2 MiB]
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "2 MiB",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    ring: String,
    /// Capacity of each pipe or queue in packets, or 'ring' for the ring's capacity
    #[arg(long, value_name = "N", default_value = "ring", allow_negative_numbers = true)]
    depth: String,
    /// How much of each echoed packet to verify: none, one-word or all
    #[arg(long, default_value = "one-word")]
    check: String,
    /// NOP instructions per packet of the echo
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    nops: String,
    /// Highest rate to try, in Gbps
    #[arg(long, value_name = "GBPS", default_value = "200", allow_negative_numbers = true)]
    maximum: String,
    /// Duration of a full trial; 1 s in the Ensō evaluation [default: 100 ms]
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "100 ms",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    duration: String,
    /// Repetitions of the whole search, each in a fresh process
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    rounds: u32,
    /// Results folder
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs both searches and prints the results. Returns the exit status: 0, or 1 if measuring failed.
///
/// # Errors
/// Returns one line: what, the cause, and the fix.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let given = options.point()?;
    let point = complete(SearchParams::FACTORS, &given);
    let params = SearchParams::with_defaults(&point);
    let supported = params.and_then(|params| check_supported(params.as_ref()));
    supported.map_err(|why| UsageError::new(why.to_string()))?;
    let adhoc = AdhocRun {
        suite: &SUITE,
        experiments: vec![options.experiment(&point)?],
        profile: Profile::Standard,
        results: &options.results,
        options: BTreeMap::new(),
    };
    let measured = adhoc.measure(lab, Duration::ZERO)?;
    let Measured { run, status } = &measured;
    let values = PointValues::of(&run.samples);
    if values.median(&point, PRINTED[0].0).is_none() {
        let reason = missing_reason(&values, &run.samples, &point);
        return Err(format!("no result: {reason}").into());
    }
    if options.output.json {
        return Ok(measured.print_json()?);
    }
    let result =
        SearchResult { values: &values, samples: &run.samples, point: &point, given: &given };
    let mut out = lab::terminal::stdout();
    write!(out, "{}", result.text())?;
    writeln!(out, "all trials: {}", run.folder.join("samples.jsonl").display())?;
    Ok(*status)
}

/// Returns why there is no valid sample.
fn missing_reason(values: &PointValues, samples: &[Sample], point: &Point) -> String {
    let void = samples.iter().rev().find_map(|sample| sample.void.as_ref());
    void.map_or_else(
        || values.missing_reason(point),
        |cause| format!("every sample is void: {cause}"),
    )
}

impl Options {
    fn point(&self) -> Result<Point, Error> {
        let two_per_core = || match self.cores.parse::<u64>() {
            Ok(cores) => cores.saturating_mul(2).to_string(),
            Err(_) => self.cores.clone(),
        };
        let application = self.workload.application.unwrap_or_default();
        let levels = [
            ("interface", self.interface.clone()),
            ("application", application.name().to_owned()),
            ("packet_bytes", self.packet_bytes.clone()),
            ("cores", self.cores.clone()),
            ("pipes", self.pipes.clone().unwrap_or_else(two_per_core)),
            ("flows", self.flows.clone()),
            ("steering", self.steering.clone()),
            ("ring", self.ring.clone()),
            ("depth", self.depth.clone()),
            ("check", self.check.clone()),
            ("nops", self.nops.clone()),
            ("maximum", self.maximum.clone()),
        ];
        let level = |(name, text): (&str, String)| {
            find(SearchParams::FACTORS, name)?.level(&text).map(|level| (name.to_string(), level))
        };
        let levels = levels.into_iter().chain(self.workload.levels(application)?);
        let point = levels.map(level).collect::<Result<_, String>>();
        Ok(point.map_err(UsageError::new)?)
    }

    fn experiment(&self, point: &Point) -> Result<Experiment, Error> {
        let budget = quantity::duration(&self.duration)
            .map_err(|why| UsageError::new(format!("--duration: {why}")))?;
        if !DURATIONS.contains(&budget) {
            let given = &self.duration;
            let why =
                format!("--duration: '{given}' is not in 1 ms to 10 min; use another duration");
            return Err(UsageError::new(why).into());
        }
        let rounds = self.rounds;
        Ok(Experiment {
            suite: lab::suite::Suite::name(&SUITE).into(),
            name: NAME.into(),
            method: METHOD.into(),
            about: "Highest load without loss".into(),
            metric: PRINTED[0].0.into(),
            baseline: point.clone(),
            defaults: Point::default(),
            sweeps: Vec::new(),
            points: vec![point.clone()],
            twins: Vec::new(),
            roles: Vec::new(),
            skipped: Vec::new(),
            blocking: Vec::new(),
            alternatives: None,
            compared: Vec::new(),
            batch: 1,
            limit: None,
            effort: Effort { min_rounds: rounds, rounds, budget, resolve: 0.0 },
        })
    }
}

/// Describes a load that failed, e.g. `lowest load that failed: 62.10 Gbps; NIC core busy 91%, ...`. Values that
/// testpmd does not report are left out.
fn failed_load(trial: &Trial) -> String {
    let value = |name: &str| trial.values.get(name).copied();
    let shares = |what: &str, of: [&str; 2]| {
        let share = |(core, name): (&str, &str)| {
            value(name).map(|share| format!("{core} {:.0}%", 100.0 * share))
        };
        let known: Vec<_> =
            ["NIC core", "application"].into_iter().zip(of).filter_map(share).collect();
        if known.is_empty() { String::new() } else { format!("; {what}: {}", known.join(", ")) }
    };
    let named = Losses::default().named();
    let causes = named.iter().filter_map(|(name, cause, _)| {
        let packets = value(name).filter(|packets| *packets > 0.0)?;
        Some(format!("{cause} {packets}"))
    });
    format!(
        "lowest load that failed: {:.2} Gbps{}{}; lost: {}",
        trial.level / 1e9,
        shares("busy", ["busy_nic", "busy_application"]),
        shares("looked for packets", ["polling_nic", "polling_application"]),
        causes.collect::<Vec<_>>().join(", ")
    )
}

/// Results of the searches, for printing.
struct SearchResult<'a> {
    values: &'a PointValues,
    samples: &'a [Sample],
    point: &'a Point,
    /// The levels set by options.
    given: &'a Point,
}

impl SearchResult<'_> {
    /// Returns the median of a metric over the iterations, in Mpps.
    fn mpps(&self, metric: &str) -> Option<f64> {
        self.values.median(self.point, metric).map(|packets| packets / 1e6)
    }

    /// Returns the round trip between the cores in each valid iteration, in ns.
    fn round_trips(&self) -> Vec<String> {
        let valid = self.samples.iter().filter(|sample| sample.is_valid());
        valid.filter_map(proximity::round_trip).map(|time| format!("{time:.0}")).collect()
    }

    /// Describes the lowest load that failed in each valid iteration: the use of the cores, and where packets were lost.
    fn failed_loads(&self) -> String {
        let valid = self.samples.iter().filter(|sample| sample.is_valid());
        let lowest = |sample: &'_ Sample| {
            let failed = sample.trials.iter().filter(|trial| trial.holds == Some(false));
            failed.min_by(|a, b| a.level.total_cmp(&b.level)).cloned()
        };
        let line = |sample: &Sample| {
            let text = failed_load(&lowest(sample)?);
            let bottleneck = sample.covariates.get(BOTTLENECK).map_or("unknown", Level::as_str);
            Some(format!("{text}; bottleneck: {bottleneck}\n"))
        };
        valid.filter_map(line).collect()
    }

    fn text(&self) -> String {
        let round_trips = self.round_trips().join(", ");
        let mut text = format!("{}; round trips between the cores: {round_trips} ns\n", self.given);
        for (metric, about) in PRINTED {
            let value = self.mpps(metric).map_or("—".into(), |mpps| format!("{mpps:.2}"));
            text += &format!("{value:>9} Mpps  {about}\n");
        }
        text + &self.failed_loads()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_load_states_only_what_is_known() {
        let trial = |values: &[(&str, f64)]| Trial {
            level: 62.1e9,
            holds: Some(false),
            void: None,
            values: values.iter().map(|(name, value)| ((*name).to_string(), *value)).collect(),
        };
        let all = [
            ("busy_nic", 0.91),
            ("busy_application", 0.5),
            ("polling_nic", 0.12),
            ("polling_application", 0.6),
            ("lost_not_sent", 0.0),
            ("lost_ring_full", 7.0),
            ("lost_not_echoed", 2.0),
        ];
        let head = "lowest load that failed: 62.10 Gbps; busy: NIC core 91%";
        let lost = "lost: ring full 7, not echoed 2";
        let known = format!(
            "{head}, application 50%; looked for packets: NIC core 12%, application 60%; {lost}"
        );
        assert_eq!(failed_load(&trial(&all)), known);
        // Of testpmd.
        let some = all.into_iter().filter(|(name, _)| !name.ends_with("application"));
        let unknown = format!("{head}; looked for packets: NIC core 12%; {lost}");
        assert_eq!(failed_load(&trial(&some.collect::<Vec<_>>())), unknown);
    }
}
