//! `tollgate hosts`: other hosts over SSH, and their part in `run` and `doctor`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use hosts::{Config, Host, HostError, Installed, Program, SshHost};
use lab::host::{Hosts, RemoteHost};
use lab::option;
use lab::schema::JsonOutput;
use lab::table::{ColumnHeader, Emphasis, Page, TableCell};
use machine::capability::{Capability, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::arguments::{ConfigArgs, HostsCommand, MeasureArgs, RunHosts};
use crate::error::CliError;
use crate::output::{print, print_json, print_plain};
use crate::select::quoted;
use crate::suites::SUITES;

/// The maximum number of hosts that are checked at the same time.
const MAX_AT_A_TIME: usize = 8;
/// The time limit of `doctor` on a host.
const MAX_DOCTOR: Duration = Duration::from_secs(300);

/// Checks hosts, prints their variables, or removes what was installed there.
pub(crate) fn hosts(command: &HostsCommand) -> Result<u8, CliError> {
    match command {
        HostsCommand::Check { hosts, config, json } => check(&named(hosts, config)?, *json),
        HostsCommand::Env { hosts, config } => {
            print_plain(&env(&named(hosts, config)?)?).map(|()| 0)
        }
        HostsCommand::Clean { hosts, config } => clean(named(hosts, config)?),
    }
}

fn load(config: &ConfigArgs) -> Result<Config, CliError> {
    let config = Config::load(config.config.as_deref())?;
    config.check_options(|name, value| {
        let read = option::read_for_guest(SUITES, &[], &[format!("{name}={value}")]);
        read.map(drop).map_err(|why| why.to_string())
    })?;
    Ok(config)
}

/// Returns the named hosts, or all of the file.
fn named(names: &[String], config: &ConfigArgs) -> Result<Vec<Host>, CliError> {
    load(config)?.hosts(names).map_err(CliError::usage)
}

/// Reads this program, which is installed on hosts.
fn program() -> Result<Arc<Program>, CliError> {
    let program = Program::current();
    program.map(Arc::new).map_err(|why| CliError::failed(format!("read this program: {why}")))
}

/// JSON output of `tollgate hosts check`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct HostsOutput {
    hosts: Vec<HostOutput>,
}

impl JsonOutput for HostsOutput {
    const NAME: &'static str = "hosts";
    const WRITTEN_BY: &'static str = "tollgate hosts check --json";
    const VERSION: u64 = 1;
}

/// A host as it was found.
#[derive(Serialize, JsonSchema)]
struct HostOutput {
    /// Name on the command line.
    name: String,
    /// Name for `ssh`.
    ssh: String,
    /// Why it cannot be used; `null` if it can.
    error: Option<String>,
    /// System and architecture, e.g. `Linux x86_64`; `null` with an error.
    system: Option<String>,
    /// The program there; `null` with an error.
    program: Option<ProgramOutput>,
    /// Capabilities that it lacks.
    missing: Vec<Missing>,
}

/// The program on a host.
#[derive(Serialize, JsonSchema)]
struct ProgramOutput {
    /// Path there.
    path: String,
    /// Version that it states.
    version: String,
    /// Whether this command installed it.
    is_new: bool,
}

/// A capability that a host lacks.
#[derive(Serialize, JsonSchema)]
struct Missing {
    /// `machine`, or the suite that needs it.
    of: String,
    name: String,
    about: String,
    reason: String,
    remedy: String,
}

/// The part of `tollgate doctor --json` that is needed here.
#[derive(Deserialize)]
struct DoctorReport {
    groups: Vec<CapabilityGroup>,
}

#[derive(Deserialize)]
struct CapabilityGroup {
    of: String,
    capabilities: Vec<Capability>,
}

impl DoctorReport {
    fn missing(self) -> Vec<Missing> {
        let missing = |of: &str, one: Capability| match one.state {
            State::Present { .. } => None,
            State::Absent { reason, remedy } => {
                Some(Missing { of: of.into(), name: one.name, about: one.about, reason, remedy })
            }
        };
        let of_group = |CapabilityGroup { of, capabilities }: CapabilityGroup| {
            capabilities.into_iter().filter_map(|one| missing(&of, one)).collect::<Vec<_>>()
        };
        self.groups.into_iter().flat_map(of_group).collect()
    }
}

/// Connects to each host, installs the program and runs `doctor` there. Exits with 1 if a host cannot be used.
fn check(hosts: &[Host], is_json: bool) -> Result<u8, CliError> {
    let program = program()?;
    let checked = each(hosts, |host| check_one(host, &program));
    let has_failed = checked.iter().any(|host| host.error.is_some());
    match is_json {
        true => print_json(&HostsOutput { hosts: checked })?,
        false => print(&checked.iter().map(|host| text(host, Page::stdout())).collect::<String>())?,
    }
    Ok(has_failed.into())
}

