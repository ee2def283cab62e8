//! Enclaves as the experiments use them: loaded by name, entered, and checked.

use std::path::Path;

use lab::measure::Context;
use lab::sample::Failure;

use crate::error::EcallError;
use crate::images::{self, Image, supplied};
use crate::kinds::{self, Enclave, EnclaveKind};
use crate::params::EnclaveParams;

/// A loaded enclave.
pub struct LoadedEnclave {
    enclave: Box<dyn Enclave>,
}

impl LoadedEnclave {
    /// Loads what a params asks for; a person's own allocator from the artefact that was made of it.
    ///
    /// # Errors
    /// What this machine or build lacks, or why it does not load: a heap too small for its allocator.
    pub fn load(params: &EnclaveParams, threads: u64, context: &Context) -> Result<Self, Failure> {
        let kind = params.kind;
        if let (EnclaveKind::None, Some(library)) = (kind, images::find_outside(&params.allocator))
        {
            return Ok(Self { enclave: kinds::load_outside(library)? });
        }
        let conf = params.conf(threads);
        let image = match linked(params, context)? {
            Some(folder) => supplied::image(&params.allocator, folder)?,
            None => image(&params.allocator)?,
        };
        // Another process serves where this one's threads may run, and not on the one CPU of who loads.
        let _spread = (kind == EnclaveKind::Process)
            .then(|| machine::pin::spread(context.cpus))
            .transpose()
            .map_err(|why| Failure::failed(format!("the enclave's process: its CPUs: {why}")))?;
        Ok(Self { enclave: kinds::load(kind, image, &conf)? })
    }

    /// What is entered.
    pub fn enclave(&self) -> &dyn Enclave {
        &*self.enclave
    }

    /// That nothing inside tried what an inside must not.
    ///
    /// # Errors
    /// How many system calls were blocked.
    pub fn check_no_syscalls(&self) -> Result<(), Failure> {
        match self.enclave.blocked() {
            0 => Ok(()),
            blocked => {
                Err(Failure::check(format!("{blocked} system calls from inside were blocked")))
            }
        }
    }
}

/// Where the image of a person's own allocator was made; none where the allocator is one of ours.
///
/// # Errors
/// It could not be made.
pub fn linked<'a>(
    params: &EnclaveParams,
    context: &'a Context,
) -> Result<Option<&'a Path>, Failure> {
    params.supplied().map(|path| context.artefact(&supplied::artefact(path))).transpose()
}

/// Whether an enclave of this kind and allocator can be loaded here.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(params: &EnclaveParams) -> Result<(), Failure> {
    let kind = params.kind;
    if kind == EnclaveKind::None && images::find_outside(&params.allocator).is_some() {
        return Ok(());
    }
    if !supplied::is_path(&params.allocator) {
        image(&params.allocator)?;
    }
    kinds::has(kind, &params.allocator)?;
    kinds::available(kind)
}

/// The same where the heap must be the enclave's own, to be loaded, searched or drained.
///
/// # Errors
/// As [`available`]; or the heap is the system's, which grows.
pub fn available_with_own_heap(params: &EnclaveParams) -> Result<(), Failure> {
    available(params)?;
    if images::find_outside(&params.allocator).is_none() {
        return Ok(());
    }
    Err(Failure::unavailable(
        format!("{} is outside, on the system's heap, which grows", params.allocator),
        format!("take an allocator that enclaves can have: {}", inside()),
    ))
}

/// The allocators that enclaves can have.
fn inside() -> String {
    images::all().iter().map(|image| image.allocator).collect::<Vec<_>>().join(", ")
}

fn image(allocator: &str) -> Result<&'static Image, Failure> {
    images::find(allocator).ok_or_else(|| {
        if images::find_outside(allocator).is_some() {
            let why =
                format!("{allocator} needs an operating system below it, so no enclave has it");
            Failure::unavailable(why, format!("measure kind=none, or one of {}", inside()))
        } else {
            let why = format!("this build of tollgate has no enclave image with {allocator}");
            Failure::unavailable(why, format!("measure one of {}", inside()))
        }
    })
}

