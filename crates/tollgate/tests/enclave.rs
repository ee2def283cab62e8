//! The enclave suite run by the program: its output and its errors.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::{Bench, file};
use lab::sample::{FailureKind, Sample};

/// Returns whether the kernel has Syscall User Dispatch and the CPU FSGSBASE, which simulation requires.
fn simulates(bench: &Bench, test: &str) -> bool {
    let output = bench.run(&["enclave", "--simulate", "--max-threads", "1", "--rounds", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let why = text.lines().find_map(|line| line.split_once("not measured: unavailable: "));
    if let Some((_, why)) = why {
        machine::untested::note(test, &why);
    }
    why.is_none()
}

/// The only accepted reason for a missing time: a busy machine whose core clock is unknown.
const VOID: &str = "void: in every round";

/// Returns the output of a run that succeeded or failed only because of [`VOID`].
#[track_caller]
fn measured(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut faults = errors.lines().filter(|line| line.starts_with("enclave/")).peekable();
    let busy = faults.peek().is_some() && faults.all(|fault| fault.contains(VOID));
    assert!(output.status.success() || output.status.code() == Some(1) && busy, "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Checks that a sample has a value or is [`VOID`].
fn is_measured(sample: &Sample) -> bool {
    sample.error.as_ref().is_none_or(|failure| failure.kind == FailureKind::Void)
}

/// Checks that a line has a time or [`VOID`], and returns whether it has a time.
#[track_caller]
fn gives_a_time(line: &str, label: &str) -> bool {
    let rest = line.strip_prefix(label).unwrap_or_else(|| panic!("{line}"));
    match rest.strip_suffix(" milliseconds") {
        Some(number) => number.trim().parse::<u64>().is_ok() || panic!("{line}"),
        // The point is void in every round.
        None => ![VOID, "no valid sample"].iter().any(|why| rest.contains(why)) && panic!("{line}"),
    }
}

#[test]
fn the_output_has_the_form_of_the_open_enclave_sample() {
    let bench = Bench::new();
    if !simulates(&bench, "the_output_has_the_form_of_the_open_enclave_sample") {
        return;
    }
    let words = ["enclave", "--simulate", "--max-threads", "2", "--num-allocations", "1000"];
    let more = ["--max-allocation-size", "1024", "--rounds", "1"];
    let text = measured(&bench.run(&[&words[..], &more].concat()));
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
    let default = gives_a_time(lines[5], "      dlmalloc   (default allocator) = ");
    let pluggable = gives_a_time(lines[6], "    snmalloc   (pluggable allocator) = ");
    // The speed-up requires both times.
    let both = usize::from(default && pluggable);
    assert!(both == 0 || lines[7].starts_with("                            speed-up = "), "{text}");
    assert_eq!(lines[7 + both..9 + both], ["", "num-threads = 2:"]);
}

#[test]
fn failures_have_no_values() {
    let bench = Bench::new();
    if !simulates(&bench, "failures_have_no_values") {
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
    assert!(text.contains("allocations returned NULL: the heap is too small"), "{text}");
    // Two threads cannot share one TCS; the time is long enough for both to run on a busy machine.
    let text = failed(&["2", "--tcs", "1", "--num-allocations", "3000000"]);
    assert!(text.contains("out of threads"), "{text}");
    assert!(text.contains("num-threads = 1:\n      dlmalloc   (default allocator) = "), "{text}");
}

#[test]
fn on_an_emulated_cpu_calls_and_blocks_are_counted() {
    let bench = Bench::new();
    if !simulates(&bench, "counts of enclaves on an emulated CPU") {
        return;
    }
    let words = ["run", "enclave/ecall", "enclave/allocation", "enclave/smallbank"];
    let how = ["enclave/cross-thread", "--rounds", "1", "--quiet"];
    let levels = ["--where", "kind=simulate", "--where", "allocator=dlmalloc"];
    let mut command = bench.command(&[&words[..], &how, &levels].concat());
    // As in a guest of QEMU.
    let output = command.env("TOLLGATE_EMULATED", "yes").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let samples = bench.journal().samples;
    let of = |id: &'static str| samples.iter().filter(move |one| one.experiment == id);
    assert!(of("enclave/ecall").count() > 0 && of("enclave/allocation").count() > 0);
    for sample in of("enclave/ecall") {
        // 200 ECALLs each of nothing, malloc and free, and 200 OCALLs.
        assert_eq!(sample.values, [("calls_answered".to_owned(), 800.0)].into(), "{sample:?}");
    }
    for sample in of("enclave/allocation") {
        let number = |factor: &str| sample.point.text(factor).parse::<f64>().unwrap();
        let names: Vec<_> = sample.values.keys().map(String::as_str).collect();
        assert_eq!(names, ["blocks_checked", "ocalls", "waits"], "{sample:?}");
        let made = number("num_allocations") * number("threads");
        assert_eq!(sample.values["blocks_checked"], made, "{sample:?}");
        assert!(sample.error.is_none() && sample.clock.is_none(), "{sample:?}");
    }
    for (id, count) in
        [("enclave/smallbank", "transactions_checked"), ("enclave/cross-thread", "blocks_checked")]
    {
        assert!(of(id).any(|sample| sample.values.contains_key(count)), "{id}: nothing counted");
        for sample in of(id).filter(|sample| sample.error.is_none()) {
            let names: Vec<_> = sample.values.keys().map(String::as_str).collect();
            let mut expected = [count, "ocalls", "waits"];
            expected.sort_unstable();
            assert_eq!(names, expected, "{sample:?}");
            assert!(sample.values[count] > 0.0 && sample.clock.is_none(), "{sample:?}");
        }
    }
}

#[test]
fn errors_are_one_line() {
    let bench = Bench::new();
    let conf = bench.path().join("bad.conf");
    std::fs::write(&conf, "NumHeapPages=4096\nNumThreads=8\n").unwrap();
    let error = bench.refused(&["enclave", "--simulate", "--conf", conf.to_str().unwrap()], 2);
    assert!(error.contains("bad.conf:2") && error.contains("'NumThreads'"), "{error}");
    let error = bench.refused(&["enclave", "--simulate", "--conf", "none.conf"], 2);
    assert!(error.starts_with("error: none.conf: "), "{error}");
    let error = bench.refused(&["enclave", "--allocators", "tcmalloc"], 2);
    assert!(error.contains("tcmalloc"), "{error}");
    if !std::path::Path::new("/dev/sgx_enclave").exists() {
        let error = bench.refused(&["enclave"], 1);
        assert!(error.contains("add --simulate"), "{error}");
    }
}

/// Returns the folder of the header and its example.
fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../suites/enclave/include")
}

/// Returns the first code block of the documentation in a language that contains `words`.
fn documented(language: &str, words: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/enclave.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut blocks = page.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.starts_with(language) && block.contains(words)).unwrap();
    block.strip_prefix(language).unwrap().to_owned()
}

/// Runs commands of the documentation in the folder of the bench, which contains the example.
fn shell(bench: &Bench, commands: &str) -> Output {
    for name in ["example.c", "tollgate_allocator.h"] {
        std::fs::copy(include().join(name), bench.path().join(name)).unwrap();
    }
    let program = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    Command::new("sh")
        .args(["-e", "-c", commands])
        .current_dir(bench.path())
        .env("XDG_CACHE_HOME", bench.path().join("cache"))
        .env("PATH", path)
        .output()
        .unwrap()
}

#[test]
fn a_user_allocator_is_measured_as_documented() {
    let bench = Bench::new();
    if !simulates(&bench, "a_user_allocator_is_measured_as_documented") {
        return;
    }
    let text = measured(&shell(&bench, &documented("sh", "libmine.a")));
    for threads in ["num-threads = 1:", "num-threads = 2:"] {
        let (_, part) = text.split_once(threads).unwrap();
        let mine = part.lines().nth(2).unwrap();
        gives_a_time(mine.trim_start(), "./libmine.a (pluggable allocator) = ");
    }
    let images = || {
        let cache = std::fs::read_dir(bench.path().join("cache/tollgate")).unwrap();
        // Each artefact has a folder and a lock file.
        let images = cache.flatten().filter(|one| one.path().is_dir());
        images.filter(|one| one.file_name().to_string_lossy().contains("image")).count()
    };
    assert_eq!(images(), 1, "it is linked once");
    file(&bench, "my.toml", &documented("toml", "libmine.a"));
    let few = ["run", "-e", "my.toml", "enclave/mine", "--rounds", "2", "--quiet"];
    measured(&bench.run(&[&few[..], &["--allow", "code"]].concat()));
    let run = bench.journal();
    let own = harness::by_level(&run, "enclave/mine", "allocator");
    assert!(own["./libmine.a"].iter().all(|sample| is_measured(sample)), "{own:?}");
    assert!(own["./libmine.a"].len() >= 4);
    assert_eq!(images(), 1, "and once for both");
}

#[test]
fn an_allocator_that_cannot_be_linked_is_a_one_line_error() {
    let bench = Bench::new();
    let mine = ["enclave", "--simulate", "--allocators", "dlmalloc,./libmine.a", "--allow", "code"];
    let error = bench.refused(&mine, 2);
    assert!(error.contains("./libmine.a: No such file"), "{error}");
    std::fs::write(bench.path().join("libmine.a"), "some text\n").unwrap();
    let error = bench.refused(&mine, 2);
    assert!(error.contains("./libmine.a: not a static library"), "{error}");
    std::fs::remove_file(bench.path().join("libmine.a")).unwrap();
    let built = shell(
        &bench,
        "cc -c -fPIE -Dtollgate_allocator_free=somebody_elses example.c && ar rcs libmine.a example.o",
    );
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let error = bench.refused(&mine, 1);
    assert!(
        error.contains("./libmine.a does not link") && error.contains("`tollgate_allocator_free'"),
        "{error}"
    );
    file(&bench, "my.toml", &documented("toml", "libmine.a"));
    let few = ["run", "-e", "my.toml", "enclave/mine", "--rounds", "1", "--quiet"];
    let run = bench.run(&[&few[..], &["--allow", "code"]].concat());
    assert_eq!(run.status.code(), Some(1));
    let run = bench.journal();
    let own = harness::by_level(&run, "enclave/mine", "allocator");
    let why = own["./libmine.a"][0].error.clone().unwrap().why;
    assert!(why.contains("`tollgate_allocator_free'") && !why.contains('\n'), "{why}");
    assert!(own["dlmalloc"].iter().all(|sample| is_measured(sample)));
}

/// Writes a linker that records its calls.
fn linker(bench: &Bench) -> (PathBuf, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let (folder, ran) = (bench.path().join("bin"), bench.path().join("linked"));
    std::fs::create_dir(&folder).unwrap();
    let script = format!("#!/bin/sh\ntouch '{}'\nexit 1\n", ran.display());
    std::fs::write(folder.join("cc"), script).unwrap();
    std::fs::set_permissions(folder.join("cc"), std::fs::Permissions::from_mode(0o755)).unwrap();
    (folder, ran)
}

#[test]
fn a_user_allocator_is_linked_only_with_allow_code() {
    let bench = Bench::new();
    let (folder, ran) = linker(&bench);
    std::fs::write(bench.path().join("libmine.a"), "!<arch>\n").unwrap();
    file(&bench, "my.toml", &documented("toml", "libmine.a"));
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let run = |words: &[&str]| bench.command(words).env("PATH", &path).output().unwrap();
    let direct =
        ["enclave", "--simulate", "--max-threads", "1", "--allocators", "dlmalloc,./libmine.a"];
    for words in [
        &["list", "-e", "my.toml"][..],
        &["run", "-e", "my.toml", "enclave/mine", "--rounds", "1", "--quiet"],
        &direct,
    ] {
        let output = run(words);
        assert!(!ran.exists(), "{words:?} links: {output:?}");
    }
    let journal = bench.journal();
    let own = harness::by_level(&journal, "enclave/mine", "allocator");
    let failure = own["./libmine.a"][0].error.clone().unwrap().to_string();
    assert!(failure.contains("--allow code") && !failure.contains('\n'), "{failure}");
    let refused = run(&direct);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.lines().count() == 1 && error.contains("--allow code"), "{error}");
    let allowed = run(&[&direct[..], &["--allow", "code"]].concat());
    assert!(ran.exists(), "it is linked where that is allowed: {allowed:?}");
}

#[test]
fn counts_out_of_range_are_errors() {
    let bench = Bench::new();
    let experiment = |levels: &str| {
        format!(
            "[[experiment]]\nname = \"large\"\nsuite = \"enclave\"\nmethod = \"allocation\"\nabout = \"-\"\n\
             metric = \"wall\"\nbaseline = {{ threads = 1 }}\nsweeps = [[\"threads\"]]\n[experiment.factors]\n\
             kind = \"simulate\"\nthreads = 1\nnum_allocations = 10\n{levels}\n"
        )
    };
    // Multiplied by the page size these values overflow to small sizes.
    for levels in [
        "heap = 4503599627370497",
        "heap = 4503599627374592",
        "stack = 4503599627370497",
        "tcs = 0",
    ] {
        file(&bench, "large.toml", &experiment(levels));
        let error = bench.refused(&["run", "-e", "large.toml", "enclave/large", "--quiet"], 2);
        assert!(error.contains("give a number from 1 to"), "{levels}: {error}");
    }
    for words in [["--heap-pages", "4503599627370497"], ["--tcs", "0"], ["--max-threads", "1025"]] {
        let error = bench.refused(&[&["enclave", "--simulate"][..], &words].concat(), 2);
        assert!(error.contains(words[1]), "{error}");
    }
}
