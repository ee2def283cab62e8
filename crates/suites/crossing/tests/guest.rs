//! The guest runs whole: by itself under QEMU's emulator, and under KVM where its ring 0 is real.

#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

use std::path::{Path, PathBuf};
use std::process::Command;

use crossing::guest::report::{Report, parse};
use crossing::guest::{Counts, Kind, Settings, multiboot_image};
use lab::sample::FailureKind;

/// QEMU's exit status where the guest says that it is done: (0x10 << 1) | 1.
const DONE: i32 = 33;
/// Where it met an exception that it did not expect.
const FAULT: i32 = 35;

fn settings() -> Settings {
    Settings { rounds: 2, crossings: 300, warmup: 20, seed: 7 }
}

/// What an image printed on COM1 and on port 0xe9, and QEMU's status.
fn boot(image: &[u8], more: &[&str]) -> (String, String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::write(file("guest"), image).unwrap();
    let to = |path: &Path| format!("file:{}", path.display());
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-accel", "tcg", "-cpu", "max", "-m", "16", "-display", "none", "-monitor", "none"])
        .args(["-nodefaults", "-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
        .args(more)
        .arg("-kernel")
        .arg(file("guest"))
        .args(["-serial", &to(&file("serial")), "-debugcon", &to(&file("debug"))]);
    let mut child =
        qemu.spawn().expect("qemu-system-x86_64 is needed: apt install qemu-system-x86");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if std::time::Instant::now() > end => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    let read = |name| String::from_utf8(std::fs::read(file(name)).unwrap()).unwrap();
    (read("serial"), read("debug"), status)
}

#[test]
fn runs_whole_under_the_emulator() {
    let image = multiboot_image(&settings()).unwrap();
    let (serial, debug, status) = boot(&image, &[]);
    assert_eq!(status, Some(DONE), "{serial}");
    let report = parse(&serial).unwrap();
    assert_eq!(parse(&debug), Ok(report.clone()));
    assert_eq!((report.rounds, report.crossings, report.warmup, report.seed), (2, 300, 20, 7));
    assert!(report.processor.emulated(), "{:?}", report.processor);
    every_sample_is_whole(&report);
    // Its times mean nothing, and none is told.
    assert!(report.samples.iter().all(|sample| report.measurement(sample).is_err()));
    damage_is_refused(&serial);
}

fn every_sample_is_whole(report: &Report) {
    for kind in Kind::ALL {
        for isolation in [false, true] {
            let of =
                |s: &&crossing::guest::report::Sample| s.kind == kind && s.isolation == isolation;
            let samples: Vec<_> = report.samples.iter().filter(of).collect();
            assert_eq!(samples.len(), 2, "{kind:?} {isolation}");
            for sample in samples {
                let tally = &sample.tally;
                tally.check(kind).unwrap();
                assert_eq!((tally.made, tally.stamped), (300, 300), "{sample:?}");
                let kernel = if kind.needs_ring_0() { 0x08 } else { 0 };
                assert_eq!(tally.cs, kernel, "{sample:?}");
                let chains = [sample.adds, sample.multiplies];
                assert!(chains.as_flattened().iter().all(|ticks| *ticks > 0), "{sample:?}");
            }
        }
    }
    assert!(report.clocks.pit_ticks > 0, "{:?}", report.clocks);
}

/// What the guest really printed, with a bin changed, a line lost, the end cut off.
fn damage_is_refused(serial: &str) {
    let at = |needle: &str| serial.lines().position(|line| line.contains(needle)).unwrap() + 1;
    let refused = |text: &str| parse(text).unwrap_err();
    let changed = refused(&serial.replacen("made=300", "made=301", 1));
    assert_eq!(changed.line, at("position=0"));
    let line = serial.lines().nth(at("position=5") - 1).unwrap();
    let lost = refused(&serial.replace(&format!("{line}\r\n"), ""));
    assert_eq!(lost.line, at("position=5"));
    assert!(lost.what.contains("sample 5 should come next, not 6"), "{lost}");
    let cut = refused(&serial[..serial.len() / 2]);
    assert!(cut.line > 6 && !cut.to_string().contains('\n'), "{cut}");
}

/// Where the emulator's counter counts instructions, each interval shows what stands between its stamps:
/// the crossing, with isolation CR3's write, and nothing else.
#[test]
fn the_crossing_alone_stands_between_the_stamps() {
    let image = multiboot_image(&Settings { rounds: 1, ..settings() }).unwrap();
    let (serial, _, status) = boot(&image, &["-icount", "shift=0,sleep=off"]);
    assert_eq!(status, Some(DONE), "{serial}");
    for sample in parse(&serial).unwrap().samples {
        let tally = &sample.tally;
        assert_eq!(tally.empty.bins.len(), 1, "{tally:?}");
        let more = |counts: &Counts| {
            assert_eq!(counts.bins.len(), 1, "{sample:?}");
            counts.least() - tally.empty.least()
        };
        let switch = u64::from(sample.isolation);
        let expected = match sample.kind {
            Kind::None => [0, 0],
            // A store that faults is not counted, for it is never done.
            Kind::PageFault => [switch, 1 + switch],
            _ => [1 + switch, 1 + switch],
        };
        assert_eq!([more(&tally.u2k), more(&tally.k2u)], expected, "{:?}", sample.kind);
    }
}

/// Replaces the one place in the image where these instructions stand.
fn plant(image: &mut [u8], instructions: &[u8], other: &[u8]) {
    let places: Vec<usize> = image
        .windows(instructions.len())
        .enumerate()
        .filter_map(|(at, window)| (window == instructions).then_some(at))
        .collect();
    assert_eq!(places.len(), 1, "{places:?}");
    image[places[0]..][..other.len()].copy_from_slice(other);
}

#[test]
fn an_exception_that_nobody_expected_is_one_line() {
    let mut image = multiboot_image(&settings()).unwrap();
    // In the loop of invalid-opcode, before the stamp's lfence: hlt, which ring 3 may not.
    plant(&mut image, &[0x0f, 0x0b, 0x0f, 0xae, 0xe8], &[0xf4, 0x90]);
    let (serial, _, status) = boot(&image, &[]);
    assert_eq!(status, Some(FAULT), "{serial}");
    let error = parse(&serial).unwrap_err().to_string();
    assert!(
        error.contains("the guest met an exception that it did not expect (vector=13 error=0"),
        "{error}"
    );
    assert!(
        error.contains(" cs=43 ") && error.contains("kind=3") && !error.contains('\n'),
        "{error}"
    );
}

#[test]
fn a_handler_with_another_sentinel_stamps_nothing() {
    let mut image = multiboot_image(&settings()).unwrap();
    // The first handler is that of page faults with isolation off: rol $17,%rbx becomes rol $18,%rbx.
    let rotate = [0x48, 0xc1, 0xc3, 0x11];
    let at = image.windows(4).position(|window| window == rotate).unwrap();
    image[at + 3] = 0x12;
    let (serial, _, status) = boot(&image, &[]);
    assert_eq!(status, Some(DONE), "{serial}");
    for sample in parse(&serial).unwrap().samples {
        let planted = sample.kind == Kind::PageFault && !sample.isolation;
        assert_eq!(sample.tally.stamped, if planted { 0 } else { 300 }, "{sample:?}");
        assert_eq!(sample.tally.check(sample.kind).is_err(), planted);
    }
}

#[test]
fn under_kvm_ring_0_is_measured_or_named() {
    for kind in Kind::ALL {
        match crossing::guest::available(kind) {
            Ok(()) => {}
            Err(failure) => {
                machine::untested::note(&format!("{} under KVM", kind.name()), &failure);
                assert_eq!(failure.kind, FailureKind::Unavailable);
                assert!(failure.remedy.is_some() && !failure.why.contains('\n'), "{failure}");
            }
        }
    }
}
