//! The instruction table as text.

use lab::capability::State;
use lab::catalogue::Catalogue;
use lab::claim::Claim;
use lab::journal::Run;
use lab::table::{Emphasis, Footnotes, Page};

use super::agreement::Agreement;
use super::samples::{Samples, name_cell, value_text};
use crate::SUITE;
use crate::cli::Error;
use crate::instructions::audit::Predictions;
use crate::instructions::list::List;
use crate::instructions::{METRICS, counted};

/// Measured metrics and their column headers.
const MEASURED: [(&str, &str); 4] =
    [("latency", "latency"), ("throughput", "tput"), ("round_trip", "trip"), ("uops", "uops")];
/// Published metrics, in the order of Intel MPX Explained.
const PUBLISHED: [(&str, &str); 3] = [("uops", "uops"), ("latency", "lat"), ("throughput", "tput")];
/// Width of the table.
const WIDTH: usize = 100;
/// Width of a measured value, and of a published or predicted one.
const MEASURED_WIDTH: usize = 8;
const OTHER_WIDTH: usize = 6;
/// Width of a form's name and of a port in the table of ports.
const PORT_NAME_WIDTH: usize = 36;
const PORT_WIDTH: usize = 8;
/// Chains whose latency is comparable with a model of registers.
const COMPARABLE: [&str; 3] = ["register", "implicit-register", "pointer-chase"];

/// Returns the table: for each form the measured values, the published ones and the predictions.
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
    let has_published =
        levels.iter().any(|level| published_value(&claims, level, "throughput").is_some());
    let others = [(has_published, PUBLISHED.len()), (predictions.is_some(), 2)];
    let others: usize = others
        .iter()
        .filter(|(shown, _)| *shown)
        .map(|(_, columns)| columns * OTHER_WIDTH + 2)
        .sum();
    let name_width = (longest + 4).min(WIDTH - measured.len() * MEASURED_WIDTH - others);
    let mut table = Table {
        measured,
        has_published,
        claims,
        predictions,
        name_width,
        text: String::new(),
        notes: Footnotes::default(),
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
    text.push_str(&notes.text(Page::default()));
    text.push_str(&port_table(&samples, levels));
    if let Some(predictions) = predictions {
        text.push_str(&agreement.table(&predictions.cpu));
    }
    Ok(text)
}

/// Returns the micro-operations per cycle on each port, or the reason why none were counted.
fn port_table(samples: &Samples, levels: &[String]) -> String {
    if !samples.have("uops") {
        let State::Absent { reason, remedy } = counted::capability().state else {
            return String::new();
        };
        let why = format!("Micro-operations and ports are not counted: {reason}; {remedy}");
        return format!("\n{}", Page::default().paragraph(&why, 4, Emphasis::Plain));
    }
    let ports = METRICS.iter().map(|it| it.name).filter(|it| it.starts_with("port_"));
    let ports: Vec<&str> = ports.filter(|port| samples.have(port)).collect();
    let mut text = String::new();
    if ports.is_empty() {
        return text;
    }
    let heads = ports.iter().map(|port| port.replacen("port_", "P", 1).replace('_', ","));
    let heads: String = heads.map(|head| format!("{head:>PORT_WIDTH$}")).collect();
    text +=
        &format!("\nMicro-operations per core cycle and port\n{:PORT_NAME_WIDTH$}{heads}\n", "");
    for level in levels {
        let cell =
            |port: &&str| format!("{:>PORT_WIDTH$}", value_text(samples.median(level, port)));
        let cells: String = ports.iter().map(cell).collect();
        text += &format!("{}{cells}\n", name_cell(level, PORT_NAME_WIDTH));
    }
    text
}

/// Returns the published value of a form.
fn published_value(claims: &[Claim], level: &str, metric: &str) -> Option<f64> {
    let is = |claim: &&Claim| {
        let form = claim.filter.0.get("form");
        claim.metric.as_deref() == Some(metric)
            && form.is_some_and(|it| it.levels().iter().any(|one| one.as_str() == level))
    };
    claims.iter().find(is).and_then(|claim| Some(claim.published.as_ref()?.value))
}

struct Table<'a> {
    samples: Samples<'a>,
    /// Entries of [`MEASURED`] with values.
    measured: Vec<(&'static str, &'static str)>,
    /// Whether any of the forms has published values.
    has_published: bool,
    claims: Vec<Claim>,
    predictions: Option<&'a Predictions>,
    name_width: usize,
    text: String,
    notes: Footnotes,
    agreement: Agreement,
}

impl Table<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn head(&mut self) {
        self.line("Core cycles per instruction: median over rounds of the minimum of 10 repeats");
        let measured: String =
            self.measured.iter().map(|(_, it)| format!("{it:>MEASURED_WIDTH$}")).collect();
        let (mut above, mut below) = (" ".repeat(self.name_width + measured.len()), measured);
        below.insert_str(0, &" ".repeat(self.name_width));
        let mut add = |title: &str, headers: &[&str]| {
            let width = headers.len() * OTHER_WIDTH + 2;
            above += &format!("{title:>width$}");
            let headers: String = headers.iter().map(|it| format!("{it:>OTHER_WIDTH$}")).collect();
            below += &format!("  {headers}");
        };
        if self.has_published {
            add("published", &PUBLISHED.map(|(_, header)| header));
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
        let mut line = name_cell(level, self.name_width);
        if values.iter().all(Option::is_none) {
            let mark = self.notes.mark(&self.samples.failure(level));
            let width = MEASURED_WIDTH * self.measured.len().max(1);
            let rest = width - MEASURED_WIDTH;
            line += &format!("{mark:>MEASURED_WIDTH$}{:<rest$}", "");
        } else {
            let cell = |value: &Option<f64>| format!("{:>MEASURED_WIDTH$}", value_text(*value));
            line.extend(values.iter().map(cell));
        }
        if self.has_published {
            let cell = |(metric, _)| match published_value(&self.claims, level, metric) {
                Some(value) => format!("{value:>OTHER_WIDTH$.2}"),
                None => " ".repeat(OTHER_WIDTH),
            };
            line += &format!("  {}", PUBLISHED.map(cell).concat());
        }
        line += &self.prediction(level);
        self.line(&line);
    }

    /// Returns the predicted values and adds them to the agreement.
    fn prediction(&mut self, level: &str) -> String {
        let prediction = self.predictions.and_then(|it| it.by_level.get(level));
        let Some(prediction) = prediction else { return String::new() };
        // The model's latency does not include store forwarding.
        let chain = self.samples.chain(level);
        let is_comparable = COMPARABLE.contains(&chain.as_str())
            && (!level.contains(" M") || chain == "pointer-chase");
        let latency = self.samples.median(level, "latency").filter(|_| is_comparable);
        let throughput = self.samples.median(level, "throughput");
        self.agreement.add(level, [latency, throughput], prediction);
        let [latency, throughput] =
            [prediction.latency, prediction.throughput].map(|it| value_text(Some(it)));
        format!("  {latency:>OTHER_WIDTH$}{throughput:>OTHER_WIDTH$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_are_found_by_form() {
        let claims = Catalogue::of_suite(&SUITE).unwrap().claims().unwrap();
        assert_eq!(published_value(&claims, "bndmk BND [BASE+R64]", "uops"), Some(2.0));
        assert_eq!(published_value(&claims, "add R64 R64", "uops"), None);
    }
}
