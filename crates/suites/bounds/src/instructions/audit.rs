//! Predictions of `llvm-mca` from its model of a CPU, to audit model and measurement.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::capability::Capability;
use lab::program::{self, Program};
use lab::sample::Failure;
use serde::Deserialize;

use super::list::List;
use super::operand::BETWEEN;
use super::plan::Line;
use super::prepared::Prepared;
use super::register_set::RegisterSet;

/// The program, newest first: newer versions support more CPUs.
const MCA: [Program; 2] = [mca("llvm-mca-19", "llvm-19"), mca("llvm-mca", "llvm")];

const fn mca(name: &'static str, package: &'static str) -> Program {
    Program {
        name,
        capability: "llvm-mca",
        about: "predicts instructions from models of CPUs",
        package,
    }
}

/// Returns the program as a capability of this machine.
pub(crate) fn capability() -> Capability {
    let found = MCA.iter().find(|program| program.find().is_ok());
    found.unwrap_or(&MCA[0]).capability()
}

/// Prediction of one form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prediction {
    /// Cycles from its inputs to its outputs.
    pub(crate) latency: f64,
    /// Cycles per independent instruction.
    pub(crate) throughput: f64,
}

/// Predictions by level, and the CPU of the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Predictions {
    pub(crate) cpu: String,
    pub(crate) by_level: BTreeMap<String, Prediction>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "CodeRegions")]
    regions: Vec<Region>,
    #[serde(rename = "TargetInfo")]
    target: Target,
}

#[derive(Deserialize)]
struct Target {
    #[serde(rename = "CPUName")]
    cpu: String,
}

#[derive(Deserialize)]
struct Region {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "InstructionInfoView")]
    view: View,
}

#[derive(Deserialize)]
struct View {
    #[serde(rename = "InstructionList")]
    instructions: Vec<Instruction>,
}

#[derive(Deserialize)]
struct Instruction {
    #[serde(rename = "Latency")]
    latency: f64,
    #[serde(rename = "RThroughput")]
    throughput: f64,
}

/// Predicts the forms of a list that this CPU supports, with the model of this CPU. Forms that the program cannot parse
/// are omitted.
///
/// # Errors
/// Returns `unavailable` if the program is not installed, `failed` if it fails.
pub(crate) fn predict(
    list: &List,
    prepared: &[Result<Prepared, Failure>],
) -> Result<Predictions, Failure> {
    let found = MCA.iter().find_map(|program| program.find().ok());
    let program = found.ok_or_else(|| MCA[0].absent())?;
    let mut texts: Vec<(usize, String)> = Vec::new();
    for (index, (form, one)) in list.forms.iter().zip(prepared).enumerate() {
        let Ok(one) = one else { continue };
        let copies = one.plan.independent(form, RegisterSet::Whole).unwrap_or_default();
        let first = copies.into_iter().next();
        let is_single = |line: &Line| matches!(line, Line::Text(text) if !text.contains(BETWEEN));
        if let Some(Line::Text(text)) = first.filter(is_single) {
            texts.push((index, text));
        }
    }
    // One line that it cannot parse fails all, so the lines of its errors are removed.
    for _ in 0..3 {
        let (answer, errors) = run(&program, &source(&texts))?;
        if let Ok(answer) = serde_json::from_str::<Answer>(&answer) {
            return Ok(predictions(list, answer));
        }
        let rejected = rejected(&errors);
        if rejected.is_empty() {
            let why = errors.lines().next().unwrap_or("unexpected output; expected JSON");
            return Err(Failure::failed(format!("{}: {why}", program.display())));
        }
        let mut line = 0;
        texts.retain(|_| {
            line += 1;
            !rejected.contains(&line)
        });
    }
    Err(Failure::failed(format!("{} rejects too many of the forms", program.display())))
}

/// Time limit for the predictions of a list.
const LIMIT: Duration = Duration::from_secs(300);
/// Lines per form in the source; the second is the instruction.
const LINES: usize = 3;

fn source(texts: &[(usize, String)]) -> String {
    let region = |(index, text): &(usize, String)| {
        format!("# LLVM-MCA-BEGIN {index}\n{text}\n# LLVM-MCA-END {index}\n")
    };
    format!(".intel_syntax noprefix\n{}", texts.iter().map(region).collect::<String>())
}

/// Returns the numbers, from 1, of the texts in errors like `<stdin>:3:1: error: ...`.
fn rejected(errors: &str) -> Vec<usize> {
    let number = |line: &str| {
        let (location, _) = line.split_once(": error:")?;
        let line: usize = location.split(':').nth(1)?.parse().ok()?;
        // The first line is the directive.
        Some((line.checked_sub(2)?) / LINES + 1)
    };
    errors.lines().filter_map(number).collect()
}

fn run(program: &Path, source: &str) -> Result<(String, String), Failure> {
    let mut command = Command::new(program);
    // Without a simulation, which never ends for some instructions of some models (LLVM 19, sapphirerapids).
    command.args(["--json", "-instruction-tables", "-mcpu=native", "-"]);
    let output = program::run(&mut command, source.as_bytes(), LIMIT)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((text(output.stdout), text(output.stderr)))
}

fn predictions(list: &List, answer: Answer) -> Predictions {
    let one = |region: Region| {
        let form = list.forms.get(region.name.parse::<usize>().ok()?)?;
        let first = region.view.instructions.first()?;
        let prediction = Prediction { latency: first.latency, throughput: first.throughput };
        Some((form.level.clone(), prediction))
    };
    let by_level = answer.regions.into_iter().filter_map(one).collect();
    Predictions { cpu: answer.target.cpu, by_level }
}

/// Returns whether a measured value is within 0.1 cycle or 5% of a predicted one, whichever is larger.
pub(crate) fn agree(measured: f64, predicted: f64) -> bool {
    (measured - predicted).abs() <= f64::max(0.1, 0.05 * predicted)
}

#[cfg(test)]
mod tests {
    use super::super::prepared::prepare;
    use super::*;

    const FORMS: &str = "[[class]]\nname = \"mine\"\nforms = [\n\
        { form = \"imul R64, R64\" },\n{ form = \"bndcl BND, R64\" },\n{ form = \"add R64, R64\" },\n]\n";

    #[test]
    fn forms_have_predictions_unless_the_model_rejects_them() {
        let list = List::read("mine.toml", FORMS).unwrap();
        let predicted = match predict(&list, &prepare(&list)) {
            Err(failure) if !failure.kind.is_fault() => {
                return machine::untested::note("bounds: the audit by llvm-mca", &failure);
            }
            predicted => predicted.unwrap(),
        };
        assert!(!predicted.cpu.is_empty());
        let of = |level: &str| predicted.by_level[level];
        let (multiplied, added) = (of("imul R64 R64"), of("add R64 R64"));
        // In every model a multiplication takes longer than an addition.
        assert!(multiplied.latency > added.latency && added.latency > 0.0, "{predicted:?}");
        assert!(multiplied.throughput >= added.throughput && added.throughput > 0.0);
        assert!(!predicted.by_level.contains_key("bndcl BND R64"));
    }

    #[test]
    fn rejected_texts_are_identified_by_their_line() {
        let errors =
            "<stdin>:3:1: error: invalid operand\nfoo\n<stdin>:9:5: error: x\nwarning: y\n";
        assert_eq!(rejected(errors), [1, 3]);
    }

    #[test]
    fn values_agree_within_a_tenth_of_a_cycle_or_five_percent() {
        assert!(agree(0.25, 0.33) && agree(12.5, 13.0) && !agree(0.5, 1.0) && !agree(3.0, 4.0));
    }
}
