//! The capability `gpu`: checked in a child process, so that no other process loads the driver or keeps its state.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::sync::LazyLock;
use std::time::Duration;

use lab::capability::{Capability, checked};
use lab::sample::Failure;
use machine::child::fork_child;

use super::{Gpu, LIBRARY};

/// Time limit of the check: initialising several GPUs takes seconds.
const LIMIT: Duration = Duration::from_secs(20);
/// Separates the parts of the child's answer.
const SEPARATOR: char = '\0';

/// Returns the capability.
pub fn capability() -> Capability {
    checked("gpu", "memory of a GPU through the CUDA driver", state().clone())
}

/// Checks that this machine has a driver and a GPU.
///
/// # Errors
/// Returns `unavailable` with the reason and the remedy.
pub(in crate::memory) fn available() -> Result<(), Failure> {
    state().clone().map(drop)
}

fn state() -> &'static Result<String, Failure> {
    static STATE: LazyLock<Result<String, Failure>> =
        LazyLock::new(|| in_child(OsStr::new(LIBRARY), LIMIT));
    &STATE
}

/// Opens the GPU in a child and returns its name.
pub(super) fn in_child(library: &OsStr, limit: Duration) -> Result<String, Failure> {
    let (mut reader, mut writer) = io::pipe()?;
    let body = || {
        let text = match Gpu::open(library) {
            Ok(gpu) => gpu.name().to_owned(),
            Err(why) => {
                let remedy = why.remedy.unwrap_or_default();
                [why.cause.unwrap_or_default(), why.why, remedy].join(&SEPARATOR.to_string())
            }
        };
        i32::from(writer.write_all(text.as_bytes()).is_err())
    };
    // SAFETY: glibc keeps malloc and the dynamic linker usable in the child, which uses nothing else that another thread
    // may hold.
    let mut child = unsafe { fork_child(body) }?;
    drop(writer);
    let ended = child.wait(limit)?;
    let failed = |why: String| {
        Failure::unavailable(format!("the CUDA driver {why}"), "see whether nvidia-smi works")
    };
    let Some(status) = ended else {
        return Err(failed(format!("does not start within {} s", limit.as_secs())));
    };
    if !status.success() {
        return Err(failed(format!("ended the process: {}", machine::child::describe(status))));
    }
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    match text.split(SEPARATOR).collect::<Vec<_>>()[..] {
        ["", why, remedy] => Err(Failure::unavailable(why, remedy)),
        [cause, why, remedy] => Err(Failure::unavailable(why, remedy).with_cause(cause)),
        _ => Ok(text),
    }
}
