use super::*;
use lab::artefact;

#[test]
fn every_program_reports_the_result_of_its_kernel() {
    let mut tested = 0;
    for mechanism in &manifest::manifest().unwrap().mechanisms {
        for kernel in Kernel::ALL {
            let recipe = build::recipe(kernel.name(), mechanism);
            let program = match check_mechanism(mechanism).and_then(|()| artefact::prepare(&recipe))
            {
                Ok(folder) => folder.join(build::PROGRAM),
                Err(failure) if !failure.kind.is_fault() => {
                    let why = format!("{}: {failure}", mechanism.name);
                    machine::untested::note("every_program_reports_the_result_of_its_kernel", &why);
                    break;
                }
                Err(failure) => panic!("{kernel} under {}: {failure}", mechanism.name),
            };
            for (pages, size) in [(Pages::Fresh, 100_000_u64), (Pages::Prefaulted, 65_536)] {
                let arguments = [&size.to_string(), pages.name()];
                let exit = child::run(mechanism, &program, &arguments).unwrap();
                let name = format!("{kernel} under {}, {pages}", mechanism.name);
                assert!(exit.status.success(), "{name}: {}", exit.describe());
                let printed = Printed::parse(&exit.output).unwrap();
                let expected = kernel.expected(size, pages == Pages::Prefaulted);
                printed.check(expected).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(printed.memory > 100 << 10, "{name}: {} B", printed.memory);
                tested += 1;
            }
        }
    }
    assert!(tested >= 12, "no mechanism can run here");
}

#[test]
fn memory_depends_on_kernel_and_mechanism() {
    let memory = |kernel, mechanism: &str| {
        let mechanism = manifest::mechanism(mechanism).unwrap();
        let params = KernelParams { kernel, mechanism, size: 1 << 30, pages: Pages::Fresh };
        (params.memory() as f64 / f64::from(1 << 30) * 10.0).round()
    };
    assert_eq!(memory(Kernel::ArrayWrite, "gcc-tables"), 12.0);
    assert_eq!(memory(Kernel::PtrCreation, "gcc-tables"), 50.0);
    assert_eq!(memory(Kernel::Struct, "gcc"), 24.0);
}

#[test]
fn an_unavailable_mechanism_has_a_remedy() {
    for mechanism in &manifest::manifest().unwrap().mechanisms {
        if let Err(failure) = check_mechanism(mechanism) {
            assert!(!failure.kind.is_fault(), "{}: {failure}", mechanism.name);
            assert!(failure.remedy.is_some_and(|remedy| !remedy.is_empty()), "{}", mechanism.name);
        }
    }
}
