//! Enclaves as the methods use them: loaded by name, entered, and checked.

use std::path::Path;

use lab::measure::Context;
use lab::sample::Failure;
use machine::timed_code;
use machine::tsc::Tsc;

use crate::conf::Conf;
use crate::error::EcallError;
use crate::images::{self, Image, supplied};
use crate::kinds::{self, Enclave, EnclaveKind};
use crate::params::EnclaveParams;

/// A loaded enclave.
pub struct LoadedEnclave {
    enclave: Box<dyn Enclave>,
}

/// A function that starts an enclave of a kind with an image.
type Loader = fn(EnclaveKind, &Image, &Conf) -> Result<Box<dyn Enclave>, Failure>;

impl LoadedEnclave {
    /// Loads the enclave described by `params`, with a user-supplied allocator from its artefact.
    ///
    /// # Errors
    /// Returns `unavailable` if this machine or build lacks the enclave kind or the allocator, and `failed` if the
    /// image does not start, e.g. because the heap is too small.
    pub fn load(params: &EnclaveParams, threads: u64, context: &Context) -> Result<Self, Failure> {
        Self::load_by(kinds::load, params, threads, context)
    }

    /// As [`Self::load`], but also if the kind's times would not be valid: for counts.
    ///
    /// # Errors
    /// As [`Self::load`], except for costs that are not the kind's.
    pub fn load_untimed(
        params: &EnclaveParams,
        threads: u64,
        context: &Context,
    ) -> Result<Self, Failure> {
        Self::load_by(kinds::load_untimed, params, threads, context)
    }

    fn load_by(
        load: Loader,
        params: &EnclaveParams,
        threads: u64,
        context: &Context,
    ) -> Result<Self, Failure> {
        let kind = params.kind;
        if let Some(library) = outside(params) {
            return Ok(Self { enclave: kinds::load_outside(library)? });
        }
        let conf = params.conf(threads);
        let image = match linked(params, context)? {
            Some(folder) => supplied::image(&params.allocator, folder)?,
            None => image(&params.allocator)?,
        };
        // Lets the enclave's process run on all CPUs of this process, and not only on the loading thread's.
        let _spread = match kind {
            EnclaveKind::Process => Some(machine::pin::spread(context.cpus).map_err(|why| {
                Failure::failed(format!("the CPUs of the enclave's process: {why}"))
            })?),
            EnclaveKind::None
            | EnclaveKind::Simulate
            | EnclaveKind::ArchPrctl
            | EnclaveKind::Kvm
            | EnclaveKind::Wasm
            | EnclaveKind::Sgx => None,
        };
        let enclave = load(kind, image, &conf)?;
        let code = kinds::inner_code(kind);
        if !code.is_empty() {
            let name = || format!("code of kind {kind} around the image, inside");
            timed_code::record_at(name, 0, code);
        }
        Ok(Self { enclave })
    }

    /// Returns the loaded enclave.
    pub fn enclave(&self) -> &dyn Enclave {
        &*self.enclave
    }

    /// Checks that code inside made no system call.
    ///
    /// # Errors
    /// Returns the number of blocked system calls.
    pub fn check_no_syscalls(&self) -> Result<(), Failure> {
        match self.enclave.blocked() {
            0 => Ok(()),
            blocked => {
                Err(Failure::check(format!("{blocked} system calls from inside were blocked")))
            }
        }
    }
}

/// Returns the counter that times the enclave; `None` on an emulated CPU, on which only counts are measured.
///
/// # Errors
/// Returns `unavailable` if another CPU has no usable counter.
pub fn clock(context: &Context) -> Result<Option<&'static Tsc>, Failure> {
    match context.tsc() {
        Ok(tsc) => Ok(Some(tsc)),
        Err(_) if machine::cpu::lacks_time() => Ok(None),
        Err(why) => Err(why),
    }
}

/// Returns the library of an allocator that runs outside, which needs no isolation.
fn outside(params: &EnclaveParams) -> Option<&'static Image> {
    match params.kind {
        EnclaveKind::None => images::find_outside(&params.allocator),
        EnclaveKind::Simulate
        | EnclaveKind::ArchPrctl
        | EnclaveKind::Process
        | EnclaveKind::Kvm
        | EnclaveKind::Wasm
        | EnclaveKind::Sgx => None,
    }
}

/// Returns the image or library of this program that a point executes; `None` if its allocator is user-supplied, or its kind
/// runs a module.
pub fn built_in(params: &EnclaveParams) -> Option<&'static Image> {
    match params.kind {
        EnclaveKind::Wasm => None,
        EnclaveKind::None
        | EnclaveKind::Simulate
        | EnclaveKind::ArchPrctl
        | EnclaveKind::Process
        | EnclaveKind::Kvm
        | EnclaveKind::Sgx => outside(params).or_else(|| images::find(&params.allocator)),
    }
}

