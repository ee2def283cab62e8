//! `tollgate stream generate`: the NIC, and packets of a file on its wire.

mod output;
mod testbed;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::Duration;

use clap::builder::RangedI64ValueParser;
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use lab::suite::UsageError;
use machine::file::Output;
use machine::tsc::Tsc;

use super::Error;
use super::rate::Rate;
use super::{Interrupted, say, until};
use crate::generator::{Check, GeneratorCommand, LiveCounters, Report, Trial};
use crate::nic::Counters;
use crate::nic::remote::{Lent, Limits, Server};
use crate::suite::params::MAX_MODELLED;
use crate::wire::pcap;
use output::{Ended, Second};
use testbed::Testbed;

/// How long is waited for the last packets, once all are sent.
const DRAIN: Duration = Duration::from_secs(1);
/// How long a run lasts at most.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Spans of memory that one program may lend: those of 8192 rings, twice.
const SPANS: usize = 40_000;
/// Spans that all may lend: the kernel gives a process 65,530, and some are the NIC's own.
const ALL_SPANS: usize = 60_000;
/// Pairs of notification buffers that a program may have on a machine of few CPUs.
const PAIRS: usize = 64;
/// How long a program may take to say hello, to end a message, and to read an answer, and for how long it may
/// have nothing of the NIC where others want its place.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Options of `tollgate stream generate`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The packets, which are sent again and again
    #[arg(value_name = "PCAP")]
    pcap: PathBuf,
    /// How fast: Gbps on the wire, with preamble and gap, or packets a second as 148.8Mpps
    #[arg(allow_negative_numbers = true)]
    rate: Rate,
    /// Ends after so many packets; without, Ctrl-C or a day ends it
    #[arg(long, allow_negative_numbers = true,
        value_parser = RangedI64ValueParser::<u64>::new().range(1..))]
    count: Option<u64>,
    /// Takes round-trip times: of each packet, or of one in up to 19 where they come too fast
    #[arg(long)]
    rtt: bool,
    /// Writes how often each round-trip time was seen
    #[arg(long, value_name = "FILE")]
    rtt_hist: Option<PathBuf>,
    /// Writes a line for each second, as CSV
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// What of each packet that comes back is compared, besides count and order
    #[arg(long, value_enum, default_value = "all")]
    check: Compared,
    /// How long doorbells are modelled to take, as '400 ns'
    #[arg(long, default_value = "0 ns", allow_hyphen_values = true, value_parser = modelled)]
    modelled_doorbell: Duration,
    /// How long transfers are modelled to take
    #[arg(long, default_value = "0 ns", allow_hyphen_values = true, value_parser = modelled)]
    modelled_transfer: Duration,
    /// Where programs find the NIC
    #[arg(long, value_name = "SOCKET")]
    nic: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long something is modelled to take.
fn modelled(text: &str) -> Result<Duration, String> {
    let time = lab::quantity::duration(text).map_err(|why| why.to_string())?;
    if time > MAX_MODELLED {
        return Err(format!("'{text}' is longer than 1 ms; give less"));
    }
    Ok(time)
}

/// What is compared.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Compared {
    None,
    OneWord,
    All,
}

impl From<Compared> for Check {
    fn from(compared: Compared) -> Self {
        match compared {
            Compared::None => Self::None,
            Compared::OneWord => Self::OneWord,
            Compared::All => Self::All,
        }
    }
}

