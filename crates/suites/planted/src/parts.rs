//! Roles, searches and artefacts with known results.

use std::path::Path;
use std::time::{Duration, Instant};

use lab::artefact::Recipe;
use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use lab::search::{Search, TrialVerdict, Values, largest};

use crate::delay::Disturbance;

/// The time by the clock that all processes of a host share, us.
fn now() -> f64 {
    // SAFETY: clock_gettime fills the struct that it is given.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time
    };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Levels of `roles`.
#[derive(Params)]
pub(crate) struct RoleParams {
    /// How long a role waits, in ms
    #[factor(default = "2", levels = Levels::Count(0, 10_000))]
    wait: u64,
    /// What is injected besides
    #[factor(default = "calm")]
    disturbance: Disturbance,
}

/// Starts two roles together; one stops the other.
pub(crate) struct Roles;

impl Method for Roles {
    type Params = RoleParams;

    fn name(&self) -> &'static str {
        "roles"
    }

    fn metrics(&self) -> &'static [Metric] {
        use Better::Neither;
        const METRICS: &[Metric] = &[
            Metric::new("waited", "ns", Neither, "From start to stop"),
            Metric::count("sent", "Stops sent"),
            Metric::new("ready_at", "us", Neither, "When a role was ready, by the host's clock"),
            Metric::new("started_at", "us", Neither, "When it started, by the same clock"),
            Metric::new("stopped_at", "us", Neither, "When it stopped, by the same clock"),
        ];
        METRICS
    }

    fn probe(&self) -> Result<Box<dyn Probe<RoleParams>>, Failure> {
        Ok(Box::new(RoleProbe))
    }
}

struct RoleProbe;

impl Probe<RoleParams> for RoleProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &RoleParams,
    ) -> Result<Measurement, Failure> {
        let wait = Duration::from_millis(params.wait);
        let ready = now();
        context.ready()?;
        let (begun, started) = (Instant::now(), now());
        let times = Measurement::default().value("ready_at", ready).value("started_at", started);
        if context.role == "generator" {
            std::thread::sleep(wait);
            let times = times.value("stopped_at", now());
            context.stop()?;
            return Ok(times.value("sent", 1.0));
        }
        while !context.stopped() {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(Failure::check("no stop came within 60 s"));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        let waited = begun.elapsed().as_nanos() as f64;
        let times = times.value("stopped_at", now());
        let disturbed = params.disturbance == Disturbance::DriftAndStalls;
        let void = disturbed.then(|| "planted stall".to_string());
        Ok(Measurement { void, ..times.value("waited", waited) })
    }
}

/// Levels of `search`.
#[derive(Params)]
pub(crate) struct EdgeParams {
    /// Up to where the condition is true
    #[factor(default = "30", levels = Levels::Count(0, 1000))]
    edge: u64,
}

/// Searches for a known edge.
pub(crate) struct EdgeSearch;

impl Method for EdgeSearch {
    type Params = EdgeParams;

    fn name(&self) -> &'static str {
        "search"
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] =
            &[Metric::new("found", "1", Better::Higher, "The edge that was found")];
        METRICS
    }

    fn probe(&self) -> Result<Box<dyn Probe<EdgeParams>>, Failure> {
        Ok(Box::new(EdgeProbe))
    }
}

struct EdgeProbe;

impl Probe<EdgeParams> for EdgeProbe {
    fn measure(&mut self, _: &mut Context, params: &EdgeParams) -> Result<Measurement, Failure> {
        let edge = params.edge as f64;
        let search = Search { low: 0.0, high: 100.0, precision: 0.5, confirmations: 2 };
        let mut trials = 0;
        let found = largest(&search, |level| {
            trials += 1;
            // Every fifth trial stalls.
            let shown = match (trials % 5 == 0, level <= edge) {
                (true, _) => TrialVerdict::Void("planted stall".into()),
                (false, true) => TrialVerdict::Holds,
                (false, false) => TrialVerdict::Fails,
            };
            Ok((shown, Values::new()))
        })?;
        let level = found.level.ok_or_else(|| Failure::check("nothing was found"))?;
        Ok(Measurement { trials: found.trials, ..Measurement::default().value("found", level) })
    }
}

const TABLE: &str = "prepared";

/// What the host must make.
#[derive(Clone, Copy, LevelType)]
pub(crate) enum Artefact {
    /// A file.
    Table,
    /// Nothing: it always fails.
    Impossible,
}

/// Levels of `artefact`.
#[derive(Params)]
pub(crate) struct ArtefactParams {
    /// What the host must make
    #[factor(default = "table")]
    artefact: Artefact,
}

/// Returns the recipe of an artefact.
pub(crate) fn recipe(artefact: Artefact) -> Recipe {
    Recipe { name: format!("planted-{artefact}"), inputs: vec![TABLE.into()], make }
}

fn make(recipe: &Recipe, folder: &Path) -> Result<(), Failure> {
    if recipe.name.ends_with("impossible") {
        return Err(Failure::unavailable("planted: it cannot be made", "none: it is planted"));
    }
    std::fs::write(folder.join("table"), TABLE).map_err(Failure::from)
}

/// Reads an artefact.
pub(crate) struct Prepared;

impl Method for Prepared {
    type Params = ArtefactParams;

    fn name(&self) -> &'static str {
        "artefact"
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[Metric::time("time", "Always 1")];
        METRICS
    }

    fn artefacts(&self, params: &ArtefactParams) -> Vec<Recipe> {
        vec![recipe(params.artefact)]
    }

    fn probe(&self) -> Result<Box<dyn Probe<ArtefactParams>>, Failure> {
        Ok(Box::new(PreparedProbe))
    }
}

struct PreparedProbe;

impl Probe<ArtefactParams> for PreparedProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &ArtefactParams,
    ) -> Result<Measurement, Failure> {
        let name = recipe(params.artefact).name;
        let table = std::fs::read_to_string(context.artefact(&name)?.join("table"))?;
        if table != TABLE {
            return Err(Failure::check(format!("the artefact holds '{table}'")));
        }
        Ok(Measurement::default().value("time", 1.0))
    }
}
