//! The scripts of the repository, with stubs for the programs that they call.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lab::point::Point;
use lab::sample::{Failure, FailureKind, Sample, Trial};

/// Folder with the programs, temporary folder and cache of a script.
struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { folder: tempfile::tempdir().unwrap() };
        ["bin", "tmp", "cache"].iter().for_each(|name| fs::create_dir(stage.at(name)).unwrap());
        stage
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds a program that runs a line of shell.
    fn program(&self, name: &str, line: &str) {
        let path = self.at("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Adds the program of the system.
    fn real(&self, name: &str) {
        let found = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(name));
        let found = found.iter().find(|path| path.exists()).unwrap();
        symlink(found, self.at("bin").join(name)).unwrap();
    }

    fn run(&self, script: &str, path: &str) -> Output {
        self.run_with(script, path, &[])
    }

    fn run_with(&self, script: &str, path: &str, arguments: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(script);
        let mut command = Command::new("/bin/bash");
        command
            .arg(script)
            .args(arguments)
            .env("PATH", format!("{}{path}", self.at("bin").display()));
        command.env("TMPDIR", self.at("tmp")).env("XDG_CACHE_HOME", self.at("cache"));
        command.output().unwrap()
    }
}

#[test]
fn packages_are_listed_before_installation_and_no_temporary_file_is_left() {
    let stage = Stage::new();
    ["dirname", "mktemp", "rm"].iter().for_each(|name| stage.real(name));
    stage.program("apt-get", "echo apt-get is called; exit 7");
    let output = stage.run("test", "");
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success(), "{out}");
    if rustix::process::geteuid().is_root() {
        let announced = out.find("installing what the tests need").unwrap();
        assert!(announced < out.find("apt-get is called").unwrap(), "{out}");
        assert!(out.contains("gcc libc6-dev"), "{out}");
        assert!(errors.contains("error: scripts/test: apt-get update failed; "), "{errors}");
        assert!(!out.contains("== build"), "{out}");
    } else {
        assert!(errors.contains("sudo apt-get install gcc libc6-dev"), "{errors}");
    }
    assert_eq!(fs::read_dir(stage.at("tmp")).unwrap().count(), 0, "temporary files stay");
}

#[test]
fn downloads_are_listed_first() {
    let stage = Stage::new();
    ["dirname", "mktemp", "rm", "cat"].iter().for_each(|name| stage.real(name));
    stage.program("apt-get", "exit 0");
    stage.program("cargo", "exit 7");
    let output = stage.run_with("test", "", &["--full"]);
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success(), "{out}");
    if errors.contains("sudo apt-get install") {
        return machine::untested::note(
            "scripts/test lists what it downloads",
            &"without root it ends where packages are missing",
        );
    }
    let announced =
        out.find("package rust-src is downloaded").unwrap_or_else(|| panic!("{out} {errors}"));
    assert!(announced < out.find("== build of the program").unwrap(), "{out}");
}

/// Writes a journal with one sample per point, with the given errors.
fn journal(stage: &Stage, errors: &[Option<Failure>]) {
    let sample = |(place, error): (usize, &Option<Failure>)| Sample {
        experiment: "copy/throughput".into(),
        point: Point::from([("length", format!("{place} B").as_str()), ("round", "1")]),
        error: error.clone(),
        ..Sample::default()
    };
    write_journal(stage, &errors.iter().enumerate().map(sample).collect::<Vec<_>>());
}

fn write_journal(stage: &Stage, samples: &[Sample]) {
    let lines = samples.iter().map(|sample| serde_json::to_string(sample).unwrap() + "\n");
    let folder = stage.at("results/here-quick-1");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("samples.jsonl"), lines.collect::<String>()).unwrap();
}

