//! Forbidden requests of a program are refused and counted, and the NIC continues.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use crate::generator::{Generator, GeneratorCommand, LiveCounters, Pace, Trial};
use crate::nic::configuration::Configuration;
use crate::nic::descriptor::{CONFIGURE, DONE, Descriptor, END, KIND, REPORT, send};
use crate::nic::descriptors::Descriptors;
use crate::nic::doorbells::DoorbellSender;
use crate::nic::layout::{Queue, Register};
use crate::nic::notification::TxNotification;
use crate::nic::{Counters, Memory, Nic, NicParams, Port};
use crate::wire::Flow;
use crate::wire::sample::{SampleTraffic, Sizes};

const SIZE: u32 = 8;

/// A queue that the test drives directly, and a NIC with a generator of one packet.
struct Raw {
    nic: Nic<GeneratorCommand>,
    port: Port,
    doorbells: DoorbellSender,
    queue: Queue,
    memory: Memory,
    flow: Flow,
}

impl Raw {
    fn new() -> Self {
        let sample =
            SampleTraffic { packets: 1, size: Sizes::One(64), sources: 1, destinations: 1 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let flow = Flow { source: 0.into(), source_port: 0, ..traffic.packets()[0].flow };
        let generator = Generator::new(traffic, Arc::new(LiveCounters::default())).unwrap();
        let engine = Descriptors::<Descriptor>::new(SIZE, SIZE);
        let cpu = machine::pin::current_cpu();
        let nic = Nic::start(NicParams { cpu, ..NicParams::default() }, engine, generator).unwrap();
        let port = nic.port();
        let (_, doorbells) = port.attach().unwrap();
        let memory = port.plain(1 << 16).unwrap();
        let queue = Queue::Pipe(port.alloc_pipe().unwrap());
        Self { nic, port, doorbells, queue, memory, flow }
    }

    /// Sets valid addresses for both rings.
    fn with_rings() -> Self {
        let raw = Self::new();
        raw.place(Register::RxMemoryLow, Register::RxMemoryHigh, raw.memory.bus());
        raw.place(Register::TxMemoryLow, Register::TxMemoryHigh, raw.memory.bus() + 4096);
        raw
    }

    fn write(&self, register: Register, value: u32) {
        self.doorbells.write(register.of(self.queue), value);
    }

    fn place(&self, low: Register, high: Register, bus: u64) {
        self.write(low, bus as u32);
        self.write(high, (bus >> 32) as u32);
    }

    fn descriptor(&self, byte: usize, index: usize) -> &Descriptor {
        let ring = self.memory.pointer().wrapping_add(byte).cast::<Descriptor>();
        // SAFETY: the memory holds this many descriptors, and all fields are atomic.
        unsafe { &*ring.wrapping_add(index) }
    }

    fn rx(&self, index: usize) -> &Descriptor {
        self.descriptor(0, index)
    }

    fn tx(&self, index: usize) -> &Descriptor {
        self.descriptor(4096, index)
    }

    /// Returns the bus address of the test's buffers.
    fn buffer(&self) -> u64 {
        self.memory.bus() + 8192
    }

    /// Sends descriptors and waits until all are done.
    fn send(&self, descriptors: &[(u64, u64)]) {
        for (index, (address, word)) in descriptors.iter().enumerate() {
            self.tx(index).set(*address, *word | REPORT);
        }
        self.write(Register::TxTail, descriptors.len() as u32);
        let last = &self.tx(descriptors.len() - 1).word;
        wait(|| last.load(Ordering::Acquire) & KIND == DONE);
    }

    /// Makes packets arrive at the queue.
    fn receive(&self, count: u64) {
        self.configure(Configuration::Bind { flow: self.flow, pipe: 0 });
        let (answer, report) = sync_channel(1);
        let hour = Duration::from_secs(3600);
        let ticks = machine::tsc::Tsc::get().unwrap().ticks(hour);
        let pace = Pace::Closed { window: count };
        let trial = Trial { pace, count, duration: ticks, ..Trial::default() };
        self.nic.command(GeneratorCommand::Start(trial, answer));
        report.recv().unwrap();
        wait(|| self.nic.counters().in_packets == count);
    }

    /// Configures the NIC with the TX ring's first descriptor, then restarts the ring.
    fn configure(&self, configuration: Configuration) {
        let words = self.memory.pointer().wrapping_add(12288).cast::<TxNotification>();
        // SAFETY: the memory holds this notification, and all its fields are atomic.
        unsafe { &*words }.set_words(configuration.words());
        self.send(&[(self.memory.bus() + 12288, CONFIGURE | END)]);
        self.place(Register::TxMemoryLow, Register::TxMemoryHigh, self.memory.bus() + 4096);
    }

    /// Waits for a number of refused requests; returns the counters.
    fn refused(&self, count: u64) -> Counters {
        wait(|| self.nic.counters().refused >= count);
        self.port.drain_doorbells();
        std::thread::sleep(Duration::from_millis(5));
        let counters = self.nic.counters();
        assert_eq!(counters.refused, count);
        counters
    }
}

fn wait(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never holds");
        std::thread::yield_now();
    }
}

