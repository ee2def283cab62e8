//! A pipe that sends back from where it receives.

use std::rc::Rc;

use machine::SysError;

use super::NotConfigured;
use super::batch::Batch;
use super::device::{Gone, Owner, Shared};
use super::rx::{RxPipe, flits};
use crate::nic::memory::Memory;
use crate::wire::flow::Flow;

/// A pipe that sends back from where it receives: what was received, changed or not, leaves again, and only
/// then may the NIC write there.
pub struct RxTxPipe(RxPipe);

impl RxTxPipe {
    pub(super) fn new(shared: Rc<Shared>, ring: Memory) -> Result<Self, SysError> {
        RxPipe::new(shared, ring).map(Self)
    }

    /// As [`RxPipe::id`].
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// As [`RxPipe::bind`].
    ///
    /// # Errors
    /// Where the NIC has gone, or its flow table has no place for the rule.
    pub fn bind(&mut self, flow: Flow) -> Result<(), NotConfigured> {
        self.0.bind(flow)
    }

    /// As [`RxPipe::recv`].
    #[inline(always)]
    pub fn recv(&mut self) -> Batch<'_> {
        self.0.recv()
    }

    /// As [`RxPipe::peek`].
    #[inline(always)]
    pub fn peek(&mut self) -> Batch<'_> {
        self.0.peek()
    }

    /// As [`RxPipe::peek_at_most`].
    #[inline(always)]
    pub fn peek_at_most(&mut self, bytes: usize) -> Batch<'_> {
        self.0.peek_at_most(bytes)
    }

    /// As [`RxPipe::confirm`].
    ///
    /// # Panics
    /// Where the bytes are more than have arrived.
    #[inline(always)]
    pub fn confirm(&mut self, bytes: usize) {
        self.0.confirm(bytes);
    }

    /// As [`RxPipe::prefetch`].
    #[inline(always)]
    pub fn prefetch(&mut self) {
        self.0.prefetch();
    }

    /// Sends the oldest so many confirmed bytes; they go back to the NIC once they have left. Nothing is done
    /// for none: see [`RxTxPipe::prefetch`].
    ///
    /// # Errors
    /// Where the NIC has gone.
    ///
    /// # Panics
    /// Where they are more than were confirmed.
    #[inline(always)]
    pub fn send_and_free(&mut self, bytes: usize) -> Result<(), Gone> {
        let flits = flits(bytes);
        if flits == 0 {
            return Ok(());
        }
        let start = self.0.oldest();
        self.0.release(flits);
        self.0.shared.send(&self.0.ring, start, flits, Owner::Pipe(self.0.id, flits))
    }
}
