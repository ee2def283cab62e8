//! `tollgate explain`

use lab::catalogue::{Catalogue, Declaration};
use lab::claim::Claim;
use lab::experiment::{Experiment, Profile};
use lab::journal::{self, JournalError};
use lab::method::AnyMethod;
use lab::metric::Better;
use lab::suite::Suite;
use lab::table::Emphasis;
use report::table::{self, Page};

use crate::arguments::Explain;
use crate::error::CliError;
use crate::output::print;
use crate::suites::SUITES;
use crate::{select, terms};

/// Maximum number of similar names in the error about an unknown name.
const MAX_SIMILAR: usize = 8;

/// Describes what the names stand for, with the data from which everything else is printed.
pub(crate) fn explain(args: &Explain) -> Result<u8, CliError> {
    let catalogue = select::catalogue(&args.files)?;
    let explainer = Explainer {
        experiments: catalogue.experiments(Profile::Full)?,
        claims: catalogue.claims()?,
        terms: terms::terms()?,
        catalogue,
        args,
        page: Page::stdout(),
    };
    // A term may have several words: tollgate explain noise floor.
    let whole = args.names.join(" ");
    let names = match terms::find(&explainer.terms, &whole) {
        Some(_) => vec![whole],
        None => args.names.clone(),
    };
    let texts: Result<Vec<_>, _> = names.iter().map(|name| explainer.explain(name)).collect();
    print(&texts?.join("\n"))?;
    Ok(0)
}

/// All that can be described.
struct Explainer<'a> {
    catalogue: Catalogue<'static>,
    experiments: Vec<Experiment>,
    claims: Vec<Claim>,
    terms: Vec<terms::Term>,
    args: &'a Explain,
    page: Page,
}

