//! Pinning of threads to CPUs.

use std::any::Any;
use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Pins this thread to one CPU.
///
/// # Errors
/// Returns the error of `sched_setaffinity(2)`; EINVAL if the CPU is offline or not allowed.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    sched_setaffinity(None, &one(cpu)?)?;
    count(cpu);
    Ok(())
}

/// Counts how often threads of this process were pinned to each CPU.
static HELD: [AtomicU32; CpuSet::MAX_CPU] = [const { AtomicU32::new(0) }; CpuSet::MAX_CPU];

fn count(cpu: usize) {
    if let Some(held) = HELD.get(cpu) {
        held.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns how often threads of this process have been pinned to each CPU. A CPU whose count has changed
/// between two calls had a thread of this process, even if the thread has exited since.
pub(crate) fn held() -> Vec<u32> {
    HELD.iter().map(|held| held.load(Ordering::Relaxed)).collect()
}

/// The thread's former CPUs, restored when dropped.
#[derive(Debug)]
pub struct Before(CpuSet);

/// Allows this thread, and threads that it starts, to run on any of `cpus`.
///
/// # Errors
/// Returns the error of `sched_setaffinity(2)`; EINVAL if no CPU is online and allowed.
pub fn spread(cpus: &[usize]) -> io::Result<Before> {
    let before = sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set)?;
    Ok(Before(before))
}

impl Drop for Before {
    fn drop(&mut self) {
        // The CPUs were allowed a moment ago; if they no longer are, the thread stays where it may run.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Returns the CPU on which this thread runs now.
pub fn current_cpu() -> usize {
    sched_getcpu()
}

/// Starts a thread that runs `body` pinned to one CPU.
///
/// The spawning thread moves the new one: a thread that inherits a core on which its real-time parent spins
/// would never run to move itself.
///
/// # Errors
/// Returns the system's error if the thread cannot be created or moved; `body` has then not run.
pub fn spawn_pinned<T, F>(cpu: usize, body: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let set = one(cpu)?;
    let (moved, wait) = mpsc::channel::<()>();
    let handle = Builder::new().name(format!("cpu-{cpu}")).spawn(move || match wait.recv() {
        Ok(()) => body(),
        // The handle of this thread is dropped with the error, so this panic is not observed.
        Err(_) => std::panic::resume_unwind(Box::new("not pinned") as Box<dyn Any + Send>),
    })?;
    set_affinity(&handle, &set)?;
    count(cpu);
    // The new thread waits for this message, so it is alive while it is moved and the send cannot fail.
    let _ = moved.send(());
    Ok(handle)
}

fn one(cpu: usize) -> io::Result<CpuSet> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("CPU {cpu} is beyond {}: name one that is online", CpuSet::MAX_CPU - 1),
        ));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(set)
}

fn set_affinity<T>(handle: &JoinHandle<T>, set: &CpuSet) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut native: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)) {
        // SAFETY: cpu is less than the size of a cpu_set_t, as checked by `one`.
        unsafe { libc::CPU_SET(cpu, &mut native) };
    }
    // SAFETY: the handle keeps the thread's descriptor valid, and the thread is alive because it waits.
    let code = unsafe {
        libc::pthread_setaffinity_np(handle.as_pthread_t(), size_of_val(&native), &native)
    };
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_spread_and_then_restored() {
        let all: Vec<usize> = allowed();
        let first = all[0];
        pin_to(first).unwrap();
        let before = spread(&all).unwrap();
        assert_eq!(allowed(), all);
        drop(before);
        assert_eq!(allowed(), [first]);
        assert!(spread(&[]).is_err());
        assert_eq!(allowed(), [first]);
    }

    fn allowed() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
    }
    use crate::topology::allowed_cpus;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn a_pinned_thread_runs_there() {
        for cpu in allowed_cpus() {
            let seen =
                spawn_pinned(cpu, || (current_cpu(), allowed_cpus())).unwrap().join().unwrap();
            assert_eq!(seen, (cpu, vec![cpu]));
        }
    }

    #[test]
    fn pinning_moves_this_thread_only() {
        let before = allowed_cpus();
        let cpu = *before.last().unwrap();
        let inside = std::thread::spawn(move || {
            pin_to(cpu).unwrap();
            current_cpu()
        });
        assert_eq!(inside.join().unwrap(), cpu);
        assert_eq!(allowed_cpus(), before);
    }

    #[test]
    fn an_absent_cpu_is_refused() {
        let absent = crate::topology::absent_cpu();
        assert!(pin_to(absent).is_err());
        assert!(spawn_pinned(absent, || ()).is_err());
        assert!(pin_to(1 << 20).is_err());
    }

    /// The kernel throttles real-time threads after 0.95 s, which would free a thread that had inherited the
    /// spinning core: the child must run well before that. On a busy machine it may wait once for other
    /// reasons, but a child that is held back waits every time.
    #[test]
    fn a_real_time_parent_that_spins_does_not_hold_its_child_back() {
        let [parent_cpu, child_cpu, ..] = allowed_cpus()[..] else {
            return crate::untested::note("a child of a real-time thread", &"there is one CPU");
        };
        let mut waits = (0..10).map(|_| waited(parent_cpu, child_cpu));
        match waits.find(|waited| waited.is_none_or(|waited| waited < Duration::from_millis(500))) {
            Some(Some(_)) => {}
            Some(None) => {
                let why = "real-time priority is refused";
                crate::untested::note("a child of a real-time thread", &why);
            }
            None => panic!("the child ran when its parent was throttled, ten times"),
        }
    }

    /// Returns how long a child waits to run on `child_cpu` while its real-time parent spins on `parent_cpu`.
    fn waited(parent_cpu: usize, child_cpu: usize) -> Option<Duration> {
        let waited = std::thread::spawn(move || {
            pin_to(parent_cpu).unwrap();
            let priority = libc::sched_param { sched_priority: 1 };
            // SAFETY: the parameter is valid; 0 is this thread, which ends with the test.
            if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) } != 0 {
                return None;
            }
            let ran = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&ran);
            let begin = Instant::now();
            let child =
                spawn_pinned(child_cpu, move || flag.store(true, Ordering::Release)).unwrap();
            while !ran.load(Ordering::Acquire) && begin.elapsed() < Duration::from_millis(500) {
                std::hint::spin_loop();
            }
            let waited = begin.elapsed();
            child.join().unwrap();
            Some(waited)
        });
        waited.join().unwrap()
    }
}
