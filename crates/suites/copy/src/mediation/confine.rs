//! A host's system calls, held to a list that gives no way round the rules.
//!
//! What a host may map is decided by the access mode of the descriptors that it is passed. One way
//! round that is to open such a descriptor again through `/proc`, another to reach into the other
//! processes (ptrace, process_vm_writev, pidfd_getfd): neither is on the list.

use std::io;

use libc::{c_long, c_ulong, sock_filter, sock_fprog};

/// What a host needs: its socket, to map what it is passed, and to end. `mprotect` is let through to
/// the kernel, which holds it to the access mode of the descriptor that was mapped.
const ALLOWED: [c_long; 8] = [
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_close,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit_group,
];

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Where the filter finds the number and the architecture in what it is given.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Instructions: load and test the architecture, load the number, one test a call, deny, allow.
const LENGTH: usize = 3 + ALLOWED.len() + 2;

const fn statement(code: u32, operand: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k: operand }
}

const fn test(operand: u32, if_equal: usize, if_not: usize) -> sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    sock_filter { code, jt: if_equal as u8, jf: if_not as u8, k: operand }
}

const fn filter() -> [sock_filter; LENGTH] {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let result = libc::BPF_RET | libc::BPF_K;
    let mut filter = [statement(result, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32); LENGTH];
    filter[0] = statement(load, ARCHITECTURE);
    filter[1] = test(AUDIT_ARCH_X86_64, 0, LENGTH - 4);
    filter[2] = statement(load, NUMBER);
    let mut call = 0;
    while call < ALLOWED.len() {
        filter[3 + call] = test(ALLOWED[call] as u32, ALLOWED.len() - call, 0);
        call += 1;
    }
    filter[LENGTH - 1] = statement(result, libc::SECCOMP_RET_ALLOW);
    filter
}

/// Holds this process to the list from now on; everything else fails with EPERM.
///
/// # Errors
/// The kernel's, where it has no seccomp.
pub(super) fn confine() -> io::Result<()> {
    let mut filter = filter();
    let program = sock_fprog { len: LENGTH as u16, filter: filter.as_mut_ptr() };
    // The filter is no reason to slow speculation down: this measures copies.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: both calls take numbers and one program, which lives through the call.
    let code = unsafe {
        let none: c_ulong = 0;
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as c_ulong, none, none, none) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
