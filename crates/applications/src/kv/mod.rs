//! A key-value store as in MICA, with keys and values of 8 bytes.
//!
//! Each core has one [partition](partition) of the keys and answers requests in [UDP packets](mod@format), in place. A client
//! computes a key's partition and sends to the address of its core. Requests are processed in groups, so that the memory
//! latencies of different requests overlap: first all buckets of the index are prefetched, then all items, then the requests
//! are executed in order. Groups of packets with [one request](single) each take a shorter path.
//!
//! For measurements a key's value is a [function of the key](value_of), so every answer can be checked without knowledge of
//! what was set before. A key that was evicted is missing, which is no error.
//!
//! Packets that are no valid requests, or whose checksums are wrong, are counted and dropped.

pub mod format;
pub mod partition;
mod single;

use std::hint::black_box;

use crate::application::{Access, Application, Count, Decision, in_groups, take};
use crate::hash;
use crate::memory::MemoryError;
use crate::packet::{Headers, Malformed, MalformedCounts, UDP, checksum, read, rewrite, write};
use format::{GET, HEADER, KEY, Operation, REQUEST, SET, STATUS, Status, VALUE};
use partition::{KeyHash, Partition, Size};

/// Number of keys in Ensō's evaluation: 192 Mi.
pub const MAX_KEYS: usize = 192 << 20;