#[test]
fn only_void_points_are_excused() {
    let stage = Stage::new();
    let results = stage.at("results");
    let run = || stage.run_with("busy", ":/usr/bin:/bin", &[results.to_str().unwrap()]);
    assert!(text(&run().stderr).contains("no run in"));

    let void = || {
        let why = "in every round, 9 tries in 3 rounds; the last: steal";
        Some(Failure::new(FailureKind::Void, why))
    };
    let lacking = || Some(Failure::unavailable("no SGX", "buy one"));
    journal(&stage, &[None, void(), lacking(), void(), None]);
    let excused = run();
    assert!(excused.status.success(), "{excused:?}");
    let expected = "the first run: 2 of 4 points have a valid sample\n\
               the first run, copy/throughput: 2 points were void in every round, because the machine was too busy\n";
    assert_eq!(text(&excused.stdout), expected);

    let others = [
        Failure::failed("the worker died"),
        Failure::failed(r#"a lie: "error":{"kind":"void","why":"in every round, 9"#),
        Failure::new(FailureKind::Crashed, "in every round, 9 tries in 3 rounds"),
        Failure::check("byte 3 is 7"),
    ];
    for other in others {
        journal(&stage, &[void(), Some(other.clone()), None]);
        let refused = run();
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{other}: {refused:?}");
    }
    for (errors, counting) in
        [(&[void(), void(), lacking()][..], "0 of 2 points"), (&[void(), None, void()], "1 of 3")]
    {
        journal(&stage, errors);
        let refused = run();
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
        assert!(text(&refused.stderr).contains(counting), "{refused:?}");
    }
    journal(&stage, &[None, lacking()]);
    assert!(!run().status.success(), "another fault made the run fail");
}

#[test]
fn points_with_a_valid_sample_are_counted() {
    let stage = Stage::new();
    let sample = |length: &str, twin: bool, round: u32| Sample {
        experiment: "stream/search".into(),
        point: Point::from([("length", length)]),
        twin,
        round,
        ..Sample::default()
    };
    let disturbed = || Some(r#"a "stall" of \ 3 ms"#.to_owned());
    let trial = Trial { level: 1.0, holds: None, void: disturbed(), values: BTreeMap::new() };
    let in_every_round = Failure::new(FailureKind::Void, "in every round, 9 tries in 3 rounds");
    let mut samples = vec![
        Sample { trials: vec![trial], ..sample("1 B", false, 0) },
        sample("1 B", true, 0),
        sample("1 B", false, 1),
        Sample { void: disturbed(), ..sample("2 B", false, 0) },
        Sample { error: Some(in_every_round.clone()), ..sample("2 B", false, 2) },
    ];
    let run = || stage.run_with("busy", ":/usr/bin:/bin", &[stage.at("results").to_str().unwrap()]);
    write_journal(&stage, &samples);
    let excused = run();
    assert!(text(&excused.stdout).starts_with("the first run: 1 of 2 points"), "{excused:?}");
    samples.push(Sample { error: Some(in_every_round), ..sample("3 B", false, 2) });
    write_journal(&stage, &samples);
    assert!(text(&run().stderr).contains("1 of 3 points"));
}

#[test]
fn a_run_of_levels_has_values_or_the_expected_reason() {
    let stage = Stage::new();
    let results = stage.at("results").display().to_string();
    let run = || stage.run_with("has-values", ":/usr/bin:/bin", &[&results, "no module"]);
    assert!(text(&run().stderr).contains("no run in"));
    let sample = |experiment: &str, error: Option<Failure>| Sample {
        experiment: experiment.into(),
        point: Point::from([("allocator", error.as_ref().map_or("talc", |_| "other"))]),
        values: match error {
            None => BTreeMap::from([("ecall".to_owned(), 1.0)]),
            Some(_) => BTreeMap::new(),
        },
        error,
        ..Sample::default()
    };
    let unavailable = |why: &str| Some(Failure::unavailable(why, "use another"));
    let (ecall, heap) = ("enclave/ecall", "enclave/heap");
    let void = Sample { void: Some("steal".into()), ..sample(heap, None) };
    let in_every_round = || Some(Failure::new(FailureKind::Void, "in every round"));
    let good = [
        sample("lab/session", unavailable("not of a level")),
        sample(ecall, None),
        sample(ecall, unavailable("jemalloc has no module of WebAssembly")),
        void,
        Sample { point: Point::from([("allocator", "talc")]), ..sample(heap, in_every_round()) },
    ];
    write_journal(&stage, &good);
    let found = run();
    assert!(found.status.success(), "{found:?}");
    let expected =
        "enclave/ecall: 1 of 2 points have values\nenclave/heap: 1 of 1 points have values\n";
    assert_eq!(text(&found.stdout), expected);
    let empty = Sample { values: BTreeMap::new(), ..sample("enclave/allocation", None) };
    for (bad, why) in [
        (sample(ecall, unavailable("this build has no WebAssembly")), "this build has no"),
        (sample(ecall, Some(Failure::check("byte 5"))), "byte 5"),
        (empty, "no value"),
        (sample("enclave/allocation", unavailable("talc has no module")), "enclave/allocation"),
        (sample("enclave/allocation", in_every_round()), "in every round"),
    ] {
        write_journal(&stage, &[&good[..], &[bad]].concat());
        let refused = run();
        assert!(!refused.status.success() && text(&refused.stderr).contains(why), "{refused:?}");
    }
    write_journal(&stage, &[]);
    assert!(text(&run().stderr).contains("of any experiment"));
}

#[test]
fn sources_are_used_only_from_a_complete_cache_of_the_user() {
    let stage = Stage::new();
    stage.program(
        "rustc",
        "case $1 in --version) echo 'rustc 9.9.9 (x)' ;; *) echo /nowhere ;; esac",
    );
    stage.program("apt-get", "exit 7");
    let run = || stage.run("rust-sources", ":/usr/bin:/bin");
    let cache = stage.at("cache/tollgate");
    let library = cache.join("rust-src-9.9.9/usr/src/rustc-9.9.9/library");
    fs::create_dir_all(&library).unwrap();
    let file = library.join("lib.rs");
    fs::write(&file, "pub mod core;").unwrap();
    let kept = cache.join("rust-src-9.9.9");
    let sum = "find . -type f ! -name sums -exec sha256sum {} + >sums";
    let summed = Command::new("sh").args(["-c", sum]).current_dir(&kept).status().unwrap();
    assert!(summed.success());

    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = run();
    assert!(text(&refused.stderr).contains("other users can write to"), "{refused:?}");
    assert!(!refused.status.success() && refused.stdout.is_empty());

    fs::set_permissions(&cache, fs::Permissions::from_mode(0o755)).unwrap();
    let caches = stage.at("cache");
    fs::set_permissions(&caches, fs::Permissions::from_mode(0o775)).unwrap();
    let refused = run();
    assert!(text(&refused.stderr).contains("another user can replace"), "{refused:?}");
    assert!(!refused.status.success() && refused.stdout.is_empty());
    fs::set_permissions(&caches, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&cache, stage.at("aside")).unwrap();
    symlink(stage.at("aside"), &cache).unwrap();
    let refused = run();
    assert!(text(&refused.stderr).contains("is not a folder of this user"), "{refused:?}");
    fs::remove_file(&cache).unwrap();
    fs::rename(stage.at("aside"), &cache).unwrap();

    let taken = run();
    assert_eq!(text(&taken.stdout).trim(), library.to_str().unwrap(), "{taken:?}");
    assert_eq!(fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);

    fs::write(&file, "pub mod planted;").unwrap();
    let damaged = run();
    assert!(!damaged.status.success() && damaged.stdout.is_empty(), "{damaged:?}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
