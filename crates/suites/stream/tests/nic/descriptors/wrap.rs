//! Rings wrap around at every offset and hold all descriptors but one.

use stream::host::ConfigError;
use stream::host::descriptors::{Device, Sizes};
use stream::nic::configuration::Configuration;

use super::{assert_whole, settle, wired};
use crate::testbed::alone;
use crate::testbed::cable::{flow, frame, of_flits};

/// The packets of a round. Their number is odd, so each is at every index of the rings after as many rounds as the
/// rings have entries. The number of flits of each depends on its index in the round.
const TOGETHER: u32 = 23;

#[test]
fn packets_pass_every_index_of_the_rings() {
    let _alone = alone();
    let sizes = Sizes { rx: 64, tx: 128 };
    let wired = wired(sizes);
    let device = Device::new(&wired.nic.port(), sizes, 1).unwrap();
    let mut queue = device.queue().unwrap();
    queue.bind(flow(0)).unwrap();
    let mut burst = device.burst();
    for round in 0..128 {
        let numbers = round * TOGETHER..;
        let sent: Vec<_> = numbers
            .take(TOGETHER as usize)
            .map(|it| frame(0, of_flits((it % TOGETHER) as usize + 1), it))
            .collect();
        wired.arrive(sent.clone());
        assert_eq!(queue.receive(&mut burst), TOGETHER as usize);
        for (packet, expected) in burst.packets().zip(&sent) {
            assert_eq!(packet, expected);
        }
        queue.send(&mut burst).unwrap();
        for expected in &sent {
            assert_eq!(wired.departed().bytes, *expected);
        }
    }
    let all = u64::from(128 * TOGETHER);
    let counters = wired.counters(all);
    assert_eq!((counters.notifications, counters.out_packets), (all, all));
    assert_eq!((counters.dropped(), counters.refused), (0, 0));
    drop((queue, burst));
    assert_whole(&device);
}

/// A deeper ring keeps more packets for an absent program; the remaining ones are dropped.
#[test]
fn a_ring_holds_all_descriptors_but_one() {
    let _alone = alone();
    for rx in [64, 256, 1024, 8192] {
        let sizes = Sizes { rx, tx: 64 };
        let wired = wired(sizes);
        let device = Device::new(&wired.nic.port(), sizes, 1).unwrap();
        let mut queue = device.queue().unwrap();
        queue.bind(flow(0)).unwrap();
        wired.arrive((0..2 * rx).map(|number| frame(0, 60, number)).collect());
        let counters = wired.counters(u64::from(2 * rx));
        assert_eq!(counters.to_memory, u64::from(rx) - 1);
        assert_eq!(
            (counters.ring_full, counters.dropped()),
            (u64::from(rx) + 1, u64::from(rx) + 1)
        );
        let (mut burst, mut came) = (device.burst(), 0);
        while queue.receive(&mut burst) > 0 {
            came += burst.len();
            burst.clear();
        }
        assert_eq!(came, rx as usize - 1);
    }
}

#[test]
fn own_packets_are_sent_and_timestamps_refused() {
    let _alone = alone();
    let sizes = Sizes { rx: 64, tx: 64 };
    let wired = wired(sizes);
    let device = Device::new(&wired.nic.port(), sizes, 1).unwrap();
    let (mut queue, mut burst) = (device.queue().unwrap(), device.burst());
    for number in 0..1000 {
        let made = frame(1, 60 + number as usize, number);
        burst.add(made.len()).unwrap().copy_from_slice(&made);
        queue.send(&mut burst).unwrap();
        assert_eq!(wired.departed().bytes, made);
    }
    let timestamp = Configuration::Timestamp { offset: 18, enable: true };
    let refused = queue.configure(timestamp).unwrap_err();
    assert_eq!(refused, ConfigError::Timestamp);
    assert!(!refused.to_string().contains('\n'));
    settle(&mut queue);
    drop((queue, burst));
    assert_whole(&device);
}
