//! `tollgate stream generate`: the NIC, and a generator that replays a packet file or the traffic of an application on its wire.

mod output;
mod testbed;
mod traffic;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::Duration;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use hdrhistogram::Histogram;
use lab::suite::UsageError;
use machine::file::Output;
use machine::tsc::Tsc;

use super::Error;
use super::link::{LinkOptions, LinkWatch};
use super::rate::Rate;
use super::{Interrupted, json, say, until};
use crate::generator::{Check, Expectation, GeneratorCommand, LiveCounters, Pace, Report, Trial};
use crate::iterations::StallThreshold;
use crate::nic::Counters;
use crate::nic::layout::PIPES;
use crate::nic::pcie::{LinkRate, PcieModel};
use crate::nic::remote::{Limits, MemoryUse, Server};
use crate::suite::params::MAX_MODELLED;
use crate::suite::testbed_config::Cpus;
use crate::wire::pcap;
use crate::wire::traffic::Traffic;
use crate::workload::application_traffic::ApplicationTraffic;
use output::{Interval, RunResult};
use testbed::Testbed;
use traffic::{Source, TrafficOptions};

/// Wait for the last packets once all are sent.
const DRAIN: Duration = Duration::from_secs(1);
/// Wait before the first packet, in which the cost of polling without packets is measured.
const WAIT: Duration = Duration::from_millis(1);
/// Maximum duration of a run.
const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);
/// Memory regions that one client may register: those of 8192 rings, with a margin.
const CLIENT_REGIONS: usize = 40_000;
/// Memory regions of all clients: the kernel allows a process 65,530 mappings, and the NIC needs some itself.
const ALL_REGIONS: usize = 60_000;
/// Minimum for the number of notification-buffer pairs that a client may have.
const PAIRS: usize = 64;
/// Time limit for a client to say hello, to complete a message and to read an answer. A client that has allocated
/// nothing for longer makes way for others.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Options of `tollgate stream generate`.
#[derive(Debug, Args)]
#[command(override_usage = "tollgate stream generate [OPTIONS] <PCAP> <RATE>\n       \
    tollgate stream generate [OPTIONS] --application <NAME> <RATE>")]
