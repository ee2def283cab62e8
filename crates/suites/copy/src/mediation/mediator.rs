//! The mediator: makes the pool, passes to each host what its rules give, and takes it back.
//!
//! Each range is a memfd of its own. A host that may write is passed it as it is; one that may only
//! read is passed a descriptor opened read-only, which the kernel never maps writable; one that may do
//! neither is passed nothing. A right is given by passing a descriptor. It is taken back without the
//! host's help: the range's contents move to a new memfd, which goes to those who still have a right,
//! and the old one is cut to nothing, so that whatever a host has kept of it ends in SIGBUS.

use std::os::fd::AsRawFd;

use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE};
use machine::tsc;

use super::held::{Held, Window};
use super::host::{DONE, order};
use super::peer::{Peer, Terms};
use super::rules::{Access, HOSTS, Right, Rules};
use super::socket::Message;
use super::tally::Tally;

/// A pool and the hosts that share it.
pub struct Mediator {
    rules: Rules,
    held: Vec<Held>,
    peers: Vec<Peer>,
    /// Reserves the addresses where every host maps the pool.
    _window: Window,
}

impl Mediator {
    /// Starts the hosts, makes the pool, and passes each host what the rules give it.
    ///
    /// # Errors
    /// Where memory, a process or a CPU cannot be had, or the kernel has no seccomp.
    pub fn new(rules: Rules, terms: &Terms) -> Result<Self, Failure> {
        let window = Window::reserve(rules.length())?;
        // The hosts come first, so that they inherit nothing of the pool.
        let peers: Result<Vec<_>, Failure> =
            terms.cpus.iter().map(|cpu| Peer::start(*cpu, window.start(), terms)).collect();
        let peers = peers?;
        let held: Result<Vec<_>, Failure> =
            rules.ranges.iter().map(|range| Held::new(range.length)).collect();
        let mut mediator = Self { rules, held: held?, peers, _window: window };
        for range in 0..mediator.rules.ranges.len() {
            for host in 0..HOSTS {
                mediator.pass(range, host, 0)?;
            }
        }
        Ok(mediator)
    }

    /// The rules in force.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Passes a host the range with the right that it has; nothing where it has none.
    fn pass(&mut self, range: usize, host: usize, keep: u64) -> Result<(), Failure> {
        let at = &self.rules.ranges[range];
        let held = &self.held[range];
        let (descriptor, writable) = match at.rights[host] {
            Right::None => return Ok(()),
            Right::Read => (Some(held.read_only()?), 0),
            Right::Write => (None, order::WRITABLE),
        };
        let descriptor = descriptor.as_ref().map_or(held.descriptor(), AsRawFd::as_raw_fd);
        let message = Message {
            kind: order::MAP,
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

    /// Changes a host's right to a range; how long that took until it was in force for all, ticks.
    ///
    /// # Errors
    /// Where memory cannot be had or a host does not answer.
    pub fn change(&mut self, range: usize, host: usize, right: Right) -> Result<u64, Failure> {
        self.change_keeping(range, host, right, false)
    }

    fn change_keeping(
        &mut self,
        range: usize,
        host: usize,
        right: Right,
        kept: bool,
    ) -> Result<u64, Failure> {
        let keep = if kept { order::KEEP } else { 0 };
        let before = self.rules.ranges[range].rights[host];
        let begun = tsc::start();
        self.rules.ranges[range].rights[host] = right;
        if right >= before {
            self.pass(range, host, keep)?;
        } else {
            self.held[range].renew()?;
            for peer in 0..HOSTS {
                self.pass(range, peer, if peer == host { keep } else { 0 })?;
            }
        }
        Ok(tsc::stop() - begun)
    }

    /// Has every host load and store at `places` of every range, and compares with the rules.
    ///
    /// # Errors
    /// Where a host does not answer.
    pub fn verify(&mut self, places: usize, tally: &mut Tally) -> Result<(), Failure> {
        for range in 0..self.rules.ranges.len() {
            for place in 0..places {
                self.verify_at(range, place, places, tally)?;
            }
        }
        Ok(())
    }

    fn verify_at(
        &mut self,
        range: usize,
        place: usize,
        places: usize,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        let Self { rules, held, peers, .. } = self;
        let (at, held) = (&rules.ranges[range], &held[range]);
        // From the first page to the last, at another word of each.
        let page = (at.length / PAGE - 1) * place / (places - 1).max(1);
        let within = page * PAGE + (place * 8) % PAGE;
        let offset = (at.offset + within) as u64;
        for (host, peer) in peers.iter_mut().enumerate() {
            let was = tally.mark(host);
            held.put(within, was);
            let loaded =
                peer.ask(&Message { kind: order::LOAD, offset, ..Message::default() }, None)?;
            let allowed = at.rights[host].allows(Access::Load);
            // A forbidden load that comes through is a leak, whatever it found.
            tally.add(allowed, loaded.kind == DONE && (!allowed || loaded.value == was));
            let value = tally.mark(host);
            let store = Message { kind: order::STORE, offset, value, length: 0 };
            let stored = peer.ask(&store, None)?;
            let allowed = at.rights[host].allows(Access::Store);
            let arrived = held.get(within) == value;
            tally.add(
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

    /// Has a host that lost its right to write a range try every way round: through the descriptor
    /// from before, by mprotect, by mapping the read-only descriptor writable, by opening it anew.
    /// The host has the right again afterwards.
    ///
    /// # Errors
    /// Where a host does not answer.
    pub fn attack(&mut self, range: usize, host: usize, tally: &mut Tally) -> Result<(), Failure> {
        let offset = self.rules.ranges[range].offset as u64;
        let attempt = |mediator: &mut Self, kind, tally: &mut Tally| {
            let value = tally.mark(host);
            let message = Message { kind, offset, value, length: 0 };
            let answer = mediator.peers[host].ask(&message, None)?;
            let through = answer.kind == DONE || mediator.held[range].get(0) == value;
            tally.add(false, through);
            Ok::<(), Failure>(())
        };
        self.change_keeping(range, host, Right::Write, true)?;
        self.change_keeping(range, host, Right::Read, false)?;
        attempt(self, order::REMAP, tally)?;
        self.change_keeping(range, host, Right::Read, true)?;
        for kind in [order::PROTECT, order::REMAP, order::REOPEN] {
            attempt(self, kind, tally)?;
        }
        self.change(range, host, Right::Write).map(drop)
    }

    /// Has a host copy into a range for so many ticks; ticks a copy. What arrived is compared with the
    /// source.
    ///
    /// # Errors
    /// Where the bytes did not arrive, or the host does not answer.
    pub fn copy(
        &mut self,
        range: usize,
        host: usize,
        source: &Mapping,
        ticks: u64,
    ) -> Result<f64, Failure> {
        let at = &self.rules.ranges[range];
        let length = source.len();
        if length > at.length || !at.rights[host].allows(Access::Store) {
            return Err(Failure::failed(format!(
                "host {host} may not copy {length} B into '{}'",
                at.name
            )));
        }
        let message = Message {
            kind: order::COPY,
            offset: at.offset as u64,
            length: length as u64,
            value: ticks,
        };
        let answer = self.peers[host].ask(&message, None)?;
        // SAFETY: both have the length, and the host is done with its copies.
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
