//! Published values that apply to some machines and points, and claims that require a machine.

use lab::claim::VerdictKind::{
    self, Contradicted, Incomparable, Inconclusive, NotMeasured, Reproduced, Unmeasurable,
};
use lab::guest::GuestsRecord;
use lab::journal::Run;
use lab::measure::EXECUTED_BY;
use lab::sample::{Failure, Part, Sample};
use machine::cpu::Cpu;
use machine::cpu::CpuClock;
use machine::environment::Environment;

use crate::made_up::{MadeUp, fail, product};
use crate::{assert_kind, reasons, verdict};

/// Returns a run of two functions with the value 10 GB/s on a machine with a Skylake CPU.
fn on_skylake() -> Run {
    let points = product(&["glibc", "apex"], &["4 KiB"], &["0"]);
    let mut run = MadeUp::new(points).run(|_| 10e9);
    let cpu = Cpu { vendor: "GenuineIntel".into(), family: 6, model: 94, ..Cpu::default() };
    let machine = Environment {
        cpu,
        capabilities: vec!["sgx".into()],
        nics: vec!["8086:1572".into()],
        ..Environment::default()
    };
    run.record.environments.insert("e1".into(), machine);
    run
}

fn value_of(setup: &str, value: &str) -> String {
    format!(
        "carries_over = {setup}\n\
         published = {{ value = {value}, unit = \"B/s\", tolerance = \"20%\", on = \"a Skylake\" }}"
    )
}

#[test]
fn a_value_is_judged_on_its_hardware_only() {
    let run = on_skylake();
    for (setup, applies) in [
        ("{ cpu = \"Intel family 6 model 94\" }", true),
        ("{ cpu = [\"AMD family 25\", \"Intel family 6\"] }", true),
        ("{ cpu = \"Intel family 6 model 63\" }", false),
        ("{ cpu = \"AMD family 6 model 94\" }", false),
        ("{ capability = \"sgx\", nic = \"8086:1572\", hypervisor = false }", true),
        ("{ capability = \"mpx\" }", false),
        ("{ nic = \"1172:0000\" }", false),
        ("{ hypervisor = true }", false),
        ("{ cpu = \"Intel family 6\", hypervisor = true }", false),
    ] {
        let expected = |judged: VerdictKind| if applies { judged } else { Incomparable };
        assert_kind(&value_of(setup, "11e9"), &run, expected(Reproduced));
        assert_kind(&value_of(setup, "20e9"), &run, expected(Contradicted));
    }
    let elsewhere = value_of("{ cpu = \"AMD family 25\" }", "10e9");
    let verdict = assert_kind(&elsewhere, &run, Incomparable);
    let unmet = r#""needed":"AMD family 25","found":"Intel family 6 model 94""#;
    assert!(reasons(&verdict).contains(unmet), "{verdict:?}");
    let mut unknown = run.clone();
    unknown.record.environments.clear();
    assert_kind(&value_of("{ cpu = \"Intel family 6\" }", "10e9"), &unknown, Incomparable);
}

#[test]
fn a_point_without_a_value_matters_only_where_the_value_applies() {
    let mut run = on_skylake();
    fail(&mut run, &Failure::failed("broke"), |point| point.text("function") == "apex");
    assert_kind(&value_of("{ cpu = \"Intel family 6\" }", "10e9"), &run, Inconclusive);
    let elsewhere = value_of("{ cpu = \"AMD family 25\" }", "10e9");
    assert_kind(&elsewhere, &run, Incomparable);
    // It needs none, nor a profile, where it does not apply.
    fail(&mut run, &Failure::failed("broke"), |_| true);
    assert_kind(&elsewhere, &run, Incomparable);
    assert_kind(&format!("where = {{ function = \"gone\" }}\n{elsewhere}"), &run, Incomparable);
    assert_kind(&format!("profile = \"full\"\n{elsewhere}"), &run, Incomparable);
    let here = value_of("{ cpu = \"Intel family 6\" }", "10e9");
    assert_kind(&format!("where = {{ function = \"gone\" }}\n{here}"), &run, NotMeasured);
    assert_kind(&format!("profile = \"full\"\n{here}"), &run, NotMeasured);
}

#[test]
fn only_preferred_points_are_judged_if_they_have_values() {
    let points = product(&["glibc", "apex"], &["4 KiB"], &["0"]);
    let is_apex = |point: &lab::point::Point| point.text("function") == "apex";
    let mut run = MadeUp::new(points).run(|point| if is_apex(point) { 20e9 } else { 10e9 });
    let keys = "prefer = { function = \"apex\" }\nexpect = { at_least = 15e9 }";
    assert_kind(keys, &run, Reproduced);
    assert_kind("expect = { at_least = 15e9 }", &run, Contradicted);
    fail(&mut run, &Failure::unavailable("no apex", "install it"), is_apex);
    assert_kind(keys, &run, Contradicted);
}

