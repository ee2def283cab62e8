//! Kernel features that a program may use. Each check tries the feature.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::State;
use crate::counters::{Counters, Event, Mode};
use crate::{core_clock, priority};

/// Counts cycles during a core-clock calibration: a counter that opens but does not count is absent.
pub(super) fn performance_counters() -> State {
    let counters = match Counters::open(&[Event::CYCLES], Mode::User) {
        Ok(counters) => counters,
        Err(refusal) => {
            let remedy = format!("{}; the core clock is calibrated without it", refusal.remedy);
            return State::absent(format!("{}: {}", refusal.attempt, refusal.source), remedy);
        }
    };
    let _ = core_clock::calibrate();
    match counters.now().as_deref() {
        Ok([cycles]) if *cycles > 0 => State::present("cycles are counted"),
        _ => State::absent(
            "the cycle counter opens but does not count",
            "have the hypervisor expose a complete PMU",
        ),
    }
}

fn owned(fd: libc::c_long) -> Option<std::os::fd::OwnedFd> {
    use std::os::fd::{FromRawFd, OwnedFd};
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just created this descriptor for us, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs a check in a separate thread, so that what it changes ends with the thread.
fn in_own_thread<T: Send + 'static>(body: fn() -> io::Result<T>) -> io::Result<T> {
    let thread = std::thread::Builder::new().spawn(body)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the check panicked")))
}

pub(super) fn real_time() -> State {
    let tried = in_own_thread(|| {
        let priority = libc::sched_param { sched_priority: 1 };
        // SAFETY: the parameter is valid and outlives the call; 0 is this thread, which then ends.
        match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    match tried {
        Ok(()) => State::present("SCHED_FIFO"),
        Err(why) => State::absent(
            format!("SCHED_FIFO: {why}"),
            "run as root, or raise the limit: ulimit -r 1",
        ),
    }
}

pub(super) fn nice() -> State {
    let tried = in_own_thread(|| {
        let raised = priority::raise(-20);
        raised.map(drop).map_err(|refusal| refusal.source)
    });
    match tried {
        Ok(()) => State::present("down to -20"),
        Err(why) => State::absent(
            format!("nice value -20: {why}"),
            "run as root, or raise the limit: ulimit -e 40",
        ),
    }
}

pub(super) fn tracefs() -> State {
    let root = Path::new("/sys/kernel/tracing");
    if root.join("events/exceptions").is_dir() {
        return State::present("/sys/kernel/tracing");
    }
    match std::fs::read_dir(root) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            State::absent("/sys/kernel/tracing does not exist", "use a kernel with CONFIG_FTRACE")
        }
        Err(why) => State::absent(format!("/sys/kernel/tracing: {why}"), "run as root"),
        // A measurement mounts tracefs detached, so that it disappears when closed.
        Ok(mut entries) => match entries.next() {
            None => may_mount(mounted("tracefs")),
            Some(_) => State::absent(
                "the kernel has no exception events",
                "use a kernel with CONFIG_FTRACE",
            ),
        },
    }
}

/// Returns whether tracefs can be mounted if it is not.
fn may_mount(tried: rustix::io::Result<()>) -> State {
    match tried {
        Ok(()) => State::present("not mounted, but this user can mount it"),
        // The root user of a container lacks the capability.
        Err(why) => State::absent(
            format!("tracefs is not mounted and cannot be: {why}"),
            "run as root with CAP_SYS_ADMIN",
        ),
    }
}

/// Mounts a file system detached and unmounts it at once.
fn mounted(name: &str) -> rustix::io::Result<()> {
    let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    Ok(())
}

pub(super) fn userfaultfd() -> State {
    // SAFETY: the call takes only flags.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    match owned(fd) {
        Some(_) => State::present("kernel and user faults"),
        None => {
            let why = io::Error::last_os_error();
            State::absent(
                format!("userfaultfd: {why}"),
                "as root: sysctl vm.unprivileged_userfaultfd=1, on a kernel with CONFIG_USERFAULTFD",
            )
        }
    }
}

pub(super) fn io_uring() -> State {
    // `struct io_uring_params` is 120 bytes; all zeros request nothing special.
    let mut parameters = [0u64; 15];
    // SAFETY: the parameters are as long as the kernel's structure and outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    match owned(fd) {
        Some(_) => State::present("io_uring_setup succeeds"),
        None => {
            let why = io::Error::last_os_error();
            let remedy =
                "as root: sysctl kernel.io_uring_disabled=0, on a kernel with CONFIG_IO_URING";
            State::absent(format!("io_uring_setup: {why}"), remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_tried() {
        assert!(mounted("no-such-file-system").is_err());
        assert!(may_mount(Ok(())).is_present());
        let refused = may_mount(Err(rustix::io::Errno::PERM));
        assert!(!refused.is_present() && format!("{refused:?}").contains("CAP_SYS_ADMIN"));
    }
}
