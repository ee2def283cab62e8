//! Output of commands: capabilities, experiments, tables, terms and comparisons.

use crate::harness::Bench;
use crate::{keep_last_attempts, masked, measured};

#[test]
fn doctor_lists_capabilities() {
    let bench = Bench::new();
    let text = bench.ok(&["doctor"]);
    for name in ["invariant-tsc", "core-clock", "avx2", "huge-pages-2m", "dev-mem", "numa"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    let json = bench.json(&["doctor", "--json"]);
    let machine = json["groups"][0]["capabilities"].as_array().unwrap();
    let names: Vec<_> = machine.iter().map(|one| one["name"].as_str().unwrap()).collect();
    insta::assert_snapshot!(names.join("\n"));
    assert!(machine.len() >= 15);
    for one in machine {
        let state = &one["state"];
        let expected = match state["state"].as_str() {
            Some("present") => &["detail"][..],
            Some("absent") => &["reason", "remedy"],
            other => panic!("{other:?}: {one}"),
        };
        for text in expected {
            assert!(state[text].as_str().is_some_and(|text| !text.is_empty()), "{text}: {one}");
        }
    }
    // Every machine lacks something that a claim needs, e.g. MPX or 64 cores.
    let lacks = json["lacks"].as_array().unwrap();
    assert!(!lacks.is_empty() && text.contains("known before measuring"), "{text}");
    let claims: Vec<_> = lacks.iter().map(|one| one["claims"].as_u64().unwrap()).collect();
    assert!(claims.is_sorted_by(|a, b| a >= b) && claims.iter().all(|count| *count > 0), "{json}");
    let causes: std::collections::BTreeSet<_> =
        lacks.iter().map(|one| one["cause"].as_str().unwrap()).collect();
    assert_eq!(causes.len(), lacks.len(), "{json}");
}

#[test]
fn list_prints_experiments() {
    let bench = Bench::new();
    insta::assert_snapshot!(masked(
        &bench.ok(&["list", "planted/search", "planted/roles"]),
        &bench
    ));
    let text = bench.ok(&["list"]);
    assert!(text.contains("copy/throughput") && !text.contains("planted/"), "{text}");
    let json = bench.json(&["list", "--json"]);
    let copy = &json["suites"][0];
    assert!(copy["experiments"].as_array().unwrap().len() >= 5);
    assert!(copy["claims"].as_array().unwrap().len() >= 5);
    assert!(copy["figures"].as_array().unwrap().len() >= 2);
}

#[test]
fn explain_describes_each_kind_of_name() {
    let bench = Bench::new();
    for (words, parts) in [
        (&["noise", "floor"][..], &["term noise floor\n", "see also: twin, resolved"][..]),
        (&["Twins"], &["term twin\n"]),
        (
            &["planted"],
            &["suite planted\n", "figure planted\n", "declared in planted/figures.toml:"],
        ),
        (
            &["planted/delay", "--source"],
            &[
                "experiment planted/delay\n",
                "metric: time",
                "claims: planted-half",
                "  [[experiment]]\n",
            ],
        ),
        (
            &["planted-20", "--source", "--results", "r"],
            &[
                "claim planted-20\n",
                "not measured yet: tollgate run --claim planted-20 --results r\n",
                "experiment: planted/delay\n",
                "  id = \"planted-20\"",
            ],
        ),
        (
            &["mpx-gcc-struct"],
            &["origin of the number: raw_results/micro/raw.csv in the repository of Intel MPX "],
        ),
        (&["planted-edge"], &["headline planted-edge\n", "no values yet", "; --source prints it"]),
        (&["effect"], &["factor effect of planted/delay, planted/disturbed\n", "levels: 0%, "]),
        (&["load"], &["preamble and gap, in Gbps; default 100; levels: "]),
        (&["u2k"], &["metric u2k of crossing/one-way", "; ns, lower is"]),
        (&["own-core"], &["capability own-core\n", "available: "]),
    ] {
        let text = bench.ok(&[&["explain"], words].concat());
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    let line = bench.refused(&["explain", "planted-2"], 2);
    assert!(line.contains("unknown name 'planted-2'; similar: planted-20"), "{line}");
    for (name, similar) in [("noise flor", "noise floor"), ("planted-egde", "planted-edge")] {
        let line = bench.refused(&["explain", name], 2);
        assert!(line.contains(&format!("similar: {similar}")), "{line}");
    }
    let line = bench.refused(&["explain", "zzz"], 2);
    assert!(line.contains("'tollgate list SUITE' and 'tollgate claims --all'"), "{line}");
    assert!(bench.refused(&["explain"], 2).contains("explain --help"));
    let text = bench.ok(&["explain", "mpx-race-false-positive"]);
    assert!(!text.contains("origin"), "it has no number: {text}");
}

#[test]
fn claims_state_where_their_numbers_come_from() {
    let bench = Bench::new();
    let json = bench.json(&["claims", "--json"]);
    let claims = json["claims"].as_array().unwrap();
    let of_file = |file: &str| -> Vec<&str> {
        let is_of = |claim: &&serde_json::Value| {
            claim["origin"].as_str().is_some_and(|origin| origin.starts_with(file))
        };
        claims.iter().filter(is_of).filter_map(|claim| claim["id"].as_str()).collect()
    };
    let kernels = of_file("raw_results/micro/raw.csv ");
    assert_eq!(kernels.len(), 10, "the page only plots them: {kernels:?}");
    assert_eq!(
        of_file("raw_results/asm/mpx.md "),
        ["mpx-bndldx-throughput", "mpx-bndstx-throughput"]
    );
    let stated = claims.iter().find(|claim| claim["id"] == "mpx-bndldx-uops").unwrap();
    assert!(stated["origin"].is_null(), "{stated}");
}

#[test]
fn explain_describes_the_words_of_verdicts_and_comparisons() {
    let bench = Bench::new();
    for (word, meaning) in [
        ("capped", "ended at the highest load that it tries, so that the true value may be higher"),
        ("capped", "A verdict with capped rounds is inconclusive unless"),
        ("classes", "'compare' does not judge a point if no class has rounds on both sides"),
        ("spread", "not the tails within a round"),
        ("alternatives", "marks the best alternative with '*'"),
    ] {
        let text = bench.ok(&["explain", word]);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(meaning), "{text}");
    }
}

#[test]
fn show_prints_tables() {
    let bench = measured();
    insta::assert_snapshot!(masked(&bench.ok(&["show"]), &bench));
    let json = bench.json(&["show", "--json"]);
    let found = &json["experiments"][0]["rows"];
    assert_eq!(found.as_array().unwrap().len(), 3, "{found}");
    let narrow = bench.ok(&["show", "planted/search", "--where", "edge=70"]);
    assert!(narrow.contains("70") && !narrow.contains("200"), "{narrow}");
}

#[test]
fn experiments_without_a_metric_are_not_shown() {
    let bench = measured();
    let output = bench.run(&["show", "--metric", "found"]);
    let [text, messages] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{messages}");
    assert!(text.contains("planted/search") && !text.contains("planted/artefact"), "{text}");
    assert_eq!(messages, "no values of 'found', so not shown: planted/artefact\n");
    for metric in ["found", "nonsense"] {
        let line = bench.refused(&["show", "planted/artefact", "--metric", metric], 2);
        let expected =
            format!("no selected experiment has values of '{metric}'; expected one of time");
        assert!(line.contains(&expected), "{line}");
    }
}

#[test]
fn compare_prints_ratios() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.ok(&["run", "planted/search", "--quiet", "--fresh"]);
    }
    keep_last_attempts(&bench);
    let host = bench.journal().record.host;
    let (a, b) = (format!("results/{host}-quick-1"), format!("results/{host}-quick-2"));
    insta::assert_snapshot!(masked(&bench.ok(&["compare", &a, &b]), &bench));
    bench.json(&["compare", &a, &b, "--json"]);
    let line = bench.refused(&["compare", &a, "nowhere"], 2);
    assert!(line.contains("no run here; name the folder of a run or of runs"), "{line}");
}

#[test]
fn completions_contain_the_commands() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = bench.ok(&["completions", shell]);
        assert!(
            text.contains("claims") && text.contains("copy") && text.contains("audit"),
            "{shell}"
        );
    }
}
