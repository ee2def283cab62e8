//! Exports of fleets: OpenMetrics of the comparison, and the samples of all nodes in Parquet, partitioned by host.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lab::fleet::{self, Direction, Fleet, OutlierPoint};
use lab::journal::{self, Run, RunRecord};
use machine::file::Output;

use super::openmetrics::{factor_labels, head, in_braces};
use super::{ExportError, Format, SampleFilter, to_file};
use crate::bundle::digest;

/// Labels that are not factors.
const LABELS: [&str; 6] = ["experiment", "metric", "node", "cores", "setting", "direction"];

/// Returns the exposition of a fleet: the number of nodes, of judged values, and for each node that of the points at which
/// it differs, with the ratios and the settings that differ.
pub fn fleet_openmetrics(fleet: &Fleet) -> String {
    let mut text = String::new();
    let total = |name: &str, help: &str, number: usize| {
        format!("{}{name} {number}\n", head(name, "gauge", "", help))
    };
    text += &total("tollgate_fleet_nodes", "Number of nodes with a run", fleet.nodes.len());
    text += &total("tollgate_fleet_judged_values", "Number of judged values", fleet.judged);
    text += &total(
        "tollgate_fleet_unreadable_runs",
        "Number of runs that cannot be read",
        fleet.unreadable.len(),
    );
    text += &last_samples(fleet);
    text += &outlier_points(fleet);
    text += &ratios(fleet);
    text += &settings(fleet);
    text + "# EOF\n"
}

/// Returns the time of the last sample of each node: alert if it is too long ago.
fn last_samples(fleet: &Fleet) -> String {
    const NAME: &str = "tollgate_fleet_last_sample_timestamp_seconds";
    let mut text = head(NAME, "gauge", "seconds", "Time of the last sample of the node");
    for one in &fleet.last_samples {
        let labels = in_braces([("node".to_owned(), one.node.as_str())]);
        let _ = writeln!(text, "{NAME}{labels} {}", one.at);
    }
    text
}

/// Returns the number of points at which each judged node differs, by direction.
fn outlier_points(fleet: &Fleet) -> String {
    const NAME: &str = "tollgate_fleet_outlier_points";
    let mut text =
        head(NAME, "gauge", "", "Number of points at which the node differs from the others");
    let not_judged: BTreeSet<&String> = fleet.nodes_not_judged.iter().collect();
    let outliers: BTreeMap<&String, _> =
        fleet.outliers.iter().map(|one| (&one.node, one)).collect();
    for node in fleet.nodes.iter().filter(|node| !not_judged.contains(node)) {
        for direction in [Direction::Worse, Direction::Neither, Direction::Better] {
            let number = outliers.get(node).map_or(0, |outlier| outlier.count(direction));
            let labels = [("direction", direction.word()), ("node", node.as_str())];
            let labels = in_braces(labels.map(|(name, text)| (name.to_owned(), text)));
            let _ = writeln!(text, "{NAME}{labels} {number}");
        }
    }
    text
}

/// Returns the value of each outlier over that of the others, at the points at which it differs.
fn ratios(fleet: &Fleet) -> String {
    const NAME: &str = "tollgate_fleet_outlier_ratio";
    let mut text = head(
        NAME,
        "gauge",
        "ratio",
        "Median of the node over that of the others, where it differs",
    );
    for outlier in &fleet.outliers {
        for one in &outlier.points {
            let OutlierPoint { experiment, point, class, metric, ratio, .. } = one;
            let mut labels = BTreeMap::from([
                ("experiment".to_owned(), experiment.as_str()),
                ("metric".into(), metric.as_str()),
                ("node".into(), outlier.node.as_str()),
            ]);
            labels.extend(class.map(|class| ("cores".to_owned(), class.name())));
            factor_labels(&mut labels, point, &LABELS);
            let _ = writeln!(text, "{NAME}{} {ratio:?}", in_braces(labels));
        }
    }
    text
}

