//! Small programs under mechanisms that enforce bounds: the overhead of each mechanism, and which planted bugs it
//! catches.

mod build;
mod child;
pub(crate) mod cli;
mod compiler;
pub(crate) mod detection;
mod manifest;
mod outcomes;
mod programs;
mod table;
pub(crate) mod tables;
mod timed;

use std::time::Duration;

use lab::artefact::Recipe;
use lab::capability;
use lab::capability::Capability;
use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::quantity;
use lab::sample::Failure;

use manifest::Mechanism;

use crate::bounds_registers::has_mpx;

use programs::{Kernel, Printed};

/// Maximum size of the array: the indices of its structs fit into 32 bits.
const MAX_SIZE: u64 = 16 << 30;

/// Whether page faults are in the timed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
enum FaultTiming {
    /// In the timed part.
    Fresh,
    /// Before the timed part.
    Prefaulted,
}

/// Params of `kernels`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct KernelParams {
    /// the program: the four of Intel MPX Explained, and two more
    #[factor(default = "arraywrite")]
    kernel: Kernel,
    /// the mechanism that enforces bounds, from mechanisms.toml
    #[factor(default = "gcc")]
    mechanism: &'static Mechanism,
    /// bytes of the char array, from which the other arrays follow; Intel MPX Explained uses 1 GiB
    #[factor(default = "1 MiB", levels = Levels::Bytes(1, MAX_SIZE))]
    size: u64,
    /// whether page faults are in the timed part (fresh) or before it
    #[factor(default = "prefaulted")]
    pages: FaultTiming,
}

impl KernelParams {
    /// Returns the maximum memory of the program, in bytes.
    fn memory(&self) -> u64 {
        let for_pointers = self.mechanism.pointer_memory.filter(|_| self.kernel.has_pointers());
        let factor = for_pointers.unwrap_or(self.mechanism.memory);
        (self.kernel.data(self.size) as f64 * factor) as u64
    }

    /// Returns a generous estimate of the time of a sample, for time limits.
    fn expected(&self) -> Result<Duration, Failure> {
        /// Seconds per plain operation, and per byte that is touched for the first time.
        const OPERATION: f64 = 1.5e-9;
        const FIRST_TOUCH: f64 = 0.3e-9;
        check_mechanism(self.mechanism)?;
        let operations = self.kernel.expected(self.size, false).operations as f64;
        // The last pass checks the result.
        let passes = match self.pages {
            FaultTiming::Prefaulted => 13.0,
            FaultTiming::Fresh => 2.0,
        };
        let work = operations * OPERATION * passes * self.mechanism.slowdown
            + self.memory() as f64 * FIRST_TOUCH;
        let start = quantity::duration(&self.mechanism.start);
        let start = start.map_err(|wrong| Failure::failed(wrong.to_string()))?;
        Ok(start + Duration::from_secs_f64(work))
    }
}

/// Times kernels under mechanisms.
pub(crate) struct Kernels;

impl Method for Kernels {
    type Params = KernelParams;

    fn name(&self) -> &'static str {
        "kernels"
    }

    fn how(&self) -> &'static str {
        "A program compiled with the mechanism reads the time-stamp counter around its loop: once over fresh \
         pages, or for the median of 11 passes over prefaulted ones. Number of operations and checksum that \
         it prints must be those that tollgate computes."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &KernelParams) -> Result<(), Failure> {
        check_mechanism(params.mechanism)
    }

    fn expected(&self, params: &KernelParams, _: Duration) -> Duration {
        params.expected().unwrap_or_default()
    }

    fn artefacts(&self, params: &KernelParams) -> Vec<Recipe> {
        match check_mechanism(params.mechanism) {
            Ok(()) => vec![build::recipe(params.kernel.name(), params.mechanism)],
            Err(_) => Vec::new(),
        }
    }

    fn foreign_code(&self, params: &KernelParams) -> Vec<&'static str> {
        let valgrind = "valgrind, which translates the program while it runs";
        let is_run = !params.mechanism.runner.is_empty();
        let library =
            "the libraries that the programs of the kernels load, e.g. that of a sanitizer";
        is_run.then_some(valgrind).into_iter().chain([library]).collect()
    }

    fn probe(&self) -> Result<Box<dyn Probe<KernelParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

const METRICS: &[Metric] = &[
    Metric::time("time", "the timed part"),
    Metric::time("per_operation", "one access, call or block").called("time per operation"),
    Metric::new("memory", "B", Better::Lower, "maximum memory of the program"),
    Metric::count(
        "operations_checked",
        "accesses, calls or blocks of the program, whose result is right",
    ),
];

