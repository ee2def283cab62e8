//! `tollgate explain`

use std::collections::BTreeSet;

use lab::capability::State;
use lab::catalogue::{Catalogue, Declaration, DeclaredFigure};
use lab::claim::{Claim, OtherVerdict, Verdict};
use lab::experiment::{Experiment, Profile};
use lab::headline::{self, Headline};
use lab::journal::Run;
use lab::method::AnyMethod;
use lab::metric::Better;
use lab::suite::Suite;
use lab::table::Emphasis;
use machine::capability::Capability;
use report::table::{self, Page};

use crate::arguments::Explain;
use crate::error::CliError;
use crate::output::print;
use crate::stored_run;
use crate::suites::SUITES;
use crate::{select, terms};

/// Describes what the names stand for, with the data from which everything else is printed.
pub(crate) fn explain(args: &Explain) -> Result<u8, CliError> {
    let catalogue = select::catalogue(&args.files)?;
    let claims = select::with_arguments(catalogue.claims()?, &args.results.folder, &args.files);
    let run = stored_run::open_any(&args.results.folder)?;
    let explainer = Explainer {
        experiments: catalogue.experiments(Profile::Full)?,
        claims,
        figures: catalogue.figures()?,
        headlines: catalogue.headlines()?,
        terms: terms::terms()?,
        run,
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
    figures: Vec<DeclaredFigure>,
    headlines: Vec<Headline>,
    terms: Vec<terms::Term>,
    /// The newest run.
    run: Option<Run>,
    args: &'a Explain,
    page: Page,
}

/// Returns the capabilities of the machine that experiments may require.
fn capabilities() -> impl Iterator<Item = Capability> {
    let all = Capability::all().into_iter();
    all.chain(SUITES.iter().flat_map(|suite| suite.capabilities()))
}

impl Explainer<'_> {
    /// Returns the descriptions of everything with a name.
    fn explain(&self, name: &str) -> Result<String, CliError> {
        let mut texts = Vec::new();
        texts.extend(terms::find(&self.terms, name).map(|term| self.term(term)));
        texts.extend(SUITES.iter().filter(|suite| suite.name() == name).map(|it| self.suite(it)));
        for declaration in self.catalogue.declarations(name) {
            if declaration.kind != "experiment" {
                self.run.as_ref().map_or(Ok(()), stored_run::check_one_program)?;
            }
            texts.push(self.declared(name, &declaration));
        }
        texts.extend(self.capabilities(name));
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

    fn declared(&self, id: &str, declaration: &Declaration) -> String {
        let text = match declaration.kind {
            "experiment" => self.experiment(id),
            "claim" => self.claims.iter().find(|one| one.id == id).map(|one| self.claim(one)),
            "figure" => {
                self.figures.iter().find(|one| one.figure.id == id).map(|one| self.figure(one))
            }
            _ => self.headlines.iter().find(|one| one.id == id).map(|one| self.headline(one)),
        };
        let text = text.unwrap_or_else(|| self.title(declaration.kind, id));
        let file = declaration.location.to_string();
        if !self.args.source {
            return text + &self.line(&format!("declared in {file}; --source prints it"));
        }
        let lines: String = declaration.text.lines().map(|line| format!("  {line}\n")).collect();
        text + &self.line(&format!("declared in {file}:")) + &lab::terminal::lines(&lines)
    }

    fn experiment(&self, id: &str) -> Option<String> {
        let experiment = self.experiments.iter().find(|one| one.id() == id)?;
        let title = format!("experiment {id}");
        let mut text = table::describe(&title, SUITES, experiment, self.page);
        if let Ok(method) = select::method_of(experiment) {
            text += &self.line(method.how());
            let metrics: Vec<_> = method.metrics().iter().map(|metric| metric.name).collect();
            text +=
                &self.line(&format!("metric: {}; all: {}", experiment.metric, metrics.join(", ")));
        }
        let claims = self.claims.iter().filter(|claim| claim.experiment == id);
        let claims: Vec<_> = claims.map(|claim| claim.id.as_str()).collect();
        if !claims.is_empty() {
            text += &self.line(&format!("claims: {}", claims.join(", ")));
        }
        let results = select::arguments_of(&self.args.results.folder, &self.args.files);
        Some(text + &self.line(&format!("measure it: tollgate run {id}{results}")))
    }

    /// Describes a claim with its verdict in the newest run.
    fn claim(&self, claim: &Claim) -> String {
        let judged = super::claims::judge(vec![claim.clone()], self.run.as_ref());
        let verdicts = judged.iter().map(|(claim, verdict)| {
            table::claim(claim, verdict, self.page) + &self.elsewhere(verdict)
        });
        self.title("claim", &claim.id)
            + &verdicts.collect::<String>()
            + &self.measured(&claim.experiment)
    }

    /// Returns the verdict from each other environment of the run, the last one measured first.
    fn elsewhere(&self, verdict: &Verdict) -> String {
        let text = |other: &OtherVerdict| {
            let differing = table::differing(std::slice::from_ref(&other.environment));
            self.line(&format!("in another environment{differing}:"))
                + &table::verdict(&other.verdict, self.page)
        };
        verdict.elsewhere.iter().map(text).collect()
    }

    fn figure(&self, declared: &DeclaredFigure) -> String {
        let figure = &declared.figure;
        self.title("figure", &figure.id)
            + &self.line(&figure.title)
            + &self.measured(&figure.experiment)
    }

    /// Describes a headline with its sentence in the newest run.
    fn headline(&self, headline: &Headline) -> String {
        let filled = self.run.as_ref().and_then(|run| headline::fill(headline, run));
        let sentence = match filled {
            Some(filled) => filled.sentence,
            None => format!("no values yet for: {}", headline.says.join("; ")),
        };
        self.title("headline", &headline.id)
            + &self.line(&sentence)
            + &self.measured(&headline.experiment)
    }

    /// Names an experiment and, if the newest run has samples of it, the run.
    fn measured(&self, experiment: &str) -> String {
        let has_samples =
            |run: &&Run| run.samples.iter().any(|sample| sample.experiment == experiment);
        self.line(&match self.run.as_ref().filter(has_samples) {
            Some(run) => format!("experiment: {experiment}, in {}", run.folder.display()),
            None => format!("experiment: {experiment}"),
        })
    }

    /// Describes the capabilities of the machine with a name.
    fn capabilities(&self, name: &str) -> Vec<String> {
        let described = capabilities().filter(|one| one.name == name).map(|one| {
            let state = match &one.state {
                State::Present { detail } => format!("available: {detail}"),
                State::Absent { reason, remedy } => format!("not available: {reason}; {remedy}"),
            };
            self.title("capability", name) + &self.line(&one.about) + &self.line(&state)
        });
        described.collect()
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
            Some(format!("{}; default {}; levels: {levels}", factor.described(), factor.default))
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
                let ids: Vec<_> = self.of_method(suite, *method).map(Experiment::id).collect();
                match found.iter_mut().find(|(known, _)| *known == text) {
                    Some((_, known)) => known.extend(ids),
                    // Some methods serve only the commands of suites.
                    None if ids.is_empty() => {}
                    None => found.push((text, ids)),
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
        let names = self.names();
        let similar =
            select::similar(name, names.iter().map(String::as_str)).unwrap_or_else(|| {
                "'tollgate list SUITE' and 'tollgate claims --all' list names".into()
            });
        CliError::usage(format!("unknown name '{name}'; {similar}"))
    }

    /// Returns all names that can be described.
    fn names(&self) -> BTreeSet<String> {
        let methods = self.experiments.iter().filter_map(|one| select::method_of(one).ok());
        let of_methods = methods.flat_map(|method| {
            let metrics = method.metrics().iter().map(|metric| metric.name);
            metrics.chain(method.factors().iter().map(|factor| factor.name)).collect::<Vec<_>>()
        });
        let suites = SUITES.iter().map(|suite| suite.name());
        let mut names: BTreeSet<String> = of_methods.chain(suites).map(str::to_owned).collect();
        names.extend(self.terms.iter().map(|term| term.name.clone()));
        names.extend(capabilities().map(|one| one.name));
        names.extend(self.experiments.iter().map(Experiment::id));
        names.extend(self.claims.iter().map(|claim| claim.id.clone()));
        names.extend(self.figures.iter().map(|one| one.figure.id.clone()));
        names.extend(self.headlines.iter().map(|one| one.id.clone()));
        names
    }
}
