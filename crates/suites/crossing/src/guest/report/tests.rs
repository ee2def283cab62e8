//! Complete reports are parsed exactly, and damaged ones are refused.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::line::{PREFIX, REMEDY, checksum};
use super::*;
use crate::guest::counts::TickBins;
use crate::guest::layout::{BINS_LAST, EMPTY_PAIRS};

/// Formats a report like the guest.
fn printed(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |body: String| {
        let body = format!("{PREFIX}{body}");
        let sum = checksum(&body);
        let _ = write!(text, "{body} #{sum:08x}\r\n");
    };
    let Report { rounds, crossings, warmup, seed, .. } = report;
    let samples = report.samples.len();
    line(format!(
        "begin version=3 samples={samples} rounds={rounds} crossings={crossings} warmup={warmup} seed={seed}"
    ));
    let GuestCpu { vendor, brand, signature, hypervisor, pcid } = &report.cpu;
    let yes = |value: bool| if value { "yes" } else { "no" };
    line(format!("vendor {vendor}"));
    line(format!("brand {brand}"));
    line(format!("hypervisor {}", hypervisor.as_deref().unwrap_or("")));
    let has_hypervisor = yes(hypervisor.is_some());
    line(format!("cpu signature={signature} hypervisor={has_hypervisor} pcid={}", yes(*pcid)));
    let Clocks { stated_hertz, pit_ticks, pit_count, adds, multiplies } = report.clocks;
    line(format!(
        "clock stated-hertz={stated_hertz} pit-ticks={pit_ticks} pit-count={pit_count} adds={adds} multiplies={multiplies}"
    ));
    for (position, sample) in report.samples.iter().enumerate() {
        let Sample { round, crossing, counts, adds, multiplies } = sample;
        let SampleCounts { made, stamped, cs, floor_user, floor_handler, empty, u2k, k2u } = counts;
        let GuestCrossing { kind, stamp, isolated } = crossing;
        let isolation = if *isolated { "on" } else { "off" };
        let longest = format!("{},{},{}", empty.longest, u2k.longest, k2u.longest);
        let (empty, u2k, k2u) = (bins(empty), bins(u2k), bins(k2u));
        line(format!(
            "sample position={position} round={round} kind={kind} stamp={stamp} isolation={isolation} made={made} \
             stamped={stamped} cs={cs} floor-user={floor_user} floor-handler={floor_handler} \
             adds-before={} adds-after={} multiplies-before={} multiplies-after={} longest={longest} \
             empty={empty} u2k={u2k} k2u={k2u}",
            adds[0], adds[1], multiplies[0], multiplies[1]
        ));
    }
    line(format!("end samples={samples}"));
    text
}

fn bins(times: &TickBins) -> String {
    let bins: Vec<String> = times.bins.iter().map(|(t, c)| format!("{t}:{c}")).collect();
    if bins.is_empty() { "-".into() } else { bins.join(",") }
}

prop_compose! {
    /// Bins that sum to `total`.
    fn times(total: u64)(
        ticks in proptest::collection::btree_set(0u32..=BINS_LAST as u32, 1..4),
        beyond in 0u64..1 << 40,
    ) -> TickBins {
        let mut bins: std::collections::BTreeMap<u32, u64> =
            ticks.iter().map(|ticks| (*ticks, 1)).collect();
        let rest = total - (bins.len() as u64 - 1);
        if let Some(first) = bins.values_mut().next() {
            *first = rest;
        }
        let last = bins.contains_key(&(BINS_LAST as u32));
        TickBins { bins, longest: if last { BINS_LAST as u64 + beyond } else { 0 } }
    }
}

prop_compose! {
    fn counts(crossings: u64)(
        u2k in times(crossings),
        k2u in times(crossings),
        cs in any::<u32>(),
        floors in any::<(u32, u32)>(),
    ) -> SampleCounts {
        let empty = TickBins { bins: [(26, EMPTY_PAIRS)].into(), longest: 0 };
        let (floor_user, floor_handler) = floors;
        SampleCounts { made: crossings, stamped: crossings, cs, floor_user, floor_handler, empty, u2k, k2u }
    }
}

