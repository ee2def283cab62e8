//! Tests of the control plane with drivers that obey the protocol and drivers that do not.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use machine::memfd::Memfd;
use proptest::prelude::*;
use tempfile::TempDir;

use super::super::remote::fds;
use super::super::{Nic, NicParams};
use super::{VhostControl, VhostServer, VirtioNet};
use crate::generator::{Expectation, Generator, GeneratorCommand, LiveCounters, Pace, Trial};
use crate::wire::sample::{SampleTraffic, Sizes};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Pairs of rings.
const QUEUES: u32 = 2;
/// Size of the driver's memory, and the address by which it refers to it.
const BYTES: usize = 1 << 16;
const USER: u64 = 0x7f12_3456_0000;

// Requests of the protocol.
const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_ENABLE: u32 = 18;

/// Features that the device offers: version 1, protocol features, mergeable buffers, packed rings, used in order,
/// several queues with a control queue.
const FEATURES: u64 = 0xd_4000_8000 | 1 << 22 | 1 << 17;
/// Flag of the index of a ring's message: no descriptor is attached.
const NO_FD: u64 = 1 << 8;

/// A NIC with a server.
struct Testbed {
    nic: Nic<GeneratorCommand>,
    control: VhostControl,
    folder: TempDir,
    _server: VhostServer,
}