/// Calls a function with each host, several at a time, and returns the results in their order. Connections end with the
/// thread that opens them.
fn each<T: Send>(hosts: &[Host], body: impl Fn(&Host) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(host) = hosts.get(index)
        {
            done.push((index, body(host)));
        }
        done
    };
    let mut results: Vec<(usize, T)> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..hosts.len().min(MAX_AT_A_TIME)).map(|_| scope.spawn(work)).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn check_one(host: &Host, program: &Arc<Program>) -> HostOutput {
    let checked = SshHost::new(host.clone(), Arc::clone(program)).and_then(|host| {
        let installed = host.prepare()?;
        Ok((installed, missing_on(&host)?))
    });
    let Host { name, ssh, .. } = host.clone();
    match checked {
        Ok((Installed { path, version, system, is_new }, missing)) => HostOutput {
            name,
            ssh,
            error: None,
            system: Some(system),
            program: Some(ProgramOutput { path, version, is_new }),
            missing,
        },
        Err(HostError { why, .. }) => HostOutput {
            name,
            ssh,
            error: Some(why),
            system: None,
            program: None,
            missing: Vec::new(),
        },
    }
}

/// Returns what `doctor` reports as missing on a host.
fn missing_on(host: &SshHost) -> Result<Vec<Missing>, HostError> {
    let script = host.script(&["doctor".into(), "--json".into()])?;
    let output = host.connection().output(&script, &[], MAX_DOCTOR)?;
    // A shell's start-up files may print lines before.
    let json = output.find('{').map_or("", |start| &output[start..]);
    let report: Result<DoctorReport, _> = serde_json::from_str(json);
    report.map(DoctorReport::missing).map_err(|why| HostError {
        host: host.name().to_owned(),
        why: format!("'doctor' there printed another report ({why}); install this version"),
        is_temporary: false,
    })
}

/// Renders a host with what it lacks.
fn text(host: &HostOutput, page: Page) -> String {
    let (name, error) = (&host.name, host.error.as_deref());
    let Some(program) = &host.program else {
        let line = format!("{name}: {}", error.unwrap_or_default());
        return page.paragraph(&line, 2, Emphasis::Bad);
    };
    let system = host.system.as_deref().unwrap_or_default();
    let installed = if program.is_new { ", installed now" } else { "" };
    let line = format!("{name}: ready, {system}, {}{installed}", program.version);
    let title = page.paragraph(&line, 2, Emphasis::Strong);
    if host.missing.is_empty() {
        return title;
    }
    let row = |missing: &Missing| {
        let Missing { of, name, about, reason, remedy } = missing;
        let of = if of == "machine" { String::new() } else { format!("{of}: ") };
        vec![TableCell::from(format!("{of}{name}")), format!("{about}: {reason}; {remedy}").into()]
    };
    let headers = [ColumnHeader::left("missing"), ColumnHeader::left("why; how to get it")];
    title + &page.table(&headers, host.missing.iter().map(row).collect()) + "\n"
}

/// Returns assignments for a shell: the hosts, and for each its name and command for `ssh` and its CPUs.
fn env(hosts: &[Host]) -> Result<String, CliError> {
    let names: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
    let mut text = export("TOLLGATE_HOSTS", &names.join(" "));
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for host in hosts {
        let suffix = variable(&host.name);
        if let Some(other) = owners.insert(suffix.clone(), &host.name) {
            let name = &host.name;
            return Err(CliError::usage(format!(
                "hosts '{other}' and '{name}' would have the same variables, TOLLGATE_HOST_{suffix}; rename one"
            )));
        }
        let config = host.ssh_config.as_deref().map(absolute).transpose()?;
        let config = config.map(|file| format!("-F {} ", quoted(&file))).unwrap_or_default();
        text += &export(&format!("TOLLGATE_HOST_{suffix}"), &host.ssh);
        text += &export(&format!("TOLLGATE_SSH_{suffix}"), &format!("ssh {config}{}", host.ssh));
        if let Some(cpus) = &host.cpu_list {
            text += &export(&format!("TOLLGATE_CPUS_{suffix}"), cpus);
        }
    }
    Ok(text)
}

fn export(name: &str, value: &str) -> String {
    format!("export {name}={}\n", quoted(value))
}

/// Returns the part of a variable's name for a host: its letters and digits in upper case, `_` for others.
fn variable(host: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    host.chars().map(letter).collect()
}

fn absolute(path: &Path) -> Result<String, CliError> {
    let path = std::path::absolute(path).map_err(CliError::failed)?;
    Ok(path.to_string_lossy().into_owned())
}

