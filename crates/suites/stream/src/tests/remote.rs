//! Misbehaving programs.

mod accepting;
mod anything;
mod hostile;
mod messages;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::memfd::Memfd;

use crate::generator::{Generator, GeneratorCommand, LiveCounters};
use crate::host::{Device, NotificationBatch, Sizes, descriptors};
use crate::nic::engine::Engine;
use crate::nic::interface_config::InterfaceConfig;
use crate::nic::memory::MemoryLayout;
use crate::nic::pipes::{Notify, Pipes};
use crate::nic::remote::fds::Timeout;
use crate::nic::remote::message::{Reply, Request, VERSION};
use crate::nic::remote::{ConnectError, Connection, Limits, MemoryUse, Server};
use crate::nic::{Nic, NicParams};
use crate::wire::sample::{SampleTraffic, Sizes as PacketSizes};

const SIZES: Sizes = Sizes { ring: 64 << 10, notifications: 64, batch: NotificationBatch::Of64 };
const FORM: InterfaceConfig = InterfaceConfig::Pipes {
    notify: Notify::Reactively,
    ring: SIZES.ring,
    notifications: SIZES.notifications,
};
const LENT: MemoryUse = MemoryUse { bytes: 1 << 20, regions: 100 };
const LIMITS: Limits = Limits {
    each: LENT,
    all: MemoryUse { bytes: 64 << 20, regions: 6400 },
    pairs: 2,
    timeout: SOON,
};
/// Far longer than needed on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// No limit for the first message, `SOON` for the later ones.
const ANY: Timeout = Timeout { first: None, rest: SOON };

/// A NIC with a generator on the wire, and the folder of its socket.
struct Found {
    server: Server,
    nic: Nic<GeneratorCommand>,
    config: InterfaceConfig,
    folder: tempfile::TempDir,
}

impl Found {
    fn new() -> Self {
        let engine = Pipes::new(Notify::Reactively, SIZES.ring as u32 / 64, SIZES.notifications);
        Self::with(engine)
    }

    fn with(engine: impl Engine) -> Self {
        Self::with_limits(engine, LIMITS)
    }

    fn with_limits(engine: impl Engine, limits: Limits) -> Self {
        let sample =
            SampleTraffic { packets: 7, size: PacketSizes::Imix, sources: 1, destinations: 1 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let generator = Generator::new(traffic, Arc::new(LiveCounters::default())).unwrap();
        let has = engine.config();
        let set = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0..1024).find(|cpu| set.is_set(*cpu)).unwrap();
        let nic = Nic::start(NicParams { cpu, ..NicParams::default() }, engine, generator).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let access = nic.access();
        let open = move |config| {
            if config == has { Ok(access.clone()) } else { Err(format!("it has {has}")) }
        };
        let server = Server::open(&folder.path().join("nic"), limits, open).unwrap();
        Self { server, nic, folder, config: has }
    }

    fn connect(&self) -> Arc<Connection> {
        let start = Instant::now();
        loop {
            match Connection::open(&self.folder.path().join("nic"), self.config) {
                // On a busy machine, disconnected strangers may still be counted when others connect.
                Err(why)
                    if why.to_string().contains("try again")
                        && start.elapsed() < Duration::from_secs(30) =>
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                connection => return connection.unwrap(),
            }
        }
    }

    /// A connection that sends raw messages.
    fn raw(&self) -> Raw {
        Raw(UnixStream::connect(self.folder.path().join("nic")).unwrap())
    }

    /// Asserts that the NIC still serves: a program sends a packet.
    fn still_serves(&self) {
        let before = self.nic.counters().out_packets;
        let port = self.connect().port();
        match self.config {
            InterfaceConfig::Pipes { .. } => {
                let device = Device::new(&port, SIZES).unwrap();
                let mut pipe = device.tx_pipe().unwrap();
                pipe.allocate(64).unwrap()[..64].fill(0);
                pipe.send_and_free(64).unwrap();
            }
            InterfaceConfig::Descriptors { rx, tx, .. } => {
                let sizes = descriptors::Sizes { rx, tx };
                let device = descriptors::Device::new(&port, sizes, 1).unwrap();
                let (mut queue, mut burst) = (device.queue().unwrap(), device.burst());
                burst.add(60).unwrap().fill(0);
                queue.send(&mut burst).unwrap();
            }
            InterfaceConfig::Virtio { .. } | InterfaceConfig::Link(_) => {
                unreachable!("this server has no such NIC")
            }
        }
        let start = Instant::now();
        while self.nic.counters().out_packets == before {
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Raw(UnixStream);

impl Raw {
    fn ask(&self, request: Request, fd: Option<&impl AsFd>) -> Option<(Reply, Option<OwnedFd>)> {
        request.send(&self.0, fd.map(AsFd::as_fd), SOON).unwrap();
        Reply::receive(&self.0, ANY).unwrap()
    }

    fn refused(&self, request: Request, fd: Option<&impl AsFd>) -> String {
        match self.ask(request, fd) {
            Some((Reply::Refused(why), None)) => why,
            other => panic!("{request:?}: {other:?}"),
        }
    }
}

const NO_FD: Option<&File> = None;

#[test]
fn another_version_is_refused_in_one_line() {
    let found = Found::new();
    let why = found.raw().refused(Request::Hello(VERSION + 1, Some(FORM)), NO_FD);
    let both = format!("version {VERSION} and the program version {}", VERSION + 1);
    assert!(why.contains(&both) && why.lines().count() == 1, "{why}");
    assert!(found.raw().refused(Request::Attach, NO_FD).contains("hello"));
    assert!(found.raw().refused(Request::Hello(VERSION, None), NO_FD).contains("configuration"));
}

#[test]
fn another_configuration_is_refused_in_one_line() {
    let found = Found::new();
    let config =
        InterfaceConfig::Pipes { notify: Notify::Reactively, ring: 4096, notifications: 64 };
    let why = match Connection::open(&found.folder.path().join("nic"), config) {
        Err(why @ ConnectError::Refused(..)) => why.to_string(),
        other => panic!("{:?}", other.map(|_| ())),
    };
    assert!(why.contains("64 KiB") && why.lines().count() == 1, "{why}");
    let port = found.connect().port();
    let why = Device::new(&port, Sizes::default()).map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("2048 KiB") && why.contains("64 KiB"), "{why}");
}

#[test]
fn a_missing_server_is_reported_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let why = Connection::open(&folder.path().join("nic"), FORM).map(|_| ()).unwrap_err();
    let why = why.to_string();
    assert!(why.contains("tollgate stream generate") && why.lines().count() == 1, "{why}");
}

#[test]
fn a_socket_serves_one_nic_and_a_stale_one_is_replaced() {
    let found = Found::new();
    let path = found.folder.path().join("nic");
    let again = |path: &_| Server::open(path, LIMITS, |_| Err(String::new()));
    let why = again(&path).map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("another NIC or service"), "{why}");
    drop(found.server);
    assert!(!path.exists());
    // A killed process leaves its socket like this.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    again(&path).unwrap();
}

