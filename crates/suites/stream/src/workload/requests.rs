//! Traffic for the key-value store: requests of keys with a given popularity.

use applications::kv::format::{self, HEADER, MARK, Operation, REQUEST, Request, STATUS, Status};
use applications::kv::partition::KeyHash;
use applications::kv::{key_of, value_of};
use applications::packet::{Headers, rewrite};
use applications::zipf::Zipf;
use machine::SysError;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{SEED, WorkloadError};
use crate::wire::MarkPosition;
use crate::wire::build::{self, HEADERS};
use crate::wire::frame::{Head, MAX_LENGTH};
use crate::wire::sample::{CHECK_SEQUENCE, SampleTraffic};
use crate::wire::traffic::{Traffic, TrafficBuilder, lines_of};

/// Maximum number of requests in a packet.
pub const MAX_PER_PACKET: u16 = ((MAX_LENGTH as usize - HEADERS - HEADER) / REQUEST) as u16;

/// Number of requests of the traffic. With keys of equal popularity most are different, and need two lines of memory each: more
/// than most caches have.
const REQUESTS: u32 = 1 << 19;

/// Offset of the 8 bytes with the status of the first request and the most of its value.
pub const WORD: usize = HEADERS + HEADER + STATUS;

/// Requests in packets that each go to one partition of the store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Requests {
    /// Number of keys.
    pub keys: u64,
    /// Exponent of the Zipf distribution of their popularity; 0 if it is uniform.
    pub exponent: f64,
    /// Share of GETs; the others are SETs of the value that the key has.
    pub gets: f64,
    /// Requests per packet.
    pub per_packet: u16,
    /// Number of pipes or queues, of which each is a destination.
    pub pipes: u32,
    /// Number of cores, each with a partition.
    pub cores: u16,
    /// Pipes of each core but the last, which may have fewer.
    pub pipes_per_core: u32,
}

impl Requests {
    /// Returns the size of a packet with its check sequence, in bytes.
    pub fn size(per_packet: u16) -> u16 {
        let frame = HEADERS + format::length(usize::from(per_packet));
        (frame as u16).saturating_add(CHECK_SEQUENCE)
    }

    /// Returns the number of packets.
    pub fn packets(per_packet: u16) -> u32 {
        REQUESTS.div_ceil(u32::from(per_packet.max(1)))
    }

    /// Generates the packets, in the order in which their last requests are drawn. The keys of a packet are of one partition,
    /// and it goes to a pipe of the partition's core, to each in turn.
    ///
    /// # Errors
    /// Returns which parameter is invalid, or that memory is exhausted.
    pub fn traffic(&self) -> Result<Traffic, WorkloadError> {
        let per_packet = usize::from(self.per_packet);
        if !(1..=MAX_PER_PACKET).contains(&self.per_packet) {
            return Err(WorkloadError::Requests(self.per_packet));
        }
        let zipf = Zipf::new(self.keys, self.exponent)?;
        let mut random = Pcg64Mcg::seed_from_u64(SEED);
        let packets = Self::packets(self.per_packet);
        let length = HEADERS + format::length(per_packet);
        let lines = lines_of(length as u16) * packets as usize;
        let mut builder = TrafficBuilder::new(lines, MarkPosition::Payload)?;
        let cores = self.cores.max(1);
        let mut waiting = vec![Vec::with_capacity(per_packet); usize::from(cores)];
        let mut sent = vec![0; usize::from(cores)];
        let mut payload = vec![0; format::length(per_packet)];
        let mut left = packets;
        while left > 0 {
            let key = key_of(zipf.draw(&mut random));
            let operation = match random.random_bool(self.gets.clamp(0.0, 1.0)) {
                true => Operation::Get { key },
                false => Operation::Set { key, value: value_of(key) },
            };
            let core = KeyHash::new(key).partition(cores);
            let operations = &mut waiting[usize::from(core)];
            operations.push(operation);
            if operations.len() == per_packet {
                format::write(&mut payload, [0; MARK], operations);
                operations.clear();
                let turn = &mut sent[usize::from(core)];
                let flow = SampleTraffic::flow_to(self.pipe(core, *turn));
                builder.push(&build::udp(&flow, &payload), Head { flow, syn: false });
                *turn += 1;
                left -= 1;
            }
        }
        Ok(builder.finish())
    }

    /// Returns the pipe of a core at its turn.
    fn pipe(&self, core: u16, turn: u32) -> u32 {
        let first = self.pipes_per_core * u32::from(core);
        let pipes = self.pipes.saturating_sub(first).min(self.pipes_per_core);
        first + turn % pipes.max(1)
    }
}

