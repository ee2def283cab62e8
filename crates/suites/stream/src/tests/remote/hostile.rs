//! Programs that try to harm the NIC or its other clients.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use machine::memfd::Memfd;

use super::{ANY, FORM, Found, LENT, LIMITS, NO_FD, Raw, SIZES, SOON};
use crate::host::{ConfigError, Device, Sizes, descriptors};
use crate::nic::configuration::Configuration;
use crate::nic::descriptor::LongDescriptor;
use crate::nic::descriptors::Descriptors;
use crate::nic::doorbells::DoorbellSender;
use crate::nic::layout::{FLIT, Queue, Register};
use crate::nic::memory::MemoryLayout;
use crate::nic::pipes::{Notify, Pipes};
use crate::nic::remote::fds;
use crate::nic::remote::message::{Reply, Request, VERSION};
use crate::nic::remote::server::{MAX_CLIENTS, MAX_STRANGERS};
use crate::nic::remote::{Connection, Limits, MemoryUse};
use crate::wire::Flow;

/// Timeouts that end soon, but leave a program time to run on a busy machine.
const SHORT: Limits = Limits { timeout: Duration::from_secs(3), ..LIMITS };

fn pipes() -> Pipes {
    Pipes::new(Notify::Reactively, (SIZES.ring / FLIT) as u32, SIZES.notifications)
}

fn flow(number: u8) -> Flow {
    let destination = [192, 168, 0, number].into();
    Flow { source: 0.into(), source_port: 0, destination, destination_port: 80, protocol: 17 }
}

/// Waits for a condition.
fn until(mut holds: impl FnMut() -> bool, what: &str) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the reason that the NIC sends when it closes a connection.
fn end(socket: &UnixStream) -> Option<String> {
    let mut why = None;
    while let Ok(Some((Reply::Refused(text), _))) = Reply::receive(socket, ANY) {
        why = Some(text);
    }
    why
}

#[test]
fn connections_without_hello_make_way_for_others() {
    // They have a minute, so they do not time out during the test.
    let found = Found::new();
    let silent: Vec<Raw> = (0..3 * MAX_STRANGERS).map(|_| found.raw()).collect();
    found.still_serves();
    let reason = end(&silent[0].0).unwrap_or_default();
    assert!(reason.contains("no hello") && reason.lines().count() == 1, "{reason}");
    drop(silent);
    found.still_serves();
}

#[test]
fn connections_without_hello_time_out() {
    let found = Found::with_limits(pipes(), SHORT);
    assert!(end(&found.raw().0).is_some_and(|why| why.contains("no hello")));
    // An incomplete hello is none, even if it arrives byte by byte.
    let mut half = found.raw();
    half.0.write_all(&[b't'; 3]).unwrap();
    assert!(end(&half.0).is_some_and(|why| why.contains("no hello")));
    found.still_serves();
}

#[test]
fn one_program_too_many_is_refused() {
    let found = Found::new();
    let mut programs: Vec<_> = (0..MAX_CLIENTS).map(|_| found.connect()).collect();
    let why = Connection::open(&found.folder.path().join("nic"), FORM).map(|_| ()).unwrap_err();
    let why = why.to_string();
    assert!(why.contains("64 programs") && why.lines().count() == 1, "{why}");
    programs.pop();
    let again = || Connection::open(&found.folder.path().join("nic"), FORM).is_ok();
    until(again, "the place of one that has gone is free");
}

#[test]
fn programs_that_attach_nothing_make_way_for_others() {
    let found = Found::with_limits(pipes(), SHORT);
    let hello = Request::Hello(VERSION, Some(FORM));
    let attached = found.raw();
    attached.ask(hello, NO_FD);
    assert!(matches!(attached.ask(Request::Attach, NO_FD), Some((Reply::Attached(..), Some(_)))));
    let silent: Vec<Raw> = (1..MAX_CLIENTS).map(|_| found.raw()).collect();
    for one in &silent {
        assert!(matches!(one.ask(hello, NO_FD), Some((Reply::Welcome(_), None))));
    }
    // They stay silent and connected.
    let path = found.folder.path().join("nic");
    until(|| Connection::open(&path, FORM).is_ok(), "those that attach nothing make way");
    let reason = end(&silent[0].0).unwrap_or_default();
    assert!(reason.contains("no device was created") && reason.lines().count() == 1, "{reason}");
    // A client that allocated something stays, however long it is silent.
    assert!(matches!(attached.ask(Request::AllocPipe, NO_FD), Some((Reply::Pipe(_), None))));
    found.still_serves();
}

