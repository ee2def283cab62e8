//! Samples within a page: one compressed JSON object of columns per experiment, in base64.
//!
//! Columns compress better than rows, and the scripts read only what they need.

use lab::journal::Run;
use lab::point::{Level, Point};
use lab::sample::Sample;
use lab::spreadsheet;
use lab::summary::{Samples, Unit, alike};
use maud::{Markup, html};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

use super::compressed::CompressedData;
use super::{PageError, slug};

/// Significant digits of the values of metrics that the page shows, and of other metrics (`None`: left out), in the order
/// in which they are tried.
const DETAILS: [Detail; 4] = [
    Detail { shown: 6, others: Some(6) },
    Detail { shown: 6, others: Some(4) },
    Detail { shown: 5, others: None },
    Detail { shown: 4, others: None },
];

/// How precise the values of samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Detail {
    shown: usize,
    others: Option<usize>,
}

/// The samples of all experiments of a page, as precise as fits.
pub(super) struct EmbeddedSamples {
    detail: Detail,
    parts: Vec<CompressedData>,
}

impl EmbeddedSamples {
    /// Returns no samples.
    pub(super) fn none() -> Self {
        Self { detail: DETAILS[0], parts: Vec::new() }
    }

    /// Encodes the samples of experiments in elements whose IDs have a prefix, with the metrics that the page shows of
    /// each, in at most `max_bytes` if the
    /// least detail permits it.
    ///
    /// # Errors
    /// Returns an error if they cannot be encoded.
    pub(super) fn fitting(
        run: &Run,
        prefix: &str,
        experiments: &[(&String, BTreeSet<String>)],
        max_bytes: usize,
    ) -> Result<Self, PageError> {
        let tables: Vec<_> = experiments
            .iter()
            .map(|(id, shown)| (format!("{prefix}{}", slug(id)), SampleTable::new(run, id), shown))
            .collect();
        let encode = |detail: Detail| -> Result<Self, PageError> {
            let part = |(slug, table, shown): &(String, SampleTable, &BTreeSet<String>)| {
                CompressedData::new(format!("samples-{slug}"), &table.with_detail(detail, shown))
            };
            Ok(Self { detail, parts: tables.iter().map(part).collect::<Result<_, PageError>>()? })
        };
        let [first, others @ ..] = DETAILS;
        let mut embedded = encode(first)?;
        for detail in others {
            if embedded.parts.iter().map(CompressedData::len).sum::<usize>() <= max_bytes {
                break;
            }
            embedded = encode(detail)?;
        }
        Ok(embedded)
    }

    /// States how precise the values are.
    pub(super) fn words(&self) -> String {
        let Detail { shown, others } = self.detail;
        match others {
            Some(others) if others == shown => {
                format!("with all metrics, rounded to {shown} significant digits")
            }
            Some(others) => format!(
                "with all metrics, rounded to {shown} significant digits, and to {others} if no figure, table or \
                 claim is about them"
            ),
            None => format!(
                "with the metrics of its tables, figures and claims, rounded to {shown} significant digits; other \
                 metrics are in the journal only"
            ),
        }
    }

    /// Renders the elements that contain the samples.
    pub(super) fn html(&self) -> Markup {
        html! { @for part in &self.parts { (part.html()) } }
    }
}

/// Index of the points of an experiment in its samples, in the order in which tables show them.
pub(super) fn point_indices<'a>(run: &'a Run, experiment: &str) -> BTreeMap<&'a Point, usize> {
    let declared = run.record.experiments.get(experiment).map(|one| one.points.as_slice());
    let samples = run.samples.iter().filter(|one| one.experiment == experiment);
    let measured: BTreeSet<&Point> = samples.clone().map(|one| &one.point).collect();
    let mut indices = BTreeMap::new();
    for point in declared.unwrap_or_default().iter().chain(samples.map(|one| &one.point)) {
        if measured.contains(point) {
            let next = indices.len();
            indices.entry(point).or_insert(next);
        }
    }
    indices
}