pub(crate) struct Options {
    /// Packet file, replayed in a loop; omit it with --application
    #[arg(value_name = "PCAP", allow_negative_numbers = true)]
    first: Option<PathBuf>,
    /// Rate in Gbps on the wire, including preamble and gap, or in packets per second, e.g. 148.8Mpps
    #[arg(value_name = "RATE", allow_negative_numbers = true)]
    second: Option<Rate>,
    #[command(flatten)]
    traffic: TrafficOptions,
    /// Stop after N packets [default: Ctrl-C or 24 h]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = RangedI64ValueParser::<u64>::new().range(1..))]
    count: Option<u64>,
    /// Measure round-trip times; at high rates of one packet in at most 19
    #[arg(long)]
    rtt: bool,
    /// CSV file for a histogram of round-trip times
    #[arg(long, value_name = "FILE")]
    rtt_hist: Option<PathBuf>,
    /// CSV file for one line of counts per interval
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Time between two lines of progress
    #[arg(long, value_name = "DURATION", default_value = "1 s", allow_hyphen_values = true, value_parser = super::interval)]
    interval: Duration,
    /// Print the NIC's counters with each line of progress
    #[arg(long, conflicts_with = "interface")]
    counters: bool,
    /// Verify the order of packets within each of N pipes, over which the program has them distributed packet by packet
    /// (echo --steering round-robin), instead of within each flow
    #[arg(long, value_name = "N", conflicts_with_all = ["interface", "application"], allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(PIPES)))]
    round_robin: Option<u32>,
    /// CPU of the NIC and generator [default: one of the two nearest allowed CPUs]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..65536))]
    cpu: Option<u32>,
    /// How much of each echoed packet to verify besides count and order
    #[arg(long, value_enum, default_value = "all")]
    check: Check,
    /// Modelled duration of a doorbell, e.g. '400 ns'
    #[arg(long, value_name = "DURATION", default_value = "0 ns", allow_hyphen_values = true, value_parser = modelled)]
    modelled_doorbell: Duration,
    /// Modelled duration of a transfer, e.g. '400 ns'
    #[arg(long, value_name = "DURATION", default_value = "0 ns", allow_hyphen_values = true, value_parser = modelled)]
    modelled_transfer: Duration,
    /// Modelled duration for which each doorbell stalls the program's core, e.g. '100 ns'
    #[arg(long, value_name = "DURATION", default_value = "0 ns", allow_hyphen_values = true, value_parser = modelled)]
    modelled_mmio: Duration,
    /// Modelled rate of the link between NIC and programs
    #[arg(long, value_enum, default_value = "none")]
    modelled_link: LinkRate,
    /// Interface of Linux, e.g. veth0, through which packets are sent and received instead of the NIC
    #[arg(long, value_name = "NAME", conflicts_with_all = ["application", "nic", "modelled_doorbell", "modelled_transfer", "modelled_mmio", "modelled_link"])]
    interface: Option<String>,
    /// Change of each packet by the program at the other end of the interface; byte is that of 'stream echo'
    #[arg(long, value_enum, requires = "interface")]
    modification: Option<Expectation>,
    #[command(flatten)]
    link: LinkOptions,
    /// Socket of the NIC [default: in $XDG_RUNTIME_DIR, or in the temporary folder]
    #[arg(long, value_name = "SOCKET")]
    nic: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Parses a modelled duration.
fn modelled(text: &str) -> Result<Duration, String> {
    let time = lab::quantity::duration(text).map_err(|why| why.to_string())?;
    if time > MAX_MODELLED {
        return Err(format!("'{text}' is longer than 1 ms; use at most 1 ms"));
    }
    Ok(time)
}

/// Sends until the count is reached or it is interrupted, and prints the result. Returns the exit status: 1 if
/// echoed packets were corrupted, duplicated or out of order.
///
/// # Errors
/// Returns one line: what, the cause, and the fix.
pub(crate) fn main(options: &Options) -> Result<i32, Error> {
    let (source, rate) = options.source()?;
    let expectation = source.expectation().or(options.modification).unwrap_or_default();
    let Source { traffic, application, matching } = source;
    let traffic = Arc::new(traffic);
    let has_counters = options.interface.is_none();
    let create = |path| output::Save::create(path, has_counters);
    let saved = options.save.as_deref().map(create).transpose()?;
    // Unwritable files are reported before the run.
    let histogram = options.rtt_hist.as_deref().map(|path| {
        let refused = |why| unwritten(path, &why, "--rtt-hist");
        Output::create(path).map_err(refused)
    });
    let histogram = histogram.transpose()?;
    let interrupted = Interrupted::listen()?;
    let wire_bytes = traffic.total_wire_bytes() as f64 / traffic.len() as f64;
    let cpu = options.cpu()?;
    let live = Arc::new(LiveCounters::default());
    let pcie = options.pcie();
    let (testbed, mut watch) = match &options.interface {
        None => {
            options.link.check_unused()?;
            (Testbed::new(cpu, traffic, Arc::clone(&live), pcie)?, None)
        }
        Some(interface) => {
            let (link, watch) = options.link.open(interface)?;
            say(&format!("sending through {}", watch.describe()));
            let testbed =
                Testbed::with_link(cpu, traffic, Arc::clone(&live), link, watch.status())?;
            (testbed, Some(watch))
        }
    };
    let testbed = Arc::new(testbed);
    let server = match &watch {
        None => Some(options.serve(application.as_ref(), &testbed, &interrupted)?),
        Some(_) => None,
    };
    let mut save_error = None;
    let result = if interrupted.is_set() {
        RunResult::default()
    } else {
        let run = Run {
            options,
            interrupted: &interrupted,
            testbed: &testbed,
            live: &live,
            pace: rate.pace(wire_bytes, Tsc::get()?.hertz),
            expectation,
            link: watch.as_ref(),
        };
        run.run(saved, &mut save_error)?
    };
    // Programs are notified of the end before the result is printed.
    drop(server);
    let (failure, link) =
        (watch.as_ref().and_then(LinkWatch::failure), watch.as_mut().map(LinkWatch::summary));
    let config = testbed.config();
    let result = RunResult { config, modelled: pcie, link, application, matching, ..result };
    // A failing file must not lose the result.
    print(options, &result)?;
    if let (Some(path), Some(why)) = (&options.save, save_error) {
        return Err(unwritten(path, &why, "--save"));
    }
    if let (Some(path), Some(file), Some(times)) =
        (&options.rtt_hist, histogram, &result.report.times)
    {
        save(&result, times, file).map_err(|why| unwritten(path, &why, "--rtt-hist"))?;
    }
    if let Some(why) = failure {
        return Err(why.into());
    }
    Ok(i32::from(result.report.corrupted > 0 || result.report.late > 0))
}

impl Options {
    /// Returns what is sent, and at which rate.
    ///
    /// # Errors
    /// Returns a usage error if a file cannot be read, or there is no such traffic.
    fn source(&self) -> Result<(Source, Rate), Error> {
        const USAGE: &str = "give a packet file and a rate, or a rate and --application NAME";
        let Some(first) = &self.first else {
            return Err(UsageError::new(format!("no rate; {USAGE}")).into());
        };
        let given = first.display();
        let Some(application) = self.traffic.application() else {
            self.traffic.check_unused()?;
            let Some(rate) = self.second else {
                return Err(UsageError::new(format!("only '{given}'; {USAGE}")).into());
            };
            let traffic = pcap::read(first).map_err(|why| match why.is_usage() {
                true => Error::from(UsageError::new(why.to_string())),
                false => why.into(),
            })?;
            let traffic = self.with_order(traffic)?;
            return Ok((Source { traffic, application: None, matching: None }, rate));
        };
        if self.second.is_some() {
            let why = format!("{given}: --application replaces the packet file; omit one of them");
            return Err(UsageError::new(why).into());
        }
        let rate: Result<Rate, _> = first.to_string_lossy().parse();
        let rate = rate.map_err(|why| UsageError::new(format!("{given}: {why}")))?;
        let of = self.traffic.of(application)?;
        let has_times = self.rtt || self.rtt_hist.is_some();
        if has_times && of.expectation() == Expectation::Nothing {
            let why =
                format!("--rtt: {application} returns no packet, so no time is measured; omit it");
            return Err(UsageError::new(why).into());
        }
        Ok((Source::generate(of)?, rate))
    }

