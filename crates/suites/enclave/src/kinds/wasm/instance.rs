//! The instances of a module, one per TCS.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use enclave_interface::{Ecall, Ocall};
use lab::sample::Failure;
use machine::signal::Registers;
use wasmtime::unix::StoreExt;
use wasmtime::{Caller, Error, Extern, Func, Instance, Module, Store, Trap, TypedFunc, Val};

use super::memory::Memory;
use crate::error::EcallError;
use crate::ocalls;
use crate::tcs::{Tcs, TcsSet};
use crate::thread::Thread;
use crate::wasm_engine::{describe, engine};

/// The type of the entry point: the number of a call and its words.
type Entry = TypedFunc<(u64, u64, u64, u64, u64, u64), u64>;

/// The host, as seen by one instance.
#[derive(Clone)]
struct Host {
    all: Arc<TcsSet>,
    number: usize,
    /// The address of the linear memory in this process.
    start: u64,
}

impl Host {
    fn tcs(&self) -> &Tcs {
        &self.all.all()[self.number]
    }

    /// Answers an OCALL. Addresses in its words are offsets in the linear memory.
    fn answer(&self, number: u64, mut words: [u64; 5]) -> u64 {
        let tcs = self.tcs();
        // Only this thread writes it.
        tcs.ocalls.store(tcs.ocalls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if matches!(Ocall::of(number), Some(Ocall::wait | Ocall::wake)) {
            words[0] = words[0].saturating_add(self.start);
        }
        ocalls::answer_for(tcs, number, words)
    }
}

/// An instance and its entry point.
struct Inside {
    store: Store<Host>,
    entry: Entry,
}

impl Inside {
    fn new(module: &Module, memory: &Memory, host: Host) -> Result<Self, Failure> {
        let refused = |why: Error| {
            Failure::failed(format!("cannot instantiate the module: {}", describe(&why)))
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
                        "the module imports {module}.{name}: only OCALLs are supported"
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
        // A 32-bit address, the module's type.
        stack.set(&mut store, Val::I32(top as u32 as i32)).map_err(refused)?;
        Ok(Self { store, entry })
    }
}

/// Records the signal of a fault inside, before wasmtime converts it to a trap.
fn note_faults(store: &mut Store<Host>, host: Host) {
    let note = move |signal: i32, info: *const libc::siginfo_t, context: *const libc::c_void| {
        // SAFETY: the kernel passes valid pointers to a signal handler.
        let (address, at) = unsafe {
            let registers = Registers::of(context.cast_mut());
            ((*info).si_addr() as u64, registers[libc::REG_RIP] as u64)
        };
        let cut = &host.tcs().cut;
        cut.signal.store(signal as u64, Ordering::Relaxed);
        cut.what.store(address, Ordering::Relaxed);
        cut.at.store(at, Ordering::Relaxed);
        // Lets wasmtime handle the signal.
        false
    };
    // SAFETY: it only stores to atomics, which is async-signal-safe.
    unsafe { store.set_signal_handler(note) };
}

/// All TCS of an enclave, and the instance of each.
pub(super) struct Instances {
    pub(super) tcs: Arc<TcsSet>,
    all: Box<[UnsafeCell<Inside>]>,
}

// SAFETY: only the thread that has bound a TCS accesses its instance, which may move between threads.
unsafe impl Sync for Instances {}

impl Instances {
    /// Creates `count` TCS, each with an instance of the module, on one memory.
    ///
    /// # Errors
    /// Returns an error if the module has other imports or exports than an image, or if memory is exhausted.
    pub(super) fn new(module: &Module, memory: &Memory, count: usize) -> Result<Self, Failure> {
        let tcs = Arc::new(TcsSet::without_trampoline(memory.range(), count));
        let one = |number| {
            let host = Host { all: Arc::clone(&tcs), number, start: memory.start() as u64 };
            Inside::new(module, memory, host).map(UnsafeCell::new)
        };
        let all = (0..count).map(one).collect::<Result<_, _>>()?;
        Ok(Self { tcs, all })
    }

    /// Makes an ECALL by a free TCS; `cut` returns why it was cut short.
    ///
    /// # Errors
    /// Returns the result of `cut`, or an error if no TCS is free.
    #[inline]
    pub(super) fn ecall(
        &self,
        call: Ecall,
        [w0, w1, w2, w3, w4]: [u64; 5],
        cut: impl FnOnce(&Tcs, &Error) -> EcallError,
    ) -> Result<u64, EcallError> {
        let tcs = self.tcs.bind(&Thread::current(false)?.last)?;
        // SAFETY: the instance belongs to this thread until `tcs` is dropped, and its OCALLs make no ECALLs.
        let Inside { store, entry } = unsafe { &mut *self.all[tcs.number].get() };
        entry.call(store, (call as u64, w0, w1, w2, w3, w4)).map_err(|why| cut(&tcs, &why))
    }
}

/// Names a trap; lists the traps that modules of Rust code without exceptions and references can raise.
pub(super) fn name(trap: Option<&Trap>) -> &'static str {
    match trap {
        Some(Trap::UnreachableCodeReached) => "an unreachable instruction",
        Some(Trap::StackOverflow) => "calls nested too deep for the host's stack",
        Some(Trap::MemoryOutOfBounds) => "an access beyond the end of the memory",
        Some(Trap::HeapMisaligned) => "an unaligned atomic access",
        Some(Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature) => {
            "an indirect call of a function of another type"
        }
        Some(Trap::IntegerDivisionByZero | Trap::IntegerOverflow) => {
            "an integer division by zero or overflow"
        }
        _ => "a trap",
    }
}
