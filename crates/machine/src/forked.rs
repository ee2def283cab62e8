//! Test helpers: processes that change something and then die.

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::child::{Forked, fork_child};

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
/// status 101.
pub(crate) fn fork(body: impl FnOnce()) -> Forked {
    quiet_in_children();
    let body = || {
        IS_CHILD.store(true, Ordering::Relaxed);
        let Err(why) = catch_unwind(AssertUnwindSafe(body)) else { return 0 };
        let text = why.downcast_ref::<&str>().copied();
        let text = text.or_else(|| why.downcast_ref::<String>().map(String::as_str));
        let line = format!("in a child of a test: {}\n", text.unwrap_or("a panic"));
        // SAFETY: the bytes live through the call, which takes no lock of this process, unlike `eprintln`.
        unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
        101
    };
    // SAFETY: glibc keeps malloc usable in the child, and `body` uses nothing else that another thread may
    // hold at this moment, e.g. the lock of standard output.
    unsafe { fork_child(body) }.unwrap()
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
    let mut child = fork(|| {
        body();
        // SAFETY: this process; the call takes only numbers. No destructor runs.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    });
    let status = child.wait(PATIENCE).unwrap().unwrap();
    assert!(status.signal().is_some(), "the child exited with {status}");
}
