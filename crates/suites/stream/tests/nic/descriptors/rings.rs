//! Rings and pool agree with a model after any operations of the program and any arrivals.

use std::collections::VecDeque;

use proptest::prelude::*;
use stream::host::descriptors::{BURST, Burst, Device, Queue, Sizes};

use super::{assert_whole, settle, wired};
use crate::testbed::alone;
use crate::testbed::cable::{Wired, flow, frame, of_flits};

const SIZES: Sizes = Sizes { rx: 64, tx: 64 };
const QUEUES: usize = 2;
/// The number of bursts; the pool has enough buffers for them beyond the rings.
const BURSTS: usize = 3;

/// An operation.
#[derive(Debug, Clone)]
enum Step {
    /// Packets with these numbers of flits arrive at queues.
    Come(Vec<(usize, usize)>),
    /// A burst receives from a queue.
    Receive(usize, usize),
    /// A queue sends a burst.
    Send(usize, usize),
    /// A packet with this number of flits is written to a burst.
    Add(usize, usize),
    /// The packets of a burst at the bits that are set are dropped.
    Remove(usize, u32),
    /// All packets of a burst are dropped.
    Clear(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let flits = || prop_oneof![4 => 1usize..4, 1 => 4usize..25];
    prop_oneof![
        3 => prop::collection::vec((0..QUEUES, flits()), 1..60).prop_map(Step::Come),
        4 => (0..QUEUES, 0..BURSTS).prop_map(|(queue, burst)| Step::Receive(queue, burst)),
        2 => (0..QUEUES, 0..BURSTS).prop_map(|(queue, burst)| Step::Send(queue, burst)),
        1 => (0..BURSTS, flits()).prop_map(|(burst, flits)| Step::Add(burst, flits)),
        2 => (0..BURSTS, any::<u32>()).prop_map(|(burst, bits)| Step::Remove(burst, bits)),
        1 => (0..BURSTS).prop_map(Step::Clear),
    ]
}

/// The expected state of a queue.
struct Model {
    waiting: VecDeque<Vec<u8>>,
    /// Descriptors that the NIC may use.
    free: usize,
    /// Received packets that were not refilled.
    owed: usize,
}

impl Model {
    fn comes(&mut self, packet: Vec<u8>) -> bool {
        if self.free > 0 {
            self.free -= 1;
            self.waiting.push_back(packet);
            return true;
        }
        false
    }

    /// Returns what a burst with this much space receives.
    fn received(&mut self, room: usize) -> Vec<Vec<u8>> {
        let taken = room.min(self.waiting.len());
        self.owed += taken;
        if self.owed >= BURST {
            self.owed -= BURST;
            self.free += BURST;
        }
        self.waiting.drain(..taken).collect()
    }
}

/// The device and its model.
struct Both {
    wired: Wired,
    device: Device,
    queues: Vec<Queue>,
    bursts: Vec<Burst>,
    models: Vec<Model>,
    held: Vec<Vec<Vec<u8>>>,
    next: u32,
    come: u64,
    dropped: u64,
    left: u64,
}

impl Both {
    fn new() -> Self {
        let wired = wired(SIZES);
        let device = Device::new(&wired.nic.port(), SIZES, QUEUES as u32).unwrap();
        let queue = |number| {
            let mut queue = device.queue().unwrap();
            queue.bind(flow(number)).unwrap();
            queue
        };
        let queues = (0..QUEUES as u32).map(queue).collect();
        let bursts = (0..BURSTS).map(|_| device.burst()).collect();
        let model = || Model { waiting: VecDeque::new(), free: SIZES.rx as usize - 1, owed: 0 };
        Self {
            wired,
            device,
            queues,
            bursts,
            models: (0..QUEUES).map(|_| model()).collect(),
            held: vec![Vec::new(); BURSTS],
            next: 0,
            come: 0,
            dropped: 0,
            left: 0,
        }
    }

    fn packet(&mut self, queue: usize, flits: usize) -> Vec<u8> {
        self.next += 1;
        frame(queue as u32, of_flits(flits), self.next)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Come(packets) => {
                let mut frames = Vec::new();
                for (queue, flits) in packets {
                    let packet = self.packet(queue, flits);
                    self.dropped += u64::from(!self.models[queue].comes(packet.clone()));
                    frames.push(packet);
                }
                self.come += frames.len() as u64;
                self.wired.arrive(frames);
            }
            Step::Receive(queue, burst) => {
                let room = BURST - self.held[burst].len();
                let expected = self.models[queue].received(room);
                let received = self.queues[queue].receive(&mut self.bursts[burst]);
                assert_eq!(received, expected.len());
                self.held[burst].extend(expected);
                // The NIC knows about the refill, if any.
                settle(&mut self.queues[queue]);
            }
            Step::Send(queue, burst) => {
                self.queues[queue].send(&mut self.bursts[burst]).unwrap();
                for packet in self.held[burst].drain(..) {
                    assert_eq!(self.wired.departed().bytes, packet);
                    self.left += 1;
                }
            }
            Step::Add(burst, flits) => {
                let packet = self.packet(0, flits);
                let added = self.bursts[burst].add(packet.len());
                assert_eq!(added.is_some(), self.held[burst].len() < BURST);
                if let Some(place) = added {
                    place.copy_from_slice(&packet);
                    self.held[burst].push(packet);
                }
            }
            Step::Remove(burst, bits) => {
                let indices = (0..self.held[burst].len() as u32).filter(|at| bits >> at & 1 == 1);
                self.bursts[burst].remove(&indices.collect::<Vec<_>>());
                let mut bits = (0..).map(|at| bits >> at & 1 == 1);
                self.held[burst].retain(|_| !bits.next().unwrap());
            }
            Step::Clear(burst) => {
                self.bursts[burst].clear();
                self.held[burst].clear();
            }
        }
        for (burst, held) in self.bursts.iter_mut().zip(&self.held) {
            assert_eq!(burst.len(), held.len());
            assert!(burst.packets().eq(held.iter()), "a packet is not as it was");
        }
    }

    fn end(self) {
        let counters = self.wired.counters(self.come);
        assert_eq!((counters.ring_full, counters.dropped()), (self.dropped, self.dropped));
        assert_eq!((counters.out_packets, counters.refused), (self.left, 0));
        drop((self.queues, self.bursts));
        assert_whole(&self.device);
        assert!(self.wired.nothing_departed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(6)))]
    #[test]
    fn do_as_their_model(steps in prop::collection::vec(step(), 1..120)) {
        let _alone = alone();
        let mut both = Both::new();
        for step in steps {
            both.take(step);
        }
        both.end();
    }
}