/// Removes all programs that were installed on hosts. Continues after a host that cannot be reached.
fn clean(hosts: Vec<Host>) -> Result<u8, CliError> {
    let mut has_failed = false;
    for host in hosts {
        let name = host.name.clone();
        let removed =
            hosts::Connection::new(host).and_then(|connection| Program::remove_all(&connection));
        print_plain(&match removed {
            Ok(count) => format!("{name}: removed {}", lab::format::count(count, "program")),
            Err(HostError { why, .. }) => {
                has_failed = true;
                format!("{name}: {why}")
            }
        })?;
    }
    Ok(has_failed.into())
}

/// Runs `doctor` on a host, with the output of this process; returns its exit status.
pub(super) fn doctor(name: &str, config: &ConfigArgs, is_json: bool) -> Result<u8, CliError> {
    let host = load(config)?.host(name).map_err(CliError::usage)?;
    let host = SshHost::new(host, program()?).map_err(CliError::failed)?;
    let arguments = ["doctor", "--json"].map(str::to_owned);
    let arguments = if is_json { &arguments[..] } else { &arguments[..1] };
    let script = host.script(arguments).map_err(CliError::failed)?;
    let output = host.connection().output(&script, &[], MAX_DOCTOR).map_err(CliError::failed)?;
    print_plain(&output)?;
    Ok(0)
}

/// Returns the hosts of a run; `None` if it is measured on this host or in a guest. Sets the results folder and the options
/// of the run to those of its hosts, unless the user sets others.
pub(super) fn of_run(
    hosts: &RunHosts,
    measure: &mut MeasureArgs,
    nice: Option<i32>,
) -> Result<Option<Hosts>, CliError> {
    if hosts.hosts.is_empty() {
        return Ok(None);
    }
    // A path of this machine says nothing about a file there.
    if measure.allow.iter().any(|feature| feature == "code") {
        let why =
            "--allow code: its files are on this machine, not on the host; run tollgate there";
        return Err(CliError::usage(why));
    }
    let config = load(&hosts.config)?;
    let (roles, names) = roles_and_names(&hosts.hosts)?;
    let declared = names.iter().map(|name| config.host(name)).collect::<Result<Vec<_>, _>>();
    let declared = declared.map_err(CliError::usage)?;
    if measure.results.is_none() {
        measure.results = results_of(&declared)?;
    }
    add_options(&mut measure.set, &declared)?;
    let program = program()?;
    // Roles on one host share its connection.
    let mut connected: BTreeMap<String, Arc<dyn RemoteHost>> = BTreeMap::new();
    let mut hosts = Vec::new();
    for host in declared {
        let name = host.name.clone();
        let host = match connected.get(&name) {
            Some(known) => Arc::clone(known),
            None => Arc::new(SshHost::new(host, Arc::clone(&program)).map_err(CliError::failed)?),
        };
        connected.insert(name, Arc::clone(&host));
        hosts.push(host);
    }
    Ok(Some(Hosts { hosts, roles, nice: nice.unwrap_or_default() }))
}

/// Returns the results folder that hosts declare; `None` without one.
fn results_of(hosts: &[Host]) -> Result<Option<PathBuf>, CliError> {
    let mut declared = hosts.iter().filter_map(|host| Some((host, host.results.as_ref()?)));
    let Some((first, results)) = declared.next() else { return Ok(None) };
    if let Some((other, folder)) = declared.find(|(_, folder)| *folder != results) {
        return Err(CliError::usage(format!(
            "the results folder is {} of host '{}' and {} of '{}'; choose one with --results",
            results.display(),
            first.name,
            folder.display(),
            other.name
        )));
    }
    Ok(Some(results.clone()))
}

/// Splits `ROLE=HOST` words; one word without a role is a host for all roles.
fn roles_and_names(words: &[String]) -> Result<(Vec<String>, Vec<String>), CliError> {
    if let [name] = words
        && !name.contains('=')
    {
        return Ok((Vec::new(), vec![name.clone()]));
    }
    let mut roles = Vec::new();
    let mut names = Vec::new();
    for word in words {
        let Some((role, name)) = word.split_once('=') else {
            return Err(CliError::usage(format!(
                "--host {word}: with several hosts each needs a role, e.g. dut={word}"
            )));
        };
        if role.is_empty() || roles.iter().any(|known| known == role) {
            return Err(CliError::usage(format!(
                "--host {word}: name each role once, as ROLE=HOST"
            )));
        }
        roles.push(role.to_owned());
        names.push(name.to_owned());
    }
    Ok((roles, names))
}

