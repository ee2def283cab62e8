//! The functions of DPDK, and those of `shim.c`.

use std::ffi::{c_char, c_int, c_uint};
use std::mem::offset_of;

use crate::link::BURST;

/// `RTE_ETH_NAME_MAX_LEN`.
pub(super) const NAME: usize = 64;
/// `RTE_ETH_SPEED_NUM_UNKNOWN`.
pub(super) const UNKNOWN_SPEED: u32 = u32::MAX;

/// `struct rte_mbuf`: a buffer with a packet.
#[repr(C)]
pub(crate) struct Mbuf {
    _opaque: [u8; 0],
}

/// `struct rte_mempool`: a pool of buffers.
#[repr(C)]
pub(super) struct Mempool {
    _opaque: [u8; 0],
}

/// A received packet.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Packet {
    /// Its buffer, which belongs to the receiver.
    pub(crate) mbuf: *mut Mbuf,
    /// Address of its first byte.
    pub(crate) start: *mut u8,
    /// Its length in bytes; 0 if it is in several buffers.
    pub(crate) length: u32,
}

/// Properties of a port as DPDK reports them.
#[repr(C)]
pub(super) struct Description {
    pub(super) name: [u8; NAME],
    pub(super) driver: [u8; NAME],
    pub(super) address: [u8; 6],
    pub(super) max_queues: u16,
    pub(super) is_up: u16,
    /// In Mbit/s.
    pub(super) speed: u32,
}

/// The queues of a started port.
#[repr(C)]
pub(super) struct Opened {
    pub(super) pool: *mut Mempool,
    pub(super) rx_depth: u16,
    pub(super) tx_depth: u16,
}

/// Packets of a port.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) missed: u64,
    pub(super) no_buffer: u64,
    pub(super) receive_errors: u64,
    pub(super) send_errors: u64,
}

// `shim.c` receives as many.
const _: () = assert!(BURST == 64);
// `shim.c` asserts the same of its structures.
const _: () = {
    assert!(size_of::<Packet>() == 24 && offset_of!(Packet, length) == 16);
    assert!(size_of::<Description>() == 144 && offset_of!(Description, address) == 128);
    assert!(offset_of!(Description, speed) == 140);
    assert!(size_of::<Opened>() == 16 && offset_of!(Opened, tx_depth) == 10);
    assert!(size_of::<Counters>() == 48 && offset_of!(Counters, send_errors) == 40);
};

unsafe extern "C" {
    pub(super) fn tollgate_dpdk_log_to_stderr();
    pub(super) fn tollgate_dpdk_errno() -> c_int;
    pub(super) fn tollgate_dpdk_cpu(index: c_uint) -> c_int;
    pub(super) fn tollgate_dpdk_ports(ports: *mut u16, max: c_uint) -> c_uint;
    pub(super) fn tollgate_dpdk_describe(port: u16, to: *mut Description) -> c_int;
    pub(super) fn tollgate_dpdk_start(
        port: u16,
        queues: u16,
        depth: u16,
        to: *mut Opened,
        step: *mut *const c_char,
    ) -> c_int;
    pub(super) fn tollgate_dpdk_counters(port: u16, to: *mut Counters) -> c_int;
    pub(super) fn tollgate_dpdk_receive(port: u16, queue: u16, packets: *mut Packet) -> u16;
    pub(super) fn tollgate_dpdk_send(
        port: u16,
        queue: u16,
        mbufs: *mut *mut Mbuf,
        count: u16,
    ) -> u16;
    pub(super) fn tollgate_dpdk_set_length(mbuf: *mut Mbuf, length: u16);

    pub(super) fn rte_eal_init(count: c_int, arguments: *mut *mut c_char) -> c_int;
    pub(super) fn rte_eal_cleanup() -> c_int;
    pub(super) fn rte_eth_dev_stop(port: u16) -> c_int;
    pub(super) fn rte_eth_dev_close(port: u16) -> c_int;
    pub(super) fn rte_mempool_free(pool: *mut Mempool);
    pub(super) fn rte_pktmbuf_free_bulk(mbufs: *mut *mut Mbuf, count: c_uint);
    pub(super) fn rte_strerror(error: c_int) -> *const c_char;
    pub(super) fn rte_thread_register() -> c_int;
    pub(super) fn rte_thread_unregister();
    pub(super) fn rte_version() -> *const c_char;
}
