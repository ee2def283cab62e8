//! The interface between an application and what delivers its packets.

use std::mem;
use std::net::Ipv4Addr;

/// Maximum number of packets that an application takes before it returns the first of them.
pub const MAX_AHEAD: usize = 32;

/// Treatment of a packet after the application's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is sent with its addresses, possibly with other rewritten fields.
    Send,
    /// It is an answer to its sender: its addresses have been swapped.
    Reply,
    /// It is not sent.
    Consume,
}

impl Decision {
    /// Returns whether the packet is sent. An interface with one port sends both kinds there.
    #[inline(always)]
    pub fn is_sent(self) -> bool {
        self != Decision::Consume
    }
}

/// Which bytes of a packet an application accesses, for an interface that prefetches packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Few besides the first 64 B, which contain the headers.
    Headers,
    /// All.
    Whole {
        /// Distance of the prefetch in packets: as many as are taken before the first is returned, or fewer if the work on each is
        /// longer than the time in which its lines arrive, because what is prefetched has to fit the L1 cache.
        ahead: usize,
    },
}

/// A named number of packets, or of another item, since the start of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The name, in the plural and in kebab case, e.g. `short-packets`.
    pub name: &'static str,
    /// The number.
    pub value: u64,
}

/// A number that an application has found out about the packets, besides its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub subject: Subject,
    /// Number of its packets, or of matching lines.
    pub value: u64,
}

/// Subject of a [`Finding`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A pair of addresses with many packets, whose number is an estimate.
    Flow {
        /// Address of the sender.
        source: Ipv4Addr,
        /// Address of the receiver.
        destination: Ipv4Addr,
    },
    /// A file of rules, with the number of lines that match one.
    RuleFile(String),
}

/// Work on packets, on one core.
pub trait Application {
    /// Which bytes of a packet it accesses.
    const ACCESS: Access = Access::Headers;

    /// Processes received packets in place: passes each to `done`, once and in order, with what to do with it. Takes at
    /// most [`MAX_AHEAD`] packets before it returns the first of them.
    ///
    /// Implementations are `#[inline(always)]`, so that the loop of the interface and the work become one.
    fn process<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut [u8]>,
        done: impl FnMut(&'a mut [u8], Decision),
    );

    /// Returns what the application has counted.
    fn counts(&self) -> Vec<Count>;

    /// Returns what the application has found out.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }
}

/// Passes packets to `each` in groups of up to `N`, which can be processed in several passes.
///
/// # Panics
/// Does not compile if `N` exceeds [`MAX_AHEAD`] or is 0.
#[inline(always)]
pub fn in_groups<'a, const N: usize>(
    mut packets: impl Iterator<Item = &'a mut [u8]>,
    mut each: impl FnMut(&mut [&'a mut [u8]]),
) {
    const { assert!(N > 0 && N <= MAX_AHEAD) };
    let mut group: [&'a mut [u8]; N] = std::array::from_fn(|_| Default::default());
    loop {
        let mut length = 0;
        while length < N
            && let Some(packet) = packets.next()
        {
            group[length] = packet;
            length += 1;
        }
        if length > 0 {
            each(&mut group[..length]);
        }
        if length < N {
            return;
        }
    }
}

/// Takes a packet out of a group, to return it.
#[inline(always)]
pub fn take<'a>(packet: &mut &'a mut [u8]) -> &'a mut [u8] {
    mem::take(packet)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs an application over packets and returns the decisions; checks that each packet returns once and in order.
    pub(crate) fn run(
        application: &mut impl Application,
        packets: &mut [Vec<u8>],
    ) -> Vec<Decision> {
        let addresses: Vec<_> = packets.iter().map(|packet| packet.as_ptr()).collect();
        let (mut decisions, taken) = (Vec::new(), std::cell::Cell::new(0));
        let iterator =
            packets.iter_mut().map(Vec::as_mut_slice).inspect(|_| taken.set(taken.get() + 1));
        application.process(iterator, |packet, decision| {
            assert_eq!(packet.as_ptr(), addresses[decisions.len()], "order");
            assert!(taken.get() <= decisions.len() + MAX_AHEAD, "takes too many");
            decisions.push(decision);
        });
        assert_eq!(decisions.len(), packets.len(), "each packet returns");
        decisions
    }

    #[test]
    fn groups_contain_each_packet_once() {
        for number in 0..20usize {
            let mut packets: Vec<_> = (0..number).map(|n| vec![n as u8; 3]).collect();
            let (mut seen, mut groups) = (Vec::new(), Vec::new());
            in_groups::<8>(packets.iter_mut().map(Vec::as_mut_slice), |group| {
                groups.push(group.len());
                seen.extend(group.iter_mut().map(|packet| take(packet)[0]));
            });
            assert_eq!(seen, (0..number as u8).collect::<Vec<_>>());
            assert_eq!(groups.len(), number.div_ceil(8), "full groups, then the remainder");
        }
    }
}
