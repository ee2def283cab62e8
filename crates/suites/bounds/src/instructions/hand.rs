//! `tollgate bounds table`: the instruction table by hand, the seed's beside ours.

mod agreement;
mod ports;
mod print;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lab::adhoc::{AdhocRun, Measured};
use lab::data::MAX_FILE;
use lab::experiment::{Experiment, Profile};
use lab::option;
use lab::point::Point;
use lab::run::Lab;
use lab::suite::UsageError;
use machine::file;

use super::audit;
use super::forms::LIST;
use super::list::{List, OWN};
use super::prepared::prepare;
use crate::SUITE;
use crate::hand::Error;
use crate::hand::measured::Effort;

/// Which forms, how often, and with what beside.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Your own forms, in the form of the suite's instructions.toml; needs --allow code
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Enable an opt-in feature: 'code' executes the forms of --list
    #[arg(long, value_name = "WHAT")]
    allow: Vec<String>,
    /// Only forms of these classes; repeatable
    #[arg(long, value_name = "CLASS")]
    class: Vec<String>,
    /// Beside them what llvm-mca predicts, and where it disagrees
    #[arg(long)]
    audit: bool,
    /// Keep the other thread of the core busy with the same instructions
    #[arg(long)]
    sibling_busy: bool,
    #[command(flatten)]
    effort: Effort,
}

/// Measures the forms and prints the table. Gives the exit status: 0, or 1 where measuring failed.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let mut given = option::read(&[&SUITE], &options.allow, &[])?;
    let (list, text) = read(options.list.as_deref())?;
    if text.is_some() {
        option::check_code_argument(&given, "--list", &list.file)?;
    }
    given.extend(text.map(|text| (LIST.to_owned(), text)));
    let levels = chosen(&list, &options.class)?;
    let predictions = match options.audit {
        true => Some(audit::predict(&list, &prepare(&list))?),
        false => None,
    };
    let adhoc = AdhocRun {
        suite: &SUITE,
        experiments: vec![experiment(&levels, options)],
        profile: Profile::Quick,
        results: &options.effort.results,
        options: given,
    };
    let Measured { run, status } = adhoc.measure(lab, Duration::ZERO)?;
    let mut out = lab::terminal::stdout();
    let table = print::table(&run, &list, &levels, predictions.as_ref())?;
    writeln!(out, "{table}\n{}", run.folder.display())?;
    Ok(status)
}

/// The list, and where it is a person's own its name and text for the workers.
fn read(file: Option<&Path>) -> Result<(List, Option<String>), Error> {
    let Some(path) = file else { return Ok((OWN.clone()?, None)) };
    let name = path.display().to_string();
    let text = file::read_input_text(path, MAX_FILE)
        .map_err(|e| UsageError::new(format!("{name}: {e}; give a list of forms")))?;
    let list = List::read(&name, &text).map_err(|fault| UsageError::new(fault.to_string()))?;
    Ok((list, Some(format!("{name}\n{text}"))))
}

/// The levels of the classes asked for; all where none is.
fn chosen(list: &List, classes: &[String]) -> Result<Vec<String>, Error> {
    let of_class = |class: &String| {
        let levels = list.meant(&format!("class {class}"));
        let missing = || UsageError::new(format!("{} has no class '{class}'", list.file));
        if levels.is_empty() { Err(missing().into()) } else { Ok(levels) }
    };
    match classes {
        [] => Ok(list.meant("all")),
        classes => Ok(classes.iter().map(of_class).collect::<Result<Vec<_>, Error>>()?.concat()),
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
        about: "by hand".into(),
        metric: "throughput".into(),
        baseline: points.first().cloned().unwrap_or_default(),
        defaults: Point::default(),
        sweeps: vec![vec!["form".into()]],
        twins: points.first().cloned().into_iter().collect(),
        batch: points.len().max(1) + 1,
        points,
        roles: Vec::new(),
        blocking: Vec::new(),
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
    fn classes_choose_forms() {
        let list = OWN.as_ref().unwrap();
        assert!(chosen(list, &["mpx".into()]).unwrap().len() > 10);
        assert_eq!(chosen(list, &[]).unwrap().len(), list.forms.len());
        let fault = chosen(list, &["avx3".into()]).unwrap_err().to_string();
        assert!(fault.contains("no class 'avx3'"), "{fault}");
    }

    #[test]
    fn a_file_that_is_not_there_is_told() {
        let fault = read(Some(Path::new("/nonexistent/forms.toml"))).unwrap_err().to_string();
        assert!(fault.contains("/nonexistent/forms.toml"), "{fault}");
    }
}
