//! The NIC's counters, with the hardware's names.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:literal,)+) => {
        /// Values of the NIC's counters.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        impl Counters {
            /// Returns the counters with their names, in the hardware's order.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field),)+]
            }

            /// Returns the differences to an earlier value.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(before.$field),)+ }
            }
        }

        /// The counters as other threads see them, updated every millisecond.
        #[derive(Debug, Default)]
        pub(crate) struct PublishedCounters {
            $($field: AtomicU64,)+
        }

        impl PublishedCounters {
            pub(crate) fn publish(&self, counters: &Counters) {
                $(self.$field.store(counters.$field, Ordering::Relaxed);)+
            }

            pub(crate) fn read(&self) -> Counters {
                Counters { $($field: self.$field.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Packets received from the wire.
    in_packets = "IN_PKT",
    /// Packets sent to the wire.
    out_packets = "OUT_PKT",
    /// Packets dropped because they match no rule and there is no fallback.
    no_queue = "PKT_DROP",
    /// Packets dropped because the pipe or descriptor ring was full.
    ring_full = "CPU_PKT_BUF_FULL",
    /// Packets dropped because the notification buffer was full.
    notifications_full = "CPU_DSC_BUF_FULL",
    /// Packets written to memory.
    to_memory = "RX_DMA_PKT",
    /// Flits written to memory.
    flits = "RX_DMA_PKT_FLIT_CNT",
    /// Notifications or descriptors written to memory.
    notifications = "RX_DMA_DSC_CNT",
    /// Writes to the head of a pipe.
    head_updates = "RX_PKT_HEAD_UPD",
    /// Writes to the tail of the transmit notifications or descriptors.
    tail_updates = "TX_DSC_TAIL_UPD",
    /// Transmit notifications or descriptors read.
    transmissions = "PCIE_TX_DSC_CNT",
    /// Flits read from memory to be sent, including the first parts of packets in two parts.
    flits_read = "PCIE_TX_PKT_READ_CNT",
    /// Packets of PCIe that the NIC wrote with, as a card would: of packets, notifications, descriptors.
    writes = "PCIE_WR_TLP",
    /// Bytes of these writes, without overhead.
    bytes_written = "PCIE_WR_BYTES",
    /// Packets of PCIe that requested reads.
    read_requests = "PCIE_RD_TLP",
    /// Packets of PCIe that answered them.
    completions = "PCIE_CPL_TLP",
    /// Bytes of these answers, without overhead.
    bytes_read = "PCIE_CPL_BYTES",
    /// Writes to registers.
    register_writes = "PCIE_REG_WR",
    /// Rules set in the flow table.
    rules = "RULE_SET",
    /// Rules for which the flow table had no space.
    rules_refused = "EVICTION",
    /// Refused requests, e.g. for memory of another client or a queue that does not exist.
    refused = "REFUSED",
}

impl Counters {
    /// Returns the number of received packets that were dropped.
    pub fn dropped(&self) -> u64 {
        self.no_queue + self.ring_full + self.notifications_full
    }
}
