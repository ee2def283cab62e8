//! Rings agree with a model after any operations of the program and any arrivals.

use std::collections::VecDeque;

use crate::testbed::cable::{Wired, flow, frame, of_flits, settle};
use crate::testbed::{TestParams, alone, counters};
use proptest::prelude::*;
use stream::host::{Device, RxTxPipe, Sizes, TxPipe};
use stream::nic::pipes::Notify;

/// The size of each ring, in flits.
const RING: usize = 64;
/// The number of receive pipes.
const PIPES: usize = 2;

/// An operation.
#[derive(Debug, Clone)]
enum Step {
    /// Packets with these numbers of flits arrive at pipes.
    Come(Vec<(usize, usize)>),
    /// The program peeks at a pipe up to a number of bytes and confirms a number of the packets that it sees.
    Take(usize, usize, usize),
    /// It sends a number of the confirmed flits.
    SendBack(usize, usize),
    /// It sends a number of the confirmed packets, and frees a number of those that follow.
    Consume(usize, usize, usize),
    /// It writes packets with these numbers of flits and sends them if they fit.
    Send(Vec<usize>),
}

fn step() -> impl Strategy<Value = Step> {
    let flits = || prop_oneof![4 => 1usize..4, 1 => 4usize..25];
    prop_oneof![
        3 => prop::collection::vec((0..PIPES, flits()), 1..40).prop_map(Step::Come),
        3 => (0..PIPES, 0usize..6000, 0usize..40).prop_map(|(pipe, most, packets)| Step::Take(pipe, most, packets)),
        2 => (0..PIPES, 0usize..64).prop_map(|(pipe, flits)| Step::SendBack(pipe, flits)),
        2 => (0..PIPES, 0usize..4, 0usize..4).prop_map(|(pipe, sent, freed)| Step::Consume(pipe, sent, freed)),
        1 => prop::collection::vec(flits(), 1..8).prop_map(Step::Send),
    ]
}

/// The expected state of a pipe: a queue of packets, confirmed ones first.
#[derive(Default)]
struct Model {
    /// Unconfirmed packets.
    waiting: VecDeque<Vec<u8>>,
    /// Flits that are confirmed and not yet sent.
    held: VecDeque<Vec<u8>>,
    /// Flits of the first packet that are already sent.
    start: usize,
}

fn flits(packet: &[u8]) -> usize {
    packet.len().div_ceil(64)
}

impl Model {
    fn used(&self) -> usize {
        self.waiting.iter().chain(&self.held).map(|one| flits(one)).sum::<usize>() - self.start
    }

    /// Returns whether a packet fits; if so, it is queued.
    fn comes(&mut self, packet: &[u8]) -> bool {
        let room = self.used() + flits(packet) < RING;
        if room {
            self.waiting.push_back(packet.to_vec());
        }
        room
    }

    fn held(&self) -> usize {
        self.held.iter().map(|one| flits(one)).sum::<usize>() - self.start
    }

    /// Returns the packets that are complete after more flits are sent.
    fn sent(&mut self, count: usize) -> Vec<Vec<u8>> {
        self.start += count;
        let mut whole = Vec::new();
        while self.held.front().is_some_and(|first| flits(first) <= self.start) {
            let first = self.held.pop_front().unwrap();
            self.start -= flits(&first);
            whole.push(first);
        }
        whole
    }
}

/// The device and its model.
struct Both {
    wired: Wired,
    device: Device,
    pipes: Vec<RxTxPipe>,
    tx: TxPipe,
    models: Vec<Model>,
    next: u32,
    come: u64,
    dropped: u64,
    left: u64,
}

impl Both {
    fn new(notify: Notify) -> Self {
        let sizes = Sizes { ring: RING * 64, notifications: 256, ..Sizes::default() };
        let wired = Wired::new(TestParams { notify, sizes, ..TestParams::default() });
        let device = wired.device();
        let pipe = |number| {
            let mut pipe = device.rx_tx_pipe().unwrap();
            pipe.bind(flow(number)).unwrap();
            pipe
        };
        let pipes = (0..PIPES as u32).map(pipe).collect();
        let tx = device.tx_pipe().unwrap();
        let models = (0..PIPES).map(|_| Model::default()).collect();
        Self { wired, device, pipes, tx, models, next: 0, come: 0, dropped: 0, left: 0 }
    }

    fn packet(&mut self, pipe: usize, flits: usize) -> Vec<u8> {
        self.next += 1;
        frame(pipe as u32, of_flits(flits), self.next)
    }

