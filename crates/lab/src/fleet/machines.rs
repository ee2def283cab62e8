//! Which runs of one host name are those of different machines: cloned virtual machines and containers have one name.
//!
//! A machine has one boot at a time. So if runs of two boots overlap in time, they are of different machines. If they follow
//! each other, they may be those of one machine that was restarted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::collect::StoredRun;
use crate::journal::Run;

/// The time in which samples were measured in one boot.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BootSpan {
    /// ID of the boot.
    pub(super) boot: String,
    /// Start of its first and its last sample, in seconds since 1970.
    pub(super) first: f64,
    pub(super) last: f64,
}

/// Returns the boots in which a run was measured.
pub(super) fn boots(run: &Run) -> Vec<BootSpan> {
    let mut spans: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for sample in &run.samples {
        let Some(environment) = run.record.environments.get(&sample.environment) else { continue };
        extend(&mut spans, &environment.boot_id, sample.at, sample.at);
    }
    let span =
        |(boot, (first, last)): (&str, (f64, f64))| BootSpan { boot: boot.into(), first, last };
    spans.into_iter().map(span).collect()
}

fn extend<'b>(spans: &mut BTreeMap<&'b str, (f64, f64)>, boot: &'b str, first: f64, last: f64) {
    let span = spans.entry(boot).or_insert((first, last));
    *span = (span.0.min(first), span.1.max(last));
}

/// Renames the nodes of runs with one host name and different machines: the name of the folder is added. Returns these host
/// names.
pub(super) fn separate(runs: &mut [StoredRun]) -> Vec<String> {
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        by_name.entry(run.node.clone()).or_default().push(index);
    }
    let mut shared = Vec::new();
    for (name, indices) in by_name {
        if !overlap(indices.iter().map(|index| &runs[*index])) {
            continue;
        }
        let folders: Vec<PathBuf> =
            indices.iter().map(|index| runs[*index].folder.clone()).collect();
        // The folder of a node, or of a run if several nodes share it.
        let mut of_parents: BTreeMap<Option<&Path>, Vec<&StoredRun>> = BTreeMap::new();
        for (folder, index) in folders.iter().zip(&indices) {
            of_parents.entry(folder.parent()).or_default().push(&runs[*index]);
        }
        let is_shared = of_parents.into_values().any(|runs| overlap(runs.into_iter()));
        let labels: Vec<&Path> = match is_shared {
            true => folders.iter().map(PathBuf::as_path).collect(),
            false => folders.iter().map(|it| it.parent().unwrap_or(it)).collect(),
        };
        let common = common_components(&labels);
        for (index, label) in indices.iter().zip(&labels) {
            let rest: PathBuf = label.components().skip(common).collect();
            runs[*index].node = format!("{name}/{}", rest.display());
        }
        shared.push(name);
    }
    shared
}

/// Returns whether runs of different boots overlap in time.
fn overlap<'r>(runs: impl Iterator<Item = &'r StoredRun>) -> bool {
    let mut spans: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for BootSpan { boot, first, last } in runs.flat_map(|run| &run.boots) {
        extend(&mut spans, boot, *first, *last);
    }
    let mut spans: Vec<(f64, f64)> = spans.into_values().collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    spans.windows(2).any(|pair| pair[1].0 < pair[0].1)
}

/// Returns the number of leading components that all paths share, less than those of the shortest.
fn common_components(paths: &[&Path]) -> usize {
    let shortest = paths.iter().map(|path| path.components().count()).min().unwrap_or_default();
    let differs = |at: &usize| {
        let of_all: BTreeSet<Option<Component<'_>>> =
            paths.iter().map(|path| path.components().nth(*at)).collect();
        of_all.len() > 1
    };
    (0..shortest).find(differs).unwrap_or_else(|| shortest.saturating_sub(1))
}