fn measure(context: &mut Context, params: &KernelParams) -> Result<Measurement, Failure> {
    let tsc = match context.tsc() {
        // The program runs and its result is checked; only its time is meaningless.
        Err(_) if machine::cpu::lacks_time() => None,
        tsc => Some(tsc?),
    };
    check_mechanism(params.mechanism)?;
    let KernelParams { kernel, mechanism, size, pages } = *params;
    let name = build::name(kernel.name(), &mechanism.name);
    let program = context.artefact(&name)?.join(build::PROGRAM);
    child::has_memory(params.memory())?;
    let exit = child::run(mechanism, &program, &[&size.to_string(), pages.name()])?;
    if !exit.status.success() {
        return Err(Failure::failed(format!("{name}: {}", exit.describe())));
    }
    let printed = Printed::parse(&exit.output)?;
    printed.check(kernel.expected(size, pages == FaultTiming::Prefaulted))?;
    timed::record(&program);
    let operations = printed.operations.max(1) as f64;
    let measurement = Measurement::default()
        .value("memory", printed.memory as f64)
        .value("operations_checked", operations);
    let Some(tsc) = tsc else { return Ok(measurement) };
    let time = tsc.nanoseconds(printed.ticks.saturating_sub(tsc.overhead) as f64);
    Ok(measurement.value("time", time).value("per_operation", time / operations))
}

/// Checks that this machine has what a mechanism needs: its compiler, its runner and features of the CPU.
///
/// # Errors
/// Returns the first that is missing, with the remedy.
fn check_mechanism(mechanism: &'static Mechanism) -> Result<(), Failure> {
    compiler::program(mechanism.compiler()?)?;
    child::find_runner(mechanism)?;
    match mechanism.needs.machine.as_deref() {
        // LAM, linear address masking, ignores tags in pointers if Linux allows it.
        Some("top-byte-ignored") => match machine::cpu::has_kernel_flag("lam")? {
            true => Ok(()),
            false => Err(Failure::unavailable(
                "/proc/cpuinfo has no flag lam: the CPU does not ignore the top byte of a pointer",
                "use a CPU with LAM and Linux 6.4 or later with CONFIG_ADDRESS_MASKING",
            )),
        },
        Some(MANAGEMENT) => mpx_management(),
        None => Ok(()),
        Some(other) => Err(Failure::failed(format!(
            "mechanism '{}': unknown requirement '{other}' in mechanisms.toml",
            mechanism.name
        ))),
    }
}

/// Name of the capability of programs that GCC or ICC compile for MPX.
const MANAGEMENT: &str = "mpx-management";

/// Remedy for programs compiled for MPX, which no emulator executes.
const MANAGEMENT_REMEDY: &str =
    "use an Intel CPU from Skylake to Comet Lake and boot Linux 3.19 to 5.5";

/// Checks that programs compiled for MPX check bounds here. Their run-time library leaves MPX disabled, so that its
/// instructions are NOPs, unless Linux manages the tables of bounds. An emulated CPU executes them wrongly, whatever its
/// kernel manages: the suite's own code avoids the instructions that QEMU decodes wrongly, but compilers use them.
fn mpx_management() -> Result<(), Failure> {
    has_mpx().map_err(|failure| Failure { remedy: Some(MANAGEMENT_REMEDY.into()), ..failure })?;
    if machine::cpu::emulated() {
        let why = "QEMU decodes MPX instructions with an index or a displacement wrongly";
        return Err(Failure::unavailable(why, MANAGEMENT_REMEDY));
    }
    linux_manages_tables()
}

/// Checks that Linux manages the tables of bounds.
fn linux_manages_tables() -> Result<(), Failure> {
    /// `PR_MPX_ENABLE_MANAGEMENT` and `PR_MPX_DISABLE_MANAGEMENT` of Linux 3.19 to 5.5.
    const ENABLE: libc::c_int = 43;
    const DISABLE: libc::c_int = 44;
    // SAFETY: the call changes only the management of this process's tables, and is undone below. A kernel that knows it
    // refuses it with ENXIO if there is no directory, as here.
    let result = unsafe { libc::prctl(ENABLE, 0, 0, 0, 0) };
    let error = std::io::Error::last_os_error();
    if result == 0 {
        // SAFETY: as above.
        unsafe { libc::prctl(DISABLE, 0, 0, 0, 0) };
    }
    if result == 0 || error.raw_os_error() == Some(libc::ENXIO) {
        return Ok(());
    }
    let cause = "Linux does not manage tables of bounds";
    Err(Failure::unavailable(format!("{cause}: prctl: {error}"), MANAGEMENT_REMEDY)
        .with_cause(cause))
}

