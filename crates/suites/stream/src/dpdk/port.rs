//! A port of DPDK and its queues.

use std::ffi::{CStr, c_char};
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use machine::SysError;

use super::ffi::{self, Counters, Description, Mbuf, Opened, Packet};
use super::{Eal, failed};
use crate::link::{BURST, EthernetAddress};

/// A started port, stopped when dropped.
pub struct Port {
    number: u16,
    opened: Opened,
    /// Counters when it was started.
    before: Counters,
    // Dropped last.
    _eal: Eal,
}

// SAFETY: the functions that are called by several threads are safe for them, or have separate queues.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}

/// Properties of a port as DPDK reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortDescription {
    /// Its name, e.g. `0000:3b:00.0`.
    pub name: String,
    /// Its driver, e.g. `net_ice`.
    pub driver: String,
    /// Its Ethernet address; `None` if it has none.
    pub ethernet: Option<EthernetAddress>,
    /// Whether its link is up.
    pub is_up: bool,
    /// Speed of its link in Mbit/s; `None` if it is unknown.
    pub speed: Option<u32>,
}

/// Packets that a port has dropped since it was started, by cause, with the name of DPDK's counter.
pub type Drops = [(&'static str, u64); 4];

impl Port {
    /// Starts the only port of EAL, and returns its `queues` queues, each of about `depth` descriptors in each direction.
    ///
    /// The port receives packets to any Ethernet address. If it has several queues, the hash of a packet's flow chooses the queue.
    ///
    /// # Errors
    /// Returns what is missing: a port, queues, memory, or support by the driver.
    pub fn start(eal: Eal, queues: u16, depth: u16) -> Result<(Arc<Self>, Vec<Queue>), SysError> {
        let number = eal.only_port()?;
        let described = describe(number)?;
        let (name, max) = (text(&described.name), described.max_queues);
        if queues > max {
            return Err(SysError {
                attempt: format!("use {queues} queues of {name}"),
                source: io::Error::other(format!("it has {max}")),
                remedy: "use fewer cores or queues, or an option of its driver, e.g. queues=N"
                    .into(),
            });
        }
        let opened = Opened { pool: std::ptr::null_mut(), rx_depth: 0, tx_depth: 0 };
        // Stopped when dropped, also if starting fails.
        let mut port = Self { number, opened, before: Counters::default(), _eal: eal };
        let mut step: *const c_char = c"".as_ptr();
        // SAFETY: the port exists; the function writes to `opened` and `step`.
        let status = unsafe {
            ffi::tollgate_dpdk_start(number, queues, depth, &raw mut port.opened, &raw mut step)
        };
        if status < 0 {
            // SAFETY: the function has stored a constant string.
            let step = unsafe { CStr::from_ptr(step) }.to_string_lossy().into_owned();
            let remedy = match status.saturating_neg() {
                libc::ENOMEM => "give EAL more memory, e.g. -m 1024, or use a smaller --depth",
                _ => "see the messages of its driver (--log-level=8), and use another --depth",
            };
            return Err(failed(format!("{step} of {name}"), status, remedy));
        }
        port.before = port.counters();
        let port = Arc::new(port);
        let queue = |index| Queue { port: Arc::clone(&port), index, waiting: Vec::new() };
        let queues = (0..queues).map(queue).collect();
        Ok((port, queues))
    }

    /// Describes the port.
    ///
    /// # Errors
    /// Returns why it is no longer available.
    pub fn describe(&self) -> Result<PortDescription, SysError> {
        let described = describe(self.number)?;
        let is_known = ![0, ffi::UNKNOWN_SPEED].contains(&described.speed);
        Ok(PortDescription {
            name: text(&described.name),
            driver: text(&described.driver),
            ethernet: EthernetAddress::new(described.address),
            is_up: described.is_up != 0,
            speed: is_known.then_some(described.speed),
        })
    }

    /// Returns the descriptors of each queue to receive, and to send.
    pub fn depths(&self) -> [u16; 2] {
        [self.opened.rx_depth, self.opened.tx_depth]
    }

    /// Returns the received and the sent packets since the start.
    pub fn packets(&self) -> [u64; 2] {
        let (now, before) = (self.counters(), self.before);
        [(now.received, before.received), (now.sent, before.sent)]
            .map(|(now, before)| now.saturating_sub(before))
    }

    /// Returns the packets that the port has dropped since the start.
    pub fn drops(&self) -> Drops {
        let (now, before) = (self.counters(), self.before);
        [
            ("receive queue full (imissed)", now.missed, before.missed),
            ("no free buffer (rx_nombuf)", now.no_buffer, before.no_buffer),
            ("damaged when received (ierrors)", now.receive_errors, before.receive_errors),
            ("not sent (oerrors)", now.send_errors, before.send_errors),
        ]
        .map(|(name, now, before)| (name, now.saturating_sub(before)))
    }

    /// Returns the counters; zeros if the driver has none.
    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: the port exists, and the function writes to `counters`.
        unsafe { ffi::tollgate_dpdk_counters(self.number, &raw mut counters) };
        counters
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: no queue is used any more, because each has a reference to the port; its packets are freed.
        unsafe {
            ffi::rte_eth_dev_stop(self.number);
            ffi::rte_eth_dev_close(self.number);
            ffi::rte_mempool_free(self.opened.pool);
        }
    }
}

/// Returns the name of a port.
pub(super) fn name(port: u16) -> Option<String> {
    describe(port).ok().map(|described| text(&described.name))
}

fn describe(port: u16) -> Result<Description, SysError> {
    let mut described = std::mem::MaybeUninit::uninit();
    // SAFETY: the function initialises the structure, also if it fails.
    let (status, described) = unsafe {
        let status = ffi::tollgate_dpdk_describe(port, described.as_mut_ptr());
        (status, described.assume_init())
    };
    match status {
        0 => Ok(described),
        _ => Err(failed("read the features of a port", status, "use another driver")),
    }
}

fn text(bytes: &[u8]) -> String {
    let until = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..until]).into_owned()
}

