//! Import of a standalone guest's report as a new run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lab::catalogue::Catalogue;
use lab::experiment::{Experiment, Profile};
use lab::factor::LevelType;
use lab::journal::{self, Run};
use lab::plan::seed_of;
use lab::point::Point;
use lab::run::Imported;
use lab::sample::{Sample, UNKNOWN_LATENCIES};
use lab::suite::{Lab, UsageError};
use machine::cpu::Cpu;
use machine::environment::Environment;
use machine::file;

use super::Error;
use crate::SUITE;
use crate::guest::report::{self, Report};
use crate::guest::{CrossingKind, Stamp};
use crate::one_way::with_ratio;

/// Experiment of the imported samples.
const ONE_WAY: &str = "one-way";
/// Route of the imported samples.
const ROUTE: &str = "bare-metal";

/// Imports a file and returns the folder of the new run.
///
/// # Errors
/// Returns a usage error if the file is not a complete report from bare metal.
pub(super) fn main(path: &Path, host: &str, results: &Path, lab: &Lab) -> Result<PathBuf, Error> {
    let usage_error =
        |why: &dyn std::fmt::Display| UsageError::new(format!("{}: {why}", path.display()));
    journal::check_host(host)?;
    let bytes = file::read_input(path, file::MAX_WHOLE_BYTES)
        .map_err(|why| usage_error(&format!("{why}; name the captured output of the guest")))?;
    // Serial output may contain noise; the report's lines have checksums.
    let text = String::from_utf8_lossy(&bytes);
    let report = report::parse(&text).map_err(|why| usage_error(&why))?;
    if let Some(hypervisor) = &report.cpu.hypervisor {
        let why = format!(
            "the guest ran under a hypervisor ({hypervisor}), not on bare metal; boot it on a machine \
             without one"
        );
        return Err(usage_error(&why).into());
    }
    let samples = samples(&report).map_err(|why| usage_error(&why))?;
    let imported = Imported {
        environment: environment(&report, host, &text)?,
        profile: Profile::Standard,
        experiment: experiment(&samples)?,
        samples,
    };
    Ok(lab.import(results, imported)?)
}

/// Returns the newest run with imported samples.
pub(super) fn newest(results: &Path) -> Option<Run> {
    let runs = journal::runs(results).ok()?;
    let has_samples =
        |run: &Run| run.samples.iter().any(|sample| sample.point.text("route") == ROUTE);
    runs.iter().rev().filter_map(|folder| journal::open(folder).ok()).find(has_samples)
}

fn samples(report: &Report) -> Result<Vec<Sample>, Error> {
    let mut positions: BTreeMap<u64, u32> = BTreeMap::new();
    let mut samples = Vec::new();
    for sample in &report.samples {
        let position = positions.entry(sample.round).or_default();
        let measured = with_ratio(report.measurement(sample)?);
        let clock = report.clock(sample)?;
        let lacks_latency = clock.second_before.is_none();
        samples.push(Sample {
            experiment: format!("{}/{ONE_WAY}", SUITE.name()),
            point: Point::from([
                ("route", ROUTE),
                ("kind", sample.crossing.kind.name()),
                ("isolation", if sample.crossing.isolated { "on" } else { "off" }),
                ("stamp", sample.crossing.stamp.name()),
                ("crossings", &report.crossings.to_string()),
            ]),
            round: u32::try_from(sample.round)?,
            position: *position,
            attempt: 1,
            values: measured.values,
            histograms: measured.histograms,
            covariates: measured.covariates,
            // Without an operating system there is no count of steal time.
            void: lacks_latency.then(|| UNKNOWN_LATENCIES.to_owned()).or_else(|| clock.void()),
            clock: Some(clock),
            ..Sample::default()
        });
        *position += 1;
    }
    Ok(samples)
}

/// Returns the suite's experiment, restricted to the measured points.
fn experiment(samples: &[Sample]) -> Result<Experiment, Error> {
    let mut one = Catalogue::of_suite(&SUITE)?
        .experiments(Profile::Standard)?
        .into_iter()
        .find(|one| one.name == ONE_WAY)
        .ok_or_else(|| format!("no experiment '{ONE_WAY}'"))?;
    one.points.clear();
    one.twins.clear();
    for sample in samples {
        if !one.points.contains(&sample.point) {
            one.points.push(sample.point.clone());
        }
    }
    let order = |point: &Point| {
        (CrossingKind::from_level(point.text("kind")), Stamp::from_level(point.text("stamp")))
    };
    one.points.sort_by_key(|point| (order(point), point.text("isolation").to_owned()));
    one.baseline = one.points.first().cloned().unwrap_or_default();
    Ok(one)
}

/// Returns the environment, as far as the guest reports it. Each file is a separate environment, because two files
/// may be from different boots.
fn environment(report: &Report, host: &str, text: &str) -> Result<Environment, Error> {
    let cpu = &report.cpu;
    let cpu = Cpu {
        vendor: cpu.vendor.clone(),
        brand: cpu.brand.clone(),
        family: cpu.family(),
        model: cpu.model(),
        stepping: cpu.stepping(),
        hypervisor: cpu.hypervisor.clone(),
        ..Cpu::default()
    };
    Ok(Environment {
        hostname: host.into(),
        kernel_release: "tollgate guest".into(),
        boot_id: format!("{:016x}", seed_of(text, 0)),
        cpu,
        tsc_hertz: Some(report.tsc_hertz()?),
        ..Environment::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::report::tests::small;

    #[test]
    fn an_unreliable_clock_voids_an_imported_sample() {
        let mut report = small();
        for sample in &mut report.samples {
            (sample.adds[1], sample.multiplies[1]) = (sample.adds[0], sample.multiplies[0]);
        }
        report.samples[1].adds[1] = report.samples[1].adds[0] * 107 / 100;
        report.samples[1].multiplies[1] = report.samples[1].adds[1];
        report.samples[2].multiplies[0] = report.samples[2].multiplies[0] * 103 / 100;
        let void = |index: usize, report: &Report| samples(report).unwrap()[index].void.clone();
        assert_eq!(void(0, &report), None);
        assert!(void(1, &report).unwrap().contains("moved by over 5%"));
        assert!(void(2, &report).unwrap().contains("differ by over 2%"));
        report.samples.iter_mut().for_each(|sample| sample.multiplies = [1, 1]);
        assert_eq!(void(0, &report).unwrap(), UNKNOWN_LATENCIES);
    }
}
