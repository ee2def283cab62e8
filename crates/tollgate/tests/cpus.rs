//! CPUs that only guests of QEMU have here: SVM for guests inside, MPX, and a planted clock.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use harness::Bench;
use lab::journal::Run;
use lab::sample::{Clock, FailureKind, Sample};

/// Runs experiments once in a guest and returns the run, which may have failed samples.
fn run(bench: &Bench, guest: &str, arguments: &[&str]) -> Run {
    let experiments = bench.path().join("experiments.toml");
    fs::write(&experiments, include_str!("cpus/experiments.toml")).unwrap();
    let common = ["run", "-e", "experiments.toml", "--guest", guest, "--quiet", "--fresh"];
    let words = [&common[..], arguments].concat();
    let output = bench.command_with_user_cache(&words).output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stderr));
    bench.journal()
}

/// Returns the samples of an experiment.
#[track_caller]
fn samples<'a>(run: &'a Run, experiment: &str) -> Vec<&'a Sample> {
    let samples: Vec<_> = run.samples.iter().filter(|one| one.experiment == experiment).collect();
    assert!(!samples.is_empty(), "{experiment}: no sample");
    samples
}

/// Returns the number of points of an experiment with samples.
fn points(run: &Run, experiment: &str) -> usize {
    samples(run, experiment).iter().map(|one| &one.point).collect::<BTreeSet<_>>().len()
}

/// Returns the value of the only metrics of a sample from an emulated CPU, which has no time.
#[track_caller]
fn counts(sample: &Sample, metrics: &[&str]) -> Vec<f64> {
    assert_eq!(sample.error, None, "{}", sample.point);
    let names: Vec<_> = sample.values.keys().map(String::as_str).collect();
    assert_eq!(names, metrics, "{}", sample.point);
    assert!(sample.histograms.is_empty() && sample.clock.is_none(), "{sample:?}");
    sample.values.values().copied().collect()
}

/// Checks that a sample has no value because its CPU is emulated.
#[track_caller]
fn time_is_refused(sample: &Sample) {
    let failure = sample.error.as_ref().unwrap_or_else(|| panic!("{sample:?}"));
    assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
    assert!(failure.why.contains("emulated"), "{}: {failure}", sample.point);
    assert!(sample.values.is_empty() && sample.histograms.is_empty(), "{sample:?}");
}

const STAMPED: [&str; 2] = ["crossings_made", "crossings_stamped"];

#[test]
#[ignore = "boots a guest"]
fn long_the_micro_guest_is_stamped_in_ring_0_of_emulated_svm() {
    let bench = Bench::new();
    let route = ["--profile", "standard", "--rounds", "1", "--where", "route=guest"];
    let both = ["crossing/stamping", "crossing/one-way"];
    let run = run(&bench, "nested", &[&both[..], &route].concat());
    let stamped = samples(&run, "crossing/stamping");
    // Each stamp and each kind, and lfence also with isolation.
    assert_eq!(stamped.len(), 4 + 7 + 1);
    for sample in &stamped {
        if sample.point.text("kind") == "invalid-opcode" {
            let failure = sample.error.as_ref().unwrap();
            assert!(failure.why.contains("KVM intercepts invalid opcodes"), "{failure}");
            continue;
        }
        assert_eq!(counts(sample, &STAMPED), [100_000.0, 100_000.0], "{}", sample.point);
    }
    let timed = samples(&run, "crossing/one-way");
    let stamps = stamped.iter().map(|sample| sample.point.text("stamp"));
    for stamp in stamps.collect::<BTreeSet<_>>() {
        let is_fault = |sample: &&&Sample| {
            (sample.point.text("kind"), sample.point.text("stamp")) == ("page-fault", stamp)
        };
        let faults: Vec<_> = timed.iter().filter(is_fault).collect();
        assert!(!faults.is_empty(), "{stamp}: no page fault");
        faults.into_iter().for_each(|sample| time_is_refused(sample));
    }
    for sample in timed {
        // KVM intercepts invalid opcodes on any CPU, and a stamp may lack a kind.
        let failure = sample.error.as_ref().unwrap_or_else(|| panic!("{sample:?}"));
        assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
    }
}

