//! Network namespaces of a test, connected by veth pairs.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace, removed when dropped.
pub struct Namespace(pub String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

impl Namespace {
    /// Returns a command that runs another one in this namespace, without an input.
    pub fn command(&self, inner: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(inner.get_program()).args(inner.get_args());
        command.stdin(Stdio::null());
        if let Some(folder) = inner.get_current_dir() {
            command.current_dir(folder);
        }
        for (name, value) in inner.get_envs() {
            command.env(name, value.unwrap());
        }
        command
    }
}

/// Runs `ip`; returns whether it succeeded.
pub fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).output().is_ok_and(|output| output.status.success())
}

/// Creates two namespaces; `None`, with a note, if that is not possible here.
pub fn pair(test: &str) -> Option<[Namespace; 2]> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let pair = ["near", "far"].map(|side| Namespace(format!("tollgate-{side}-{process}-{count}")));
    let are_made = pair
        .iter()
        .all(|one| ip(&["netns", "add", &one.0]) && ip(&["-n", &one.0, "link", "set", "lo", "up"]));
    if !are_made {
        machine::untested::note(test, &"no network namespaces; they need root");
    }
    are_made.then_some(pair)
}

/// Connects two namespaces by a veth pair whose ends have the same name, and sets both up, perhaps with addresses.
#[track_caller]
pub fn connect(near: &Namespace, far: &Namespace, name: &str, addresses: Option<[&str; 2]>) {
    assert!(ip(&[
        "-n", &near.0, "link", "add", name, "type", "veth", "peer", "name", name, "netns", &far.0,
    ]));
    for (index, one) in [near, far].into_iter().enumerate() {
        if let Some(addresses) = addresses {
            assert!(ip(&["-n", &one.0, "addr", "add", addresses[index], "dev", name]));
        }
        assert!(ip(&["-n", &one.0, "link", "set", name, "up"]));
    }
}
