//! A cable that the test controls: it decides which packets arrive and sees those that leave.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Instant;

use stream::host::{Device, Sizes};
use stream::nic::configuration::Configuration;
use stream::nic::engine::Engine;
use stream::nic::{Counters, Nic};
use stream::wire::Flow;
use stream::wire::traffic::{CacheLine, Packet};
use stream::wire::vector::Vector;
use stream::wire::{Cursor, PacketRef, PacketRun, RxBurst, TxCount, Wire, frame, packet};

use super::{TIMEOUT, TestParams, counters, now};

/// A command of the test.
pub(crate) enum CableCommand {
    /// Makes these packets arrive as soon as possible, then sends a reply.
    Arrive(Vec<Vec<u8>>, SyncSender<u64>),
    /// From now on, packets that leave return after a delay, in ticks.
    LoopBack(u64),
}

/// A packet that left.
pub(crate) struct Departed {
    pub(crate) bytes: Vec<u8>,
    /// When it left, in ticks.
    pub(crate) at: u64,
}

/// The cable.
pub(crate) struct Cable {
    epoch: u64,
    packets: Vec<Packet>,
    lines: Vec<Vec<CacheLine>>,
    /// When the last packets arrived, in ticks.
    came: u64,
    answer: Option<SyncSender<u64>>,
    departed: Sender<Departed>,
    loop_back: Option<u64>,
    on_their_way: VecDeque<(u64, Vec<u8>)>,
}

impl Cable {
    fn new(departed: Sender<Departed>) -> Self {
        Self {
            epoch: 0,
            packets: Vec::new(),
            lines: Vec::new(),
            came: 0,
            answer: None,
            departed,
            loop_back: None,
            on_their_way: VecDeque::new(),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        // The NIC ignores the fields of fragments, where timestamps are by default.
        let mut read = bytes.to_vec();
        read[18..22].fill(0);
        let head = frame::read(&read).unwrap();
        let (flow, syn) = (head.flow, head.syn);
        self.packets.push(Packet { offset: 0, length: bytes.len() as u16, flow, syn });
        let lines = bytes.chunks(64).map(|chunk| {
            let mut line = CacheLine([0; 64]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            line
        });
        self.lines.push(lines.collect());
        self.epoch += 1;
    }

    /// Removes the packets of a delivered burst.
    fn remove(&mut self, count: usize) {
        self.packets.drain(..count);
        self.lines.drain(..count);
        self.epoch += 1;
    }

    /// Records a packet that left the NIC.
    fn depart(&mut self, bytes: Vec<u8>) {
        let at = now();
        match self.loop_back {
            Some(later) => self.on_their_way.push_back((at + later, bytes)),
            // The test may have ended.
            None => drop(self.departed.send(Departed { bytes, at })),
        }
    }
}

impl Wire for Cable {
    type Command = CableCommand;
    type RxBurst<'a> = Burst<'a>;

    fn command(&mut self, command: CableCommand) {
        match command {
            CableCommand::Arrive(packets, answer) => {
                packets.iter().for_each(|packet| self.push(packet));
                self.answer = Some(answer);
            }
            CableCommand::LoopBack(later) => self.loop_back = Some(later),
        }
    }

    fn packets(&self) -> (u64, &[Packet]) {
        (self.epoch, &self.packets)
    }

    fn next_burst(&mut self, _: u64, most: u32) -> Burst<'_> {
        Burst { count: most.min(self.packets.len() as u32), cable: self }
    }

    unsafe fn on_transmit(&mut self, start: *const u8, bytes: usize) -> TxCount {
        let mut left = TxCount::default();
        while left.bytes < bytes {
            let first = start.wrapping_add(left.bytes);
            // SAFETY: a whole flit, guaranteed by the caller.
            let length = unsafe { packet::length(first) };
            let flits = packet::flits(length) * 64;
            if left.bytes + flits > bytes {
                break;
            }
            // SAFETY: the flits contain this many bytes, guaranteed by the caller.
            self.depart(unsafe { std::slice::from_raw_parts(first, length) }.to_vec());
            left.bytes += flits;
            left.packets += 1;
        }
        left
    }

    unsafe fn on_transmit_scattered(&mut self, packets: &[PacketRef]) {
        for packet in packets {
            // SAFETY: the caller guarantees that the packet has this many readable bytes.
            let bytes = unsafe { std::slice::from_raw_parts(packet.start, packet.bytes as usize) };
            self.depart(bytes.to_vec());
        }
    }

    fn end_iteration(&mut self, now: u64) {
        if self.packets.is_empty()
            && let Some(answer) = self.answer.take()
        {
            let _ = answer.send(self.came);
        }
        while self.on_their_way.front().is_some_and(|(due, _)| *due <= now) {
            let (_, bytes) = self.on_their_way.pop_front().unwrap();
            self.push(&bytes);
        }
    }
}

/// Packets that arrive together.
pub(crate) struct Burst<'a> {
    count: u32,
    cable: &'a mut Cable,
}