#[test]
#[ignore = "boots Linux in a guest in a guest"]
fn long_two_levels_down_linux_is_stamped_and_its_time_refused() {
    let bench = Bench::new();
    // The kernel is built on this host, because the guest is slow.
    lab::artefact::prepare(&crossing::patched::linux()).unwrap();
    let route = ["--profile", "standard", "--rounds", "1", "--where", "route=patched-vm"];
    let both = ["crossing/stamping", "crossing/one-way"];
    let run = run(&bench, "nested", &[&both[..], &route].concat());
    let stamped = samples(&run, "crossing/stamping");
    assert_eq!(stamped.len(), 2);
    for sample in stamped {
        assert_eq!(sample.error, None, "{}", sample.point);
        for metric in [STAMPED[0], STAMPED[1], "stamps_ordered", "quiet_touches"] {
            assert_eq!(sample.values[metric], 100_000.0, "{metric}");
        }
        assert_eq!(sample.values["spurious_stamps"], 0.0);
        assert!(sample.clock.is_none() && sample.histograms.is_empty(), "{sample:?}");
        // Only the brand reveals the emulation there.
        let cpu = &run.record.environments[&sample.parts["guest"].environment].cpu;
        assert_eq!(cpu.hypervisor.as_deref(), Some("KVMKVMKVM"), "{cpu:?}");
        assert!(cpu.brand.contains("QEMU TCG"), "{cpu:?}");
    }
    samples(&run, "crossing/one-way").into_iter().for_each(time_is_refused);
}

/// Inspects the CPU by a program that was not told of the emulation: `prepare` runs without the variable that tollgate sets
/// for the command.
const INSPECT: &str = r#"
about = "a machine two levels down"
prepare = """
test -z "$TOLLGATE_EMULATED"
grep -q 'model name.*QEMU TCG' /proc/cpuinfo
PROGRAM doctor --json > /tmp/doctor || :
grep -q 'this CPU is emulated (QEMU TCG)' /tmp/doctor
"""
"#;

