//! The mapping of a doorbell queue, which another process may share.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use machine::SysError;
use machine::mapping::Mapping;
use machine::memfd::Memfd;

use super::doorbell_queue::DoorbellQueue;

/// A mapped queue, which lives as long as one of its ends.
#[derive(Debug, Clone)]
pub(super) struct DoorbellMapping {
    /// Cached, so that each write finds the queue with one load.
    queue: NonNull<DoorbellQueue>,
    _mapping: Arc<Mapping>,
}

// SAFETY: a queue consists of atomics, and the mapping lives as long as this value.
unsafe impl Send for DoorbellMapping {}
// SAFETY: a queue consists of atomics, and the mapping lives as long as this value.
unsafe impl Sync for DoorbellMapping {}

impl DoorbellMapping {
    /// Creates an empty queue for this process.
    pub(super) fn new() -> Result<Self, SysError> {
        Self::of(Mapping::anonymous(size_of::<DoorbellQueue>())?)
    }

    /// Creates an empty queue that another process can map by the returned memfd.
    pub(super) fn shared() -> Result<(Self, Memfd), SysError> {
        let memfd =
            Memfd::sealed("tollgate-doorbells", size_of::<DoorbellQueue>()).map_err(|source| {
                let remedy = "free memory or end programs".into();
                SysError { attempt: "create a doorbell queue".into(), source, remedy }
            })?;
        Ok((Self::received(&memfd)?, memfd))
    }

    /// Maps a queue that another process created.
    pub(super) fn received(memfd: &Memfd) -> Result<Self, SysError> {
        // Accesses beyond the end of the memfd would raise SIGBUS.
        if memfd.length().is_ok_and(|length| length < size_of::<DoorbellQueue>()) {
            return Err(Self::wrong_size(memfd.length().unwrap_or_default()));
        }
        let mapping = Mapping::shared(memfd, size_of::<DoorbellQueue>())?;
        mapping.prefault()?;
        Self::of(mapping)
    }

    /// Uses the queue in a mapping; zeroed memory is an empty queue.
    fn of(mapping: Mapping) -> Result<Self, SysError> {
        let queue = NonNull::new(mapping.as_mut_ptr().cast());
        let sized = queue.filter(|_| mapping.len() == size_of::<DoorbellQueue>());
        let queue = sized.ok_or_else(|| Self::wrong_size(mapping.len()))?;
        Ok(Self { queue, _mapping: Arc::new(mapping) })
    }

    fn wrong_size(bytes: usize) -> SysError {
        SysError {
            attempt: format!("find a doorbell queue in {bytes} B"),
            source: io::ErrorKind::InvalidData.into(),
            remedy: "run the NIC and the program in the same version".into(),
        }
    }
}

impl Deref for DoorbellMapping {
    type Target = DoorbellQueue;

    #[inline(always)]
    fn deref(&self) -> &DoorbellQueue {
        // SAFETY: the memory is page-aligned, has the size of a queue and stays mapped. All bit patterns are valid, and
        // other processes can only change atomics.
        unsafe { self.queue.as_ref() }
    }
}
