//! The mediator: creates the pool, passes each host what its rules permit, and revokes it.
//!
//! Each range is a separate memfd. A host that may write receives this descriptor; one that may only
//! read receives a descriptor opened read-only, which the kernel never maps writable; one that may do
//! neither receives none. Passing a descriptor grants a permission. Revoking needs no cooperation of
//! the host: the contents of the range move to a new memfd, which goes to the hosts that keep a
//! permission, and the old one is truncated to zero, so that any access through it raises SIGBUS.

use std::os::fd::AsRawFd;

use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE};
use machine::tsc;
use vm::rules::{Access, HOSTS, Permission, Rules};

use super::guard;
use super::host::{DONE, HostConfig, Peer, command};
use super::pool::{MediatedRange, Window};
use super::socket::Message;

/// A pool and the hosts that share it.
pub struct Mediator {
    rules: Rules,
    held: Vec<MediatedRange>,
    peers: Vec<Peer>,
    /// Reserves the addresses where every host maps the pool.
    _window: Window,
}

impl Mediator {
    /// Starts the hosts, creates the pool, and passes each host what the rules permit.
    ///
    /// # Errors
    /// Returns an error if memory, a process or a CPU is unavailable, or the kernel lacks seccomp.
    pub fn new(rules: Rules, config: &HostConfig) -> Result<Self, Failure> {
        let window = Window::reserve(rules.length())?;
        let filter = config.confined.then(guard::filter).transpose()?;
        // The hosts start first, so that they inherit no part of the pool.
        let peers: Result<Vec<_>, Failure> = config
            .cpus
            .iter()
            .map(|cpu| Peer::start(*cpu, window.start(), config, filter.as_deref()))
            .collect();
        let peers = peers?;
        let held: Result<Vec<_>, Failure> =
            rules.ranges.iter().map(|range| MediatedRange::new(range.length)).collect();
        let mut mediator = Self { rules, held: held?, peers, _window: window };
        for range in 0..mediator.rules.ranges.len() {
            for host in 0..HOSTS {
                mediator.pass(range, host, 0)?;
            }
        }
        Ok(mediator)
    }

    /// Returns the current rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Passes a host the range with its permission; does nothing if it has none.
    fn pass(&mut self, range: usize, host: usize, keep: u64) -> Result<(), Failure> {
        let at = &self.rules.ranges[range];
        let held = &self.held[range];
        let (descriptor, writable) = match at.permissions[host] {
            Permission::None => return Ok(()),
            Permission::Read => (Some(held.read_only()?), 0),
            Permission::ReadWrite => (None, command::WRITABLE),
            Permission::WriteOnly => {
                return Err(Failure::unavailable(
                    format!(
                        "host {host} may write '{}' but not read it, and pages cannot be write-only",
                        at.name
                    ),
                    "measure copy/two-host-mediation, whose filter is outside of the hosts",
                ));
            }
        };
        let descriptor = descriptor.as_ref().map_or(held.descriptor(), AsRawFd::as_raw_fd);
        let message = Message {
            kind: command::MAP,
            offset: at.offset as u64,
            length: at.length as u64,
            value: writable | keep,
        };
        let answer = self.peers[host].ask(&message, Some(descriptor))?;
        match answer.kind {
            DONE => Ok(()),
            _ => Err(Failure::failed(format!("host {host} could not map '{}'", at.name))),
        }
    }

    /// Changes a host's permission for a range. Returns the ticks until it took effect for all hosts.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory or a host does not answer.
    pub fn change(
        &mut self,
        range: usize,
        host: usize,
        permission: Permission,
    ) -> Result<u64, Failure> {
        self.change_keeping(range, host, permission, false)
    }

    fn change_keeping(
        &mut self,
        range: usize,
        host: usize,
        permission: Permission,
        kept: bool,
    ) -> Result<u64, Failure> {
        let keep = if kept { command::KEEP } else { 0 };
        let before = self.rules.ranges[range].permissions[host];
        let start = tsc::start();
        self.rules.ranges[range].permissions[host] = permission;
        if permission.includes(before) {
            self.pass(range, host, keep)?;
        } else {
            self.held[range].renew()?;
            for peer in 0..HOSTS {
                self.pass(range, peer, if peer == host { keep } else { 0 })?;
            }
        }
        Ok(tsc::stop() - start)
    }

    /// Has every host load and store at `offsets` offsets of every range, and compares with the rules.
    ///
    /// # Errors
    /// Returns an error if a host does not answer.
    pub fn verify(&mut self, offsets: usize, counts: &mut AccessCounts) -> Result<(), Failure> {
        for range in 0..self.rules.ranges.len() {
            for index in 0..offsets {
                self.verify_at(range, index, offsets, counts)?;
            }
        }
        Ok(())
    }

