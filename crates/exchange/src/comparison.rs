//! Places imported values next to those of a run.

use std::collections::BTreeMap;

use lab::journal::Run;
use lab::summary::Row;
use machine::cpu::Cpu;

use crate::agreement::{Agreement, AgreementCount};
use crate::counterpart::{Counterparts, DeclaredCounterpart};
use crate::error::ExchangeError;
use crate::form::FormKey;
use crate::instructions::{
    Difference, EXPERIMENT, FORM, ForeignForm, METRICS, Reasons, by_key, chain, rows,
};
use crate::ours::{Found, OurValues, why_missing};
use crate::output::{ComparedValue, Counterpart, ImportOutput, OurValue, RunOutput};
use crate::source::{ForeignCpu, ForeignValue, Format, Import, Stated};
use crate::uops_info::Architectures;

/// Remark on every import.
const NOT_PAIRED: &str = "The imported values are another source's: not samples of this run, so ratios are not paired by rounds, have no interval and no verdict.";

/// Places imported values next to those of a run.
///
/// # Errors
/// Returns an error if the built-in data are wrong.
pub fn compare(import: &Import, run: &Run) -> Result<ImportOutput, ExchangeError> {
    let mut ours = OurValues::new(run);
    let cpu = cpu_of(run);
    let mut output = ImportOutput {
        source: import.source.clone(),
        run: RunOutput {
            name: run.record.name.clone(),
            host: run.record.host.clone(),
            cpu: cpu.map(|cpu| cpu.brand.clone()).unwrap_or_default(),
            start: run.record.start.clone(),
        },
        values: Vec::new(),
        agreement: Vec::new(),
        notes: vec![NOT_PAIRED.into()],
    };
    if import.source.format.is_of_instructions() {
        let is_other_cpu = is_other_cpu(&import.cpu, cpu)?;
        output.notes.extend(cpu_note(is_other_cpu));
        instructions(import, is_other_cpu == Some(true), &mut ours, &mut output)?;
    } else {
        let counterparts = Counterparts::built_in()?;
        for value in &import.values {
            output.values.extend(values(import.source.format, value, counterparts, &mut ours));
        }
    }
    Ok(output)
}

/// Returns the CPU of a run: that of the environment with most samples.
pub fn cpu_of(run: &Run) -> Option<&Cpu> {
    let mut samples: BTreeMap<&str, usize> = BTreeMap::new();
    for sample in &run.samples {
        *samples.entry(sample.environment.as_str()).or_default() += 1;
    }
    let (environment, _) = samples.into_iter().max_by_key(|(_, count)| *count)?;
    run.record.environments.get(environment).map(|environment| &environment.cpu)
}

/// Returns whether the source measured another model of CPU; `None` if it is not known.
fn is_other_cpu(theirs: &ForeignCpu, ours: Option<&Cpu>) -> Result<Option<bool>, ExchangeError> {
    let Some(ours) = ours else { return Ok(None) };
    Ok(match theirs {
        ForeignCpu::Unknown => None,
        ForeignCpu::Model(family, model) => Some((*family, *model) != (ours.family, ours.model)),
        ForeignCpu::Architecture(name) => {
            Architectures::built_in()?.of(ours).map(|known| known.name != name || !known.is_same)
        }
    })
}

fn cpu_note(is_other_cpu: Option<bool>) -> Option<String> {
    match is_other_cpu {
        Some(false) => None,
        Some(true) => Some("The source measured another model of CPU: differences are those of two CPUs as well as of two methods.".into()),
        None => Some("Whether the source measured the same model of CPU is not known.".into()),
    }
}

/// Places a value next to each of its counterparts.
fn values(
    format: Format,
    value: &ForeignValue,
    counterparts: &Counterparts,
    ours: &mut OurValues<'_>,
) -> Vec<ComparedValue> {
    let compared = |remark: Option<&str>| ComparedValue {
        name: value.name.clone(),
        metric: value.metric.into(),
        unit: value.unit.into(),
        theirs: value.stated,
        counterpart: None,
        ours: None,
        ratio: None,
        agreement: None,
        reason: None,
        remarks: value.remark.iter().map(String::as_str).chain(remark).map(String::from).collect(),
    };
    let declared = counterparts.of(format, &value.key);
    if declared.is_empty() {
        let why = counterparts.apart(format, &value.key).unwrap_or("no experiment measures it");
        return vec![compared(Some(&format!("not comparable: {why}")))];
    }
    let with_ours = |declared: &&DeclaredCounterpart| {
        let mut levels = declared.point.clone();
        levels.extend(value.levels.clone());
        let found = ours.find(&declared.experiment, &declared.metric, &levels);
        let mut compared = compared(declared.remark.as_deref());
        let experiment = declared.experiment.clone();
        compared.counterpart = Some(Counterpart { experiment, levels });
        match found {
            Found::Row(_) if declared.metric != value.metric => {
                let line = format!("not comparable: our value is a {}", declared.metric);
                compared.remarks.push(line);
            }
            Found::Row(row) => set_ours(&mut compared, &row),
            Found::Missing(why) => compared.remarks.push(why),
        }
        compared
    };
    declared.iter().map(with_ours).collect()
}

