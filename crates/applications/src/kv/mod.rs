//! A key-value store as in MICA, with keys and values of 8 bytes.
//!
//! Each core has one [partition](partition) of the keys and answers requests in [UDP packets](mod@format), in place. A client
//! computes a key's partition and sends to the address of its core. Requests are processed in groups, so that the memory
//! latencies of different requests overlap: first all buckets of the index are prefetched, then all items, then the requests
//! are executed in order.
//!
//! For measurements a key's value is a [function of the key](value_of), so every answer can be checked without knowledge of
//! what was set before. A key that was evicted is missing, which is no error.
//!
//! Packets that are no valid requests, or whose checksums are wrong, are counted and dropped.

pub mod format;
pub mod partition;

use std::hint::black_box;

use crate::application::{Access, Application, Count, Decision, in_groups, take};
use crate::hash;
use crate::memory::MemoryError;
use crate::packet::{Headers, Malformed, MalformedCounts, UDP, checksum, read, rewrite};
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
    key: u64,
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
            None => Self::parse(packet)?,
        };
        let is_udp = headers.protocol == UDP;
        let requests = format::requests(headers.payload_of(packet)).filter(|_| is_udp);
        let requests = requests.ok_or(Malformed::Payload)?;
        if !checksum::are_right(packet, &headers) {
            return Err(Malformed::Checksum);
        }
        Ok((headers, requests))
    }

    #[cold]
    #[inline(never)]
    fn parse(packet: &[u8]) -> Result<Headers, Malformed> {
        Headers::parse(packet)
    }

    /// Executes the requests of all accepted packets, in order.
    #[inline(always)]
    fn execute_all(&mut self, group: &mut [&mut [u8]], accepted: &[Accepted]) {
        let mut jobs = [Job { hash: KeyHash::new(0), key: 0, packet: 0, at: 0 }; REQUESTS];
        let mut length = 0;
        for (packet, (headers, requests)) in accepted.iter().enumerate() {
            let start = headers.payload + HEADER;
            for at in (start..).step_by(REQUEST).take(*requests) {
                let key = u64::from_be_bytes(read(group[packet], at + KEY));
                let hash = KeyHash::new(key);
                self.partition.prefetch_bucket(hash);
                jobs[length] = Job { hash, key, packet: packet as u32, at: at as u32 };
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
                self.answer(job, request);
            }
        }
    }

    /// Executes a request and writes its answer.
    #[inline(always)]
    fn answer(&mut self, job: &Job, request: &mut [u8; REQUEST]) {
        let status = if job.hash.partition(self.partitions) != self.number {
            self.counts.refused += 1;
            Status::Elsewhere
        } else if request[0] == GET {
            self.counts.gets += 1;
            let value = self.partition.get(job.hash, job.key);
            self.counts.found += u64::from(value.is_some());
            request[VALUE..KEY].copy_from_slice(&value.unwrap_or(0).to_be_bytes());
            if value.is_some() { Status::Done } else { Status::Missing }
        } else if request[0] == SET {
            self.counts.sets += 1;
            self.partition.set(job.hash, job.key, u64::from_be_bytes(read(request, VALUE)));
            Status::Done
        } else {
            self.counts.refused += 1;
            Status::Unknown
        };
        request[STATUS] = status as u8;
    }
}

impl Application for KeyValue {
    // Of requests, and of the checksum.
    const ACCESS: Access = Access::Whole;

    #[inline(always)]
    fn process<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut [u8]>,
        mut done: impl FnMut(&'a mut [u8], Decision),
    ) {
        in_groups::<PACKETS>(packets, |group| {
            let mut accepted: [Accepted; PACKETS] = [(Headers::NONE, 0); PACKETS];
            for (accepted, packet) in accepted.iter_mut().zip(group.iter()) {
                match Self::accept(packet) {
                    Ok(found) => *accepted = found,
                    Err(kind) => self.malformed.add(kind),
                }
            }
            self.packets += group.len() as u64;
            self.execute_all(group, &accepted[..group.len()]);
            for (packet, (headers, requests)) in group.iter_mut().zip(&accepted) {
                let packet = take(packet);
                if *requests == 0 {
                    done(packet, Decision::Consume);
                    continue;
                }
                rewrite::swap_addresses(packet, headers);
                rewrite::renew_checksum(packet, headers);
                done(packet, Decision::Reply);
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
