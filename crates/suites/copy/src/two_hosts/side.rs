//! One side of a sample: a role that met the other and synchronises with it through the common memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lab::measure::{Context, Measurement};
use lab::sample::{Failure, FailureKind};
use machine::pin::pin_to;
use machine::tsc::Tsc;

use super::is_writer;
use super::memory::{CommonMemory, Control, SharedMemory, store_fence};
use crate::functions::CopyFn;
use crate::throughput::{RunOptions, copy_with_pauses};

/// Maximum time without progress of the other side, in addition to the sleeps of a slow copy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum time until both sides have seen the number of the sample, if both hosts have a clock; hosts that share no memory
/// need not wait longer. An emulated host on a busy machine may stop for longer.
const MEETING: Duration = Duration::from_secs(10);
/// Checks of a condition between two readings of the clock.
const CHECKS_PER_READING: usize = 64;
/// Time of waiting after which a side sleeps between checks: the other one may need this CPU.
const SPIN: Duration = Duration::from_millis(2);
const SLEEP: Duration = Duration::from_micros(50);
/// Bits of an integer that a message carries as a float.
pub(super) const MESSAGE_BITS: u32 = 48;
/// Bytes between two sleeps of a slow copy, as in `memcpy_test`.
pub(super) const STEP: usize = 4;

/// Values of the first message of a role.
const NUMBER: &str = "number";
const HAS_CLOCK: &str = "has_clock";

/// One side of a sample.
pub(super) struct Side<'s, 'c> {
    context: &'s mut Context<'c>,
    memory: SharedMemory,
    pub(super) is_writer: bool,
    /// Random number of the sample, from 1.
    pub(super) number: u64,
    /// Time that the writer sleeps before every [`STEP`] bytes.
    pub(super) pause: Option<Duration>,
    /// The time-stamp counter, if both hosts have one.
    pub(super) tsc: Option<&'static Tsc>,
    patience: Duration,
}

impl<'s, 'c> Side<'s, 'c> {
    /// Maps `bytes` bytes, meets the other role and checks that both see the same memory. The writer runs `prepare`
    /// before the roles start. A copy has at most `copy` bytes.
    ///
    /// # Errors
    /// Returns `unavailable` if this host lacks the memory, `check` if the hosts do not see the same memory, and `failed`
    /// if the other role failed.
    pub(super) fn meet(
        context: &'s mut Context<'c>,
        kind: CommonMemory,
        (bytes, copy): (usize, usize),
        prepare: impl FnOnce(&SharedMemory),
    ) -> Result<Self, Failure> {
        let is_writer = is_writer(context)?;
        let pause = RunOptions::parse(context.options)?.pause;
        if !is_writer && let Some(&cpu) = context.cpus.get(1) {
            // Both roles may run on this host, and the lab starts each on its first CPU.
            pin_to(cpu)?;
        }
        let tsc = context.tsc().ok();
        let has_clock = if tsc.is_some() { 1.0 } else { 0.0 };
        let mut first = BTreeMap::from([(HAS_CLOCK.to_owned(), has_clock)]);
        let mut created = None;
        if is_writer {
            let memory = kind.create(bytes, context.options)?;
            prepare(&memory);
            memory.clear();
            let number = (rand::random::<u64>() >> (u64::BITS - MESSAGE_BITS)).max(1);
            memory.control().number.set(number);
            first.insert(NUMBER.into(), number as f64);
            created = Some((memory, number));
        }
        context.ready()?;
        context.send(first)?;
        let message = received(context)?;
        let tsc = tsc.filter(|_| message.get(HAS_CLOCK) == Some(&1.0));
        let (memory, number) = match created {
            Some(created) => created,
            None => {
                let number = message.get(NUMBER).copied().unwrap_or_default() as u64;
                (kind.open(bytes, context.options)?, number)
            }
        };
        let sleeps = pause.unwrap_or_default().saturating_mul(copy.div_ceil(STEP) as u32);
        let patience = PATIENCE.saturating_add(sleeps);
        let mut side = Self { context, memory, is_writer, number, pause, tsc, patience };
        side.check_memory()?;
        Ok(side)
    }

