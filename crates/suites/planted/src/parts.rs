//! Roles, a search and artefacts with known results.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use lab::artefact::Recipe;
use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use lab::search::{Search, TrialVerdict, Values, largest};
use rustix::time::{ClockId, clock_gettime};

use crate::delay::Disturbance;

/// Returns the time in us by CLOCK_MONOTONIC, which all processes of a host share.
fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Params of `roles`.
#[derive(Params)]
pub(crate) struct RoleParams {
    /// waiting time of the generator, in ms
    #[factor(default = "2", levels = Levels::Count(0, 10_000))]
    wait: u64,
    /// injected disturbance
    #[factor(default = "calm")]
    disturbance: Disturbance,
}

/// The method `roles`: starts two roles together; one stops the other.
pub(crate) struct Roles;

impl Method for Roles {
    type Params = RoleParams;

    fn name(&self) -> &'static str {
        "roles"
    }

    fn how(&self) -> &'static str {
        "Two processes start together, and one stops the other after a known wait, which the other one times. \
         The stop must arrive within 60 s with the wait in its message."
    }

    fn metrics(&self) -> &'static [Metric] {
        use Better::Neither;
        const METRICS: &[Metric] = &[
            Metric::new("waited", "ns", Neither, "from start to stop"),
            Metric::count("sent", "stops sent"),
            Metric::new("dut_ready_at", "us", Neither, "time at which the DUT was ready"),
            Metric::new("dut_started_at", "us", Neither, "time at which the DUT started"),
            Metric::new("dut_stopped_at", "us", Neither, "time at which the DUT stopped"),
            Metric::new(
                "generator_ready_at",
                "us",
                Neither,
                "time at which the generator was ready",
            ),
            Metric::new(
                "generator_started_at",
                "us",
                Neither,
                "time at which the generator started",
            ),
            Metric::new(
                "generator_stopped_at",
                "us",
                Neither,
                "time at which the generator stopped",
            ),
        ];
        METRICS
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["planted::parts"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<RoleParams>>, Failure> {
        Ok(Box::new(measure_role))
    }
}

fn measure_role(context: &mut Context, params: &RoleParams) -> Result<Measurement, Failure> {
    let wait = Duration::from_millis(params.wait);
    let ready = now();
    context.ready()?;
    let (start, started) = (Instant::now(), now());
    // Each role has its own metrics: a metric of two roles is an error.
    let role = context.role;
    let of_role = |time: &str| format!("{role}_{time}");
    let times = Measurement::default()
        .value(&of_role("ready_at"), ready)
        .value(&of_role("started_at"), started);
    if role == "generator" {
        std::thread::sleep(wait);
        let times = times.value(&of_role("stopped_at"), now());
        context.send(BTreeMap::from([("wait".to_owned(), params.wait as f64)]))?;
        context.stop()?;
        return Ok(times.value("sent", 1.0));
    }
    while !context.stopped() {
        if start.elapsed() > Duration::from_secs(60) {
            return Err(Failure::check("no stop within 60 s"));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    let waited = start.elapsed().as_nanos() as f64;
    let times = times.value(&of_role("stopped_at"), now());
    let received = context.message().and_then(|message| message.values.get("wait").copied());
    if received != Some(params.wait as f64) {
        return Err(Failure::check(format!("the generator sent {received:?}")));
    }
    let void = match params.disturbance {
        Disturbance::Calm => None,
        Disturbance::DriftAndStalls => Some("planted stall".into()),
    };
    Ok(Measurement { void, ..times.value("waited", waited) })
}

/// Params of `search`.
#[derive(Params)]
pub(crate) struct EdgeParams {
    /// highest level at which the condition is true
    #[factor(default = "30", levels = Levels::Count(0, 1000))]
    edge: u64,
}

/// The method `search`: searches for a known edge.
pub(crate) struct EdgeSearch;

impl Method for EdgeSearch {
    type Params = EdgeParams;

    fn name(&self) -> &'static str {
        "search"
    }

    fn how(&self) -> &'static str {
        "A search looks for a known edge, and every fifth trial is void as if it had stalled; nothing is \
         timed. The probe checks only that an edge was found: the project's tests compare it."
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[Metric::new("found", "1", Better::Higher, "the edge found")];
        METRICS
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["planted::parts"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<EdgeParams>>, Failure> {
        Ok(Box::new(measure_edge))
    }
}

fn measure_edge(_: &mut Context, params: &EdgeParams) -> Result<Measurement, Failure> {
    let edge = params.edge as f64;
    let search = Search { low: 0.0, high: 100.0, precision: 0.5, confirmations: 2 };
    let mut trials = 0;
    let found = largest(&search, |level| {
        trials += 1;
        // Every fifth trial stalls.
        let verdict = match (trials % 5 == 0, level <= edge) {
            (true, _) => TrialVerdict::Void("planted stall".into()),
            (false, true) => TrialVerdict::Holds,
            (false, false) => TrialVerdict::Fails,
        };
        Ok((verdict, Values::new()))
    })?;
    let level = found.level.ok_or_else(|| Failure::check("no edge was found"))?;
    Ok(Measurement { trials: found.trials, ..Measurement::default().value("found", level) })
}

const TABLE: &str = "prepared";

/// An artefact that the host must make.
#[derive(Clone, Copy, LevelType)]
pub(crate) enum Artefact {
    /// A file.
    Table,
    /// Not makeable: the recipe always fails.
    Impossible,
}

/// Params of `artefact`.
#[derive(Params)]
pub(crate) struct ArtefactParams {
    /// artefact that the host must make
    #[factor(default = "table")]
    artefact: Artefact,
}

/// Returns the recipe of an artefact.
pub(crate) fn recipe(artefact: Artefact) -> Recipe {
    let make = match artefact {
        Artefact::Table => make_table,
        Artefact::Impossible => make_nothing,
    };
    Recipe { name: format!("planted-{artefact}"), inputs: vec![TABLE.into()], make }
}

fn make_table(_: &Recipe, folder: &Path) -> Result<(), Failure> {
    std::fs::write(folder.join("table"), TABLE).map_err(Failure::from)
}

fn make_nothing(_: &Recipe, _: &Path) -> Result<(), Failure> {
    Err(Failure::unavailable("planted: it cannot be made", "none: it is planted"))
}

/// The method `artefact`: reads an artefact.
pub(crate) struct Prepared;

impl Method for Prepared {
    type Params = ArtefactParams;

    fn name(&self) -> &'static str {
        "artefact"
    }

    fn how(&self) -> &'static str {
        "A point needs an artefact that the host makes before the first sample. Its value is known."
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[Metric::time("time", "always 1")];
        METRICS
    }

    fn artefacts(&self, params: &ArtefactParams) -> Vec<Recipe> {
        vec![recipe(params.artefact)]
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["planted::parts"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<ArtefactParams>>, Failure> {
        Ok(Box::new(measure_artefact))
    }
}

fn measure_artefact(
    context: &mut Context,
    params: &ArtefactParams,
) -> Result<Measurement, Failure> {
    let name = recipe(params.artefact).name;
    let table = std::fs::read_to_string(context.artefact(&name)?.join("table"))?;
    if table != TABLE {
        return Err(Failure::check(format!("the artefact contains '{table}'")));
    }
    Ok(Measurement::default().value("time", 1.0))
}
