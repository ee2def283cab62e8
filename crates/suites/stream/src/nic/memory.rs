//! Memory that a program shares with the NIC.

use std::sync::Arc;

use machine::Refusal;
use machine::mapping::Mapping;
use machine::memfd::Memfd;

/// Memory that the NIC may read and write, as a program registered it.
///
/// Its bus address is where it lies in the process of the NIC.
#[derive(Debug, Clone)]
pub struct Region {
    mapping: Arc<Mapping>,
}

impl Region {
    /// A ring: what wraps around in its bytes lies in one piece, for it is mapped twice.
    ///
    /// # Errors
    /// Where there is not enough memory, or the length is not of whole pages.
    pub fn ring(length: usize) -> Result<Self, Refusal> {
        let memfd = Memfd::create("tollgate-ring", length).map_err(|source| Refusal {
            attempt: format!("make a ring of {length} B"),
            source,
            remedy: "free memory or ask for less".into(),
        })?;
        Self::present(Mapping::twice(&memfd)?)
    }

    /// Plain memory.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn plain(length: usize) -> Result<Self, Refusal> {
        Self::present(Mapping::transparent_huge(length).or_else(|_| Mapping::anonymous(length))?)
    }

    fn present(mapping: Mapping) -> Result<Self, Refusal> {
        mapping.prefault()?;
        Ok(Self { mapping: Arc::new(mapping) })
    }

    /// Where it lies for the NIC.
    pub fn bus(&self) -> u64 {
        self.mapping.as_ptr() as u64
    }

    /// Where it lies here.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.mapping.as_mut_ptr()
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.mapping.len()
    }

    /// Whether a span of bus addresses lies in it.
    pub(crate) fn holds(&self, bus: u64, length: usize) -> bool {
        let offset = bus.wrapping_sub(self.bus()) as usize;
        offset < self.length() && length <= self.length() - offset
    }
}
