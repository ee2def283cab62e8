//! Samples taken in this process, end to end, for every kind of memory that is available.

use lab::method::{AnyMethod, Params, complete};
use lab::point::Point;

use super::*;
use lab::sample::FailureKind;
use machine::topology::allowed_cpus;

const SHORT: Duration = Duration::from_micros(300);

fn measure(pairs: &[(&str, &str)], options: &[(&str, &str)]) -> Result<Measurement, Failure> {
    measure_with(&mut ThroughputProbe::default(), pairs, options)
}

fn measure_with(
    copies: &mut ThroughputProbe,
    pairs: &[(&str, &str)],
    options: &[(&str, &str)],
) -> Result<Measurement, Failure> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let options = options.iter().map(owned).collect();
    let cpus = allowed_cpus();
    let conditions = Conditions {
        budget: SHORT,
        seed: 7,
        cpus: &cpus,
        tsc: Some(Tsc::get().unwrap()),
        options: &options,
    };
    let point =
        pairs.iter().fold(Point::default(), |point, (factor, level)| point.with(factor, *level));
    copies.measure_under(&conditions, &ThroughputParams::with_defaults(&point)?)
}

fn assert_sound(measurement: &Measurement, case: &str) {
    for metric in ["throughput", "time", "time_min", "resolution"] {
        let value = measurement.values[metric];
        assert!(value.is_finite() && value > 0.0, "{case}: {metric} = {value}");
    }
    let values = &measurement.values;
    assert!(values["time_min"] <= values["time"] && values["checked"] >= 1.0, "{case}: {values:?}");
}

#[test]
fn every_available_memory_delivers_in_both_directions() {
    let kinds = [
        "heap",
        "heap-huge",
        "shared",
        "file-mapped",
        "file-io",
        "numa-node-0",
        "numa-node-1",
        "host-physical",
        "device",
        "pci-bar",
        "dax",
    ];
    for memory in kinds {
        for direction in ["write", "read"] {
            for length in ["1 B", "4 KiB", "100003 B", "log-uniform 1 B..4 KiB"] {
                let point = [
                    ("memory", memory),
                    ("direction", direction),
                    ("length", length),
                    ("offset", "15"),
                ];
                match measure(&point, &[]) {
                    Ok(measurement) => assert_sound(&measurement, &format!("{point:?}")),
                    Err(failure) => {
                        assert_eq!(failure.kind, FailureKind::Unavailable, "{point:?}: {failure}");
                        machine::untested::note(&format!("copies, memory {memory}"), &failure);
                    }
                }
            }
        }
    }
}

#[test]
fn every_combination_of_modes_delivers() {
    let points: [&[(&str, &str)]; 9] = [
        &[("use", "latency")],
        &[("use", "latency"), ("length", "uniform 1..64 B"), ("buffers", "rotating")],
        &[("buffers", "rotating"), ("length", "4 KiB")],
        &[("touch", "cold"), ("length", "100 B")],
        &[("touch", "cold"), ("memory", "shared"), ("length", "mix fleet")],
        &[("touch", "cold"), ("direction", "read"), ("length", "64 KiB"), ("threads", "2")],
        &[("threads", "3"), ("length", "mix records")],
        &[("threads", "2"), ("mode", "split"), ("length", "uniform 1..1000 B")],
        &[("threads", "2"), ("memory", "shared"), ("buffers", "rotating"), ("length", "64 KiB")],
    ];
    let mut copies = ThroughputProbe::default();
    for point in points {
        let measurement = measure_with(&mut copies, point, &[]);
        let measurement = measurement.unwrap_or_else(|failure| panic!("{point:?}: {failure}"));
        assert_sound(&measurement, &format!("{point:?}"));
    }
}

#[test]
fn a_timer_step_is_under_one_percent_of_a_copy() {
    let measurement = measure(&[("length", "16 B")], &[]).unwrap();
    let (step, time) = (measurement.values["resolution"], measurement.values["time"]);
    assert!(step < time / 100.0, "{step} of {time} ns");
}

#[test]
fn the_loop_floor_is_reported_if_a_function_is_called() {
    for levels in [&[][..], &[("length", "uniform 1..64 B")], &[("use", "latency")]] {
        let point = [&[("length", "4 KiB"), ("function", "naive")], levels].concat();
        let values = measure(&point, &[]).unwrap().values;
        let (floor, time) = (values[metrics::LOOP_FLOOR], values["time"]);
        assert!(floor.is_finite() && floor > 0.0, "{levels:?}: {floor} ns");
        if levels.is_empty() {
            // 512 iterations of a loop take longer than a call on any CPU.
            assert!(floor < time, "{floor} of {time} ns");
        }
    }
    let compiled = measure(&[("function", NAIVE_COMPILED)], &[]).unwrap();
    assert!(!compiled.values.contains_key(metrics::LOOP_FLOOR));
    let file = measure(&[("memory", "file-io")], &[]);
    assert!(file.is_err() || !file.unwrap().values.contains_key(metrics::LOOP_FLOOR));
}

