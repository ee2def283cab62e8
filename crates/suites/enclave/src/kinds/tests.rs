//! What entering costs in system calls, and whether the thread's own go on to pay for an enclave.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use enclave_interface::{Ecall, Enter};

use super::{Enclave, EnclaveKind, load_untimed, runs};
use crate::conf::Conf;
use crate::images;
use crate::system_calls::{raw, selector_here};

/// By which a test tells the one that it runs in a process of its own what to do.
const KIND: &str = "TOLLGATE_TEST_KIND";

/// The kinds that enter on this thread and run here; the others are named as untested.
fn here() -> Vec<EnclaveKind> {
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

/// Makes a system call as if the thread were inside: SIGSYS ends this process if its calls are dispatched.
fn call_with_selector_set() {
    let selector = selector_here().unwrap();
    // SAFETY: the byte is this thread's; the call gives a number.
    unsafe {
        selector.write_volatile(1);
        let id = raw(libc::SYS_getpid, [0; 6]);
        selector.write_volatile(0);
        assert_eq!(id, i64::from(std::process::id()));
    }
}

/// Runs the test `in_a_process_of_its_own` with what it is to do.
fn alone(what: &str) -> ExitStatus {
    let test = "kinds::tests::in_a_process_of_its_own";
    let program = std::env::current_exe().unwrap();
    let ran = Command::new(program).args(["--exact", test, "--ignored"]).env(KIND, what).output();
    ran.unwrap().status
}

#[test]
#[ignore = "a signal may end it; other tests run it in a process of its own"]
fn in_a_process_of_its_own() {
    let what = std::env::var(KIND).unwrap();
    let (name, when) = what.split_once(' ').unwrap();
    let kind = EnclaveKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap();
    let enclave = load(kind);
    assert_eq!(enclave.leave(2), Ok(2));
    match when {
        "loaded" => {}
        "unloaded" => drop(enclave),
        // Another kind is entered while an enclave that blocks system calls stays loaded.
        other => {
            let other = EnclaveKind::ALL.into_iter().find(|kind| kind.name() == other).unwrap();
            assert_eq!(load(other).leave(2), Ok(2));
        }
    }
    call_with_selector_set();
}

#[test]
fn no_kind_leaves_dispatch_on_when_it_is_unloaded() {
    for kind in here() {
        assert!(alone(&format!("{} unloaded", kind.name())).success(), "{kind:?}");
    }
}

#[test]
fn one_kind_alone_dispatches_system_calls() {
    for kind in here() {
        let status = alone(&format!("{} loaded", kind.name()));
        let signal = (kind == EnclaveKind::Simulate).then_some(libc::SIGSYS);
        assert_eq!((status.signal(), status.success()), (signal, signal.is_none()), "{kind:?}");
    }
}

#[test]
fn other_kinds_end_the_dispatch_of_one_that_stays_loaded() {
    if runs(EnclaveKind::Simulate).is_err() {
        return;
    }
    for kind in here().into_iter().filter(|kind| *kind != EnclaveKind::Simulate) {
        assert!(alone(&format!("simulate {}", kind.name())).success(), "{kind:?}");
    }
}

/// The numbers of the system calls that some calls make, each call's between two of `getppid`, as a debugger of a
/// forked process sees them. `None` if no process may be traced here.
fn system_calls(enclave: &dyn Enclave, calls: &[(Ecall, u64)]) -> Option<Vec<Vec<u64>>> {
    // What the thread does once is done.
    assert!(enclave.nothing().is_ok());
    // SAFETY: the child allocates nothing and takes no lock: it enters and ends.
    let id = unsafe { libc::fork() };
    if id == 0 {
        let mark = || {
            // SAFETY: gives a number.
            unsafe { raw(libc::SYS_getppid, [0; 6]) }
        };
        // SAFETY: stops this process until its debugger lets it go on.
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
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!traced)) };
    }
    let mut seen = Vec::new();
    let mut entering = true;
    let mut status = 0;
    // SAFETY: the child stops for its debugger, which is this thread; what is written has space.
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
    // Before the first mark, and after the last.
    parts.next();
    parts.next_back();
    Some(parts.map(<[u64]>::to_vec).collect())
}

#[test]
fn an_ecall_of_arch_prctl_makes_six_system_calls() {
    const ARCH_PRCTL: u64 = libc::SYS_arch_prctl as u64;
    for kind in
        here().into_iter().filter(|kind| !matches!(kind, EnclaveKind::Process | EnclaveKind::Kvm))
    {
        let enclave = load(kind);
        let calls = [(Ecall::nothing, 0), (Ecall::leave, 0), (Ecall::leave, 3)];
        let Some(made) = system_calls(&*enclave, &calls) else {
            return machine::untested::note("system calls of an ECALL", &"nothing may be traced");
        };
        let six = if kind == EnclaveKind::ArchPrctl { 6 } else { 0 };
        let expected = [six, six, 4 * six].map(|count| vec![ARCH_PRCTL; count]);
        assert_eq!(made, expected, "{kind:?}");
    }
}
