//! Host threads that enter an enclave at once.

use std::sync::Barrier;

use enclave_interface::Enter;
use lab::measure::Context;
use lab::sample::Failure;
use machine::tsc::{self, Tsc};
use rustix::time::{ClockId, clock_gettime};

use crate::entered::Entered;
use crate::kinds::Enclave;

/// Threads pinned round-robin, each with a TCS free for it.
pub struct Crew<'a> {
    /// How many.
    pub threads: u64,
    /// Over which CPUs.
    pub cpus: &'a [usize],
}

/// What the threads' parts took, taken inside the threads: making and joining them is in neither.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Took {
    /// From the first start to the last end, ticks of the time-stamp counter.
    pub wall_ticks: u64,
    /// CPU time of all parts, the enclave's own threads' with them, ns.
    pub cpu_ns: f64,
}

impl Took {
    /// From the first start to the last end, ns.
    pub fn wall(&self, tsc: &Tsc) -> f64 {
        tsc.nanoseconds(self.wall_ticks as f64)
    }
}

struct Done<T> {
    begin: u64,
    end: u64,
    cpu_ns: f64,
    gave: T,
}

impl<'a> Crew<'a> {
    /// The threads of a point on the CPUs of its process.
    pub fn of(threads: u64, context: &Context<'a>) -> Self {
        Self { threads, cpus: context.cpus }
    }

    /// Lets each thread do its part, all beginning together; gives what each gave, in order.
    ///
    /// # Errors
    /// Where a thread cannot be pinned or cannot enter.
    pub fn work<T: Send>(
        &self,
        enclave: &Entered,
        part: impl Fn(u64) -> T + Sync,
    ) -> Result<(Vec<T>, Took), Failure> {
        // All threads and this one meet twice: once they have entered, and to begin.
        let barrier = Barrier::new(usize::try_from(self.threads).unwrap_or(1) + 1);
        let (barrier, part) = (&barrier, &part);
        let inside = enclave.enclave();
        let mut own_cpu = 0.0;
        let done: Vec<Result<Done<T>, Failure>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| scope.spawn(move || self.one(thread, inside, barrier, part)))
                .collect();
            barrier.wait();
            own_cpu = inside.own_cpu_ns();
            barrier.wait();
            let gone = || Err(Failure::failed("a thread that enters the enclave panicked"));
            threads.into_iter().map(|one| one.join().unwrap_or_else(|_| gone())).collect()
        });
        let own_cpu = inside.own_cpu_ns() - own_cpu;
        let done = done.into_iter().collect::<Result<Vec<_>, _>>()?;
        let begin = done.iter().map(|one| one.begin).min().unwrap_or(0);
        let end = done.iter().map(|one| one.end).max().unwrap_or(0);
        let cpu_ns = own_cpu + done.iter().map(|one| one.cpu_ns).sum::<f64>();
        let took = Took { wall_ticks: end.saturating_sub(begin), cpu_ns };
        Ok((done.into_iter().map(|one| one.gave).collect(), took))
    }

    fn one<T>(
        &self,
        thread: u64,
        enclave: &dyn Enclave,
        barrier: &Barrier,
        part: impl Fn(u64) -> T,
    ) -> Result<Done<T>, Failure> {
        let cpu = self.cpus.get(thread as usize % self.cpus.len().max(1));
        let pinned = cpu.map_or(Ok(()), |cpu| machine::pin::pin_to(*cpu));
        // What a host thread does once, at its first ECALL, is in no time.
        let entered = enclave.nothing();
        // Whoever fails still comes, or the others wait for ever.
        barrier.wait();
        barrier.wait();
        pinned?;
        entered.map_err(|why| Failure::check(format!("thread {thread} cannot enter: {why}")))?;
        let cpu_before = cpu_time();
        let begin = tsc::start();
        let gave = part(thread);
        let end = tsc::start();
        Ok(Done { begin, end, cpu_ns: cpu_time() - cpu_before, gave })
    }
}

/// CPU time of this thread, ns.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