    /// Returns the traffic with the order that is to be verified.
    fn with_order(&self, traffic: Traffic) -> Result<Traffic, Error> {
        let Some(pipes) = self.round_robin else { return Ok(traffic) };
        let packets = traffic.len();
        traffic.for_round_robin(pipes).ok_or_else(|| {
            let why = format!(
                "--round-robin {pipes}: {packets} packets have to be repeated too often until each reaches the \
                 same pipe again; use a file with a multiple of {pipes}"
            );
            UsageError::new(why).into()
        })
    }

    /// Returns the CPU of the NIC.
    fn cpu(&self) -> Result<usize, Error> {
        let allowed = machine::topology::allowed_cpus();
        match self.cpu.map(|cpu| cpu as usize) {
            None => Ok(Cpus::select(&allowed, 1)?.nic),
            Some(cpu) if allowed.contains(&cpu) => Ok(cpu),
            Some(cpu) => {
                let list: Vec<_> = allowed.iter().map(ToString::to_string).collect();
                let why =
                    format!("--cpu {cpu}: not an allowed CPU; use one of {}", list.join(", "));
                Err(UsageError::new(why).into())
            }
        }
    }

    /// Returns what is modelled of PCIe.
    fn pcie(&self) -> PcieModel {
        PcieModel {
            doorbell: self.modelled_doorbell,
            transfer: self.modelled_transfer,
            mmio: self.modelled_mmio,
            link: self.modelled_link,
        }
    }

    /// Returns the command of an application that suits the traffic and the NIC.
    fn application_command(&self, application: Option<&ApplicationTraffic>) -> String {
        if let Some(of) = application {
            return traffic::command(of, self.nic.as_deref());
        }
        let mut command = match self.round_robin {
            Some(pipes) => format!("tollgate stream echo 1 {pipes} 0 --steering round-robin"),
            None => "tollgate stream echo 1 2 0".into(),
        };
        if let Some(path) = &self.nic {
            command += &format!(" --nic {}", path.display());
        }
        command
    }

