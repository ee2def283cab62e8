//! The whole guest, standalone under QEMU's emulator and under KVM.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Also in functions that tests share.

use std::path::{Path, PathBuf};
use std::process::Command;

use crossing::guest::report::{Report, Sample, parse};
use crossing::guest::{
    CrossingKind, GuestCrossing, Stamp, StandaloneParams, TickBins, multiboot_image,
};
use lab::sample::FailureKind;

/// QEMU's exit status after the guest's exit code 0x10: (0x10 << 1) | 1.
const DONE: i32 = 33;
/// QEMU's exit status after an unexpected exception.
const FAULT: i32 = 35;

fn params() -> StandaloneParams {
    StandaloneParams { rounds: 2, crossings: 300, warmup: 20, seed: 7 }
}

/// Boots an image; returns its output on COM1 and on port 0xe9, and QEMU's status.
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
fn the_standalone_guest_completes_its_schedule_under_the_emulator() {
    let image = multiboot_image(&params()).unwrap();
    let (serial, debug, status) = boot(&image, &[]);
    assert_eq!(status, Some(DONE), "{serial}");
    let report = parse(&serial).unwrap();
    assert_eq!(parse(&debug), Ok(report.clone()));
    assert_eq!((report.rounds, report.crossings, report.warmup, report.seed), (2, 300, 20, 7));
    assert!(report.cpu.is_emulated(), "{:?}", report.cpu);
    check_samples(&report);
    // Emulated times are meaningless, so there are none.
    assert!(report.samples.iter().all(|sample| report.measurement(sample).is_err()));
    check_damage_is_refused(&serial);
}

fn check_samples(report: &Report) {
    for crossing in GuestCrossing::all() {
        let samples: Vec<&Sample> =
            report.samples.iter().filter(|sample| sample.crossing == crossing).collect();
        assert_eq!(samples.len(), 2, "{crossing:?}");
        for sample in samples {
            let counts = &sample.counts;
            counts.check(crossing.kind).unwrap();
            assert_eq!((counts.made, counts.stamped), (300, 300), "{sample:?}");
            let kernel = if crossing.kind.needs_ring_0() { 0x08 } else { 0 };
            assert_eq!(counts.cs, kernel, "{sample:?}");
            let chains = [sample.adds, sample.multiplies];
            assert!(chains.as_flattened().iter().all(|ticks| *ticks > 0), "{sample:?}");
        }
    }
    assert!(report.clocks.pit_ticks > 0, "{:?}", report.clocks);
}

/// Checks real output with a changed number, a lost line, and the end cut off.
fn check_damage_is_refused(serial: &str) {
    let at = |needle: &str| serial.lines().position(|line| line.contains(needle)).unwrap() + 1;
    let refused = |text: &str| parse(text).unwrap_err();
    let changed = refused(&serial.replacen("made=300", "made=301", 1));
    assert_eq!(changed.line, at("position=0"));
    let line = serial.lines().nth(at("position=5") - 1).unwrap();
    let lost = refused(&serial.replace(&format!("{line}\r\n"), ""));
    assert_eq!(lost.line, at("position=5"));
    assert!(lost.what.contains("sample 6; expected 5"), "{lost}");
    let cut = refused(&serial[..serial.len() / 2]);
    assert!(cut.line > 6 && !cut.to_string().contains('\n'), "{cut}");
}

/// With a counter that counts instructions, each interval shows the instructions between its stamps: the crossing,
/// with isolation also the write of CR3, and with xperf's stamps xperf's other instructions.
#[test]
fn only_the_crossing_is_between_the_stamps() {
    let image = multiboot_image(&StandaloneParams { rounds: 1, ..params() }).unwrap();
    let (serial, _, status) = boot(&image, &["-icount", "shift=0,sleep=off"]);
    assert_eq!(status, Some(DONE), "{serial}");
    for sample in parse(&serial).unwrap().samples {
        let counts = &sample.counts;
        assert_eq!(counts.empty.bins.len(), 1, "{counts:?}");
        let more = |times: &TickBins| {
            assert_eq!(times.bins.len(), 1, "{sample:?}");
            times.min() - counts.empty.min()
        };
        let GuestCrossing { kind, stamp, isolated } = sample.crossing;
        let switch = u64::from(isolated);
        let crossing = match kind {
            CrossingKind::None => [0, 0],
            // A faulting store is not counted, because it does not complete.
            CrossingKind::PageFault => [switch, 1 + switch],
            _ => [1 + switch, 1 + switch],
        };
        // In place of the two moves of the empty pair: shl, or and mov, then testb, jz and two stores, or three pops.
        let others = if stamp == Stamp::Xperf { [5, 4] } else { [0, 0] };
        let expected = [crossing[0] + others[0], crossing[1] + others[1]];
        assert_eq!([more(&counts.u2k), more(&counts.k2u)], expected, "{:?}", sample.crossing);
    }
}

/// Reoffsets the only occurrence of these instructions in the image.
fn replace(image: &mut [u8], instructions: &[u8], other: &[u8]) {
    let offsets: Vec<usize> = image
        .windows(instructions.len())
        .enumerate()
        .filter_map(|(offset, window)| (window == instructions).then_some(offset))
        .collect();
    assert_eq!(offsets.len(), 1, "{offsets:?}");
    image[offsets[0]..][..other.len()].copy_from_slice(other);
}

#[test]
fn an_unexpected_exception_is_reported_on_one_line() {
    let mut image = multiboot_image(&params()).unwrap();
    // In the loop of invalid-opcode, before the stamp's lfence: hlt, which is privileged.
    replace(&mut image, &[0x0f, 0x0b, 0x0f, 0xae, 0xe8], &[0xf4, 0x90]);
    let (serial, _, status) = boot(&image, &[]);
    assert_eq!(status, Some(FAULT), "{serial}");
    let error = parse(&serial).unwrap_err().to_string();
    assert!(error.contains("unexpected exception in the guest (vector=13 error=0"), "{error}");
    assert!(
        error.contains(" cs=43 ") && error.contains("variant=3") && !error.contains('\n'),
        "{error}"
    );
}

#[test]
fn a_crossing_with_a_wrong_sentinel_is_not_stamped() {
    let mut image = multiboot_image(&params()).unwrap();
    // The first handler is that of page faults with isolation off: rol $17,%rbx becomes rol $18,%rbx.
    let rotate = [0x48, 0xc1, 0xc3, 0x11];
    let at = image.windows(4).position(|window| window == rotate).unwrap();
    image[at + 3] = 0x12;
    let (serial, _, status) = boot(&image, &[]);
    assert_eq!(status, Some(DONE), "{serial}");
    for sample in parse(&serial).unwrap().samples {
        let is_wrong =
            sample.crossing == GuestCrossing::with_lfence(CrossingKind::PageFault, false);
        assert_eq!(sample.counts.stamped, if is_wrong { 0 } else { 300 }, "{sample:?}");
        assert_eq!(sample.counts.check(sample.crossing.kind).is_err(), is_wrong);
    }
}

#[test]
fn every_kind_is_available_under_kvm_or_refused_with_a_fix() {
    for kind in CrossingKind::ALL {
        match crossing::guest::available(GuestCrossing::with_lfence(kind, false)) {
            Ok(()) => {}
            Err(failure) => {
                machine::untested::note(&format!("{} under KVM", kind.name()), &failure);
                assert_eq!(failure.kind, FailureKind::Unavailable);
                assert!(failure.remedy.is_some() && !failure.why.contains('\n'), "{failure}");
            }
        }
    }
}
