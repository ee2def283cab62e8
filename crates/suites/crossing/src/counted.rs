//! Page faults as the kernel counts them.

/// Minor and major faults of this thread since it began.
pub(crate) fn faults_of_thread() -> u64 {
    // SAFETY: an all-zero rusage is valid, and the kernel fills it; RUSAGE_THREAD cannot fail.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    u64::try_from(usage.ru_minflt + usage.ru_majflt).unwrap_or(0)
}
