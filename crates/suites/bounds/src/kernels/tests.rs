use super::*;
use lab::artefact;

/// Every kernel under every mechanism that can run here does what the kernel does.
#[test]
fn every_program_does_what_its_kernel_does() {
    let mut tested = 0;
    for mechanism in &manifest::manifest().unwrap().mechanisms {
        for kernel in kernel::NAMES {
            let recipe = build::recipe(kernel, mechanism);
            let made = ready(mechanism).and_then(|()| artefact::prepare(&recipe));
            let program = match made {
                Ok(folder) => folder.join(build::PROGRAM),
                Err(lack) if !lack.kind.is_fault() => {
                    let why = format!("{}: {lack}", mechanism.name);
                    machine::untested::note("every_program_does_what_its_kernel_does", &why);
                    break;
                }
                Err(failure) => panic!("{kernel} under {}: {failure}", mechanism.name),
            };
            for (pages, size) in [("fresh", 100_000_u64), (PREFAULTED, 65_536)] {
                let ended = child::run(mechanism, &program, &[&size.to_string(), pages]).unwrap();
                let name = format!("{kernel} under {}, {pages}", mechanism.name);
                assert!(ended.status.success(), "{name}: {}", ended.told());
                let printed = Printed::parse(&ended.output).unwrap();
                let expected = Kernel::of(kernel).unwrap().expected(size, pages == PREFAULTED);
                printed.check(expected).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(printed.memory > 100 << 10, "{name}: {} B", printed.memory);
                tested += 1;
            }
        }
    }
    assert!(tested >= 12, "no mechanism at all can run here");
}

#[test]
fn memory_follows_kernel_and_mechanism() {
    let memory = |kernel: &str, mechanism: &str| {
        let point = Point::from([
            ("kernel", kernel),
            ("mechanism", mechanism),
            ("size", "1 GiB"),
            ("pages", "fresh"),
        ]);
        (Setting::of(&point).unwrap().memory() as f64 / f64::from(1 << 30) * 10.0).round()
    };
    assert_eq!(memory("arraywrite", "gcc-tables"), 12.0);
    assert_eq!(memory("ptrcreation", "gcc-tables"), 50.0);
    assert_eq!(memory("struct", "gcc"), 24.0);
}

#[test]
fn what_the_machine_lacks_is_said() {
    for mechanism in &manifest::manifest().unwrap().mechanisms {
        if let Err(failure) = ready(mechanism) {
            assert!(!failure.kind.is_fault(), "{}: {failure}", mechanism.name);
            assert!(failure.remedy.is_some_and(|remedy| !remedy.is_empty()), "{}", mechanism.name);
        }
    }
}

#[test]
fn sizes_are_bounded_and_the_bounds_are_told() {
    let of = |size: &str| {
        let words =
            [("kernel", "struct"), ("mechanism", "gcc"), ("size", size), ("pages", "fresh")];
        Setting::of(&Point::from(words)).map(|setting| setting.size)
    };
    assert_eq!(of("16 GiB"), Ok(MAX_SIZE));
    for size in ["0 B", "17 GiB", "8192 TiB"] {
        let failure = of(size).err().unwrap();
        assert_eq!(failure.why, format!("an array of {size}"));
        assert_eq!(failure.remedy.as_deref(), Some("choose a size from 1 B to 16 GiB"));
    }
}
