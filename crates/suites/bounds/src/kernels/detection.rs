//! Planted bugs under mechanisms: which are caught.

use lab::factor::{Factor, Levels};
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::metric::{Better, Metric};
use lab::point::Point;
use lab::sample::Failure;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::child::{self, Ended};
use super::manifest::Mechanism;
use super::{MECHANISM, build, here};
use crate::way::Way;

/// The levels of the factor `bug`.
pub(super) const BUGS: &[&str] = &["heap", "stack", "struct", "far", "use-after-free", "memcpy"];

/// What a program prints when nothing stops it.
const END: &str = "ran to its end";

/// Bugs under mechanisms.
pub(crate) static WAY: Way = Way {
    name: "detection",
    factors: &[
        Factor {
            name: "bug",
            about: "what is wrong: past the end of a heap block, of a stack array or of a member, far \
                    past a block, after its free, or past it through memcpy",
            levels: Levels::Names(BUGS),
            default: None,
        },
        MECHANISM,
    ],
    metrics: &[Metric::new(
        "caught",
        "1",
        Better::Higher,
        "1 where the mechanism stops or reports the bug, 0 where the program runs to its end",
    )],
    available: |point| here(point).map(drop),
    expected: |point, _| {
        let start = here(point).map(|one| lab::quantity::duration(&one.start));
        // The control and the planted bug.
        start.ok().and_then(Result::ok).unwrap_or_default() * 2
    },
    artefacts: |point| {
        let Ok(mechanism) = here(point) else { return Vec::new() };
        let refused = refuses(mechanism, point.text("bug"));
        let refused = refused.then(|| build::refused_recipe(mechanism)).flatten();
        refused.into_iter().chain([build::recipe(build::BUGS, mechanism)]).collect()
    },
    probe: || Box::new(Detection),
};

/// Whether the mechanism's compiler is to refuse this bug.
fn refuses(mechanism: &Mechanism, bug: &str) -> bool {
    mechanism.refuses.as_ref().is_some_and(|refusal| refusal.bug == bug)
}

struct Detection;

impl Probe for Detection {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let mechanism = here(point)?;
        let bug = point.text("bug");
        let name = build::name(build::BUGS, &mechanism.name);
        let program = context.artefact(&name)?.join(build::PROGRAM);
        // A program that is stopped leaves no core behind.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        setrlimit(Resource::Core, none).map_err(std::io::Error::from)?;
        runs_through(&child::run(mechanism, &program, &[bug, "control"])?, mechanism)?;
        if refuses(mechanism, bug) {
            let folder = context.artefact(&build::refused_name(&mechanism.name))?;
            std::fs::metadata(folder.join(build::REFUSAL))?;
            return Ok(Measurement::default().value("caught", 1.0).covariate("by", "compiler"));
        }
        judged(&child::run(mechanism, &program, &[bug, "planted"])?, mechanism)
    }
}

/// Whether the program without the bug ran to its end, with no word from the mechanism.
fn runs_through(ended: &Ended, mechanism: &Mechanism) -> Result<(), Failure> {
    if to_its_end(ended) && ended.status.success() && ended.caught_by(mechanism).is_none() {
        return Ok(());
    }
    Err(Failure::check(format!("the control without the bug: {}", ended.told())))
}

/// Whether the bug was caught; a program that ended in any other way is a failure.
fn judged(ended: &Ended, mechanism: &Mechanism) -> Result<Measurement, Failure> {
    match ended.caught_by(mechanism) {
        Some(by) => Ok(Measurement::default().value("caught", 1.0).covariate("by", by)),
        None if to_its_end(ended) && ended.status.success() => {
            Ok(Measurement::default().value("caught", 0.0))
        }
        None => Err(Failure::failed(format!("neither caught nor at its end: {}", ended.told()))),
    }
}

fn to_its_end(ended: &Ended) -> bool {
    ended.output.lines().any(|line| line == END)
}

#[cfg(test)]
mod tests {
    use super::super::manifest::{manifest, mechanism};
    use super::super::ready;
    use super::*;
    use lab::artefact;
    use lab::sample::FailureKind;

    fn prepared(mechanism: &'static Mechanism) -> Result<std::path::PathBuf, Failure> {
        artefact::prepare(&build::recipe(build::BUGS, mechanism)).map(|at| at.join(build::PROGRAM))
    }

    fn ended(status: i32, output: &str, errors: &str) -> Ended {
        use std::os::unix::process::ExitStatusExt;
        let status = std::process::ExitStatus::from_raw(status);
        Ended { status, output: output.into(), errors: errors.into() }
    }

    #[test]
    fn what_is_neither_caught_nor_at_its_end_is_a_failure() {
        let asan = mechanism("gcc-asan").unwrap();
        let report = "==1==ERROR: AddressSanitizer: heap-buffer-overflow";
        let caught = |ended: &Ended| judged(ended, asan).map(|it| it.values["caught"]);
        assert_eq!(caught(&ended(1 << 8, "", report)), Ok(1.0));
        assert_eq!(caught(&ended(0, "ran to its end\n", "")), Ok(0.0));
        // It crashed, it ended early, it ended badly.
        for bad in [ended(11, "", ""), ended(0, "", ""), ended(1 << 8, "ran to its end\n", "")] {
            assert_eq!(caught(&bad).unwrap_err().kind, FailureKind::Failed);
            assert!(runs_through(&bad, asan).is_err());
        }
        assert!(runs_through(&ended(0, "ran to its end\n", ""), asan).is_ok());
        let late = ended(0, "ran to its end\n", report);
        assert_eq!(runs_through(&late, asan).unwrap_err().kind, FailureKind::Check);
    }

    /// Every mechanism that can run here, with every bug: what it catches is what the manifest says.
    #[test]
    fn bugs_are_caught_as_the_manifest_says() {
        let mut tested = 0;
        for one in &manifest().unwrap().mechanisms {
            let program = match ready(one).and_then(|()| prepared(one)) {
                Ok(program) => program,
                Err(lack) if !lack.kind.is_fault() => {
                    machine::untested::note(
                        "bugs_are_caught_as_the_manifest_says",
                        &format!("{}: {lack}", one.name),
                    );
                    continue;
                }
                Err(failure) => panic!("{}: {failure}", one.name),
            };
            for bug in BUGS {
                let run = |form| child::run(one, &program, &[bug, form]).unwrap();
                runs_through(&run("control"), one)
                    .unwrap_or_else(|e| panic!("{} {bug}: {e}", one.name));
                let caught = if refuses(one, bug) {
                    artefact::prepare(&build::refused_recipe(one).unwrap()).unwrap();
                    1.0
                } else {
                    let judged = judged(&run("planted"), one);
                    judged.unwrap_or_else(|e| panic!("{} {bug}: {e}", one.name)).values["caught"]
                };
                let expected = one.catches.iter().any(|catches| catches == bug);
                assert_eq!(caught, f64::from(expected), "{} and the bug {bug}", one.name);
                tested += 1;
            }
        }
        assert!(tested >= BUGS.len(), "no mechanism at all can run here");
    }
}