/// Returns the key of a rank of popularity; different ranks have different keys, and those of popular ranks are spread over
/// all partitions.
#[inline(always)]
pub fn key_of(rank: u64) -> u64 {
    hash::mix(rank.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Returns the value that clients set for a key.
#[inline(always)]
pub fn value_of(key: u64) -> u64 {
    hash::mix(!key)
}

/// Returns the number of keys for which `bytes` bytes of memory suffice in total: a power of two, or Ensō's number.
pub fn keys_within(bytes: usize) -> usize {
    if Size::of_keys(MAX_KEYS).bytes() <= bytes {
        return MAX_KEYS;
    }
    let mut keys = MAX_KEYS.next_power_of_two() / 2;
    while keys > 1 && Size::of_keys(keys).bytes() > bytes {
        keys /= 2;
    }
    keys
}

/// Maximum number of packets in a group.
const PACKETS: usize = 32;
/// Maximum number of requests whose memory is prefetched together.
const REQUESTS: usize = 32;

/// A packet of a group: its headers and its number of requests, 0 if it is dropped.
type Accepted = (Headers, usize);

/// A request of a group.
#[derive(Debug, Clone, Copy)]
struct Job {
    hash: KeyHash,
    packet: u32,
    /// Offset in the packet.
    at: u32,
}

/// Executes operations in order on a partition that has all their keys, without packets. Memory is prefetched for as many
/// at a time as with packets. Returns how many GETs found a value.
pub fn execute(partition: &mut Partition, operations: &[Operation]) -> u64 {
    let mut hashes = [KeyHash::new(0); REQUESTS];
    let mut found = 0;
    for group in operations.chunks(REQUESTS) {
        for (hash, operation) in hashes.iter_mut().zip(group) {
            *hash = KeyHash::new(operation.key());
            partition.prefetch_bucket(*hash);
        }
        for hash in &hashes[..group.len()] {
            partition.prefetch_item(*hash);
        }
        for (hash, operation) in hashes.iter().zip(group) {
            match *operation {
                Operation::Get { key } => {
                    found += u64::from(black_box(partition.get(*hash, key)).is_some());
                }
                Operation::Set { key, value } => partition.set(*hash, key, value),
            }
        }
    }
    found
}

/// The store of one core.
pub struct KeyValue {
    partition: Partition,
    number: u16,
    partitions: u16,
    packets: u64,
    counts: Counts,
    malformed: MalformedCounts,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    gets: u64,
    found: u64,
    sets: u64,
    refused: u64,
}

impl KeyValue {
    /// Creates the empty store of the core with partition `number` of `partitions`.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn new(size: Size, number: u16, partitions: u16) -> Result<Self, MemoryError> {
        Ok(Self {
            partition: Partition::new(size)?,
            number,
            partitions,
            packets: 0,
            counts: Counts::default(),
            malformed: MalformedCounts::default(),
        })
    }

    /// Returns the partition, for access without packets.
    pub fn partition(&mut self) -> &mut Partition {
        &mut self.partition
    }

    /// Returns the headers and the number of requests of a packet.
    #[inline(always)]
    fn accept(packet: &[u8]) -> Result<Accepted, Malformed> {
        let headers = match Headers::plain(packet) {
            Some(headers) => headers,
            None => Headers::parse(packet)?,
        };
        let is_udp = headers.protocol == UDP;
        let requests = format::requests(headers.payload_of(packet)).filter(|_| is_udp);
        let requests = requests.ok_or(Malformed::Payload)?;
        if !checksum::are_right(packet, &headers) {
            return Err(Malformed::Checksum);
        }
        Ok((headers, requests))
    }

    /// Answers the valid packets of a group in place. Returns whether each is answered.
    #[inline(never)]
    fn answer_group(&mut self, group: &mut [&mut [u8]]) -> [bool; PACKETS] {
        let mut accepted: [Accepted; PACKETS] = [(Headers::NONE, 0); PACKETS];
        for (accepted, packet) in accepted.iter_mut().zip(group.iter()) {
            match Self::accept(packet) {
                Ok(found) => *accepted = found,
                Err(kind) => self.malformed.add(kind),
            }
        }
        self.execute_all(group, &accepted);
        for (packet, (headers, requests)) in group.iter_mut().zip(&accepted) {
            if *requests > 0 {
                rewrite::swap_addresses(packet, headers);
                // Of many requests a sum of all bytes takes less time than one of the changes.
                rewrite::renew_checksum(packet, headers);
            }
        }
        accepted.map(|(_, requests)| requests > 0)
    }

    /// Executes the requests of all accepted packets, in order.
    fn execute_all(&mut self, group: &mut [&mut [u8]], accepted: &[Accepted; PACKETS]) {
        let mut jobs = [Job { hash: KeyHash::new(0), packet: 0, at: 0 }; REQUESTS];
        let mut length = 0;
        for (packet, (headers, requests)) in accepted.iter().enumerate().take(group.len()) {
            let start = headers.payload + HEADER;
            for at in (start..).step_by(REQUEST).take(*requests) {
                let hash = KeyHash::new(u64::from_be_bytes(read(group[packet], at + KEY)));
                self.partition.prefetch_bucket(hash);
                jobs[length] = Job { hash, packet: packet as u32, at: at as u32 };
                length += 1;
                if length == REQUESTS {
                    self.execute(group, &jobs);
                    length = 0;
                }
            }
        }
        self.execute(group, &jobs[..length]);
    }

    #[inline(always)]
    fn execute(&mut self, group: &mut [&mut [u8]], jobs: &[Job]) {
        for job in jobs {
            self.partition.prefetch_item(job.hash);
        }
        for job in jobs {
            let Some(packet) = group.get_mut(job.packet as usize) else { continue };
            let request = packet.get_mut(job.at as usize..).and_then(|rest| rest.first_chunk_mut());
            if let Some(request) = request {
                self.answer(job.hash, request);
            }
        }
    }

    /// Executes a request and writes its answer, in whole words because the next reads are of words. Returns what that adds to
    /// the sum of its packet.
    #[inline(always)]
    fn answer(&mut self, hash: KeyHash, request: &mut [u8; REQUEST]) -> u64 {
        let [head, value] = [0, VALUE].map(|at| u64::from_le_bytes(read(request, at)));
        let key = u64::from_be_bytes(read(request, KEY));
        let (status, answer) = self.execute_one(hash, head as u8, key, value.swap_bytes());
        const AT: usize = 8 * STATUS;
        let answered = [head & !(0xff << AT) | (status as u64) << AT, answer.swap_bytes()];
        write(request, 0, answered[0].to_le_bytes());
        write(request, VALUE, answered[1].to_le_bytes());
        checksum::sum_words([!head, answered[0], !value, answered[1]])
    }

    /// Returns the status and the value of a request's answer: that which was found, or else that of the request.
    #[inline(always)]
    fn execute_one(&mut self, hash: KeyHash, operation: u8, key: u64, value: u64) -> (Status, u64) {
        if hash.partition(self.partitions) != self.number {
            self.counts.refused += 1;
            (Status::Elsewhere, value)
        } else if operation == GET {
            self.counts.gets += 1;
            let found = self.partition.get(hash, key);
            self.counts.found += u64::from(found.is_some());
            found.map_or((Status::Missing, 0), |value| (Status::Done, value))
        } else if operation == SET {
            self.counts.sets += 1;
            self.partition.set(hash, key, value);
            (Status::Done, value)
        } else {
            self.counts.refused += 1;
            (Status::Unknown, value)
        }
    }

    /// Sets the hashes of the keys of packets with one valid request each, and prefetches their memory. Returns whether all
    /// packets are.
    #[inline(always)]
    fn prefetch_singles(&self, group: &[&mut [u8]], hashes: &mut [KeyHash; PACKETS]) -> bool {
        for (hash, packet) in hashes.iter_mut().zip(group) {
            let Some(packet) = packet.first_chunk() else { return false };
            if !single::is_valid(packet) {
                return false;
            }
            *hash = KeyHash::new(single::key(packet));
            self.partition.prefetch_bucket(*hash);
        }
        for hash in hashes.iter().take(group.len()) {
            self.partition.prefetch_item(*hash);
        }
        true
    }
}

impl Application for KeyValue {
    // Of requests, and of the checksum.
    const ACCESS: Access = Access::Whole { ahead: PACKETS };

    #[inline(always)]
    fn process<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut [u8]>,
        mut done: impl FnMut(&'a mut [u8], Decision),
    ) {
        let mut hashes = [KeyHash::new(0); PACKETS];
        in_groups::<PACKETS>(packets, |group| {
            self.packets += group.len() as u64;
            if self.prefetch_singles(group, &mut hashes) {
                for (packet, hash) in group.iter_mut().zip(hashes) {
                    let packet = take(packet);
                    if let Some(packet) = packet.first_chunk_mut() {
                        single::answer(packet, |request| self.answer(hash, request));
                    }
                    done(packet, Decision::Reply);
                }
                return;
            }
            let is_answered = self.answer_group(group);
            for (packet, is_answered) in group.iter_mut().zip(is_answered) {
                let decision = if is_answered { Decision::Reply } else { Decision::Consume };
                done(take(packet), decision);
            }
        });
    }

    fn counts(&self) -> Vec<Count> {
        let Counts { gets, found, sets, refused } = self.counts;
        let named = [
            ("packets", self.packets),
            ("gets", gets),
            ("found-keys", found),
            ("sets", sets),
            ("refused-requests", refused),
        ];
        let named = named.map(|(name, value)| Count { name, value });
        named.into_iter().chain(self.malformed.counts()).collect()
    }
}

#[cfg(test)]
mod tests;
