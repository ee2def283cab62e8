//! The samples of a run by form, and the text of their cells.

use std::collections::BTreeMap;

use lab::journal::Run;
use lab::sample::Sample;
use lab::statistics::median;

use crate::cli::void_reason;

/// Samples of a run by form.
pub(super) struct Samples<'a> {
    by_level: BTreeMap<&'a str, Vec<&'a Sample>>,
}

impl<'a> Samples<'a> {
    pub(super) fn new(run: &'a Run, levels: &'a [String]) -> Self {
        let mut by_level: BTreeMap<&str, Vec<&Sample>> =
            levels.iter().map(|level| (level.as_str(), Vec::new())).collect();
        for sample in &run.samples {
            let form = sample.point.text("form");
            if let Some(samples) = by_level.get_mut(form) {
                samples.push(sample);
            }
        }
        Self { by_level }
    }

    fn of(&self, level: &str) -> &[&'a Sample] {
        self.by_level.get(level).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns whether any sample contains this metric.
    pub(super) fn have(&self, metric: &str) -> bool {
        self.by_level.values().flatten().any(|sample| sample.values.contains_key(metric))
    }

    /// Returns the median over the valid rounds.
    pub(super) fn median(&self, level: &str, metric: &str) -> Option<f64> {
        let valid = self.of(level).iter().filter(|sample| sample.is_valid());
        let values: Vec<f64> = valid.filter_map(|it| it.values.get(metric).copied()).collect();
        median(&values)
    }

    /// Returns the dependency between the copies of a chain.
    pub(super) fn chain(&self, level: &str) -> String {
        let chain = self.of(level).iter().find_map(|it| it.covariates.get("chain"));
        chain.map(ToString::to_string).unwrap_or_default()
    }

    /// Returns the reason why a form has no values.
    pub(super) fn failure(&self, level: &str) -> String {
        let samples = self.of(level);
        let failure = samples.iter().find_map(|sample| sample.error.as_ref());
        let void = || Some(void_reason(samples.iter().find_map(|sample| sample.void.as_ref())?));
        let why = failure.map(ToString::to_string).or_else(void);
        why.unwrap_or_else(|| "no valid sample".into())
    }
}

/// Returns the start of a row: the form's name padded to `columns`, on a separate line if it is too long.
pub(super) fn name_cell(level: &str, columns: usize) -> String {
    let name = format!("  {level}");
    if name.chars().count() < columns {
        format!("{name:<columns$}")
    } else {
        format!("{name}\n{:columns$}", "")
    }
}

/// Formats a value for a narrow column.
pub(super) fn value_text(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 1000.0 => format!("{value:.0}"),
        Some(value) if value >= 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_fit_their_columns() {
        assert_eq!(
            [0.25, 99.99, 123.45, 12976.42].map(|it| value_text(Some(it))),
            ["0.25", "99.99", "123.5", "12976"]
        );
        assert_eq!(value_text(None), "-");
        assert_eq!(name_cell("nop", 7), "  nop  ");
        assert_eq!(name_cell("fwait", 7), "  fwait\n       ");
    }
}
