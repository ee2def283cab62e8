//! The guest's memory as the host sees it.

use lab::sample::Failure;
use machine::mapping::Mapping;

use super::image::Image;
use super::layout::{BASE, END};

/// The guest's memory, from [`BASE`] to [`END`]. It is read and written only while the guest stands still.
#[derive(Debug)]
pub(super) struct Memory(Mapping);

impl Memory {
    /// Loads an image; the rest is zero.
    pub(super) fn load(image: &Image) -> Result<Self, Failure> {
        let mapping = Mapping::anonymous((END - BASE) as usize)
            .map_err(|why| Failure::failed(format!("the guest's memory: {why}")))?;
        mapping.prefault().map_err(|why| Failure::failed(format!("the guest's memory: {why}")))?;
        let mut memory = Self(mapping);
        memory.write(BASE, image.bytes());
        Ok(memory)
    }

    /// Where the host has it.
    pub(super) fn host_address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Bytes of it.
    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Writes at an address of the guest.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        let offset = self.offset(at, bytes.len());
        // SAFETY: `offset` checked that the bytes lie inside the mapping; the guest stands still, since
        // its one vCPU runs only inside a call of this thread.
        unsafe {
            self.0.as_mut_ptr().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Reads from an address of the guest.
    pub(super) fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let offset = self.offset(at, length);
        let mut bytes = vec![0; length];
        // SAFETY: as in `write`.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(self.0.as_ptr().add(offset), length) };
        bytes
    }

    /// 32 bits at an address of the guest.
    pub(super) fn word(&self, at: u64) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.read(at, 4));
        u32::from_le_bytes(word)
    }

    /// 64 bits at an address of the guest.
    pub(super) fn number(&self, at: u64) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    fn offset(&self, at: u64, length: usize) -> usize {
        let offset = (at - BASE) as usize;
        assert!(offset + length <= self.0.len(), "{at:#x} is outside the guest's memory");
        offset
    }
}
