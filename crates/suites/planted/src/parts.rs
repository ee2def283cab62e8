//! Roles, searches and artefacts with known results.

use std::path::Path;
use std::time::{Duration, Instant};

use lab::artefact::Recipe;
use lab::measure::{Context, Measurement};
use lab::point::Point;
use lab::sample::Failure;
use lab::search::{Search, Shown, Values, largest};
use lab::suite::Probe;

fn count(point: &Point, factor: &str) -> Result<u64, Failure> {
    point
        .get(factor)
        .and_then(lab::point::Level::count)
        .ok_or_else(|| Failure::failed(format!("the point has no '{factor}'")))
}

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

pub(crate) struct Roles;

impl Probe for Roles {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let wait = Duration::from_millis(count(point, "wait")?);
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
        let disturbed = point.text("disturbance") == "drift-and-stalls";
        let void = disturbed.then(|| "planted stall".to_string());
        Ok(Measurement { void, ..times.value("waited", waited) })
    }
}

pub(crate) struct Edge;

impl Probe for Edge {
    fn measure(&mut self, _: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let edge = count(point, "edge")? as f64;
        let search = Search { low: 0.0, high: 100.0, precision: 0.5, confirmations: 2 };
        let mut trials = 0;
        let found = largest(&search, |level| {
            trials += 1;
            // Every fifth trial stalls.
            let shown = match (trials % 5 == 0, level <= edge) {
                (true, _) => Shown::Void("planted stall".into()),
                (false, true) => Shown::Holds,
                (false, false) => Shown::Fails,
            };
            Ok((shown, Values::new()))
        })?;
        let level = found.level.ok_or_else(|| Failure::check("nothing was found"))?;
        Ok(Measurement { trials: found.trials, ..Measurement::default().value("found", level) })
    }
}

const TABLE: &str = "prepared";

/// How to make the artefact of a point.
pub(crate) fn recipe(name: &str) -> Recipe {
    Recipe { name: format!("planted-{name}"), inputs: vec![TABLE.into()], make }
}

fn make(recipe: &Recipe, folder: &Path) -> Result<(), Failure> {
    if recipe.name.ends_with("impossible") {
        return Err(Failure::unavailable("planted: it cannot be made", "none: it is planted"));
    }
    std::fs::write(folder.join("table"), TABLE).map_err(Failure::from)
}

pub(crate) struct Artefact;

impl Probe for Artefact {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let name = format!("planted-{}", point.text("artefact"));
        let table = std::fs::read_to_string(context.artefact(&name)?.join("table"))?;
        if table != TABLE {
            return Err(Failure::check(format!("the artefact holds '{table}'")));
        }
        Ok(Measurement::default().value("time", 1.0))
    }
}
