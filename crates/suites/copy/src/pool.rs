//! A pool of pinned threads, and the barrier at which they meet.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use lab::sample::Failure;
use machine::pin::spawn_pinned;
use machine::topology::Topology;

/// Pinned threads that wait for work. The first threads get one CPU of each core, the next the SMT
/// siblings; with more threads than CPUs the assignment starts over.
pub struct ThreadPool {
    threads: Vec<Worker>,
    finished: Receiver<bool>,
    barrier: Arc<Barrier>,
}

struct Worker {
    work: Option<Sender<Work>>,
    handle: Option<JoinHandle<()>>,
}

/// The work of one thread of a pool: called with the thread's index and the barrier of the run.
pub type Body<'a> = dyn Fn(usize, &Barrier) + Sync + 'a;

/// A body that outlives its run.
struct Work(*const Body<'static>);

// SAFETY: the body is Sync, and `ThreadPool::run` keeps it alive until every thread has finished.
unsafe impl Send for Work {}

impl ThreadPool {
    /// Starts `threads` threads on these CPUs.
    ///
    /// # Errors
    /// Returns the error of creating a thread or pinning it to its CPU.
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
                    // SAFETY: `run` waits for `finished` before it drops the body.
                    let run = || unsafe { (*body)(index, &barrier) };
                    let done = catch_unwind(AssertUnwindSafe(run)).is_ok();
                    if !done {
                        // The other threads would wait forever at the barrier.
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

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Runs the body in every thread and waits for all. If a body panics, the others end at their next
    /// wait at the barrier.
    ///
    /// # Errors
    /// Returns a failure if a body panicked.
    pub fn run(&mut self, body: &Body<'_>) -> Result<(), Failure> {
        self.barrier.reset();
        // SAFETY: only the lifetime changes; `run` returns after every thread has finished.
        let body: *const Body<'static> =
            unsafe { std::mem::transmute::<&Body<'_>, &Body<'static>>(body) };
        let senders = self.threads.iter().filter_map(|thread| thread.work.as_ref());
        let started = senders.filter(|work| work.send(Work(body)).is_ok()).count();
        let done = (0..started).filter(|_| self.finished.recv() == Ok(true)).count();
        if done == self.threads.len() {
            Ok(())
        } else {
            Err(Failure::failed("a thread of the pool panicked: report this"))
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.threads.iter_mut().for_each(|thread| thread.work = None);
        for thread in &mut self.threads {
            if let Some(handle) = thread.handle.take() {
                let _ = handle.join();
            }
        }
    }
}

/// Reusable barrier of the threads of a run.
///
/// Threads spin, because a copy may be shorter than a system call; if there are more threads than
/// CPUs, they yield.
#[derive(Debug)]
pub struct Barrier {
    threads: usize,
    crowded: bool,
    waiting: AtomicUsize,
    generation: AtomicUsize,
}

/// Iterations of the spin loop before even a thread with its own CPU yields.
const SPIN: u32 = 20_000;
/// Generation of a barrier at which a thread is missing. No generation follows it, because advancing
/// needs every thread of the run.
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

    /// Resets the barrier for a new run; no thread may be waiting.
    fn reset(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.generation.store(0, Ordering::Release);
    }

    /// Ends every thread that waits or will wait.
    fn poison(&self) {
        self.generation.store(POISONED, Ordering::Release);
    }

    /// Waits for the other threads. Unwinds if one of them panicked.
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

/// Unwinds a body whose run has already failed, silently: the first panic printed a message.
#[cold]
fn abandon() -> ! {
    resume_unwind(Box::new(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::topology::allowed_cpus;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_thread_runs_every_body_once() {
        for threads in [1, 2, 5, 64] {
            let mut pool = ThreadPool::new(threads, &allowed_cpus()).unwrap();
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
    fn the_pool_reports_a_panic_and_stays_usable() {
        let mut pool = ThreadPool::new(3, &allowed_cpus()).unwrap();
        let panicked = pool.run(&|thread, _| {
            if thread == 1 {
                std::panic::resume_unwind(Box::new("planted"));
            }
        });
        assert!(panicked.unwrap_err().why.contains("panicked"));
        assert_eq!(pool.run(&|_, _| ()), Ok(()));
    }

    #[test]
    fn no_thread_passes_a_barrier_early() {
        for threads in [1, 2, 7] {
            let mut pool = ThreadPool::new(threads, &allowed_cpus()).unwrap();
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
            let mut pool = ThreadPool::new(3, &allowed_cpus()).unwrap();
            // Before the first barrier, and while the others wait at a later one.
            for meetings in [0, 1, 100] {
                let panicked = pool.run(&|thread, barrier| {
                    for meeting in 0..=meetings {
                        if thread == 1 && meeting == meetings {
                            std::panic::resume_unwind(Box::new("planted"));
                        }
                        barrier.wait();
                    }
                });
                assert!(panicked.is_err());
                // The next run starts with a reset barrier.
                assert_eq!(pool.run(&|_, barrier| barrier.wait()), Ok(()));
            }
            sender.send(()).unwrap();
        });
        // A hang fails this test only.
        receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    }
}
