//! Usage errors, and output that cannot be written.

use crate::harness::{Bench, TIMEOUT, full_device};
use crate::measured;
use crate::user_file::UserFile;

#[test]
fn usage_errors_are_one_line_with_status_2() {
    let bench = Bench::new();
    let wrong = UserFile::new(&bench, "wrong.toml", "[[experiment]]\nname = 3\n");
    let huge = UserFile::new(&bench, "huge.toml", &"# \n".repeat(400_000));
    let cases: [(&[&str], &str); 15] = [
        (&["run", "nothing"], "unknown suite or experiment 'nothing'"),
        (&["run", "--where", "colour=red"], "unknown factor 'colour'"),
        (&["run", "planted/search", "--where", "edge"], "not FACTOR=LEVEL"),
        (&["run", "planted", "--resolve", "0"], "error: --resolve: '0' is not a share, e.g. '2%'"),
        (&["run", "-e", "missing.toml"], "missing.toml"),
        (&["run", "-e", wrong.path()], "wrong.toml:"),
        (&["run", "-e", huge.path()], "has more than 1048576 bytes"),
        (&["run", "-e", "/dev/zero"], "has more than 1048576 bytes"),
        (
            &["run", "planted/search", "--rounds", "4000000000"],
            "rounds: 4000000000 is out of range; use 1",
        ),
        (&["run", "planted/search", "--rounds", "0"], "rounds: 0 is out of range; use 1 to 10000"),
        (
            &["run", "planted/search", "--where", "edge=30", "--where", "edge=70"],
            "factor 'edge' is named twice",
        ),
        (&["run", "planted/search", "--resolve", "nan"], "--resolve: 'nan' is not a share"),
        (&["list", "--all", "nowhere"], "'nowhere'"),
        (&["list", "--all", "--where", "colour=red"], "colour"),
        (&["claims", "nobody"], "unknown claim, source or suite 'nobody'"),
    ];
    for (arguments, why) in cases {
        let line = bench.refused(arguments, 2);
        assert!(line.contains(why), "{line}");
    }
    let unknown: [(&[&str], &str); 11] = [
        (&[], "tollgate: missing command; see tollgate --help"),
        (&["stream"], "tollgate stream: missing command; see tollgate stream --help"),
        (&["measure"], "unrecognized subcommand 'measure'"),
        (
            &["run", "--round", "3"],
            "a similar argument exists: '--rounds'; see tollgate run --help",
        ),
        (&["run", "--rounds"], "a value is required for '--rounds"),
        (&["run", "--profile", "quik"], "similar value exists: 'quick'; see tollgate run --help"),
        (&["run", "--priority", "99"], "99 is not in -20..=19"),
        (
            &["run", "--allow", "everything"],
            "unknown name 'everything'; available: bpf, code, cpufreq,",
        ),
        (&["run", "--set", "colour=red"], "unknown name 'colour'; available: apex, dax-device,"),
        (&["copy", "--colour"], "unexpected argument '--colour' found"),
        (&["bounds", "table", "--colour"], "see tollgate bounds table --help"),
    ];
    for (arguments, why) in unknown {
        let line = bench.refused(arguments, 2);
        assert!(line.contains(why), "{line}");
        let errors = bench.run(arguments).stderr;
        assert_eq!(String::from_utf8_lossy(&errors).lines().count(), 1, "{arguments:?}");
    }
    let line = bench.refused(&["show"], 2);
    assert!(line.contains("measure first"), "{line}");
    // Control characters of an argument do not reach the terminal.
    let line = bench.refused(&["run", "a\u{1b}[31m\u{7}\nb"], 2);
    assert!(!line.contains(['\u{1b}', '\u{7}']), "{line:?}");
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let bench = measured();
    let script = format!("{} show | head -1", env!("CARGO_BIN_EXE_tollgate"));
    let mut command = std::process::Command::new("sh");
    let output = command.args(["-c", &script]).current_dir(bench.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("planted/search"));
    // The reader exits before anything is written.
    let script = format!("(sleep 1; {} completions bash) | true", env!("CARGO_BIN_EXE_tollgate"));
    let mut command = std::process::Command::new("sh");
    let output = command.args(["-c", &script]).current_dir(bench.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_full_standard_output_is_an_error() {
    let bench = Bench::new();
    for words in [
        &["list"] as &[&str],
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["copy", "--help"],
        &["crossing", "--help"],
        &["bounds", "table", "--help"],
    ] {
        let Some(full) = full_device("output to a full disk") else { return };
        let output = bench.command(words).stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {errors}");
        assert!(errors.starts_with("error: standard output: "), "{words:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{words:?}: {errors}");
        // A closed pipe is not an error.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = bench.command(words).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn a_file_over_the_size_limit_is_an_error() {
    use std::os::unix::process::CommandExt;
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