prop_compose! {
    fn report()(rounds in 1u64..3, crossings in 4u64..1000)(
        all_counts in proptest::collection::vec(counts(crossings), GuestCrossing::COUNT * rounds as usize),
        names in ("[A-Z][a-z]{0,11}", "[A-Z][A-Za-z0-9 ()@.-]{0,40}[a-z]", proptest::option::of("[ -~]{0,12}")),
        numbers in any::<(u32, bool, u64, u64, u64)>(),
        rounds in Just(rounds),
        crossings in Just(crossings),
    ) -> Report {
        let (vendor, brand, hypervisor) = names;
        let (signature, pcid, seed, stated_hertz, pit_ticks) = numbers;
        let samples = all_counts.into_iter().zip(GuestCrossing::all().cycle()).enumerate();
        let samples = samples.map(|(index, (counts, crossing))| Sample {
            round: (index / GuestCrossing::COUNT) as u64,
            crossing,
            counts,
            adds: [28_000, seed],
            multiplies: [seed, 29_000],
        });
        Report {
            rounds,
            crossings,
            warmup: 7,
            seed,
            cpu: GuestCpu { vendor, brand, signature, hypervisor, pcid },
            clocks: Clocks { stated_hertz, pit_ticks, pit_count: 59_659, adds: 49_152, multiplies: 16_384 },
            samples: samples.collect(),
        }
    }
}