#[test]
fn the_memory_of_a_program_is_limited() {
    let found = Found::new();
    let port = found.connect().port();
    let each = 64 << 10;
    let rings: Vec<_> = (0..16).map(|_| port.ring(each).unwrap()).collect();
    let why = port.plain(1).map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("1048576") && why.lines().count() == 1, "{why}");
    // Each program has its own limit, and freed memory is available again.
    let other = found.connect().port();
    other.rings(16, each).unwrap();
    drop(rings);
    port.rings(16, each).unwrap();
    let many: Vec<_> = (0..100).map(|_| port.plain(4096).unwrap()).collect();
    let why = port.plain(4096).map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("regions"), "{why}");
    drop(many);
    assert!(port.rings(usize::MAX, 4096).is_err());
    found.still_serves();
}

#[test]
fn memory_that_could_shrink_is_refused() {
    let found = Found::new();
    let raw = found.raw();
    raw.ask(Request::Hello(VERSION, Some(FORM)), NO_FD);
    let lend = Request::RegisterMemory(MemoryLayout::Rings { count: 1, each: 8192 });
    let unsealed = Memfd::create("test", 8192).unwrap();
    assert!(raw.refused(lend, Some(&unsealed)).contains("sealed"));
    let shorter = Memfd::sealed("test", 4096).unwrap();
    assert!(raw.refused(lend, Some(&shorter)).contains("requested length"));
    let file = tempfile::tempfile().unwrap();
    file.set_len(8192).unwrap();
    assert!(raw.refused(lend, Some(&file)).contains("sealed"));
    assert!(raw.refused(lend, NO_FD).contains("sealed"));
    let odd = Request::RegisterMemory(MemoryLayout::Rings { count: 2, each: 100 });
    assert!(raw.refused(odd, Some(&Memfd::sealed("test", 200).unwrap())).contains("pages"));
    for nothing in [MemoryLayout::Plain(0), MemoryLayout::Rings { count: 0, each: 4096 }] {
        let memfd = Memfd::sealed("test", 0).unwrap();
        raw.refused(Request::RegisterMemory(nothing), Some(&memfd));
    }
    let sound = Memfd::sealed("test", 8192).unwrap();
    assert!(matches!(raw.ask(lend, Some(&sound)), Some((Reply::Registered(_), None))));
    found.still_serves();
}

#[test]
fn a_program_cannot_free_resources_of_another() {
    let found = Found::new();
    let owner = found.raw();
    owner.ask(Request::Hello(VERSION, Some(FORM)), NO_FD);
    let pair = match owner.ask(Request::Attach, NO_FD) {
        Some((Reply::Attached(pair, _), Some(_))) => pair,
        other => panic!("{other:?}"),
    };
    let pipe = match owner.ask(Request::AllocPipe, NO_FD) {
        Some((Reply::Pipe(pipe), None)) => pipe,
        other => panic!("{other:?}"),
    };
    let memfd = Memfd::sealed("test", 4096).unwrap();
    let bus = match owner.ask(Request::RegisterMemory(MemoryLayout::Plain(4096)), Some(&memfd)) {
        Some((Reply::Registered(bus), None)) => bus,
        other => panic!("{other:?}"),
    };
    let back = [Request::Detach(pair), Request::FreePipe(pipe), Request::Deregister(bus)];
    let thief = found.raw();
    thief.ask(Request::Hello(VERSION, Some(FORM)), NO_FD);
    for request in back {
        thief.refused(request, NO_FD);
    }
    for request in back {
        assert_eq!(owner.ask(request, NO_FD).unwrap().0, Reply::Done);
        owner.refused(request, NO_FD);
    }
}

#[test]
fn an_invalid_request_ends_only_its_connection() {
    let found = Found::new();
    for bytes in [&[0xff; 64][..], &[1; 3], &[0; 200]] {
        let mut raw = found.raw();
        raw.0.write_all(bytes).unwrap();
        raw.0.shutdown(std::net::Shutdown::Write).unwrap();
        let reply = Reply::receive(&raw.0, ANY);
        assert!(matches!(reply, Ok(None | Some((Reply::Refused(_), None))) | Err(_)), "{reply:?}");
    }
    found.still_serves();
}
