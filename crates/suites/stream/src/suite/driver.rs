//! The params of the interface `descriptors`: how its driver uses descriptors and buffers.

use lab::method::Params;

use crate::host::descriptors::DriverKind;
use crate::host::descriptors::driver::{MbufKind, TxCleaning};
use crate::nic::descriptor::RxSize;

/// Params of the interface `descriptors`. By default its driver is as those of DPDK for the 700 and 800 series.
#[derive(Debug, Clone, Copy, Params)]
pub struct DriverParams {
    /// descriptors: size of the descriptors to receive into, which the NIC overwrites
    #[factor(default = "32 B")]
    rx_descriptor: RxSize,
    /// descriptors: when the driver frees the buffers of sent packets, threshold (32 if fewer than 32 descriptors are free) or every-burst (all that the NIC has reported)
    #[factor(default = "threshold")]
    tx_cleaning: TxCleaning,
    /// descriptors: what the driver keeps for each buffer, header (two cache lines before it, as DPDK's rte_mbuf) or none
    #[factor(default = "header")]
    mbuf: MbufKind,
}

impl DriverParams {
    /// Returns the driver.
    pub fn kind(&self) -> DriverKind {
        DriverKind { size: self.rx_descriptor, cleaning: self.tx_cleaning, mbuf: self.mbuf }
    }
}
