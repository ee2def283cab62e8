//! `tollgate fleet`: the nodes that differ from the others.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lab::fleet::{self, FleetError, Reading};
use lab::quantity;
use report::table::{self, Page};

use crate::arguments::Fleet;
use crate::error::CliError;
use crate::output::{print, print_json, print_message, print_plain};
use crate::select;

/// Maximum time of a check: scripts of node health have limits of a minute.
const CHECK_TIME: Duration = Duration::from_secs(30);

/// Exit status of a check without a verdict.
const NOT_JUDGED: u8 = 3;

/// Prints the comparison of all nodes, or one line about it.
pub(crate) fn fleet(args: &Fleet) -> Result<u8, CliError> {
    let within = args.within.or_else(|| args.check.then_some(CHECK_TIME));
    let fleet = read(&args.folder, &args.names, within, !args.check);
    if !args.check {
        return print_fleet(args, &fleet?);
    }
    // The status 1 of a check means that a node is worse.
    check(args, &fleet.map_err(CliError::with_status_2)?).map_err(CliError::with_status_2)
}

/// Reads and compares the nodes below a folder. Prints warnings if `warns`.
pub(super) fn read(
    folder: &Path,
    names: &[String],
    within: Option<Duration>,
    warns: bool,
) -> Result<fleet::Fleet, CliError> {
    let selects = |id: &str| select::is_selected(names, id);
    let reading = Reading { within, selects: Some(&selects) };
    let runs = fleet::read(folder, reading).map_err(error)?;
    for name in runs.shared_names.iter().filter(|_| warns) {
        print_message(&format!(
            "warning: several machines are named '{name}'; their folders are added to the name"
        ));
    }
    let fleet = runs.compare().map_err(error)?;
    if let Some(name) = names.iter().find(|name| !is_measured(&fleet, name)) {
        let folder = folder.display();
        let line =
            format!("{folder}: no values of '{name}'; 'tollgate list' lists the experiments");
        return Err(CliError::usage(line));
    }
    Ok(fleet)
}

/// Returns whether a node measured what a name selects.
fn is_measured(fleet: &fleet::Fleet, name: &str) -> bool {
    let name = [name.to_owned()];
    fleet.experiments.iter().any(|one| select::is_selected(&name, &one.experiment))
}

fn error(error: FleetError) -> CliError {
    match error {
        FleetError::Folder { .. } => CliError::usage(error),
        FleetError::NoRun(_)
        | FleetError::Unreadable { .. }
        | FleetError::Time { .. }
        | FleetError::Thread(_) => CliError::failed(error),
    }
}

fn print_fleet(args: &Fleet, fleet: &fleet::Fleet) -> Result<u8, CliError> {
    for line in &fleet.unreadable {
        print_message(&format!("warning: {line}"));
    }
    match args.json {
        true => print_json(fleet)?,
        false => print(&table::fleet(fleet, Page::stdout()))?,
    }
    Ok(0)
}

/// Prints one line, and returns the exit status.
fn check(args: &Fleet, fleet: &fleet::Fleet) -> Result<u8, CliError> {
    let node = args.node.as_deref().map(|node| find(args, fleet, node)).transpose()?;
    if let Some(line) = args.max_age.and_then(|max| too_old(fleet, node, max)) {
        print_plain(&lab::terminal::one_line(&line))?;
        return Ok(NOT_JUDGED);
    }
    print_plain(&lab::terminal::one_line(&table::fleet_line(fleet, node)))?;
    let is_judged = match node {
        Some(node) => !fleet.nodes_not_judged.iter().any(|one| one == node),
        None => fleet.judged > 0,
    };
    Ok(match is_judged {
        _ if table::is_worse(fleet, node) => 1,
        false => NOT_JUDGED,
        true => 0,
    })
}

/// Returns that the last run of a node, or of all nodes, is older than `max`; `None` if it is not.
fn too_old(fleet: &fleet::Fleet, node: Option<&str>, max: Duration) -> Option<String> {
    let asked = fleet.last_samples.iter().filter(|one| node.is_none_or(|node| one.node == node));
    let last = asked.max_by(|a, b| a.at.total_cmp(&b.at))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let age = now.saturating_sub(Duration::try_from_secs_f64(last.at).ok()?);
    let name = &last.node;
    (age > max).then(|| {
        format!("not judged: the last run of {name} is {} old", quantity::format_duration(age))
    })
}

/// Returns the name in the fleet of the node that the user means: a host name with or without its domain, or the name of one of
/// several machines without its folder.
fn find<'f>(args: &Fleet, fleet: &'f fleet::Fleet, node: &str) -> Result<&'f str, CliError> {
    if let Some(exact) = fleet.nodes.iter().find(|one| *one == node) {
        return Ok(exact);
    }
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let is_meant = |one: &str| {
        let host = one.split('/').next().unwrap_or_default();
        // One of two has a domain: two different domains are two nodes.
        host == node || (host.contains('.') != node.contains('.') && short(host) == short(node))
    };
    let meant: Vec<&str> =
        fleet.nodes.iter().map(String::as_str).filter(|one| is_meant(one)).collect();
    let folder = args.folder.display();
    Err(CliError::failed(match meant.as_slice() {
        [one] => return Ok(one),
        [] => format!("{folder}: no run of node '{node}'; measure on it first"),
        [first, second, ..] => format!(
            "{folder}: '{node}' names {} nodes, e.g. {first} and {second}; use --node {first}",
            meant.len()
        ),
    }))
}