    fn verify_at(
        &mut self,
        range: usize,
        index: usize,
        offsets: usize,
        counts: &mut AccessCounts,
    ) -> Result<(), Failure> {
        let Self { rules, held, peers, .. } = self;
        let (at, held) = (&rules.ranges[range], &held[range]);
        // From the first page to the last, at a different word of each.
        let page = (at.length / PAGE - 1) * index / (offsets - 1).max(1);
        let within = page * PAGE + (index * 8) % PAGE;
        let offset = (at.offset + within) as u64;
        for (host, peer) in peers.iter_mut().enumerate() {
            let previous = counts.mark(host);
            held.put(within, previous);
            let loaded =
                peer.ask(&Message { kind: command::LOAD, offset, ..Message::default() }, None)?;
            let allowed = at.permissions[host].allows(Access::Load);
            // A forbidden load that succeeds is a leak, regardless of its value.
            counts.add(allowed, loaded.kind == DONE && (!allowed || loaded.value == previous));
            let value = counts.mark(host);
            let store = Message { kind: command::STORE, offset, value, length: 0 };
            let stored = peer.ask(&store, None)?;
            let allowed = at.permissions[host].allows(Access::Store);
            let arrived = held.get(within) == value;
            counts.add(
                allowed,
                if allowed {
                    stored.kind == DONE && arrived
                } else {
                    stored.kind == DONE || arrived
                },
            );
        }
        Ok(())
    }

    /// Has a host that lost its permission to write a range try every bypass: through the descriptor
    /// from before, by mprotect, by mapping the read-only descriptor writable, by reopening it. The
    /// host has the permission again afterwards.
    ///
    /// # Errors
    /// Returns an error if a host does not answer.
    pub fn attack(
        &mut self,
        range: usize,
        host: usize,
        counts: &mut AccessCounts,
    ) -> Result<(), Failure> {
        let offset = self.rules.ranges[range].offset as u64;
        let attempt = |mediator: &mut Self, kind, counts: &mut AccessCounts| {
            let value = counts.mark(host);
            let message = Message { kind, offset, value, length: 0 };
            let answer = mediator.peers[host].ask(&message, None)?;
            let succeeded = answer.kind == DONE || mediator.held[range].get(0) == value;
            counts.add(false, succeeded);
            Ok::<(), Failure>(())
        };
        self.change_keeping(range, host, Permission::ReadWrite, true)?;
        self.change_keeping(range, host, Permission::Read, false)?;
        attempt(self, command::REMAP, counts)?;
        self.change_keeping(range, host, Permission::Read, true)?;
        for kind in [command::PROTECT, command::REMAP, command::REOPEN] {
            attempt(self, kind, counts)?;
        }
        self.change(range, host, Permission::ReadWrite).map(drop)
    }

    /// Has a host copy into a range for `ticks` ticks, and compares the bytes with the source. Returns
    /// the ticks per copy.
    ///
    /// # Errors
    /// Returns an error if the bytes did not arrive, or the host does not answer.
    pub fn copy(
        &mut self,
        range: usize,
        host: usize,
        source: &Mapping,
        ticks: u64,
    ) -> Result<f64, Failure> {
        let at = &self.rules.ranges[range];
        let length = source.len();
        if length > at.length || !at.permissions[host].allows(Access::Store) {
            return Err(Failure::failed(format!(
                "host {host} may not copy {length} B into '{}'",
                at.name
            )));
        }
        let message = Message {
            kind: command::COPY,
            offset: at.offset as u64,
            length: length as u64,
            value: ticks,
        };
        let answer = self.peers[host].ask(&message, None)?;
        // SAFETY: both mappings have this length, and the host has finished its copies.
        let (sent, arrived) = unsafe {
            (
                std::slice::from_raw_parts(source.as_ptr(), length),
                std::slice::from_raw_parts(self.held[range].as_ptr(), length),
            )
        };
        match sent == arrived {
            true => Ok(answer.value as f64 / 1024.0),
            false => Err(Failure::check(format!(
                "the {length} B copied into '{}' did not arrive",
                at.name
            ))),
        }
    }
}

/// Number of accesses by permission and outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// Allowed accesses that succeeded.
    pub allowed: u64,
    /// Forbidden accesses, and attempts to bypass the rules, that were stopped.
    pub stopped: u64,
    /// Forbidden accesses that succeeded.
    pub leaked: u64,
    /// Allowed accesses that were stopped, or returned other contents.
    pub refused: u64,
}

impl AccessCounts {
    pub(crate) fn add(&mut self, allowed: bool, succeeded: bool) {
        let count = match (allowed, succeeded) {
            (true, true) => &mut self.allowed,
            (true, false) => &mut self.refused,
            (false, true) => &mut self.leaked,
            (false, false) => &mut self.stopped,
        };
        *count += 1;
    }

    /// Returns a word that no access has stored before.
    pub(super) fn mark(&self, host: usize) -> u64 {
        let count = self.allowed + self.stopped + self.leaked + self.refused;
        (count * 2 + host as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Checks that all allowed accesses succeeded and no others.
    ///
    /// # Errors
    /// Returns the number of leaks and refusals.
    pub fn check(&self) -> Result<(), Failure> {
        if self.leaked == 0 && self.refused == 0 {
            return Ok(());
        }
        let Self { leaked, refused, .. } = self;
        Err(Failure::check(format!(
            "{leaked} forbidden accesses succeeded and {refused} allowed ones failed"
        )))
    }
}
