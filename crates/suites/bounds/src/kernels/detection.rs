//! `bounds/detection`: which planted bugs a mechanism catches.

use std::time::Duration;

use lab::artefact::Recipe;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::child::{self, ProgramExit};
use super::manifest::Mechanism;
use super::programs::Bug;
use super::{build, check_mechanism};

/// Output of a program that ran to its end.
const END: &str = "ran to its end";

/// Params of `detection`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct DetectionParams {
    /// an access past a heap block, a stack array or a member, far past a block, after its free, or past it by memcpy
    #[factor(default = "heap")]
    bug: Bug,
    /// the mechanism that enforces bounds, from mechanisms.toml
    #[factor(default = "gcc")]
    mechanism: &'static Mechanism,
}

/// Runs planted bugs under mechanisms.
pub(crate) struct Detection;

impl Method for Detection {
    type Params = DetectionParams;

    fn name(&self) -> &'static str {
        "detection"
    }

    fn how(&self) -> &'static str {
        "Each program has one planted bug and runs under the mechanism, and the sample records whether the \
         mechanism, or its compiler, catches it; nothing is timed. The same program without the bug must \
         first run to its end without a report."
    }

    fn metrics(&self) -> &'static [Metric] {
        const {
            &[Metric::new(
                "caught",
                "1",
                Better::Higher,
                "1 if the mechanism stops or reports the bug, 0 if the program runs to its end",
            )]
        }
    }

    fn available(&self, params: &DetectionParams) -> Result<(), Failure> {
        check_mechanism(params.mechanism)
    }

    fn expected(&self, params: &DetectionParams, _: Duration) -> Duration {
        // The control and the planted bug.
        lab::quantity::duration(&params.mechanism.start).unwrap_or_default() * 2
    }

    fn artefacts(&self, params: &DetectionParams) -> Vec<Recipe> {
        let DetectionParams { bug, mechanism } = *params;
        if self.available(params).is_err() {
            return Vec::new();
        }
        let rejected = is_rejected(mechanism, bug).then(|| build::rejected_recipe(mechanism));
        rejected.flatten().into_iter().chain([build::recipe(build::BUGS, mechanism)]).collect()
    }

    fn probe(&self) -> Result<Box<dyn Probe<DetectionParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

/// Returns whether the compiler of a mechanism rejects a bug.
fn is_rejected(mechanism: &Mechanism, bug: Bug) -> bool {
    mechanism.rejects.as_ref().is_some_and(|rejected| rejected.bug == bug)
}

fn measure(context: &mut Context, params: &DetectionParams) -> Result<Measurement, Failure> {
    let DetectionParams { bug, mechanism } = *params;
    check_mechanism(mechanism)?;
    let name = build::name(build::BUGS, &mechanism.name);
    let program = context.artefact(&name)?.join(build::PROGRAM);
    // A stopped program leaves no core dump.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(std::io::Error::from)?;
    check_control(&child::run(mechanism, &program, &[bug.name(), "control"])?, mechanism)?;
    if is_rejected(mechanism, bug) {
        let folder = context.artefact(&build::rejected_name(&mechanism.name))?;
        std::fs::metadata(folder.join(build::DIAGNOSTIC))?;
        return Ok(Measurement::default().value("caught", 1.0).covariate("by", "compiler"));
    }
    to_measurement(&child::run(mechanism, &program, &[bug.name(), "planted"])?, mechanism)
}

/// Checks that the program without the bug ran to its end without a report of the mechanism.
fn check_control(exit: &ProgramExit, mechanism: &Mechanism) -> Result<(), Failure> {
    if reached_end(exit) && exit.status.success() && exit.caught_by(mechanism).is_none() {
        return Ok(());
    }
    Err(Failure::check(format!("the control without the bug: {}", exit.describe())))
}

