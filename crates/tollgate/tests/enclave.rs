//! The enclave suite as a person meets it: the seed's output, and what a failure looks like.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use harness::Bench;

/// Whether Syscall User Dispatch and FSGSBASE are here, without which nothing is simulated.
fn simulates(bench: &Bench, test: &str) -> bool {
    let output = bench.run(&["enclave", "--simulate", "--max-threads", "1", "--rounds", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let why = text.lines().find_map(|line| line.split_once("not measured: unavailable: "));
    if let Some((_, why)) = why {
        machine::untested::note(test, &why);
    }
    why.is_none()
}

#[test]
fn the_output_has_the_seeds_form() {
    let bench = Bench::new();
    if !simulates(&bench, "the_output_has_the_seeds_form") {
        return;
    }
    let words = ["enclave", "--simulate", "--max-threads", "2", "--num-allocations", "1000"];
    let text =
        bench.ok(&[&words[..], &["--max-allocation-size", "1024", "--rounds", "1"]].concat());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "Configuration:",
            "                                mode = simulation",
            "        num-allocations (per-thread) = 1000",
            "                 max-allocation-size = 1024 bytes",
            "num-threads = 1:",
        ]
    );
    let milliseconds = |line: &str, label: &str| {
        let rest = line.strip_prefix(label).unwrap_or_else(|| panic!("{line}"));
        let number = rest.strip_suffix(" milliseconds").unwrap_or_else(|| panic!("{line}"));
        number.trim().parse::<u64>().unwrap_or_else(|_| panic!("{line}"))
    };
    milliseconds(lines[5], "      dlmalloc   (default allocator) = ");
    milliseconds(lines[6], "    snmalloc   (pluggable allocator) = ");
    assert!(lines[7].starts_with("                            speed-up = "), "{text}");
    assert_eq!(lines[8..10], ["", "num-threads = 2:"]);
}

#[test]
fn what_fails_is_no_figure() {
    let bench = Bench::new();
    if !simulates(&bench, "what_fails_is_no_figure") {
        return;
    }
    let few = ["enclave", "--simulate", "--rounds", "1", "--max-threads"];
    let failed = |words: &[&str]| {
        let output = bench.run(&[&few[..], words].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = failed(&["1", "--heap-pages", "16", "--allocators", "dlmalloc"]);
    assert!(text.contains("= not measured: check: thread 0:"), "{text}");
    assert!(text.contains("allocations gave NULL: the heap is too small"), "{text}");
    // Two threads cannot both be inside by one TCS for the whole time.
    let text = failed(&["2", "--tcs", "1", "--num-allocations", "300000"]);
    assert!(text.contains("out of threads"), "{text}");
    assert!(text.contains("num-threads = 1:\n      dlmalloc   (default allocator) = "), "{text}");
}

#[test]
fn what_is_wrong_is_told_in_one_line() {
    let bench = Bench::new();
    let conf = bench.path().join("bad.conf");
    std::fs::write(&conf, "NumHeapPages=4096\nNumThreads=8\n").unwrap();
    let told = bench.refused(&["enclave", "--simulate", "--conf", conf.to_str().unwrap()], 1);
    assert!(told.contains("bad.conf:2") && told.contains("'NumThreads'"), "{told}");
    let told = bench.refused(&["enclave", "--allocators", "tcmalloc"], 2);
    assert!(told.contains("tcmalloc"), "{told}");
    if !std::path::Path::new("/dev/sgx_enclave").exists() {
        let told = bench.refused(&["enclave"], 1);
        assert!(told.contains("add --simulate"), "{told}");
    }
}
