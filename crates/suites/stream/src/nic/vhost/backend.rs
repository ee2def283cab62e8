//! The control plane of a device: features, memory and rings of one connected driver.

// Sizes come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fs::File;
use std::io;
use std::sync::Arc;

use machine::mapping::ForeignMapping;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut as Handler};

use super::super::virtio::{GuestMemory, GuestRegion, Ring, RingAddresses, RingParams};
use super::requests::VhostControl;

/// The driver may merge buffers of a received packet; this device uses one per packet (`VIRTIO_NET_F_MRG_RXBUF`).
const MRG_RXBUF: u64 = 1 << 15;
/// A control queue, which the driver handles itself (`VIRTIO_NET_F_CTRL_VQ`).
const CTRL_VQ: u64 = 1 << 17;
/// Several pairs of rings (`VIRTIO_NET_F_MQ`).
const MQ: u64 = 1 << 22;
/// Protocol features are negotiated, and rings start disabled (`VHOST_USER_F_PROTOCOL_FEATURES`).
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// The current version of virtio (`VIRTIO_F_VERSION_1`).
const VERSION_1: u64 = 1 << 32;
/// Packed rings (`VIRTIO_F_RING_PACKED`).
const RING_PACKED: u64 = 1 << 34;
/// Buffers are used in the order in which they were made available (`VIRTIO_F_IN_ORDER`).
const IN_ORDER: u64 = 1 << 35;

/// The features of a device with `queues` pairs of rings.
fn features(queues: u32) -> u64 {
    let several = if queues > 1 { MQ | CTRL_VQ } else { 0 };
    VERSION_1 | PROTOCOL_FEATURES | MRG_RXBUF | RING_PACKED | IN_ORDER | several
}

/// Maximum length of all regions together, in bytes. Only what the driver uses takes memory.
const MAX_MEMORY: u64 = 1 << 40;

/// The state of a ring.
#[derive(Debug, Default, Clone, Copy)]
struct RingState {
    size: u32,
    base: u16,
    addresses: Option<RingAddresses>,
    kicked: bool,
    enabled: bool,
    started: bool,
}

impl RingState {
    /// Returns whether the ring may start.
    fn is_ready(&self) -> bool {
        self.kicked && self.enabled && !self.started && self.size > 0
    }
}

/// A device with one connected driver.
pub(super) struct Backend {
    control: VhostControl,
    queues: u32,
    features: u64,
    memory: Option<Arc<GuestMemory>>,
    rings: Vec<RingState>,
}

impl Backend {
    /// Creates a device with `queues` pairs of rings.
    pub(super) fn new(queues: u32, control: VhostControl) -> Self {
        let rings = vec![RingState::default(); (queues as usize).saturating_mul(2)];
        Self { control, queues, features: 0, memory: None, rings }
    }

    fn ring(&mut self, index: u32) -> Result<&mut RingState> {
        self.rings.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    /// Starts a ring that has all it needs.
    fn start_if_ready(&mut self, index: u32) -> Result<()> {
        let (features, memory) = (self.features, self.memory.clone());
        let ring = self.ring(index)?;
        let (Some(memory), Some(addresses), true) = (memory, ring.addresses, ring.is_ready())
        else {
            return Ok(());
        };
        let params = RingParams {
            size: ring.size,
            base: ring.base,
            packed: features & RING_PACKED != 0,
            in_order: features & IN_ORDER != 0,
            addresses,
        };
        let opened = Ring::open(&memory, &params)
            .map_err(|why| Error::ReqHandlerError(io::Error::other(why)))?;
        ring.started = true;
        self.control.start(index, opened);
        Ok(())
    }

    /// Stops a ring and keeps the position at which it continues.
    fn stop(&mut self, index: u32) -> Result<()> {
        let control = self.control.clone();
        let ring = self.ring(index)?;
        if std::mem::take(&mut ring.started)
            && let Some(opened) = control.stop(index)
        {
            ring.base = opened.base();
        }
        Ok(())
    }

    fn stop_all(&mut self) {
        for index in 0..self.queues.saturating_mul(2) {
            // All indices are valid.
            let _ = self.stop(index);
        }
    }

    /// Returns to the state of a new connection.
    fn reset(&mut self) {
        self.stop_all();
        (self.features, self.memory) = (0, None);
        self.rings.fill(RingState::default());
    }

    /// Returns whether the driver has truncated its memory.
    pub(super) fn is_lost(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.is_lost())
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// Maps a region of the driver's memory.
fn map(region: &VhostUserMemoryRegion, file: &File) -> Result<GuestRegion> {
    let &VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, mmap_offset } = region;
    let end = mmap_offset.checked_add(memory_size).and_then(|end| usize::try_from(end).ok());
    let length = end.ok_or(Error::InvalidParam)?;
    let mapping = ForeignMapping::map(file, length)
        .map_err(|why| Error::ReqHandlerError(io::Error::other(why)))?;
    Ok(GuestRegion {
        guest: guest_phys_addr,
        user: user_addr,
        length: memory_size,
        offset: mmap_offset,
        mapping,
    })
}

/// The answer to requests that belong to features that the device does not offer.
fn not_offered<T>() -> Result<T> {
    Err(Error::InvalidOperation("the device does not offer the feature"))
}

impl Handler for Backend {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(features(self.queues))
    }

