//! Roles, searches, artefacts and guests, run by the program.

mod harness;

use harness::{Bench, TIMEOUT, by_level};
use lab::journal::Run;
use lab::sample::{FailureKind, Sample};

#[test]
fn two_roles_start_and_stop_together() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/roles", "--quiet"]);
    let run = bench.journal();
    for (wait, samples) in by_level(&run, "planted/roles", "wait") {
        assert_eq!(samples.len(), 3);
        let wait = wait.parse::<f64>().unwrap() * 1e3;
        for sample in samples {
            // On any machine no role starts before both are ready, and none stops before it is told to.
            let at = |role: &str, what: &str| sample.parts[role].values[&format!("{role}_{what}")];
            for (one, other) in [("dut", "generator"), ("generator", "dut")] {
                assert!(at(one, "started_at") >= at(other, "ready_at"), "{sample:?}");
            }
            assert!(at("dut", "stopped_at") >= at("generator", "stopped_at"), "{sample:?}");
            let slept = at("generator", "stopped_at") - at("generator", "started_at");
            assert!(slept >= wait, "{slept} us of {wait} us");
            let parts: Vec<_> = sample.parts.keys().map(String::as_str).collect();
            assert_eq!(parts, ["dut", "generator"]);
            assert_eq!(sample.parts["generator"].values["sent"], 1.0);
            assert!(sample.parts.values().all(|part| part.noise.is_some()));
        }
    }
}

/// Returns the samples of roles that are disturbed in every attempt.
fn disturbed(run: &Run) -> Vec<&Sample> {
    run.samples.iter().filter(|sample| sample.experiment == "planted/disturbed-roles").collect()
}

#[test]
fn disturbed_roles_are_repeated_together() {
    let bench = Bench::new();
    bench.refused(&["run", "planted/disturbed-roles", "--quiet"], 1);
    let run = bench.journal();
    let tries: Vec<_> =
        disturbed(&run).iter().map(|one| (one.attempt, one.void.is_some())).take(3).collect();
    assert_eq!(tries, [(1, true), (2, true), (3, true)], "every attempt is kept with its cause");
}

#[test]
fn a_point_void_in_every_round_is_an_error_and_stays_one() {
    for rounds in [1, 2, 3] {
        let bench = Bench::new();
        let run = ["run", "planted/disturbed-roles", "--rounds", &rounds.to_string(), "--quiet"];
        let mut lines = Vec::new();
        for _ in 0..2 {
            let line = bench.refused(&run, 1);
            assert!(line.contains("1 sample failed"), "{line}");
            let run = bench.journal();
            let samples = disturbed(&run);
            let tries = 3 * rounds;
            assert_eq!(samples.len(), tries + 1, "all void attempts and one error");
            assert!(samples[..tries].iter().all(|sample| sample.void.is_some()));
            let error = samples[tries].error.as_ref().unwrap();
            let why = format!("in every round, {tries} tries in {rounds} round");
            assert!(error.kind == FailureKind::Void && error.why.contains(&why), "{error}");
            assert!(error.why.contains("planted stall") && error.remedy.is_some(), "{error}");
            lines.push(run.samples.len());
        }
        assert_eq!(lines[0], lines[1], "a resumed run reports the error again and adds no sample");
    }
}

#[test]
fn a_search_finds_its_edge_and_keeps_every_trial() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/search", "--quiet"]);
    let run = bench.journal();
    for (edge, samples) in by_level(&run, "planted/search", "edge") {
        let edge = edge.parse::<f64>().unwrap().min(100.0);
        for sample in samples {
            let found = sample.values["found"];
            assert!(found <= edge && found > edge - 0.5, "{found} for {edge}");
            assert!(sample.trials.len() >= 3);
            let voids = sample.trials.iter().filter(|trial| trial.void.is_some()).count();
            assert_eq!(voids, sample.trials.len() / 5, "every fifth trial stalls");
        }
    }
}

