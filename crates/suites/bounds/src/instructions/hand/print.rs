//! The instruction table as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use lab::capability::State;
use lab::claim::{self, Claim};
use lab::journal::Run;
use lab::point::Point;
use lab::sample::Sample;
use lab::statistics::median;
use lab::suite::Suite as _;

use super::Error;
use crate::SUITE;
use crate::hand::text::wrapped;
use crate::instructions::audit::{Predictions, agree};
use crate::instructions::counted;
use crate::instructions::list::List;

/// The chains whose latency a model of registers predicts.
const COMPARED: [&str; 3] = ["register", "implicit-register", "pointer-chase"];
/// Columns of a form's name.
const NAME: usize = 36;

/// Writes the table: for each form our figures, the seed's where it has the form, and the prediction.
pub(super) fn table(
    run: &Run,
    list: &List,
    levels: &[String],
    predictions: Option<&Predictions>,
) -> Result<String, Error> {
    let mut table = Table {
        run,
        claims: claim::read("bounds/claims.toml", SUITE.data().claims)?,
        predictions,
        text: String::new(),
        notes: Vec::new(),
        agreed: [(0, 0); 2],
        disagreed: Vec::new(),
        counted: run.samples.iter().any(|it| it.values.contains_key("uops")),
    };
    table.head()?;
    let mut class = "";
    for form in list.forms.iter().filter(|form| levels.contains(&form.level)) {
        if form.class != class {
            class = &form.class;
            writeln!(table.text, "{class}")?;
        }
        table.row(&form.level)?;
    }
    table.notes()?;
    table.counters(levels)?;
    table.audit()?;
    Ok(table.text)
}

fn is_chase(samples: &[Sample]) -> bool {
    samples
        .iter()
        .any(|it| it.covariates.get("chain").is_some_and(|chain| chain.as_str() == COMPARED[2]))
}

struct Table<'a> {
    run: &'a Run,
    claims: Vec<Claim>,
    predictions: Option<&'a Predictions>,
    text: String,
    /// Why figures are missing, each once.
    notes: Vec<String>,
    /// Of latencies and of throughputs: how many agree, of how many.
    agreed: [(usize, usize); 2],
    disagreed: Vec<String>,
    /// Whether micro-operations were.
    counted: bool,
}

