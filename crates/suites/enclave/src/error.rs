//! The error of an ECALL.

/// The reason why an ECALL failed. The host continues to run. After a fault or a system call inside, every later
/// ECALL fails, because the fault may have left a lock taken or a list inconsistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EcallError {
    /// No TCS is free.
    #[error("out of threads: all {tcs} TCS are in use: raise NumTCS")]
    OutOfThreads {
        /// Number of TCS of the enclave.
        tcs: usize,
    },
    /// Code inside the enclave raised a CPU exception.
    #[error("fault inside the enclave: {} at {at:#x}, accessing {address:#x} ({place})", machine::signal::name(*signal))]
    Fault {
        /// The signal number.
        signal: i32,
        /// The accessed address.
        address: u64,
        /// The address of the instruction.
        at: u64,
        /// The location of the accessed address.
        place: FaultLocation,
    },
    /// Code inside the enclave made a system call, which was blocked.
    #[error("system call {number} inside the enclave at {at:#x} was blocked: use an OCALL")]
    SystemCall {
        /// The number of the system call.
        number: u64,
        /// The address after the instruction.
        at: u64,
    },
    /// An earlier ECALL was cut short. As with SGX, where an unhandled exception leaves the enclave aborting, no
    /// ECALL enters it again.
    #[error("the enclave is aborting after a fault inside it: load it again")]
    Aborting,
    /// A check of WebAssembly stopped the enclave.
    #[error("fault inside the enclave: WebAssembly trapped: {what}")]
    Trap {
        /// The operation that trapped.
        what: &'static str,
    },
    /// The enclave's process has exited.
    #[error("the enclave's process has exited")]
    Gone,
    /// The enclave's virtual machine stopped.
    #[error("the enclave's virtual machine stopped: KVM exit reason {reason}: see linux/kvm.h")]
    Stopped {
        /// KVM's exit reason.
        reason: u32,
    },
    /// The CPU refused to enter an SGX enclave.
    #[error(
        "the CPU does not enter the enclave (exception {vector}): its memory is lost: load it again"
    )]
    NotEntered {
        /// The vector of the exception.
        vector: u16,
    },
    /// The calling thread could not be prepared to enter.
    #[error("this thread cannot enter: {what}: error {errno}")]
    Unprepared {
        /// The system call that failed.
        what: &'static str,
        /// Its `errno`.
        errno: i32,
    },
}

/// The location of an accessed address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultLocation {
    /// In the guard page below or above the stack of the TCS.
    Guard,
    /// Elsewhere in the enclave's region.
    Inside,
    /// Outside the enclave's region.
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
