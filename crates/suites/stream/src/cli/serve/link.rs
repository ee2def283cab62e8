//! An application over an interface of Linux, on one core.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lab::suite::UsageError;
use machine::pin::spawn_pinned;

use super::core::{Barriers, Core, CoreRecord, OverLink, Shared};
use super::options::ServeOptions;
use super::output::{Run, print_link, progress};
use crate::application::{ApplicationError, ApplicationSpec, CoreNumber};
use crate::cli::{Error, Interrupted, say, until};
use crate::serve::LinkServer;
use crate::suite::testbed_config::Cpus;

/// Runs an application until interrupted or the interface fails, and prints its counts.
///
/// # Errors
/// Returns one line: what, the cause, and the fix.
pub(super) fn main(
    options: &ServeOptions,
    spec: &ApplicationSpec,
    interface: &str,
) -> Result<i32, Error> {
    if options.cores != 1 || options.pipes != 1 || !options.has_default_steering() {
        let why = format!(
            "--interface {interface}: an application over an interface of Linux has one core and one queue of all flows; \
             give 1 1, without --steering and --flows"
        );
        return Err(UsageError::new(why).into());
    }
    // The generator on this machine takes the other one.
    let cpu = Cpus::select(&machine::topology::allowed_cpus(), 1)?.applications[0];
    let interrupted = Interrupted::listen()?;
    let (link, mut watch) = options.link.open(interface)?;
    let addresses = options.addresses.of_interface(interface, watch.mode())?;
    let shared = Arc::new(Shared::new(1));
    let (status, built, of_core) = (watch.status(), spec.clone(), Arc::clone(&shared));
    let body = move || -> Result<CoreRecord, ApplicationError> {
        let barriers = Barriers::new(&of_core);
        let core = Core { count: &of_core.packets[0].0, barriers, max_work: built.max_work() };
        let server = LinkServer::new(link, status).with_addresses(addresses);
        built.with(CoreNumber::ONLY, OverLink { core, server })
    };
    let core = spawn_pinned(cpu, body)
        .map_err(|why| format!("run the application on CPU {cpu}: {why}; name allowed CPUs"))?;
    shared.ready.wait();
    say(&format!("ready: {}, {}", spec.describe(1), watch.describe()));
    let (start, mut before, mut failure) = (Instant::now(), shared.each(), None);
    let verb = spec.kind().verb();
    until(
        options.interval,
        || {
            failure = watch.failure();
            shared.stop.load(Ordering::Relaxed) || interrupted.is_set() || failure.is_some()
        },
        |at, since| {
            let now = shared.each();
            say(&progress(verb, (at, since), &before, &now));
            before = now;
        },
    );
    let (seconds, summary) = (start.elapsed().as_secs_f64(), watch.summary());
    shared.stop.store(true, Ordering::Relaxed);
    let record = core.join().map_err(|_| "the application stopped early; start it again")??;
    let (packets, findings) = (shared.each(), shared.findings());
    let run = Run { spec, packets, records: &[record], findings, seconds };
    print_link(options.json, &run, &summary)?;
    // The processed packets are printed in any case.
    failure.map_or(Ok(0), |why| Err(why.into()))
}
