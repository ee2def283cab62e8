//! The two CPUs between which frames pass, and the reading process on the second.

use std::time::Duration;

use lab::sample::Failure;
use machine::child::{Forked, fork_child};
use machine::pin::pin_to;
use machine::tsc::{self, Tsc};

use super::pool::{Pool, spin};

/// How long the reader may take to start.
const START: Duration = Duration::from_secs(10);
/// How long it may take to end, once its work is done or its deadline has passed.
const END: Duration = Duration::from_secs(10);

/// The CPUs of writer and reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Where the writer runs.
    pub writer: usize,
    /// Where the reader runs.
    pub reader: usize,
}

impl Pair {
    /// The first CPU and the next that is on another core, where there is one.
    ///
    /// # Errors
    /// Where there are fewer than two CPUs.
    pub fn of(cpus: &[usize]) -> Result<Self, Failure> {
        let (writer, reader) = lab::proximity::pair(cpus)?;
        Ok(Self { writer, reader })
    }

    /// Runs `read` in a process on the reader's CPU, and `write` here on the writer's, once the
    /// reader is there. `bytes` of slots are in the reader's page tables before.
    ///
    /// # Errors
    /// Where a CPU cannot be had, or either side does not end in time.
    ///
    /// # Safety
    /// `read` may do only what is async-signal-safe: see [`fork_child`].
    pub(super) unsafe fn run<T>(
        self,
        pool: &Pool,
        bytes: usize,
        read: impl FnOnce() -> bool,
        write: impl FnOnce() -> Option<T>,
    ) -> Result<T, Failure> {
        pin_to(self.writer)?;
        let reader = move || {
            if pin_to(self.reader).is_err() {
                return NOT_PINNED;
            }
            pool.touch(bytes);
            pool.control().ready.set(1);
            if read() { 0 } else { TOO_LATE }
        };
        // SAFETY: pinning, touching and the caller's `read` are async-signal-safe.
        let mut child = unsafe { fork_child(reader) }?;
        let tsc = Tsc::get().map_err(|why| Failure::failed(why.to_string()))?;
        let started = spin(tsc::start() + tsc.ticks(START), || pool.control().ready.get() == 1);
        let written = if started { write() } else { None };
        let code = ended(&mut child)?;
        match (code, written) {
            (Some(0), Some(written)) => Ok(written),
            (Some(NOT_PINNED), _) => {
                Err(Failure::failed(format!("the reader cannot run on CPU {}", self.reader)))
            }
            (Some(TOO_LATE) | None, _) | (Some(0), None) => Err(Failure::failed(format!(
                "writer and reader on CPUs {} and {} did not end in time; free these CPUs",
                self.writer, self.reader
            ))),
            (Some(code), _) => Err(Failure::failed(format!("the reader ended with {code}"))),
        }
    }
}

const NOT_PINNED: i32 = 3;
const TOO_LATE: i32 = 4;

fn ended(child: &mut Forked) -> Result<Option<i32>, Failure> {
    use std::os::unix::process::ExitStatusExt;
    let Some(status) = child.wait(END)? else {
        return Ok(None);
    };
    Ok(Some(status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))))
}
