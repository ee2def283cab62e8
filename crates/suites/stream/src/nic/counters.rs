//! The NIC's counters, by the names that the hardware gives them.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:literal,)+) => {
        /// What the NIC counted so far.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        impl Counters {
            /// Each with its name, in the order in which the hardware shows them.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field),)+]
            }

            /// What was counted since.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(before.$field),)+ }
            }
        }

        /// The same where other threads see them, as of a moment ago.
        #[derive(Debug, Default)]
        pub(crate) struct Shown {
            $($field: AtomicU64,)+
        }

        impl Shown {
            pub(crate) fn show(&self, counters: &Counters) {
                $(self.$field.store(counters.$field, Ordering::Relaxed);)+
            }

            pub(crate) fn read(&self) -> Counters {
                Counters { $($field: self.$field.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Packets that came from the wire.
    in_packets = "IN_PKT",
    /// Packets that left to the wire.
    out_packets = "OUT_PKT",
    /// Packets that belong to no flow and for which there is no fallback: dropped.
    no_queue = "PKT_DROP",
    /// Packets for which the pipe or descriptor ring had no room: dropped.
    ring_full = "CPU_PKT_BUF_FULL",
    /// Packets whose notification had no room: dropped.
    notifications_full = "CPU_DSC_BUF_FULL",
    /// Packets written to memory.
    to_memory = "RX_DMA_PKT",
    /// Flits written to memory.
    flits = "RX_DMA_PKT_FLIT_CNT",
    /// Notifications or descriptors written to memory, once they are there.
    notifications = "RX_DMA_DSC_CNT",
    /// Writes to the head of a pipe.
    head_updates = "RX_PKT_HEAD_UPD",
    /// Writes to the tail of the TX notifications or descriptors.
    tail_updates = "TX_DSC_TAIL_UPD",
    /// TX notifications or descriptors read.
    transmissions = "PCIE_TX_DSC_CNT",
    /// Flits of packets that were taken from memory to be sent; of a packet that is in two parts, those of the
    /// first part too.
    flits_read = "PCIE_TX_PKT_READ_CNT",
    /// Rules set in the flow table.
    rules = "RULE_SET",
    /// Rules for which the flow table had no room.
    rules_refused = "EVICTION",
    /// What a program asked for and the NIC refused: memory that it may not touch, no such queue.
    refused = "REFUSED",
}

impl Counters {
    /// Packets that came and went no further.
    pub fn dropped(&self) -> u64 {
        self.no_queue + self.ring_full + self.notifications_full
    }
}
