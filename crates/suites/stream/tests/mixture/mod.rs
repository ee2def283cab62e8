//! A mixture of packets for all applications, many of them malformed for some, and what an application does with them in memory.

use applications::Application;
use applications::application::Count;
use applications::kv::format::{self, Operation};
use applications::kv::{key_of, value_of};
use etherparse::PacketBuilder;
use stream::application::{
    ApplicationSpec, BACKENDS, CoreNumber, WithApplication, backend_addresses,
};

/// Number of keys of the store, half of which are requested.
const KEYS: usize = 1000;

/// Outcomes of packets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The packets that were sent, in order.
    pub(crate) sent: Vec<Vec<u8>>,
    pub(crate) counts: Vec<Count>,
}

/// Runs an application over packets in memory.
pub(crate) struct InMemory<'a>(pub(crate) &'a [Vec<u8>]);

impl WithApplication for InMemory<'_> {
    type Output = Outcome;

    fn run<A: Application>(self, mut application: A) -> Outcome {
        let (mut packets, mut sent) = (self.0.to_vec(), Vec::new());
        application.process(packets.iter_mut().map(Vec::as_mut_slice), |packet, decision| {
            if decision.is_sent() {
                sent.push(packet.to_vec());
            }
        });
        Outcome { sent, counts: application.counts() }
    }
}

/// Returns all applications, each as that of the second of two cores.
pub(crate) fn specs() -> (Vec<ApplicationSpec>, CoreNumber) {
    let mut specs = vec![
        ApplicationSpec::Echo { nops: 1 },
        ApplicationSpec::MaglevEnso { backends: backend_addresses(BACKENDS) },
        ApplicationSpec::Maglev { backends: backend_addresses(3) },
        ApplicationSpec::KeyValue { keys: KEYS, filled: true },
        ApplicationSpec::Telemetry { one_in: 2, seed: 7 },
    ];
    match ApplicationSpec::log_monitor(&[]) {
        Ok(monitor) => specs.push(monitor),
        Err(why) => machine::untested::note("stream: the log monitor over interfaces", &why),
    }
    (specs, CoreNumber { core: 1, cores: 2 })
}

/// Returns frames from 60 to 1514 B, each with a total length that is right, of which an interface needs no more.
pub(crate) fn packets(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(packet).collect()
}

fn packet(number: usize) -> Vec<u8> {
    let round = number / 10;
    match number % 10 {
        0 => udp(number, &requests(round, round % 60 + 1)),
        1 => udp(number, failure(number).as_bytes()),
        2 => tcp(number, &failure(number).repeat(round % 12 + 1)),
        3 => changed(udp(number, &requests(round, 2)), 40, "a wrong UDP checksum"),
        4 => changed(udp(number, &requests(round, 3)), 38, "a UDP length that exceeds the packet"),
        5 => icmp(number),
        6 => udp(number, &[b'x'; 18]),
        7 => changed(udp(number, &requests(round, 1)), 21, "a fragment"),
        8 => udp(number, &vec![round as u8; 1472 - round % 64]),
        _ => {
            let mut unknown = requests(round, 4);
            unknown[format::HEADER] = 9;
            udp(number, &unknown)
        }
    }
}

/// Changes a byte of the headers; the third parameter says what that makes of the packet.
fn changed(mut frame: Vec<u8>, at: usize, _: &str) -> Vec<u8> {
    frame[at] ^= 0x41;
    frame
}

/// Starts a frame from one of 100 sources to one of 8 destinations.
fn ethernet(number: usize) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    let source = [10, 0, 1, (number % 100) as u8];
    let destination = [192, 168, 0, (number % 8) as u8];
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv4(source, destination, 64)
}

fn udp(number: usize, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    ethernet(number).udp(4000 + number as u16 % 50, 80).write_to_vec(&mut frame, payload).unwrap();
    assert!((60..=1514).contains(&frame.len()));
    frame
}

fn tcp(number: usize, text: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = ethernet(number).tcp(4000 + number as u16 % 50, 514, 1, 1000);
    builder.write_to_vec(&mut frame, text.as_bytes()).unwrap();
    frame
}

fn icmp(number: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    ethernet(number)
        .icmpv4_echo_request(1, number as u16)
        .write_to_vec(&mut frame, &[1; 40])
        .unwrap();
    frame
}

/// Returns the payload of a number of requests for keys of both partitions.
fn requests(first: usize, count: usize) -> Vec<u8> {
    let operation = |rank: usize| {
        let key = key_of((rank % (2 * KEYS)) as u64);
        if rank.is_multiple_of(3) {
            Operation::Set { key, value: value_of(key) }
        } else {
            Operation::Get { key }
        }
    };
    let operations: Vec<_> = (0..count).map(|n| operation(first * 7 + n * 13)).collect();
    let mut payload = vec![0; format::length(count)];
    format::write(&mut payload, [first as u8; format::MARK], &operations).unwrap();
    payload
}

/// Returns a line that reports a failure to log in, or one that does not.
fn failure(number: usize) -> String {
    let result = if number % 20 < 10 { "Failed" } else { "Accepted" };
    let host = number % 250;
    format!(
        "Nov 27 10:00:01 host sshd[7]: {result} password for root from 192.0.2.{host} port 9 ssh2\n"
    )
}