    fn set_features(&mut self, accepted: u64) -> Result<()> {
        let is_offered = accepted & !features(self.queues) == 0;
        if !is_offered || accepted & VERSION_1 == 0 {
            return Err(Error::FeatureMismatch);
        }
        if accepted != self.features {
            // Running rings have the former format.
            self.stop_all();
            self.features = accepted;
        }
        if accepted & PROTOCOL_FEATURES == 0 {
            self.rings.iter_mut().for_each(|ring| ring.enabled = true);
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        self.stop_all();
        self.memory = None;
        let lengths = regions.iter().try_fold(0_u64, |all, one| all.checked_add(one.memory_size));
        if lengths.is_none_or(|all| all > MAX_MEMORY) {
            return Err(Error::InvalidParam);
        }
        let mapped = regions.iter().zip(&files).map(|(region, file)| map(region, file));
        self.memory = Some(Arc::new(GuestMemory::new(mapped.collect::<Result<_>>()?)));
        // Drivers that extend their memory do not repeat the addresses of their rings.
        (0..self.queues.saturating_mul(2)).try_for_each(|index| self.start_if_ready(index))?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        self.stop(index)?;
        self.ring(index)?.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        device: u64,
        driver: u64,
        _: u64,
    ) -> Result<()> {
        self.stop(index)?;
        self.ring(index)?.addresses = Some(RingAddresses { descriptors, driver, device });
        self.start_if_ready(index)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.stop(index)?;
        // The upper half, of a packed ring, is the position of the used buffers, which is the same when a ring starts.
        self.ring(index)?.base = base as u16;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.stop(index)?;
        let is_packed = self.features & RING_PACKED != 0;
        let ring = self.ring(index)?;
        // It starts again with the next kick.
        ring.kicked = false;
        let base = u32::from(ring.base);
        Ok(VhostUserVringState::new(index, if is_packed { base | base << 16 } else { base }))
    }

    fn set_vring_kick(&mut self, index: u8, _: Option<File>) -> Result<()> {
        // The device polls and needs no kicks.
        self.ring(index.into())?.kicked = true;
        self.start_if_ready(index.into())
    }

    fn set_vring_call(&mut self, index: u8, _: Option<File>) -> Result<()> {
        // The device sends no interrupts: its drivers poll.
        self.ring(index.into()).map(|_| ())
    }

    fn set_vring_err(&mut self, index: u8, _: Option<File>) -> Result<()> {
        self.ring(index.into()).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ)
    }

    fn set_protocol_features(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.queues.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enabled = enable;
        if enable { self.start_if_ready(index) } else { self.stop(index) }
    }

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        not_offered()
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        not_offered()
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        not_offered()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        not_offered()
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        not_offered()
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        not_offered()
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        not_offered()
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        not_offered()
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        not_offered()
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        not_offered()
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_offered()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_offered()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        not_offered()
    }
}
