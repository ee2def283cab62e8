//! How a driver uses descriptors and buffers: types, so that its loops are compiled for each way.

use std::marker::PhantomData;

use lab::factor::LevelType;

use super::mbuf::{Header, Mbuf, NoHeader};
use crate::nic::descriptor::{Descriptor, LongDescriptor, RxDescriptor, RxSize};

/// A way in which a driver uses descriptors and buffers.
pub trait Driver: 'static {
    /// The descriptors to receive into.
    type Rx: RxDescriptor;
    /// Record that the driver keeps for each buffer.
    type Mbuf: Mbuf;
    /// Whether the driver frees the buffers of sent packets in every burst, and not only if few descriptors are free.
    const CLEANS_EVERY_BURST: bool;
}

/// The driver with these descriptors, metadata and cleaning.
pub struct With<D, M, const CLEANS_EVERY_BURST: bool>(PhantomData<(D, M)>);

impl<D: RxDescriptor, M: Mbuf, const EVERY: bool> Driver for With<D, M, EVERY> {
    type Rx = D;
    type Mbuf = M;
    const CLEANS_EVERY_BURST: bool = EVERY;
}

/// The driver as those of DPDK for the 700 and 800 series (i40e, ice) by default.
pub type Dpdk = With<LongDescriptor, Header, false>;

/// When the driver frees the buffers of sent packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum TxCleaning {
    /// If fewer than 32 descriptors of the ring are free: 32 at a time.
    Threshold,
    /// In every burst: all that the NIC has reported.
    EveryBurst,
}

/// Record that the driver keeps for each buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum MbufKind {
    /// A header of two cache lines before it, as DPDK's `rte_mbuf`.
    Header,
    /// Nothing: the lengths of a burst are in an array.
    None,
}

/// A driver as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverKind {
    /// Size of the descriptors to receive into.
    pub size: RxSize,
    /// When it frees the buffers of sent packets.
    pub cleaning: TxCleaning,
    /// Record that it keeps for each buffer.
    pub mbuf: MbufKind,
}

impl Default for DriverKind {
    /// Returns that of [`Dpdk`].
    fn default() -> Self {
        Self { size: RxSize::Long, cleaning: TxCleaning::Threshold, mbuf: MbufKind::Header }
    }
}

/// An operation with a driver that is known as a type.
pub trait WithDriver {
    /// Its result.
    type Output;

    /// Runs it.
    fn run<D: Driver>(self) -> Self::Output;
}

impl DriverKind {
    /// All drivers.
    pub fn all() -> impl Iterator<Item = Self> {
        use MbufKind::{Header, None};
        use TxCleaning::{EveryBurst, Threshold};
        let each = [RxSize::Short, RxSize::Long].into_iter().flat_map(|size| {
            [Threshold, EveryBurst]
                .map(move |cleaning| [Header, None].map(|mbuf| (size, cleaning, mbuf)))
        });
        each.flatten().map(|(size, cleaning, mbuf)| Self { size, cleaning, mbuf })
    }

    /// Runs an operation with the driver as a type.
    pub fn with<O: WithDriver>(self, operation: O) -> O::Output {
        match self.size {
            RxSize::Short => self.with_descriptor::<Descriptor, O>(operation),
            RxSize::Long => self.with_descriptor::<LongDescriptor, O>(operation),
        }
    }

    fn with_descriptor<D: RxDescriptor, O: WithDriver>(self, operation: O) -> O::Output {
        use MbufKind as Kind;
        use TxCleaning::{EveryBurst, Threshold};
        match (self.cleaning, self.mbuf) {
            (Threshold, Kind::Header) => operation.run::<With<D, Header, false>>(),
            (Threshold, Kind::None) => operation.run::<With<D, NoHeader, false>>(),
            (EveryBurst, Kind::Header) => operation.run::<With<D, Header, true>>(),
            (EveryBurst, Kind::None) => operation.run::<With<D, NoHeader, true>>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;
    use std::collections::HashSet;

    use super::*;

    /// Returns what the type states of itself.
    struct Stated;

    impl WithDriver for Stated {
        type Output = (RxSize, bool, u32, TypeId);

        fn run<D: Driver>(self) -> Self::Output {
            (D::Rx::SIZE, D::CLEANS_EVERY_BURST, D::Mbuf::DATA, TypeId::of::<D>())
        }
    }

    #[test]
    fn each_driver_is_the_type_that_its_values_state() {
        let mut types = HashSet::new();
        for kind in DriverKind::all() {
            let (size, every_burst, data, type_id) = kind.with(Stated);
            assert_eq!(size, kind.size);
            assert_eq!(every_burst, kind.cleaning == TxCleaning::EveryBurst);
            assert_eq!(data > 0, kind.mbuf == MbufKind::Header);
            types.insert(type_id);
        }
        assert_eq!(types.len(), 8);
        assert_eq!(DriverKind::default().with(Stated).3, TypeId::of::<Dpdk>());
    }
}
