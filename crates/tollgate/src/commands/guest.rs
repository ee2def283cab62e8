//! `tollgate guest`: the guests in which experiments can run, and commands of tollgate inside them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use lab::artefact;
use lab::guest::{BootFailure, Guests, boot};
use lab::option::{self, OF_GUEST};
use lab::run::{LockRequest, MachineLock, NoObserver};
use lab::schema::JsonOutput;
use lab::terminal::one_line;
use schemars::JsonSchema;
use serde::Serialize;
use vm::declaration::{self, Declaration, NamedDeclaration, StartOptions};
use vm::guest::Accelerator;

use crate::arguments::{GuestCommand, GuestHow, measures};
use crate::error::CliError;
use crate::output::{print, print_json, print_message};
use crate::suites::{PATCHES, SUITES, check_ring_0};

mod relay;

use relay::{Limits, relay};

/// Environment variables of the host's terminal that the command inside receives.
const TERMINAL: [&str; 2] = ["COLUMNS", "NO_COLOR"];

/// Lists guests, prints a declaration, or runs a command inside a guest.
pub(crate) fn guest(args: &GuestCommand) -> Result<u8, CliError> {
    let Some(name) = &args.name else {
        return list(args.json);
    };
    let declared = declaration::find(name).map_err(CliError::usage)?;
    if !args.command.is_empty() {
        return execute(&declared, &args.how, args.host.as_deref(), &args.command);
    }
    match args.json {
        true => print_json(&GuestsOutput { guests: vec![NamedGuest::of(&declared)] })?,
        false => print(declared.text.trim_end())?,
    }
    Ok(0)
}

/// JSON output of `tollgate guest`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct GuestsOutput<'a> {
    /// All guests, or the one that was named.
    guests: Vec<NamedGuest<'a>>,
}

impl JsonOutput for GuestsOutput<'_> {
    const NAME: &'static str = "guest";
    const WRITTEN_BY: &'static str = "tollgate guest --json";
    const VERSION: u64 = 2;
}

/// A guest with its declaration.
#[derive(Serialize, JsonSchema)]
struct NamedGuest<'a> {
    /// Name on the command line.
    name: &'a str,
    declaration: &'a Declaration,
}

impl<'a> NamedGuest<'a> {
    fn of(declared: &'a NamedDeclaration) -> Self {
        Self { name: &declared.name, declaration: &declared.declaration }
    }
}

fn list(is_json: bool) -> Result<u8, CliError> {
    let guests = declaration::embedded()?;
    if is_json {
        print_json(&GuestsOutput { guests: guests.iter().map(NamedGuest::of).collect() })?;
        return Ok(0);
    }
    let width = guests.iter().map(|one| one.name.len()).max().unwrap_or_default();
    for one in &guests {
        print(&format!("{:<width$}  {}", one.name, one.declaration.about))?;
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
    option::read_for_guest(SUITES, &declaration.allow, &set.collect::<Vec<_>>())
        .map_err(|error| CliError::usage(format!("guest '{name}': {error}")))
}

/// Returns the guests of a run.
pub(super) fn guests_of(
    declared: &NamedDeclaration,
    how: &GuestHow,
    options: &BTreeMap<String, String>,
) -> Result<Guests, CliError> {
    check_host(how)?;
    Ok(declared.guests(&start_options(how, options))?)
}

/// Checks that this machine can start guests, before it makes a kernel for them. On an emulated CPU guests of KVM have no time,
/// so ring 0 may be emulated there.
fn check_host(how: &GuestHow) -> Result<(), CliError> {
    how.accelerator.check_host().map_err(CliError::failed)?;
    if how.accelerator == Accelerator::Kvm && !machine::cpu::emulated() {
        check_ring_0().map_err(|failure| {
            let why = failure.why;
            CliError::failed(format!("--accelerator kvm: {why}; use --accelerator tcg"))
        })?;
    }
    Ok(())
}

fn start_options<'a>(how: &'a GuestHow, options: &'a BTreeMap<String, String>) -> StartOptions<'a> {
    StartOptions {
        accelerator: how.accelerator,
        folder: how.guest_files.as_deref(),
        options,
        patches: &PATCHES,
    }
}

/// Runs the doctor inside a guest; returns its exit status.
pub(super) fn doctor(name: &str, how: &GuestHow, is_json: bool) -> Result<u8, CliError> {
    let declared = declaration::find(name).map_err(CliError::usage)?;
    if let [first, _, ..] = declared.declaration.host.as_slice() {
        print_message(&format!("guest '{}': only its first host, {}", declared.name, first.name));
    }
    let words: &[&str] = if is_json { &["doctor", "--json"] } else { &["doctor"] };
    let command: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
    execute(&declared, how, None, &command)
}

/// Runs a command of this program inside a guest, on the named host or the first; returns its exit status.
fn execute(
    declared: &NamedDeclaration,
    how: &GuestHow,
    host: Option<&str>,
    command: &[String],
) -> Result<u8, CliError> {
    let NamedDeclaration { name, argument, .. } = declared;
    let options = options(declared)?;
    check_host(how)?;
    let is_measuring = measures(command);
    // The hosts of one guest measure together.
    let _lock = is_measuring.then(|| lock(name, how, host.is_some())).transpose()?;
    let mut guest = declared.with_command(&start_options(how, &options), host, command)?;
    let variables =
        TERMINAL.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    guest.variables.extend(variables);
    guest
        .variables
        .insert(OF_GUEST.into(), serde_json::to_string(&options).map_err(CliError::failed)?);
    if let Some(preparation) = guest.preparation() {
        print_message(&format!("guest '{name}': {preparation}; once"));
    }
    let artefacts = artefact::prepare_all(&guest.recipes(), |_| ());
    let start = || {
        let failed = |why| BootFailure { error: CliError::failed(why), is_panic: false };
        let command = guest.boot_command(&artefacts).map_err(failed)?;
        relay(command, &Limits::default()).map_err(|BootFailure { error, is_panic }| {
            let error = error.with_line(|line| format!("guest '{name}': {line}"));
            BootFailure { error, is_panic }
        })
    };
    let status = boot(start, |panic| {
        print_message(&format!("{panic}; starting it again"));
        Ok(())
    })?;
    if is_measuring {
        print_message(&format!(
            "guest '{name}': files written inside, e.g. results, were discarded; 'tollgate run --guest {argument}' keeps samples"
        ));
    }
    Ok(status)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_that_measure_are_known() {
        let measures =
            |line: &str| measures(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for line in [
            "run",
            "run copy --rounds 1",
            "compare --run - nice=5",
            "copy 1",
            "bounds races",
            "guest plain -- copy 1",
            "guest nested -- guest plain -- run copy",
        ] {
            assert!(measures(line), "{line}");
        }
        for line in [
            "doctor",
            "list",
            "show",
            "compare a b",
            "no-such",
            "guest",
            "guest plain",
            "guest plain -- list",
            "guest nested -- guest plain -- doctor",
        ] {
            assert!(!measures(line), "{line}");
        }
    }
}
