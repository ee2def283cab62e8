//! Counts of PCIe, for operations whose bytes this test computes.

use crate::testbed::cable::{Wired, flow, frame, of_flits, settle, until};
use crate::testbed::{TestParams, alone};
use stream::host::descriptors::{self, Driver, DriverKind, WithDriver};
use stream::nic::Counters;
use stream::nic::configuration::Configuration;
use stream::nic::descriptor::RxSize;
use stream::nic::descriptors::Descriptors;
use stream::nic::pipes::Notify;

/// Packets and bytes of writes; requests, answers and bytes of reads.
fn moved(counters: &Counters) -> [u64; 5] {
    let Counters { writes, bytes_written, read_requests, completions, bytes_read, .. } = *counters;
    [writes, bytes_written, read_requests, completions, bytes_read]
}

/// Receives packets of this many flits in a pipe and sends them back. Returns what was moved for each.
fn pipe(notify: Notify, flits: &[usize]) -> [Counters; 2] {
    let wired = Wired::new(TestParams { notify, ..TestParams::default() });
    let device = wired.device();
    let mut pipe = device.rx_tx_pipe().unwrap();
    pipe.bind(flow(0)).unwrap();
    settle(&device);
    let packets = flits.len() as u64;
    let before = wired.counters(0);
    wired.arrive(flits.iter().map(|flits| frame(0, of_flits(*flits), 0)).collect());
    let received = wired.counters(packets);
    let bytes = 64 * flits.iter().sum::<usize>();
    until(&device, || pipe.peek().len() == bytes);
    pipe.confirm(bytes);
    pipe.send_and_free(bytes).unwrap();
    flits.iter().for_each(|_| drop(wired.departed()));
    let sent = wired.counters(packets);
    [received.since(&before), sent.since(&received)]
}

#[test]
fn of_pipes() {
    let _alone = alone();
    let [received, sent] = pipe(Notify::Reactively, &[1, 1, 1]);
    // Three packets and one notification.
    assert_eq!(moved(&received), [4, 3 * 64 + 64, 0, 0, 0]);
    // One notification and all packets are read; the notification is written back.
    assert_eq!(moved(&sent), [1, 64, 2, 2, 64 + 192]);
    let [received, sent] = pipe(Notify::Reactively, &[24]);
    // 1536 bytes: six writes of 256; three requests of 512, and six answers.
    assert_eq!(moved(&received), [7, 1536 + 64, 0, 0, 0]);
    assert_eq!(moved(&sent), [1, 64, 1 + 3, 1 + 6, 64 + 1536]);
}

#[test]
fn of_pipes_with_a_notification_per_packet() {
    let _alone = alone();
    let [received, _] = pipe(Notify::EveryPacket, &[1, 1, 1]);
    assert_eq!(moved(&received), [6, 6 * 64, 0, 0, 0]);
}

/// Receives packets with descriptors and sends them back. Returns what was moved for each.
struct Echoed<'a>(&'a [usize]);

impl WithDriver for Echoed<'_> {
    type Output = [Counters; 2];

    fn run<D: Driver>(self) -> Self::Output {
        let sizes = descriptors::Sizes { rx: 128, tx: 128 };
        let engine = Descriptors::<D::Rx>::new(sizes.rx, sizes.tx);
        let wired = Wired::with(TestParams::default(), engine);
        let device = descriptors::Device::<D>::open(&wired.nic.port(), sizes, 1, 64).unwrap();
        let (mut queue, mut burst) = (device.queue().unwrap(), device.burst());
        queue.bind(flow(0)).unwrap();
        let nothing = Configuration::RateLimit { numerator: 1, denominator: 1, enable: false };
        queue.configure(nothing).unwrap();
        let packets = self.0.len() as u64;
        let before = wired.counters(0);
        wired.arrive(self.0.iter().map(|flits| frame(0, of_flits(*flits), 0)).collect());
        let received = wired.counters(packets);
        assert_eq!(queue.receive(&mut burst), self.0.len());
        queue.send(&mut burst).unwrap();
        self.0.iter().for_each(|_| drop(wired.departed()));
        let sent = wired.counters(packets);
        [received.since(&before), sent.since(&received)]
    }
}

#[test]
fn of_descriptors() {
    let _alone = alone();
    for kind in DriverKind::all() {
        let (size, lines) = match kind.size {
            RxSize::Short => (16, 2),
            RxSize::Long => (32, 3),
        };
        let [received, sent] = kind.with(Echoed(&[1; 5]));
        // Five packets, and the cache lines of five descriptors.
        assert_eq!(moved(&received), [5 + lines, 5 * 64 + 5 * size, 0, 0, 0], "{kind:?}");
        // Five descriptors are read at once, each packet by itself; no descriptor is due for a report.
        assert_eq!(moved(&sent), [0, 0, 6, 6, 5 * 16 + 5 * 64], "{kind:?}");
        assert_eq!((received.register_writes, sent.register_writes), (0, 1));
        let [received, sent] = kind.with(Echoed(&[24; 33]));
        let lines = 33_u64.div_ceil(64 / size);
        assert_eq!(moved(&received), [33 * 6 + lines, 33 * (1536 + size), 0, 0, 0], "{kind:?}");
        // 32 descriptors of each kind are read, then one more to send. The configuration has taken two descriptors, so
        // slot 31, which is reported, is that of packet 30.
        let refill = 32 * size;
        let requests = refill.div_ceil(512) + 1 + 1 + 33 * 3;
        let answers = refill.div_ceil(256) + 2 + 1 + 33 * 6;
        let read = refill + 33 * 16 + 33 * 1536;
        assert_eq!(moved(&sent), [1, 16, requests, answers, read], "{kind:?}");
        assert_eq!(sent.register_writes, 3);
    }
}
