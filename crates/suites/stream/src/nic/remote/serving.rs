//! What one program has of a NIC, and what it is given.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use machine::SysError;
use machine::mapping::Mapping;
use machine::memfd::Memfd;

use super::super::doorbell_mapping::DoorbellMapping;
use super::super::doorbells::DoorbellReceiver;
use super::super::memory::MemoryLayout;
use super::super::region::{ClientId, Region};
use super::super::shared::Served;
use super::limits::{MemoryUse, Quota, Taken};
use super::message::{Reply, Request};

/// What a program has; it goes with this.
pub(super) struct Serving {
    nic: Arc<dyn Served>,
    client: ClientId,
    most_pairs: usize,
    /// What the program may lend, and what all may.
    quotas: [Arc<Quota>; 2],
    pairs: BTreeSet<u32>,
    pipes: BTreeSet<u32>,
    lent: BTreeMap<u64, LentMemory>,
}

/// Memory of the program's.
struct LentMemory {
    /// The last one to hold it, so that the NIC's thread need not wait until it is unmapped.
    _mapping: Arc<Mapping>,
    /// Its parts of the quotas, which come back once it is unmapped.
    _taken: [Taken; 2],
}

impl Serving {
    /// A program that has nothing yet, and may have so many pairs and what the quotas allow.
    pub(super) fn new(
        nic: Arc<dyn Served>,
        client: ClientId,
        most_pairs: usize,
        quotas: [Arc<Quota>; 2],
    ) -> Self {
        let (pairs, pipes, lent) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { nic, client, most_pairs, quotas, pairs, pipes, lent }
    }

    /// Whether the program has nothing of the NIC: no pair, no pipe, no memory there.
    pub(super) fn is_bare(&self) -> bool {
        self.pairs.is_empty() && self.pipes.is_empty() && self.lent.is_empty()
    }

    /// Does what is asked: the answer, and what comes with it.
    pub(super) fn answer(
        &mut self,
        request: Request,
        fd: Option<OwnedFd>,
    ) -> Result<(Reply, Option<Memfd>), SysError> {
        let reply = match request {
            Request::Attach => return self.attach(),
            Request::Lend(layout) => Reply::Lent(self.register_memory(layout, fd)?),
            Request::TakePipe => {
                let pipe = self.nic.alloc_pipe(self.client)?;
                self.pipes.insert(pipe);
                Reply::Pipe(pipe)
            }
            Request::GivePipe(pipe) if self.pipes.remove(&pipe) => {
                self.nic.remove_pipe(pipe);
                Reply::Done
            }
            Request::Detach(pair) if self.pairs.remove(&pair) => {
                self.nic.detach(pair);
                Reply::Done
            }
            Request::TakeBack(bus) if self.lent.contains_key(&bus) => {
                self.nic.deregister(bus);
                self.lent.remove(&bus);
                Reply::Done
            }
            Request::DrainDoorbells => {
                self.nic.drain_doorbells(self.client);
                Reply::Done
            }
            Request::Ready => Reply::Done,
            Request::Hello(..)
            | Request::Detach(_)
            | Request::GivePipe(_)
            | Request::TakeBack(_) => {
                return Err(SysError {
                    attempt: format!("{request:?}"),
                    source: io::ErrorKind::InvalidInput.into(),
                    remedy: "give back what was given, once".into(),
                });
            }
        };
        Ok((reply, None))
    }

    fn attach(&mut self) -> Result<(Reply, Option<Memfd>), SysError> {
        let most = self.most_pairs;
        if self.pairs.len() >= most {
            return Err(SysError {
                attempt: format!("take one more pair of notification buffers than {most}"),
                source: io::Error::new(io::ErrorKind::QuotaExceeded, "one program has no more"),
                remedy: "use fewer cores".into(),
            });
        }
        let (held, memfd) = DoorbellMapping::shared()?;
        let pair = self.nic.alloc_pair()?;
        let stamped = self.nic.is_stamped();
        self.nic.attach(self.client, pair, DoorbellReceiver::new(held, stamped));
        self.pairs.insert(pair);
        Ok((Reply::Attached(pair, stamped), Some(memfd)))
    }

    fn register_memory(
        &mut self,
        layout: MemoryLayout,
        fd: Option<OwnedFd>,
    ) -> Result<u64, SysError> {
        let bytes = layout.bytes()? as u64;
        let part = MemoryUse { bytes, regions: layout.mappings() };
        let [own, all] = &self.quotas;
        let taken = [own.take(part)?, all.take(part)?];
        let refused = |source, remedy: &str| SysError {
            attempt: format!("lend a NIC {bytes} B"),
            source,
            remedy: remedy.into(),
        };
        let sent = fd.ok_or_else(|| io::ErrorKind::NotFound.into()).and_then(Memfd::received);
        let memfd = sent.map_err(|why| refused(why, "send a memfd of a length that is sealed"))?;
        if memfd.length().is_ok_and(|length| length as u64 == bytes) {
            let mapping = Arc::new(layout.map(&memfd)?);
            let bus = mapping.as_ptr() as u64;
            self.nic.register(Region::new(self.client, Arc::clone(&mapping)));
            self.lent.insert(bus, LentMemory { _mapping: mapping, _taken: taken });
            return Ok(bus);
        }
        Err(refused(io::ErrorKind::InvalidInput.into(), "send as much as is said"))
    }
}

impl Drop for Serving {
    /// Nobody else has it: first the NIC hears no more from it, then its memory goes.
    fn drop(&mut self) {
        self.pairs.iter().for_each(|pair| self.nic.detach(*pair));
        self.pipes.iter().for_each(|pipe| self.nic.free_pipe(*pipe));
        self.lent.keys().for_each(|bus| self.nic.deregister(*bus));
    }
}
