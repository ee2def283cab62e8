//! Why an ECALL came to nothing.

/// Why an ECALL came to nothing. The host lives. After a fault or a system call inside, no ECALL comes any more: a
/// lock may be held, a list half changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EcallError {
    /// No TCS is free.
    #[error("out of threads: all {tcs} TCS are taken: raise NumTCS")]
    OutOfThreads {
        /// How many there are.
        tcs: usize,
    },
    /// The enclave did what the processor refuses.
    #[error("a fault inside the enclave: {} at {at:#x}, touching {address:#x} ({place})", name(*signal))]
    Fault {
        /// The signal.
        signal: i32,
        /// The address that was touched.
        address: u64,
        /// The instruction's address.
        at: u64,
        /// Where the address lies.
        place: FaultLocation,
    },
    /// The enclave made a system call, which was blocked.
    #[error("system call {number} inside the enclave at {at:#x} was blocked: leave by an OCALL")]
    SystemCall {
        /// Its number.
        number: u64,
        /// The address after the instruction.
        at: u64,
    },
    /// An ECALL was cut short before: the enclave is not entered any more, as with SGX, where an exception
    /// that nobody handles leaves it aborting.
    #[error("the enclave is aborting since a fault inside it: load it anew")]
    Aborting,
    /// WebAssembly's own checks stopped the enclave.
    #[error("a fault inside the enclave: WebAssembly trapped: {what}")]
    Trap {
        /// What was stopped.
        what: &'static str,
    },
    /// The process that held the enclave has ended.
    #[error("the enclave is gone: its process has ended")]
    Gone,
    /// The virtual machine that held the enclave stopped.
    #[error(
        "the enclave's virtual machine stopped: KVM gives exit reason {reason}: see linux/kvm.h"
    )]
    Stopped {
        /// KVM's number for the reason.
        reason: u32,
    },
    /// The processor did not enter an enclave in hardware.
    #[error(
        "the processor does not enter the enclave (exception {vector}): its memory is lost: load it again"
    )]
    NotEntered {
        /// The exception's vector.
        vector: u16,
    },
    /// The calling thread could not be made ready to enter.
    #[error("this thread cannot enter: {what}: error {errno}")]
    Unprepared {
        /// The system call that failed.
        what: &'static str,
        /// Its error.
        errno: i32,
    },
}

/// Where an address lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultLocation {
    /// In the guard page below or above the stack of this TCS.
    Guard,
    /// Elsewhere in the enclave's region.
    Inside,
    /// Outside it.
    Outside,
}

impl std::fmt::Display for FaultLocation {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::Guard => "a guard page of its stack: raise NumStackPages",
            Self::Inside => "inside the enclave",
            Self::Outside => "outside the enclave",
        })
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGILL => "SIGILL",
        libc::SIGFPE => "SIGFPE",
        libc::SIGTRAP => "SIGTRAP",
        _ => "a signal",
    }
}
