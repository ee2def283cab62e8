//! CPU features.

use super::State;
use crate::Unavailable;
use crate::core_clock::{self, Doubtful};
use crate::cpu;
use crate::issue_rate::{self, Moments};
use crate::tsc::Tsc;

const OTHER_CPU: &str = "use a CPU that has it, or expose it to the VM";

pub(super) fn invariant_tsc() -> State {
    match Tsc::get() {
        Ok(tsc) => State::present(format!(
            "{:.3} MHz, step {} ticks, empty pair {} ticks",
            tsc.hertz / 1e6,
            tsc.step,
            tsc.overhead
        )),
        Err(Unavailable { why, remedy }) => State::absent(why, remedy),
    }
}

pub(super) fn core_clock() -> State {
    match core_clock::hertz() {
        Ok(hertz) => State::present(format!("{:.3} GHz, by two chains that agree", hertz / 1e9)),
        Err(Doubtful::NoTime(_)) => {
            State::absent("the time-stamp counter is unusable", "see invariant-tsc")
        }
        Err(why @ (Doubtful::Differ(_) | Doubtful::NotLearnt)) => State::absent(
            why.to_string(),
            "stop other processes, or fix the clock frequency with `cpupower frequency-set`",
        ),
    }
}

pub(super) fn own_core() -> State {
    match issue_rate::moments() {
        Ok(Moments { best, alone }) if alone > 0.95 => State::present(format!(
            "{best:.1} independent adds per cycle, no less at {:.0}% of 50 moments",
            alone * 100.0
        )),
        Ok(Moments { best, alone }) => State::absent(
            format!(
                "at {:.0}% of 50 moments it executed less than 95% of {best:.1} adds per cycle",
                (1.0 - alone) * 100.0
            ),
            "stop what runs on the SMT sibling, or use a host that does not share cores",
        ),
        Err(why) => State::absent(why.to_string(), "see core-clock"),
    }
}

pub(super) fn avx2() -> State {
    State::when(
        cpu::has_avx2(),
        "enabled by the kernel (XCR0)",
        "not in CPUID or not in XCR0",
        OTHER_CPU,
    )
}

pub(super) fn avx512() -> State {
    State::when(cpu::has_avx512(), "F, BW and VL", "F, BW or VL is not in CPUID or XCR0", OTHER_CPU)
}

pub(super) fn erms() -> State {
    State::when(cpu::has_erms(), "CPUID 7 EBX bit 9", "CPUID 7 EBX bit 9 is clear", OTHER_CPU)
}

pub(super) fn fsrm() -> State {
    State::when(cpu::has_fsrm(), "CPUID 7 EDX bit 4", "CPUID 7 EDX bit 4 is clear", OTHER_CPU)
}

/// What to do on a CPU without MPX.
pub const MPX_REMEDY: &str = "use an Intel CPU of 2015 to 2019, on which Linux enables MPX also after 5.6, for guests; in a VM let the hypervisor expose it; qemu-x86_64 -cpu max suffices for functional tests";

pub(super) fn mpx() -> State {
    State::when(cpu::has_mpx(), "CPUID and XCR0", "not in CPUID or not in XCR0", MPX_REMEDY)
}

pub(super) fn sgx() -> State {
    if !cpu::has_sgx() {
        return State::absent(
            "CPUID 7 EBX bit 2 is clear",
            "use an Intel server with SGX enabled in its firmware",
        );
    }
    State::when(
        std::path::Path::new("/dev/sgx_enclave").exists(),
        "/dev/sgx_enclave",
        "/dev/sgx_enclave does not exist",
        "enclave-sgx names the step that is missing",
    )
}
