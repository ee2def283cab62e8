//! Columns of CSV and Parquet. Each factor, metric, covariate and histogram of any sample has one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use lab::guest::GuestsRecord;
use lab::point::Level;
use lab::sample::{Clock, Sample};

/// One row of an export.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    /// Name of the run.
    pub(super) run: &'a str,
    /// The guests in which it was measured; `None` for a host.
    pub(super) guests: Option<&'a GuestsRecord>,
    pub(super) sample: &'a Sample,
}

/// Type of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnType {
    Text,
    Float,
    Integer,
    Boolean,
}

/// Value of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell<'a> {
    Text(Cow<'a, str>),
    Float(f64),
    Integer(u64),
    Boolean(bool),
}

impl std::fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            // The shortest text that parses to the same number.
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Boolean(value) => write!(f, "{value}"),
        }
    }
}

type Read = Box<dyn for<'a> Fn(&Row<'a>) -> Option<Cell<'a>>>;

/// Column with a function that reads its value from a row.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) column_type: ColumnType,
    read: Read,
}

impl Column {
    fn new(
        name: impl Into<String>,
        column_type: ColumnType,
        read: impl for<'a> Fn(&Row<'a>) -> Option<Cell<'a>> + 'static,
    ) -> Self {
        Self { name: name.into(), column_type, read: Box::new(read) }
    }

    /// Returns the value of a row; `None` if it has none.
    pub(super) fn cell<'a>(&self, row: &Row<'a>) -> Option<Cell<'a>> {
        (self.read)(row)
    }
}

/// Returns the columns of the given rows.
pub(super) fn columns<'a>(rows: impl Iterator<Item = Row<'a>>) -> Vec<Column> {
    let found = Names::in_rows(rows);
    let mut columns = vec![
        text("run", |row| Some(row.run)),
        text("experiment", |row| Some(&row.sample.experiment)),
    ];
    columns.extend(found.factors.into_iter().flat_map(|(name, levels)| factor(name, levels)));
    columns.extend(position());
    columns.extend(guests());
    columns.extend(found.metrics.into_iter().map(metric));
    columns.extend(outcome());
    columns.extend(found.covariates.into_iter().map(covariate));
    columns.extend(noise());
    columns.extend(clock());
    columns.extend(found.histograms.into_iter().map(histogram));
    columns.extend(structures(found.parts, found.trials));
    distinct(columns)
}

/// Names in any of the rows, which other rows may lack.
#[derive(Default)]
struct Names {
    factors: BTreeMap<String, BTreeSet<Level>>,
    metrics: BTreeSet<String>,
    covariates: BTreeSet<String>,
    histograms: BTreeSet<String>,
    parts: bool,
    trials: bool,
}

impl Names {
    fn in_rows<'a>(rows: impl Iterator<Item = Row<'a>>) -> Self {
        let mut found = Self::default();
        // A name is copied only once: there are many rows.
        let note = |set: &mut BTreeSet<String>, name: &String| {
            if !set.contains(name) {
                set.insert(name.clone());
            }
        };
        for Row { sample, .. } in rows {
            for (name, level) in sample.point.levels() {
                let levels = found.factors.entry(name.to_owned()).or_default();
                if !levels.contains(level) {
                    levels.insert(level.clone());
                }
            }
            sample.values.keys().for_each(|name| note(&mut found.metrics, name));
            sample.covariates.keys().for_each(|name| note(&mut found.covariates, name));
            sample.histograms.keys().for_each(|name| note(&mut found.histograms, name));
            found.parts |= !sample.parts.is_empty();
            found.trials |= !sample.trials.is_empty();
        }
        found
    }
}

fn text(name: &str, read: impl for<'a> Fn(&Row<'a>) -> Option<&'a str> + 'static) -> Column {
    Column::new(name, ColumnType::Text, move |row| Some(Cell::Text(Cow::Borrowed(read(row)?))))
}

