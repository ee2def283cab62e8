//! Published tables: rows of values, each of which is a claim.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::super::expect::Share;
use super::{Declared, DeclaredValue};
use crate::claim::{CarriesOver, Claim};
use crate::data::{DataError, SourceLocation};
use crate::experiment::Profile;
use crate::point::Filter;

/// A published table as declared in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeclaredTable {
    source: String,
    experiment: String,
    #[serde(default, rename = "where")]
    filter: Filter,
    prefer: Option<Filter>,
    /// Hardware on which it was measured.
    on: Option<String>,
    carries_over: Option<CarriesOver>,
    /// Profile required of the run.
    profile: Option<Profile>,
    /// Metric to column.
    columns: BTreeMap<String, DeclaredColumn>,
    rows: Vec<Spanned<DeclaredRow>>,
}

/// A column: the values of one metric.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredColumn {
    /// The statement of a value, in which `{}` is the value.
    says: String,
    unit: String,
    tolerance: Option<Share>,
    /// Where the values come from, if the source does not state them; see [`Claim::origin`].
    origin: Option<String>,
}

/// A row: the values of some points.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredRow {
    id: String,
    says: String,
    #[serde(default, rename = "where")]
    filter: Filter,
    /// Number of physical cores required.
    cores: Option<usize>,
    /// Metric to value.
    values: BTreeMap<String, f64>,
    /// Metric to where its value comes from, if that is not as in the other rows.
    #[serde(default)]
    origin: BTreeMap<String, String>,
}

impl DeclaredTable {
    /// Returns a claim for each value. Its ID is that of the row and the metric: `bndmk-port-0`.
    /// `location` returns the location of a position in the file.
    ///
    /// # Errors
    /// Returns an error for a value without a column, and if the keys do not fit together.
    pub(crate) fn into_claims(
        self,
        location: impl Fn(usize) -> SourceLocation,
    ) -> Result<Vec<Claim>, DataError> {
        let mut claims = Vec::new();
        for row in &self.rows {
            let location = location(row.span().start);
            let row = row.get_ref();
            if let Some(metric) = row.origin.keys().find(|metric| !row.values.contains_key(*metric))
            {
                let id = &row.id;
                return Err(location.error(format!(
                    "row '{id}': 'origin' of '{metric}', which has no value; remove it"
                )));
            }
            for (metric, value) in &row.values {
                let column = self.columns.get(metric).ok_or_else(|| {
                    let known: Vec<_> = self.columns.keys().map(String::as_str).collect();
                    let known = known.join(", ");
                    let id = &row.id;
                    location
                        .error(format!("row '{id}': no column '{metric}'; expected one of {known}"))
                })?;
                claims.push(self.claim(row, metric, *value, column).into_claim(location.clone())?);
            }
        }
        Ok(claims)
    }

    fn claim(
        &self,
        row: &DeclaredRow,
        metric: &str,
        value: f64,
        column: &DeclaredColumn,
    ) -> Declared {
        let DeclaredColumn { says, unit, tolerance, origin } = column.clone();
        Declared {
            id: format!("{}-{}", row.id, metric.replace('_', "-")),
            says: format!("{}: {}", row.says, says.replace("{}", &value.to_string())),
            source: self.source.clone(),
            origin: row.origin.get(metric).cloned().or(origin),
            experiment: self.experiment.clone(),
            filter: self.filter.with(&row.filter),
            prefer: self.prefer.clone(),
            metric: Some(metric.into()),
            published: Some(DeclaredValue { value, unit, tolerance, on: self.on.clone() }),
            carries_over: self.carries_over.clone(),
            emulated: false,
            requires: None,
            cores: row.cores,
            profile: self.profile,
            class: None,
            rounds: None,
            unmeasurable: None,
            one_sided: None,
            expect: None,
        }
    }
}
