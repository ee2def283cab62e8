//! The instruction table as text.

use std::collections::BTreeMap;

use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::journal::Run;
use lab::sample::Sample;
use lab::statistics::median;

use super::Error;
use super::agreement::Agreement;
use super::ports;
use crate::SUITE;
use crate::hand::measured::void;
use crate::hand::text::Notes;
use crate::instructions::audit::Predictions;
use crate::instructions::list::List;

/// What is measured, with the words above its columns.
const MEASURED: [(&str, &str); 4] =
    [("latency", "latency"), ("throughput", "tput"), ("round_trip", "trip"), ("uops", "uops")];
/// What the seed published, in its order.
const PUBLISHED: [(&str, &str); 3] = [("uops", "uops"), ("latency", "lat"), ("throughput", "tput")];
/// Columns of a screen.
const WIDTH: usize = 100;
/// Columns of each figure of ours, and of others'.
const OURS: usize = 8;
const OTHERS: usize = 6;
/// The chains whose latency a model of registers predicts.
const COMPARED: [&str; 3] = ["register", "implicit-register", "pointer-chase"];

/// Writes the table: for each form our figures, the seed's where it has the form, and the prediction.
pub(super) fn table(
    run: &Run,
    list: &List,
    levels: &[String],
    predictions: Option<&Predictions>,
) -> Result<String, Error> {
    let claims = Catalogue::of_suite(&SUITE)?.claims()?;
    let samples = Samples::new(run, levels);
    let longest = levels.iter().map(|level| level.chars().count()).max().unwrap_or_default();
    let measured: Vec<_> =
        MEASURED.into_iter().filter(|(metric, _)| samples.have(metric)).collect();
    let published = levels.iter().any(|level| claimed(&claims, level, "throughput").is_some());
    let others = [(published, PUBLISHED.len()), (predictions.is_some(), 2)];
    let others: usize =
        others.iter().filter(|(there, _)| *there).map(|(_, figures)| figures * OTHERS + 2).sum();
    let name = (longest + 4).min(WIDTH - measured.len() * OURS - others);
    let mut table = Table {
        measured,
        published,
        claims,
        predictions,
        name,
        text: String::new(),
        notes: Notes::default(),
        agreement: Agreement::default(),
        samples,
    };
    table.head();
    let mut class = "";
    for form in list.forms.iter().filter(|form| levels.contains(&form.level)) {
        if form.class != class {
            class = &form.class;
            table.line(class);
        }
        table.row(&form.level);
    }
    let Table { mut text, samples, agreement, notes, .. } = table;
    text.push_str(&notes.text());
    text.push_str(&ports::table(&samples, levels));
    if let Some(predictions) = predictions {
        text.push_str(&agreement.table(&predictions.cpu));
    }
    Ok(text)
}

/// The samples of a run by form.
pub(super) struct Samples<'a> {
    by_level: BTreeMap<&'a str, Vec<&'a Sample>>,
}

impl<'a> Samples<'a> {
    fn new(run: &'a Run, levels: &'a [String]) -> Self {
        let mut by_level: BTreeMap<&str, Vec<&Sample>> =
            levels.iter().map(|level| (level.as_str(), Vec::new())).collect();
        for sample in &run.samples {
            let form = sample.point.text("form");
            if let Some(all) = by_level.get_mut(form) {
                all.push(sample);
            }
        }
        Self { by_level }
    }

    fn of(&self, level: &str) -> &[&'a Sample] {
        self.by_level.get(level).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether any has this metric.
    pub(super) fn have(&self, metric: &str) -> bool {
        self.by_level.values().flatten().any(|sample| sample.values.contains_key(metric))
    }

    /// The median over the rounds that count.
    pub(super) fn median(&self, level: &str, metric: &str) -> Option<f64> {
        let counted = self.of(level).iter().filter(|sample| sample.is_valid());
        let values: Vec<f64> = counted.filter_map(|it| it.values.get(metric).copied()).collect();
        median(&values)
    }

    /// By what its copies feed one another.
    fn chain(&self, level: &str) -> String {
        let chain = self.of(level).iter().find_map(|it| it.covariates.get("chain"));
        chain.map(ToString::to_string).unwrap_or_default()
    }

    fn failure(&self, level: &str) -> String {
        let samples = self.of(level);
        let failure = samples.iter().find_map(|sample| sample.error.as_ref());
        let cause = || Some(void(samples.iter().find_map(|sample| sample.void.as_ref())?));
        let why = failure.map(ToString::to_string).or_else(cause);
        why.unwrap_or_else(|| "no sample counts".into())
    }
}

/// The beginning of a row: a form's name in so many columns, on a line of its own where it is too long.
pub(super) fn named(level: &str, columns: usize) -> String {
    let name = format!("  {level}");
    if name.chars().count() < columns {
        format!("{name:<columns$}")
    } else {
        format!("{name}\n{:columns$}", "")
    }
}

/// A figure in as many digits as stand in a column.
pub(super) fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 1000.0 => format!("{value:.0}"),
        Some(value) if value >= 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// What the seed published of a form.
fn claimed(claims: &[Claim], level: &str, metric: &str) -> Option<f64> {
    let is = |claim: &&Claim| {
        let form = claim.filter.0.get("form");
        claim.metric.as_deref() == Some(metric)
            && form.is_some_and(|it| it.levels().iter().any(|one| one.as_str() == level))
    };
    claims.iter().find(is).and_then(|claim| Some(claim.published.as_ref()?.value))
}

struct Table<'a> {
    samples: Samples<'a>,
    /// Those of [`MEASURED`] that are there.
    measured: Vec<(&'static str, &'static str)>,
    /// Whether the seed has any of the forms.
    published: bool,
    claims: Vec<Claim>,
    predictions: Option<&'a Predictions>,
    /// Columns of a form's name.
    name: usize,
    text: String,
    notes: Notes,
    agreement: Agreement,
}

