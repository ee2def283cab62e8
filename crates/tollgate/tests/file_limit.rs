//! A file size limit (`RLIMIT_FSIZE`) is a one-line error, not a signal.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::os::unix::process::CommandExt;

use harness::Bench;

#[test]
fn a_file_over_the_limit_is_an_error() {
    let bench = Bench::new();
    let mut command = bench.command(&["stream", "pcap", "--packets", "1000"]);
    // SAFETY: setrlimit is async-signal-safe and reads only a local structure.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 8 << 10, rlim_max: 8 << 10 };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}: {errors}", output.status);
    assert!(errors.starts_with("error: ") && errors.lines().count() == 1, "{errors}");
    assert!(errors.contains("raise the limit of file sizes (ulimit -f)"), "{errors}");
    let left = std::fs::read_dir(bench.path()).unwrap().count();
    assert_eq!(left, 0, "no file is left");
}
