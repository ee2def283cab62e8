//! A driver's memory: the regions that it shares, and the translation of its addresses.

use machine::mapping::ForeignMapping;

/// A region of a driver's memory.
#[derive(Debug)]
pub(crate) struct GuestRegion {
    /// Address by which descriptors refer to it.
    pub(crate) guest: u64,
    /// Address by which the control messages refer to it: that in the driver's process.
    pub(crate) user: u64,
    /// Length in bytes.
    pub(crate) length: u64,
    /// Offset of its first byte in the mapping.
    pub(crate) offset: u64,
    /// The mapping.
    pub(crate) mapping: ForeignMapping,
}

/// A driver's memory. Its regions may overlap: the driver harms only itself.
#[derive(Debug)]
pub(crate) struct GuestMemory {
    regions: Vec<GuestRegion>,
}

/// A range of the driver's memory with one translation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    start: u64,
    length: u64,
    pointer: *mut u8,
}

impl Default for Window {
    fn default() -> Self {
        Self { start: 0, length: 0, pointer: std::ptr::null_mut() }
    }
}

impl Window {
    /// Returns the address here of `bytes` bytes at an address of the driver, or `None` if they are not in the window.
    #[inline(always)]
    pub(super) fn find(&self, address: u64, bytes: u64) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.start);
        let fits = offset < self.length && bytes <= self.length.wrapping_sub(offset);
        fits.then(|| self.pointer.wrapping_add(offset as usize))
    }
}

impl GuestRegion {
    /// Returns the region as a window of addresses that start at `start`. Empty if the region exceeds its mapping.
    fn window(&self, start: u64) -> Window {
        let end = self.offset.checked_add(self.length);
        let wraps = start.checked_add(self.length).is_none();
        if wraps || end.is_none_or(|end| end > self.mapping.len() as u64) {
            return Window::default();
        }
        let pointer = self.mapping.as_mut_ptr().wrapping_add(self.offset as usize);
        Window { start, length: self.length, pointer }
    }
}

impl GuestMemory {
    /// Combines regions.
    pub(crate) fn new(regions: Vec<GuestRegion>) -> Self {
        Self { regions }
    }

    /// Returns the address here of `bytes` bytes at an address of the driver's process. Returns `None` unless one region
    /// contains all of them.
    pub(super) fn at_user(&self, address: u64, bytes: u64) -> Option<*mut u8> {
        self.regions.iter().find_map(|region| region.window(region.user).find(address, bytes))
    }

    /// Returns the window of the region that contains `bytes` bytes at an address in a descriptor.
    #[cold]
    pub(super) fn window(&self, address: u64, bytes: u64) -> Option<Window> {
        let windows = self.regions.iter().map(|region| region.window(region.guest));
        windows.into_iter().find(|window| window.find(address, bytes).is_some())
    }

    /// Returns whether the driver has truncated a region.
    pub(crate) fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_lost())
    }
}
