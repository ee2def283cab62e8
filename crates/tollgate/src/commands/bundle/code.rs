//! The timed code of a run, for its bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lab::experiment::Experiment;
use lab::journal::{self, CODE, Run};
use lab::method::EmbeddedImage;
use lab::metric::Metric;
use lab::point::Point;
use lab::sample::Sample;
use lab::suite;
use machine::environment;
use report::bundle::{self, CodeSources, Entries, MethodCode, Program};
use report::table;

use crate::error::CliError;
use crate::suites::SUITES;

/// Adds the recorded code and the listings of all timed code.
pub(super) fn add_code(entries: &mut Entries, folder: &Path, run: &Run) -> Result<(), CliError> {
    let generated = journal::open_code(folder)?;
    if !generated.is_empty() {
        let about =
            "Bytes of the timed loops and functions outside of the program, one point per line";
        entries.add(CODE, about, super::read(folder, CODE)?);
    }
    let program_hash = environment::program_hash();
    let measured = table::measured(run);
    let methods: Vec<_> = measured.iter().filter_map(|id| code_in_run(run, id)).collect();
    let sources = CodeSources {
        measuring_hashes: bundle::measuring_hashes(run),
        generated: &generated,
        program: this_program(),
        program_hash: program_hash.as_deref(),
        methods: &methods,
    };
    bundle::add_code(entries, &sources).map_err(CliError::failed)
}

/// Reads the file of this program, which is the one that runs even if another was written over it.
fn this_program() -> Result<Program, String> {
    let file = std::fs::read("/proc/self/exe").map_err(|why| why.to_string())?;
    Program::read(&file)
}

/// States where the timed code of an experiment of a run is; `None` if no suite has its method.
fn code_in_run(run: &Run, id: &str) -> Option<MethodCode> {
    let samples = run.samples.iter().filter(|one| one.experiment == id);
    let has_value = |one: &&Sample| !one.values.is_empty() || !one.histograms.is_empty();
    let measured: BTreeSet<&Point> = samples.filter(has_value).map(|one| &one.point).collect();
    code_of(run.record.experiments.get(id)?, &measured, &run.record.options)
}

/// States where the timed code of an experiment is, of which these points were measured; `None` if no suite has its method.
fn code_of(
    experiment: &Experiment,
    measured: &BTreeSet<&Point>,
    options: &BTreeMap<String, String>,
) -> Option<MethodCode> {
    let method = suite::find_method(SUITES, &experiment.suite, &experiment.method).ok()?;
    let mut code = MethodCode {
        experiment: experiment.id(),
        suite: experiment.suite.clone(),
        module: method.module().into(),
        timed_modules: method.timed_modules().iter().map(|module| (*module).into()).collect(),
        is_measured: !measured.is_empty(),
        is_timed: method.metrics().iter().any(Metric::is_timed),
        ..MethodCode::default()
    };
    for point in measured {
        let guest = method.guest(point).map_or_else(Vec::new, |guest| guest.artefacts);
        let recipes = method.artefacts(point).into_iter().chain(guest);
        code.artefacts.extend(recipes.map(|recipe| recipe.name));
        code.files.extend(method.code(point, options));
        code.foreign.extend(method.foreign_code(point).into_iter().map(String::from));
        let is_new = |image: &EmbeddedImage| code.images.iter().all(|one| one.name != image.name);
        let images: Vec<_> = method.images(point).into_iter().filter(is_new).collect();
        code.images.extend(images);
    }
    Some(code)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use lab::experiment::Profile;
    use lab::soundness;

    use super::*;

    #[test]
    fn every_experiment_has_its_timed_code_or_the_reason_why_it_has_none() {
        let suites =
            SUITES.iter().map(|suite| soundness::experiments(suite, Profile::Full).unwrap());
        let experiments: Vec<Experiment> = suites.flatten().collect();
        let code = |one: &Experiment| {
            code_of(one, &one.points.iter().collect(), &BTreeMap::new()).unwrap()
        };
        let methods: Vec<_> = experiments.iter().map(code).collect();
        let hash = "of this test";
        let sources = CodeSources {
            measuring_hashes: BTreeSet::from([hash]),
            generated: &[],
            program: this_program(),
            program_hash: Some(hash),
            methods: &methods,
        };
        let mut entries = Entries::default();
        bundle::add_code(&mut entries, &sources).unwrap();
        let readme = String::from_utf8(entries.0["code/README.md"].bytes.clone()).unwrap();
        let rows: Vec<_> = readme.lines().filter(|line| line.contains(" | none | ")).collect();
        assert_eq!(rows.len(), experiments.len(), "{readme}");
        // The compiler may inline the loop of a self-test into a function without a module.
        let has_none = |row: &&&str| row.contains(bundle::NO_FUNCTION);
        let other = rows.iter().filter(has_none).find(|row| !row.starts_with("| planted/"));
        assert_eq!(other, None, "{readme}");
        for row in rows {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let [_, _, "none", functions, missing, _] = cells[..] else { panic!("{row}") };
            assert!(functions != "none" || !missing.is_empty(), "{row}");
        }
        // Every allocator's image lists functions of the code inside; the compiler may inline the loop or the allocator.
        let images = enclave::images::all().iter().chain(enclave::images::outside());
        for allocator in images.map(|image| image.allocator) {
            let text = &entries.0[&format!("code/images/{allocator}.txt")].bytes;
            let text = String::from_utf8_lossy(text);
            let functions = text.lines().filter(|line| line.starts_with("inside::")).count();
            assert!(functions > 0 && text.lines().count() > 100, "{allocator}: {text}");
        }
    }
}
