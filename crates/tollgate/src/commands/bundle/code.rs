//! The timed code of a run, for its bundle.

use std::collections::BTreeSet;
use std::path::Path;

use lab::journal::{self, CODE, Run};
use lab::point::Point;
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
        let about = "Bytes of the generated loops that were timed, one point per line";
        entries.add(CODE, about, super::read(folder, CODE)?);
    }
    let program_hash = environment::program_hash();
    let measured = table::measured(run);
    let methods: Vec<_> = measured.iter().filter_map(|id| code_of(run, id)).collect();
    let sources = CodeSources {
        run,
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

/// States where the timed code of an experiment is; `None` if no suite has its method.
fn code_of(run: &Run, id: &str) -> Option<MethodCode> {
    let experiment = run.record.experiments.get(id)?;
    let method = suite::find_method(SUITES, &experiment.suite, &experiment.method).ok()?;
    let points: BTreeSet<&Point> =
        run.samples.iter().filter(|one| one.experiment == id).map(|one| &one.point).collect();
    let mut code = MethodCode {
        experiment: id.into(),
        suite: experiment.suite.clone(),
        module: method.module().into(),
        timed_modules: method.timed_modules().iter().map(|module| (*module).into()).collect(),
        ..MethodCode::default()
    };
    for point in points {
        let guest = method.guest(point).map_or_else(Vec::new, |guest| guest.artefacts);
        let recipes = method.artefacts(point).into_iter().chain(guest);
        code.artefacts.extend(recipes.map(|recipe| recipe.name));
        code.files.extend(method.code(point, &run.record.options));
    }
    Some(code)
}
