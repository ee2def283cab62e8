//! Notes under a figure: where and how it was measured, and which points have no value.

use std::collections::BTreeMap;

use lab::journal::Run;
use lab::point::Level;
use lab::summary::{Row, Summary};

use super::select::Selection;
use crate::table::{noise_floor, rounds_of};
use lab::format::count;

/// Returns one line per direction in which values may differ from the true ones, because the search or the instrument
/// limited them.
pub(super) fn limit_notes(selection: &Selection<'_>) -> Vec<String> {
    let mut open: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((series, x), row) in &selection.rows {
        let Some(estimate) = &row.estimate else { continue };
        let Some(end) = estimate.interval.open_end() else { continue };
        open.entry(end.words()).or_default().push(selection.named(series.as_str(), x.as_str()));
    }
    let line = |(what, names): (&str, Vec<String>)| {
        format!("{what}, limited by the instrument or the search: {}", names.join(", "))
    };
    open.into_iter().map(line).collect()
}

/// Names without a value, grouped by reason.
#[derive(Default)]
pub(super) struct MissingValues(Vec<(String, Vec<String>)>);

impl MissingValues {
    /// Adds the points of a selection that have no value. A series without any value is named once,
    /// a level of x without any value in any series too; other points by series and level.
    pub(super) fn add(&mut self, selection: &Selection<'_>, metric: &str) {
        let rows = &selection.rows;
        for ((series, x), row) in rows.iter().filter(|(_, row)| row.estimate.is_none()) {
            let is_empty = |is_in: &dyn Fn(&(Level, Level)) -> bool| {
                rows.iter().all(|(key, row)| !is_in(key) || row.estimate.is_none())
            };
            let name = match series.as_str() {
                "" => selection.named("", x.as_str()),
                series if is_empty(&|key| key.0.as_str() == series) => selection.named(series, ""),
                _ if is_empty(&|key| key.1 == *x) => selection.named("", x.as_str()),
                series => selection.named(series, x.as_str()),
            };
            self.add_name(reason(row, metric), &name);
        }
    }

    /// Adds one name with its reason.
    pub(super) fn add_name(&mut self, reason: String, name: &str) {
        let at = self.0.iter().position(|(known, _)| *known == reason).unwrap_or_else(|| {
            self.0.push((reason, Vec::new()));
            self.0.len() - 1
        });
        let names = &mut self.0[at].1;
        if !names.iter().any(|known| known == name) {
            names.push(name.into());
        }
    }

    /// Returns one line per reason.
    pub(super) fn into_lines(self) -> impl Iterator<Item = String> {
        let text = |(reason, names): (String, Vec<String>)| {
            format!("no value: {} ({reason})", names.join(", "))
        };
        self.0.into_iter().map(text)
    }
}

fn reason(row: &Row, metric: &str) -> String {
    match (row.errors.iter().next(), row.void_rounds) {
        (Some((kind, fault)), _) => format!("{}: {}", kind.name(), fault.why),
        (None, 0) => format!("no {metric} in its samples"),
        (None, _) => "all rounds void".into(),
    }
}

/// Returns the number of rounds of a selection, e.g. `12 rounds` or `10 to 30 rounds`.
pub(super) fn rounds(selection: &Selection<'_>, summary: &Summary) -> String {
    let rounds = rounds_of(selection.rows.values().copied());
    match summary.other_environments.len() {
        0 => rounds,
        others => format!("{rounds}; {} not shown", count(others, "other environment")),
    }
}

/// Returns the host, or the guests in which the run was measured.
fn place(run: &Run) -> String {
    run.record.guests.as_ref().map_or_else(|| run.record.host.clone(), ToString::to_string)
}

/// Returns one line on the host and the method, and one with the fixed levels if there are any.
pub(super) fn provenance(run: &Run, summary: &Summary, selection: &Selection<'_>) -> Vec<String> {
    let environment = run.record.environments.get(&summary.environment);
    let cpu = environment.map(|e| e.cpu.brand.as_str()).filter(|brand| !brand.is_empty());
    let cpu = cpu.map(|brand| format!(", {brand}")).unwrap_or_default();
    let method = [
        format!("profile {}", run.record.profile.name()),
        rounds(selection, summary),
        noise_floor(&summary.floors),
    ];
    let fixed: Vec<_> =
        selection.fixed.levels().map(|(factor, level)| format!("{factor}={level}")).collect();
    let mut lines = vec![format!("{}{cpu}; {}", place(run), method.join("; "))];
    lines.extend((!fixed.is_empty()).then(|| fixed.join(", ")));
    lines
}
