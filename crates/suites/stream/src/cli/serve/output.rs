//! Output of the commands of the applications.

use std::io::Write;

use applications::application::{Count, Finding, Subject};

use super::core::CoreRecord;
use super::options::ServeOptions;
use crate::application::{ApplicationKind, ApplicationSpec, sum};
use crate::cli::Error;
use crate::cli::json::{self, ApplicationOutput, CoreOutput, HeavyFlow, LinkOutput};
use crate::cli::link::LinkSummary;
use crate::nic::InterfaceConfig;
use crate::steering::Steering;

/// Results of an application.
pub(super) struct Run<'a> {
    pub(super) spec: &'a ApplicationSpec,
    /// Packets of each core.
    pub(super) packets: Vec<u64>,
    pub(super) records: &'a [CoreRecord],
    /// What the application has found on all cores.
    pub(super) findings: Vec<Finding>,
    pub(super) seconds: f64,
}

impl Run<'_> {
    /// Returns the packets of all cores.
    fn all(&self) -> u64 {
        self.packets.iter().fold(0, |all, packets| all.saturating_add(*packets))
    }

    /// Returns what the application has counted on all cores.
    fn counts(&self) -> Vec<Count> {
        sum(self.records.iter().map(|record| record.stats.counts.as_slice()))
    }

    /// Returns the JSON for an interface, without the fields that only the software NIC or a link has.
    fn json(&self, interface: String) -> ApplicationOutput<'_> {
        let nops = match self.spec {
            ApplicationSpec::Echo { nops } => Some(*nops),
            ApplicationSpec::MaglevEnso { .. }
            | ApplicationSpec::Maglev { .. }
            | ApplicationSpec::KeyValue { .. }
            | ApplicationSpec::LogMonitor { .. }
            | ApplicationSpec::Telemetry { .. } => None,
        };
        let kind = self.spec.kind();
        let core_use =
            |record: &CoreRecord| CoreOutput::new(&record.core_use(), record.cycles_per_packet());
        ApplicationOutput {
            application: kind.name(),
            options: self.spec.describe(self.records.len()),
            packets: self.all(),
            counts: self.counts().into_iter().map(|Count { name, value }| (name, value)).collect(),
            core_use: self.records.iter().map(core_use).collect(),
            heavy_flows: (kind == ApplicationKind::Telemetry).then(|| self.heavy_flows()),
            matching_lines: (kind == ApplicationKind::LogMonitor)
                .then(|| self.rule_files().collect()),
            nops,
            seconds: self.seconds,
            interface,
            cores: None,
            pipes: None,
            steering: None,
            flows: None,
            ended: None,
            port: None,
            link: LinkOutput::default(),
        }
    }

    /// Returns the pairs of addresses with many packets, the highest estimate first.
    fn heavy_flows(&self) -> Vec<HeavyFlow> {
        let of = |Finding { subject, value }: &Finding| match subject {
            Subject::Flow { source, destination } => {
                Some(HeavyFlow { source: *source, destination: *destination, packets: *value })
            }
            Subject::RuleFile(_) => None,
        };
        let mut flows: Vec<_> = self.findings.iter().filter_map(of).collect();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.packets));
        flows
    }

    /// Returns the matching lines of each rule file.
    fn rule_files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.findings.iter().filter_map(|Finding { subject, value }| match subject {
            Subject::RuleFile(name) => Some((name.as_str(), *value)),
            Subject::Flow { .. } => None,
        })
    }

    /// Returns lines with the counts and what the application has found; none if there is nothing.
    fn results(&self) -> String {
        let counts = self.counts();
        let counts = counts.iter().map(|Count { name, value }| (*name, *value));
        let mut text = line("counts", counts) + &line("matching lines", self.rule_files());
        for HeavyFlow { source, destination, packets } in self.heavy_flows().iter().take(MAX_FLOWS)
        {
            text += &format!("heavy flow: {source} to {destination}, about {packets} packets\n");
        }
        text
    }
}

/// Heavy flows that are printed; JSON has all.
const MAX_FLOWS: usize = 10;

/// Returns a line with the numbers that are not 0; none if all are.
fn line<'a>(title: &str, numbers: impl Iterator<Item = (&'a str, u64)>) -> String {
    let each =
        numbers.filter(|(_, value)| *value > 0).map(|(name, value)| format!("{value} {name}"));
    let each: Vec<_> = each.collect();
    if each.is_empty() { String::new() } else { format!("{title}: {}\n", each.join(", ")) }
}

/// Prints a run over the interface of a NIC.
pub(super) fn print(
    options: &ServeOptions,
    run: &Run,
    config: InterfaceConfig,
    ended: &str,
) -> Result<(), Error> {
    if options.json {
        let is_ruled = options.steering == Steering::Rules;
        return json::print(&ApplicationOutput {
            cores: Some(&run.packets),
            pipes: Some(options.pipes),
            steering: Some(options.steering.name()),
            flows: is_ruled.then(|| options.flow_count()),
            ended: Some(ended),
            ..run.json(config.to_string())
        });
    }
    let mut out = lab::terminal::stdout();
    let (verb, packets, seconds) = (run.spec.kind().verb(), run.all(), run.seconds);
    writeln!(out, "{}, {}", run.spec.describe(options.cores()), options.describe(config))?;
    writeln!(out, "{verb} {packets} packets in {seconds:.1} s; {ended}")?;
    for ((core, packets), record) in run.packets.iter().enumerate().zip(run.records) {
        writeln!(out, "  core {core}: {packets}; {}", use_text(record))?;
    }
    write!(out, "{}", run.results())?;
    Ok(())
}