/// Returns the settings in which each outlier differs.
fn settings(fleet: &Fleet) -> String {
    const NAME: &str = "tollgate_fleet_outlier_setting_info";
    let mut text = head(NAME, "gauge", "", "Setting in which an outlier differs from the others");
    for outlier in &fleet.outliers {
        for one in &outlier.settings {
            let labels = [
                ("node", outlier.node.as_str()),
                ("others", &one.others),
                ("setting", &one.setting),
                ("value", &one.value),
            ];
            let labels = in_braces(labels.map(|(name, text)| (name.to_owned(), text)));
            let _ = writeln!(text, "{NAME}{labels} 1");
        }
    }
    text
}

/// Result of an export of a fleet.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// Hosts.
    pub hosts: BTreeSet<String>,
    /// Number of files.
    pub files: usize,
    /// Number of runs that are copies of others.
    pub copies: usize,
    /// Runs that cannot be read, one line each.
    pub unreadable: Vec<String>,
    /// Files of hosts that were there before and are of no run of this export, e.g. of an earlier one.
    pub others: Vec<PathBuf>,
}

/// Writes the selected samples of all runs below a folder to `OUT/host=NAME/RUN-ID.parquet`, one file per run and host. One
/// run at a time is in memory. Of copies of a run the longest is written.
///
/// # Errors
/// Returns an error if the folder cannot be read, has no sample that is selected, or if a file cannot be written.
pub fn parquet_by_host(
    folder: &Path,
    filter: SampleFilter<'_>,
    out: &Path,
) -> Result<Partitions, ExportError> {
    let file_error = |path: &Path| {
        let path = path.to_owned();
        move |why| ExportError::File { path, why }
    };
    let mut written = Partitions::default();
    let (mut lengths, mut files) = (HashMap::<String, usize>::new(), BTreeSet::new());
    for folder in fleet::runs(folder).map_err(file_error(folder))? {
        let run = match journal::open(&folder) {
            Ok(run) => run,
            Err(why) => {
                written.unreadable.push(why.to_string());
                continue;
            }
        };
        let id = id(&run.record);
        if let Some(length) = lengths.get(&id) {
            written.copies += 1;
            if *length >= run.samples.len() {
                continue;
            }
        }
        lengths.insert(id.clone(), run.samples.len());
        for host in hosts(&run, filter) {
            let folder = out.join(format!("host={}", escaped(&host)));
            std::fs::create_dir_all(&folder).map_err(file_error(&folder))?;
            let path = folder.join(format!("{}-{id}.parquet", escaped(&run.record.name)));
            let of_host = |sample: &lab::sample::Sample| filter(sample) && sample.host == host;
            let runs = std::slice::from_ref(&run);
            to_file(runs, &of_host, Format::Parquet, &path, Output::create)?;
            written.hosts.insert(host);
            files.insert(path);
        }
    }
    written.files = files.len();
    written.others = partitions(out).into_iter().filter(|file| !files.contains(file)).collect();
    if written.files == 0 { Err(ExportError::Nothing) } else { Ok(written) }
}

/// Returns the files of hosts in a folder, as readers of partitioned files find them.
fn partitions(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let is_host = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"host="))
    };
    let hosts = entries(folder).into_iter().filter(is_host);
    let mut files: Vec<PathBuf> = hosts.flat_map(|host| entries(&host)).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "parquet"));
    files.sort();
    files
}

/// Returns the hosts with a selected sample.
fn hosts(run: &Run, filter: SampleFilter<'_>) -> BTreeSet<String> {
    run.samples.iter().filter(|sample| filter(sample)).map(|sample| sample.host.clone()).collect()
}

/// Returns 16 hexadecimal digits that only copies of a run have in common.
fn id(record: &RunRecord) -> String {
    let first = record.sessions.first().map(|one| format!("{} {}", one.start, one.boot_id));
    let text = format!("{} {} {}", record.host, record.seed, first.unwrap_or_default());
    digest(text.as_bytes()).chars().take(16).collect()
}

/// Escapes a name for a path, as readers of partitioned files decode it.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for (at, byte) in name.bytes().enumerate() {
        let is_plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0);
        match is_plain {
            true => text.push(char::from(byte)),
            false => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_component_of_a_path() {
        for (name, expected) in [
            ("node-1.rack_2", "node-1.rack_2"),
            ("../x", "%2E.%2Fx"),
            ("..", "%2E."),
            ("a=b c", "a%3Db%20c"),
            ("é", "%C3%A9"),
        ] {
            assert_eq!(escaped(name), expected);
        }
    }
}
