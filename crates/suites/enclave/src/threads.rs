//! Host threads that are inside an enclave at the same time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use enclave_interface::Enter;
use lab::measure::Context;
use lab::sample::Failure;
use machine::tsc::{self, Tsc};
use rustix::time::{ClockId, clock_gettime};

use crate::kinds::Enclave;
use crate::loaded::LoadedEnclave;

/// Threads pinned round-robin; a TCS is free for each.
pub struct EnclaveThreads<'a> {
    /// Number of threads.
    pub threads: u64,
    /// The CPUs that they are pinned to.
    pub cpus: &'a [usize],
}

/// The time of the threads' work, measured inside the threads, without creating and joining them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkTime {
    /// From the first start to the last end, ticks of the time-stamp counter.
    pub wall_ticks: u64,
    /// CPU time of all threads, including the enclave's own, in ns.
    pub cpu_ns: f64,
}

impl WorkTime {
    /// Returns the time from the first start to the last end, in ns.
    pub fn wall(&self, tsc: &Tsc) -> f64 {
        tsc.nanoseconds(self.wall_ticks as f64)
    }
}

struct Done<T> {
    begin: u64,
    end: u64,
    cpu_ns: f64,
    result: T,
}

impl<'a> EnclaveThreads<'a> {
    /// Uses the CPUs of the point's process.
    pub fn of(threads: u64, context: &Context<'a>) -> Self {
        Self { threads, cpus: context.cpus }
    }

    /// Runs `part` on each thread, all starting at the same time; returns the results in thread order and the times.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be created or pinned, cannot enter, or panics.
    pub fn work<T: Send>(
        &self,
        enclave: &LoadedEnclave,
        part: impl Fn(u64) -> T + Sync,
    ) -> Result<(Vec<T>, WorkTime), Failure> {
        let gate = Gate::default();
        let (gate, part) = (&gate, &part);
        let inside = enclave.enclave();
        let mut own_cpu = 0.0;
        let done: Result<Vec<Result<Done<T>, Failure>>, Failure> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..self.threads {
                let body = move || self.one(thread, inside, gate, part);
                match Builder::new().spawn_scoped(scope, body) {
                    Ok(made) => threads.push(made),
                    Err(why) => {
                        gate.set(GateState::Closed);
                        return Err(Failure::failed(format!(
                            "cannot create thread {thread} of {}: {why}; use fewer threads, or raise the limit \
                             with ulimit -u",
                            self.threads
                        )));
                    }
                }
            }
            gate.wait_for(self.threads);
            own_cpu = inside.own_cpu_ns();
            gate.set(GateState::Open);
            let gone = || Err(Failure::failed("a thread that enters the enclave panicked"));
            Ok(threads.into_iter().map(|one| one.join().unwrap_or_else(|_| gone())).collect())
        });
        let own_cpu = inside.own_cpu_ns() - own_cpu;
        let done = done?.into_iter().collect::<Result<Vec<_>, _>>()?;
        let begin = done.iter().map(|one| one.begin).min().unwrap_or(0);
        let end = done.iter().map(|one| one.end).max().unwrap_or(0);
        let cpu_ns = own_cpu + done.iter().map(|one| one.cpu_ns).sum::<f64>();
        let time = WorkTime { wall_ticks: end.saturating_sub(begin), cpu_ns };
        Ok((done.into_iter().map(|one| one.result).collect(), time))
    }

    fn one<T>(
        &self,
        thread: u64,
        enclave: &dyn Enclave,
        gate: &Gate,
        part: impl Fn(u64) -> T,
    ) -> Result<Done<T>, Failure> {
        let arrival = Arrival(gate);
        let cpu = self.cpus.get(thread as usize % self.cpus.len().max(1));
        let pinned = cpu.map_or(Ok(()), |cpu| machine::pin::pin_to(*cpu));
        // The first ECALL of a host thread prepares it, which is not timed.
        let entered = enclave.nothing();
        drop(arrival);
        if !gate.is_opened() {
            return Err(Failure::failed("another thread could not be created"));
        }
        pinned?;
        entered.map_err(|why| Failure::check(format!("thread {thread} cannot enter: {why}")))?;
        let cpu_before = cpu_time();
        let begin = tsc::start();
        let result = part(thread);
        let end = tsc::start();
        Ok(Done { begin, end, cpu_ns: cpu_time() - cpu_before, result })
    }
}

/// Holds threads that have entered until all have; then all start, or all give up.
#[derive(Default)]
struct Gate {
    state: Mutex<(u64, GateState)>,
    changed: Condvar,
}

/// The state of a gate.
#[derive(Clone, Copy, Default, PartialEq)]
enum GateState {
    #[default]
    Wait,
    Open,
    Closed,
}

/// A thread that has not reached the gate. Dropping it, also by a panic, counts the thread as arrived, because the
/// others wait for it.
struct Arrival<'a>(&'a Gate);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.state().0 += 1;
        self.0.changed.notify_all();
    }
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, (u64, GateState)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the condition is true; returns the state.
    fn wait_while(&self, is: impl Fn(u64, GateState) -> bool) -> GateState {
        let waited = self.changed.wait_while(self.state(), |(arrived, state)| is(*arrived, *state));
        waited.unwrap_or_else(PoisonError::into_inner).1
    }

    /// Waits until a number of threads has arrived.
    fn wait_for(&self, threads: u64) {
        self.wait_while(|arrived, _| arrived < threads);
    }

    /// Lets all threads start, or give up.
    fn set(&self, state: GateState) {
        self.state().1 = state;
        self.changed.notify_all();
    }

    /// Waits for the decision; returns whether the threads may start.
    fn is_opened(&self) -> bool {
        self.wait_while(|_, state| state == GateState::Wait) == GateState::Open
    }
}

/// Returns the CPU time of this thread, in ns.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns the seed of one thread's generator. It is the same for every point of a round, so that all points do the
/// same work.
pub fn seed(round: u32, thread: u64) -> u64 {
    // The step of splitmix64, whose finaliser spreads adjacent numbers.
    let mut state = (u64::from(round) << 32 | (thread + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Fails the test if `body` hangs, instead of blocking all tests.
    fn ends<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(body()));
        receiver.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn waiting_threads_give_up_if_another_cannot_be_created() {
        let opened = |state| {
            ends(move || {
                let gate = &Gate::default();
                std::thread::scope(|scope| {
                    let wait = || {
                        drop(Arrival(gate));
                        gate.is_opened()
                    };
                    let threads = [scope.spawn(wait), scope.spawn(wait)];
                    gate.wait_for(2);
                    gate.set(state);
                    threads.map(|thread| thread.join().unwrap())
                })
            })
        };
        assert_eq!(opened(GateState::Closed), [false; 2]);
        assert_eq!(opened(GateState::Open), [true; 2]);
    }

    #[test]
    fn a_panicking_thread_counts_as_arrived() {
        ends(|| {
            let gate = &Gate::default();
            std::thread::scope(|scope| {
                let panicking = scope.spawn(|| {
                    let _arrival = Arrival(gate);
                    std::panic::resume_unwind(Box::new("planted"));
                });
                gate.wait_for(1);
                assert!(panicking.join().is_err());
            });
        });
    }

    #[test]
    fn every_thread_of_every_round_has_a_unique_seed() {
        let seeds: std::collections::BTreeSet<u64> =
            (0..100).flat_map(|round| (0..64).map(move |thread| seed(round, thread))).collect();
        assert_eq!(seeds.len(), 6400);
        assert!(!seeds.contains(&0));
    }
}