#[test]
#[ignore = "boots Linux in a guest in a guest"]
fn long_two_levels_down_the_brand_alone_reveals_the_emulation() {
    let bench = Bench::new();
    let program = bench.command(&[]).get_program().to_string_lossy().into_owned();
    let declared = INSPECT.replace("PROGRAM", &program);
    let inner = harness::file(&bench, "inner.toml", &declared).display().to_string();
    let words = ["guest", "nested", "--", "guest", &inner, "--accelerator", "kvm", "--", "list"];
    let output = bench.command_with_user_cache(&words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Boots the image of the micro-guest under KVM, without the signature of a hypervisor, and imports its output.
const BARE_METAL: &str = r#"
prepare = """
qemu-system-x86_64 -accel kvm -cpu host,-hypervisor,kvm=off -m 16 -nodefaults -no-user-config -display none \
    -kernel IMAGE -chardev stdio,id=out,signal=off -device isa-debugcon,chardev=out \
    -device isa-debug-exit,iobase=0xf4,iosize=4 < /dev/null > /tmp/serial || :
cut -c1-200 /tmp/serial
if PROGRAM crossing import /tmp/serial --results /tmp/results; then exit 9; fi
"""
"#;

#[test]
#[ignore = "boots a guest"]
fn long_the_image_for_bare_metal_runs_in_nested_svm_and_its_times_are_refused() {
    let bench = Bench::new();
    let image = bench.path().join("guest.img").display().to_string();
    bench.ok(&["crossing", "guest", "--write", &image, "--rounds", "1", "--crossings", "100000"]);
    let program = bench.command(&[]).get_program().to_string_lossy().into_owned();
    let prepare = BARE_METAL.replace("PROGRAM", &program).replace("IMAGE", &image);
    let declared = [include_str!("../../vm/guests/nested.toml"), prepare.as_str()].concat();
    fs::write(bench.path().join("inner.toml"), declared).unwrap();
    let words = ["guest", "./inner.toml", "--", "guest"];
    let output = bench.command_with_user_cache(&words).output().unwrap();
    let console = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{console}");
    let mut kinds = BTreeSet::new();
    for line in console.lines().filter(|line| line.contains("tollgate-guest sample ")) {
        let words: BTreeMap<_, _> =
            line.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        // KVM emulates invalid opcodes of a guest, or passes them on; so it may lose that kind only.
        if words["kind"] != "invalid-opcode" {
            assert_eq!((words["made"], words["stamped"]), ("100000", "100000"), "{line}");
        }
        kinds.insert((words["kind"], words["stamp"], words["isolation"]));
    }
    assert_eq!(kinds.len(), 22, "{console}");
    // Only the brand reveals the emulation to the import.
    assert!(console.contains("tollgate-guest brand QEMU TCG CPU"), "{console}");
    assert!(console.contains("the guest ran on an emulated CPU (QEMU TCG)"), "{console}");
}

#[test]
#[ignore = "boots a guest"]
fn long_mpx_is_counted_natively_in_a_guest() {
    if machine::topology::allowed_cpus().len() < 2 {
        return machine::untested::note("races of MPX in a guest", &"there is one CPU");
    }
    let bench = Bench::new();
    let rounds = ["--rounds", "3"];
    let all = ["bounds/mpx-races", "bounds/mpx-checks", "bounds/mpx-forms", "bounds/few-tables"];
    let run = run(&bench, "mpx", &[&all[..], &rounds].concat());
    // Two cases, two implementations, with and without a concurrent writer.
    assert_eq!(points(&run, "bounds/mpx-races"), 8);
    let races = samples(&run, "bounds/mpx-races");
    // On a busy machine every attempt may be void, but each has counts.
    let has_counts = |point: &lab::point::Point| {
        races.iter().any(|one| one.point == *point && !one.values.is_empty())
    };
    for sample in &races {
        assert!(has_counts(&sample.point), "{}: no counts", sample.point);
        if sample.values.is_empty()
            && sample.error.as_ref().is_some_and(|it| it.kind == FailureKind::Void)
        {
            continue; // The marker of a point whose every round is void.
        }
        assert_eq!(sample.error, None, "{}", sample.point);
        assert!(!sample.values.contains_key("access") && sample.clock.is_none(), "{sample:?}");
        assert!(sample.values["accesses_made"] >= 50_000.0, "{sample:?}");
        // With a concurrent writer accesses may be misjudged; whether one is depends on chance.
        if sample.point.text("filled_by") == "same-thread" {
            assert_eq!(sample.values["wrong"], 0.0, "{}", sample.point);
        }
    }
    assert_eq!(points(&run, "bounds/mpx-checks"), 8);
    for sample in samples(&run, "bounds/mpx-checks") {
        if sample.point.text("address") == "lea" {
            let failure = sample.error.as_ref().unwrap();
            assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
            assert!(failure.why.contains("QEMU decodes"), "{failure}");
            continue;
        }
        // Within the bounds, below them, and above them if both are checked.
        let expected = if sample.point.text("bounds") == "both" { 3.0 } else { 2.0 };
        assert_eq!(counts(sample, &["accesses_judged"]), [expected], "{}", sample.point);
    }
    // Twelve forms of MPX, whose effects are compared, and four others.
    assert_eq!(points(&run, "bounds/mpx-forms"), 12 + 4);
    for sample in samples(&run, "bounds/mpx-forms") {
        assert!(counts(sample, &["copies_executed"])[0] >= 8.0, "{sample:?}");
    }
    assert_eq!(points(&run, "bounds/few-tables"), 4);
    for sample in samples(&run, "bounds/few-tables") {
        // The page of a pointer, and that of its table.
        let least = if sample.point.text("tables") == "none" { 1.0 } else { 2.0 };
        assert!(counts(sample, &["faults"])[0] >= least, "{sample:?}");
    }
}

/// Runs `crossing/clock` in a guest whose counter advances by 2^`shift` ticks per instruction. Returns the clock of a sample
/// and its values; checks that it is marked and decides no claim.
fn planted(shift: u32) -> (Clock, BTreeMap<String, f64>) {
    let bench = Bench::new();
    let declared = include_str!("../../vm/guests/slow-clock.toml");
    let changed = declared.replace("shift=3", &format!("shift={shift}"));
    assert!(shift == 3 || changed != declared);
    fs::write(bench.path().join("planted.toml"), changed).unwrap();
    let how = ["--profile", "quick", "--rounds", "1", "--where", "trip=getppid"];
    let clock = ["crossing/clock", "--where", "load=none"];
    let run = run(&bench, "./planted.toml", &[&clock[..], &how].concat());
    let all = samples(&run, "crossing/clock");
    let valid = all.iter().find(|one| one.error.is_none() && one.void.is_none());
    let valid = valid.unwrap_or_else(|| panic!("no cycles: {all:?}"));
    let text = bench.ok(&["show"]);
    assert!(text.contains("planted clock"), "{text}");
    for claim in bench.json(&["claims", "--json"])["claims"].as_array().unwrap() {
        let verdict = claim["verdict"].as_str().unwrap();
        assert!(!["reproduced", "contradicted"].contains(&verdict), "{claim}");
    }
    (valid.clock.unwrap(), valid.values.clone())
}

#[test]
#[ignore = "boots two guests that count instructions"]
fn long_the_clock_experiment_finds_a_planted_clock() {
    let ((fast, short), (slow, long)) = (planted(3), planted(5));
    assert_eq!((fast.tsc_step, slow.tsc_step), (8, 32));
    let near = |ratio: f64, expected: f64| (ratio / expected - 1.0).abs() < 0.02;
    for clock in [fast, slow] {
        assert!(near(clock.tsc_hertz, 1e9), "{clock:?}");
    }
    let ratio = |metric: &str| long[metric] / short[metric];
    assert!(near(fast.core_before / slow.core_before, 4.0), "{fast:?} {slow:?}");
    assert!(near(ratio("core_clock"), 0.25), "{short:?} {long:?}");
    // The core clock is a quarter. So the system call takes four times as many ticks, and the same number of cycles.
    assert!(near(ratio("time"), 4.0) && near(ratio("ticks"), 4.0), "{short:?} {long:?}");
    assert!(near(ratio("cycles"), 1.0), "{short:?} {long:?}");
    // 2^3 ticks per instruction, and a chain has 66 instructions for 64 copies.
    assert!(near(short["core_clock"], 1e9 / 8.0 * 64.0 / 66.0), "{short:?}");
}

#[test]
#[ignore = "boots a guest"]
fn long_a_hidden_emulator_is_known_by_its_brand() {
    let bench = Bench::new();
    let declared = include_str!("../../vm/guests/slow-clock.toml");
    let with_brand = declared.replace(",model-id=planted clock", "");
    assert_ne!(with_brand, declared);
    fs::write(bench.path().join("hidden.toml"), with_brand).unwrap();
    let how = ["--profile", "quick", "--rounds", "1", "--where", "trip=getppid"];
    let run = run(&bench, "./hidden.toml", &[&["crossing/round-trips"][..], &how].concat());
    for sample in samples(&run, "crossing/round-trips") {
        let cpu = &run.record.environments[&sample.environment].cpu;
        assert_eq!(cpu.hypervisor, None, "the signature is hidden");
        assert!(counts(sample, &["operations"])[0] > 0.0, "trips are made and not timed");
    }
}

#[test]
#[ignore = "boots a guest"]
fn long_a_hidden_emulator_with_the_name_of_a_real_cpu_measures_no_time_and_judges_no_claim() {
    let bench = Bench::new();
    let cpu = "max,tcg-cpuid=off,-hypervisor,x-force-features=on,+invtsc,\
               model-id=Intel(R) Core(TM) i7-6700K CPU @ 4.00GHz";
    let declared = format!("about = \"a hidden emulator\"\ncpu = \"{cpu}\"\n");
    fs::write(bench.path().join("hidden.toml"), declared).unwrap();
    let experiments = ["crossing/round-trips", "bounds/hidden-races", "--profile", "quick"];
    let run = run(&bench, "./hidden.toml", &[&experiments[..], &["--rounds", "10"]].concat());
    let trips = samples(&run, "crossing/round-trips");
    assert!(trips.iter().any(|sample| sample.point.text("trip") == "getppid"));
    for sample in trips.iter().filter(|sample| sample.point.text("trip") == "getppid") {
        let environment = &run.record.environments[&sample.environment];
        assert!(environment.emulated, "only who started it knows");
        assert_eq!(environment.cpu.hypervisor, None);
        assert!(environment.cpu.brand.contains("i7-6700K"), "{}", environment.cpu.brand);
        assert!(counts(sample, &["operations"])[0] > 0.0, "trips are made and not timed");
    }
    for sample in samples(&run, "bounds/hidden-races") {
        assert_eq!(sample.error, None, "{sample:?}");
        assert!(!sample.values.contains_key("access") && sample.clock.is_none(), "{sample:?}");
    }
    // Counts of an emulated CPU, also of one that hides, decide only claims about what an emulator shows.
    let judged = |id: &str| {
        let words = ["claims", id, "-e", "experiments.toml", "--json"];
        let output = bench.command_with_user_cache(&words).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["guests"]["accelerator"], "tcg");
        (json["claims"][0]["verdict"].clone(), json["claims"][0]["why"].to_string())
    };
    let (verdict, why) = judged("on-a-cpu");
    assert_eq!(verdict, "unmeasurable", "{why}");
    assert!(why.contains("a real CPU (here one emulated by TCG)"), "{why}");
    let (verdict, why) = judged("on-metal");
    assert_eq!(verdict, "unmeasurable", "{why}");
    let (verdict, why) = judged("on-an-emulator");
    assert_eq!(verdict, "reproduced", "{why}");
    // Every text says where the values are from.
    for command in ["claims", "show"] {
        let words = [command, "-e", "experiments.toml"];
        let words = if command == "show" { &words[..1] } else { &words[..] };
        let output = bench.command_with_user_cache(words).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("guest hidden, emulated by TCG"), "{command}: {text}");
    }
}