/// Adds the options of hosts that the user does not set.
fn add_options(set: &mut Vec<String>, hosts: &[Host]) -> Result<(), CliError> {
    let mut added: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for host in hosts {
        for (name, value) in &host.set {
            let is_set =
                set.iter().any(|word| word.split_once('=').is_some_and(|(known, _)| known == name));
            if is_set {
                continue;
            }
            let before = added.insert(name, (value, &host.name));
            if let Some((other, owner)) = before.filter(|(other, _)| other != value) {
                return Err(CliError::usage(format!(
                    "option '{name}' is {other} on host '{owner}' and {value} on '{}'; set one with --set",
                    host.name
                )));
            }
        }
    }
    let words: Vec<_> = added.iter().map(|(name, (value, _))| format!("{name}={value}")).collect();
    set.extend(words);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Config::default().host(name).unwrap()
    }

    #[test]
    fn variables_are_quoted_and_distinct() {
        let with = |host: Host| Host {
            ssh_config: Some("/my folder/config".into()),
            cpu_list: Some("0-3".into()),
            ..host
        };
        let text = env(&[with(host("node-1.rack")), host("b")]).unwrap();
        let expected = "export TOLLGATE_HOSTS='node-1.rack b'\n\
                        export TOLLGATE_HOST_NODE_1_RACK=node-1.rack\n\
                        export TOLLGATE_SSH_NODE_1_RACK=";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("export TOLLGATE_CPUS_NODE_1_RACK=0-3\n"), "{text}");
        let script = format!("{text} printf '%s\\n' \"$TOLLGATE_SSH_NODE_1_RACK\"");
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let words = shlex::split(&String::from_utf8(output.stdout).unwrap()).unwrap();
        assert_eq!(words, ["ssh", "-F", "/my folder/config", "node-1.rack"]);
        let why = env(&[host("a-b"), host("a.b")]).unwrap_err().to_string();
        assert!(why.contains("'a-b' and 'a.b' would have the same variables"), "{why}");
    }

    #[test]
    fn hosts_have_one_results_folder() {
        let with = |name: &str, results: Option<&str>| Host {
            results: results.map(PathBuf::from),
            ..host(name)
        };
        let of = |hosts: &[Host]| results_of(hosts).map_err(|why| why.to_string());
        assert_eq!(of(&[with("a", None), with("b", None)]), Ok(None));
        assert_eq!(of(&[with("a", None), with("b", Some("r"))]), Ok(Some("r".into())));
        assert_eq!(of(&[with("a", Some("r")), with("b", Some("r"))]), Ok(Some("r".into())));
        let why = of(&[with("a", Some("r")), with("b", Some("s"))]).unwrap_err();
        assert_eq!(
            why,
            "the results folder is r of host 'a' and s of 'b'; choose one with --results"
        );
    }

    #[test]
    fn hosts_are_checked_at_the_same_time_and_listed_in_order() {
        let hosts: Vec<_> = (0..20).map(|index| host(&format!("h{index}"))).collect();
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let names = each(&hosts, |host| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            running.fetch_sub(1, Ordering::SeqCst);
            host.name.clone()
        });
        assert!(names.iter().eq(hosts.iter().map(|host| &host.name)), "{names:?}");
        let most = most.into_inner();
        assert!((2..=MAX_AT_A_TIME).contains(&most), "{most}");
    }

    #[test]
    fn several_hosts_need_roles() {
        let split = |words: &[&str]| {
            roles_and_names(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
                .map_err(|why| why.to_string())
        };
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(split(&["a"]), Ok((vec![], words(&["a"]))));
        assert_eq!(
            split(&["dut=a", "generator=b"]),
            Ok((words(&["dut", "generator"]), words(&["a", "b"])))
        );
        assert!(split(&["a", "b"]).unwrap_err().contains("each needs a role"));
        assert!(split(&["dut=a", "dut=b"]).unwrap_err().contains("name each role once"));
    }

    #[test]
    fn options_of_hosts_do_not_replace_those_of_the_user() {
        let with = |name: &str, value: &str| Host {
            set: [("x".into(), value.into())].into(),
            ..host(name)
        };
        let mut set = vec!["x=mine".to_owned()];
        add_options(&mut set, &[with("a", "1"), with("b", "2")]).unwrap();
        assert_eq!(set, ["x=mine"]);
        let mut set = Vec::new();
        add_options(&mut set, &[with("a", "1"), with("b", "1")]).unwrap();
        assert_eq!(set, ["x=1"]);
        let why = add_options(&mut Vec::new(), &[with("a", "1"), with("b", "2")]).unwrap_err();
        assert!(why.to_string().contains("'x' is 1 on host 'a' and 2 on 'b'"), "{why}");
    }
}