/// Sets our value and the ratio.
fn set_ours(compared: &mut ComparedValue, row: &Row) {
    let Some(estimate) = row.estimate else { return };
    let theirs = compared.theirs.map(|stated| stated.value).filter(|value| *value > 0.0);
    compared.ratio = theirs.map(|theirs| estimate.median / theirs);
    compared.ours = Some(OurValue { point: row.point.clone(), estimate });
}

/// Places the forms of a source next to ours.
fn instructions(
    import: &Import,
    is_other_cpu: bool,
    ours: &mut OurValues<'_>,
    output: &mut ImportOutput,
) -> Result<(), ExchangeError> {
    let reasons = Reasons::built_in()?;
    let forms = by_key(&import.forms);
    for metric in METRICS {
        let Some(summary) = ours.summary(EXPERIMENT, metric) else {
            let note =
                format!("This run has no {metric} of instructions; tollgate run {EXPERIMENT}");
            output.notes.push(note);
            continue;
        };
        let mut count = AgreementCount::new(metric);
        for row in rows(&summary) {
            let level = row.point.text(FORM);
            let keys = FormKey::of_level(level);
            let variants = keys.iter().find_map(|key| forms.get(key));
            let form = variants.and_then(|variants| match metric {
                "latency" => variants.for_latency(chain(row).unwrap_or("none")),
                _ => variants.for_throughput(),
            });
            let (Some(form), Some(variants)) = (form, variants) else { continue };
            let mut compared = compared_form(row, form, metric);
            let (chain, stated) = (chain(row).unwrap_or("none"), compared.theirs);
            if variants.are_several(form, |other| theirs(other, metric, chain)) {
                let kept = if metric == "latency" { "longest" } else { "first" };
                let of = stated.map_or_else(String::new, |it| format!(", {}", it.value));
                compared
                    .remarks
                    .push(format!("the source states several values; the {kept} counts{of}"));
            }
            if compared.agreement == Some(Agreement::Differs) {
                let format = import.source.format;
                let difference = Difference { format, metric, level, form, is_other_cpu };
                compared.reason = reasons.of(&difference).map(String::from);
            }
            count.add(compared.agreement, compared.reason.is_some());
            output.values.push(compared);
        }
        output.agreement.push(count);
    }
    Ok(())
}

/// Returns what a source states of a form.
fn theirs(form: &ForeignForm, metric: &str, chain: &str) -> Option<Stated> {
    match metric {
        "latency" => form.latencies.of_chain(chain),
        _ => form.throughput,
    }
}

/// Compares a metric of a form.
fn compared_form(row: &Row, form: &ForeignForm, metric: &str) -> ComparedValue {
    let chain = chain(row).unwrap_or("none");
    let theirs = theirs(form, metric, chain);
    let mut compared = ComparedValue {
        name: form.name.clone(),
        metric: metric.into(),
        unit: "cycles".into(),
        theirs,
        counterpart: Some(Counterpart {
            experiment: EXPERIMENT.into(),
            levels: [(FORM.to_owned(), row.point.text(FORM).to_owned())].into(),
        }),
        ours: None,
        ratio: None,
        agreement: None,
        reason: None,
        remarks: Vec::new(),
    };
    set_ours(&mut compared, row);
    match (&row.estimate, theirs) {
        (Some(ours), Some(theirs)) => compared.agreement = Some(Agreement::of(ours, &theirs)),
        (None, _) => compared.remarks.push(why_missing(row)),
        (Some(_), None) if metric == "latency" => {
            compared.remarks.push(format!("the source states no latency of our chain ({chain})"));
        }
        (Some(_), None) => compared.remarks.push("the source states no value".into()),
    }
    compared
}