#[test]
fn a_value_may_apply_to_some_points() {
    let keys = |value: &str| value_of("{ where = { function = \"apex\" } }", value);
    let mut run = on_skylake();
    let verdict = assert_kind(&keys("10e9"), &run, Reproduced);
    let kinds: Vec<_> = verdict.judgements.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [Reproduced, Incomparable]);
    assert_kind(&keys("30e9"), &run, Contradicted);
    // Without the point the other's value is shown.
    fail(&mut run, &Failure::unavailable("no apex", "install it"), |point| {
        point.text("function") == "apex"
    });
    let verdict = assert_kind(&keys("10e9"), &run, Incomparable);
    let unmet = r#""needed":"function=apex","found":"function=glibc""#;
    assert!(reasons(&verdict).contains(unmet), "{verdict:?}");
    fail(&mut run, &Failure::failed("broke"), |point| point.text("function") == "apex");
    assert_kind(&keys("10e9"), &run, Inconclusive);
}

#[test]
fn a_claim_may_require_a_machine() {
    let run = on_skylake();
    let keys = |setup: &str| format!("requires = {setup}\nexpect = {{ at_least = 1e9 }}");
    assert_kind(&keys("{ hypervisor = false }"), &run, Reproduced);
    let verdict = assert_kind(&keys("{ hypervisor = true }"), &run, Unmeasurable);
    assert!(reasons(&verdict).contains("other-machine"), "{verdict:?}");
}

/// Returns the run of an emulated CPU that claims to be a Skylake without a hypervisor.
fn on_hidden_emulator() -> Run {
    let mut run = on_skylake();
    run.record.environments.get_mut("e1").unwrap().emulated = true;
    run
}

/// Returns the run in guests.
fn in_guests(accelerator: &str, clock: CpuClock) -> Run {
    let mut run = on_skylake();
    let (name, declaration) = ("mine".to_owned(), String::new());
    let accelerator = accelerator.to_owned();
    run.record.guests = Some(GuestsRecord { name, declaration, accelerator, clock });
    run
}

#[test]
fn an_emulated_cpu_shows_nothing_about_a_real_one() {
    let published = value_of("{ cpu = \"Intel family 6 model 94\" }", "10e9");
    let promise = "expect = { never = { above = 30e9 } }";
    let on_metal = "requires = { hypervisor = false }\nexpect = { at_least = 1e9 }";
    let capability = "requires = { capability = \"sgx\" }\nexpect = { at_least = 30e9 }";
    for keys in [published.as_str(), "expect = { at_least = 1e9 }", on_metal, capability] {
        for run in [on_hidden_emulator(), in_guests("tcg", CpuClock::Untimed)] {
            let verdict = assert_kind(keys, &run, Unmeasurable);
            assert!(reasons(&verdict).contains("\"needed\":\"a real CPU\""), "{verdict:?}");
        }
    }
    assert_kind(promise, &on_hidden_emulator(), Unmeasurable);
    assert_kind(promise, &in_guests("kvm", CpuClock::Real), Reproduced);
    assert_kind(on_metal, &in_guests("kvm", CpuClock::Real), Reproduced);
}

#[test]
fn a_sample_that_an_emulator_executed_on_a_real_host_shows_nothing_about_a_cpu() {
    let keys = "expect = { at_least = 1e9 }";
    let with = |change: &dyn Fn(&mut Sample)| {
        let mut run = on_skylake();
        let emulated = Environment { emulated: true, ..run.record.environments["e1"].clone() };
        run.record.environments.insert("inside".into(), emulated);
        // One sample is enough.
        change(run.samples.last_mut().unwrap());
        run
    };
    let in_guest = |environment: &str| {
        let part = Part { environment: environment.into(), ..Part::default() };
        with(&|sample| drop(sample.parts.insert("guest".into(), part.clone())))
    };
    let by = |emulator: &str| {
        with(&|sample| drop(sample.covariates.insert(EXECUTED_BY.into(), emulator.into())))
    };
    for run in [in_guest("inside"), by("tcg")] {
        let refused = assert_kind(keys, &run, Unmeasurable);
        assert!(reasons(&refused).contains("one emulated by TCG"), "{refused:?}");
        assert_kind(&format!("emulated = true\n{keys}"), &run, Reproduced);
        // A claim about other points is not affected.
        let other = format!("where = {{ length = \"no such\" }}\n{keys}");
        let judged = verdict(&other, &run);
        assert!(!reasons(&judged).contains("emulated"), "{judged:?}");
    }
    for run in [in_guest("e1"), by("the-cpu")] {
        assert_kind(keys, &run, Reproduced);
    }
}

#[test]
fn a_claim_about_counts_is_judged_on_an_emulated_cpu_but_never_from_a_planted_clock() {
    let keys = "emulated = true\nexpect = { at_least = 1e9 }";
    assert_kind(keys, &on_hidden_emulator(), Reproduced);
    assert_kind(keys, &in_guests("tcg", CpuClock::Untimed), Reproduced);
    let verdict = assert_kind(keys, &in_guests("tcg", CpuClock::Planted), Unmeasurable);
    assert!(reasons(&verdict).contains("a planted clock"), "{verdict:?}");
    // An emulator is a hypervisor.
    let on_metal = format!("requires = {{ hypervisor = false }}\n{keys}");
    let verdict = assert_kind(&on_metal, &on_hidden_emulator(), Unmeasurable);
    assert!(reasons(&verdict).contains("an emulated CPU"), "{verdict:?}");
    assert_kind(&on_metal.replace("false", "true"), &on_hidden_emulator(), Reproduced);
}