/// Texts that repeat: each once, and an index per sample; 0 without a text.
#[derive(Default, Serialize)]
struct TextColumn {
    texts: Vec<String>,
    index: Vec<usize>,
}

impl TextColumn {
    fn push(&mut self, text: Option<&str>) {
        let index = text.map_or(0, |text| {
            // Spreadsheets must not take a text for a formula.
            let text = spreadsheet::cell(text);
            let known = self.texts.iter().position(|known| *known == *text);
            1 + known.unwrap_or_else(|| {
                self.texts.push(text.into_owned());
                self.texts.len() - 1
            })
        });
        self.index.push(index);
    }
}

/// Samples of one experiment by column, sorted by point and round.
#[derive(Serialize)]
struct SampleTable {
    run: String,
    experiment: String,
    factors: Vec<String>,
    /// Levels of each point, in the order of the factors.
    points: Vec<Vec<String>>,
    point: Vec<usize>,
    twin: Vec<u8>,
    round: Vec<u32>,
    session: Vec<u32>,
    position: Vec<u32>,
    attempt: Vec<u32>,
    /// Start in seconds after the first sample of the run.
    at: Vec<f64>,
    seconds: Vec<f64>,
    /// Core clock in MHz.
    core_mhz: Vec<Option<f64>>,
    /// Whether and why a sample does not give the value of its point.
    state: TextColumn,
    environment: TextColumn,
    void: TextColumn,
    error: TextColumn,
    why: TextColumn,
    covariates: BTreeMap<String, TextColumn>,
    /// Values as recorded, by metric.
    #[serde(skip)]
    recorded: BTreeMap<String, Vec<Option<f64>>>,
}

impl SampleTable {
    fn new(run: &Run, experiment: &str) -> Self {
        let indices = point_indices(run, experiment);
        let samples = run.samples.iter().filter(|one| one.experiment == experiment);
        let indexed = samples.filter_map(|one| Some((*indices.get(&one.point)?, one)));
        let mut indexed: Vec<(usize, &Sample)> = indexed.collect();
        indexed.sort_by_key(|(index, one)| (*index, one.twin, one.round));
        let (point, samples): (Vec<usize>, Vec<&Sample>) = indexed.into_iter().unzip();
        let factors: BTreeSet<&str> = indices.keys().flat_map(|point| point.factors()).collect();
        let levels = |point: &Point| {
            factors
                .iter()
                .map(|factor| spreadsheet::cell(point.text(factor)).into_owned())
                .collect()
        };
        let mut points: Vec<(usize, Vec<String>)> =
            indices.iter().map(|(point, index)| (*index, levels(point))).collect();
        points.sort_unstable_by_key(|(index, _)| *index);
        let start = run.samples.first().map_or(0.0, |first| first.at);
        let mut table = Self {
            run: spreadsheet::cell(&run.record.name).into_owned(),
            experiment: spreadsheet::cell(experiment).into_owned(),
            factors: factors.iter().map(ToString::to_string).collect(),
            points: points.into_iter().map(|(_, levels)| levels).collect(),
            point,
            twin: samples.iter().map(|one| one.twin.into()).collect(),
            round: samples.iter().map(|one| one.round).collect(),
            session: samples.iter().map(|one| one.session).collect(),
            position: samples.iter().map(|one| one.position).collect(),
            attempt: samples.iter().map(|one| one.attempt).collect(),
            at: samples.iter().map(|one| (one.at - start).round()).collect(),
            seconds: samples.iter().map(|one| rounded(one.seconds, 2)).collect(),
            core_mhz: samples
                .iter()
                .map(|one| Some((one.clock?.core_hertz() / 1e6).round()))
                .collect(),
            state: TextColumn::default(),
            environment: TextColumn::default(),
            void: TextColumn::default(),
            error: TextColumn::default(),
            why: TextColumn::default(),
            covariates: BTreeMap::new(),
            recorded: BTreeMap::new(),
        };
        table.add_texts(&samples, &States::new(run, experiment));
        table.add_values(&samples);
        table
    }

