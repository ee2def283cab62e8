//! The instances of a module, one a TCS.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use enclave_interface::{Ecall, Ocall};
use lab::sample::Failure;
use wasmtime::unix::StoreExt;
use wasmtime::{Caller, Error, Extern, Func, Instance, Module, Store, Trap, TypedFunc, Val};

use super::memory::Memory;
use crate::error::EcallError;
use crate::ocalls;
use crate::tcs::{Tcs, TcsSet};
use crate::thread::Thread;
use crate::wasm_engine::{describe, engine};

/// The entry point's type: a call's number and its words.
type Entry = TypedFunc<(u64, u64, u64, u64, u64, u64), u64>;

/// The host, as one instance sees it.
#[derive(Clone)]
struct Host {
    all: Arc<TcsSet>,
    number: usize,
    /// Where the memory begins in this process.
    start: u64,
}

impl Host {
    fn tcs(&self) -> &Tcs {
        &self.all.all()[self.number]
    }

    /// Answers an OCALL. An address inside is an offset there.
    fn answer(&self, number: u64, mut words: [u64; 5]) -> u64 {
        let tcs = self.tcs();
        // This thread alone writes it.
        tcs.ocalls.store(tcs.ocalls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if matches!(Ocall::of(number), Some(Ocall::wait | Ocall::wake)) {
            words[0] = words[0].saturating_add(self.start);
        }
        ocalls::answer_for(tcs, number, words)
    }
}

/// An instance, and how it is entered.
struct Inside {
    store: Store<Host>,
    entry: Entry,
}

impl Inside {
    fn new(module: &Module, memory: &Memory, host: Host) -> Result<Self, Failure> {
        let refused = |why: Error| {
            Failure::failed(format!("the module cannot be entered: {}", describe(&why)))
        };
        let top = memory.stack(host.number).end;
        let mut store = Store::new(engine()?, host.clone());
        let ocall = |caller: Caller<'_, Host>, number, w0, w1, w2, w3, w4| {
            caller.data().answer(number, [w0, w1, w2, w3, w4])
        };
        let mut imports: Vec<Extern> = Vec::new();
        for import in module.imports() {
            imports.push(match (import.module(), import.name()) {
                ("env", "memory") => memory.shared.clone().into(),
                ("tollgate", "ocall") => Func::wrap(&mut store, ocall).into(),
                (module, name) => {
                    return Err(Failure::failed(format!(
                        "the module asks for {module}.{name}: an inside has OCALLs alone"
                    )));
                }
            });
        }
        note_faults(&mut store, host);
        let instance = Instance::new(&mut store, module, &imports).map_err(refused)?;
        let entry = instance.get_typed_func(&mut store, "enclave_entry").map_err(refused)?;
        let stack = instance
            .get_global(&mut store, "__stack_pointer")
            .ok_or_else(|| Failure::failed("the module exports no __stack_pointer"))?;
        // An address of 32 bits, as the module's own type has it.
        stack.set(&mut store, Val::I32(top as u32 as i32)).map_err(refused)?;
        Ok(Self { store, entry })
    }
}

/// Lets the signal of a fault inside be noted, before wasmtime makes a trap of it.
fn note_faults(store: &mut Store<Host>, host: Host) {
    let note = move |signal: i32, info: *const libc::siginfo_t, context: *const libc::c_void| {
        // SAFETY: the kernel gives both to a signal's handler.
        let (address, at) = unsafe {
            let context = &*context.cast::<libc::ucontext_t>();
            ((*info).si_addr() as u64, context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64)
        };
        let cut = &host.tcs().cut;
        cut.signal.store(signal as u64, Ordering::Relaxed);
        cut.what.store(address, Ordering::Relaxed);
        cut.at.store(at, Ordering::Relaxed);
        // The rest is wasmtime's.
        false
    };
    // SAFETY: it stores into atomics alone, which a handler may.
    unsafe { store.set_signal_handler(note) };
}

/// All TCS of an enclave, and the instance of each.
pub(super) struct Instances {
    pub(super) tcs: Arc<TcsSet>,
    all: Box<[UnsafeCell<Inside>]>,
}

// SAFETY: an instance is reached by whoever has bound its TCS, alone; it may move between threads.
unsafe impl Sync for Instances {}

impl Instances {
    /// Makes so many TCS, with an instance of a module each, on one memory.
    ///
    /// # Errors
    /// The module is not of the form that the inside has, or there is no room.
    pub(super) fn new(module: &Module, memory: &Memory, count: usize) -> Result<Self, Failure> {
        let tcs = Arc::new(TcsSet::without_trampoline(memory.range(), count));
        let one = |number| {
            let host = Host { all: Arc::clone(&tcs), number, start: memory.start() as u64 };
            Inside::new(module, memory, host).map(UnsafeCell::new)
        };
        let all = (0..count).map(one).collect::<Result<_, _>>()?;
        Ok(Self { tcs, all })
    }

    /// Makes a call by a free TCS; `cut` says why, where it was cut short.
    ///
    /// # Errors
    /// It was, or no TCS can be had.
    #[inline]
    pub(super) fn ecall(
        &self,
        call: Ecall,
        [w0, w1, w2, w3, w4]: [u64; 5],
        cut: impl FnOnce(&Tcs, &Error) -> EcallError,
    ) -> Result<u64, EcallError> {
        let tcs = self.tcs.bind(&Thread::current(false)?.last)?;
        // SAFETY: the instance is whose its TCS is: this thread's until `tcs` goes, and its OCALLs make no calls.
        let Inside { store, entry } = unsafe { &mut *self.all[tcs.number].get() };
        entry.call(store, (call as u64, w0, w1, w2, w3, w4)).map_err(|why| cut(&tcs, &why))
    }
}

/// What wasmtime stopped; the traps that modules of Rust without exceptions and references have.
pub(super) fn name(trap: Option<&Trap>) -> &'static str {
    match trap {
        Some(Trap::UnreachableCodeReached) => "an unreachable instruction",
        Some(Trap::StackOverflow) => "calls too deep for the host's stack",
        Some(Trap::MemoryOutOfBounds) => "an access beyond the memory's end",
        Some(Trap::HeapMisaligned) => "an atomic access that is not aligned",
        Some(Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature) => {
            "a call of what is no function of its type"
        }
        Some(Trap::IntegerDivisionByZero | Trap::IntegerOverflow) => "a division without result",
        _ => "a trap",
    }
}