proptest! {
    #[test]
    fn any_report_is_parsed_exactly_between_other_lines(report in report(), noise in "[^t\n]{0,40}") {
        let text = printed(&report).replace("\r\n", &format!("\r\n{noise}\n"));
        prop_assert_eq!(parse(&format!("{noise}\n{text}")), Ok(report));
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = parse(&text);
    }

    /// Valid lines in any order, some missing or repeated, with changed values.
    #[test]
    fn no_sequence_of_valid_lines_panics(
        report in report(),
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
        swap in any::<(prop::sample::Index, char)>(),
    ) {
        let text = printed(&report);
        let lines: Vec<&str> = text.lines().collect();
        let mut shuffled = String::new();
        for pick in picks {
            let line = lines[pick.index(lines.len())];
            let body = line.rsplit_once(" #").map_or(line, |(body, _)| body);
            let (at, with) = (swap.0.index(body.len()), swap.1);
            let body = [&body[..at], &with.to_string(), &body[at + 1..]].concat();
            shuffled += &format!("{body} #{:08x}\n", checksum(&body));
        }
        let _ = parse(&shuffled);
    }

    #[test]
    fn a_changed_byte_never_changes_the_result(
        report in report(),
        at in any::<prop::sample::Index>(),
        byte in 0x20u8..0x7f,
    ) {
        let text = printed(&report);
        let at = at.index(text.len());
        let mut bytes = text.clone().into_bytes();
        bytes[at] = byte;
        let damaged = String::from_utf8(bytes).unwrap();
        match parse(&damaged) {
            // The change may be in a line ending.
            Ok(read) => prop_assert!(read == report),
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }

    #[test]
    fn a_truncated_report_is_refused(report in report(), at in any::<prop::sample::Index>()) {
        let text = printed(&report);
        let whole = text.trim_end().len();
        let error = parse(&text[..at.index(whole)]).unwrap_err();
        prop_assert!(error.line >= 1);
    }
}

/// Returns a report of one round.
pub(crate) fn small() -> Report {
    let times = |ticks: u32| TickBins { bins: [(ticks, 10)].into(), longest: 0 };
    let counts = SampleCounts {
        made: 10,
        stamped: 10,
        cs: 8,
        floor_user: 26,
        floor_handler: 26,
        empty: TickBins { bins: [(52, EMPTY_PAIRS)].into(), longest: 0 },
        u2k: times(520),
        k2u: times(260),
    };
    let sample = |crossing| Sample {
        round: 0,
        crossing,
        counts: counts.clone(),
        adds: [24_628, 49_204],
        multiplies: [24_628, 49_204],
    };
    Report {
        rounds: 1,
        crossings: 10,
        warmup: 1,
        seed: 1,
        cpu: GuestCpu {
            vendor: "AuthenticAMD".into(),
            brand: "AMD EPYC".into(),
            signature: 0x00a1_0f11,
            hypervisor: None,
            pcid: true,
        },
        clocks: Clocks {
            stated_hertz: 0,
            pit_ticks: 130_000_000,
            pit_count: 59_659,
            adds: 49_152,
            multiplies: 16_384,
        },
        samples: GuestCrossing::all().map(sample).collect(),
    }
}

/// Returns the error of a text.
fn refused(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn each_damage_is_reported_with_its_line_and_fix() {
    let text = printed(&small());
    let lines: Vec<&str> = text.lines().collect();
    let without = |line: usize| {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != line).map(|(_, line)| *line);
        kept.collect::<Vec<_>>().join("\n")
    };
    let damaged = text.replacen("stamped=10", "stamped=11", 1);
    assert_eq!(refused(&damaged), format!("line 7: the line is damaged: wrong checksum: {REMEDY}"));
    assert_eq!(refused(&without(8)), format!("line 9: sample 3; expected 2: {REMEDY}"));
    let repeated = text.replacen(lines[6], &format!("{}\n{}", lines[6], lines[6]), 1);
    assert_eq!(refused(&repeated), format!("line 8: sample 0; expected 1: {REMEDY}"));
    let cut = &text[..text.len() - 6];
    assert_eq!(refused(cut), format!("line 29: the line is cut off in its checksum: {REMEDY}"));
    let short = lines[..28].join("\n");
    assert_eq!(
        refused(&short),
        format!("line 28: the report ends before its line 'end': {REMEDY}")
    );
    let twice = format!("{text}{text}");
    assert_eq!(refused(&twice), "line 30: another report follows: import one report at a time");
    assert_eq!(refused(""), format!("line 1: the report ends before its line 'begin': {REMEDY}"));
    let mixed = text.replacen("tollgate-guest vendor", "GRUB tollgate-guest vendor", 1);
    assert_eq!(
        refused(&mixed),
        format!("line 2: the line does not start with the guest's prefix: {REMEDY}")
    );
}

#[test]
fn a_newer_version_and_a_fault_are_reported() {
    let line =
        |body: &str| format!("{PREFIX}{body} #{:08x}\n", checksum(&format!("{PREFIX}{body}")));
    assert_eq!(
        refused(&line("begin version=4 samples=16 rounds=1 crossings=1 warmup=0 seed=1")),
        "line 1: version 4 of the report; this program reads 3: use the version of tollgate that wrote the guest"
    );
    let header: String =
        printed(&small()).lines().take(6).map(|line| format!("{line}\n")).collect();
    let fault = line("fault vector=13 error=0 rip=1056768 cs=43 cr2=0 variant=3 isolation=0");
    assert_eq!(
        refused(&(header + &fault)),
        "line 7: unexpected exception in the guest (vector=13 error=0 rip=1056768 cs=43 \
         cr2=0 variant=3 isolation=0): run the guest again; if this repeats, the machine cannot run it"
    );
}

#[test]
fn clocks_and_the_processor_are_derived_from_the_report() {
    let report = small();
    let cpu = &report.cpu;
    assert_eq!((cpu.family(), cpu.model(), cpu.stepping()), (25, 17, 1));
    let hertz = report.tsc_hertz().unwrap();
    assert!((hertz / 2.6e9 - 1.0).abs() < 1e-4, "{hertz}");
    // 26 and 52 divide 52, 260 and 520: the step is the largest divisor.
    assert_eq!(report.step(), 52);
    let clock = report.clock(&report.samples[0]).unwrap();
    assert!((clock.core_before / hertz - 2.0).abs() < 1e-9, "{clock:?}");
    assert!((clock.core_after / hertz - 1.0).abs() < 1e-9, "{clock:?}");
    assert_eq!(clock.second_before, Some(clock.core_before));
    let measurement = report.measurement(&report.samples[0]).unwrap();
    assert!((measurement.values["u2k"] - 468.0 / hertz * 1e9).abs() < 1e-9);
    let stated = Clocks { stated_hertz: 2_600_100_000, ..report.clocks };
    assert_eq!(stated.tsc_hertz(), Some(2_600_100_000.0));
    let wrong = Clocks { stated_hertz: 2_400_000_000, ..report.clocks };
    assert_eq!(wrong.tsc_hertz(), report.clocks.tsc_hertz());
    let none = Clocks { pit_ticks: 0, ..report.clocks };
    assert_eq!(none.tsc_hertz(), None);
}

#[test]
fn the_two_core_clock_chains_must_agree() {
    let mut report = small();
    report.samples.iter_mut().for_each(|sample| sample.adds[1] = sample.adds[0]);
    // The multiplies of one sample are 4% slower, those of another are not: the majority gives the latency.
    report.samples[0].multiplies = [24_628, 25_612];
    report.samples[1].multiplies[1] = report.samples[1].multiplies[0];
    let void = |report: &Report, at: usize| report.clock(&report.samples[at]).unwrap().void();
    assert!(void(&report, 0).unwrap().contains("chains of the core clock differ by over 2%"));
    assert_eq!(void(&report, 1), None);
    // A multiply of 3.5 adds gives no latency.
    report.samples.iter_mut().for_each(|sample| sample.multiplies = [28_724; 2]);
    assert_eq!(report.clock(&report.samples[0]).unwrap().second_before, None);
}

#[test]
fn emulated_times_are_refused() {
    let mut report = small();
    report.cpu.hypervisor = Some("TCGTCGTCGTCG".into());
    let why = report.measurement(&report.samples[0]).unwrap_err().to_string();
    assert!(why.starts_with("unavailable: the guest ran on an emulated CPU"), "{why}");
}
