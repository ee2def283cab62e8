//! The search for loss ratios against MLRsearch of PyPI, the program of CSIT, whose authors wrote RFC 9971:
//! both search the same simulated systems.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::search::{Goal, LossRatios, TrialOutcome, loss_ratios};
use serde::{Deserialize, Serialize};

/// The package, as `pip` takes it.
const PACKAGE: &str = "mlrsearch==1.2.1";
const ORACLE: &str = include_str!("oracle.py");
/// Width of the bounds, as a share of the upper one.
const WIDTH: f64 = 0.005;
/// Loss ratios of the goals.
const RATIOS: [f64; 3] = [0.0, 0.001, 0.005];
/// Full trials that a load must pass.
const TRIALS: u32 = 3;

/// A system that loses all packets above `edge`, and `slope` of the excess over `knee` below it.
#[derive(Debug, Clone, Copy, Serialize)]
struct System {
    edge: f64,
    knee: f64,
    slope: f64,
}

/// Lower and upper bound, packets/s.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
struct Bounds(Option<f64>, Option<f64>);

impl System {
    fn offer(self, load: f64, duration: Duration) -> TrialOutcome {
        let excess = (load / self.knee - 1.0).max(0.0);
        let ratio = ((1.0 - self.edge / load).max(0.0) + self.slope * excess).min(1.0);
        let sent = (load * duration.as_secs_f64()).round();
        let lost = (ratio * sent).ceil() as u64;
        TrialOutcome { sent: sent as u64, lost, ..TrialOutcome::default() }
    }
}

fn systems() -> Vec<System> {
    let sharp = [0.5e6, 1.003e6, 3.7e6, 14.88e6, 60e6, 101.3e6, 149.9e6, 200e6];
    let sharp = sharp.map(|edge| System { edge, knee: edge, slope: 0.0 });
    let bent = [(80e6, 50e6, 0.1), (140e6, 2e6, 0.003), (200e6, 100e6, 0.012), (90e6, 90e6, 5.0)];
    let bent = bent.map(|(edge, knee, slope)| System { edge, knee, slope });
    sharp.into_iter().chain(bent).collect()
}

fn search() -> LossRatios {
    LossRatios {
        goals: RATIOS.map(|ratio| Goal { ratio, width: WIDTH }).to_vec(),
        min_load: 1e6,
        max_load: 150e6,
        duration: Duration::from_secs(1),
        confirmations: TRIALS - 1,
        min_duration: Duration::from_millis(250),
        shorter_phases: 2,
    }
}

/// Installs the package in a virtual environment and searches the systems by it.
///
/// # Errors
/// Returns why the package cannot be installed.
fn searched_by_oracle(folder: &Path, systems: &[System]) -> Result<Vec<Vec<Bounds>>, String> {
    let run = |program: &Path, words: &[&str]| -> Result<(), String> {
        let output = Command::new(program).args(words).output().map_err(|why| why.to_string())?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or("no message").to_owned();
        if output.status.success() { Ok(()) } else { Err(last) }
    };
    let venv = folder.join("venv");
    run(Path::new("python3"), &["-m", "venv", venv.to_str().unwrap()])?;
    let python = venv.join("bin/python3");
    run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE])?;
    let LossRatios { min_load, max_load, duration, min_duration, .. } = search();
    let given = serde_json::json!({
        "search": {
            "min_load": min_load,
            "max_load": max_load,
            "duration": duration.as_secs_f64(),
            "min_duration": min_duration.as_secs_f64(),
            "trials": TRIALS,
            "width": WIDTH,
            "ratios": RATIOS,
        },
        "systems": systems,
    });
    // From here on the oracle is installed, and an error is a failure of the test.
    let mut oracle = Command::new(python);
    oracle.args(["-c", ORACLE]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut oracle = oracle.spawn().unwrap();
    oracle.stdin.take().unwrap().write_all(given.to_string().as_bytes()).unwrap();
    let output = oracle.wait_with_output().unwrap();
    assert!(output.status.success(), "the oracle failed");
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// All losses depend on the load only and grow with it, so both bounds of both searches are on either
/// side of the same load.
#[test]
#[ignore = "long: installs a package of PyPI"]
fn long_loss_ratios_agree_with_mlrsearch_of_pypi() {
    let folder = tempfile::tempdir().unwrap();
    let systems = systems();
    let theirs = match searched_by_oracle(folder.path(), &systems) {
        Ok(theirs) => theirs,
        Err(why) => return machine::untested::note("loss ratios against MLRsearch of PyPI", &why),
    };
    assert_eq!(theirs.len(), systems.len());
    for (system, theirs) in systems.iter().zip(theirs) {
        let ours =
            loss_ratios(&search(), |load, duration| Ok(system.offer(load, duration))).unwrap();
        for ((ours, theirs), ratio) in ours.goals.iter().zip(theirs).zip(RATIOS) {
            let ours = Bounds(ours.valid.lower, ours.valid.upper);
            println!("{system:?}, ratio {ratio}: {ours:?}, MLRsearch {theirs:?}");
            let is_below = |low: Option<f64>, high: Option<f64>| {
                low.is_none_or(|low| high.is_none_or(|high| low < high))
            };
            assert!(
                is_below(ours.0, theirs.1) && is_below(theirs.0, ours.1),
                "{system:?}, {ratio}"
            );
            assert_eq!(
                (ours.0.is_some(), ours.1.is_some()),
                (theirs.0.is_some(), theirs.1.is_some())
            );
        }
    }
}