fn integer(name: &str, read: impl Fn(&Row<'_>) -> Option<u64> + 'static) -> Column {
    Column::new(name, ColumnType::Integer, move |row| Some(Cell::Integer(read(row)?)))
}

fn float(name: &str, read: impl Fn(&Row<'_>) -> Option<f64> + 'static) -> Column {
    Column::new(name, ColumnType::Float, move |row| Some(Cell::Float(read(row)?)))
}

/// Returns one column of integers if all levels are counts, else a column of texts and, for lengths,
/// one with their bytes.
fn factor(name: String, levels: BTreeSet<Level>) -> Vec<Column> {
    if levels.iter().all(|level| level.count().is_some()) {
        let key = name.clone();
        return vec![integer(&name, move |row| row.sample.point.get(&key)?.count())];
    }
    let are_lengths = levels.iter().any(|l| l.count().is_none() && l.number().is_some());
    let key = name.clone();
    let levels = text(&name, move |row| row.sample.point.get(&key).map(Level::as_str));
    let bytes = are_lengths
        .then(|| float(&format!("{name}.bytes"), move |row| row.sample.point.get(&name)?.number()));
    std::iter::once(levels).chain(bytes).collect()
}

fn position() -> Vec<Column> {
    vec![
        Column::new("twin", ColumnType::Boolean, |row| Some(Cell::Boolean(row.sample.twin))),
        integer("round", |row| Some(row.sample.round.into())),
        integer("session", |row| Some(row.sample.session.into())),
        integer("position", |row| Some(row.sample.position.into())),
        text("host", |row| Some(&row.sample.host)),
        text("environment", |row| Some(&row.sample.environment)),
        integer("attempt", |row| Some(row.sample.attempt.into())),
        float("at", |row| Some(row.sample.at)),
        float("seconds", |row| Some(row.sample.seconds)),
    ]
}

/// Returns the columns of the guest in which a sample was measured; empty cells for samples of a host.
fn guests() -> Vec<Column> {
    vec![
        text("guest", |row| Some(&row.guests?.name)),
        text("guest.accelerator", |row| Some(&row.guests?.accelerator)),
        text("guest.clock", |row| Some(row.guests?.clock.name())),
    ]
}

fn metric(name: String) -> Column {
    let key = name.clone();
    float(&name, move |row| row.sample.values.get(&key).copied())
}

fn outcome() -> Vec<Column> {
    vec![
        text("void", |row| row.sample.void.as_deref()),
        text("error", |row| Some(row.sample.error.as_ref()?.kind.name())),
        text("error.why", |row| Some(&row.sample.error.as_ref()?.why)),
        text("error.remedy", |row| row.sample.error.as_ref()?.remedy.as_deref()),
    ]
}

fn covariate(name: String) -> Column {
    text(&format!("covariate.{name}"), move |row| {
        row.sample.covariates.get(&name).map(Level::as_str)
    })
}

fn noise() -> Vec<Column> {
    vec![
        integer("noise.involuntary_switches", |row| Some(row.sample.noise?.involuntary_switches)),
        integer("noise.voluntary_switches", |row| Some(row.sample.noise?.voluntary_switches)),
        integer("noise.migrations", |row| row.sample.noise?.migrations),
        integer("noise.steal_ns", |row| row.sample.noise?.steal_ns),
        integer("noise.waited_ns", |row| row.sample.noise?.waited_ns),
        integer("noise.minor_faults", |row| Some(row.sample.noise?.minor_faults)),
        integer("noise.major_faults", |row| Some(row.sample.noise?.major_faults)),
    ]
}

fn clock() -> Vec<Column> {
    let hertz = |name, read: fn(Clock) -> f64| float(name, move |row| row.sample.clock.map(read));
    let ticks = |name, read: fn(Clock) -> u64| integer(name, move |row| row.sample.clock.map(read));
    vec![
        hertz("clock.tsc_hertz", |clock| clock.tsc_hertz),
        ticks("clock.tsc_step", |clock| clock.tsc_step),
        ticks("clock.tsc_overhead", |clock| clock.tsc_overhead),
        hertz("clock.core_before", |clock| clock.core_before),
        hertz("clock.core_after", |clock| clock.core_after),
        float("clock.second_before", |row| row.sample.clock?.second_before),
        float("clock.second_after", |row| row.sample.clock?.second_after),
        float("clock.issue_before", |row| row.sample.clock?.issue_before),
        float("clock.issue_after", |row| row.sample.clock?.issue_after),
    ]
}

fn histogram(name: String) -> Column {
    text(&format!("histogram.{name}"), move |row| {
        row.sample.histograms.get(&name).map(String::as_str)
    })
}

/// Returns the columns of nested values, which are JSON texts.
fn structures(has_parts: bool, has_trials: bool) -> impl Iterator<Item = Column> {
    let column = |name: &str, json: fn(&Sample) -> Option<serde_json::Result<String>>| {
        Column::new(name, ColumnType::Text, move |row| {
            Some(Cell::Text(json(row.sample)?.ok()?.into()))
        })
    };
    let parts = column("parts", |sample| {
        (!sample.parts.is_empty()).then(|| serde_json::to_string(&sample.parts))
    });
    let trials = column("trials", |sample| {
        (!sample.trials.is_empty()).then(|| serde_json::to_string(&sample.trials))
    });
    has_parts.then_some(parts).into_iter().chain(has_trials.then_some(trials))
}

/// Numbers the later of two columns of the same name, e.g. `round.2`.
fn distinct(mut columns: Vec<Column>) -> Vec<Column> {
    let mut seen = BTreeSet::new();
    for column in &mut columns {
        let name = column.name.clone();
        for number in 2.. {
            if seen.insert(column.name.clone()) {
                break;
            }
            column.name = format!("{name}.{number}");
        }
    }
    columns
}