/// A queue to receive and one to send, for one thread.
pub struct Queue {
    port: Arc<Port>,
    index: u16,
    /// Packets to send for which there was no space.
    waiting: Vec<*mut Mbuf>,
}

// SAFETY: the packets are accessed only by the queue.
unsafe impl Send for Queue {}

impl Queue {
    /// Replaces `packets`, which has space for [`BURST`], by received ones. Their buffers belong to the caller.
    #[inline]
    pub(crate) fn receive(&mut self, packets: &mut Vec<Packet>) {
        packets.clear();
        packets.reserve(BURST);
        // SAFETY: the queue is this thread's; the function writes up to `BURST` packets, for which there is space.
        unsafe {
            let port = self.port.number;
            let count = ffi::tollgate_dpdk_receive(port, self.index, packets.as_mut_ptr());
            packets.set_len(count.into());
        }
    }

    /// Adds a packet to those that are sent next, in order.
    ///
    /// # Safety
    /// The packet was received from the same port, and the caller does not access it any more.
    #[inline]
    pub(crate) unsafe fn push(&mut self, mbuf: *mut Mbuf) {
        self.waiting.push(mbuf);
    }

    /// Sends the packets that wait. Returns whether there was space for all.
    #[inline]
    pub(crate) fn flush(&mut self) -> bool {
        if self.waiting.is_empty() {
            return true;
        }
        // SAFETY: the queue is this thread's, and the packets belong to it; the first `sent` of them to the port afterwards.
        let sent = unsafe {
            let count = u16::try_from(self.waiting.len()).unwrap_or(u16::MAX);
            let (port, mbufs) = (self.port.number, self.waiting.as_mut_ptr());
            ffi::tollgate_dpdk_send(port, self.index, mbufs, count)
        };
        self.waiting.drain(..usize::from(sent));
        self.waiting.is_empty()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.flush();
        // SAFETY: the packets are the queue's.
        unsafe { free(&mut self.waiting) };
    }
}

/// Frees the buffers of packets, and removes them from the list.
///
/// # Safety
/// The packets were received, and the caller does not access them any more.
#[inline]
pub(crate) unsafe fn free(mbufs: &mut Vec<*mut Mbuf>) {
    let count = u32::try_from(mbufs.len()).unwrap_or(u32::MAX);
    // SAFETY: the caller guarantees that the packets can be freed.
    unsafe { ffi::rte_pktmbuf_free_bulk(mbufs.as_mut_ptr(), count) };
    mbufs.clear();
}

/// Sets the length of a packet.
///
/// # Safety
/// The packet is the caller's, in one buffer, with space for this length.
pub(crate) unsafe fn set_length(mbuf: *mut Mbuf, length: u16) {
    // SAFETY: the caller guarantees it.
    unsafe { ffi::tollgate_dpdk_set_length(mbuf, length) };
}

/// This thread as one of DPDK's, with a cache of buffers. Others would use a shared ring for each burst.
pub(crate) struct Registered {
    // Its drop must run on the same thread.
    _thread: PhantomData<*const ()>,
}

impl Registered {
    /// Registers this thread.
    ///
    /// # Errors
    /// Returns an error if DPDK has no number for the thread.
    pub(crate) fn new() -> Result<Self, SysError> {
        // SAFETY: EAL runs, and this thread is not registered.
        if unsafe { ffi::rte_thread_register() } == 0 {
            return Ok(Self { _thread: PhantomData });
        }
        // SAFETY: the function reads a variable of this thread.
        let error = unsafe { ffi::tollgate_dpdk_errno() };
        Err(failed("register a core with DPDK", error.saturating_neg(), "use fewer cores"))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: this thread is registered.
        unsafe { ffi::rte_thread_unregister() };
    }
}