#[test]
fn rings_outside_of_registered_memory() {
    let raw = Raw::new();
    let end = raw.memory.bus() + raw.memory.length() as u64;
    // In unregistered memory, across its end, and not aligned to a cache line.
    for bus in [4096, end - 64, raw.memory.bus() + 16] {
        raw.place(Register::RxMemoryLow, Register::RxMemoryHigh, bus);
        raw.place(Register::TxMemoryLow, Register::TxMemoryHigh, bus);
    }
    raw.refused(6);
}

#[test]
fn registers_of_another_program() {
    let raw = Raw::with_rings();
    raw.write(Register::RxHead, 1);
    raw.write(Register::TxHead, 1);
    raw.doorbells.write(Register::RxHead.of(Queue::Buffers(0)), 1);
    raw.doorbells.write(!0, 1);
    raw.refused(4);
    let (_, other) = raw.port.attach().unwrap();
    other.write(Register::RxTail.of(raw.queue), 1);
    other.write(Register::TxTail.of(raw.queue), 1);
    other.write(Register::TxMemoryHigh.of(raw.queue), 0);
    raw.refused(7);
    // The queue is unchanged.
    raw.send(&[(raw.buffer(), send(60))]);
    assert_eq!(raw.refused(7).out_packets, 1);
}

#[test]
fn invalid_frames() {
    let raw = Raw::with_rings();
    let buffer = raw.buffer();
    let end = raw.memory.bus() + raw.memory.length() as u64;
    raw.send(&[
        (buffer, send(59)),
        (buffer, send(1515)),
        (buffer, send(60) & !END),
        (buffer, send(60) | 5),
        (buffer, send(60)),
        (4096, send(60)),
        (end - 59, send(60)),
    ]);
    let counters = raw.refused(6);
    assert_eq!((counters.out_packets, counters.transmissions), (1, 7));
}

#[test]
fn impossible_configurations() {
    let raw = Raw::with_rings();
    raw.configure(Configuration::Timestamp { offset: 18, enable: true });
    raw.configure(Configuration::Fallback { pipes: 1 << 20, round_robin: true });
    raw.send(&[(raw.buffer() + 8, CONFIGURE | END), (4096, CONFIGURE | END)]);
    raw.refused(4);
}

#[test]
fn buffers_outside_of_registered_memory_or_not_at_a_flit() {
    for address in [0, 4096, u64::MAX - 63] {
        let raw = Raw::with_rings();
        let end = raw.memory.bus() + raw.memory.length() as u64;
        let address = if address == 0 { end - 2047 } else { address };
        raw.rx(0).set(raw.buffer(), 0);
        raw.rx(1).set(address, 0);
        raw.write(Register::RxTail, 2);
        raw.receive(3);
        let counters = raw.nic.counters();
        // The ring stops at its first packet.
        assert_eq!((counters.to_memory, counters.ring_full), (1, 2));
        assert!((1..=2).contains(&counters.refused), "once for each time that packets came");
    }
}
