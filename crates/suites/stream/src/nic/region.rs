//! Memory that the NIC may read and write: each span of it is one program's, and no other's requests reach it.

use std::cell::Cell;
use std::sync::Arc;

use machine::mapping::Mapping;

/// Who uses the NIC: all threads of its own process are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientId(pub(crate) u32);

impl ClientId {
    /// None: it had a pair, which has gone.
    pub(super) const GONE: Self = Self(u32::MAX);
}

/// A program's memory, as the NIC has it. Its bus address is where it lies in the process of the NIC.
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

    /// Where it lies for the NIC.
    pub(crate) fn bus(&self) -> u64 {
        self.bus
    }

    /// Where it lies here.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.mapping.as_mut_ptr()
    }

    /// Bytes; those of a ring count twice.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Whether an address of this process lies in it.
    pub(crate) fn has<T>(&self, pointer: *const T) -> bool {
        (pointer as u64).wrapping_sub(self.bus) < self.length as u64
    }

    /// Whether a span of bus addresses lies in it, and is the program's.
    #[inline(always)]
    fn holds(&self, client: ClientId, bus: u64, length: usize) -> bool {
        let offset = bus.wrapping_sub(self.bus) as usize;
        offset < self.length && length <= self.length - offset && client == self.client
    }
}

/// All that the NIC may touch.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// By address; no two of them overlap.
    all: Vec<Region>,
    /// Which was found last: mostly it is asked for again.
    last: Cell<usize>,
}

impl Regions {
    pub(crate) fn insert(&mut self, region: Region) {
        let place = self.after(region.bus);
        self.all.insert(place, region);
    }

    /// Takes one away, by its first address.
    pub(crate) fn remove(&mut self, bus: u64) -> Option<Region> {
        let place = self.after(bus).checked_sub(1)?;
        (self.all[place].bus == bus).then(|| self.all.remove(place))
    }

    /// Whose the region is that begins at an address.
    pub(crate) fn client_at(&self, bus: u64) -> Option<ClientId> {
        let region = &self.all[self.after(bus).checked_sub(1)?];
        (region.bus == bus).then_some(region.client)
    }

    /// The region in which a span of bus addresses lies, where it is the program's.
    #[inline(always)]
    pub(crate) fn find(&self, client: ClientId, bus: u64, length: usize) -> Option<&Region> {
        let last = self.all.get(self.last.get());
        if let Some(region) = last.filter(|region| region.holds(client, bus, length)) {
            return Some(region);
        }
        let place = self.after(bus).checked_sub(1)?;
        let region = self.all.get(place).filter(|region| region.holds(client, bus, length))?;
        self.last.set(place);
        Some(region)
    }

    /// Where the first region lies that begins beyond an address.
    fn after(&self, bus: u64) -> usize {
        self.all.partition_point(|region| region.bus <= bus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_reaches_its_own_memory_and_nothing_beyond() {
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
        let whose = [bus, bus + 1, 0].map(|bus| regions.client_at(bus));
        assert_eq!(whose, [Some(ClientId(1)), None, None]);
        assert!(regions.remove(bus).is_some_and(|region| region.has(mappings[1].as_ptr())));
        assert_eq!(regions.find(ClientId(1), bus, 1).map(Region::bus), None);
    }
}