/// Returns the code of others that a point executes inside, apart from allocators that are part of an image.
pub fn foreign_code(params: &EnclaveParams) -> Vec<&'static str> {
    if params.kind == EnclaveKind::Wasm {
        return vec!["modules of WebAssembly, which wasmtime compiles while it runs"];
    }
    match (outside(params).is_some(), params.allocator.as_str()) {
        (true, "glibc") => vec!["malloc of the C library, which the host has installed"],
        _ => Vec::new(),
    }
}

/// Returns the folder with the image of a user-supplied allocator, or `None` for a built-in allocator.
///
/// # Errors
/// Returns an error if the image could not be linked.
pub fn linked<'a>(
    params: &EnclaveParams,
    context: &'a Context,
) -> Result<Option<&'a Path>, Failure> {
    params.supplied().map(|path| context.artefact(&supplied::artefact(path))).transpose()
}

/// Checks that an enclave of this kind with this allocator can be loaded, and that its times are valid.
///
/// # Errors
/// Returns `unavailable`, with the cause and the fix.
pub fn available(params: &EnclaveParams) -> Result<(), Failure> {
    available_by(kinds::available, params)
}

fn available_by(
    available: fn(EnclaveKind) -> Result<(), Failure>,
    params: &EnclaveParams,
) -> Result<(), Failure> {
    if outside(params).is_some() {
        return Ok(());
    }
    if !supplied::is_path(&params.allocator) {
        image(&params.allocator)?;
    }
    kinds::has(params.kind, &params.allocator)?;
    available(params.kind)
}

/// As [`available`], for methods that need the enclave's own heap.
///
/// # Errors
/// As [`available`]; also if the allocator uses the system's heap, which grows.
pub fn available_with_own_heap(params: &EnclaveParams) -> Result<(), Failure> {
    available(params).and_then(|()| has_own_heap(params))
}

/// As [`available_with_own_heap`], for counts, which are valid regardless of the kind's times.
///
/// # Errors
/// As [`available_with_own_heap`], except for costs that are not the kind's.
pub fn runs_with_own_heap(params: &EnclaveParams) -> Result<(), Failure> {
    available_by(kinds::runs, params).and_then(|()| has_own_heap(params))
}

fn has_own_heap(params: &EnclaveParams) -> Result<(), Failure> {
    if images::find_outside(&params.allocator).is_none() {
        return Ok(());
    }
    Err(Failure::unavailable(
        format!("{} is outside an enclave, on the system's heap, which grows", params.allocator),
        format!("use an allocator that runs inside: {}", inside()),
    ))
}

/// Returns the names of the allocators that run inside.
fn inside() -> String {
    images::all().iter().map(|image| image.allocator).collect::<Vec<_>>().join(", ")
}

fn image(allocator: &str) -> Result<&'static Image, Failure> {
    images::find(allocator).ok_or_else(|| {
        if images::find_outside(allocator).is_some() {
            let why =
                format!("{allocator} needs an operating system, so it cannot run in an enclave");
            Failure::unavailable(why, format!("use kind=none, or one of {}", inside()))
        } else {
            let why = format!("this build of tollgate has no enclave image with {allocator}");
            Failure::unavailable(why, format!("use one of {}", inside()))
        }
    })
}

/// The numbers of failed allocations in a thread's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocErrors {
    /// Allocations that returned NULL.
    pub nulls: u64,
    /// Pointers outside the enclave's heap.
    pub outside: u64,
}

impl AllocErrors {
    /// Decodes a result: NULLs in the low half, pointers outside in the high half.
    pub fn from_answer(answer: u64) -> Self {
        Self { nulls: answer & 0xffff_ffff, outside: answer >> 32 }
    }
}

/// An error in a thread's work. It invalidates the time, because failures are fast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// Allocations returned NULL.
    #[error("thread {thread}: {nulls} allocations returned NULL: the heap is too small")]
    Null {
        /// The thread's index.
        thread: usize,
        /// Number of allocations.
        nulls: u64,
    },
    /// Pointers were outside the heap.
    #[error("thread {thread}: {outside} pointers were outside the enclave's heap")]
    Outside {
        /// The thread's index.
        thread: usize,
        /// Number of pointers.
        outside: u64,
    },
    /// The ECALL failed.
    #[error("thread {thread}: the ECALL failed: {why}")]
    Ecall {
        /// The thread's index.
        thread: usize,
        /// The reason.
        why: String,
    },
}

