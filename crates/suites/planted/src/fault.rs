//! Everything that can go wrong in a probe.

use std::fs;
use std::io::Write;
use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::point::Point;
use lab::sample::Failure;
use lab::suite::Probe;

pub(crate) const FAULTS: &[&str] = &[
    "none", "segv", "illegal", "killed", "exit", "panic", "nonsense", "check", "infinite", "hang",
    "orphan",
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

/// Writes into every pipe of the process, the one for answers among them.
fn nonsense() -> Result<(), Failure> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        let is_pipe =
            fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with("pipe:"));
        if is_pipe && let Ok(mut pipe) = fs::OpenOptions::new().write(true).open(&path) {
            pipe.write_all(b"42 is the answer\n")?;
        }
    }
    // Were the pipe gone, the sample would be an honest one: wait to be stopped.
    std::thread::sleep(Duration::from_millis(300));
    Ok(())
}

/// Leaves a process behind that does not end by itself and does not die with its parent.
fn orphan() -> Result<(), Failure> {
    std::process::Command::new("sleep").arg("86399").spawn()?;
    Ok(())
}
