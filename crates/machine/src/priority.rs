//! Nice values. A negative one keeps most other processes from interrupting a probe.

use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::gettid;

use crate::SysError;

/// Restores the thread's nice value when dropped.
#[derive(Debug)]
pub struct Restore {
    thread: Pid,
    nice: i32,
}

/// Returns this thread's nice value, which child processes inherit.
///
/// # Errors
/// Fails if the kernel or a system call filter refuses.
pub fn current() -> Result<i32, SysError> {
    getpriority_process(Some(gettid())).map_err(|errno| {
        SysError::new("the nice value", errno.into(), "allow the system call getpriority")
    })
}

/// Sets this thread's nice value (-20 is the highest priority) until the result is dropped. Threads that
/// it starts inherit it.
///
/// # Errors
/// Fails if the kernel refuses: lowering it needs CAP_SYS_NICE or RLIMIT_NICE.
pub fn raise(nice: i32) -> Result<Restore, SysError> {
    let refused = |errno: rustix::io::Errno| {
        SysError::new(
            format!("nice value {nice}"),
            errno.into(),
            "run as root, or raise the limit with `prlimit --nice=40`",
        )
    };
    let thread = gettid();
    let former = getpriority_process(Some(thread)).map_err(refused)?;
    setpriority_process(Some(thread), nice).map_err(refused)?;
    Ok(Restore { thread, nice: former })
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Fails only if the thread is gone or its priority may not be raised.
        let _ = setpriority_process(Some(self.thread), self.nice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restored_when_dropped() {
        let now = || current().unwrap();
        let before = now();
        match raise(before - 1) {
            Ok(restore) => {
                assert_eq!(now(), before - 1);
                drop(restore);
            }
            Err(refusal) => {
                assert!(refusal.to_string().contains("run as root"), "{refusal}");
                crate::untested::note("a negative nice value and its restoration", &refusal);
            }
        }
        assert_eq!(now(), before);
    }
}