impl From<WorkError> for Failure {
    fn from(flaw: WorkError) -> Self {
        Self::check(flaw.to_string())
    }
}

/// Checks that no thread's work failed.
///
/// # Errors
/// Returns the first error.
pub fn check_answers(answers: &[Result<u64, EcallError>]) -> Result<(), WorkError> {
    for (thread, answer) in answers.iter().enumerate() {
        match answer.as_ref().map(|answer| AllocErrors::from_answer(*answer)) {
            Ok(AllocErrors { nulls: 0, outside: 0 }) => {}
            Ok(AllocErrors { nulls, outside: 0 }) => return Err(WorkError::Null { thread, nulls }),
            Ok(AllocErrors { outside, .. }) => return Err(WorkError::Outside { thread, outside }),
            Err(why) => return Err(WorkError::Ecall { thread, why: why.to_string() }),
        }
    }
    Ok(())
}

/// Returns the result of an ECALL of the first thread.
///
/// # Errors
/// Returns the error of the ECALL.
pub fn checked(answer: Result<u64, EcallError>) -> Result<u64, Failure> {
    answer.map_err(|why| failed(0, &why))
}

/// Converts a thread's failed ECALL to a failure.
pub fn failed(thread: usize, why: &EcallError) -> Failure {
    WorkError::Ecall { thread, why: why.to_string() }.into()
}

#[cfg(test)]
mod tests {
    use lab::method::Params;

    use super::*;

    #[test]
    fn a_result_contains_nulls_and_pointers_outside() {
        assert_eq!(AllocErrors::from_answer(0), AllocErrors::default());
        assert_eq!(AllocErrors::from_answer(3 << 32 | 7), AllocErrors { nulls: 7, outside: 3 });
    }

    #[test]
    fn one_error_of_one_thread_fails_all() {
        assert_eq!(check_answers(&[Ok(0), Ok(0)]), Ok(()));
        let why = |answers| check_answers(answers).unwrap_err().to_string();
        assert_eq!(
            why(&[Ok(0), Ok(2)]),
            "thread 1: 2 allocations returned NULL: the heap is too small"
        );
        assert!(why(&[Ok(1 << 32), Ok(0)]).contains("1 pointers were outside"));
        assert!(
            why(&[Err(EcallError::OutOfThreads { tcs: 1 })])
                .starts_with("thread 0: the ECALL failed")
        );
    }

    #[test]
    fn a_missing_allocator_is_unavailable_by_name() {
        let params = |kind: &str, allocator: &str| {
            let point = lab::point::Point::from([("kind", kind), ("allocator", allocator)]);
            EnclaveParams::with_defaults(&point).unwrap()
        };
        let failure = available(&params("simulate", "glibc")).unwrap_err();
        assert!(failure.why.contains("glibc needs an operating system"), "{failure}");
        assert!(failure.remedy.unwrap().contains("dlmalloc"));
        // The machine decides whether a built-in allocator is available.
        let expected = kinds::available(EnclaveKind::Simulate);
        assert_eq!(available(&params("simulate", "snmalloc")), expected);
        for allocator in ["snmalloc", "./libmine.a"] {
            let failure = available(&params("wasm", allocator)).unwrap_err();
            let (why, remedy) = if cfg!(feature = "wasm") {
                (&*format!("{allocator} has no module"), "use one of buddy")
            } else {
                ("no WebAssembly", "--features wasm")
            };
            assert!(failure.why.contains(why), "{failure}");
            assert!(failure.remedy.unwrap().contains(remedy));
        }
    }

    #[test]
    fn allocators_that_need_a_system_are_only_outside_and_have_no_heap_of_their_own() {
        for allocator in ["glibc", "scudo"] {
            let point = lab::point::Point::from([("kind", "none"), ("allocator", allocator)]);
            let params = EnclaveParams::with_defaults(&point).unwrap();
            assert_eq!(available(&params), Ok(()));
            let failure = available_with_own_heap(&params).unwrap_err();
            assert!(
                failure.why.contains(&format!("{allocator} is outside an enclave")),
                "{failure}"
            );
            assert!(failure.remedy.unwrap().contains("dlmalloc"));
            for kind in [
                EnclaveKind::Simulate,
                EnclaveKind::ArchPrctl,
                EnclaveKind::Process,
                EnclaveKind::Wasm,
            ] {
                let params = EnclaveParams { kind, ..params.clone() };
                let failure = available(&params).unwrap_err();
                assert!(failure.why.contains("needs an operating system"), "{failure}");
                assert!(failure.remedy.unwrap().contains("kind=none"));
            }
        }
    }
}