    fn add_texts(&mut self, samples: &[&Sample], states: &States) {
        let names: BTreeSet<&String> =
            samples.iter().flat_map(|one| one.covariates.keys()).collect();
        for sample in samples {
            let failure = sample.error.as_ref();
            self.state.push(Some(states.of(sample)));
            self.environment.push(Some(&sample.environment));
            self.void.push(sample.void.as_deref());
            self.error.push(failure.map(|failure| failure.kind.name()));
            self.why.push(failure.map(|failure| failure.why.as_str()));
            for name in &names {
                let column = self.covariates.entry(name.to_string()).or_default();
                column.push(sample.covariates.get(*name).map(Level::as_str));
            }
        }
    }

    fn add_values(&mut self, samples: &[&Sample]) {
        let names: BTreeSet<&String> = samples.iter().flat_map(|one| one.values.keys()).collect();
        for name in names {
            let values = samples.iter().map(|one| one.values.get(name).copied());
            self.recorded.insert(name.clone(), values.collect());
        }
    }

    /// Returns the table with the values that a detail includes.
    fn with_detail(&self, detail: Detail, shown: &BTreeSet<String>) -> DetailedTable<'_> {
        let values = self.recorded.iter().filter_map(|(name, values)| {
            let digits = if shown.contains(name) { Some(detail.shown) } else { detail.others };
            Some((name.as_str(), ValueColumn::new(values, &self.point, self.points.len(), digits?)))
        });
        DetailedTable { table: self, values: values.collect() }
    }
}

/// A table with its values by metric.
#[derive(Serialize)]
struct DetailedTable<'a> {
    #[serde(flatten)]
    table: &'a SampleTable,
    values: BTreeMap<&'a str, ValueColumn>,
}

/// Values of a metric as whole numbers in units of a power of ten per point. Successive values of a point are close, so
/// their differences have few digits.
#[derive(Serialize)]
struct ValueColumn {
    /// Exponent of the unit of each point.
    exponents: Vec<i32>,
    /// Difference to the previous value of the point, at first to 0; `None` without a value.
    steps: Vec<Option<i64>>,
}

impl ValueColumn {
    /// Returns the column of values with at most a number of significant digits; `point` are the indices of their points.
    fn new(values: &[Option<f64>], point: &[usize], points: usize, digits: usize) -> Self {
        let mut largest = vec![0.0f64; points];
        let mut are_whole = vec![true; points];
        for (value, at) in values.iter().zip(point) {
            let Some(value) = value else { continue };
            largest[*at] = largest[*at].max(value.abs());
            are_whole[*at] &= value.fract() == 0.0;
        }
        let exponent = |(largest, is_whole): (&f64, &bool)| {
            let leading = if *largest > 0.0 { largest.log10().floor() as i32 } else { 0 };
            let last = leading + 1 - i32::try_from(digits).unwrap_or_default();
            if *is_whole { last.max(0) } else { last }
        };
        let exponents: Vec<i32> = largest.iter().zip(&are_whole).map(exponent).collect();
        let mut previous = vec![0; points];
        let step = |(value, at): (&Option<f64>, &usize)| {
            let value = (*value)?;
            // Powers of ten below 1 are not exact.
            let whole = match exponents[*at] {
                unit @ 0.. => value / 10f64.powi(unit),
                unit => value * 10f64.powi(-unit),
            };
            let whole = whole.round() as i64;
            let step = whole.wrapping_sub(previous[*at]);
            previous[*at] = whole;
            Some(step)
        };
        let steps = values.iter().zip(point).map(step).collect();
        Self { exponents, steps }
    }
}

/// Rounds a value to a number of significant digits.
fn rounded(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits.saturating_sub(1)).parse().unwrap_or(value)
}

