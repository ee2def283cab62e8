//! How the memory of a queue of queue writes is held: a mapping, which another process may map too.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use machine::SysError;
use machine::mapping::Mapping;
use machine::memfd::Memfd;

use super::doorbell_queue::DoorbellQueue;

/// A queue in memory that lives as long as one of its ends.
#[derive(Debug, Clone)]
pub(super) struct DoorbellMapping {
    /// Kept apart, so that each write finds the queue with one load.
    queue: NonNull<DoorbellQueue>,
    _mapping: Arc<Mapping>,
}

// SAFETY: a queue is made of atomics, and the mapping lives as long as this.
unsafe impl Send for DoorbellMapping {}
// SAFETY: as for Send.
unsafe impl Sync for DoorbellMapping {}

impl DoorbellMapping {
    /// An empty queue of this process.
    pub(super) fn new() -> Result<Self, SysError> {
        Self::of(Mapping::anonymous(size_of::<DoorbellQueue>())?)
    }

    /// An empty queue that another process may have too, by the memfd that comes with it.
    pub(super) fn shared() -> Result<(Self, Memfd), SysError> {
        let memfd =
            Memfd::sealed("tollgate-doorbells", size_of::<DoorbellQueue>()).map_err(|source| {
                let remedy = "free memory or end programs".into();
                SysError { attempt: "make a queue of doorbells".into(), source, remedy }
            })?;
        Ok((Self::received(&memfd)?, memfd))
    }

    /// The one that another process made.
    pub(super) fn received(memfd: &Memfd) -> Result<Self, SysError> {
        // Pages beyond its end would kill whoever touches them.
        if memfd.length().is_ok_and(|length| length < size_of::<DoorbellQueue>()) {
            return Err(Self::unfit(memfd.length().unwrap_or_default()));
        }
        let mapping = Mapping::shared(memfd, size_of::<DoorbellQueue>())?;
        mapping.prefault()?;
        Self::of(mapping)
    }

    /// The queue that lies in this memory: an empty one, where all is zero.
    fn of(mapping: Mapping) -> Result<Self, SysError> {
        let queue = NonNull::new(mapping.as_mut_ptr().cast());
        let whole = queue.filter(|_| mapping.len() == size_of::<DoorbellQueue>());
        let queue = whole.ok_or_else(|| Self::unfit(mapping.len()))?;
        Ok(Self { queue, _mapping: Arc::new(mapping) })
    }

    fn unfit(bytes: usize) -> SysError {
        SysError {
            attempt: format!("find a queue of doorbells in {bytes} B"),
            source: io::ErrorKind::InvalidData.into(),
            remedy: "start the NIC and the program from the same version".into(),
        }
    }
}

impl Deref for DoorbellMapping {
    type Target = DoorbellQueue;

    #[inline(always)]
    fn deref(&self) -> &DoorbellQueue {
        // SAFETY: the memory begins at a page, has as many bytes, and is held; any bytes are a queue, for
        // whoever else has it changes only atomics.
        unsafe { self.queue.as_ref() }
    }
}
