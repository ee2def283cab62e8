//! The output of a guest whose command's streams are those of this process.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use lab::console::{CauseOfDeath, is_end_of_machine, is_kvm_error, kvm_failure, start_of_line};
use lab::guest::{BootCommand, BootFailure, MAX_BOOT_TIME};
use lab::quantity::format_duration;
use lab::terminal;
use machine::child::{describe, wait_within};
use vm::init::{ALIVE, STARTED, STATUS};

use crate::error::CliError;
use crate::output::{output_error, print_message};

/// Maximum time of the guest's end after that of its command.
const MAX_END: Duration = Duration::from_secs(15);
/// Maximum time without output of the command and without work of the guest's CPUs.
const MAX_SILENCE: Duration = Duration::from_secs(600);

/// Time limits of a guest.
pub(super) struct Limits {
    /// Until the command starts.
    boot: Duration,
    /// From the end of the command, or of all output, to the end of the guest.
    end: Duration,
    /// Without output of the command and without work of the guest's CPUs.
    silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { boot: MAX_BOOT_TIME, end: MAX_END, silence: MAX_SILENCE }
    }
}

/// Output of a guest.
enum Event {
    /// Of its command.
    Output(Vec<u8>),
    /// A line of its console, or of QEMU.
    Line(String),
}

/// Starts a guest and prints the output of the command inside; returns its exit status. A guest that exceeds a limit is
/// killed.
pub(super) fn relay(boot: BootCommand, limits: &Limits) -> Result<u8, BootFailure<CliError>> {
    let mut console = Console::new(limits, boot.kvm_remedy);
    let result = run(boot, &mut console);
    if let (Err(_), Some(line)) = (&result, console.unprinted()) {
        print_message(&line);
    }
    let is_panic = console.cause.is_panic() && !console.has_started;
    result.map_err(|error| BootFailure { error, is_panic })
}

/// Runs a guest to its end; returns the exit status of its command.
fn run(boot: BootCommand, console: &mut Console) -> Result<u8, CliError> {
    let BootCommand { mut command, held, .. } = boot;
    let started = start(&mut command);
    drop(held);
    let (mut emulator, events) = started?;
    let followed = follow(&events, console);
    let has_ended = matches!(followed, Ok(Followed::ToEnd))
        && wait_within(&mut emulator, console.limits.end).is_ok_and(|status| status.is_some());
    if !has_ended {
        // It is stopped, or hangs.
        let _ = emulator.kill();
    }
    let ended = emulator.wait().map_err(CliError::failed)?;
    followed?;
    status_of(console, has_ended.then_some(ended))
}

/// Starts QEMU and forwards its output.
fn start(command: &mut Command) -> Result<(Child, Receiver<Event>), CliError> {
    // QEMU regards an ended input as a closed port.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut emulator = command.spawn().map_err(|why| {
        CliError::failed(format!("start {}: {why}", command.get_program().to_string_lossy()))
    })?;
    let (sender, events) = sync_channel(64);
    if let (Some(output), Some(lines)) = (emulator.stdout.take(), emulator.stderr.take()) {
        let of_console = sender.clone();
        std::thread::spawn(move || forward_output(output, &sender));
        std::thread::spawn(move || forward_lines(lines, &of_console));
    }
    Ok((emulator, events))
}

/// Returns the exit status of the command of a guest that ended, or was killed (`None`) because it did not end.
fn status_of(console: &Console, ended: Option<ExitStatus>) -> Result<u8, CliError> {
    let last = console.last();
    Err(CliError::failed(match (ended, console.status) {
        (Some(ended), _) if !ended.success() => {
            let fix = "correct the declaration, or free the memory or file that QEMU lacks";
            format!("QEMU {}{last}; {fix}", describe(ended))
        }
        (_, Some(status)) => return Ok(status),
        (Some(_), None) => {
            format!("it ended before its command{last}; correct the declaration, or run again")
        }
        (None, None) => {
            let limit = format_duration(console.limits.end);
            format!(
                "QEMU closed its output, but did not end in {limit}, so it was killed{last}; run again"
            )
        }
    }))
}

/// End of a guest's output.
enum Followed {
    /// QEMU closed it, and ends soon.
    ToEnd,
    /// No process reads it, or QEMU hangs after the end of the command.
    Abandoned,
}

