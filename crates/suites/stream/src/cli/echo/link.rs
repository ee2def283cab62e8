//! The echo over an interface of Linux, on one core.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lab::suite::UsageError;
use machine::pin::spawn_pinned;
use serde_json::json;

use super::core::{Barriers, Core, CoreRecord, Shared};
use super::{Options, progress, use_json, use_text};
use crate::cli::link::LinkSummary;
use crate::cli::{Error, Interrupted, say, until};
use crate::link::LinkEcho;
use crate::suite::testbed_config::Cpus;

/// Echoes until interrupted or the interface fails, and prints the number of packets.
///
/// # Errors
/// Returns one line: what, the cause, and the fix.
pub(super) fn main(options: &Options, interface: &str) -> Result<i32, Error> {
    if options.cores != 1 || options.pipes != 1 || !options.has_default_steering() {
        let why = format!(
            "--interface {interface}: the echo over an interface of Linux has one core and one queue of all flows; \
             give 1 1, without --steering and --flows"
        );
        return Err(UsageError::new(why).into());
    }
    // The generator on this machine takes the other one.
    let cpu = Cpus::select(&machine::topology::allowed_cpus(), 1)?.applications[0];
    let interrupted = Interrupted::listen()?;
    let (link, mut watch) = options.link.open(interface)?;
    let shared = Arc::new(Shared::new(1));
    let (status, nops, of_core) = (watch.status(), options.nops, Arc::clone(&shared));
    let body = move || {
        let (count, barriers) = (&of_core.packets[0].0, Barriers::new(&of_core));
        Core { count, barriers, nops }.echo(&mut LinkEcho::new(link, status), || {})
    };
    let core = spawn_pinned(cpu, body)
        .map_err(|why| format!("run the echo on CPU {cpu}: {why}; name allowed CPUs"))?;
    shared.ready.wait();
    say(&format!("ready: {}, {nops} NOPs per packet", watch.describe()));
    let (start, mut before, mut failure) = (Instant::now(), shared.each(), None);
    until(
        options.interval,
        || {
            failure = watch.failure();
            shared.stop.load(Ordering::Relaxed) || interrupted.is_set() || failure.is_some()
        },
        |at, since| {
            let now = shared.each();
            say(&progress(at, since, &before, &now));
            before = now;
        },
    );
    let (seconds, summary) = (start.elapsed().as_secs_f64(), watch.summary());
    shared.stop.store(true, Ordering::Relaxed);
    let record = core.join().map_err(|_| "the echo stopped early; start it again")?;
    options.print_link(&summary, &record, shared.all(), seconds)?;
    // What was echoed is printed in any case.
    failure.map_or(Ok(0), |why| Err(why.into()))
}

impl Options {
    fn print_link(
        &self,
        summary: &LinkSummary,
        record: &CoreRecord,
        packets: u64,
        seconds: f64,
    ) -> Result<(), Error> {
        let mut out = lab::terminal::stdout();
        if self.json {
            let mut result = summary.json();
            let fields = [
                ("packets", packets.into()),
                ("core_use", json!([use_json(record)])),
                ("nops", self.nops.into()),
                ("seconds", seconds.into()),
            ];
            result.extend(fields.map(|(name, value)| (name.to_owned(), value)));
            writeln!(out, "{}", serde_json::Value::from(result))?;
        } else {
            write!(out, "{}", summary.title())?;
            writeln!(out, "    echoed {packets} packets in {seconds:.1} s")?;
            write!(out, "{}", summary.text())?;
            writeln!(out, "      core {}", use_text(record))?;
        }
        Ok(())
    }
}