impl Explainer<'_> {
    /// Returns the descriptions of everything with a name.
    fn explain(&self, name: &str) -> Result<String, CliError> {
        let mut texts = Vec::new();
        texts.extend(terms::find(&self.terms, name).map(|term| self.term(term)));
        texts.extend(SUITES.iter().filter(|suite| suite.name() == name).map(|it| self.suite(it)));
        for declaration in self.catalogue.declarations(name) {
            texts.push(self.declared(name, &declaration)?);
        }
        texts.extend(self.metrics(name));
        texts.extend(self.factors(name));
        if texts.is_empty() {
            return Err(self.unknown(name));
        }
        Ok(texts.join("\n"))
    }

    fn title(&self, kind: &str, name: &str) -> String {
        self.page.paragraph(&format!("{kind} {name}"), 2, Emphasis::Strong)
    }

    fn line(&self, text: &str) -> String {
        self.page.paragraph(text, 2, Emphasis::Plain)
    }

    fn term(&self, term: &terms::Term) -> String {
        let see = match term.see.as_slice() {
            [] => String::new(),
            see => self.line(&format!("see also: {}", see.join(", "))),
        };
        self.title("term", &term.name) + &self.line(&term.means) + &see
    }

    fn suite(&self, suite: &Suite) -> String {
        let name = suite.name();
        self.title("suite", name)
            + &self.line(suite.about())
            + &self
                .line(&format!("'tollgate list {name}' lists its experiments, claims and figures"))
    }

    fn declared(&self, id: &str, declaration: &Declaration) -> Result<String, CliError> {
        let text = match declaration.kind {
            "experiment" => self.experiment(id),
            "claim" => match self.claims.iter().find(|claim| claim.id == id) {
                Some(claim) => self.claim(claim)?,
                None => String::new(),
            },
            kind => self.title(kind, id),
        };
        let place = self.line(&format!("declared in {}:", declaration.location));
        let lines = declaration.text.lines().map(|line| format!("  {line}\n"));
        Ok(text + &place + &lab::terminal::lines(&lines.collect::<String>()))
    }

    fn experiment(&self, id: &str) -> String {
        let Some(experiment) = self.experiments.iter().find(|one| one.id() == id) else {
            return self.title("experiment", id);
        };
        let mut text = self.page.paragraph("experiment", 2, Emphasis::Strong);
        text += &table::describe(SUITES, experiment, self.page);
        if let Ok(method) = select::method_of(experiment) {
            let metrics: Vec<_> = method.metrics().iter().map(|metric| metric.name).collect();
            text +=
                &self.line(&format!("metric: {}; all: {}", experiment.metric, metrics.join(", ")));
        }
        let claims = self.claims.iter().filter(|claim| claim.experiment == id);
        let claims: Vec<_> = claims.map(|claim| claim.id.as_str()).collect();
        if !claims.is_empty() {
            text += &self.line(&format!("claims: {}", claims.join(", ")));
        }
        text + &self.line(&format!("measure it: tollgate run {id}"))
    }

    /// Describes a claim with its verdict in the newest run.
    fn claim(&self, claim: &Claim) -> Result<String, CliError> {
        let run = match journal::newest(&self.args.results.folder) {
            Ok(folder) => Some(journal::open(&folder)?),
            Err(JournalError::NoRun(_)) => None,
            Err(other) => return Err(other.into()),
        };
        run.as_ref().map_or(Ok(()), select::check_one_program)?;
        let judged = super::claims::judge(vec![claim.clone()], run.as_ref());
        let verdicts =
            judged.iter().map(|(claim, verdict)| table::claim(claim, verdict, self.page));
        let measured = match &run {
            Some(run) => format!("measured by {}, in {}", claim.experiment, run.folder.display()),
            None => format!("measured by {}", claim.experiment),
        };
        Ok(self.title("claim", &claim.id) + &verdicts.collect::<String>() + &self.line(&measured))
    }

    /// Describes the metrics with a name: methods share some of them.
    fn metrics(&self, name: &str) -> Vec<String> {
        self.in_methods("metric", name, |_, method| {
            let metric = method.metrics().iter().find(|metric| metric.name == name)?;
            let unit = if metric.unit == "1" { "a number" } else { metric.unit };
            let better = match metric.better {
                Better::Higher => ", higher is better",
                Better::Lower => ", lower is better",
                Better::Neither => "",
            };
            Some(format!("{}; {unit}{better}", metric.about))
        })
    }

    /// Describes the factors with a name: methods share some of them.
    fn factors(&self, name: &str) -> Vec<String> {
        self.in_methods("factor", name, |suite, method| {
            let factor = method.factors().iter().find(|factor| factor.name == name)?;
            let mut levels: Vec<&str> = Vec::new();
            let points = self.of_method(suite, method).flat_map(|experiment| &experiment.points);
            for level in points.filter_map(|point| point.get(name)) {
                if !levels.contains(&level.as_str()) {
                    levels.push(level.as_str());
                }
            }
            let levels = levels.join(", ");
            Some(format!("{}; default {}; measured: {levels}", factor.about, factor.default))
        })
    }

    /// Returns the distinct descriptions of a name in all methods, with the experiments of each.
    fn in_methods(
        &self,
        kind: &str,
        name: &str,
        describe: impl Fn(&Suite, &dyn AnyMethod) -> Option<String>,
    ) -> Vec<String> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for suite in SUITES {
            for method in suite.methods() {
                let Some(text) = describe(suite, *method) else { continue };
                let ids = self.of_method(suite, *method).map(Experiment::id);
                match found.iter_mut().find(|(known, _)| *known == text) {
                    Some((_, known)) => known.extend(ids),
                    None => found.push((text, ids.collect())),
                }
            }
        }
        let described = found.iter().map(|(text, ids)| {
            self.title(kind, &format!("{name} of {}", ids.join(", "))) + &self.line(text)
        });
        described.collect()
    }

    fn of_method<'e>(
        &'e self,
        suite: &Suite,
        method: &dyn AnyMethod,
    ) -> impl Iterator<Item = &'e Experiment> {
        let (suite, method) = (suite.name(), method.name());
        self.experiments.iter().filter(move |one| one.suite == suite && one.method == method)
    }

    fn unknown(&self, name: &str) -> CliError {
        let terms = self.terms.iter().map(|term| term.name.clone());
        let claims = self.claims.iter().map(|claim| claim.id.clone());
        let experiments = self.experiments.iter().map(Experiment::id);
        let all = terms.chain(experiments).chain(claims);
        let similar: Vec<_> =
            all.filter(|one| one.contains(&name.to_lowercase())).take(MAX_SIMILAR).collect();
        let similar = match similar.as_slice() {
            [] => "'tollgate list' lists experiments, claims and figures".to_owned(),
            similar => format!("similar: {}", similar.join(", ")),
        };
        CliError::usage(format!("unknown name '{name}'; {similar}"))
    }
}
