//! Signals that arrive inside: they are handled with the host's FS, and the ECALL continues.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use enclave::kinds::{Enclave, EnclaveKind};
use enclave_interface::Ecall;
use machine::signal::{Handler, Registers};

use super::built::{FIVE, SUM, WORK};
use super::{SEEN, available, call, load};

/// How many times a timer fires while an enclave is entered.
const TIMES: u64 = 2000;
/// Time limit on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Rounds of work of an ECALL: some tens of microseconds.
const ROUNDS: u64 = 5000;

thread_local! {
    /// This thread's ID, which a handler compares with the kernel's.
    static NUMBER: Cell<i64> = const { Cell::new(0) };
    /// How many times a handler ran on this thread.
    static RAN: Cell<u64> = const { Cell::new(0) };
}

/// How many times a handler interrupted an instruction inside.
static INSIDE: AtomicU64 = AtomicU64::new(0);
/// How many times a handler saw another thread's variables.
static ASTRAY: AtomicU64 = AtomicU64::new(0);
/// The heap of the image whose instructions are counted; a small image is directly below it.
static HEAP: AtomicUsize = AtomicUsize::new(0);

fn number() -> i64 {
    // SAFETY: the system call is harmless.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// Uses thread-local variables and makes a system call.
unsafe extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    if NUMBER.get() != number() {
        ASTRAY.fetch_add(1, Ordering::Relaxed);
    }
    RAN.set(RAN.get() + 1);
    // SAFETY: the argument is that of this running handler.
    let at = unsafe { Registers::of(context)[libc::REG_RIP] };
    let below = HEAP.load(Ordering::Relaxed).wrapping_sub(at as usize);
    INSIDE.fetch_add(u64::from((1..64 << 10).contains(&below)), Ordering::Relaxed);
}

/// Installs a handler; returns the previous one.
fn install(signal: c_int, handler: Handler) -> usize {
    // SAFETY: the handlers of this file are async-signal-safe.
    let before = unsafe { machine::signal::install(signal, handler, libc::SA_RESTART) };
    before.unwrap().sa_sigaction
}

/// Interval of the timer. Each signal makes a virtual CPU exit, which takes tens of microseconds if KVM is nested.
fn interval(kind: EnclaveKind) -> Duration {
    Duration::from_micros(if kind == EnclaveKind::Kvm { 1000 } else { 50 })
}

/// A timer that sends signals to the calling thread.
struct Timer(libc::timer_t);

impl Timer {
    fn start(signal: c_int, interval: Duration) -> Self {
        // SAFETY: all zero is a valid event; the calls access valid structures.
        unsafe {
            let mut event: libc::sigevent = MaybeUninit::zeroed().assume_init();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = number() as i32;
            let mut timer = std::ptr::null_mut();
            let made = libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer);
            assert_eq!(made, 0);
            let each = libc::timespec { tv_sec: 0, tv_nsec: interval.subsec_nanos().into() };
            let times = libc::itimerspec { it_interval: each, it_value: each };
            assert_eq!(libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()), 0);
            Self(timer)
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: `start` created it.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Enters repeatedly until a handler ran [`TIMES`] times on this thread; checks every result.
fn enter(enclave: &dyn Enclave, kind: EnclaveKind, signal: c_int, expected: u64) {
    NUMBER.set(number());
    RAN.set(0);
    let _timer = Timer::start(signal, interval(kind));
    let start = Instant::now();
    while RAN.get() < TIMES {
        assert!(start.elapsed() < LIMIT, "{kind:?}: {} signals in {LIMIT:?}", RAN.get());
        assert_eq!(call(enclave, WORK, &[ROUNDS]), Ok(expected), "{kind:?}");
        for _ in 0..100 {
            assert_eq!(call(enclave, FIVE, &[1, 2, 3, 4, 5]), Ok(55), "{kind:?}");
        }
        assert_eq!(call(enclave, Ecall::leave, &[20]), Ok(20), "{kind:?}");
    }
}

#[test]
fn a_timer_fires_while_every_kind_is_entered() {
    install(libc::SIGALRM, handle);
    for kind in available(&SEEN) {
        let enclave = load(kind);
        let expected = call(&*enclave, WORK, &[ROUNDS]).unwrap();
        HEAP.store(enclave.heap().start, Ordering::Relaxed);
        INSIDE.store(0, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| enter(&*enclave, kind, libc::SIGALRM, expected));
            }
        });
        assert_eq!(
            ASTRAY.load(Ordering::Relaxed),
            0,
            "{kind:?}: a handler saw another thread's variables"
        );
        let inside = INSIDE.load(Ordering::Relaxed);
        let one_process =
            matches!(kind, EnclaveKind::None | EnclaveKind::Simulate | EnclaveKind::ArchPrctl);
        assert!(!one_process || inside > TIMES / 100, "{kind:?}: {inside} signals arrived inside");
        assert_eq!(enclave.blocked(), 0, "{kind:?}");
        // A system call is still blocked.
        if kind == EnclaveKind::Simulate {
            super::misbehave(&*enclave, 0, 0);
        }
    }
}

/// The handler that was installed before the second one.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// How many times the second one ran.
static SECOND: AtomicU64 = AtomicU64::new(0);

/// Counts, then calls the previous handler, as libraries do.
unsafe extern "C" fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    SECOND.fetch_add(1, Ordering::Relaxed);
    // SAFETY: it is a handler of this signature.
    unsafe {
        let first: Handler = std::mem::transmute(FIRST.load(Ordering::Relaxed));
        first(signal, info, context);
    }
}

#[test]
fn a_handler_installed_later_is_adopted() {
    let signal = libc::SIGUSR1;
    for kind in available(&[EnclaveKind::Simulate, EnclaveKind::None]) {
        let enclave = load(kind);
        let expected = call(&*enclave, WORK, &[ROUNDS]).unwrap();
        install(signal, handle);
        enclave::signals::adopt();
        enter(&*enclave, kind, signal, expected);
        // Another handler, which calls the first; that one is adopted by now.
        FIRST.store(install(signal, chain), Ordering::Relaxed);
        enclave::signals::adopt();
        let before = SECOND.load(Ordering::Relaxed);
        enter(&*enclave, kind, signal, expected);
        assert!(SECOND.load(Ordering::Relaxed) >= before + TIMES, "{kind:?}");
        assert_eq!(ASTRAY.load(Ordering::Relaxed), 0, "{kind:?}");
    }
}

#[test]
fn a_sent_fault_signal_goes_to_the_hosts_handler() {
    let signal = libc::SIGTRAP;
    if available(&[EnclaveKind::Simulate]).is_empty() {
        return;
    }
    // The handler precedes the enclave's own, which calls it.
    let output = super::separately("signals::a_sent_trap_is_handled");
    assert!(output.status.success(), "{signal}: {output:?}");
}

#[test]
#[ignore = "it installs a handler before any enclave is loaded; another test runs it in a separate process"]
fn a_sent_trap_is_handled() {
    install(libc::SIGTRAP, handle);
    let enclave = load(EnclaveKind::Simulate);
    let expected = call(&*enclave, WORK, &[ROUNDS]).unwrap();
    enter(&*enclave, EnclaveKind::Simulate, libc::SIGTRAP, expected);
    assert_eq!(ASTRAY.load(Ordering::Relaxed), 0);
    assert!(call(&*enclave, SUM, &[1]).is_ok());
}
