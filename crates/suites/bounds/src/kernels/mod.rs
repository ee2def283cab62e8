//! Small programs under mechanisms that keep them inside their bounds: what each costs, and which
//! planted bugs it catches.

mod build;
mod child;
mod compiler;
pub(crate) mod detection;
pub(crate) mod hand;
mod kernel;
mod manifest;
mod outcomes;
mod printed;
mod sources;
mod table;

use std::time::Duration;

use lab::factor::{Factor, Levels};
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::metric::{Better, Metric};
use lab::point::Point;
use lab::quantity;
use lab::sample::Failure;
use lab::suite::Capability;

use crate::way::Way;
use kernel::Kernel;
use manifest::Mechanism;
use printed::Printed;

/// The factor that both ways of this module share.
const MECHANISM: Factor = Factor {
    name: "mechanism",
    about: "what keeps the program inside its bounds, as in mechanisms.toml",
    levels: Levels::Checked(manifest::spelled),
    default: None,
};

const PREFAULTED: &str = "prefaulted";

/// Kernels under mechanisms.
pub(crate) static WAY: Way = Way {
    name: "kernels",
    factors: &[
        Factor {
            name: "kernel",
            about: "the program: the source's four, and two more",
            levels: Levels::Names(kernel::NAMES),
            default: None,
        },
        MECHANISM,
        Factor {
            name: "size",
            about: "bytes of the array of char; the others follow it. The source's is 1 GiB",
            levels: Levels::Bytes(1, MAX_SIZE),
            default: None,
        },
        Factor {
            name: "pages",
            about: "whether page faults are in the timed part (fresh) or before it",
            levels: Levels::Names(&["fresh", PREFAULTED]),
            default: None,
        },
    ],
    metrics: &[
        Metric::time("time", "the timed part"),
        Metric::time("per_operation", "an access, a call or a block"),
        Metric::new("memory", "B", Better::Lower, "most memory that the program had"),
    ],
    available: |point| here(point).map(drop),
    expected: |point, _| expected(point).unwrap_or_default(),
    artefacts: |point| {
        let mechanism = here(point);
        mechanism.map(|one| vec![build::recipe(point.text("kernel"), one)]).unwrap_or_default()
    },
    probe: || Box::new(Kernels),
};

fn mechanism_of(point: &Point) -> Result<&'static Mechanism, Failure> {
    manifest::mechanism(point.text("mechanism"))
}

/// The mechanism of a point, where it can run here.
fn here(point: &Point) -> Result<&'static Mechanism, Failure> {
    let mechanism = mechanism_of(point)?;
    ready(mechanism).map(|()| mechanism)
}

/// Whether a mechanism's programs can be made and run here, as far as can be seen without trying.
fn ready(mechanism: &'static Mechanism) -> Result<(), Failure> {
    compiler::program(mechanism.compiler()?)?;
    child::runs(mechanism)?;
    match mechanism.needs.machine.as_deref() {
        Some("top-byte-ignored") if !top_byte_ignored() => Err(Failure::unavailable(
            "/proc/cpuinfo has no flag lam: the top byte of a pointer is not ignored",
            "use a CPU with LAM and a Linux of 6.4 or later with CONFIG_ADDRESS_MASKING",
        )),
        Some(name) => lab::capability::has(name),
        None => Ok(()),
    }
}

/// Linear address masking, by which x86 ignores tags in pointers; Linux shows it where it allows it.
fn top_byte_ignored() -> bool {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpus.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "lam"))
}

/// What the mechanisms need of this machine: compilers, and programs that run others.
pub(crate) fn capabilities() -> Vec<Capability> {
    let Ok(manifest) = manifest::manifest() else { return Vec::new() };
    let state = |found: Result<String, Failure>| lab::capability::state_of(found);
    let compilers = manifest.compilers.iter().map(|one| Capability {
        name: format!("compiler-{}", one.name),
        about: "compiles kernels under its mechanisms".into(),
        state: state(compiler::find(one).map(|found| found.version)),
    });
    let runners = manifest.mechanisms.iter().filter(|one| !one.runner.is_empty());
    let runners = runners.map(|one| Capability {
        name: one.name.clone(),
        about: one.about.clone(),
        state: state(child::runs(one).map(|()| one.runner.join(" "))),
    });
    compilers.chain(runners).collect()
}

/// The largest array: indices of its structs fit words of 32 bits.
const MAX_SIZE: u64 = 16 << 30;

struct Setting {
    kernel: Kernel,
    mechanism: &'static Mechanism,
    size: u64,
    prefaulted: bool,
}

impl Setting {
    fn of(point: &Point) -> Result<Self, Failure> {
        let size = quantity::bytes(point.text("size"));
        let size = size.map_err(|wrong| Failure::failed(wrong.to_string()))?;
        if !(1..=MAX_SIZE).contains(&size) {
            let remedy = format!("choose a size from 1 B to {}", quantity::format_bytes(MAX_SIZE));
            let size = quantity::format_bytes(size);
            return Err(Failure::unavailable(format!("an array of {size}"), remedy));
        }
        Ok(Self {
            kernel: Kernel::of(point.text("kernel"))?,
            mechanism: mechanism_of(point)?,
            size,
            prefaulted: point.text("pages") == PREFAULTED,
        })
    }

    /// Bytes of memory that the program may hold.
    fn memory(&self) -> u64 {
        let own = self.mechanism.pointer_memory.filter(|_| self.kernel.holds_pointers());
        let times = own.unwrap_or(self.mechanism.memory);
        (self.kernel.data(self.size) as f64 * times) as u64
    }
}

/// How long a sample takes, roughly and rather too long: limits hang on it.
fn expected(point: &Point) -> Result<Duration, Failure> {
    /// Of a plain operation, seconds; of a byte that comes from the system for the first time.
    const OPERATION: f64 = 1.5e-9;
    const FIRST_TOUCH: f64 = 0.3e-9;
    here(point)?;
    let setting = Setting::of(point)?;
    let operations = setting.kernel.expected(setting.size, false).operations as f64;
    // The last one checks.
    let passes = if setting.prefaulted { 13.0 } else { 2.0 };
    let slower = setting.mechanism.slowdown;
    let work = operations * OPERATION * passes * slower + setting.memory() as f64 * FIRST_TOUCH;
    let start = quantity::duration(&setting.mechanism.start);
    let start = start.map_err(|wrong| Failure::failed(wrong.to_string()))?;
    Ok(start + Duration::from_secs_f64(work))
}

struct Kernels;

impl Probe for Kernels {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let tsc = context.tsc()?;
        here(point)?;
        let setting = Setting::of(point)?;
        let name = build::name(setting.kernel.name(), &setting.mechanism.name);
        let program = context.artefact(&name)?.join(build::PROGRAM);
        child::has_memory(setting.memory())?;
        let size = setting.size.to_string();
        let ended = child::run(setting.mechanism, &program, &[&size, point.text("pages")])?;
        if !ended.status.success() {
            return Err(Failure::failed(format!("{name}: {}", ended.told())));
        }
        let printed = Printed::parse(&ended.output)?;
        printed.check(setting.kernel.expected(setting.size, setting.prefaulted))?;
        let ticks = printed.ticks.saturating_sub(tsc.overhead);
        let time = tsc.nanoseconds(ticks as f64);
        Ok(Measurement::default()
            .value("time", time)
            .value("per_operation", time / printed.operations.max(1) as f64)
            .value("memory", printed.memory as f64))
    }
}

#[cfg(test)]
mod tests;
