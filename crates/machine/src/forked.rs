//! Test helpers: processes that change something and then die.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits for such a process.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this process is a child of [`fork`].
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Silences the panic hook in a child of [`fork`]: it prints, and another thread may have held the lock of
/// the output at the time of the fork.
fn quiet_in_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_CHILD.load(Ordering::Relaxed) {
                hook(panic);
            }
        }));
    });
}

/// Runs a body in a child. If the body panics, the child prints the reason on standard error and exits with
/// status 101. The child is killed when this thread ends.
pub(crate) fn fork(body: impl FnOnce()) -> libc::pid_t {
    quiet_in_children();
    // SAFETY: the child has a copy of this thread only. glibc keeps malloc usable there, and `body` uses
    // nothing else that another thread may hold at this moment, e.g. the lock of standard output. The child
    // neither returns nor unwinds into its copy of the test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        IS_CHILD.store(true, Ordering::Relaxed);
        // SAFETY: the call takes only numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
        let status = match catch_unwind(AssertUnwindSafe(body)) {
            Ok(()) => 0,
            Err(why) => {
                let text = why.downcast_ref::<&str>().copied();
                let text = text.or_else(|| why.downcast_ref::<String>().map(String::as_str));
                let why = text.unwrap_or("a panic");
                let line = format!("in a child of a test: {why}\n");
                // SAFETY: the bytes live through the call, which takes no lock of this process, unlike
                // `eprintln`.
                unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
                101
            }
        };
        // SAFETY: ends the child at once, without destructors.
        unsafe { libc::_exit(status) };
    }
    assert!(child > 0, "fork: {}", io::Error::last_os_error());
    child
}

/// Waits until a condition is true, and fails if that takes too long.
pub(crate) fn wait(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a body in a child that then dies by SIGKILL, and waits for its death.
pub(crate) fn die_after(body: impl FnOnce()) {
    let child = fork(|| {
        body();
        // SAFETY: this process; the call takes only numbers. No destructor runs.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    });
    let mut status = 0;
    // SAFETY: a child that is not reaped yet; the call writes the status that it is passed.
    wait("a child dies", || unsafe {
        libc::waitpid(child, &raw mut status, libc::WNOHANG) == child
    });
    assert!(libc::WIFSIGNALED(status), "the child exited with wait status {status}");
}
