//! Random messages to the NIC and from it. `PROPTEST_CASES` sets the number of conversations.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use machine::memfd::Memfd;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{FORM, Found, SIZES, SOON};
use crate::host::Device;
use crate::nic::descriptor::LongDescriptor;
use crate::nic::descriptors::Descriptors;
use crate::nic::doorbell_queue::DoorbellQueue;
use crate::nic::layout::FLIT;
use crate::nic::memory::MemoryLayout;
use crate::nic::pipes::{Notify, Pipes};
use crate::nic::remote::Connection;
use crate::nic::remote::fds::{self, Timeout};
use crate::nic::remote::message::{Reply, Request, VERSION};
use crate::tests::cases;

/// A NIC that reports memory at the end of the address space.
#[test]
fn memory_beyond_the_last_address_is_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic");
    let listener = UnixListener::bind(&path).unwrap();
    let nic = std::thread::spawn(move || {
        let socket = listener.accept().unwrap().0;
        for reply in [Reply::Welcome(0), Reply::Registered(u64::MAX - 4095)] {
            Request::receive(&socket, Timeout::within(SOON)).unwrap().unwrap();
            reply.send(&socket, None::<OwnedFd>, SOON).unwrap();
        }
        socket
    });
    let connection = Connection::open(&path, FORM).unwrap();
    let why = connection.register_memory(MemoryLayout::Plain(4096)).map(drop).unwrap_err();
    assert!(why.to_string().contains("understand it"), "{why}");
    drop(nic.join().unwrap());
}

/// The file descriptor attached to a message.
#[derive(Debug, Clone, Copy)]
enum Passed {
    Nothing,
    /// A memfd with a length in bytes, sealed or not.
    Memfd(usize, bool),
    /// An end of a pipe.
    Pipe,
    /// The doorbells of a pair.
    Doorbells,
}

impl Passed {
    fn fd(self) -> Option<OwnedFd> {
        let owned = |memfd: Memfd| memfd.as_fd().try_clone_to_owned().unwrap();
        match self {
            Self::Nothing => None,
            Self::Memfd(bytes, true) => Some(owned(Memfd::sealed("test", bytes).unwrap())),
            Self::Memfd(bytes, false) => Some(owned(Memfd::create("test", bytes).unwrap())),
            Self::Pipe => Some(std::io::pipe().unwrap().0.into()),
            Self::Doorbells => {
                Some(owned(Memfd::sealed("test", size_of::<DoorbellQueue>()).unwrap()))
            }
        }
    }
}

/// One step of a conversation.
#[derive(Debug, Clone)]
enum Step {
    Words([u64; 8], Passed),
    Bytes(Vec<u8>, Passed),
}

fn passed() -> impl Strategy<Value = Passed> {
    let bytes = prop_oneof![Just(4096), Just(8192), Just(0), 0usize..20_000];
    prop_oneof![
        3 => Just(Passed::Nothing),
        2 => (bytes, prop::bool::weighted(0.8)).prop_map(|(bytes, fixed)| Passed::Memfd(bytes, fixed)),
        1 => Just(Passed::Pipe),
        1 => Just(Passed::Doorbells),
    ]
}

/// A number that is valid for some field, or any other.
fn word() -> impl Strategy<Value = u64> {
    let sizes =
        prop_oneof![Just(4096u64), Just(8192), Just(1 << 20), Just(u64::MAX), Just(1 << 63)];
    prop_oneof![4 => 0u64..4, 2 => sizes, 1 => any::<u64>()]
}

fn step() -> impl Strategy<Value = Step> {
    let words = (0u64..12, prop::array::uniform7(word()), passed());
    let words = words.prop_map(|(kind, rest, passed)| {
        let [a, b, c, d, e, f, g] = rest;
        Step::Words([kind, a, b, c, d, e, f, g], passed)
    });
    let bytes = (prop::collection::vec(any::<u8>(), 0..100), passed());
    prop_oneof![20 => words, 1 => bytes.prop_map(|(bytes, passed)| Step::Bytes(bytes, passed))]
}

impl Step {
    fn say(&self, to: &UnixStream) -> bool {
        let (bytes, passed) = match self {
            Self::Words(words, passed) => {
                (words.iter().flat_map(|word| word.to_le_bytes()).collect(), passed)
            }
            Self::Bytes(bytes, passed) => (bytes.clone(), passed),
        };
        let fd = passed.fd();
        fds::send(to, &bytes, fd.as_ref().map(AsFd::as_fd), SOON).is_ok()
    }
}

#[test]
fn the_nic_survives_any_conversation() {
    let flits = (SIZES.ring / FLIT) as u32;
    let pipes = Pipes::new(Notify::EveryPacket, flits, SIZES.notifications);
    converse(&Found::with(pipes));
    converse(&Found::with(Descriptors::<LongDescriptor>::new(64, 64)));
}

fn converse(found: &Found) {
    let conversations = prop::collection::vec(
        (prop::bool::weighted(0.9), prop::collection::vec(step(), 0..30)),
        1..4,
    );
    let mut runner = TestRunner::new(cases(60));
    let outlives = |conversations: Vec<(bool, Vec<Step>)>| {
        let all: Vec<_> = conversations.iter().map(|_| found.raw()).collect();
        for (raw, (greets, steps)) in all.iter().zip(&conversations) {
            if *greets {
                let hello = Request::Hello(VERSION, Some(found.config));
                hello.send(&raw.0, None, SOON).unwrap();
            }
            // Replies are not read; they fit the socket's buffer.
            let _ = steps.iter().all(|step| step.say(&raw.0));
            let _ = raw.0.shutdown(Shutdown::Write);
        }
        for raw in all {
            let timeout = Timeout::within(SOON);
            while let Ok(Some(_)) = Reply::receive(&raw.0, timeout) {}
        }
        Ok(())
    };
    runner.run(&conversations, outlives).unwrap();
    found.still_serves();
}

#[test]
fn a_program_survives_any_replies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic");
    let listener = UnixListener::bind(&path).unwrap();
    let steps = (prop::bool::weighted(0.9), prop::collection::vec(step(), 0..12));
    let mut runner = TestRunner::new(cases(150));
    let outlives = |(welcomes, steps): (bool, Vec<Step>)| {
        let mut program = None;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = listener.accept().unwrap();
                if welcomes {
                    let _ = Reply::Welcome(u64::MAX).send(&socket, None::<OwnedFd>, SOON);
                }
                let _ = steps.iter().all(|step| step.say(&socket));
                let _ = socket.flush();
                let _ = socket.shutdown(Shutdown::Write);
            });
            program = Connection::open(&path, FORM).ok();
        });
        let Some(program) = program else { return Ok(()) };
        let port = program.port();
        port.reserve_pipes(2);
        if let Ok(pipe) = port.alloc_pipe() {
            port.free_pipe(pipe);
        }
        if let Ok((pair, doorbells)) = port.attach() {
            doorbells.write(0, 1);
            port.detach(pair);
        }
        let _ = port.ring(4096);
        let _ = Device::new(&port, SIZES).map(|device| device.rx_pipe().map(|_| ()));
        let _ = program.ready();
        port.drain_doorbells();
        Ok(())
    };
    runner.run(&steps, outlives).unwrap();
}