/// Sends until it is told to end, and prints what came of it. Gives the exit status: 1 where packets came back
/// other than they should be.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(options: &Options) -> Result<i32, Error> {
    let traffic = pcap::read(&options.pcap).map_err(|why| match why.is_the_files() {
        true => Error::from(UsageError::new(why.to_string())),
        false => why.into(),
    })?;
    let traffic = Arc::new(traffic);
    let path = options.nic.clone().map_or_else(super::default_socket, Ok)?;
    let saved = options.save.as_deref().map(output::Save::create).transpose()?;
    // What cannot be written is said before anything is measured.
    let histogram = options.rtt_hist.as_deref().map(|path| {
        let refused = |why| unwritten(path, &why, "--rtt-hist");
        Output::create(path).map_err(refused)
    });
    let histogram = histogram.transpose()?;
    let interrupted = Interrupted::listen()?;
    let wire_bytes = traffic.total_wire_bytes() as f64 / traffic.len() as f64;
    let live = Arc::new(LiveCounters::default());
    let times = (options.modelled_doorbell, options.modelled_transfer);
    let testbed = Arc::new(Testbed::new(traffic, Arc::clone(&live), times)?);
    let free = machine::memory::available();
    let limits = Limits {
        each: Lent { bytes: free / 2, spans: SPANS },
        all: Lent { bytes: (free / 4).saturating_mul(3), spans: ALL_SPANS },
        pairs: PAIRS.max(machine::topology::allowed_cpus().len()),
        timeout: TIMEOUT,
    };
    let opened = Arc::clone(&testbed);
    let server = Server::open(&path, limits, move |config| opened.open(config));
    let server = server.map_err(|why| match why.is_usage() {
        true => Error::from(UsageError::new(why.to_string())),
        false => why.into(),
    })?;
    say(&format!(
        "a NIC is at {}; packets are sent once a program is ready: tollgate stream echo 1 2 0",
        path.display()
    ));
    until(|| server.ready() > 0 || interrupted.is_set(), |_, _| {});
    let mut unsaved = None;
    let ended = if interrupted.is_set() {
        Ended::default()
    } else {
        let run =
            Run { options, interrupted: &interrupted, testbed: &testbed, live: &live, wire_bytes };
        run.run(saved, &mut unsaved)?
    };
    // Programs hear of the end before it is told.
    drop(server);
    let ended = Ended { wire_bytes, config: testbed.config(), modelled: times, ..ended };
    // A failing file loses no report.
    print(options, &ended)?;
    if let (Some(path), Some(why)) = (&options.save, unsaved) {
        return Err(unwritten(path, &why, "--save"));
    }
    if let (Some(path), Some(file), Some(times)) =
        (&options.rtt_hist, histogram, &ended.report.times)
    {
        save(&ended, times, file).map_err(|why| unwritten(path, &why, "--rtt-hist"))?;
    }
    Ok(i32::from(ended.report.corrupted > 0 || ended.report.late > 0))
}

/// Why a file was not written.
fn unwritten(path: &Path, why: &std::io::Error, option: &str) -> Error {
    format!("{}: it cannot be written ({why}); name another with {option}", path.display()).into()
}

/// Writes how often each round-trip time was seen.
fn save(ended: &Ended, times: &Histogram<u64>, mut file: Output) -> std::io::Result<()> {
    ended.histogram(times, &mut file)?;
    file.finish()
}

fn print(options: &Options, ended: &Ended) -> Result<(), Error> {
    let mut out = lab::terminal::stdout();
    if options.json {
        writeln!(out, "{}", ended.json())?;
    } else {
        write!(out, "{}", ended.text())?;
    }
    Ok(())
}

/// One run.
struct Run<'a> {
    options: &'a Options,
    interrupted: &'a Interrupted,
    testbed: &'a Testbed,
    live: &'a LiveCounters,
    wire_bytes: f64,
}

impl Run<'_> {
    /// `unsaved` is why not all seconds were saved.
    fn run(
        &self,
        mut saved: Option<output::Save>,
        unsaved: &mut Option<std::io::Error>,
    ) -> Result<Ended, Error> {
        let tsc = Tsc::get()?;
        let trial = Trial {
            pace: self.options.rate.pace(self.wire_bytes, tsc.hertz),
            count: self.options.count.unwrap_or(u64::MAX),
            duration: tsc.ticks(LONGEST),
            drain: tsc.ticks(DRAIN),
            check: self.options.check.into(),
            times: self.options.rtt || self.options.rtt_hist.is_some(),
            ..Trial::default()
        };
        let (answer, reports) = sync_channel(1);
        self.testbed.command(GeneratorCommand::Start(trial, answer));
        let (mut report, mut gone, mut stopping) = (None::<Report>, false, false);
        let mut before = self.live.seen();
        until(
            || {
                match reports.try_recv() {
                    Ok(ended) => report = Some(ended),
                    Err(TryRecvError::Disconnected) => gone = true,
                    Err(TryRecvError::Empty) => {}
                }
                if self.interrupted.is_set() && !stopping {
                    self.testbed.command(GeneratorCommand::Stop);
                    stopping = true;
                }
                report.is_some() || gone
            },
            |at, since| {
                let now = self.live.seen();
                let counters = self.testbed.counters();
                let second =
                    Second { at, since, before, now, counters, wire_bytes: self.wire_bytes };
                before = now;
                say(&second.text());
                if let Some(Err(why)) = saved.as_mut().map(|saved| saved.line(&second)) {
                    // It is given up, and the first cause is told.
                    (saved, *unsaved) = (None, Some(why));
                }
            },
        );
        if let Some(Err(why)) = saved.map(output::Save::finish) {
            *unsaved = Some(why);
        }
        let report = report.ok_or("the NIC ended before its time; start it again")?;
        let counters = self.counted(&report);
        Ok(Ended { report, counters, hertz: tsc.hertz, ..Ended::default() })
    }

    /// The counters, once they say what the report says: they are shown once a millisecond.
    fn counted(&self, report: &Report) -> Counters {
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
