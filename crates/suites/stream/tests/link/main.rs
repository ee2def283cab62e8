//! Interfaces of Linux: the commands in two network namespaces, connected by a veth pair.
#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

mod applications;
#[cfg(feature = "dpdk")]
mod dpdk;
mod ends;
mod errors;
mod kill;
#[path = "../mixture/mod.rs"]
mod mixture;
mod packets;
mod processes;

use std::sync::{Mutex, MutexGuard, PoisonError};

use stream::link::interface::{NetworkInterface, create_veth, find};
use stream::link::namespace::Namespace;

/// Two connected network namespaces.
struct Pair {
    /// The namespace of `veth0`, and that of `veth1`.
    a: Namespace,
    b: Namespace,
}

impl Pair {
    /// Creates the namespaces; `None`, with a record, without the right to do so.
    fn create(test: &str) -> Option<Self> {
        if machine::topology::allowed_cpus().len() < 2 {
            machine::untested::note(test, &"requires two CPUs");
            return None;
        }
        let create = || {
            let (a, b) = (Namespace::new()?, Namespace::new()?);
            a.run(|| create_veth("veth0", "veth1", &b))??;
            Ok::<_, machine::SysError>(Self { a, b })
        };
        create().inspect_err(|why| machine::untested::note(test, why)).ok()
    }
}

/// Returns the state of an interface in a namespace; `None` if it does not exist.
fn state(namespace: &Namespace, name: &str) -> Option<NetworkInterface> {
    namespace.run(|| find(name).ok()).unwrap()
}

/// Reserves the CPUs for a test, since the threads of the commands never sleep.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