#[test]
fn incomplete_messages_and_unread_replies_end_only_their_connection() {
    let found = Found::with_limits(pipes(), SHORT);
    let mut half = found.raw();
    half.ask(Request::Hello(VERSION, Some(FORM)), NO_FD);
    half.0.write_all(&[0; 10]).unwrap();
    assert!(end(&half.0).is_some_and(|why| why.contains("incomplete message")));
    let deaf = found.raw();
    deaf.ask(Request::Hello(VERSION, Some(FORM)), NO_FD);
    let start = Instant::now();
    while Request::AllocPipe.send(&deaf.0, None, SOON).is_ok() {
        assert!(
            start.elapsed() < SOON,
            "no thread reads the answers, and the NIC goes on writing them"
        );
    }
    found.still_serves();
}

#[test]
fn unexpected_file_descriptors_end_only_their_connection() {
    let found = Found::new();
    let memfd = Memfd::sealed("test", 4096).unwrap();
    let hello = Request::Hello(VERSION, Some(FORM));
    let raw = found.raw();
    hello.send(&raw.0, Some(memfd.as_fd()), SOON).unwrap();
    assert!(end(&raw.0).is_some());
    let raw = found.raw();
    raw.ask(hello, NO_FD);
    Request::DrainDoorbells.send(&raw.0, Some(memfd.as_fd()), SOON).unwrap();
    assert_eq!(end(&raw.0), None);
    // Two file descriptors in one message.
    let raw = found.raw();
    raw.ask(hello, NO_FD);
    for _ in 0..2 {
        fds::send(&raw.0, &[0; 32], Some(memfd.as_fd()), SOON).unwrap();
    }
    assert_eq!(end(&raw.0), None);
    found.still_serves();
}

#[test]
fn the_memory_and_cores_of_all_programs_are_limited() {
    let all = MemoryUse { bytes: LENT.bytes + 4096, regions: LENT.regions + 2 };
    let found = Found::with_limits(pipes(), Limits { all, ..LIMITS });
    let [one, other] = [found.connect().port(), found.connect().port()];
    let lent = one.rings(16, 64 << 10).unwrap();
    let why = other.ring(8192).map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("for all programs") && why.lines().count() == 1, "{why}");
    drop(other.ring(4096).unwrap());
    drop(lent);
    other.rings(16, 64 << 10).unwrap();
    // One pair per core.
    let pairs: Vec<_> = (0..LIMITS.pairs).map(|_| one.attach().unwrap()).collect();
    let why = one.attach().map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("use fewer cores"), "{why}");
    one.detach(pairs[0].0);
    one.attach().unwrap();
}

#[test]
fn a_flow_belongs_to_the_program_that_bound_it_until_it_disconnects() {
    let found = Found::new();
    let [owner, thief] = [found.connect(), found.connect()];
    let device = Device::new(&owner.port(), SIZES).unwrap();
    let (mut one, mut two) = (device.rx_pipe().unwrap(), device.rx_pipe().unwrap());
    one.bind(flow(1)).unwrap();
    two.bind(flow(1)).unwrap();
    until(|| found.nic.counters().rules == 2, "a program may bind its own again");
    let others = Device::new(&thief.port(), SIZES).unwrap();
    let mut stolen = others.rx_pipe().unwrap();
    assert_eq!(stolen.bind(flow(1)), Err(ConfigError::Taken));
    stolen.bind(flow(2)).unwrap();
    until(|| found.nic.counters().rules == 3, "one rule was set since");
    drop((one, two, device));
    drop(owner);
    stolen.bind(flow(1)).unwrap();
}

