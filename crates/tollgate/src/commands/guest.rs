//! `tollgate guest`: the guests in which experiments can run, and commands of tollgate inside them.

use std::collections::BTreeMap;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use lab::artefact;
use lab::guest::{
    Guests, KERNEL_PANIC, KVM_ERROR, MAX_BOOT_TIME, MAX_STARTS, Start, kvm_failure, start_of_line,
};
use lab::option::{self, OF_GUEST};
use lab::quantity::format_duration;
use lab::run::{LockRequest, MachineLock, NoObserver};
use lab::terminal::{self, one_line};
use serde_json::json;
use vm::declaration::{self, NamedDeclaration, StartOptions};
use vm::init::{ALIVE, STARTED, STATUS};

use crate::arguments::{GuestCommand, GuestHow};
use crate::error::CliError;
use crate::output::{output_error, print, print_json, print_message};
use crate::suites::{PATCHES, SUITES};

/// Environment variables of the host's terminal that the command inside receives.
const TERMINAL: [&str; 2] = ["COLUMNS", "NO_COLOR"];
/// Maximum time of the guest's end after that of its command.
const MAX_END: Duration = Duration::from_secs(15);
/// Maximum time without output of the command and without work of the guest's CPUs.
const MAX_SILENCE: Duration = Duration::from_secs(600);

/// Lists guests, prints a declaration, or runs a command inside a guest.
pub(crate) fn guest(args: &GuestCommand) -> Result<u8, CliError> {
    let Some(name) = &args.name else {
        return list(args.json);
    };
    if !args.command.is_empty() {
        let command: Vec<_> = args.command.iter().map(String::as_str).collect();
        return execute(name, &args.how, args.host.as_deref(), &command);
    }
    let declared = declaration::find(name).map_err(CliError::usage)?;
    match args.json {
        true => print_json(&json(&declared))?,
        false => print(declared.text.trim_end())?,
    }
    Ok(0)
}

fn json(declared: &NamedDeclaration) -> serde_json::Value {
    json!({ "name": declared.name, "declaration": declared.declaration })
}

fn list(is_json: bool) -> Result<u8, CliError> {
    let guests = declaration::embedded()?;
    if is_json {
        let guests: Vec<_> = guests.iter().map(json).collect();
        print_json(&json!(guests))?;
        return Ok(0);
    }
    for one in &guests {
        print(&format!("{:<11}{}", one.name, one.declaration.about))?;
    }
    print(
        "\nmeasure in one      tollgate run copy/caching --guest ivshmem --where memory=pci-bar",
    )?;
    print("its capabilities    tollgate doctor --guest ivshmem")?;
    print("its declaration     tollgate guest ivshmem")?;
    print("another command     tollgate guest ivshmem -- list")?;
    Ok(0)
}

/// Returns the options that a declaration enables and sets.
pub(super) fn options(declared: &NamedDeclaration) -> Result<BTreeMap<String, String>, CliError> {
    let NamedDeclaration { name, declaration, .. } = declared;
    let set = declaration.set.iter().map(|(name, value)| format!("{name}={value}"));
    option::read(SUITES, &declaration.allow, &set.collect::<Vec<_>>())
        .map_err(|error| CliError::usage(format!("guest '{name}': {error}")))
}

/// Returns the guests of a run.
pub(super) fn start(
    declared: &NamedDeclaration,
    how: &GuestHow,
    options: &BTreeMap<String, String>,
) -> Result<Guests, CliError> {
    Ok(declared.guests(&start_options(how, options))?)
}

fn start_options<'a>(how: &'a GuestHow, options: &'a BTreeMap<String, String>) -> StartOptions<'a> {
    StartOptions {
        accelerator: how.accelerator,
        folder: how.guest_files.as_deref(),
        options,
        patches: &PATCHES,
    }
}

/// Runs a command of this program inside a guest, on the named host or the first; returns its exit status.
pub(super) fn execute(
    name: &str,
    how: &GuestHow,
    host: Option<&str>,
    command: &[&str],
) -> Result<u8, CliError> {
    let declared = declaration::find(name).map_err(CliError::usage)?;
    let command: Vec<_> = command.iter().map(|&word| word.to_owned()).collect();
    let options = options(&declared)?;
    let is_measuring = command.first().is_some_and(|name| measures(name));
    // The hosts of one guest measure together.
    let _lock = is_measuring.then(|| lock(name, how, host.is_some())).transpose()?;
    let mut guest = declared.with_command(&start_options(how, &options), host, &command)?;
    let variables =
        TERMINAL.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    guest.variables.extend(variables);
    guest
        .variables
        .insert(OF_GUEST.into(), serde_json::to_string(&options).map_err(CliError::failed)?);
    for recipe in guest.recipes().iter().filter(|recipe| !artefact::is_cached(recipe)) {
        print_message(&format!(
            "guest '{name}': preparing {}, once; this takes minutes",
            recipe.name
        ));
    }
    let artefacts = artefact::prepare_all(&guest.recipes(), |_| ());
    let mut starts = 1;
    let status = loop {
        let start = guest.start(&artefacts).map_err(CliError::failed)?;
        match relay(start, &Limits::default()).map_err(|why| why.of_guest(name)) {
            Err(why) if why.is_panic && starts < MAX_STARTS => {
                print_message(&format!("{}; starting it again", why.error));
                starts += 1;
            }
            ended => break ended.map_err(|why| why.error)?,
        }
    };
    if is_measuring {
        print_message(&format!(
            "guest '{name}': files written inside, e.g. results, were discarded; 'tollgate run --guest {name}' keeps samples"
        ));
    }
    Ok(status)
}