/// Sets what the store returns if no key is missing: each packet goes back to its sender, with the value of each key.
///
/// # Errors
/// Returns that memory is exhausted.
pub fn with_expected(traffic: Traffic) -> Result<Traffic, SysError> {
    traffic.with_expected(WORD, |packet| {
        let Ok(headers) = Headers::parse(packet) else { return };
        let requests = format::requests(headers.payload_of(packet)).unwrap_or(0);
        let first = headers.payload + HEADER;
        let answers = packet.get_mut(first..).unwrap_or_default().as_chunks_mut().0;
        for bytes in answers.iter_mut().take(requests) {
            let request = Request::of(bytes);
            request.with_answer(Status::Done, value_of(request.key)).put(bytes);
        }
        rewrite::swap_addresses(packet, &headers);
        rewrite::renew_checksum(packet, &headers);
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use applications::kv::KeyValue;
    use applications::kv::partition::Size;
    use applications::{Application, Decision};

    use super::*;

    const SOME: Requests = Requests {
        keys: 1000,
        exponent: 0.99,
        gets: 0.5,
        per_packet: 40,
        pipes: 5,
        cores: 3,
        pipes_per_core: 2,
    };

    /// Returns the requests of a packet.
    fn requests(packet: &[u8]) -> Vec<Request> {
        let headers = Headers::parse(packet).unwrap();
        let payload = headers.payload_of(packet);
        let count = format::requests(payload).unwrap();
        payload[HEADER..].as_chunks().0[..count].iter().map(Request::of).collect()
    }

    #[test]
    fn the_reference_agrees_with_the_store() {
        for per_packet in [1, 7, MAX_PER_PACKET] {
            let of = Requests { per_packet, cores: 1, pipes: 1, pipes_per_core: 1, ..SOME };
            let traffic = with_expected(of.traffic().unwrap()).unwrap();
            // So large that no key is evicted.
            let mut store = KeyValue::new(Size::of_keys(100_000), 0, 1).unwrap();
            for key in (0..of.keys).map(key_of) {
                store.partition().set(KeyHash::new(key), key, value_of(key));
            }
            for index in 0..500 {
                let mut packet = traffic.bytes(index).to_vec();
                assert_eq!(packet.len(), usize::from(Requests::size(per_packet) - 4));
                store.process(std::iter::once(packet.as_mut_slice()), |packet, decision| {
                    assert_eq!(decision, Decision::Reply);
                    assert_eq!(packet, traffic.expected(index), "packet {index}");
                });
            }
        }
    }

    #[test]
    fn each_key_goes_to_a_pipe_of_its_core() {
        let traffic = SOME.traffic().unwrap();
        assert_eq!(traffic.len() as u32, Requests::packets(40));
        let mut pipes = HashMap::<_, u32>::new();
        for (index, packet) in traffic.packets().iter().enumerate() {
            let pipe = super::super::destination(&packet.flow);
            *pipes.entry(pipe).or_default() += 1;
            for request in requests(traffic.bytes(index)) {
                let core = KeyHash::new(request.key).partition(SOME.cores);
                assert_eq!(u32::from(core), pipe / SOME.pipes_per_core);
            }
        }
        assert_eq!(pipes.len(), 5);
        assert!(pipes[&0].abs_diff(pipes[&1]) <= 1 && pipes[&2].abs_diff(pipes[&3]) <= 1);
    }

    #[test]
    fn popularity_and_gets_are_as_stated() {
        for (exponent, gets) in [(0.99, 0.5), (0.0, 0.95), (0.99, 1.0), (0.0, 0.0)] {
            let of = Requests { exponent, gets, cores: 1, pipes: 1, pipes_per_core: 1, ..SOME };
            let traffic = of.traffic().unwrap();
            let all: Vec<_> =
                (0..traffic.len()).flat_map(|index| requests(traffic.bytes(index))).collect();
            let total = all.len() as f64;
            let share = |count: usize| count as f64 / total;
            let found = share(all.iter().filter(|one| one.operation == format::GET).count());
            assert!((found - gets).abs() < 0.003, "{found} of {gets}");
            let sets = all.iter().filter(|one| one.operation == format::SET);
            assert!(sets.into_iter().all(|set| set.value == value_of(set.key)));
            let weights: f64 = (1..=of.keys).map(|rank| (rank as f64).powf(-exponent)).sum();
            let first = share(all.iter().filter(|one| one.key == key_of(0)).count());
            assert!((first * weights - 1.0).abs() < 0.15, "{first} for {exponent}");
        }
    }

    #[test]
    fn impossible_requests_are_refused() {
        for (of, said) in [
            (Requests { per_packet: 0, ..SOME }, "0 requests per packet; use 1 to 60"),
            (Requests { per_packet: MAX_PER_PACKET + 1, ..SOME }, "61 requests per packet"),
            (Requests { keys: 0, ..SOME }, "0 ranks"),
            (Requests { exponent: -1.0, ..SOME }, "an exponent of -1"),
        ] {
            let why = of.traffic().unwrap_err().to_string();
            assert!(why.contains(said), "{why}");
        }
    }
}
