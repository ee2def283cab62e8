//! Faults of a probe.

use std::fs;
use std::io::Write;
use std::time::Duration;

use lab::factor::LevelType;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::point::Point;
use lab::sample::Failure;
use machine::signal::end_process;

/// A planted fault of a probe.
#[derive(Clone, Copy, LevelType)]
pub(crate) enum Fault {
    /// No fault: the sample is valid.
    None,
    /// SIGSEGV.
    Segv,
    /// SIGILL.
    Illegal,
    /// SIGKILL.
    Killed,
    /// The process exits with status 7.
    Exit,
    /// A panic.
    Panic,
    /// A line that is not an answer.
    Nonsense,
    /// A failed check.
    Check,
    /// An infinite value.
    Infinite,
    /// No answer.
    Hang,
    /// A child process that outlives the probe.
    Orphan,
    /// An endless line.
    Endless,
    /// Endless messages.
    Flood,
    /// An answer to another order.
    Other,
    /// A metric that the method does not declare.
    Undeclared,
    /// A histogram that cannot be decoded.
    Histogram,
}

/// Params of `faults`.
#[derive(Params)]
pub(crate) struct FaultParams {
    /// planted fault
    #[factor(default = "none")]
    fault: Fault,
}

/// The method `faults`: fails in every known way.
pub(crate) struct Faults;

impl Method for Faults {
    type Params = FaultParams;

    fn name(&self) -> &'static str {
        "faults"
    }

    fn how(&self) -> &'static str {
        "A probe crashes, hangs, lies or is killed, as its point states. Each fault must become the row that \
         describes it."
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[Metric::time("time", "always 1")];
        METRICS
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["planted::fault"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<FaultParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

fn measure(_: &mut Context, params: &FaultParams) -> Result<Measurement, Failure> {
    match params.fault {
        Fault::Segv => end_process(libc::SIGSEGV),
        Fault::Illegal => end_process(libc::SIGILL),
        Fault::Killed => end_process(libc::SIGKILL),
        Fault::Exit => std::process::exit(7),
        #[expect(clippy::panic, reason = "the lab must survive it")]
        Fault::Panic => panic!("planted"),
        Fault::Nonsense => nonsense()?,
        Fault::Endless => repeat(&[b'x'; 1 << 16])?,
        Fault::Flood => repeat(b"\"ready\"\n")?,
        Fault::Other => foreign_answer()?,
        Fault::Undeclared => return Ok(Measurement::default().value("speed", 1.0)),
        Fault::Histogram => {
            let mut measurement = Measurement::default().value("time", 1.0);
            measurement.histograms.insert("time".into(), "HISTFAAA".into());
            return Ok(measurement);
        }
        Fault::Check => return Err(Failure::check("planted: byte 3 is 7, not 8")),
        Fault::Infinite => return Ok(Measurement::default().value("time", f64::INFINITY)),
        Fault::Hang => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        Fault::Orphan => orphan()?,
        Fault::None => {}
    }
    Ok(Measurement::default().value("time", 1.0))
}

/// Opens the pipe for answers: the pipe that this process opened itself. Inherited pipes belong to the
/// program that started tollgate.
fn pipe() -> Result<fs::File, Failure> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok());
        // SAFETY: this fcntl command takes integers only.
        let flags = number.map_or(-1, |number| unsafe { libc::fcntl(number, libc::F_GETFD) });
        let is_own = flags >= 0 && flags & libc::FD_CLOEXEC != 0;
        let is_pipe =
            fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with("pipe:"));
        if is_own
            && is_pipe
            && let Ok(pipe) = fs::OpenOptions::new().write(true).open(&path)
        {
            return Ok(pipe);
        }
    }
    Err(Failure::failed("the probe has no pipe for answers"))
}

fn nonsense() -> Result<(), Failure> {
    send_line(b"42 is the answer\n")
}

/// Sends a valid answer to an order that was not given.
fn foreign_answer() -> Result<(), Failure> {
    let sample = lab::sample::Sample {
        experiment: "planted/faults".into(),
        point: Point::from([("fault", "none")]),
        attempt: 1,
        values: [("time".to_string(), 1.0)].into(),
        ..Default::default()
    };
    let answered = lab::message::SampleAnswer { order: 0, role: String::new(), sample };
    let mut line = Vec::new();
    lab::message::send(&mut line, &lab::message::Answer::Sample(Box::new(answered)))?;
    send_line(&line)
}

fn send_line(line: &[u8]) -> Result<(), Failure> {
    pipe()?.write_all(line)?;
    // If the pipe were closed, the sample would be valid: wait to be killed.
    std::thread::sleep(Duration::from_secs(10));
    Ok(())
}

/// Writes the text until the process is killed.
fn repeat(text: &[u8]) -> Result<(), Failure> {
    let mut pipe = pipe()?;
    loop {
        pipe.write_all(text)?;
    }
}

/// Spawns a process that neither ends nor dies with its parent.
fn orphan() -> Result<(), Failure> {
    std::process::Command::new("sleep").arg("86399").spawn()?;
    Ok(())
}
