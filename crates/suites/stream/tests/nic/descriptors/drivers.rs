//! All drivers receive and send the same packets, and clean as they state.

use proptest::prelude::*;
use stream::host::descriptors::driver::{DriverKind, TxCleaning};
use stream::host::descriptors::{Device, Driver, Queue, Sizes, WithDriver};
use stream::nic::descriptors::Descriptors;

use super::assert_whole;
use crate::testbed::cable::{Wired, flow, frame, of_flits};
use crate::testbed::{TestParams, alone, counters};
use stream::nic::Counters;
use stream::nic::configuration::Configuration;

/// The bursts of the programs.
const BURSTS: [usize; 4] = [1, 32, 48, 64];

fn wired<D: Driver>(sizes: Sizes) -> Wired {
    Wired::with(TestParams::default(), Descriptors::<D::Rx>::new(sizes.rx, sizes.tx))
}

fn settle<D: Driver>(queue: &mut Queue<D>) {
    let nothing = Configuration::RateLimit { numerator: 1, denominator: 1, enable: false };
    queue.configure(nothing).unwrap();
}

/// Echoes packets of these numbers of flits, which arrive in groups. Returns those that leave.
struct Echoed<'a> {
    groups: &'a [Vec<usize>],
    burst: usize,
}

impl WithDriver for Echoed<'_> {
    type Output = Vec<Vec<u8>>;

    fn run<D: Driver>(self) -> Self::Output {
        let sizes = Sizes { rx: 128, tx: 64 };
        let wired = wired::<D>(sizes);
        let device = Device::<D>::open(&wired.nic.port(), sizes, 1, self.burst).unwrap();
        let (mut queue, mut burst) = (device.queue().unwrap(), device.burst());
        queue.bind(flow(0)).unwrap();
        let (mut number, mut echoed) = (0, Vec::new());
        for group in self.groups {
            let mut frames = Vec::new();
            for flits in group {
                frames.push(frame(0, of_flits(*flits), number));
                number += 1;
            }
            wired.arrive(frames);
            let mut left = group.len();
            while left > 0 {
                let received = queue.receive(&mut burst);
                assert!(received <= self.burst && received <= left);
                left -= received;
                burst.packets().for_each(|packet| packet[59] ^= 0x5a);
                queue.send(&mut burst).unwrap();
            }
            echoed.extend(group.iter().map(|_| wired.departed().bytes));
        }
        let all = u64::from(number);
        let is_final = |it: &Counters| it.to_memory >= all && it.out_packets >= all;
        let counters = counters(&wired.nic, is_final);
        assert_eq!((counters.to_memory, counters.out_packets), (all, all));
        assert_eq!((counters.dropped(), counters.refused), (0, 0));
        drop((queue, burst));
        let (free, buffers) = device.buffers();
        assert_eq!(free, buffers, "buffers are missing");
        echoed
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(64)))]
    #[test]
    fn all_drivers_echo_the_same_packets(
        groups in prop::collection::vec(prop::collection::vec(1usize..25, 1..96), 1..12),
    ) {
        let _alone = alone();
        let mut expected = Vec::new();
        for flits in groups.iter().flatten() {
            let mut packet = frame(0, of_flits(*flits), expected.len() as u32);
            packet[59] ^= 0x5a;
            expected.push(packet);
        }
        for kind in DriverKind::all() {
            for burst in BURSTS {
                let echoed = kind.with(Echoed { groups: &groups, burst });
                prop_assert!(echoed == expected, "{kind:?}, bursts of {burst}");
            }
        }
    }
}

/// Sends one packet after another over a ring of 128 descriptors. Returns the buffers that are not in the pool after packet
/// 33, and after the one that finds fewer than 32 descriptors free.
struct Kept;

impl WithDriver for Kept {
    type Output = [u32; 2];

    fn run<D: Driver>(self) -> Self::Output {
        let sizes = Sizes { rx: 64, tx: 128 };
        let wired = wired::<D>(sizes);
        let device = Device::<D>::open(&wired.nic.port(), sizes, 1, 32).unwrap();
        let (mut queue, mut burst) = (device.queue().unwrap(), device.burst());
        let mut send = |queue: &mut Queue<D>, packets: usize| {
            for number in 0..packets {
                let packet = frame(1, 60, number as u32);
                burst.add(60).unwrap().copy_from_slice(&packet);
                queue.send(&mut burst).unwrap();
            }
            let (free, all) = device.buffers();
            all - free - sizes.rx
        };
        send(&mut queue, 32);
        // Takes one descriptor and waits for it, so the NIC has reported those before it.
        settle(&mut queue);
        let early = send(&mut queue, 1);
        send(&mut queue, 61);
        settle(&mut queue);
        let late = send(&mut queue, 1);
        drop((queue, burst));
        let (free, all) = device.buffers();
        assert_eq!(free, all, "buffers are missing");
        [early, late]
    }
}

#[test]
fn a_driver_cleans_when_it_states() {
    let _alone = alone();
    for kind in DriverKind::all() {
        let kept = kind.with(Kept);
        let expected = match kind.cleaning {
            // 34 are used; 97 are, of which the oldest 32 are freed.
            TxCleaning::Threshold => [34, 65],
            // Of 34, 32 are freed; of 97, three times 32.
            TxCleaning::EveryBurst => [2, 1],
        };
        assert_eq!(kept, expected, "{kind:?}");
    }
}

#[test]
fn a_burst_of_64_takes_two_doorbells() {
    let _alone = alone();
    let sizes = Sizes { rx: 128, tx: 128 };
    let wired = super::wired(sizes);
    let device: Device = Device::open(&wired.nic.port(), sizes, 1, 64).unwrap();
    let (mut queue, mut burst) = (device.queue().unwrap(), device.burst());
    queue.bind(flow(0)).unwrap();
    let before = wired.counters(0);
    wired.arrive((0..64).map(|number| frame(0, 60, number)).collect());
    assert_eq!(queue.receive(&mut burst), 64);
    queue.send(&mut burst).unwrap();
    (0..64).for_each(|_| drop(wired.departed()));
    let of_burst = |it: &Counters| it.since(&before);
    let is_final = |it: &Counters| of_burst(it).head_updates >= 2 && of_burst(it).tail_updates >= 2;
    let counters = of_burst(&counters(&wired.nic, is_final));
    assert_eq!((counters.head_updates, counters.tail_updates), (2, 2));
    drop((queue, burst));
    assert_whole(&device);
}
