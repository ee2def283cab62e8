//! `tollgate bounds table`: the instruction table, with published and measured values.

mod agreement;
mod samples;
mod table;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use lab::adhoc::AdhocRun;
use lab::data::MAX_FILE;
use lab::experiment::{Experiment, Profile};
use lab::option;
use lab::point::Point;
use lab::suite::Lab;
use lab::suite::UsageError;
use machine::file;

use super::audit;
use super::forms::LIST;
use super::list::{BUILT_IN, List};
use super::prepared::prepare;
use crate::SUITE;
use crate::cli::{Effort, Error};

/// Options of `tollgate bounds table`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// TOML file of additional forms, in the format of instructions.toml; requires --allow code
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Enable an opt-in feature: 'code' executes the forms of --list
    #[arg(long, value_name = "FEATURE")]
    allow: Vec<String>,
    /// Only forms of these classes (repeatable)
    #[arg(long, value_name = "CLASS")]
    class: Vec<String>,
    /// Add the predictions of llvm-mca and list disagreements
    #[arg(long)]
    audit: bool,
    /// Run the same instructions on the core's other hardware thread
    #[arg(long)]
    sibling_busy: bool,
    #[command(flatten)]
    effort: Effort,
}

/// Measures and prints the table. Returns the exit status: 0, or 1 if a measurement failed.
///
/// # Errors
/// Returns a usage error, or the reason if nothing can be measured.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let mut run_options = option::read(&[&SUITE], &options.allow, &[])?;
    let (list, text) = read(options.list.as_deref())?;
    if text.is_some() {
        option::check_code_argument(&run_options, "--list", &list.file)?;
    }
    run_options.extend(text.map(|text| (LIST.to_owned(), text)));
    let levels = select(&list, &options.class)?;
    let predictions = match options.audit {
        true => Some(audit::predict(&list, &prepare(&list))?),
        false => None,
    };
    let adhoc = AdhocRun {
        suite: &SUITE,
        experiments: vec![experiment(&levels, options)],
        profile: Profile::Quick,
        results: &options.effort.results,
        options: run_options,
    };
    adhoc.measure_and_print(lab, options.effort.output.json, |run| {
        table::table(run, &list, &levels, predictions.as_ref())
    })
}

/// Returns the list and, if it is a user's file, its name and text for the workers.
fn read(file: Option<&Path>) -> Result<(List, Option<String>), Error> {
    let Some(path) = file else { return Ok((BUILT_IN.clone()?, None)) };
    let name = path.display().to_string();
    let text = file::read_input_text(path, MAX_FILE)
        .map_err(|e| UsageError::new(format!("{name}: {e}; pass a TOML file of forms")))?;
    let list = List::read(&name, &text).map_err(|fault| UsageError::new(fault.to_string()))?;
    Ok((list, Some(format!("{name}\n{text}"))))
}

/// Returns the levels of the selected classes, or of all if none is selected.
fn select(list: &List, classes: &[String]) -> Result<Vec<String>, Error> {
    let levels_of_class = |class: &String| {
        let levels = list.levels_of(&format!("class {class}"));
        if !levels.is_empty() {
            return Ok(levels);
        }
        let known: BTreeSet<_> = list.forms.iter().map(|form| form.class.as_str()).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        let why = format!("{}: unknown class '{class}'; expected one of {known}", list.file);
        Err(UsageError::new(why).into())
    };
    match classes {
        [] => Ok(list.levels_of("all")),
        classes => {
            Ok(classes.iter().map(levels_of_class).collect::<Result<Vec<_>, Error>>()?.concat())
        }
    }
}

fn experiment(levels: &[String], options: &Options) -> Experiment {
    let sibling = if options.sibling_busy { "busy" } else { "idle" };
    let point = |level: &String| Point::from([("form", level.as_str()), ("sibling", sibling)]);
    let points: Vec<Point> = levels.iter().map(point).collect();
    let mut experiment = Experiment {
        suite: "bounds".into(),
        name: "instructions".into(),
        method: "instructions".into(),
        about: "run directly".into(),
        metric: "throughput".into(),
        baseline: points.first().cloned().unwrap_or_default(),
        defaults: Point::default(),
        sweeps: vec![vec!["form".into()]],
        twins: points.first().cloned().into_iter().collect(),
        batch: points.len().max(1) + 1,
        points,
        roles: Vec::new(),
        skipped: Vec::new(),
        blocking: Vec::new(),
        alternatives: None,
        compared: Vec::new(),
        limit: None,
        effort: Profile::Quick.effort(),
    };
    options.effort.apply(&mut experiment);
    experiment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_select_forms() {
        let list = BUILT_IN.as_ref().unwrap();
        assert!(select(list, &["mpx".into()]).unwrap().len() > 10);
        assert_eq!(select(list, &[]).unwrap().len(), list.forms.len());
        let fault = select(list, &["avx3".into()]).unwrap_err().to_string();
        assert!(fault.contains("unknown class 'avx3'"), "{fault}");
    }

    #[test]
    fn a_missing_file_is_named_in_the_error() {
        let fault = read(Some(Path::new("/nonexistent/forms.toml"))).unwrap_err().to_string();
        assert!(fault.contains("/nonexistent/forms.toml"), "{fault}");
    }
}
