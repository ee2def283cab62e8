//! The resources of one client, and the execution of its requests.

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
use super::limits::{MemoryUse, Quota, Reservation};
use super::message::{Reply, Request};

/// The resources of a client, which are freed when this is dropped.
pub(super) struct ClientResources {
    nic: Arc<dyn Served>,
    client: ClientId,
    max_pairs: usize,
    /// Quotas of the client and of all clients.
    quotas: [Arc<Quota>; 2],
    pairs: BTreeSet<u32>,
    pipes: BTreeSet<u32>,
    /// Registered memory by bus address.
    memory: BTreeMap<u64, ClientMemory>,
}

/// Registered memory of the client.
struct ClientMemory {
    /// The last reference, so that the NIC's thread need not wait for the unmapping.
    _mapping: Arc<Mapping>,
    /// Returned once the memory is unmapped.
    _reservations: [Reservation; 2],
}

impl ClientResources {
    /// Creates the state of a client without resources.
    pub(super) fn new(
        nic: Arc<dyn Served>,
        client: ClientId,
        max_pairs: usize,
        quotas: [Arc<Quota>; 2],
    ) -> Self {
        let (pairs, pipes, memory) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { nic, client, max_pairs, quotas, pairs, pipes, memory }
    }

    /// Returns whether the client has no pair, no pipe and no memory.
    pub(super) fn is_idle(&self) -> bool {
        self.pairs.is_empty() && self.pipes.is_empty() && self.memory.is_empty()
    }

    /// Executes a request. Returns the answer and the memfd that comes with it.
    pub(super) fn answer(
        &mut self,
        request: Request,
        fd: Option<OwnedFd>,
    ) -> Result<(Reply, Option<Memfd>), SysError> {
        let reply = match request {
            Request::Attach => return self.attach(),
            Request::RegisterMemory(layout) => Reply::Registered(self.register_memory(layout, fd)?),
            Request::AllocPipe => {
                let pipe = self.nic.alloc_pipe(self.client)?;
                self.pipes.insert(pipe);
                Reply::Pipe(pipe)
            }
            Request::FreePipe(pipe) if self.pipes.remove(&pipe) => {
                self.nic.remove_pipe(pipe);
                Reply::Done
            }
            Request::Detach(pair) if self.pairs.remove(&pair) => {
                self.nic.detach(pair);
                Reply::Done
            }
            Request::Deregister(bus) if self.memory.contains_key(&bus) => {
                self.nic.deregister(bus);
                self.memory.remove(&bus);
                Reply::Done
            }
            Request::DrainDoorbells => {
                self.nic.drain_doorbells(self.client);
                Reply::Done
            }
            Request::Ready => Reply::Done,
            Request::Hello(..)
            | Request::Detach(_)
            | Request::FreePipe(_)
            | Request::Deregister(_) => {
                return Err(SysError {
                    attempt: format!("{request:?}"),
                    source: io::ErrorKind::InvalidInput.into(),
                    remedy: "free only what was allocated, once".into(),
                });
            }
        };
        Ok((reply, None))
    }

    fn attach(&mut self) -> Result<(Reply, Option<Memfd>), SysError> {
        let max = self.max_pairs;
        if self.pairs.len() >= max {
            return Err(SysError {
                attempt: format!("allocate another pair of notification buffers after {max}"),
                source: io::Error::new(io::ErrorKind::QuotaExceeded, "the limit of one program"),
                remedy: "use fewer cores".into(),
            });
        }
        let (mapping, memfd) = DoorbellMapping::shared()?;
        let pair = self.nic.alloc_pair()?;
        let delays = self.nic.delays();
        self.nic.attach(self.client, pair, DoorbellReceiver::new(mapping, delays.stamped));
        self.pairs.insert(pair);
        Ok((Reply::Attached(pair, delays), Some(memfd)))
    }

    fn register_memory(
        &mut self,
        layout: MemoryLayout,
        fd: Option<OwnedFd>,
    ) -> Result<u64, SysError> {
        let bytes = layout.bytes()? as u64;
        let part = MemoryUse { bytes, regions: layout.mappings() };
        let [one, all] = &self.quotas;
        let reservations = [one.reserve(part)?, all.reserve(part)?];
        let refused = |source, remedy: &str| SysError {
            attempt: format!("register {bytes} B with a NIC"),
            source,
            remedy: remedy.into(),
        };
        let sent = fd.ok_or_else(|| io::ErrorKind::NotFound.into()).and_then(Memfd::received);
        let memfd = sent.map_err(|why| refused(why, "send a memfd with a sealed length"))?;
        if memfd.length().is_ok_and(|length| length as u64 == bytes) {
            let mapping = Arc::new(layout.map(&memfd)?);
            let bus = mapping.as_ptr() as u64;
            self.nic.register(Region::new(self.client, Arc::clone(&mapping)));
            self.memory
                .insert(bus, ClientMemory { _mapping: mapping, _reservations: reservations });
            return Ok(bus);
        }
        Err(refused(io::ErrorKind::InvalidInput.into(), "send a memfd of the requested length"))
    }
}

impl Drop for ClientResources {
    /// Detaches the pairs first, so that the NIC processes no more requests, then frees pipes and memory.
    fn drop(&mut self) {
        self.pairs.iter().for_each(|pair| self.nic.detach(*pair));
        self.pipes.iter().for_each(|pipe| self.nic.free_pipe(*pipe));
        self.memory.keys().for_each(|bus| self.nic.deregister(*bus));
    }
}