#[test]
fn a_flow_belongs_to_the_program_that_bound_it_with_descriptors_too() {
    let found = Found::with(Descriptors::<LongDescriptor>::new(64, 64));
    let [owner, thief] = [found.connect(), found.connect()];
    let sizes = descriptors::Sizes { rx: 64, tx: 64 };
    let device = |of: &Connection_| descriptors::Device::new(&of.port(), sizes, 1).unwrap();
    let (owned, others) = (device(&owner), device(&thief));
    let (mut mine, mut stolen) = (owned.queue().unwrap(), others.queue().unwrap());
    mine.bind(flow(1)).unwrap();
    assert_eq!(stolen.bind(flow(1)), Err(ConfigError::Taken));
    let limit = Configuration::RateLimit { numerator: 1, denominator: u16::MAX, enable: true };
    mine.configure(limit).unwrap();
    assert_eq!(stolen.configure(limit), Err(ConfigError::Taken));
    // The setting affects only the program's own packets.
    found.still_serves();
    drop((mine, owned));
    drop(owner);
    stolen.bind(flow(1)).unwrap();
    stolen.configure(limit).unwrap();
}

type Connection_ = std::sync::Arc<Connection>;

#[test]
fn settings_of_a_program_affect_its_packets_and_end_with_it() {
    let found = Found::new();
    let [owner, thief] = [found.connect(), found.connect()];
    let device = |of: &Connection_| Device::new(&of.port(), SIZES).unwrap();
    let (owned, others) = (device(&owner), device(&thief));
    let slow = Configuration::RateLimit { numerator: 1, denominator: u16::MAX, enable: true };
    let stamps = Configuration::Timestamp { offset: 18, enable: true };
    let fall_back = Configuration::Fallback { pipes: 1, round_robin: true };
    let _pipe = owned.rx_pipe().unwrap();
    for setting in [slow, stamps, fall_back] {
        owned.configure(setting).unwrap();
        assert_eq!(others.configure(setting), Err(ConfigError::Taken), "{setting:?}");
    }
    found.still_serves();
    drop((_pipe, owned));
    drop(owner);
    let _pipe = others.rx_pipe().unwrap();
    for setting in [slow, stamps, fall_back] {
        others.configure(setting).unwrap();
    }
    // Rules cannot name pipes of another program.
    let third = found.connect();
    let third = device(&third);
    let _others = third.rx_pipe().unwrap();
    let both = Configuration::Fallback { pipes: 2, round_robin: false };
    assert_eq!(others.configure(both), Err(ConfigError::Taken));
}

/// Sets the address of a pipe's ring.
fn place(doorbells: &DoorbellSender, pipe: u32, bus: u64) {
    doorbells.write(Register::RxMemoryLow.of(Queue::Pipe(pipe)), bus as u32);
    doorbells.write(Register::RxMemoryHigh.of(Queue::Pipe(pipe)), (bus >> 32) as u32);
}

#[test]
fn a_pipe_belongs_to_the_program_that_allocated_it() {
    for found in [Found::new(), Found::with(Descriptors::<LongDescriptor>::new(64, 64))] {
        let [owner, thief] = [found.connect().port(), found.connect().port()];
        let refused = || found.nic.counters().refused;
        let (pair, doorbells) = thief.attach().unwrap();
        let ring = thief.ring(SIZES.ring).unwrap();
        let pipe = owner.alloc_pipe().unwrap();
        let before = refused();
        // A pipe of another program, and one that is not allocated.
        for pipe in [pipe, pipe + 1] {
            place(&doorbells, pipe, ring.bus() | u64::from(pair));
        }
        thief.drain_doorbells();
        until(
            || refused() >= before + 4,
            "a program must not set the address of another program's notifications",
        );
        let pipe = thief.alloc_pipe().unwrap();
        let before = refused();
        place(&doorbells, pipe, ring.bus() | u64::from(pair));
        thief.drain_doorbells();
        // A freed pipe no longer belongs to the program, regardless of what its registers contain.
        thief.free_pipe(pipe);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(refused(), before);
        place(&doorbells, pipe, ring.bus() | u64::from(pair));
        thief.drain_doorbells();
        until(|| refused() >= before + 2, "it was given back");
        found.still_serves();
    }
}