/// What came to nothing in a thread's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocErrors {
    /// Allocations that result NULL.
    pub nulls: u64,
    /// Pointers outside the enclave's heap.
    pub outside: u64,
}

impl AllocErrors {
    /// What a part's answer says: NULLs in the low half, pointers outside in the high half.
    pub fn from_answer(answer: u64) -> Self {
        Self { nulls: answer & 0xffff_ffff, outside: answer >> 32 }
    }
}

/// What went wrong in a thread's part: failures are fast, and their time is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// Allocations result NULL.
    #[error("thread {thread}: {nulls} allocations returned NULL: the heap is too small")]
    Null {
        /// The thread's number.
        thread: usize,
        /// How many.
        nulls: u64,
    },
    /// Pointers lay outside.
    #[error("thread {thread}: {outside} pointers lay outside the enclave's heap")]
    Outside {
        /// The thread's number.
        thread: usize,
        /// How many.
        outside: u64,
    },
    /// The ECALL failed.
    #[error("thread {thread}: the ECALL failed: {why}")]
    Ecall {
        /// The thread's number.
        thread: usize,
        /// Why.
        why: String,
    },
}

impl From<WorkError> for Failure {
    fn from(flaw: WorkError) -> Self {
        Self::check(flaw.to_string())
    }
}

/// Whether nothing went wrong in any thread's part.
///
/// # Errors
/// What went wrong first.
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

/// A thread's failed ECALL.
pub fn failed(thread: usize, why: &EcallError) -> Failure {
    WorkError::Ecall { thread, why: why.to_string() }.into()
}

#[cfg(test)]
mod tests {
    use lab::method::Params;

    use super::*;

    #[test]
    fn an_answer_tells_nulls_and_pointers_outside() {
        assert_eq!(AllocErrors::from_answer(0), AllocErrors::default());
        assert_eq!(AllocErrors::from_answer(3 << 32 | 7), AllocErrors { nulls: 7, outside: 3 });
    }

    #[test]
    fn one_flaw_of_one_thread_fails_all() {
        assert_eq!(check_answers(&[Ok(0), Ok(0)]), Ok(()));
        let why = |answers| check_answers(answers).unwrap_err().to_string();
        assert_eq!(
            why(&[Ok(0), Ok(2)]),
            "thread 1: 2 allocations returned NULL: the heap is too small"
        );
        assert!(why(&[Ok(1 << 32), Ok(0)]).contains("1 pointers lay outside"));
        assert!(
            why(&[Err(EcallError::OutOfThreads { tcs: 1 })])
                .starts_with("thread 0: the ECALL failed")
        );
    }

    #[test]
    fn what_is_not_built_is_unavailable_by_name() {
        let params = |kind: &str, allocator: &str| {
            let point = lab::point::Point::from([("kind", kind), ("allocator", allocator)]);
            EnclaveParams::with_defaults(&point).unwrap()
        };
        let failure = available(&params("simulate", "glibc")).unwrap_err();
        assert!(failure.why.contains("glibc needs an operating system"), "{failure}");
        assert!(failure.remedy.unwrap().contains("dlmalloc"));
        // Of what is built the machine decides.
        let here = kinds::available(EnclaveKind::Simulate);
        assert_eq!(available(&params("simulate", "snmalloc")), here);
        for allocator in ["snmalloc", "./libmine.a"] {
            let failure = available(&params("wasm", allocator)).unwrap_err();
            let (why, remedy) = if cfg!(feature = "wasm") {
                (&*format!("{allocator} has no module"), "measure one of buddy")
            } else {
                ("no WebAssembly", "--features wasm")
            };
            assert!(failure.why.contains(why), "{failure}");
            assert!(failure.remedy.unwrap().contains(remedy));
        }
    }

    #[test]
    fn what_needs_a_system_is_outside_alone_and_has_no_heap_of_its_own() {
        for allocator in ["glibc", "scudo"] {
            let point = lab::point::Point::from([("kind", "none"), ("allocator", allocator)]);
            let params = EnclaveParams::with_defaults(&point).unwrap();
            assert_eq!(available(&params), Ok(()));
            let failure = available_with_own_heap(&params).unwrap_err();
            assert!(failure.why.contains(&format!("{allocator} is outside")), "{failure}");
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