/// Returns whether a command measures.
fn measures(command: &str) -> bool {
    let of_suite = lab::suite::find(SUITES, command).and_then(|suite| suite.command());
    ["run", "compare"].contains(&command) || of_suite.is_some()
}

/// Takes the lock of the machine.
fn lock(guest: &str, how: &GuestHow, is_shared: bool) -> Result<MachineLock, CliError> {
    let interrupted = AtomicBool::new(false);
    let files = match &how.guest_files {
        Some(folder) => format!(" with files in {}", folder.display()),
        None => String::new(),
    };
    let purpose = format!("guest '{guest}'{files}");
    let purpose = one_line(&purpose);
    let request =
        LockRequest { purpose: &purpose, is_shared, waits: false, interrupted: &interrupted };
    MachineLock::take(request, &mut NoObserver).map_err(super::run::error)
}

/// Time limits of a guest.
struct Limits {
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

/// Why a guest has no exit status.
struct RelayError {
    error: CliError,
    /// Whether its kernel panicked before the command started.
    is_panic: bool,
}

impl RelayError {
    fn new(error: CliError) -> Self {
        Self { error, is_panic: false }
    }

    fn of_guest(self, name: &str) -> Self {
        let error = self.error.with_line(|line| format!("guest '{name}': {line}"));
        Self { error, ..self }
    }
}

/// Output of a guest.
enum Event {
    /// Of its command.
    Output(Vec<u8>),
    /// A line of its console, or of QEMU.
    Line(String),
}

/// Starts a guest and prints what the command inside writes; returns its exit status. A guest that exceeds a limit is
/// killed.
fn relay(start: Start, limits: &Limits) -> Result<u8, RelayError> {
    let failed = |why: String| RelayError::new(CliError::failed(why));
    let Start { mut command, held } = start;
    // QEMU regards an ended input as a closed port.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut emulator = command.spawn().map_err(|why| {
        failed(format!("start {}: {why}", command.get_program().to_string_lossy()))
    })?;
    drop(held);
    let (sender, events) = sync_channel(64);
    if let (Some(output), Some(lines)) = (emulator.stdout.take(), emulator.stderr.take()) {
        let of_console = sender.clone();
        std::thread::spawn(move || forward_output(output, &sender));
        std::thread::spawn(move || forward_lines(lines, &of_console));
    }
    let mut console = Console::new(limits);
    let followed = follow(&events, &mut console);
    let has_ended = matches!(followed, Ok(Followed::ToEnd))
        && machine::child::wait_within(&mut emulator, limits.end)
            .is_ok_and(|status| status.is_some());
    if !has_ended {
        // It is stopped, or hangs.
        let _ = emulator.kill();
    }
    let ended = emulator.wait().map_err(|why| failed(why.to_string()))?;
    let mut result = followed.map(drop);
    if result.is_ok() {
        result = match (ended.success() || !has_ended, console.status) {
            (true, Some(status)) => return Ok(status),
            (true, None) if !has_ended => {
                let (limit, last) = (format_duration(limits.end), console.last());
                let why = format!(
                    "QEMU closed its output, but did not end in {limit}, so it was killed{last}"
                );
                Err(CliError::failed(why))
            }
            (true, None) => {
                let last = console.last();
                Err(CliError::failed(format!("it ended before its command{last}")))
            }
            (false, _) => {
                let ended = machine::child::describe(ended);
                Err(CliError::failed(format!("QEMU {ended}{}", console.last())))
            }
        };
    }
    let is_panic = console.has_panicked && !console.has_started;
    result.map(|()| 1).map_err(|error| RelayError { error, is_panic })
}

/// How the output of a guest ended.
enum Followed {
    /// QEMU closed it, and ends soon.
    ToEnd,
    /// Nobody reads it, or QEMU hangs after the end of the command.
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
                        // The reader has what it wants.
                        console.status = Some(0);
                        return Ok(Followed::Abandoned);
                    }
                    written => written.map_err(|why| output_error(&why))?,
                }
            }
            Ok(Event::Line(line)) => console.accept(&line).map_err(CliError::failed)?,
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
    has_started: bool,
    has_panicked: bool,
    /// The exit status of the command.
    status: Option<u8>,
    /// The last line that is not a report of init.
    last: String,
    /// The start of the guest, or the last sign of work of its command.
    since: Instant,
}