    /// Exchanges the number of the sample through the memory.
    fn check_memory(&mut self) -> Result<(), Failure> {
        let number = self.number;
        let patience = self.patience;
        self.patience = meeting_time(self.tsc.is_some(), patience);
        let met = match self.is_writer {
            true => self.wait("the reader's answer", |control| control.answer.get() == number),
            false => {
                let seen =
                    self.wait("the writer's number", |control| control.number.get() == number);
                seen.map(|()| self.control().answer.set(number))
            }
        };
        self.patience = patience;
        met.map_err(|failure| {
            if failure.kind != FailureKind::Check {
                return failure;
            }
            let hint = "the hosts do not see the same memory; name the same one on both";
            Failure::check(format!("{}: {hint}", failure.why))
        })
    }

    /// Adds the memory type of this role's mapping to its results.
    pub(super) fn describe(&self, measurement: Measurement) -> Measurement {
        self.memory.describe(measurement)
    }

    /// Returns the control cells.
    pub(super) fn control(&self) -> &Control {
        self.memory.control()
    }

    /// Returns the first byte of the data.
    pub(super) fn data(&self) -> *mut u8 {
        self.memory.data()
    }

    /// Returns the time to measure.
    pub(super) fn budget(&self) -> Duration {
        self.context.budget
    }

    /// Checks that the other role has not failed.
    ///
    /// # Errors
    /// Returns `failed` if it has.
    pub(super) fn check_other(&mut self) -> Result<(), Failure> {
        match self.context.stopped() {
            true => Err(Failure::failed("the other host failed during the sample")),
            false => Ok(()),
        }
    }

    /// Waits until a condition is true.
    ///
    /// # Errors
    /// Returns `failed` if the other role failed, and `check` if `what` does not come in time.
    pub(super) fn wait(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&Control) -> bool,
    ) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            for _ in 0..CHECKS_PER_READING {
                if condition(self.memory.control()) {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            self.check_other()?;
            let elapsed = start.elapsed();
            if elapsed > self.patience {
                let seconds = self.patience.as_secs();
                return Err(Failure::check(format!("{what} did not come within {seconds} s")));
            }
            if elapsed > SPIN {
                std::thread::sleep(SLEEP);
            }
        }
    }

    /// Copies into the data, by `function` or, with a pause, slowly.
    ///
    /// # Errors
    /// Returns `failed` if the other role failed during a slow copy.
    ///
    /// # Safety
    /// `source` must be valid for reads of `length` bytes, and `to` for writes; the other role must not write there.
    pub(super) unsafe fn copy(
        &mut self,
        function: CopyFn,
        to: *mut u8,
        source: *const u8,
        length: usize,
    ) -> Result<(), Failure> {
        let Some(pause) = self.pause else {
            // SAFETY: the caller guarantees both buffers.
            unsafe { function(to, source, length) };
            return Ok(());
        };
        for at in (0..length).step_by(STEP) {
            self.check_other()?;
            // SAFETY: the step is within both buffers.
            unsafe { copy_with_pauses(pause, to.add(at), source.add(at), STEP.min(length - at)) };
            // Otherwise a step may become visible only with a later one.
            store_fence();
        }
        Ok(())
    }
}

/// Returns the maximum time until both sides have seen the number of the sample.
fn meeting_time(have_clocks: bool, patience: Duration) -> Duration {
    if have_clocks { MEETING.min(patience) } else { patience }
}

/// Waits for the next values of the other role.
///
/// # Errors
/// Returns `failed` if it failed before.
pub(super) fn received(context: &mut Context) -> Result<BTreeMap<String, f64>, Failure> {
    let message = context.message();
    let message =
        message.ok_or_else(|| Failure::failed("the other host failed during the sample"))?;
    Ok(message.values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_a_clock_have_the_whole_time_to_meet() {
        assert_eq!(meeting_time(false, PATIENCE), PATIENCE);
        assert_eq!(meeting_time(true, PATIENCE), MEETING);
    }
}
