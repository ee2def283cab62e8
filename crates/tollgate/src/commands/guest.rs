//! `tollgate guest`: the guests in which experiments can run, and commands of tollgate inside them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use lab::artefact;
use lab::guest::{Guests, Start};
use lab::option::{self, OF_GUEST};
use lab::terminal;
use serde_json::json;
use vm::declaration::{self, NamedDeclaration, StartOptions};
use vm::init::STATUS;

use crate::arguments::{GuestCommand, GuestHow};
use crate::error::CliError;
use crate::output::{output_error, print, print_json, print_message};
use crate::suites::SUITES;

/// Environment variables of the host's terminal that the command inside receives.
const TERMINAL: [&str; 2] = ["COLUMNS", "NO_COLOR"];

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
    StartOptions { accelerator: how.accelerator, folder: how.guest_files.as_deref(), options }
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
    let mut guest = declared.with_command(&start_options(how, &options), host, &command)?;
    let variables =
        TERMINAL.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    guest.variables.extend(variables);
    guest
        .variables
        .insert(OF_GUEST.into(), serde_json::to_string(&options).map_err(CliError::failed)?);
    let artefacts = artefact::prepare_all(&guest.recipes(), |_| ());
    relay(name, guest.start(&artefacts).map_err(CliError::failed)?)
}

/// Starts the guest `name` and prints what the command inside writes; returns its exit status.
fn relay(name: &str, start: Start) -> Result<u8, CliError> {
    let Start { mut command, held } = start;
    // QEMU regards an ended input as a closed port.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut emulator = command.spawn().map_err(CliError::failed)?;
    drop(held);
    let console = emulator.stderr.take();
    let console = std::thread::spawn(move || console.and_then(relay_console));
    if let Some(mut output) = emulator.stdout.take() {
        let mut buffer = [0; 1 << 16];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            terminal::stdout().write_all(&buffer[..length]).map_err(|why| output_error(&why))?;
        }
    }
    let ended = emulator.wait().map_err(CliError::failed)?;
    let status = console.join().ok().flatten();
    let why = match (ended.success(), status) {
        (true, Some(status)) => return Ok(status),
        (true, None) => "it ended before its command; its console says why".into(),
        (false, _) => format!("QEMU {}", machine::child::describe(ended)),
    };
    Err(CliError::failed(format!("guest '{name}': {why}")))
}

/// Prints the console's lines as messages, except those of its end; returns the exit status of the command, `None` if
/// the guest did not get that far.
fn relay_console(console: impl Read) -> Option<u8> {
    let mut status = None;
    for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        match line.strip_prefix(STATUS) {
            Some(code) => status = Some(code.parse().unwrap_or(1)),
            None if line.is_empty() || line.contains("reboot: Restarting system") => {}
            None => print_message(line),
        }
    }
    status
}