#[test]
fn an_artefact_is_made_once_or_is_unavailable() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/artefact", "--quiet"]);
    let run = bench.journal();
    let levels = by_level(&run, "planted/artefact", "artefact");
    assert_eq!(levels["table"].iter().filter(|sample| sample.error.is_none()).count(), 2);
    let error = levels["impossible"][0].error.as_ref().unwrap();
    assert!(!error.kind.is_fault() && error.why.contains("cannot be made"), "{error}");
    assert_eq!(levels["impossible"].len(), 1, "an unavailable point is measured once");
    let cached = std::fs::read_dir(bench.path().join("cache/tollgate")).unwrap().flatten();
    let made: Vec<_> = cached.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    assert_eq!(made.len(), 1, "{made:?}");
}

#[test]
fn an_intact_artefact_in_a_read_only_cache_is_used() {
    let bench = Bench::new();
    let program = bench.command(&[]).get_program().to_string_lossy().into_owned();
    let measure =
        format!("{program} run planted/artefact --rounds 1 --quiet --fresh --where artefact=table");
    let mut first = bench.command(&measure.split(' ').skip(1).collect::<Vec<_>>());
    assert!(first.status().unwrap().success(), "{first:?}");
    let cache = bench.path().join("cache");
    // Locks are files too.
    for entry in std::fs::read_dir(cache.join("tollgate")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().ends_with(".lock") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let mount = format!("mount --bind {0} {0} && mount -o remount,ro,bind {0}", cache.display());
    let is_possible =
        std::process::Command::new("unshare").args(["--mount", "sh", "-ec", &mount]).status();
    if !is_possible.is_ok_and(|status| status.success()) {
        return machine::untested::note("a read-only cache", &"mounting needs root");
    }
    let here = bench.command(&[]);
    let mut second = std::process::Command::new("unshare");
    second.args(["--mount", "sh", "-ec", &format!("{mount}; {measure}")]);
    second.current_dir(bench.path());
    second.envs(here.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = second.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let run = bench.journal();
    let mut samples = run.samples.iter().filter(|one| one.experiment == "planted/artefact");
    assert!(samples.any(|sample| sample.error.is_none()), "{:?}", run.samples);
}

#[test]
fn a_guest_has_a_worker_and_its_samples_belong_to_the_host() {
    let bench = Bench::new();
    let line = bench.refused(&["run", "planted/guest", "--quiet"], 1);
    assert!(line.contains("samples failed"), "{line}");
    let run = bench.journal();
    let places = by_level(&run, "planted/guest", "place");
    for (place, inside) in [("host", 0.0), ("guest", 1.0)] {
        assert_eq!(places[place].len(), 2);
        for sample in &places[place] {
            assert_eq!(sample.values["inside"], inside, "{sample:?}");
            assert_eq!(sample.clock, None, "a count does not depend on the clock");
            assert_eq!(sample.host, run.record.host);
            assert_eq!(sample.parts.contains_key("guest"), place == "guest");
        }
    }
    for sample in &places["guest"] {
        let guest = &run.record.environments[&sample.parts["guest"].environment];
        assert_eq!(
            guest.boot_id, "",
            "the boot ID of a guest is omitted, because every start is a boot"
        );
        assert_ne!(sample.parts["guest"].environment, sample.environment);
    }
    let errors = |place: &str| -> Vec<String> {
        let samples = run.samples.iter().filter(|sample| sample.point.text("place") == place);
        samples.filter_map(|sample| Some(sample.error.as_ref()?.to_string())).collect()
    };
    let panic = errors("panic");
    assert!(panic.len() == 2 && panic[0].contains("not syncing: planted"), "{panic:?}");
    // An unavailable guest is measured once.
    let unmakeable = errors("unmakeable");
    assert!(unmakeable.len() == 1 && unmakeable[0].starts_with("unavailable"), "{unmakeable:?}");
    bench.wait_for_no_processes(TIMEOUT);
}
