//! Samples taken in this process: every kind of memory that is here, end to end.

use lab::method::Params;
use lab::point::Point;

use super::*;
use lab::sample::FailureKind;
use machine::topology::allowed_cpus;

const SHORT: Duration = Duration::from_micros(300);

fn measure(pairs: &[(&str, &str)], options: &[(&str, &str)]) -> Result<Measurement, Failure> {
    measure_with(&mut Copies::default(), pairs, options)
}

fn measure_with(
    copies: &mut Copies,
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
        tsc: Tsc::get().unwrap(),
        options: &options,
    };
    let point =
        pairs.iter().fold(Point::default(), |point, (factor, level)| point.with(factor, *level));
    copies.measure_under(&conditions, &ThroughputParams::with_defaults(&point)?)
}

fn assert_sound(measurement: &Measurement, what: &str) {
    for metric in ["throughput", "time", "time_min", "resolution"] {
        let value = measurement.values[metric];
        assert!(value.is_finite() && value > 0.0, "{what}: {metric} = {value}");
    }
    let values = &measurement.values;
    assert!(values["time_min"] <= values["time"] && values["checked"] >= 1.0, "{what}: {values:?}");
}

#[test]
fn every_memory_that_is_here_delivers_both_ways() {
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
fn every_way_of_copying_delivers() {
    let ways: [&[(&str, &str)]; 9] = [
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
    let mut copies = Copies::default();
    for way in ways {
        let measurement = measure_with(&mut copies, way, &[]);
        let measurement = measurement.unwrap_or_else(|failure| panic!("{way:?}: {failure}"));
        assert_sound(&measurement, &format!("{way:?}"));
    }
}

#[test]
fn the_step_of_the_timer_is_small_beside_a_batch() {
    let measurement = measure(&[("length", "16 B")], &[]).unwrap();
    let (step, time) = (measurement.values["resolution"], measurement.values["time"]);
    assert!(step < time / 100.0, "{step} of {time} ns");
}

#[test]
fn the_loops_floor_is_stated_wherever_a_function_is_called() {
    for way in [&[][..], &[("length", "uniform 1..64 B")], &[("use", "latency")]] {
        let point = [&[("length", "4 KiB"), ("function", "naive")], way].concat();
        let values = measure(&point, &[]).unwrap().values;
        let (floor, time) = (values[metrics::LOOP_FLOOR], values["time"]);
        assert!(floor.is_finite() && floor > 0.0, "{way:?}: {floor} ns");
        if way.is_empty() {
            // 512 iterations of a loop are more than a call, on any processor.
            assert!(floor < time, "{floor} of {time} ns");
        }
    }
    let compiled = measure(&[("function", NAIVE_COMPILED)], &[]).unwrap();
    assert!(!compiled.values.contains_key(metrics::LOOP_FLOOR));
    let file = measure(&[("memory", "file-io")], &[]);
    assert!(file.is_err() || !file.unwrap().values.contains_key(metrics::LOOP_FLOOR));
}

#[test]
fn hardware_is_left_alone_unless_named() {
    for memory in ["host-physical", "device", "pci-bar", "dax"] {
        let failure = measure(&[("memory", memory)], &[]).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert!(failure.remedy.is_some(), "{failure}");
    }
}

/// Copies all but the last byte.
unsafe extern "C" fn short(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe { std::ptr::copy_nonoverlapping(source, destination, length - 1) }
}

/// Copies nothing.
unsafe extern "C" fn idle(_: *mut u8, _: *const u8, _: usize) {}

#[test]
fn a_function_that_does_not_copy_is_found_out() {
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
            tsc: Tsc::get().unwrap(),
            options: &options,
        };
        let mut copies = Copies::default();
        for (memory, threads) in [("heap", "0"), ("shared", "0"), ("heap", "2")] {
            let point =
                Point::from([("memory", memory), ("threads", threads), ("length", "4 KiB")]);
            let params = ThroughputParams::with_defaults(&point).unwrap();
            // A true copy first, so that right bytes are there already.
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
fn a_reader_keeps_what_was_there() {
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
