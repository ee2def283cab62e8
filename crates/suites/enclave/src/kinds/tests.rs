//! System calls of ECALLs, and whether a thread's system calls pay for an enclave afterwards.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use enclave_interface::{Ecall, Enter};

use super::{Enclave, EnclaveKind, load_untimed, runs};
use crate::conf::Conf;
use crate::images;
use crate::system_calls::{raw, selector_here};

/// The variable by which a test tells its child process what to do.
const KIND: &str = "TOLLGATE_TEST_KIND";

/// Returns the kinds that enter on this thread and run here; notes the others as untested.
fn available_kinds() -> Vec<EnclaveKind> {
    let all = [
        EnclaveKind::None,
        EnclaveKind::Simulate,
        EnclaveKind::ArchPrctl,
        EnclaveKind::Process,
        EnclaveKind::Kvm,
    ];
    let runs = |kind: &EnclaveKind| match runs(*kind) {
        Ok(()) => true,
        Err(why) => {
            machine::untested::note(&format!("system calls of kind {}", kind.name()), &why);
            false
        }
    };
    all.into_iter().filter(runs).collect()
}

fn load(kind: EnclaveKind) -> Box<dyn Enclave> {
    let conf = Conf { heap_pages: 64, tcs: 1, ..Conf::default() };
    load_untimed(kind, images::find("dlmalloc").unwrap(), &conf).unwrap()
}

/// Makes a system call as if the thread were inside: SIGSYS ends this process if its system calls are dispatched.
fn call_with_selector_set() {
    let selector = selector_here().unwrap();
    // SAFETY: the byte belongs to this thread, and the system call is harmless.
    unsafe {
        selector.write_volatile(1);
        let id = raw(libc::SYS_getpid, [0; 6]);
        selector.write_volatile(0);
        assert_eq!(id, i64::from(std::process::id()));
    }
}

/// Runs the test `in_a_separate_process` with a task.
fn alone(what: &str) -> ExitStatus {
    let test = "kinds::tests::in_a_separate_process";
    let program = std::env::current_exe().unwrap();
    let ran = Command::new(program).args(["--exact", test, "--ignored"]).env(KIND, what).output();
    ran.unwrap().status
}

#[test]
#[ignore = "a signal may end it; other tests run it in a separate process"]
fn in_a_separate_process() {
    let what = std::env::var(KIND).unwrap();
    let (name, when) = what.split_once(' ').unwrap();
    let kind = EnclaveKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap();
    let enclave = load(kind);
    assert_eq!(enclave.leave(2), Ok(2));
    match when {
        "loaded" => {}
        "unloaded" => drop(enclave),
        // Enters another kind while an enclave that blocks system calls stays loaded.
        other => {
            let other = EnclaveKind::ALL.into_iter().find(|kind| kind.name() == other).unwrap();
            assert_eq!(load(other).leave(2), Ok(2));
        }
    }
    call_with_selector_set();
}

#[test]
fn no_kind_leaves_dispatch_on_after_unloading() {
    for kind in available_kinds() {
        assert!(alone(&format!("{} unloaded", kind.name())).success(), "{kind:?}");
    }
}

#[test]
fn only_simulate_dispatches_system_calls() {
    for kind in available_kinds() {
        let status = alone(&format!("{} loaded", kind.name()));
        let signal = (kind == EnclaveKind::Simulate).then_some(libc::SIGSYS);
        assert_eq!((status.signal(), status.success()), (signal, signal.is_none()), "{kind:?}");
    }
}

#[test]
fn other_kinds_stop_the_dispatch_of_a_loaded_enclave() {
    if runs(EnclaveKind::Simulate).is_err() {
        return;
    }
    for kind in available_kinds().into_iter().filter(|kind| *kind != EnclaveKind::Simulate) {
        assert!(alone(&format!("simulate {}", kind.name())).success(), "{kind:?}");
    }
}

/// Returns the numbers of the system calls that each ECALL makes, as seen by a debugger of a forked process;
/// `getppid` separates the ECALLs. `None` if tracing is not permitted here.
fn system_calls(enclave: &dyn Enclave, calls: &[(Ecall, u64)]) -> Option<Vec<Vec<u64>>> {
    // The first ECALL prepares the thread.
    assert!(enclave.nothing().is_ok());
    // SAFETY: the child allocates nothing and takes no lock; it makes ECALLs and exits.
    let id = unsafe { libc::fork() };
    if id == 0 {
        let mark = || {
            // SAFETY: the system call is harmless.
            unsafe { raw(libc::SYS_getppid, [0; 6]) }
        };
        // SAFETY: it stops this process until the debugger continues it.
        let traced = unsafe {
            let traced = raw(libc::SYS_ptrace, [libc::PTRACE_TRACEME.into(), 0, 0, 0, 0, 0]) == 0;
            traced
                && raw(
                    libc::SYS_kill,
                    [std::process::id().into(), libc::SIGSTOP as u64, 0, 0, 0, 0],
                ) == 0
        };
        mark();
        for (call, word) in calls {
            if enclave.ecall(*call, [*word, 0, 0, 0, 0]).is_err() {
                break;
            }
            mark();
        }
        // SAFETY: it ends the process.
        unsafe { libc::_exit(i32::from(!traced)) };
    }
    let mut seen = Vec::new();
    let mut entering = true;
    let mut status = 0;
    // SAFETY: the child stops for its debugger, which is this thread; the buffers are valid.
    unsafe {
        libc::waitpid(id, &raw mut status, 0);
        if !libc::WIFSTOPPED(status) {
            return None;
        }
        libc::ptrace(libc::PTRACE_SETOPTIONS, id, 0, libc::PTRACE_O_TRACESYSGOOD);
        loop {
            libc::ptrace(libc::PTRACE_SYSCALL, id, 0, 0);
            libc::waitpid(id, &raw mut status, 0);
            if !libc::WIFSTOPPED(status) {
                break;
            }
            if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 {
                if entering {
                    let mut registers: libc::user_regs_struct = std::mem::zeroed();
                    libc::ptrace(libc::PTRACE_GETREGS, id, 0, &raw mut registers);
                    seen.push(registers.orig_rax);
                }
                entering = !entering;
            }
        }
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}: {seen:?}");
    let mut parts = seen.split(|number| *number == libc::SYS_getppid as u64);
    // The system calls before the first mark and after the last.
    parts.next();
    parts.next_back();
    Some(parts.map(<[u64]>::to_vec).collect())
}

#[test]
fn an_ecall_of_arch_prctl_makes_six_system_calls() {
    const ARCH_PRCTL: u64 = libc::SYS_arch_prctl as u64;
    for kind in available_kinds()
        .into_iter()
        .filter(|kind| !matches!(kind, EnclaveKind::Process | EnclaveKind::Kvm))
    {
        let enclave = load(kind);
        let calls = [(Ecall::nothing, 0), (Ecall::leave, 0), (Ecall::leave, 3)];
        let Some(made) = system_calls(&*enclave, &calls) else {
            return machine::untested::note(
                "system calls of an ECALL",
                &"tracing is not permitted",
            );
        };
        let six = if kind == EnclaveKind::ArchPrctl { 6 } else { 0 };
        let expected = [six, six, 4 * six].map(|count| vec![ARCH_PRCTL; count]);
        assert_eq!(made, expected, "{kind:?}");
    }
}
