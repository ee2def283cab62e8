//! What one program has of a NIC, and what it is given.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use machine::Refusal;
use machine::mapping::Mapping;
use machine::memfd::Memfd;

use super::super::held::Held;
use super::super::memory::Shape;
use super::super::posted::Arrivals;
use super::super::region::{Program, Region};
use super::super::shared::Served;
use super::message::{Reply, Request};
use super::server::Limits;

/// What a program has; it goes with this.
pub(super) struct Serving {
    nic: Arc<dyn Served>,
    program: Program,
    limits: Limits,
    pairs: BTreeSet<u32>,
    pipes: BTreeSet<u32>,
    lent: BTreeMap<u64, Lent>,
}

/// Memory of the program's.
struct Lent {
    shape: Shape,
    bytes: u64,
    /// The last one to hold it, so that the NIC's thread need not wait until it is unmapped.
    _mapping: Arc<Mapping>,
}

impl Serving {
    pub(super) fn new(nic: Arc<dyn Served>, program: Program, limits: Limits) -> Self {
        let (pairs, pipes, lent) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { nic, program, limits, pairs, pipes, lent }
    }

    /// Does what is asked: the answer, and what comes with it.
    pub(super) fn answer(
        &mut self,
        request: Request,
        fd: Option<OwnedFd>,
    ) -> Result<(Reply, Option<Memfd>), Refusal> {
        let reply = match request {
            Request::Attach => return self.attach(),
            Request::Lend(shape) => Reply::Lent(self.lend(shape, fd)?),
            Request::TakePipe => {
                let pipe = self.nic.take_pipe()?;
                self.pipes.insert(pipe);
                Reply::Pipe(pipe)
            }
            Request::GivePipe(pipe) if self.pipes.remove(&pipe) => {
                self.nic.give_pipe(pipe);
                Reply::Done
            }
            Request::Detach(pair) if self.pairs.remove(&pair) => {
                self.nic.detach(pair);
                Reply::Done
            }
            Request::TakeBack(bus) if self.lent.contains_key(&bus) => {
                self.nic.unregister(bus);
                self.lent.remove(&bus);
                Reply::Done
            }
            Request::Settle => {
                self.nic.settle();
                Reply::Done
            }
            Request::Ready => Reply::Done,
            Request::Hello(..)
            | Request::Detach(_)
            | Request::GivePipe(_)
            | Request::TakeBack(_) => {
                return Err(Refusal {
                    attempt: format!("{request:?}"),
                    source: io::ErrorKind::InvalidInput.into(),
                    remedy: "give back what was given, once".into(),
                });
            }
        };
        Ok((reply, None))
    }

    fn attach(&mut self) -> Result<(Reply, Option<Memfd>), Refusal> {
        let (held, memfd) = Held::shared()?;
        let pair = self.nic.take_pair()?;
        let stamped = self.nic.stamped();
        self.nic.attach(self.program, pair, Arrivals::new(held, stamped));
        self.pairs.insert(pair);
        Ok((Reply::Attached(pair, stamped), Some(memfd)))
    }

    fn lend(&mut self, shape: Shape, fd: Option<OwnedFd>) -> Result<u64, Refusal> {
        let bytes = shape.bytes()? as u64;
        self.has_room(shape, bytes)?;
        let refused = |source, remedy: &str| Refusal {
            attempt: format!("lend a NIC {bytes} B"),
            source,
            remedy: remedy.into(),
        };
        let sent = fd.ok_or_else(|| io::ErrorKind::NotFound.into()).and_then(Memfd::received);
        let memfd = sent.map_err(|why| refused(why, "send a memfd of a length that is sealed"))?;
        if memfd.length().is_ok_and(|length| length as u64 == bytes) {
            let mapping = Arc::new(shape.map(&memfd)?);
            let bus = mapping.as_ptr() as u64;
            self.nic.register(Region::new(self.program, Arc::clone(&mapping)));
            self.lent.insert(bus, Lent { shape, bytes, _mapping: mapping });
            return Ok(bus);
        }
        Err(refused(io::ErrorKind::InvalidInput.into(), "send as much as is said"))
    }

    /// Whether the program may have so much more.
    fn has_room(&self, shape: Shape, bytes: u64) -> Result<(), Refusal> {
        let lent: u64 = self.lent.values().map(|lent| lent.bytes).sum();
        let mappings: usize = self.lent.values().map(|lent| lent.shape.mappings()).sum();
        let most = self.limits.memory;
        if bytes.saturating_add(lent) > most {
            return Err(Refusal {
                attempt: format!("lend a NIC {bytes} B where it has {lent} of one program's"),
                source: io::Error::new(io::ErrorKind::QuotaExceeded, format!("it takes {most}")),
                remedy: "use fewer pipes or shorter rings".into(),
            });
        }
        let most = self.limits.mappings;
        if mappings.saturating_add(shape.mappings()) > most {
            return Err(Refusal {
                attempt: format!("lend a NIC {} spans more", shape.mappings()),
                source: io::Error::new(io::ErrorKind::QuotaExceeded, format!("it takes {most}")),
                remedy: "use fewer pipes".into(),
            });
        }
        Ok(())
    }
}

impl Drop for Serving {
    /// Nobody else has it: first the NIC hears no more from it, then its memory goes.
    fn drop(&mut self) {
        self.pairs.iter().for_each(|pair| self.nic.detach(*pair));
        self.pipes.iter().for_each(|pipe| self.nic.give_pipe(*pipe));
        self.lent.keys().for_each(|bus| self.nic.unregister(*bus));
    }
}