/// Prints events until the guest closes its output.
fn follow(events: &Receiver<Event>, console: &mut Console) -> Result<Followed, CliError> {
    loop {
        match events.recv_timeout(console.remaining()) {
            Ok(Event::Output(bytes)) => {
                console.since = Instant::now();
                match terminal::stdout().write_all(&bytes) {
                    Err(why) if why.kind() == ErrorKind::BrokenPipe => {
                        // The reader, e.g. `head`, has ended.
                        console.status = Some(0);
                        return Ok(Followed::Abandoned);
                    }
                    written => written.map_err(|why| output_error(&why))?,
                }
            }
            Ok(Event::Line(line)) => {
                if let Some(line) = console.accept(line).map_err(CliError::failed)? {
                    print_message(&line);
                }
            }
            // Its command has ended, but QEMU hangs.
            Err(RecvTimeoutError::Timeout) if console.status.is_some() => {
                return Ok(Followed::Abandoned);
            }
            Err(RecvTimeoutError::Timeout) => return Err(CliError::failed(console.timeout())),
            Err(RecvTimeoutError::Disconnected) => return Ok(Followed::ToEnd),
        }
    }
}

fn forward_output(mut output: impl Read, to: &SyncSender<Event>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = output.read(&mut buffer) {
        if to.send(Event::Output(buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

fn forward_lines(console: impl Read, to: &SyncSender<Event>) {
    let mut console = BufReader::new(console);
    while let Some(line) = start_of_line(&mut console) {
        let line = line.trim().to_owned();
        if !line.is_empty() && to.send(Event::Line(line)).is_err() {
            return;
        }
    }
}

/// The state of a guest as its console reports it.
struct Console<'a> {
    limits: &'a Limits,
    /// Remedy if KVM cannot execute the guest.
    kvm_remedy: &'a str,
    has_started: bool,
    /// The exit status of the command.
    status: Option<u8>,
    cause: CauseOfDeath,
    /// The last line of the boot. It is printed when the next one follows, because it may be the end of an error.
    pending: Option<String>,
    /// The start of the guest, or the last sign of work of its command.
    since: Instant,
}

impl<'a> Console<'a> {
    fn new(limits: &'a Limits, kvm_remedy: Option<&'a str>) -> Self {
        Self {
            limits,
            kvm_remedy: kvm_remedy.unwrap_or_default(),
            has_started: false,
            status: None,
            cause: CauseOfDeath::default(),
            pending: None,
            since: Instant::now(),
        }
    }

    fn limit(&self) -> Duration {
        match (self.status, self.has_started) {
            (Some(_), _) => self.limits.end,
            (None, true) => self.limits.silence,
            (None, false) => self.limits.boot,
        }
    }

    fn remaining(&self) -> Duration {
        self.limit().saturating_sub(self.since.elapsed())
    }

    /// Considers a line. Returns the line to print as a message: this one, or during the boot the one before; `None` for
    /// reports of init and of the machine's end.
    ///
    /// # Errors
    /// Returns one line if KVM cannot execute the guest.
    fn accept(&mut self, line: String) -> Result<Option<String>, String> {
        if self.has_started {
            self.since = Instant::now();
        }
        if line == STARTED {
            self.has_started = true;
            self.since = Instant::now();
            return Ok(self.pending.take());
        }
        if let Some(code) = line.strip_prefix(STATUS) {
            self.status = Some(code.parse().unwrap_or(1));
            self.since = Instant::now();
            return Ok(None);
        }
        if is_kvm_error(&line) {
            return Err(kvm_failure(&line, self.kvm_remedy));
        }
        if line == ALIVE || is_end_of_machine(&line) {
            return Ok(None);
        }
        self.cause.consider(&line);
        Ok(if self.has_started { Some(line) } else { self.pending.replace(line) })
    }

    /// Returns the line that is neither printed nor the end of an error.
    fn unprinted(&mut self) -> Option<String> {
        self.pending.take().filter(|line| *line != self.cause.line())
    }

    /// Returns the cause as the end of an error.
    fn last(&self) -> String {
        match self.cause.line() {
            "" => String::new(),
            last => format!("; its last line: {last}"),
        }
    }

    fn timeout(&self) -> String {
        let (limit, last) = (format_duration(self.limit()), self.last());
        match self.has_started {
            true => format!(
                "no output and no work of its CPUs for {limit}, so it was killed{last}; run again"
            ),
            false => format!(
                "not booted in {limit}, so it was killed{last}; end other programs and run again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits that no script reaches.
    const ENDLESS: Limits = Limits { boot: LIMIT, end: LIMIT, silence: LIMIT };
    const LIMIT: Duration = Duration::from_secs(600);

    /// Relays a shell script as QEMU.
    fn relayed_within(limits: &Limits, script: &str) -> Result<u8, (String, bool)> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let boot = BootCommand::of_guest(command, Vec::new(), "use another host");
        relay(boot, limits).map_err(|why| (why.error.to_string(), why.is_panic))
    }

    fn relayed(script: &str) -> Result<u8, (String, bool)> {
        relayed_within(&ENDLESS, script)
    }

    #[test]
    fn the_exit_status_is_that_of_the_command() {
        let script = format!("echo '{STARTED}' >&2; echo bad >&2; echo '{STATUS}3' >&2");
        assert_eq!(relayed(&script), Ok(3));
        let (why, _) = relayed("echo 'no device' >&2; exit 1").unwrap_err();
        let expected =
            "QEMU exited with status 1; its last line: no device; correct the declaration";
        assert!(why.starts_with(expected), "{why}");
        let (why, _) = relayed("echo 'load module x' >&2").unwrap_err();
        let expected =
            "it ended before its command; its last line: load module x; correct the declaration";
        assert!(why.starts_with(expected), "{why}");
    }

    #[test]
    fn a_panic_is_one_of_the_boot_only_before_the_command() {
        let panic = "echo 'Kernel panic - not syncing: Oops' >&2; echo end >&2";
        let (why, is_panic) = relayed(panic).unwrap_err();
        assert!(
            is_panic && why.contains("its last line: Kernel panic - not syncing: Oops; "),
            "{why}"
        );
        let (_, is_panic) = relayed(&format!("echo '{STARTED}' >&2; {panic}")).unwrap_err();
        assert!(!is_panic);
    }

    #[test]
    fn a_guest_that_hangs_is_killed_with_its_last_line() {
        let hang = "exec sleep 1000";
        let limits = Limits { boot: Duration::from_secs(2), ..ENDLESS };
        let (why, _) = relayed_within(&limits, hang).unwrap_err();
        assert!(why.starts_with("not booted in 2.0 s, so it was killed; end other"), "{why}");
        let limits = Limits { silence: Duration::from_secs(2), ..ENDLESS };
        let script = format!("echo '{STARTED}' >&2; {hang}");
        let (why, _) = relayed_within(&limits, &script).unwrap_err();
        assert!(why.starts_with("no output and no work of its CPUs for 2.0 s"), "{why}");
    }

    #[test]
    fn output_and_work_restart_the_limit_of_silence() {
        let mut console = Console::new(&ENDLESS, None);
        let is_restarted = |console: &mut Console, line: &str| {
            let before = console.since;
            std::thread::sleep(Duration::from_millis(1));
            console.accept(line.to_owned()).unwrap();
            console.since > before
        };
        assert!(!is_restarted(&mut console, "a line of the boot"));
        for line in [STARTED, ALIVE, "a line", &format!("{STATUS}0")] {
            assert!(is_restarted(&mut console, line), "{line}");
        }
    }

    #[test]
    fn a_line_of_the_boot_is_a_message_or_the_end_of_the_error() {
        let printed = |lines: &[&str]| {
            let mut console = Console::new(&ENDLESS, None);
            let accepted = lines.iter().filter_map(|line| console.accept((*line).into()).unwrap());
            (accepted.collect::<Vec<_>>(), console.unprinted(), console.last())
        };
        let error = |line: &str| format!("; its last line: {line}");
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(printed(&["a", "b"]), (words(&["a"]), None, error("b")));
        assert_eq!(printed(&["a", STARTED, "b"]), (words(&["a", "b"]), None, error("b")));
        let panic = "Kernel panic - not syncing: Oops";
        let (lines, last, why) = printed(&["a", panic, "---[ end ]---", "reboot: later"]);
        assert_eq!((lines, last), (words(&["a", panic]), Some("---[ end ]---".into())));
        assert_eq!(why, error(panic));
    }

    #[test]
    fn a_guest_that_does_not_end_after_its_command_is_killed() {
        let ended = format!("echo '{STARTED}' >&2; echo '{STATUS}3' >&2");
        let limits = Limits { end: Duration::from_secs(1), ..ENDLESS };
        let relayed = |script: &str| relayed_within(&limits, script);
        assert_eq!(relayed(&format!("{ended}; exec sleep 1000")), Ok(3));
        assert_eq!(relayed(&format!("{ended}; exec >&- 2>&-; exec sleep 1000")), Ok(3));
        let (why, _) = relayed("echo 'the last' >&2; exec >&- 2>&-; exec sleep 1000").unwrap_err();
        assert!(why.starts_with("QEMU closed its output, but did not end in 1.0 s"), "{why}");
    }

    #[test]
    fn a_guest_that_kvm_cannot_execute_is_killed_at_once() {
        let (why, _) =
            relayed("echo 'KVM internal error. Suberror: 1' >&2; exec sleep 1000").unwrap_err();
        assert!(
            why.contains("this host's KVM does not run") && why.ends_with("; use another host")
        );
    }
}