    /// Asserts that exactly these packets left.
    fn leaves(&mut self, packets: &[Vec<u8>]) {
        for packet in packets {
            assert_eq!(self.wired.departed().bytes, *packet);
        }
        self.left += packets.len() as u64;
    }

    fn come(&mut self, packets: &[(usize, usize)]) {
        let mut frames = Vec::new();
        for (pipe, flits) in packets {
            let packet = self.packet(*pipe, *flits);
            self.dropped += u64::from(!self.models[*pipe].comes(&packet));
            frames.push(packet);
        }
        self.come += frames.len() as u64;
        self.wired.arrive(frames);
    }

    fn take(&mut self, pipe: usize, most: usize, packets: usize) {
        let model = &mut self.models[pipe];
        let all: Vec<u8> = model.waiting.iter().flat_map(|one| padded(one)).collect();
        let seen = all.len().min((most / 64).max(1) * 64);
        assert_eq!(self.pipes[pipe].peek_at_most(most).bytes(), &all[..seen]);
        let mut batch = self.pipes[pipe].peek_at_most(most).packets();
        for packet in batch.by_ref().take(packets) {
            let expected = model.waiting.pop_front().unwrap();
            assert_eq!(packet, expected);
            model.held.push_back(expected);
        }
        let bytes = batch.processed();
        self.pipes[pipe].confirm(bytes);
    }

    /// A packet that continues in the next notification must continue at once, with no other pipe in between.
    fn send_back(&mut self, pipe: usize, count: usize) {
        let rest = self.models[pipe].held();
        for part in [count.min(rest), rest.saturating_sub(count)] {
            self.pipes[pipe].send_and_free(part * 64).unwrap();
            let whole = self.models[pipe].sent(part);
            self.leaves(&whole);
        }
    }

    /// Frees packets that follow those that may still be sent.
    fn consume(&mut self, pipe: usize, sent: usize, freed: usize) {
        let model = &mut self.models[pipe];
        let sent: usize = model.held.iter().take(sent).map(|one| flits(one)).sum();
        let leaving = model.sent(sent);
        let freed = model.held.drain(..freed.min(model.held.len()));
        let freed: usize = freed.map(|one| flits(&one)).sum();
        self.pipes[pipe].send_and_free(sent * 64).unwrap();
        self.pipes[pipe].free(freed * 64);
        assert_eq!(self.pipes[pipe].confirmed(), self.models[pipe].held() * 64);
        self.leaves(&leaving);
    }

    fn send(&mut self, sizes: &[usize]) {
        let mut packets = Vec::new();
        for flits in sizes {
            packets.push(self.packet(9, *flits));
        }
        let mut all: Vec<u8> = packets.iter().flat_map(|one| padded(one)).collect();
        while all.len() > RING * 64 {
            all.truncate(all.len() - padded(&packets.pop().unwrap()).len());
        }
        self.tx.allocate(all.len()).unwrap()[..all.len()].copy_from_slice(&all);
        self.tx.send_and_free(all.len()).unwrap();
        self.leaves(&packets);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Come(packets) => self.come(packets),
            Step::Take(pipe, most, packets) => return self.take(*pipe, *most, *packets),
            Step::SendBack(pipe, count) => self.send_back(*pipe, *count),
            Step::Consume(pipe, sent, freed) => self.consume(*pipe, *sent, *freed),
            Step::Send(sizes) => self.send(sizes),
        }
        settle(&self.device);
        self.pipes.iter_mut().for_each(RxTxPipe::prefetch);
        settle(&self.device);
        while self.device.next().is_some() {}
    }

    fn end(self) {
        let (come, left) = (self.come, self.left);
        let all =
            counters(&self.wired.nic, |now| now.in_packets == come && now.out_packets == left);
        assert_eq!((all.ring_full, all.dropped(), all.refused), (self.dropped, self.dropped, 0));
        assert_eq!(all.to_memory, come - self.dropped);
        assert!(self.wired.nothing_departed());
    }
}

/// Returns a packet, padded to whole flits.
fn padded(packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes.resize(flits(packet) * 64, 0);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.div_ceil(20), ..ProptestConfig::default() })]

    #[test]
    fn behave_as_queues_of_packets(
        every_packet: bool, steps in prop::collection::vec(step(), 1..30),
    ) {
        let _alone = alone();
        let mut both = Both::new(if every_packet { Notify::EveryPacket } else { Notify::Reactively });
        steps.iter().for_each(|step| both.step(step));
        both.end();
    }
}
