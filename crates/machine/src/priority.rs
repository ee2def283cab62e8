//! Nice values: a probe that other processes should not interrupt asks for a better one.

use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::gettid;

use crate::SysError;

/// Gives the thread its former nice value back when dropped.
#[derive(Debug)]
pub struct Restore {
    thread: Pid,
    nice: i32,
}

/// This thread's nice value, which processes that it starts inherit.
///
/// # Errors
/// Where the kernel, or a filter of system calls, refuses to tell.
pub fn current() -> Result<i32, SysError> {
    getpriority_process(Some(gettid())).map_err(|errno| {
        SysError::new("the nice value", errno.into(), "allow the system call getpriority")
    })
}

/// Sets this thread's nice value (-20 is best) until the answer is dropped. Threads that it starts inherit it.
///
/// # Errors
/// Where the kernel refuses: below 0 it needs CAP_SYS_NICE or an RLIMIT_NICE.
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
        // Fails only where the thread is gone, or was worse off before and may not be raised again.
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
                crate::untested::note("a better nice value and its end", &refusal);
            }
        }
        assert_eq!(now(), before);
    }
}