impl Table<'_> {
    fn head(&mut self) -> std::fmt::Result {
        writeln!(
            self.text,
            "Core cycles an instruction: the median over rounds of the least of 10 repeats"
        )?;
        let predicted = if self.predictions.is_some() { "  predicted: lat  tput" } else { "" };
        writeln!(
            self.text,
            "{:NAME$}{:>9}{:>9}{:>9}{}  {:<18}{predicted}",
            "",
            "latency",
            "tput",
            "trip",
            if self.counted { "   uops" } else { "" },
            "published: lat tput"
        )
    }

    fn row(&mut self, level: &str) -> std::fmt::Result {
        let samples = self.samples(level);
        let value = |metric: &str| {
            let values: Vec<f64> =
                samples.iter().filter_map(|it| it.values.get(metric).copied()).collect();
            median(&values)
        };
        let values = [value("latency"), value("throughput"), value("round_trip")];
        write!(self.text, "  {level:<width$}", width = NAME - 2)?;
        if values.iter().all(Option::is_none) {
            let failure = self.failure(level);
            let mark = self.note(failure);
            return writeln!(self.text, "{:>9}  {}", format!("[{mark}]"), self.published(level));
        }
        for value in values {
            let shown = value.map_or_else(|| "-".into(), |value| format!("{value:.2}"));
            write!(self.text, "{shown:>9}")?;
        }
        if self.counted {
            let shown = value("uops").map_or_else(|| "-".into(), |value| format!("{value:.2}"));
            write!(self.text, "{shown:>7}")?;
        }
        let published = self.published(level);
        write!(self.text, "  {published:<18}")?;
        // What passes through memory, or past it, is no latency of the model's kind.
        let through_register = samples.iter().any(|it| {
            it.covariates.get("chain").is_some_and(|chain| COMPARED.contains(&chain.as_str()))
        });
        let comparable = through_register && (!level.contains(" M") || is_chase(&samples));
        self.predicted(level, values[0].filter(|_| comparable), values[1])?;
        writeln!(self.text)
    }

    /// The samples of a form that count.
    fn samples(&self, level: &str) -> Vec<Sample> {
        let is = |point: &Point| point.text("form") == level;
        self.run.samples.iter().filter(|it| it.counts() && is(&it.point)).cloned().collect()
    }

    fn failure(&self, level: &str) -> String {
        let own = self.run.samples.iter().filter(|it| it.point.text("form") == level);
        let failure = own.filter_map(|sample| sample.error.as_ref()).next();
        failure.map_or_else(|| "no sample counts".into(), ToString::to_string)
    }

    fn note(&mut self, note: String) -> usize {
        let known = self.notes.iter().position(|one| *one == note);
        known.unwrap_or_else(|| {
            self.notes.push(note);
            self.notes.len() - 1
        }) + 1
    }

    /// What the seed published, as cycles.
    fn published(&self, level: &str) -> String {
        let figure = |metric: &str| {
            let is = |claim: &&Claim| {
                let form = claim.filter.0.get("form");
                claim.metric.as_deref() == Some(metric)
                    && form.is_some_and(|it| it.levels().iter().any(|one| one.as_str() == level))
            };
            self.claims.iter().find(is).and_then(|claim| Some(claim.published.as_ref()?.value))
        };
        match (figure("latency"), figure("throughput")) {
            (Some(latency), Some(throughput)) => format!("{latency:.0} {throughput:.2}"),
            _ => String::new(),
        }
    }

    fn predicted(
        &mut self,
        level: &str,
        latency: Option<f64>,
        throughput: Option<f64>,
    ) -> std::fmt::Result {
        let Some(predictions) = self.predictions else { return Ok(()) };
        let Some(prediction) = predictions.by_level.get(level) else { return Ok(()) };
        write!(self.text, "  {:>13.2}{:>6.2}", prediction.latency, prediction.throughput)?;
        let pairs = [
            ("latency", latency, prediction.latency),
            ("throughput", throughput, prediction.throughput),
        ];
        for (count, (name, ours, theirs)) in self.agreed.iter_mut().zip(pairs) {
            let Some(ours) = ours else { continue };
            count.1 += 1;
            if agree(ours, theirs) {
                count.0 += 1;
            } else {
                self.disagreed.push(format!("{level}: {name} {ours:.2}, predicted {theirs:.2}"));
            }
        }
        Ok(())
    }

    fn notes(&mut self) -> std::fmt::Result {
        for (at, note) in self.notes.iter().enumerate() {
            writeln!(self.text, "[{}] {note}", at + 1)?;
        }
        Ok(())
    }

    /// What performance counters counted beside: for each form the micro-operations that each port got in a
    /// cycle; or why nothing was.
    fn counters(&mut self, levels: &[String]) -> std::fmt::Result {
        if !self.counted {
            if let State::Absent { reason, remedy } = counted::capability().state {
                let why = format!("Micro-operations and ports are not counted: {reason}; {remedy}");
                writeln!(self.text, "\n{}", wrapped(&why))?;
            }
            return Ok(());
        }
        let ports: BTreeSet<String> =
            self.run.samples.iter().flat_map(|it| it.values.keys()).cloned().collect();
        let ports: Vec<String> = ports.into_iter().filter(|it| it.starts_with("port_")).collect();
        if ports.is_empty() {
            return Ok(());
        }
        writeln!(self.text, "\nMicro-operations that each port gets in a core cycle")?;
        let names: String = ports
            .iter()
            .map(|port| format!("{:>8}", port.replacen("port_", "P", 1).replace('_', ",")))
            .collect();
        writeln!(self.text, "{:NAME$}{names}", "")?;
        for level in levels {
            let samples = self.samples(level);
            let shown = |port: &String| {
                let values: Vec<f64> =
                    samples.iter().filter_map(|it| it.values.get(port).copied()).collect();
                format!(
                    "{:>8}",
                    median(&values).map_or_else(|| "-".into(), |it| format!("{it:.2}"))
                )
            };
            let cells: String = ports.iter().map(shown).collect();
            writeln!(self.text, "  {level:<width$}{cells}", width = NAME - 2)?;
        }
        Ok(())
    }

    fn audit(&mut self) -> std::fmt::Result {
        let Some(predictions) = self.predictions else { return Ok(()) };
        let [(latency, latencies), (throughput, throughputs)] = self.agreed;
        writeln!(
            self.text,
            "\nllvm-mca by its model of {}: agrees on {latency} of {latencies} latencies and \
             {throughput} of {throughputs} throughputs (within 0.1 cycle or 5%)",
            predictions.cpu
        )?;
        for line in &self.disagreed {
            writeln!(self.text, "  {line}")?;
        }
        Ok(())
    }
}
