//! A pool of pinned threads, and the barrier at which they meet.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use machine::pin::spawn_pinned;
use machine::topology::Topology;

/// Threads that wait for work, each on a CPU of its own as long as there are enough: one CPU of each
/// core first, then the siblings, then all over again.
pub struct Pool {
    threads: Vec<Worker>,
    finished: Receiver<bool>,
    barrier: Arc<Barrier>,
}

struct Worker {
    work: Option<Sender<Work>>,
    handle: Option<JoinHandle<()>>,
}

/// What a thread of a pool runs: its number, and the barrier at which all threads of the run meet.
pub type Body<'a> = dyn Fn(usize, &Barrier) + Sync + 'a;

/// A body that lives until [`Pool::run`] returns.
struct Work(*const Body<'static>);

// SAFETY: the body is Sync, and `Pool::run` keeps it alive until every thread is through with it.
unsafe impl Send for Work {}

impl Pool {
    /// Starts `threads` threads on these CPUs.
    ///
    /// # Errors
    /// Where a thread cannot be made or moved to its CPU.
    pub fn new(threads: usize, cpus: &[usize]) -> io::Result<Self> {
        let barrier = Arc::new(Barrier::new(threads, cpus.len()));
        let cpus = Topology::detect().spread(cpus);
        let (sender, finished) = channel();
        let mut pool = Self { threads: Vec::new(), finished, barrier };
        for index in 0..threads {
            let cpu = *cpus.get(index % cpus.len().max(1)).ok_or(io::ErrorKind::InvalidInput)?;
            let (work, orders) = channel::<Work>();
            let (finished, barrier) = (sender.clone(), Arc::clone(&pool.barrier));
            let handle = spawn_pinned(cpu, move || {
                while let Ok(Work(body)) = orders.recv() {
                    // SAFETY: `run` waits for `finished` before the body goes.
                    let run = || unsafe { (*body)(index, &barrier) };
                    let done = catch_unwind(AssertUnwindSafe(run)).is_ok();
                    if !done {
                        // The others would wait forever for a thread that never comes.
                        barrier.poison();
                    }
                    if finished.send(done).is_err() {
                        return;
                    }
                }
            })?;
            pool.threads.push(Worker { work: Some(work), handle: Some(handle) });
        }
        Ok(pool)
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Has every thread run the body and waits for all. If a body panics, the others end at their
    /// next wait at the barrier.
    ///
    /// # Errors
    /// When a body panicked.
    pub fn run(&mut self, body: &Body<'_>) -> Result<(), Panicked> {
        self.barrier.reset();
        // SAFETY: only the lifetime changes; this returns after every thread is through with it.
        let body: *const Body<'static> =
            unsafe { std::mem::transmute::<&Body<'_>, &Body<'static>>(body) };
        let senders = self.threads.iter().filter_map(|thread| thread.work.as_ref());
        let begun = senders.filter(|work| work.send(Work(body)).is_ok()).count();
        let done = (0..begun).filter(|_| self.finished.recv() == Ok(true)).count();
        if done == self.threads.len() { Ok(()) } else { Err(Panicked) }
    }
}

/// A thread of the pool panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a thread of the pool panicked: report this")]
pub struct Panicked;

impl Drop for Pool {
    fn drop(&mut self) {
        self.threads.iter_mut().for_each(|thread| thread.work = None);
        for thread in &mut self.threads {
            if let Some(handle) = thread.handle.take() {
                let _ = handle.join();
            }
        }
    }
}

/// Holds the threads of a run until all have come; then all go on. May be used again and again.
///
/// It spins, for a copy may be shorter than a system call; where there are more threads than CPUs it
/// gives the CPU to the others.
#[derive(Debug)]
pub struct Barrier {
    threads: usize,
    crowded: bool,
    waiting: AtomicUsize,
    generation: AtomicUsize,
}

/// Turns of the spin before even an uncrowded thread gives its CPU away.
const SPIN: u32 = 20_000;
/// The generation of a barrier that a thread will never reach. No other generation follows it:
/// the next one needs every thread of the run.
const POISONED: usize = usize::MAX;

impl Barrier {
    fn new(threads: usize, cpus: usize) -> Self {
        Self {
            threads,
            crowded: threads > cpus,
            waiting: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
        }
    }

    /// Makes the barrier as new; no thread may be at it.
    fn reset(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.generation.store(0, Ordering::Release);
    }

    /// Ends every thread that waits or will wait.
    fn poison(&self) {
        self.generation.store(POISONED, Ordering::Release);
    }

    /// Waits for the others. Unwinds if one of them panicked: it never comes.
    #[inline]
    pub fn wait(&self) {
        let generation = self.generation.load(Ordering::Acquire);
        if generation == POISONED {
            abandon();
        }
        if self.waiting.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.waiting.store(0, Ordering::Relaxed);
            self.generation.store(generation + 1, Ordering::Release);
            return;
        }
        let mut turns = 0;
        loop {
            match self.generation.load(Ordering::Acquire) {
                POISONED => abandon(),
                now if now != generation => return,
                _ => {}
            }
            turns += 1;
            if self.crowded || turns > SPIN {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Ends a body whose run has failed already; without a message, since the first panic printed one.
#[cold]
fn abandon() -> ! {
    resume_unwind(Box::new(Panicked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::topology::allowed_cpus;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_thread_runs_every_body_once() {
        for threads in [1, 2, 5, 64] {
            let mut pool = Pool::new(threads, &allowed_cpus()).unwrap();
            let counts: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..20 {
                pool.run(&|thread, _| {
                    counts[thread].fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
            }
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 20));
        }
    }

    #[test]
    fn a_panic_is_told_and_the_pool_lives_on() {
        let mut pool = Pool::new(3, &allowed_cpus()).unwrap();
        let panicked = pool.run(&|thread, _| {
            if thread == 1 {
                std::panic::resume_unwind(Box::new("planted"));
            }
        });
        assert_eq!(panicked, Err(Panicked));
        assert_eq!(pool.run(&|_, _| ()), Ok(()));
    }

    #[test]
    fn nobody_passes_a_barrier_early() {
        for threads in [1, 2, 7] {
            let mut pool = Pool::new(threads, &allowed_cpus()).unwrap();
            let sum = AtomicU64::new(0);
            let early = AtomicU64::new(0);
            pool.run(&|_, barrier| {
                for turn in 1..=100 {
                    sum.fetch_add(1, Ordering::Relaxed);
                    barrier.wait();
                    if sum.load(Ordering::Relaxed) != turn * threads as u64 {
                        early.fetch_add(1, Ordering::Relaxed);
                    }
                    barrier.wait();
                }
            })
            .unwrap();
            assert_eq!(early.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_panic_releases_the_threads_that_wait_for_it() {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut pool = Pool::new(3, &allowed_cpus()).unwrap();
            // Before the first meeting, and when the others already wait at a later one.
            for meetings in [0, 1, 100] {
                let panicked = pool.run(&|thread, barrier| {
                    for meeting in 0..=meetings {
                        if thread == 1 && meeting == meetings {
                            std::panic::resume_unwind(Box::new("planted"));
                        }
                        barrier.wait();
                    }
                });
                assert_eq!(panicked, Err(Panicked));
                // The next run finds a barrier as new.
                assert_eq!(pool.run(&|_, barrier| barrier.wait()), Ok(()));
            }
            sender.send(()).unwrap();
        });
        // A hang must fail the test, not stop all of them.
        receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    }
}