impl Testbed {
    fn new() -> Self {
        let sample =
            SampleTraffic { packets: 2, size: Sizes::One(64), sources: 1, destinations: 2 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let flows = traffic.packets().iter().map(|packet| packet.flow).collect();
        let generator = Generator::new(traffic, Arc::new(LiveCounters::default())).unwrap();
        let control = VhostControl::default();
        let engine = VirtioNet::new(QUEUES, flows, control.clone());
        let params = NicParams { cpu: machine::pin::current_cpu(), ..NicParams::default() };
        let nic = Nic::start(params, engine, generator).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let server =
            VhostServer::open(&folder.path().join("nic"), QUEUES, control.clone()).unwrap();
        Self { nic, control, folder, _server: server }
    }

    fn connect(&self) -> Driver {
        Driver(UnixStream::connect(self.folder.path().join("nic")).unwrap())
    }

    /// Waits until the NIC serves this number of rings.
    fn await_rings(&self, rings: u32) {
        let start = Instant::now();
        while self.control.started() != rings {
            assert!(start.elapsed() < TIMEOUT, "{} of {rings} rings", self.control.started());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends packets to the queues, which need not accept them. Returns when the NIC has taken them.
    fn offer(&self, count: u64) {
        let (answer, report) = sync_channel(1);
        let trial = Trial {
            pace: Pace::TicksPerByte(1.0),
            count,
            duration: u64::MAX / 4,
            expectation: Expectation::Same,
            ..Trial::default()
        };
        self.nic.command(GeneratorCommand::Start(trial, answer));
        assert_eq!(report.recv_timeout(TIMEOUT).unwrap().sent, count);
    }

    /// Asserts that the NIC still serves drivers.
    fn still_serves(&self) {
        assert_eq!(self.connect().features(), FEATURES);
        self.offer(100);
    }
}

/// A driver's end of the socket.
struct Driver(UnixStream);

impl Driver {
    fn send(&self, request: u32, payload: &[u8], fd: Option<BorrowedFd<'_>>) -> bool {
        let mut message = Vec::new();
        for word in [request, 1, payload.len() as u32] {
            message.extend(word.to_le_bytes());
        }
        message.extend(payload);
        // The device may have disconnected.
        fds::send(&self.0, &message, fd, TIMEOUT).is_ok()
    }

    fn words(&self, request: u32, words: &[u64], fd: Option<BorrowedFd<'_>>) {
        let payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(self.send(request, &payload, fd));
    }

    /// Sends the index of a ring and a value.
    fn state(&self, request: u32, index: u32, value: u32) {
        self.words(request, &[u64::from(value) << 32 | u64::from(index)], None);
    }

    /// Receives an answer with a payload of 8 B.
    fn answer(&mut self) -> u64 {
        let mut answer = [0; 20];
        self.0.set_read_timeout(Some(TIMEOUT)).unwrap();
        self.0.read_exact(&mut answer).unwrap();
        u64::from_le_bytes(*answer.last_chunk().unwrap())
    }

    fn features(&mut self) -> u64 {
        self.words(GET_FEATURES, &[], None);
        self.answer()
    }

    fn share(&self, file: &File, bytes: usize) {
        let region = [USER, bytes as u64, USER, 0];
        self.words(SET_MEM_TABLE, &[&[1], &region[..]].concat(), Some(file.as_fd()));
    }

    /// Sets up a ring of 8 descriptors, without enabling it.
    fn set_up(&self, index: u32) {
        self.state(SET_VRING_NUM, index, 8);
        self.state(SET_VRING_BASE, index, 0);
        let start = USER + u64::from(index) * 0x1000;
        let (descriptors, used, available) = (start, start + 0x400, start + 0x800);
        self.words(SET_VRING_ADDR, &[index.into(), descriptors, used, available, 0], None);
    }
}

fn memory() -> File {
    let memfd = Memfd::create("driver", BYTES).unwrap();
    File::from(memfd.as_fd().try_clone_to_owned().unwrap())
}

/// The features of a driver with split rings.
const SPLIT: u64 = 1 << 32 | 1 << 30;

/// Connects a driver whose two rings of the first queue run.
fn running(testbed: &Testbed, file: &File) -> Driver {
    let mut driver = testbed.connect();
    assert_eq!(driver.features(), FEATURES);
    driver.words(SET_FEATURES, &[SPLIT], None);
    driver.share(file, BYTES);
    for index in [0, 1] {
        driver.set_up(index);
        driver.words(SET_VRING_KICK, &[u64::from(index) | NO_FD], None);
        driver.state(SET_VRING_ENABLE, index, 1);
    }
    testbed.await_rings(2);
    driver
}

#[test]
fn a_ring_runs_from_its_last_requirement_until_it_is_stopped() {
    let (testbed, file) = (Testbed::new(), memory());
    let mut driver = testbed.connect();
    assert_eq!(driver.features(), FEATURES);
    driver.words(SET_FEATURES, &[SPLIT], None);
    driver.share(&file, BYTES);
    driver.set_up(2);
    driver.state(SET_VRING_ENABLE, 2, 1);
    // An answer shows that all earlier messages were processed.
    driver.features();
    assert_eq!(testbed.control.started(), 0, "it has not been kicked");
    driver.words(SET_VRING_KICK, &[2 | NO_FD], None);
    testbed.await_rings(1);
    driver.state(SET_VRING_ENABLE, 2, 0);
    testbed.await_rings(0);
    driver.state(SET_VRING_ENABLE, 2, 1);
    testbed.await_rings(1);
    driver.state(GET_VRING_BASE, 2, 0);
    assert_eq!(driver.answer(), 2, "position 0 of ring 2");
    testbed.await_rings(0);
    driver.words(SET_VRING_KICK, &[2 | NO_FD], None);
    testbed.await_rings(1);
    // The same memory again, as after an extension.
    driver.share(&file, BYTES);
    driver.features();
    testbed.await_rings(1);
    drop(driver);
    testbed.await_rings(0);
    testbed.still_serves();
}

#[test]
fn a_driver_that_truncates_its_memory_harms_only_itself() {
    let testbed = Testbed::new();
    for length in [0, 4096] {
        let file = memory();
        let driver = running(&testbed, &file);
        file.set_len(length).unwrap();
        // The NIC reads the rings all the time, and the available ring of the receiving one for each packet.
        testbed.offer(1000);
        drop(driver);
        testbed.await_rings(0);
        testbed.still_serves();
    }
}

#[test]
fn memory_that_is_none_ends_the_connection() {
    let testbed = Testbed::new();
    let device = File::options().read(true).write(true).open("/dev/zero").unwrap();
    for (file, bytes) in [(memory(), BYTES + 1), (device, 4096)] {
        let mut driver = testbed.connect();
        driver.features();
        driver.share(&file, bytes);
        driver.0.set_read_timeout(Some(TIMEOUT)).unwrap();
        // The device may close the socket while it has unread data.
        assert_eq!(driver.0.read(&mut [0]).unwrap_or(0), 0);
    }
    testbed.still_serves();
}

/// A message of a hostile driver: request, payload, and whether its memory is attached.
type Message = (u32, Vec<u64>, bool);

fn message() -> impl Strategy<Value = Message> {
    let word = prop_oneof![
        0u64..6,
        (0u64..0x1_1000).prop_map(|offset| USER + offset),
        (0u64..6, 0u64..300).prop_map(|(index, value)| value << 32 | index),
        Just(SPLIT),
        Just(FEATURES),
        any::<u64>(),
    ];
    let table = (0u64..3, prop::collection::vec(word.clone(), 0..9))
        .prop_map(|(count, words)| (SET_MEM_TABLE, [vec![count], words].concat(), true));
    let shared = Just((SET_MEM_TABLE, vec![1, USER, BYTES as u64, USER, 0], true));
    let other = (0u32..45, prop::collection::vec(word, 0..6), any::<bool>());
    prop_oneof![1 => table, 2 => shared, 8 => other]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 100, ..ProptestConfig::default() })]
    #[test]
    fn any_messages_are_served_or_refused(
        messages in prop::collection::vec(message(), 0..40),
        memory_bytes in prop::collection::vec((0usize..BYTES - 8, any::<u64>()), 0..50),
    ) {
        use std::os::unix::fs::FileExt;
        let (testbed, file) = (Testbed::new(), memory());
        for (offset, word) in memory_bytes {
            file.write_all_at(&word.to_le_bytes(), offset as u64).unwrap();
        }
        let driver = running(&testbed, &file);
        for (request, words, attached) in messages {
            let payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            if !driver.send(request, &payload, attached.then(|| file.as_fd())) {
                break;
            }
        }
        testbed.offer(200);
        drop(driver);
        testbed.await_rings(0);
        testbed.still_serves();
    }
}