impl RxBurst for Burst<'_> {
    fn count(&self) -> u32 {
        self.count
    }

    fn first(&self) -> u32 {
        0
    }

    fn packets(&self) -> &[Packet] {
        &self.cable.packets
    }

    unsafe fn put<V: Vector>(
        self,
        order: &[u32],
        runs: &[PacketRun],
        mut next: impl FnMut(*mut u8, usize) -> *mut u8,
    ) {
        let cable = self.cable;
        cable.came = now();
        for run in runs.iter().filter(|run| !run.place.is_null()) {
            let list = run.list.of(order);
            let mut place = run.place;
            for number in run.at..run.at + run.count {
                let lines = &cable.lines[list[number as usize] as usize];
                // SAFETY: the flits have space for the packet, guaranteed by the caller.
                unsafe { write::<V>(lines, place) };
                place = next(place, lines.len() * 64);
            }
        }
        cable.remove(self.count as usize);
    }

    unsafe fn put_in_order<V: Vector, C: Cursor>(self, queues: &[u32], cursors: &mut [C]) {
        let cable = self.cable;
        cable.came = now();
        for (lines, queue) in cable.lines.iter().zip(queues).take(self.count as usize) {
            // SAFETY: the addresses have space for the packet, guaranteed by the caller.
            unsafe {
                if let Some(place) = cursors[*queue as usize].next(lines.len() * 64) {
                    write::<V>(lines, place);
                }
            }
        }
        cable.remove(self.count as usize);
    }
}

/// Writes the lines of a packet.
///
/// # Safety
/// `place` is aligned to a flit and has space for them; the CPU supports `V`.
unsafe fn write<V: Vector>(lines: &[CacheLine], place: *mut u8) {
    for (line, at) in lines.iter().zip(0..) {
        // SAFETY: the caller guarantees the space.
        unsafe { V::copy(line.0.as_ptr(), place.add(at * 64)) };
    }
}

/// A NIC with a cable that the test controls; the test is the program too.
pub(crate) struct Wired {
    pub(crate) nic: Nic<CableCommand>,
    pub(crate) sizes: Sizes,
    departed: Receiver<Departed>,
}

impl Wired {
    pub(crate) fn new(params: TestParams) -> Self {
        Self::with(params, params.engine())
    }

    /// With another engine than that of the parameters.
    pub(crate) fn with(params: TestParams, engine: impl Engine) -> Self {
        let (departing, departed) = channel();
        let nic = Nic::start(params.params(), engine, Cable::new(departing)).unwrap();
        Self { nic, sizes: params.sizes, departed }
    }

    pub(crate) fn device(&self) -> Device {
        Device::new(&self.nic.port(), self.sizes).unwrap()
    }

    /// Makes packets arrive and waits until the NIC has written or dropped them. Returns when it did, in ticks.
    pub(crate) fn arrive(&self, packets: Vec<Vec<u8>>) -> u64 {
        let (answer, all_came) = sync_channel(1);
        self.nic.command(CableCommand::Arrive(packets, answer));
        all_came.recv_timeout(TIMEOUT).unwrap()
    }

    /// Returns the next packet that left.
    pub(crate) fn departed(&self) -> Departed {
        self.departed.recv_timeout(TIMEOUT).unwrap()
    }

    /// Returns whether no unexpected packet left.
    pub(crate) fn nothing_departed(&self) -> bool {
        self.departed.try_recv().is_err()
    }

    /// Waits for a number of arrived packets; returns the counters.
    pub(crate) fn counters(&self, come: u64) -> Counters {
        counters(&self.nic, |now| now.in_packets == come)
    }
}

/// Waits until the NIC has processed all writes of this device and the device knows about all sent packets; only
/// without modelled delays.
pub(crate) fn settle(device: &Device) {
    for _ in 0..2 {
        let nothing = Configuration::RateLimit { numerator: 1, denominator: 1, enable: false };
        device.configure(nothing).unwrap();
        // Each call processes up to 64.
        (0..8).for_each(|_| device.complete());
    }
}

/// Receives notifications until a condition is true.
pub(crate) fn until(device: &Device, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    loop {
        while device.next().is_some() {}
        if holds() {
            return;
        }
        assert!(start.elapsed() < TIMEOUT, "it never holds");
        std::thread::yield_now();
    }
}

/// Returns a UDP packet of a given length to a destination, without checksum; its payload contains its number.
pub(crate) fn frame(destination: u32, length: usize, number: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|at| (number as usize + at) as u8).collect();
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14..34].fill(0);
    (bytes[14], bytes[23]) = (0x45, frame::UDP);
    bytes[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    bytes[30..34].copy_from_slice(&address(destination).octets());
    bytes[34..42].copy_from_slice(&[0x1f, 0x90, 0, 80, 0, 0, 0, 0]);
    bytes[42..46].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Returns the number in its payload.
pub(crate) fn number(frame: &[u8]) -> u32 {
    u32::from_le_bytes(frame[42..46].try_into().unwrap())
}

/// Returns the flow of the packets to a destination, as a rule.
pub(crate) fn flow(destination: u32) -> Flow {
    Flow {
        source: Ipv4Addr::UNSPECIFIED,
        destination: address(destination),
        source_port: 0,
        destination_port: 80,
        protocol: frame::UDP,
    }
}

fn address(destination: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + destination)
}

/// Returns the length in bytes of a packet with this many flits.
pub(crate) fn of_flits(flits: usize) -> usize {
    (flits * 64 - 4).min(packet::MAX_LENGTH)
}
