//! What can be measured: suites, experiments, factors, points, expected time.

use std::time::Duration;

use lab::experiment::Experiment;
use lab::plan;
use lab::point::{Level, Point};
use lab::quantity::format_duration;
use lab::suite::{Suite, find_method};
use serde_json::{Value, json};

use super::page::{Entry, Head, Page, Tone};

/// An experiment, as far as this machine can measure it.
struct Listed<'a> {
    experiment: &'a Experiment,
    available: usize,
    expected: Duration,
    factors: Vec<(&'a str, Vec<&'a Level>)>,
}

/// Suites with their experiments: factors with their levels, points, and the time that all rounds
/// take at most.
pub fn list(suites: &[&dyn Suite], experiments: &[Experiment], page: Page) -> String {
    let mut text = String::new();
    for suite in suites {
        let own: Vec<Listed<'_>> = listed(*suite, experiments).collect();
        if own.is_empty() {
            continue;
        }
        text += &page.paragraph(&format!("{}: {}", suite.name(), suite.about()), 2, Tone::Strong);
        let heads = [
            Head::left("experiment"),
            Head::right("points"),
            Head::right("here"),
            Head::right("rounds"),
            Head::right("at most"),
            Head::left("what is measured, and what varies"),
        ];
        text += &page.table(&heads, own.iter().map(Listed::row).collect());
        text.push('\n');
    }
    text.trim_end_matches('\n').to_string() + "\n"
}

/// The same as data.
pub fn list_json(suites: &[&dyn Suite], experiments: &[Experiment]) -> Value {
    let suite = |suite: &&dyn Suite| {
        json!({
            "suite": suite.name(),
            "about": suite.about(),
            "experiments": listed(*suite, experiments).map(|l| l.json()).collect::<Vec<_>>(),
        })
    };
    suites.iter().map(suite).collect()
}

fn listed<'a>(
    suite: &dyn Suite,
    experiments: &'a [Experiment],
) -> impl Iterator<Item = Listed<'a>> {
    experiments.iter().filter(move |e| e.suite == suite.name()).map(move |experiment| {
        let method = lab::suite::method(suite, &experiment.method);
        let here =
            |point: &&Point| method.as_ref().is_ok_and(|method| method.available(point).is_ok());
        let mut reachable = experiment.clone();
        reachable.keep(|point| here(&point));
        Listed {
            experiment,
            available: reachable.points.len(),
            expected: plan::expected(&reachable, suite),
            factors: factors(experiment),
        }
    })
}

/// The factors with the levels that any point has, in the order of the suite's points.
fn factors(experiment: &Experiment) -> Vec<(&str, Vec<&Level>)> {
    let names = experiment.baseline.0.keys();
    let levels = |name: &String| {
        let mut levels: Vec<&Level> = Vec::new();
        for level in experiment.points.iter().filter_map(|point| point.get(name)) {
            if !levels.contains(&level) {
                levels.push(level);
            }
        }
        levels
    };
    names.map(|name| (name.as_str(), levels(name))).collect()
}

impl Listed<'_> {
    fn row(&self) -> Vec<Entry> {
        let varied = self.factors.iter().filter(|(_, levels)| levels.len() > 1);
        let factors = varied.map(|(name, levels)| format!("{name} ({})", levels.len()));
        let points = self.experiment.points.len();
        let tone = if self.available < points { Tone::Doubtful } else { Tone::Plain };
        vec![
            self.experiment.id().into(),
            points.to_string().into(),
            Entry::new(self.available.to_string(), tone),
            self.experiment.effort.rounds.to_string().into(),
            format_duration(self.expected).into(),
            Entry::of_lines(&[
                self.experiment.about.clone(),
                factors.collect::<Vec<_>>().join(", "),
            ]),
        ]
    }

    fn json(&self) -> Value {
        let factors = self.factors.iter().map(|(name, levels)| (name.to_string(), json!(levels)));
        json!({
            "id": self.experiment.id(),
            "about": self.experiment.about,
            "metric": self.experiment.metric,
            "factors": Value::Object(factors.collect()),
            "points": self.experiment.points.len(),
            "available": self.available,
            "rounds": self.experiment.effort.rounds,
            "expected_seconds": self.expected.as_secs_f64(),
        })
    }
}

/// A suite with its experiments in full: what each factor is, and its levels.
pub fn describe(suites: &[&dyn Suite], experiment: &Experiment, page: Page) -> String {
    let mut text = page.paragraph(&experiment.id(), 0, Tone::Strong);
    text += &page.paragraph(&experiment.about, 0, Tone::Plain);
    let known = find_method(suites, &experiment.suite, &experiment.method)
        .map_or(&[][..], |method| method.factors());
    let heads = [Head::left("factor"), Head::left("levels"), Head::left("what it is")];
    let row = |(name, levels): &(&str, Vec<&Level>)| {
        let about = known.iter().find(|factor| factor.name == *name).map_or("", |f| f.about);
        let levels: Vec<_> = levels.iter().map(|level| level.as_str()).collect();
        vec![Entry::from(*name), levels.join(", ").into(), about.into()]
    };
    text + &page.table(&heads, factors(experiment).iter().map(row).collect())
}