#[test]
fn hardware_is_not_touched_unless_named() {
    for memory in ["host-physical", "device", "pci-bar", "dax"] {
        let failure = measure(&[("memory", memory)], &[]).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert!(failure.remedy.is_some(), "{failure}");
    }
}

/// Copies all but the last byte.
unsafe extern "C" fn short(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller guarantees the same contract.
    unsafe { std::ptr::copy_nonoverlapping(source, destination, length - 1) }
}

/// Copies no bytes.
unsafe extern "C" fn idle(_: *mut u8, _: *const u8, _: usize) {}

#[test]
fn a_function_that_does_not_copy_fails_the_check() {
    let cpus = allowed_cpus();
    let mut options = BTreeMap::new();
    for kept in [false, true] {
        if kept {
            options.insert(SOURCE_OFFSET.to_owned(), "3".to_owned());
        }
        let conditions = Conditions {
            budget: SHORT,
            seed: 7,
            cpus: &cpus,
            tsc: Some(Tsc::get().unwrap()),
            options: &options,
        };
        let mut copies = ThroughputProbe::default();
        for (memory, threads) in [("heap", "0"), ("shared", "0"), ("heap", "2")] {
            let point =
                Point::from([("memory", memory), ("threads", threads), ("length", "4 KiB")]);
            let params = ThroughputParams::with_defaults(&point).unwrap();
            // A correct copy first, so that the right bytes are already in the destination.
            let glibc = functions::find("glibc").unwrap();
            copies.with_function(&conditions, &params, glibc.pointer()).unwrap();
            for broken in [short as CopyFn, idle as CopyFn] {
                let failure = copies.with_function(&conditions, &params, broken).unwrap_err();
                assert_eq!(failure.kind, FailureKind::Check, "{memory} {threads}: {failure}");
            }
        }
    }
}

#[test]
fn a_missing_byte_that_should_be_zero_fails_the_check() {
    let (cpus, options) = (allowed_cpus(), BTreeMap::new());
    let tsc = Some(Tsc::get().unwrap());
    let conditions = Conditions { budget: SHORT, seed: 7, cpus: &cpus, tsc, options: &options };
    for direction in ["write", "read"] {
        // The last byte of the first pattern of a probe is 0, as in new memory.
        let point = Point::from([("direction", direction), ("length", "4 KiB")]);
        let params = ThroughputParams::with_defaults(&point).unwrap();
        let mut copies = ThroughputProbe::default();
        let failure = copies.with_function(&conditions, &params, short).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Check, "{direction}: {failure}");
    }
}

#[test]
fn only_a_shared_object_stands_for_apex() {
    let apex = |options: &[(&str, &str)]| measure(&[("function", "apex")], options);
    let absent = apex(&[]).unwrap_err();
    assert_eq!(absent.kind, FailureKind::Unavailable);
    assert!(absent.remedy.unwrap().contains("--set apex=PATH.so:SYMBOL"));
    let ours = apex(&[("apex", "tollgate")]).unwrap_err();
    assert_eq!(ours.kind, FailureKind::Failed);
    assert_eq!(ours.why, "option apex: 'tollgate' names no symbol; write PATH.so:SYMBOL");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).unwrap();
    let memcpy = format!("{libc}:memcpy");
    assert_sound(&apex(&[("apex", &memcpy)]).unwrap(), "memcpy as apex");
    let point = complete(ThroughputParams::FACTORS, &Point::from([("function", "apex")]));
    let code = |options| AnyMethod::code(&Throughput, &point, &options);
    assert_eq!(code(BTreeMap::from([("apex".into(), memcpy.clone())])).as_deref(), Some(libc));
    assert_eq!(code(BTreeMap::new()), None);
}

#[test]
fn a_reader_keeps_the_memorys_contents() {
    let options = [(KEEP_MEMORY, "")];
    let measurement = measure(&[("memory", "shared"), ("direction", "read")], &options).unwrap();
    assert_sound(&measurement, "kept");
}

#[test]
fn a_slow_copy_is_made_once() {
    let measurement = measure(&[("length", "4 B")], &[(PAUSE, "1")]).unwrap();
    assert!(measurement.values["time"] > 1e9);
    assert_eq!(measurement.values["checked"], 4.0);
}
