//! The crossing suite run by the program, with QEMU and a patched Linux.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crossing::guest::{CrossingKind, GuestCrossing, Stamp};
use harness::{Bench, file};
use lab::sample::{FailureKind, Sample};
use serde_json::json;

/// Runs the guest under QEMU on the given CPU model and returns its serial output.
fn on_its_own(bench: &Bench, image: &Path, cpu: &str) -> PathBuf {
    boot(bench, cpu, "-kernel", image)
}

/// Boots QEMU from a file and returns the serial output of the guest that it contains.
fn boot(bench: &Bench, cpu: &str, from: &str, file: &Path) -> PathBuf {
    let printed = bench.path().join("printed.txt");
    let status = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg", "-cpu", cpu, "-m", "64", "-nodefaults"])
        .args(["-display", "none", "-monitor", "none", "-no-reboot"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
        .arg("-serial")
        .arg(format!("file:{}", printed.display()))
        .arg(from)
        .arg(file)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(33), "the guest did not come to its end");
    printed
}

fn value(sample: &Sample, metric: &str) -> f64 {
    *sample.values.get(metric).unwrap_or_else(|| panic!("no {metric}: {sample:?}"))
}

#[test]
fn only_crossings_are_stamped_by_the_guest_and_the_patched_kernel() {
    let bench = Bench::new();
    let arguments = ["run", "crossing/stamping", "--profile", "standard", "--quiet"];
    let output = bench.command_with_user_cache(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = bench.journal();
    for stamp in Stamp::ALL {
        let is = |sample: &&Sample| {
            sample.point.text("route") == "guest-emulated"
                && sample.point.text("stamp") == stamp.name()
        };
        let sample = run.samples.iter().find(is).unwrap();
        assert_eq!(sample.error, None, "{stamp}");
        assert_eq!(value(sample, "crossings_stamped"), 100_000.0, "{stamp}");
    }
    for kind in CrossingKind::ALL {
        let is = |sample: &&Sample| {
            sample.point.text("route") == "guest-emulated"
                && sample.point.text("kind") == kind.name()
        };
        let sample = run.samples.iter().find(is).unwrap();
        assert_eq!(sample.error, None, "{kind}");
        assert_eq!(value(sample, "crossings_made"), 100_000.0, "{kind}");
        assert_eq!(value(sample, "crossings_stamped"), 100_000.0, "{kind}");
    }
    for isolation in ["off", "on"] {
        for route in ["guest-emulated", "patched-emulated"] {
            let is = |sample: &&Sample| {
                sample.point.text("route") == route
                    && sample.point.text("isolation") == isolation
                    && sample.point.text("stamp") == "lfence"
            };
            let sample = run.samples.iter().find(is).unwrap();
            assert_eq!(sample.error, None, "{route}");
            assert_eq!(value(sample, "crossings_made"), 100_000.0);
            assert_eq!(value(sample, "crossings_stamped"), 100_000.0);
            // Emulated time is not a cost, so there is no time and no clock.
            assert!(sample.clock.is_none() || route == "guest-emulated", "{sample:?}");
            assert!(sample.histograms.is_empty());
            if route == "patched-emulated" {
                assert_eq!(value(sample, "stamps_ordered"), 100_000.0);
                assert_eq!(value(sample, "quiet_touches"), 100_000.0);
                assert_eq!(value(sample, "spurious_stamps"), 0.0);
                assert_eq!(value(sample, "signals_sent"), 1000.0);
                assert_eq!(value(sample, "signals_survived"), 1000.0);
                let guest = &run.record.environments[&sample.parts["guest"].environment];
                assert!(guest.kernel_release.starts_with("6.12."), "{}", guest.kernel_release);
                let pti = format!("pti={isolation}");
                assert!(guest.mitigation_words.contains(&pti), "{:?}", guest.mitigation_words);
            }
        }
    }
    for sample in &run.samples {
        let Some(failure) = &sample.error else { continue };
        assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
        machine::untested::note(&format!("crossing/stamping {}", sample.point), &failure.why);
    }
}

#[test]
fn the_guest_boots_alone_and_its_output_is_imported() {
    let bench = Bench::new();
    let image = bench.path().join("guest.img");
    let image_text = image.display().to_string();
    let guest =
        ["crossing", "guest", "--write", &image_text, "--rounds", "3", "--crossings", "200"];
    let written = bench.json(&[&guest[..], &["--json"]].concat());
    let length = std::fs::metadata(&image).unwrap().len();
    let expected = json!({
        "schema_version": 1, "file": image, "bytes": length, "rounds": 3, "crossings": 200
    });
    assert_eq!(written, expected);
    let output = bench.ok(&guest);
    assert!(output.contains("multiboot") && output.contains("crossing import"), "{output}");
    // Emulated times are not imported as bare-metal values.
    let printed = on_its_own(&bench, &image, "max").display().to_string();
    let line = bench.refused(&["crossing", "import", &printed], 2);
    assert!(line.contains("hypervisor") || line.contains("emulated"), "{line}");
    assert!(!bench.path().join("results").exists(), "nothing was journalled");
    // A CPU model that, like bare metal, reports neither hypervisor nor emulator.
    let printed_text = on_its_own(&bench, &image, "EPYC,-hypervisor").display().to_string();
    let output = bench.ok(&["crossing", "import", &printed_text, "--host", "metal"]);
    assert!(output.contains("results/metal-standard-1"), "{output}");
    let words = ["crossing", "import", &printed_text, "--results", "json", "--json"];
    let imported = bench.json(&words);
    let (folder, host) = ("json/bare-metal-standard-1", "bare-metal");
    assert_eq!(imported, json!({ "schema_version": 1, "folder": folder, "host": host }));
    let run = bench.journal();
    assert_eq!(run.record.host, "metal");
    // Three rounds.
    assert_eq!(run.samples.len(), 3 * GuestCrossing::COUNT);
    for sample in &run.samples {
        assert_eq!(sample.point.text("route"), "bare-metal");
        assert_eq!(value(sample, "crossings_stamped"), 200.0);
        assert!(sample.clock.unwrap().tsc_hertz > 1e8);
    }
    let shown = bench.ok(&["show", "crossing/one-way", "--unit", "ticks"]);
    assert!(shown.contains("syscall-sysret"), "{shown}");
    // A second import creates a second run.
    bench.ok(&["crossing", "import", &printed_text, "--host", "metal"]);
    assert!(bench.path().join("results/metal-standard-2").is_dir());
}

/// Writes a CD on which GRUB boots the guest as docs/crossing.md describes.
fn grub_cd(bench: &Bench, crossings: &str) -> PathBuf {
    let image = bench.path().join("guest.img");
    let to = image.display().to_string();
    bench.ok(&["crossing", "guest", "--write", &to, "--rounds", "2", "--crossings", crossings]);
    harness::grub::cd(bench, ("guest.img", &image), "multiboot /boot/guest.img")
}

/// Boots the micro-guest through GRUB and checks that each of its crossings is stamped, and that its times are refused.
fn stamped_through_grub(crossings: u64) {
    let bench = Bench::new();
    let printed = boot(&bench, "max", "-cdrom", &grub_cd(&bench, &crossings.to_string()));
    let text = std::fs::read_to_string(&printed).unwrap();
    // The parser skips what GRUB prints.
    let report = crossing::guest::report::parse(&text).unwrap();
    assert_eq!((report.rounds, report.samples.len()), (2, 2 * GuestCrossing::COUNT));
    for sample in &report.samples {
        let counts = (sample.counts.made, sample.counts.stamped);
        assert_eq!(counts, (crossings, crossings), "{sample:?}");
    }
    let line = bench.refused(&["crossing", "import", &printed.display().to_string()], 2);
    assert!(line.contains("hypervisor") || line.contains("emulated"), "{line}");
    assert!(!bench.path().join("results").exists(), "nothing was journalled");
}

#[test]
fn grub_boots_the_guest_and_its_emulated_times_are_refused() {
    stamped_through_grub(200);
}

#[test]
#[ignore = "makes 2 x 100,000 crossings of each kind in an emulator"]
fn long_100_000_crossings_of_a_guest_booted_by_grub_are_stamped() {
    stamped_through_grub(100_000);
}

#[test]
fn an_invalid_report_is_a_one_line_error() {
    let bench = Bench::new();
    let line = bench.refused(&["crossing", "import", "nowhere.txt"], 2);
    assert!(line.contains("nowhere.txt"), "{line}");
    let noise = file(&bench, "noise.txt", "GRUB loading.\nWelcome to GRUB!\n");
    let line = bench.refused(&["crossing", "import", &noise.display().to_string()], 2);
    assert!(line.contains("noise.txt"), "{line}");
    assert!(!bench.path().join("results").exists(), "nothing was journalled");
}

#[test]
fn an_invalid_host_name_is_an_error_before_anything_is_written() {
    let bench = Bench::new();
    let noise = file(&bench, "noise.txt", "nothing\n").display().to_string();
    for host in ["../x", "a/b", "/tmp/x", ".hidden", ""] {
        let line = bench.refused(&["crossing", "import", &noise, "--host", host], 2);
        assert!(line.contains(&format!("host name '{host}'")), "{line}");
    }
    assert!(!bench.path().join("results").exists(), "nothing was journalled");
    assert!(!bench.path().parent().unwrap().join("x-standard-1").exists());
}

#[test]
fn the_guest_is_written_to_special_files_and_counts_are_limited() {
    let bench = Bench::new();
    bench.ok(&["crossing", "guest", "--write", "/dev/null"]);
    use std::os::unix::fs::FileTypeExt as _;
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    for words in [["--rounds", "1025"], ["--rounds", "0"], ["--crossings", "18446744073709551615"]]
    {
        let words = [&["crossing", "guest", "--write", "guest.img"][..], &words].concat();
        bench.refused(&words, 2);
    }
    assert!(!bench.path().join("guest.img").exists());
}

#[test]
fn guest_init_is_an_error_on_a_host() {
    let line = Bench::new().refused(&["guest-init"], 1);
    assert_eq!(
        line,
        "error: not process 1: this command runs only as init of a guest; use 'tollgate run --guest NAME'"
    );
}

#[test]
fn the_command_prints_published_and_measured_rows() {
    let bench = Bench::new();
    let table = bench.ok(&["crossing", "--rounds", "6", "--crossings", "500"]);
    println!("{table}");
    for words in ["~600", "~370", "~440", "~270", "published: VM", "published: bare metal"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let line = |start: &str| {
        table
            .lines()
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("{start}: {table}"))
    };
    let guest = line("micro-guest under KVM, isolation off");
    let kvm = crossing::guest::capability();
    if kvm.state.is_present() {
        assert!(guest.chars().any(|c| c.is_ascii_digit()), "{guest}");
    } else {
        assert!(guest.contains('—'), "{guest}");
    }
    for measured in
        ["system call: hardware, entry and exit code (unknown call)", "system call: total"]
    {
        assert!(line(measured).chars().any(|c| c.is_ascii_digit()), "{table}");
    }
    // Labels and the note state on which side the CR3 writes of isolation are counted.
    for route in ["micro-guest under KVM", "micro-guest on bare metal"] {
        let labelled = |line: &str| line.starts_with(route) && line.contains("on (with CR3)");
        assert!(table.lines().any(labelled), "{route}: {table}");
    }
    let labelled = |line: &str| line.contains("patched") && line.contains("on (without CR3)");
    assert!(table.lines().any(labelled), "{table}");
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = bench.ok(&["list", "crossing/one-way"]);
    for text in [&words, &shown.split_whitespace().collect::<Vec<_>>().join(" ")] {
        assert!(text.contains("with CR3") && text.contains("without CR3"), "{text}");
    }
    assert!(words.contains("--allow tracefs"), "tracefs is not touched unasked: {table}");
}