/// Which samples give the values of their points.
struct States<'a> {
    /// Samples that are summarised together, by address.
    included: BTreeSet<*const Sample>,
    /// The last samples of their rounds.
    last: BTreeSet<*const Sample>,
    /// Rounds that give the value, by point and twin.
    used: BTreeMap<(&'a Point, bool), BTreeSet<u32>>,
}

impl<'a> States<'a> {
    fn new(run: &'a Run, experiment: &'a str) -> Self {
        let mut states =
            Self { included: BTreeSet::new(), last: BTreeSet::new(), used: BTreeMap::new() };
        let Some(samples) = Samples::newest(run, experiment) else { return states };
        states.included = samples.all().map(std::ptr::from_ref).collect();
        let metric = samples.declared().map_or("", |declared| declared.metric.as_str());
        let observed = samples.observed(metric, Unit::Own);
        let points: BTreeSet<&Point> = samples.all().map(|one| &one.point).collect();
        for point in points {
            for (twin, values) in [(false, &observed.points), (true, &observed.twins)] {
                let last =
                    samples.rounds(point, twin).map(|(_, sample)| std::ptr::from_ref(sample));
                states.last.extend(last);
                let used = values.get(point).map(|rounds| alike(rounds).into_keys().collect());
                states.used.insert((point, twin), used.unwrap_or_default());
            }
        }
        states
    }

    fn of(&self, sample: &Sample) -> &'static str {
        let address = std::ptr::from_ref(sample);
        let is_used = || {
            let rounds = self.used.get(&(&sample.point, sample.twin));
            rounds.is_some_and(|rounds| rounds.contains(&sample.round))
        };
        if !self.included.contains(&address) {
            "other environment"
        } else if let Some(failure) = &sample.error {
            if failure.kind.is_fault() { "failed" } else { "unavailable" }
        } else if sample.void.is_some() {
            "void"
        } else if !self.last.contains(&address) {
            "repeated"
        } else if is_used() {
            "used"
        } else {
            "other state of the core"
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the values of a column as the scripts read them.
    fn decoded(column: &ValueColumn, point: &[usize]) -> Vec<Option<f64>> {
        let mut previous = vec![0i64; column.exponents.len()];
        let value = |(step, at): (&Option<i64>, &usize)| {
            previous[*at] += (*step)?;
            Some(format!("{}e{}", previous[*at], column.exponents[*at]).parse().unwrap())
        };
        column.steps.iter().zip(point).map(value).collect()
    }

    proptest! {
        #[test]
        fn values_are_read_back_with_their_digits(
            values in prop::collection::vec(prop::option::of((-1e12f64..1e12, 0usize..3)), 1..40),
            digits in 3usize..=6,
        ) {
            let point: Vec<usize> = values.iter().map(|one| one.map_or(0, |(_, at)| at)).collect();
            // Magnitudes of different points differ.
            let value = |one: &Option<(f64, usize)>| one.map(|(value, at)| value / 1e7f64.powi(at as i32));
            let values: Vec<Option<f64>> = values.iter().map(value).collect();
            let read = decoded(&ValueColumn::new(&values, &point, 3, digits), &point);
            for ((value, read), at) in values.iter().zip(&read).zip(&point) {
                prop_assert_eq!(value.is_some(), read.is_some());
                let of_point = values.iter().zip(&point).filter(|(_, other)| *other == at);
                let largest = of_point.filter_map(|(one, _)| *one).map(f64::abs).fold(0.0, f64::max);
                let error = (value.unwrap_or_default() - read.unwrap_or_default()).abs();
                prop_assert!(error <= largest * 10f64.powi(1 - digits as i32) * 0.51, "{:?} {:?}", value, read);
            }
        }
    }

    #[test]
    fn whole_numbers_are_exact() {
        let values = [Some(123456.0), Some(0.0), None, Some(-7.0)];
        let column = ValueColumn::new(&values, &[0; 4], 1, 6);
        assert_eq!(decoded(&column, &[0; 4]), values);
    }
}