/// Prints a run over an interface of Linux, on one core.
pub(super) fn print_link(json: bool, run: &Run, summary: &LinkSummary) -> Result<(), Error> {
    if json {
        let output = run.json(summary.name().to_owned());
        return json::print(&ApplicationOutput { link: summary.json(), ..output });
    }
    let mut out = lab::terminal::stdout();
    let (verb, packets, seconds) = (run.spec.kind().verb(), run.all(), run.seconds);
    write!(out, "{}", summary.title())?;
    writeln!(out, "{verb:>10} {packets} packets in {seconds:.1} s")?;
    write!(out, "{}", summary.text())?;
    for record in run.records {
        writeln!(out, "      core {}", use_text(record))?;
    }
    write!(out, "{}", run.results())?;
    Ok(())
}

/// Prints a run over a port of DPDK.
#[cfg(feature = "dpdk")]
pub(super) fn print_dpdk(
    json: bool,
    run: &Run,
    summary: &super::dpdk::PortSummary,
) -> Result<(), Error> {
    if json {
        let (cores, port) = (Some(run.packets.as_slice()), Some(summary.json()));
        let output = run.json(summary.name().to_owned());
        return json::print(&ApplicationOutput { cores, port, ..output });
    }
    let mut out = lab::terminal::stdout();
    let (verb, packets, seconds) = (run.spec.kind().verb(), run.all(), run.seconds);
    writeln!(out, "port {}", summary.describe())?;
    writeln!(out, "{verb:>10} {packets} packets in {seconds:.1} s")?;
    write!(out, "{}", summary.text())?;
    for ((core, packets), record) in run.packets.iter().enumerate().zip(run.records) {
        writeln!(out, "  core {core}: {packets}; {}", use_text(record))?;
    }
    write!(out, "{}", run.results())?;
    Ok(())
}

/// Describes how a core spent its time, e.g. `busy 42%, looked for packets for 60% of the time, so it waited for packets; 17
/// packets per iteration, 8.1 cycles each`.
fn use_text(record: &CoreRecord) -> String {
    let used = record.core_use();
    let Some(packets) = used.packets_per_iteration else { return "no packets".into() };
    let cycles = record.cycles_per_packet().map(|cycles| format!(", {cycles:.1} cycles each"));
    let bottleneck = match used.is_saturated() {
        true => "application-bound: this core had no time left",
        false => "so it waited for packets",
    };
    let (used, cycles) = (used.describe(), cycles.unwrap_or_default());
    format!("{used}, {bottleneck}; {packets:.1} packets per iteration{cycles}")
}

/// Returns a line of progress, after `at` seconds, of which the last `since` are those of the rate: the packets of all cores
/// and, of several cores, the rate of each.
pub(super) fn progress(verb: &str, (at, since): (f64, f64), before: &[u64], now: &[u64]) -> String {
    let rate = |(now, before): (&u64, &u64)| now.saturating_sub(*before) as f64 / since / 1e6;
    let each: Vec<f64> = now.iter().zip(before).map(rate).collect();
    let (all, packets) = (each.iter().sum::<f64>(), now.iter().sum::<u64>());
    let mut text = format!("{at:6.1} s  {verb} {all:8.3} Mpps  {packets} packets");
    if each.len() > 1 {
        let each: Vec<_> = each.iter().map(|rate| format!("{rate:.3}")).collect();
        text += &format!("  cores {} Mpps", each.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::SEED;

    #[test]
    fn findings_are_printed_by_number() {
        let spec = ApplicationSpec::Telemetry { one_in: 1, seed: SEED };
        let results = |findings| {
            Run { spec: &spec, packets: vec![0], records: &[], findings, seconds: 1.0 }.results()
        };
        assert_eq!(results(vec![]), "");
        let flow = |last: u8| Finding {
            subject: Subject::Flow {
                source: [10, 0, 0, last].into(),
                destination: [10, 1, 0, 1].into(),
            },
            value: 100 * u64::from(last),
        };
        let text = results((1..=12).map(flow).collect());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), MAX_FLOWS, "{text}");
        assert_eq!(lines[0], "heavy flow: 10.0.0.12 to 10.1.0.1, about 1200 packets");
        assert_eq!(lines[9], "heavy flow: 10.0.0.3 to 10.1.0.1, about 300 packets");
        let file = |(name, value): (&str, u64)| Finding {
            subject: Subject::RuleFile(name.to_owned()),
            value,
        };
        let files = [("apache", 3), ("named", 0), ("sshd", 12)].map(file);
        assert_eq!(results(files.to_vec()), "matching lines: 3 apache, 12 sshd\n");
    }
}
