//! Register writes.

use super::super::descriptor::{Descriptor, RxDescriptor};
use super::super::doorbells::DoorbellReceiver;
use super::super::engine::EngineContext;
use super::super::layout::{Queue as Which, Register};
use super::super::register_writes::{Registers, Write};
use super::Descriptors;
use super::queue::{DescriptorRing, Queue};

/// Maximum number of packet lengths for the receive rings of all queues.
const MAX_LENGTHS: usize = 1 << 26;

impl<D: RxDescriptor> Registers for Descriptors<D> {
    #[inline(always)]
    fn pairs(&self) -> usize {
        self.pairs.len()
    }

    #[inline(always)]
    fn doorbells_of(&mut self, pair: usize) -> Option<&mut DoorbellReceiver> {
        self.pairs[pair].as_mut()
    }

    #[inline(always)]
    fn apply_write(&mut self, pair: u32, write: Write, now: u64, nic: &mut EngineContext) {
        let Which::Pipe(id) = write.queue else {
            nic.counters.refused += 1;
            return;
        };
        let queue = self.queues.get_mut(id as usize).filter(|queue| queue.pair == Some(pair));
        match (write.register, queue) {
            (Register::RxTail, Some(queue)) => {
                nic.counters.head_updates += 1;
                // The NIC reads the descriptors.
                let tail = write.value & self.rx_mask;
                let count = tail.wrapping_sub(queue.rx.tail.latest()) & self.rx_mask;
                if !queue.rx.is_none() {
                    nic.read(u64::from(count) * size_of::<D>() as u64);
                }
                queue.rx.tail.set(tail, now, nic.read_delay(1));
            }
            (Register::TxTail, Some(queue)) if !queue.tx.is_none() => {
                nic.counters.tail_updates += 1;
                // The NIC reads the descriptors, and then what they point to.
                let tail = write.value & self.tx_mask;
                queue.tx.announce(tail, self.tx_mask, nic);
                queue.tx.tail.set(tail, now, nic.read_delay(2));
                if !queue.sends {
                    queue.sends = true;
                    self.sending.push(id);
                }
            }
            (register, _) => self.set_ring(pair, id, register, write.value, nic),
        }
    }
}

impl<D: RxDescriptor> Descriptors<D> {
    /// Sets or removes a ring of a queue.
    #[cold]
    fn set_ring(
        &mut self,
        pair: u32,
        id: u32,
        register: Register,
        value: u32,
        nic: &mut EngineContext,
    ) {
        if !nic.owns_pipe(pair, id) {
            nic.counters.refused += 1;
            return;
        }
        if self.queues.len() <= id as usize {
            self.queues.resize_with(id as usize + 1, Queue::default);
        }
        let lengths: usize = self.queues.iter().map(|queue| queue.lengths.len()).sum();
        let queue = &mut self.queues[id as usize];
        if queue.pair.is_some_and(|other| other != pair) {
            nic.counters.refused += 1;
            return;
        }
        queue.pair = Some(pair);
        let (low, bytes) = match register {
            Register::RxMemoryLow => {
                queue.rx.low = value;
                return;
            }
            Register::TxMemoryLow => {
                queue.tx.low = value;
                return;
            }
            Register::RxMemoryHigh => (queue.rx.low, (self.rx_mask as usize + 1) * size_of::<D>()),
            Register::TxMemoryHigh => {
                (queue.tx.low, (self.tx_mask as usize + 1) * size_of::<Descriptor>())
            }
            _ => {
                nic.counters.refused += 1;
                return;
            }
        };
        let bus = u64::from(value) << 32 | u64::from(low);
        // All queues may use the same ring, but the NIC needs separate memory for each.
        let receives = register == Register::RxMemoryHigh;
        let is_too_many = receives && lengths + self.rx_mask as usize >= MAX_LENGTHS;
        let bus = if is_too_many { 0 } else { bus };
        nic.counters.refused += u64::from(is_too_many);
        let ring = nic.resolve_ring(pair, bus, bytes);
        let has_none = ring.is_null();
        if receives {
            queue.rx = DescriptorRing::new(ring.cast());
            self.reset_receive(id);
            if has_none {
                nic.unbind(id);
            } else {
                self.queues[id as usize].lengths = vec![0; self.rx_mask as usize + 1].into();
                nic.ring_set(pair, id);
            }
        } else {
            queue.tx = DescriptorRing::new(ring.cast());
        }
        let queue = &mut self.queues[id as usize];
        if has_none && queue.rx.is_none() && queue.tx.is_none() {
            self.close(id, nic);
        }
    }

    /// Discards the packets of a queue that are not yet reported.
    pub(super) fn reset_receive(&mut self, id: u32) {
        self.due.retain(|due| *due != id);
        self.pending.retain(|report| report.queue != id);
        let queue = &mut self.queues[id as usize];
        queue.lengths = Box::default();
        (queue.written, queue.announced, queue.due) = (0, 0, false);
    }

    /// Removes a queue.
    pub(super) fn close(&mut self, id: u32, nic: &mut EngineContext) {
        self.due.retain(|due| *due != id);
        self.pending.retain(|report| report.queue != id);
        self.sending.retain(|sending| *sending != id);
        self.queues[id as usize] = Queue::default();
        nic.unbind(id);
    }
}