impl<'a> Console<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            has_started: false,
            has_panicked: false,
            status: None,
            last: String::new(),
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

    /// Prints a line as a message, unless it is a report of init or of the machine's end.
    ///
    /// # Errors
    /// Returns one line if KVM cannot execute the guest.
    fn accept(&mut self, line: &str) -> Result<(), String> {
        if self.has_started {
            self.since = Instant::now();
        }
        if line == STARTED {
            self.has_started = true;
            self.since = Instant::now();
        } else if let Some(code) = line.strip_prefix(STATUS) {
            self.status = Some(code.parse().unwrap_or(1));
            self.since = Instant::now();
        } else if line.starts_with(KVM_ERROR) {
            return Err(kvm_failure(line));
        } else if line != ALIVE && !line.contains("reboot: Restarting system") {
            // The lines after a panic do not say why.
            if !self.has_panicked {
                self.last = line.into();
            }
            self.has_panicked |= line.contains(KERNEL_PANIC);
            print_message(line);
        }
        Ok(())
    }

    /// Returns the last line as the end of an error.
    fn last(&self) -> String {
        match self.last.as_str() {
            "" => String::new(),
            last => format!("; its last line: {last}"),
        }
    }

    fn timeout(&self) -> String {
        let (limit, last) = (format_duration(self.limit()), self.last());
        match self.has_started {
            true => {
                format!("no output and no work of its CPUs for {limit}, so it was killed{last}")
            }
            false => format!("not booted in {limit}, so it was killed{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Relays a shell script as QEMU.
    fn relayed(script: &str) -> Result<u8, (String, bool)> {
        let limits = Limits {
            boot: Duration::from_secs(2),
            end: Duration::from_secs(1),
            silence: Duration::from_secs(2),
        };
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        relay(command.into(), &limits).map_err(|why| (why.error.to_string(), why.is_panic))
    }

    #[test]
    fn the_exit_status_is_that_of_the_command() {
        let script = format!("echo '{STARTED}' >&2; echo bad >&2; echo '{STATUS}3' >&2");
        assert_eq!(relayed(&script), Ok(3));
        let (why, _) = relayed("echo 'no device' >&2; exit 1").unwrap_err();
        assert_eq!(why, "QEMU exited with status 1; its last line: no device");
        let (why, _) = relayed("echo 'load module x' >&2").unwrap_err();
        assert_eq!(why, "it ended before its command; its last line: load module x");
    }

    #[test]
    fn a_panic_is_one_of_the_boot_only_before_the_command() {
        let panic = "echo 'Kernel panic - not syncing: Oops' >&2; echo end >&2";
        let (why, is_panic) = relayed(panic).unwrap_err();
        assert!(
            is_panic && why.ends_with("its last line: Kernel panic - not syncing: Oops"),
            "{why}"
        );
        let (_, is_panic) = relayed(&format!("echo '{STARTED}' >&2; {panic}")).unwrap_err();
        assert!(!is_panic);
    }

    #[test]
    fn a_guest_that_hangs_is_killed_with_its_last_line() {
        let hang = "echo 'the last' >&2; exec sleep 1000";
        let (why, _) = relayed(hang).unwrap_err();
        assert_eq!(why, "not booted in 2.0 s, so it was killed; its last line: the last");
        let (why, _) = relayed(&format!("echo '{STARTED}' >&2; {hang}")).unwrap_err();
        assert!(why.starts_with("no output and no work of its CPUs for 2.0 s"), "{why}");
        // A guest that works is not killed.
        let work = format!("for i in 1 2 3; do sleep 1; echo '{ALIVE}' >&2; done");
        assert_eq!(relayed(&format!("echo '{STARTED}' >&2; {work}; echo '{STATUS}0' >&2")), Ok(0));
    }

    #[test]
    fn a_guest_that_does_not_end_after_its_command_is_killed() {
        let ended = format!("echo '{STARTED}' >&2; echo '{STATUS}3' >&2");
        assert_eq!(relayed(&format!("{ended}; exec sleep 1000")), Ok(3));
        assert_eq!(relayed(&format!("{ended}; exec >&- 2>&-; exec sleep 1000")), Ok(3));
        let (why, _) = relayed("echo 'the last' >&2; exec >&- 2>&-; exec sleep 1000").unwrap_err();
        assert!(why.starts_with("QEMU closed its output, but did not end in 1.0 s"), "{why}");
    }

    #[test]
    fn a_guest_that_kvm_cannot_execute_is_killed_at_once() {
        let (why, _) =
            relayed("echo 'KVM internal error. Suberror: 1' >&2; exec sleep 1000").unwrap_err();
        assert!(why.contains("this host's KVM does not run") && why.contains("--accelerator tcg"));
    }

    #[test]
    fn commands_that_measure_are_known() {
        assert!(["run", "compare", "copy", "bounds"].iter().all(|command| measures(command)));
        assert!(!["doctor", "list", "show", "no-such"].iter().any(|command| measures(command)));
    }
}