impl Table<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn head(&mut self) {
        self.line("Core cycles an instruction: the median over rounds of the least of 10 repeats");
        let measured: String = self.measured.iter().map(|(_, it)| format!("{it:>OURS$}")).collect();
        let (mut above, mut below) = (" ".repeat(self.name + measured.len()), measured);
        below.insert_str(0, &" ".repeat(self.name));
        let mut add = |title: &str, words: &[&str]| {
            let width = words.len() * OTHERS + 2;
            above += &format!("{title:>width$}");
            let words: String = words.iter().map(|it| format!("{it:>OTHERS$}")).collect();
            below += &format!("  {words}");
        };
        if self.published {
            add("published", &PUBLISHED.map(|(_, word)| word));
        }
        if self.predictions.is_some() {
            add("llvm-mca", &["lat", "tput"]);
        }
        if !above.trim().is_empty() {
            self.line(&above);
        }
        self.line(&below);
    }

    fn row(&mut self, level: &str) {
        let values: Vec<Option<f64>> =
            self.measured.iter().map(|(metric, _)| self.samples.median(level, metric)).collect();
        let mut line = named(level, self.name);
        if values.iter().all(Option::is_none) {
            let mark = format!("[{}]", self.notes.number(&self.samples.failure(level)));
            let width = OURS * self.measured.len().max(1);
            line += &format!("{mark:>OURS$}{:<rest$}", "", rest = width - OURS);
        } else {
            line.extend(values.iter().map(|value| format!("{:>OURS$}", figure(*value))));
        }
        if self.published {
            let cell = |(metric, _)| match claimed(&self.claims, level, metric) {
                Some(value) => format!("{value:>OTHERS$.2}"),
                None => " ".repeat(OTHERS),
            };
            line += &format!("  {}", PUBLISHED.map(cell).concat());
        }
        line += &self.predicted(level);
        self.line(&line);
    }

    fn predicted(&mut self, level: &str) -> String {
        let prediction = self.predictions.and_then(|it| it.by_level.get(level));
        let Some(prediction) = prediction else { return String::new() };
        // What passes through memory, or past it, is no latency of the model's kind.
        let chain = self.samples.chain(level);
        let comparable = COMPARED.contains(&chain.as_str())
            && (!level.contains(" M") || chain == "pointer-chase");
        let latency = self.samples.median(level, "latency").filter(|_| comparable);
        let throughput = self.samples.median(level, "throughput");
        self.agreement.add(level, [latency, throughput], prediction);
        let shown = [prediction.latency, prediction.throughput].map(|it| figure(Some(it)));
        format!("  {:>OTHERS$}{:>OTHERS$}", shown[0], shown[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_in_their_columns() {
        assert_eq!(
            [0.25, 99.99, 123.45, 12976.42].map(|it| figure(Some(it))),
            ["0.25", "99.99", "123.5", "12976"]
        );
        assert_eq!(figure(None), "-");
        assert_eq!(named("nop", 7), "  nop  ");
        assert_eq!(named("fwait", 7), "  fwait\n       ");
    }

    #[test]
    fn the_seeds_figures_are_found_by_form() {
        let claims = Catalogue::of_suite(&SUITE).unwrap().claims().unwrap();
        assert_eq!(claimed(&claims, "bndmk BND [BASE+R64]", "uops"), Some(2.0));
        assert_eq!(claimed(&claims, "add R64 R64", "uops"), None);
    }
}