    /// Starts the server for programs, and waits until one is ready.
    fn serve(
        &self,
        application: Option<&ApplicationTraffic>,
        testbed: &Arc<Testbed>,
        interrupted: &Interrupted,
    ) -> Result<Server, Error> {
        let path = self.nic.clone().map_or_else(super::default_socket, Ok)?;
        let free = machine::proc::available_memory();
        let limits = Limits {
            each: MemoryUse { bytes: free / 2, regions: CLIENT_REGIONS },
            all: MemoryUse { bytes: (free / 4).saturating_mul(3), regions: ALL_REGIONS },
            pairs: PAIRS.max(machine::topology::allowed_cpus().len()),
            timeout: TIMEOUT,
        };
        let opened = Arc::clone(testbed);
        let server = Server::open(&path, limits, move |config| opened.open(config));
        let server = server.map_err(|why| match why.is_usage() {
            true => Error::from(UsageError::new(why.to_string())),
            false => why.into(),
        })?;
        say(&format!(
            "NIC at {}; sending starts once a program is ready: {}",
            path.display(),
            self.application_command(application)
        ));
        until(self.interval, || server.ready() > 0 || interrupted.is_set(), |_, _| {});
        Ok(server)
    }
}

fn unwritten(path: &Path, why: &std::io::Error, option: &str) -> Error {
    format!("{}: cannot be written ({why}); choose another file with {option}", path.display())
        .into()
}

/// Writes the round-trip-time histogram.
fn save(result: &RunResult, times: &Histogram<u64>, mut file: Output) -> std::io::Result<()> {
    result.histogram(times, &mut file)?;
    file.finish()
}

fn print(options: &Options, result: &RunResult) -> Result<(), Error> {
    if options.json {
        return json::print(&result.json());
    }
    write!(lab::terminal::stdout(), "{}", result.text())?;
    Ok(())
}

/// One run of the generator.
struct Run<'a> {
    options: &'a Options,
    interrupted: &'a Interrupted,
    testbed: &'a Testbed,
    live: &'a LiveCounters,
    pace: Pace,
    /// Packets that the program returns.
    expectation: Expectation,
    /// The link, if there is one in place of programs.
    link: Option<&'a LinkWatch>,
}

impl Run<'_> {
    /// Runs until the report arrives. Sets `save_error` if the lines of `saved` cannot be written.
    fn run(
        &self,
        mut saved: Option<output::Save>,
        save_error: &mut Option<std::io::Error>,
    ) -> Result<RunResult, Error> {
        let tsc = Tsc::get()?;
        let trial = Trial {
            pace: self.pace,
            count: self.options.count.unwrap_or(u64::MAX),
            duration: tsc.ticks(MAX_DURATION),
            wait: tsc.ticks(WAIT),
            drain: tsc.ticks(DRAIN),
            check: self.options.check,
            expectation: self.expectation,
            times: self.options.rtt || self.options.rtt_hist.is_some(),
            threshold: StallThreshold::of_lost_cpu(tsc, Duration::ZERO),
            ..Trial::default()
        };
        let (answer, reports) = sync_channel(1);
        self.testbed.command(GeneratorCommand::Start(trial, answer));
        let (mut report, mut closed, mut stopping) = (None::<Report>, false, false);
        let mut before = (self.live.read(), self.testbed.counters());
        until(
            self.options.interval,
            || {
                match reports.try_recv() {
                    Ok(ended) => report = Some(ended),
                    Err(TryRecvError::Disconnected) => closed = true,
                    Err(TryRecvError::Empty) => {}
                }
                let ends = self.interrupted.is_set()
                    || self.link.is_some_and(|link| link.failure().is_some());
                if ends && !stopping {
                    self.testbed.command(GeneratorCommand::Stop);
                    stopping = true;
                }
                report.is_some() || closed
            },
            |at, since| {
                let now = (self.live.read(), self.testbed.counters());
                let returns = self.expectation != Expectation::Nothing;
                let interval = Interval { at, since, before, now, hertz: tsc.hertz, returns };
                before = now;
                say(&interval.text(self.options.counters));
                if let Some(Err(why)) = saved.as_mut().map(|saved| saved.line(&interval)) {
                    // Stops saving; the first error is reported.
                    (saved, *save_error) = (None, Some(why));
                }
            },
        );
        if let Some(Err(why)) = saved.map(output::Save::finish) {
            *save_error = Some(why);
        }
        let report = report.ok_or("the NIC stopped early; start it again")?;
        let counters = self.final_counters(&report);
        Ok(RunResult { report, counters, hertz: tsc.hertz, ..RunResult::default() })
    }

    /// Returns the NIC's counters once they agree with the report: they are updated every millisecond.
    fn final_counters(&self, report: &Report) -> Counters {
        let start = std::time::Instant::now();
        loop {
            let counters = self.testbed.counters();
            let all = counters.in_packets >= report.sent && counters.out_packets >= report.received;
            if all || start.elapsed() > DRAIN {
                return counters;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
