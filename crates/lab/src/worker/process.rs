//! A probe as its worker sees it: a process with pipes and a limit.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Event, GRACE, PROBE};
use crate::descendants;
use crate::guest::Guest;
use crate::message::{Order, Outbox, Request, receive};
use crate::sample::{Failure, FailureKind};

/// How the line begins in which a guest's kernel says why it ends.
const KERNEL_PANIC: &str = "Kernel panic";

/// A probe under way.
pub(super) struct ProbeProcess {
    child: Child,
    /// A guest has nothing of the host's to put back, and does not end by itself.
    is_guest: bool,
    input: Outbox,
    last_words: Arc<Mutex<String>>,
    pub(super) heard: Instant,
}

impl ProbeProcess {
    /// Starts a probe on this host, or the guest with a worker inside, and gives it its order. A
    /// guest that cannot be started is a failure of its points.
    pub(super) fn start(
        guest: Option<&Guest>,
        order: &Order,
        number: u64,
        events: SyncSender<Event>,
    ) -> std::io::Result<Result<Self, Failure>> {
        let is_guest = guest.is_some();
        let started = guest.map(|guest| (guest.start)(&order.host.artefacts));
        let (mut command, _held) = match started {
            Some(Ok(start)) => (start.command, start.held),
            Some(Err(failure)) => return Ok(Err(failure)),
            None => (own_probe(), Vec::new()),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        machine::child::die_with_parent(&mut command);
        let mut child = command.spawn()?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(std::io::Error::other("a probe without pipes"));
        };
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(answer) = receive(&mut output).transpose() {
                // Behind nonsense nothing can be trusted, and a line may have no end.
                let last = answer.is_err();
                if events.send(Event::Probe(number, answer)).is_err() || last {
                    return;
                }
            }
            let _ = events.send(Event::ProbeGone(number));
        });
        let last_words = Arc::new(Mutex::new(String::new()));
        let words = Arc::clone(&last_words);
        std::thread::spawn(move || {
            let mut errors = BufReader::new(errors);
            while let Some(line) = start_of_line(&mut errors) {
                if let (false, Ok(mut words)) = (is_idle(&line), words.lock()) {
                    // What a kernel says behind its panic is how it ended, not why.
                    if words.starts_with(KERNEL_PANIC) {
                        continue;
                    }
                    words.clear();
                    words.extend(line.trim().chars().take(300));
                }
            }
        });
        let input = Outbox::new(input);
        let mut process = Self { child, is_guest, input, last_words, heard: Instant::now() };
        if let Err(why) = process.tell(&Request::Order(Box::new(order.clone()))) {
            process.kill();
            return Ok(Err(Failure::failed(why)));
        }
        Ok(Ok(process))
    }

    /// Says something; a probe that is gone is seen by its closed output.
    pub(super) fn tell(&mut self, request: &Request) -> Result<(), String> {
        self.input.tell(request)
    }

    pub(super) fn left(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.heard.elapsed())
    }

    /// Waits for it to end by itself, asks it to, then kills it and all that it started.
    pub(super) fn end(&mut self) {
        let begun = Instant::now();
        let mut asked = false;
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < GRACE {
            if (self.is_guest || begun.elapsed() > GRACE / 2) && !asked {
                // SAFETY: kill takes numbers only; the probe is not reaped yet.
                unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
                asked = true;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        self.kill();
    }

    /// Kills it with all that it started and left behind.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        descendants::end(&[]);
    }

    /// Why it answers no more. Its output is closed: it died, or closed it and lives on, which ends here.
    pub(super) fn cause_of_death(&mut self) -> Failure {
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > GRACE {
                self.kill();
                return Failure::new(FailureKind::Crashed, "it closed its output and did not end");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let status = self.child.wait();
        // What it said last is read by another thread, which sees the end soon after.
        std::thread::sleep(Duration::from_millis(5));
        let words = self.last_words.lock().map(|words| words.clone()).unwrap_or_default();
        let words = if words.is_empty() { words } else { format!(": {words}") };
        Failure::new(FailureKind::Crashed, format!("{}{words}", describe(status)))
    }
}

/// The beginning of the next line, however long it is; none at the end.
fn start_of_line(from: &mut impl BufRead) -> Option<String> {
    const KEPT: usize = 1200;
    let mut line = Vec::new();
    let mut any = false;
    loop {
        let bytes = from.fill_buf().unwrap_or_default();
        if bytes.is_empty() {
            return any.then(|| String::from_utf8_lossy(&line).into_owned());
        }
        any = true;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        line.extend(&part[..part.len().min(KEPT - line.len())]);
        let used = end.map_or(bytes.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() {
            return Some(String::from_utf8_lossy(&line).into_owned());
        }
    }
}

/// Whether a line says nothing of the cause of an end: a panic's notes on backtraces, a kernel's
/// farewell.
fn is_idle(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with("note:") || line.starts_with("reboot:")
}

fn own_probe() -> Command {
    let mut command = Command::new("/proc/self/exe");
    // What a panic says last is its cause, not a way through the stack.
    command.args(PROBE).env("RUST_BACKTRACE", "0");
    command
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("the probe was killed by {}", signal_name(signal)),
            (None, Some(code)) => format!("the probe exited with status {code}"),
            (None, None) => "the probe ended".into(),
        },
        Err(error) => format!("the probe ended: {error}"),
    }
}

fn signal_name(signal: i32) -> String {
    let names = [
        (libc::SIGILL, "SIGILL"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGTRAP, "SIGTRAP"),
    ];
    names
        .iter()
        .find(|(number, _)| *number == signal)
        .map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).into())
}
