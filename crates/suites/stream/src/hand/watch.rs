//! What runs until somebody ends it, and is told of every second.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use super::Error;

/// How often is looked whether there is something to do.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Whether a person wants it to end. A second Ctrl-C ends the process at once.
pub(super) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// From now on, Ctrl-C is a wish.
    ///
    /// # Errors
    /// Where the system refuses.
    pub(super) fn listen() -> Result<Self, Error> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
                .map_err(|why| format!("handle signal {signal}: {why}; start it again"))?;
        }
        Ok(Self(flag))
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Waits until something holds; `told` hears of each second, with the seconds since the beginning and since it
/// heard last.
pub(super) fn until(mut holds: impl FnMut() -> bool, mut told: impl FnMut(f64, f64)) {
    let begun = Instant::now();
    let mut last = begun;
    while !holds() {
        std::thread::sleep(LOOK);
        let since = last.elapsed();
        if since >= Duration::from_secs(1) {
            last = Instant::now();
            told(begun.elapsed().as_secs_f64(), since.as_secs_f64());
        }
    }
}

/// Tells a person. That nobody listens is no fault.
pub(super) fn say(line: &str) {
    let _ = writeln!(lab::terminal::stderr(), "{line}");
}
