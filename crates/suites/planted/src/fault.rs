//! Everything that can go wrong in a probe.

use std::fs;
use std::io::Write;
use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::point::Point;
use lab::sample::Failure;
use lab::suite::Probe;

pub(crate) const FAULTS: &[&str] = &[
    "none",
    "segv",
    "illegal",
    "killed",
    "exit",
    "panic",
    "nonsense",
    "check",
    "infinite",
    "hang",
    "orphan",
    "endless",
    "flood",
    "other",
    "undeclared",
    "histogram",
];

pub(crate) struct Fault;

impl Probe for Fault {
    fn measure(&mut self, _: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        match point.text("fault") {
            "segv" => raise(libc::SIGSEGV),
            "illegal" => raise(libc::SIGILL),
            "killed" => raise(libc::SIGKILL),
            "exit" => std::process::exit(7),
            #[expect(clippy::panic, reason = "the lab must survive it")]
            "panic" => panic!("planted"),
            "nonsense" => nonsense()?,
            "endless" => repeat(&[b'x'; 1 << 16])?,
            "flood" => repeat(b"\"ready\"\n")?,
            "other" => other()?,
            "undeclared" => return Ok(Measurement::default().value("speed", 1.0)),
            "histogram" => {
                let mut measurement = Measurement::default().value("time", 1.0);
                measurement.histograms.insert("time".into(), "HISTFAAA".into());
                return Ok(measurement);
            }
            "check" => return Err(Failure::check("planted: byte 3 is 7, not 8")),
            "infinite" => return Ok(Measurement::default().value("time", f64::INFINITY)),
            "hang" => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            "orphan" => orphan()?,
            _ => {}
        }
        Ok(Measurement::default().value("time", 1.0))
    }
}

fn raise(signal: i32) {
    // SAFETY: the default action ends the process, which is what is asked for.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// The pipe for answers: of those that the process has, the one that it opened itself. Others were inherited,
/// and belong to whoever started the program.
fn pipe() -> Result<fs::File, Failure> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok());
        // SAFETY: fcntl takes numbers only here.
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
    Err(Failure::failed("there is no pipe for answers"))
}

fn nonsense() -> Result<(), Failure> {
    say(b"42 is the answer\n")
}

/// An answer as it would be right, to an order that nobody gave.
fn other() -> Result<(), Failure> {
    let sample = lab::sample::Sample {
        experiment: "planted/faults".into(),
        point: Point::from([("fault", "none")]),
        attempt: 1,
        values: [("time".to_string(), 1.0)].into(),
        ..Default::default()
    };
    let answered = lab::message::Answered { order: 0, role: String::new(), sample };
    let mut line = Vec::new();
    lab::message::send(&mut line, &lab::message::Answer::Sample(Box::new(answered)))?;
    say(&line)
}

fn say(line: &[u8]) -> Result<(), Failure> {
    pipe()?.write_all(line)?;
    // Were the pipe gone, the sample would be an honest one: wait to be stopped.
    std::thread::sleep(Duration::from_secs(10));
    Ok(())
}

/// Writes the same for ever, until it is stopped.
fn repeat(text: &[u8]) -> Result<(), Failure> {
    let mut pipe = pipe()?;
    loop {
        pipe.write_all(text)?;
    }
}

/// Leaves a process behind that does not end by itself and does not die with its parent.
fn orphan() -> Result<(), Failure> {
    std::process::Command::new("sleep").arg("86399").spawn()?;
    Ok(())
}