#[test]
fn a_reused_pipe_has_no_rules() {
    let found = Found::new();
    let [hostile, sound] = [found.connect(), found.connect()];
    let device = Device::new(&hostile.port(), SIZES).unwrap();
    let mut pipe = device.rx_pipe().unwrap();
    pipe.bind(flow(1)).unwrap();
    // A second pair of the same program frees the pipe without notifying the NIC.
    Request::FreePipe(0).send(hostile.socket(), None, SOON).unwrap();
    let device = Device::new(&sound.port(), SIZES).unwrap();
    until(|| found.nic.counters().rules == 1, "the rule was set");
    // The request takes a moment; until then another pipe is allocated.
    let mut other = None;
    until(
        || {
            other = device.rx_pipe().ok().filter(|other| other.id() == pipe.id());
            other.is_some()
        },
        "the pipe is allocated again",
    );
    let mut other = other.unwrap();
    other.bind(flow(1)).unwrap();
    other.bind(flow(2)).unwrap();
    std::mem::forget(pipe);
}

#[test]
fn queues_that_share_a_ring_take_bounded_memory_in_the_nic() {
    let size = 1 << 20;
    let found = Found::with_limits(
        Descriptors::<LongDescriptor>::new(size, 64),
        Limits { each: MemoryUse { bytes: 64 << 20, regions: 100 }, ..LIMITS },
    );
    let connection = found.connect();
    let port = connection.port();
    let (_, doorbells) = port.attach().unwrap();
    let ring = port.plain(16 << 20).unwrap();
    port.reserve_pipes(200);
    let before = found.nic.counters().refused;
    for _ in 0..200 {
        place(&doorbells, port.alloc_pipe().unwrap(), ring.bus());
    }
    port.drain_doorbells();
    until(|| found.nic.counters().refused > before, "not as many as it likes");
}

#[test]
fn flits_of_invalid_packets_are_not_counted_as_read() {
    let found = Found::new();
    let connection = found.connect();
    let device = Device::new(&connection.port(), SIZES).unwrap();
    let mut pipe = device.tx_pipe().unwrap();
    let before = found.nic.counters();
    let mut send = |length: u16| {
        let buffer = pipe.allocate(2 * FLIT).unwrap();
        buffer[..2 * FLIT].fill(0);
        buffer[FLIT + 16..][..2].copy_from_slice(&length.to_be_bytes());
        pipe.send_and_free(2 * FLIT).unwrap();
    };
    // A packet of one flit, then a length beyond the maximum.
    send(60_000);
    until(|| found.nic.counters().refused > before.refused, "it is refused");
    let since = found.nic.counters().since(&before);
    assert_eq!((since.out_packets, since.flits_read), (1, 1));
    send(46);
    until(|| found.nic.counters().since(&before).out_packets == 3, "both leave");
    assert_eq!(found.nic.counters().since(&before).flits_read, 3);
}

#[test]
fn many_connections_leak_nothing() {
    let found = Found::new();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let path = found.folder.path().join("nic");
            std::thread::spawn(move || {
                for turn in 0..100 {
                    let raw = Raw(UnixStream::connect(&path).unwrap());
                    if (turn + thread) % 3 == 0 {
                        continue;
                    }
                    raw.ask(Request::Hello(VERSION, Some(FORM)), NO_FD);
                    let memfd = Memfd::sealed("test", 8192).unwrap();
                    let layout = MemoryLayout::Rings { count: 2, each: 4096 };
                    let requests =
                        [Request::Attach, Request::AllocPipe, Request::RegisterMemory(layout)];
                    for request in requests {
                        let lends = matches!(request, Request::RegisterMemory(_));
                        let fd = lends.then(|| memfd.as_fd());
                        // These clients neither wait for replies nor read them.
                        let _ = request.send(&raw.0, fd, SOON);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // The NIC removes disconnected clients one after another.
    let path = found.folder.path().join("nic");
    let again = || Connection::open(&path, FORM).is_ok();
    until(again, "the places of those that have gone are free");
    found.still_serves();
    let connection = found.connect();
    let port = connection.port();
    let lowest = || {
        let pipe = port.alloc_pipe().unwrap();
        port.free_pipe(pipe);
        pipe == 0
    };
    until(lowest, "the pipes of all that have gone were returned");
    let sizes = Sizes { ring: SIZES.ring, ..SIZES };
    Device::new(&port, sizes).unwrap();
}
