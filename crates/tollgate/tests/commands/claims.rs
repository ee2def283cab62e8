//! Verdicts and checks, and runs of the points of a claim.

use crate::harness::Bench;
use crate::user_file::{UserFile, edge_claim, edges};
use crate::{keep_last_attempts, masked, measured};

#[test]
fn claims_prints_verdicts() {
    let bench = measured();
    let text = bench.ok(&["claims", "planted"]);
    assert!(!text.contains("planted-20: ") && text.contains("not measured yet"), "{text}");
    for words in [&["claims", "planted", "--all"][..], &["claims", "planted-20"]] {
        let text = bench.ok(words);
        assert!(text.contains("planted-20: ") && text.contains("not measured yet"), "{text}");
    }
    let claims = [
        ("edge-holds", "The edge at 70 is found", "edge = 70", "at_least = 69, at_most = 70"),
        ("edge-fails", "The edge at 30 is at 50", "edge = 30", "at_least = 50"),
    ];
    let claims = claims.map(|(id, says, levels, expect)| {
        let keys = format!("where = {{ {levels} }}\nrounds = 6\nexpect = {{ {expect} }}");
        edge_claim(id, says, "planted/search", &keys)
    });
    let user_file = UserFile::new(&bench, "my.toml", &claims.concat());
    let user_file = user_file.path();
    bench.ok(&["run", "planted/search", "--rounds", "6", "--quiet"]);
    keep_last_attempts(&bench);
    insta::assert_snapshot!(masked(&bench.ok(&["claims", "-e", user_file, "me"]), &bench));
    let checked = bench.run(&["claims", "-e", user_file, "me", "--check"]);
    assert_eq!(checked.status.code(), Some(1), "a contradicted claim fails the check");
    let check = |words: &[&str]| {
        let output = bench.run(&[&["claims", "-e", user_file, "--check"], words].concat());
        output.status.code().unwrap()
    };
    assert_eq!(check(&["edge-holds"]), 0);
    assert_eq!(check(&["edge-holds", "--require", "reproduced"]), 0);
    assert_eq!(check(&["edge-fails", "--require", "decided"]), 1);
    // One claim is reproduced, the other not measured.
    assert_eq!(check(&["edge-holds", "planted-20"]), 0);
    assert_eq!(check(&["edge-holds", "planted-20", "--require", "decided"]), 1);
    assert_eq!(check(&["planted-20"]), 3, "no claim was judged");
    let folder = bench.journal().folder;
    let samples = folder.join("samples.jsonl");
    let lines = std::fs::read_to_string(&samples).unwrap();
    std::fs::write(&samples, lines.replacen("\"position\":", "\"position\": ", 1)).unwrap();
    assert_eq!(check(&["edge-holds"]), 1, "the journal was edited");
    let json = bench.json(&["claims", "-e", user_file, "edge-holds", "--json"]);
    let line = json["inconsistencies"][0].as_str().unwrap();
    assert!(line.contains("the lines of session 1 in samples.jsonl are not those"), "{line}");
    std::fs::write(&samples, lines).unwrap();
    let record = folder.join("run.json");
    let kept = std::fs::read(&record).unwrap();
    std::fs::write(&record, "damaged").unwrap();
    assert_eq!(check(&["edge-holds"]), 2, "the run cannot be read");
    std::fs::write(&record, kept).unwrap();
    let json = bench.json(&["claims", "-e", user_file, "me", "--json"]);
    assert_eq!(
        (&json["claims"][0]["verdict"], &json["claims"][1]["verdict"]),
        (&"reproduced".into(), &"contradicted".into())
    );
}

#[test]
fn run_claim_measures_only_the_points_of_the_claim() {
    let bench = Bench::new();
    let text = bench.ok(&["run", "--claim", "planted-20", "--results", "r"]);
    assert!(text.contains("  planted-20: "), "{text}");
    assert!(!text.contains("planted-half"), "{text}");
    assert!(text.contains("tollgate explain planted-20 --results r"), "{text}");
    let folder = lab::journal::newest(&bench.path().join("r")).unwrap();
    let run = lab::journal::open(&folder).unwrap();
    let effects: std::collections::BTreeSet<_> = run
        .samples
        .iter()
        .filter(|sample| sample.experiment == "planted/delay")
        .map(|sample| sample.point.text("effect"))
        .collect();
    assert_eq!(effects, ["0%", "20%"].into());
}

#[test]
fn run_claim_measures_what_the_profile_skips() {
    let bench = Bench::new();
    let at_90 = "where = { edge = 90 }\nexpect = { at_least = 89, at_most = 90 }";
    let at_10 = "expect = { at_least = 9, at_most = 10 }";
    let text = [
        edges("rare", "rounds = 1\nquick = { edge = [10] }", "10, 90"),
        edges("skipped", "rounds = 1\nquick = { skip = true }", "10"),
        edge_claim("edge-90", "The edge at 90 is found", "planted/rare", at_90),
        edge_claim("edge-10", "The edge at 10 is found", "planted/skipped", at_10),
    ];
    let user_file = UserFile::new(&bench, "my.toml", &text.concat());
    bench.ok(&["run", "-e", user_file.path(), "--claim", "me", "--quiet"]);
    let run = bench.journal();
    let of_suites = run.samples.iter().filter(|one| one.experiment.starts_with("planted/"));
    let points: std::collections::BTreeSet<_> =
        of_suites.map(|one| (one.experiment.as_str(), one.point.text("edge"))).collect();
    // The twin of the other point measures the noise floor.
    let rare = [("planted/rare", "10"), ("planted/rare", "90")];
    assert!(points.is_subset(&[rare[0], rare[1], ("planted/skipped", "10")].into()), "{points:?}");
    assert!(points.contains(&rare[1]) && points.contains(&("planted/skipped", "10")), "{points:?}");
}

#[test]
fn a_check_without_a_run_exits_with_3() {
    let bench = Bench::new();
    let check = |words: &[&str]| bench.run(&[&["claims"], words].concat()).status.code().unwrap();
    assert_eq!(check(&["--check"]), 3);
    assert_eq!(check(&["--check", "--require", "reproduced"]), 3);
    assert_eq!(check(&[]), 0);
    let line = bench.refused(&["claims", "--require", "decided"], 2);
    assert!(line.contains("--check"), "{line}");
}
