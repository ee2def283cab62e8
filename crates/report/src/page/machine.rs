//! The machine of a page: its properties, and what it lacks for points and claims.

use std::collections::BTreeMap;

use lab::claim::{Claim, Verdict};
use lab::format::{count, precise};
use lab::journal::Run;
use machine::environment::Environment;
use maud::{Markup, html};

use crate::table::lacks_of_run;
use lab::run::is_lab_experiment;

/// Returns the CPU of an environment with what tells it from others of its brand, e.g. `AMD EPYC (family 25, model 17), 2 cores`.
pub(super) fn cpu(environment: &Environment) -> String {
    let machine::cpu::Cpu { brand, family, model, .. } = &environment.cpu;
    let brand = if brand.is_empty() { "unknown CPU" } else { brand };
    let cores = count(environment.topology.physical_cores(), "core");
    format!("{brand} (family {family}, model {model}), {cores}")
}

/// Renders the environments of a run, the one with most samples first and open.
pub(super) fn environments(run: &Run) -> Markup {
    let mut samples: BTreeMap<&str, usize> = BTreeMap::new();
    for sample in run.samples.iter().filter(|one| !is_lab_experiment(&one.experiment)) {
        *samples.entry(&sample.environment).or_default() += 1;
    }
    let mut environments: Vec<_> = run.record.environments.iter().collect();
    let samples_of = |id: &str| samples.get(id).copied().unwrap_or_default();
    environments.sort_by_key(|(id, _)| std::cmp::Reverse(samples_of(id)));
    html! {
        @if run.record.guests.is_some() { p { "Measured in " (run.record.place()) "." } }
        @for (index, (id, environment)) in environments.iter().enumerate() {
            details.environment open[index == 0] {
                summary {
                    (cpu(environment)) ", Linux " (environment.kernel_release) ": "
                    (count(samples_of(id), "sample"))
                }
                (properties(environment))
            }
        }
    }
}

fn properties(environment: &Environment) -> Markup {
    html! {
        dl.properties {
            @for (name, value) in property_list(environment).into_iter().filter(|(_, value)| !value.is_empty()) {
                dt { (name) } dd { (value) }
            }
        }
    }
}

/// Returns the properties of an environment with their names; empty ones are unknown.
fn property_list(one: &Environment) -> Vec<(&'static str, String)> {
    let cpu = &one.cpu;
    let listed = |all: &BTreeMap<String, String>| {
        all.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("; ")
    };
    let caches = one.caches.0.iter().map(|cache| {
        let kind = format!("{:?}", cache.kind).to_lowercase();
        format!("L{} {kind} {}, {} ways", cache.level, precise(cache.size as f64, "B"), cache.ways)
    });
    vec![
        ("host", one.hostname.clone()),
        ("CPU", cpu.brand.clone()),
        (
            "model",
            format!(
                "{}, family {}, model {}, stepping {}",
                cpu.vendor, cpu.family, cpu.model, cpu.stepping
            ),
        ),
        ("microcode", cpu.microcode.clone().unwrap_or_default()),
        ("hypervisor", cpu.hypervisor.clone().unwrap_or_else(|| "none".into())),
        (
            "emulated",
            if one.emulated { "yes: times are not reported".into() } else { String::new() },
        ),
        ("cores", cores(one)),
        ("caches", caches.collect::<Vec<_>>().join("; ")),
        ("memory", precise(one.memory as f64, "B")),
        ("time-stamp counter", one.tsc_hertz.map(|hertz| precise(hertz, "Hz")).unwrap_or_default()),
        ("kernel", format!("Linux {} {}", one.kernel_release, one.kernel_version)),
        ("boot parameters", one.mitigation_words.join(" ")),
        ("vulnerabilities", listed(&one.vulnerabilities)),
        ("frequency governor", one.governor.clone().unwrap_or_default()),
        ("transparent huge pages", one.transparent_huge_pages.clone().unwrap_or_default()),
        ("C library", one.libc.clone().unwrap_or_default()),
        ("its tunables", listed(&one.libc_tunables)),
        ("NICs", one.nics.join(", ")),
        ("capabilities", one.capabilities.join(", ")),
        ("program", format!("tollgate {}", one.program_version)),
        ("BLAKE3 digest", one.program_hash.clone().unwrap_or_default()),
    ]
}

fn cores(environment: &Environment) -> String {
    let topology = &environment.topology;
    format!(
        "{}, {}, {}, {}",
        count(topology.packages, "package"),
        count(topology.physical_cores(), "physical core"),
        count(topology.online.len(), "CPU"),
        count(topology.nodes.len(), "NUMA node"),
    )
}

/// Renders what a machine lacks, the cause of most claims first; `machine` names it to screen readers.
pub(super) fn lacks(run: &Run, judged: &[(Claim, Verdict)], machine: &str) -> Markup {
    let lacks = lacks_of_run(run, judged);
    html! {
        @if lacks.is_empty() { p { "Every point and every claim of this run could be measured." } }
        @else {
            div.scroll tabindex="0" role="region" aria-label={ "What " (machine) " lacks" } {
                table.lacks {
                    thead { tr {
                        th scope="col" { "cause" } th scope="col" { "remedy" }
                        th.number scope="col" { "points" } th.number scope="col" { "claims" }
                    } }
                    tbody { @for (cause, lack) in &lacks {
                        tr {
                            th scope="row" { (cause) }
                            td { (lack.remedy.as_deref().unwrap_or("—")) }
                            td.number { (lack.points.len()) }
                            td.number { (lack.claims) }
                        }
                    } }
                }
            }
        }
    }
}
