//! Columns: the same for CSV and Parquet. What varies between runs (factors, metrics, covariates,
//! histograms) has a column each where any sample has it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use lab::point::Level;
use lab::sample::Clock;

use super::cell::{Cell, Kind, Row};

type Read = Box<dyn for<'a> Fn(&Row<'a>) -> Option<Cell<'a>>>;

/// A column: its name, what it holds, and how it is read from a row.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    read: Read,
}

impl Column {
    fn new(
        name: impl Into<String>,
        kind: Kind,
        read: impl for<'a> Fn(&Row<'a>) -> Option<Cell<'a>> + 'static,
    ) -> Self {
        Self { name: name.into(), kind, read: Box::new(read) }
    }

    /// The row's value, or nothing.
    pub(super) fn cell<'a>(&self, row: &Row<'a>) -> Option<Cell<'a>> {
        (self.read)(row)
    }
}

/// The columns that these rows need, in the order in which people read them.
pub(super) fn of<'a>(rows: impl Iterator<Item = Row<'a>>) -> Vec<Column> {
    let found = Found::in_rows(rows);
    let mut columns = vec![
        text("run", |row| Some(row.run)),
        text("experiment", |row| Some(&row.sample.experiment)),
    ];
    columns.extend(found.factors.into_iter().flat_map(|(name, levels)| factor(name, levels)));
    columns.extend(place());
    columns.extend(found.metrics.into_iter().map(metric));
    columns.extend(outcome());
    columns.extend(found.covariates.into_iter().map(covariate));
    columns.extend(noise());
    columns.extend(clock());
    columns.extend(found.histograms.into_iter().map(histogram));
    columns.extend(structure(found.parts, found.trials));
    distinct(columns)
}

/// What the rows have that other rows may lack.
#[derive(Default)]
struct Found {
    factors: BTreeMap<String, BTreeSet<Level>>,
    metrics: BTreeSet<String>,
    covariates: BTreeSet<String>,
    histograms: BTreeSet<String>,
    parts: bool,
    trials: bool,
}

impl Found {
    fn in_rows<'a>(rows: impl Iterator<Item = Row<'a>>) -> Self {
        let mut found = Self::default();
        let note = |set: &mut BTreeSet<String>, name: &String| {
            if !set.contains(name) {
                set.insert(name.clone());
            }
        };
        for Row { sample, .. } in rows {
            for (name, level) in sample.point.0.iter() {
                let levels = found.factors.entry(name.clone()).or_default();
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
    Column::new(name, Kind::Text, move |row| Some(Cell::Text(Cow::Borrowed(read(row)?))))
}

fn whole(name: &str, read: impl Fn(&Row<'_>) -> Option<u64> + 'static) -> Column {
    Column::new(name, Kind::Whole, move |row| Some(Cell::Whole(read(row)?)))
}

fn real(name: &str, read: impl Fn(&Row<'_>) -> Option<f64> + 'static) -> Column {
    Column::new(name, Kind::Real, move |row| Some(Cell::Real(read(row)?)))
}

/// Counts are numbers. Lengths stay as they are spelled, with their bytes in a column beside.
fn factor(name: String, levels: BTreeSet<Level>) -> Vec<Column> {
    if levels.iter().all(|level| level.count().is_some()) {
        let key = name.clone();
        return vec![whole(&name, move |row| row.sample.point.get(&key)?.count())];
    }
    let in_bytes = levels.iter().any(|l| l.count().is_none() && l.number().is_some());
    let key = name.clone();
    let spelled = text(&name, move |row| row.sample.point.get(&key).map(Level::as_str));
    let bytes = in_bytes
        .then(|| real(&format!("{name}.bytes"), move |row| row.sample.point.get(&name)?.number()));
    std::iter::once(spelled).chain(bytes).collect()
}

fn place() -> Vec<Column> {
    vec![
        Column::new("twin", Kind::Truth, |row| Some(Cell::Truth(row.sample.twin))),
        whole("round", |row| Some(row.sample.round.into())),
        whole("position", |row| Some(row.sample.position.into())),
        text("host", |row| Some(&row.sample.host)),
        text("environment", |row| Some(&row.sample.environment)),
        whole("attempt", |row| Some(row.sample.attempt.into())),
        real("at", |row| Some(row.sample.at)),
        real("seconds", |row| Some(row.sample.seconds)),
    ]
}

fn metric(name: String) -> Column {
    let key = name.clone();
    real(&name, move |row| row.sample.values.get(&key).copied())
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
        whole("noise.involuntary_switches", |row| Some(row.sample.noise?.involuntary_switches)),
        whole("noise.voluntary_switches", |row| Some(row.sample.noise?.voluntary_switches)),
        whole("noise.migrations", |row| row.sample.noise?.migrations),
        whole("noise.steal_ns", |row| row.sample.noise?.steal_ns),
        whole("noise.waited_ns", |row| row.sample.noise?.waited_ns),
        whole("noise.minor_faults", |row| Some(row.sample.noise?.minor_faults)),
        whole("noise.major_faults", |row| Some(row.sample.noise?.major_faults)),
        whole("noise.tlb_shootdowns", |row| row.sample.noise?.tlb_shootdowns),
    ]
}

fn clock() -> Vec<Column> {
    let hertz = |name, read: fn(Clock) -> f64| real(name, move |row| row.sample.clock.map(read));
    let ticks = |name, read: fn(Clock) -> u64| whole(name, move |row| row.sample.clock.map(read));
    vec![
        hertz("clock.tsc_hertz", |clock| clock.tsc_hertz),
        ticks("clock.tsc_step", |clock| clock.tsc_step),
        ticks("clock.tsc_overhead", |clock| clock.tsc_overhead),
        hertz("clock.core_before", |clock| clock.core_before),
        hertz("clock.core_after", |clock| clock.core_after),
        real("clock.second_before", |row| row.sample.clock?.second_before),
        real("clock.second_after", |row| row.sample.clock?.second_after),
    ]
}

fn histogram(name: String) -> Column {
    text(&format!("histogram.{name}"), move |row| {
        row.sample.histograms.get(&name).map(String::as_str)
    })
}

/// What has a structure of its own is JSON in a text.
fn structure(parts: bool, trials: bool) -> Vec<Column> {
    let owned = |text: String| Some(Cell::Text(Cow::Owned(text)));
    let parts = parts.then(|| {
        Column::new("parts", Kind::Text, move |row| {
            let some = !row.sample.parts.is_empty();
            some.then(|| serde_json::to_string(&row.sample.parts).ok().and_then(owned)).flatten()
        })
    });
    let trials = trials.then(|| {
        Column::new("trials", Kind::Text, move |row| {
            let some = !row.sample.trials.is_empty();
            some.then(|| serde_json::to_string(&row.sample.trials).ok().and_then(owned)).flatten()
        })
    });
    parts.into_iter().chain(trials).collect()
}

/// A name is used once: where a suite's word is also another column's, the later one is numbered.
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
