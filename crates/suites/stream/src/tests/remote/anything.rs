//! Random registers, memory and lengths.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{Found, SIZES};
use crate::generator::{GeneratorCommand, Pace, Trial};
use crate::host::Device;
use crate::nic::descriptor::LongDescriptor;
use crate::nic::descriptors::Descriptors;
use crate::nic::doorbells::DoorbellSender;
use crate::nic::layout::{BUFFERS, PIPES, Queue, Register};
use crate::wire::sample::{STEP, mix};

/// Pseudo-random numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Returns one of the given numbers, or any number.
    fn one_of(&mut self, these: &[u64]) -> u64 {
        let number = self.next();
        these.get(number as usize % (these.len() + 1)).copied().unwrap_or(number >> (number % 64))
    }
}

#[test]
fn the_nic_survives_any_registers_and_memory() {
    outlives_anything(&Found::new());
    outlives_anything(&Found::with(Descriptors::<LongDescriptor>::new(64, 64)));
}

fn outlives_anything(found: &Found) {
    let (answer, report) = std::sync::mpsc::sync_channel(1);
    let Some(tsc) = machine::untested::tsc("the NIC and any registers") else { return };
    let trial = Trial {
        pace: Pace::packets(1e5, 88.0, tsc.hertz),
        duration: tsc.ticks(Duration::from_secs(3600)),
        ..Trial::default()
    };
    found.nic.command(GeneratorCommand::Start(trial, answer));
    let mut numbers = Random(5);
    for _ in 0..20 {
        let port = found.connect().port();
        let (pair, doorbells) = port.attach().unwrap();
        let rings = port.rings(2, SIZES.ring).unwrap();
        let pipes = [port.alloc_pipe().unwrap(), port.alloc_pipe().unwrap()];
        let mut plain = Some(port.plain(2 * PLAIN).unwrap());
        let spans = [rings[0].bus(), rings[1].bus(), plain.as_ref().unwrap().bus()];
        let halves = spans.map(|bus| [bus, bus >> 32, bus & !0xfff | u64::from(pair)]);
        let values = halves.concat();
        let words = [values.as_slice(), &[1, 2, 64, 0x30 | 60 << 34, 131_072, 1 << 32]].concat();
        let [one, two] = pipes.map(u64::from);
        let queues = [u64::from(PIPES + pair), u64::from(PIPES + BUFFERS), one, two, two + 1];
        for turn in 0..5000 {
            match turn {
                1000 => {
                    // Memory that the NIC may read and write.
                    place(&doorbells, Queue::Buffers(pair), spans[2]);
                    place(&doorbells, Queue::Pipe(pipes[0]), spans[2]);
                    place(&doorbells, Queue::Pipe(pipes[1]), spans[0] | u64::from(pair));
                }
                // It is deregistered while in use.
                4000 => plain = None,
                _ => {}
            }
            if let Some(plain) = &plain {
                let place = 8 * (numbers.next() % (2 * PLAIN as u64 / 8)) as usize;
                let word = plain.pointer().wrapping_add(place).cast();
                // SAFETY: the word is inside the memory; the NIC accesses it with atomics too.
                unsafe { AtomicU64::from_ptr(word) }.store(numbers.one_of(&words), Relaxed);
            }
            let (queue, register) = (numbers.one_of(&queues) as u32, numbers.next() as u32 % 8 * 4);
            doorbells.write(
                queue.wrapping_mul(4096).wrapping_add(register),
                numbers.one_of(&values) as u32,
            );
        }
    }
    found.nic.command(GeneratorCommand::Stop);
    report.recv().unwrap();
    found.still_serves();
    assert!(found.nic.counters().refused > 0);
}

/// The size of a notification buffer, in bytes.
const PLAIN: usize = SIZES.notifications as usize * 64;

/// Sets the addresses of both rings of a queue.
fn place(doorbells: &DoorbellSender, queue: Queue, bus: u64) {
    for (register, bus) in
        [(Register::RxMemoryLow, bus), (Register::TxMemoryLow, bus + PLAIN as u64)]
    {
        doorbells.write(register.of(queue), bus as u32);
        doorbells.write(register.of(queue) + 4, (bus >> 32) as u32);
    }
}

#[test]
fn lengths_may_change_while_the_nic_reads() {
    let found = Found::new();
    let connection = found.connect();
    let port = connection.port();
    let device = Device::new(&port, SIZES).unwrap();
    let mut pipe = device.tx_pipe().unwrap();
    let buffer = pipe.allocate(SIZES.ring).unwrap();
    buffer.fill(0);
    let start = buffer.as_mut_ptr() as usize;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let other = std::thread::spawn(move || {
        let mut numbers = Random(9);
        while !stopped.load(Relaxed) {
            let number = numbers.next();
            let flit = start + number as usize % (SIZES.ring / 64) * 64;
            let length = (number >> 48) as u16 >> (number >> 40 & 15);
            // SAFETY: the flit is inside the pipe's ring, which outlives this thread.
            unsafe { ((flit + 16) as *mut u16).write_volatile(length.to_be()) };
        }
    });
    let mut numbers = Random(11);
    for _ in 0..20_000 {
        let bytes = 64 * (1 + numbers.next() as usize % 40);
        pipe.allocate(bytes).unwrap();
        pipe.send_and_free(bytes).unwrap();
    }
    stop.store(true, Relaxed);
    other.join().unwrap();
    drop((pipe, device));
    found.still_serves();
}