/// Returns the compilers and runners of the mechanisms as capabilities of this machine.
pub(crate) fn capabilities() -> Vec<Capability> {
    let Ok(manifest) = manifest::manifest() else { return Vec::new() };
    let compilers = manifest.compilers.iter().map(|one| {
        let found = compiler::find(one).map(|found| found.version);
        let about = "compiles the kernels with its bounds-checking mechanisms";
        capability::checked(format!("compiler-{}", one.name), about, found)
    });
    let runners = manifest.mechanisms.iter().filter(|one| !one.runner.is_empty());
    let runners = runners.map(|one| {
        let found = child::find_runner(one).map(|()| one.runner.join(" "));
        capability::checked(&one.name, &one.about, found)
    });
    let managed = mpx_management().map(|()| "by prctl".into());
    let about = "MPX as compilers use it, with tables that Linux manages";
    let management = capability::checked(MANAGEMENT, about, managed);
    compilers.chain(runners).chain([management]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::artefact;

    #[test]
    fn every_program_reports_the_result_of_its_kernel() {
        let mut tested = 0;
        for mechanism in &manifest::manifest().unwrap().mechanisms {
            for kernel in Kernel::ALL {
                let recipe = build::recipe(kernel.name(), mechanism);
                let program =
                    match check_mechanism(mechanism).and_then(|()| artefact::prepare(&recipe)) {
                        Ok(folder) => folder.join(build::PROGRAM),
                        Err(failure) if !failure.kind.is_fault() => {
                            let why = format!("{}: {failure}", mechanism.name);
                            machine::untested::note(
                                "every_program_reports_the_result_of_its_kernel",
                                &why,
                            );
                            break;
                        }
                        Err(failure) => panic!("{kernel} under {}: {failure}", mechanism.name),
                    };
                for (pages, size) in
                    [(FaultTiming::Fresh, 100_000_u64), (FaultTiming::Prefaulted, 65_536)]
                {
                    let arguments = [&size.to_string(), pages.name()];
                    let exit = child::run(mechanism, &program, &arguments).unwrap();
                    let name = format!("{kernel} under {}, {pages}", mechanism.name);
                    assert!(exit.status.success(), "{name}: {}", exit.describe());
                    let printed = Printed::parse(&exit.output).unwrap();
                    let expected = kernel.expected(size, pages == FaultTiming::Prefaulted);
                    printed.check(expected).unwrap_or_else(|e| panic!("{name}: {e}"));
                    assert!(printed.memory > 100 << 10, "{name}: {} B", printed.memory);
                    tested += 1;
                }
                machine::timed_code::collect();
                timed::record(&program);
                let recorded = machine::timed_code::take();
                // rdtsc
                let is_timed = |code: &[u8]| code.windows(2).any(|window| window == [0x0F, 0x31]);
                assert!(
                    recorded.omitted == 0 && recorded.loops.iter().any(|one| is_timed(&one.code)),
                    "{kernel} under {}: {recorded:x?}",
                    mechanism.name
                );
            }
        }
        assert!(tested >= 12, "no mechanism can run here");
    }

    #[test]
    fn memory_depends_on_kernel_and_mechanism() {
        let memory = |kernel, mechanism: &str| {
            let mechanism = manifest::mechanism(mechanism).unwrap();
            let params =
                KernelParams { kernel, mechanism, size: 1 << 30, pages: FaultTiming::Fresh };
            (params.memory() as f64 / f64::from(1 << 30) * 10.0).round()
        };
        assert_eq!(memory(Kernel::ArrayWrite, "gcc-tables"), 12.0);
        assert_eq!(memory(Kernel::PtrCreation, "gcc-tables"), 50.0);
        assert_eq!(memory(Kernel::Struct, "gcc"), 24.0);
    }

    #[test]
    fn an_unavailable_mechanism_has_a_remedy() {
        for mechanism in &manifest::manifest().unwrap().mechanisms {
            if let Err(failure) = check_mechanism(mechanism) {
                assert!(!failure.kind.is_fault(), "{}: {failure}", mechanism.name);
                assert!(
                    failure.remedy.is_some_and(|remedy| !remedy.is_empty()),
                    "{}",
                    mechanism.name
                );
            }
        }
    }
}