/// Returns whether the bug was caught.
///
/// # Errors
/// Returns `failed` if the program was neither stopped by the mechanism nor ran to its end.
fn to_measurement(exit: &ProgramExit, mechanism: &Mechanism) -> Result<Measurement, Failure> {
    match exit.caught_by(mechanism) {
        Some(by) => Ok(Measurement::default().value("caught", 1.0).covariate("by", by)),
        None if reached_end(exit) && exit.status.success() => {
            Ok(Measurement::default().value("caught", 0.0))
        }
        None => Err(Failure::failed(format!("neither caught nor at its end: {}", exit.describe()))),
    }
}

fn reached_end(exit: &ProgramExit) -> bool {
    exit.output.lines().any(|line| line == END)
}

#[cfg(test)]
mod tests {
    use super::super::manifest::{manifest, mechanism};
    use super::*;
    use lab::artefact;
    use lab::sample::FailureKind;

    fn program(mechanism: &'static Mechanism) -> Result<std::path::PathBuf, Failure> {
        artefact::prepare(&build::recipe(build::BUGS, mechanism))
            .map(|folder| folder.join(build::PROGRAM))
    }

    fn exit(status: i32, output: &str, errors: &str) -> ProgramExit {
        use std::os::unix::process::ExitStatusExt;
        let status = std::process::ExitStatus::from_raw(status);
        ProgramExit { status, output: output.into(), errors: errors.into() }
    }

    #[test]
    fn a_crash_that_the_mechanism_does_not_report_is_a_failure() {
        let asan = mechanism("gcc-asan").unwrap();
        let report = "==1==ERROR: AddressSanitizer: heap-buffer-overflow";
        let caught = |exit: &ProgramExit| to_measurement(exit, asan).map(|it| it.values["caught"]);
        assert_eq!(caught(&exit(1 << 8, "", report)), Ok(1.0));
        assert_eq!(caught(&exit(0, "ran to its end\n", "")), Ok(0.0));
        // A crash, an early end, an exit status other than 0.
        for bad in [exit(11, "", ""), exit(0, "", ""), exit(1 << 8, "ran to its end\n", "")] {
            assert_eq!(caught(&bad).unwrap_err().kind, FailureKind::Failed);
            assert!(check_control(&bad, asan).is_err());
        }
        assert!(check_control(&exit(0, "ran to its end\n", ""), asan).is_ok());
        let late = exit(0, "ran to its end\n", report);
        assert_eq!(check_control(&late, asan).unwrap_err().kind, FailureKind::Check);
    }

    #[test]
    fn every_available_mechanism_catches_the_bugs_of_its_manifest_entry() {
        let mut tested = 0;
        for one in &manifest().unwrap().mechanisms {
            let program = match check_mechanism(one).and_then(|()| program(one)) {
                Ok(program) => program,
                Err(failure) if !failure.kind.is_fault() => {
                    machine::untested::note(
                        "every_available_mechanism_catches_the_bugs_of_its_manifest_entry",
                        &format!("{}: {failure}", one.name),
                    );
                    continue;
                }
                Err(failure) => panic!("{}: {failure}", one.name),
            };
            for bug in Bug::ALL {
                let run = |form| child::run(one, &program, &[bug.name(), form]).unwrap();
                check_control(&run("control"), one)
                    .unwrap_or_else(|e| panic!("{} {bug}: {e}", one.name));
                let caught = if is_rejected(one, bug) {
                    artefact::prepare(&build::rejected_recipe(one).unwrap()).unwrap();
                    1.0
                } else {
                    let measured = to_measurement(&run("planted"), one);
                    measured.unwrap_or_else(|e| panic!("{} {bug}: {e}", one.name)).values["caught"]
                };
                let expected = f64::from(one.catches.contains(&bug));
                assert_eq!(caught, expected, "{} and the bug {bug}", one.name);
                tested += 1;
            }
        }
        assert!(tested >= Bug::ALL.len(), "no mechanism can run here");
    }
}
