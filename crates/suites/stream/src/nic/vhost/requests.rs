//! Requests of the control plane to the NIC's thread: rings that start and stop.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::super::virtio::Ring;

/// Interval at which a waiting thread checks whether the NIC has stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A request to the NIC's thread.
pub(super) enum Request {
    /// Serves a ring. Even indices are rings that the driver receives from, odd ones those that it sends to.
    Start(u32, Ring, SyncSender<()>),
    /// Stops serving a ring, and returns it.
    Stop(u32, SyncSender<Option<Ring>>),
}

/// The connection between the control plane and the NIC's thread.
#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    waiting: AtomicBool,
    ended: AtomicBool,
    started: AtomicU32,
}

/// The control plane's access to the NIC's thread.
#[derive(Clone, Default)]
pub struct VhostControl(Arc<Shared>);

impl VhostControl {
    /// Returns the number of rings that the NIC serves.
    pub fn started(&self) -> u32 {
        self.0.started.load(Ordering::Acquire)
    }

    /// Starts a ring that is stopped, and waits until the NIC serves it.
    pub(super) fn start(&self, index: u32, ring: Ring) {
        self.ask(|done| Request::Start(index, ring, done));
    }

    /// Stops a ring and waits until the NIC no longer accesses its memory. Returns the ring if it was started.
    pub(super) fn stop(&self, index: u32) -> Option<Ring> {
        self.ask(|done| Request::Stop(index, done)).flatten()
    }

    /// Sends a request and waits for its answer. Returns `None` if the NIC has stopped.
    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Request) -> Option<T> {
        let (done, answer) = sync_channel(1);
        self.send(request(done));
        while !self.0.ended.load(Ordering::Acquire) {
            if let Ok(answer) = answer.recv_timeout(POLL_INTERVAL) {
                return Some(answer);
            }
        }
        None
    }

    fn send(&self, request: Request) {
        let mut requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.ended.load(Ordering::Acquire) {
            return;
        }
        requests.push(request);
        self.0.waiting.store(true, Ordering::Release);
    }

    /// Takes all requests. Costs one load that hits the cache if there are none.
    #[inline(always)]
    pub(super) fn pending(&self) -> Option<Vec<Request>> {
        if !self.0.waiting.load(Ordering::Relaxed) {
            return None;
        }
        let mut requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.waiting.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut *requests))
    }

    /// Publishes the number of rings that the NIC serves.
    pub(super) fn set_started(&self, rings: u32) {
        self.0.started.store(rings, Ordering::Release);
    }

    /// Marks the NIC as stopped, and drops all requests.
    pub(super) fn end(&self) {
        let mut requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.ended.store(true, Ordering::Release);
        requests.clear();
    }
}
