//! Memory that the NIC may access. Each region belongs to one client, and requests of other clients cannot reach it.

use std::cell::Cell;
use std::sync::Arc;

use machine::mapping::Mapping;

/// A client of the NIC. All threads of the NIC's own process are one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientId(pub(crate) u32);

impl ClientId {
    /// No client, for a pair that was removed.
    pub(super) const GONE: Self = Self(u32::MAX);
}

/// Memory of a client. Its bus address is its address in the NIC's process.
#[derive(Debug)]
pub struct Region {
    client: ClientId,
    bus: u64,
    length: usize,
    mapping: Arc<Mapping>,
}

impl Region {
    pub(crate) fn new(client: ClientId, mapping: Arc<Mapping>) -> Self {
        let (bus, length) = (mapping.as_ptr() as u64, mapping.len());
        Self { client, bus, length, mapping }
    }

    /// Returns the bus address.
    pub(crate) fn bus(&self) -> u64 {
        self.bus
    }

    /// Returns the address in this process.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.mapping.as_mut_ptr()
    }

    /// Returns the mapped length in bytes, twice the size for a ring.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns whether an address of this process is in the region.
    pub(crate) fn has<T>(&self, pointer: *const T) -> bool {
        (pointer as u64).wrapping_sub(self.bus) < self.length as u64
    }

    /// Returns whether a range of bus addresses is in the region and the region belongs to `client`.
    #[inline(always)]
    fn holds(&self, client: ClientId, bus: u64, length: usize) -> bool {
        let offset = bus.wrapping_sub(self.bus) as usize;
        offset < self.length && length <= self.length - offset && client == self.client
    }
}

/// All registered regions.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// Sorted by address; they do not overlap.
    all: Vec<Region>,
    /// Index of the last region found, which is usually the next one requested.
    last: Cell<usize>,
}

impl Regions {
    pub(crate) fn insert(&mut self, region: Region) {
        let index = self.after(region.bus);
        self.all.insert(index, region);
    }

    /// Removes the region that starts at `bus`.
    pub(crate) fn remove(&mut self, bus: u64) -> Option<Region> {
        let index = self.after(bus).checked_sub(1)?;
        (self.all[index].bus == bus).then(|| self.all.remove(index))
    }

    /// Returns the client of the region that starts at `bus`.
    pub(crate) fn client_at(&self, bus: u64) -> Option<ClientId> {
        let region = &self.all[self.after(bus).checked_sub(1)?];
        (region.bus == bus).then_some(region.client)
    }

    /// Returns the region of a range of bus addresses, if it belongs to `client`.
    #[inline(always)]
    pub(crate) fn find(&self, client: ClientId, bus: u64, length: usize) -> Option<&Region> {
        let last = self.all.get(self.last.get());
        if let Some(region) = last.filter(|region| region.holds(client, bus, length)) {
            return Some(region);
        }
        let index = self.after(bus).checked_sub(1)?;
        let region = self.all.get(index).filter(|region| region.holds(client, bus, length))?;
        self.last.set(index);
        Some(region)
    }

    /// Returns the index of the first region that starts after `bus`.
    fn after(&self, bus: u64) -> usize {
        self.all.partition_point(|region| region.bus <= bus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_reaches_only_its_memory() {
        let mappings = [1, 2, 3].map(|pages| Arc::new(Mapping::anonymous(pages * 4096).unwrap()));
        let mut regions = Regions::default();
        for (mapping, client) in mappings.iter().zip(0..) {
            regions.insert(Region::new(ClientId(client), Arc::clone(mapping)));
        }
        for (mapping, client) in mappings.iter().zip(0..) {
            let (bus, length) = (mapping.as_ptr() as u64, mapping.len());
            let reach = |client, bus, length| {
                let region = regions.find(ClientId(client), bus, length)?;
                Some(region.pointer().wrapping_add((bus - region.bus()) as usize))
            };
            assert_eq!(reach(client, bus, length), Some(mapping.as_mut_ptr()));
            assert_eq!(
                reach(client, bus + 64, length - 64),
                Some(mapping.as_mut_ptr().wrapping_add(64))
            );
            assert_eq!(reach(client + 1, bus, 1), None);
            assert_eq!(reach(client, bus, length + 1), None);
            assert_eq!(reach(client, bus + 64, length), None);
            assert_eq!(reach(client, bus + 64, usize::MAX), None);
            assert_eq!(reach(client, bus - 1, 1), None);
            assert_eq!(reach(client, bus + length as u64, 0), None);
        }
        assert_eq!(regions.find(ClientId(0), 0, 0).map(Region::bus), None);
        let bus = mappings[1].as_ptr() as u64;
        assert!(regions.remove(bus + 1).is_none());
        let clients = [bus, bus + 1, 0].map(|bus| regions.client_at(bus));
        assert_eq!(clients, [Some(ClientId(1)), None, None]);
        assert!(regions.remove(bus).is_some_and(|region| region.has(mappings[1].as_ptr())));
        assert_eq!(regions.find(ClientId(1), bus, 1).map(Region::bus), None);
    }
}
