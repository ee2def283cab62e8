//! Output and errors of each command, with numbers masked.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use harness::{Bench, TIMEOUT, file, full_device};
use lab::sample::FailureKind;

/// Replaces numbers by `#` and the host and CPU by fixed names, and collapses spaces and rules, so that
/// the text does not depend on the machine.
fn masked(text: &str, bench: &Bench) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut last = ' ';
        let mut masked = String::new();
        for c in line.chars() {
            let c = if c.is_ascii_digit() { '#' } else { c };
            let is_in_number = last == '#' && (c == '.' || c == '#');
            let is_repeated = c == last && matches!(c, ' ' | '─');
            if !is_in_number && !is_repeated {
                masked.push(c);
                last = c;
            }
        }
        // Disturbed samples differ between runs: remove their columns and notes.
        if ["void:", "outliers:", "core shared"].iter().any(|note| masked.starts_with(note)) {
            continue;
        }
        let words = masked.split(' ').filter(|word| !["void", "outliers"].contains(word));
        let mut masked = words.collect::<Vec<_>>().join(" ");
        while masked.contains("# #") {
            masked = masked.replace("# #", "#");
        }
        // So do the numbers of rounds.
        masked = masked.replace("# to # rounds", "# rounds");
        // The time that rounds cover has a unit that depends on the machine.
        for time in ["us", "ms", "s", "min # s"] {
            masked = masked.replace(&format!(" in # {time};"), ";");
        }
        out.push_str(masked.trim());
        out.push('\n');
    }
    let results = bench.path().join("results");
    let Ok(folder) = lab::journal::newest(&results) else { return out };
    let run = lab::journal::open(&folder).unwrap();
    for environment in run.record.environments.values() {
        out = out.replace(&environment.cpu.brand, "CPU");
    }
    out.replace(&format!("host {}", run.record.host), "host HOST")
        .replace(&format!("{}-quick", run.record.host), "HOST-quick")
}

/// Returns a bench with a run that has no void samples.
fn measured() -> Bench {
    let bench = Bench::new();
    bench.ok(&["run", "planted/search", "planted/artefact", "--quiet", "--seed", "1"]);
    keep_last_attempts(&bench);
    bench
}

/// Keeps the last attempt of each sample in the journals, marks it as valid and removes the rates that show a shared
/// core: on a busy machine some samples are void or on a shared core, and tables show that.
fn keep_last_attempts(bench: &Bench) {
    for folder in lab::journal::runs(&bench.path().join("results")).unwrap() {
        let mut last: Vec<lab::sample::Sample> = Vec::new();
        for mut sample in lab::journal::open(&folder).unwrap().samples {
            // The error of a point that is void in every round is not an attempt.
            if sample.error.as_ref().is_some_and(|error| error.kind == FailureKind::Void) {
                continue;
            }
            sample.void = None;
            // Rounds on a core that a busy SMT sibling shares would not count.
            if let Some(clock) = &mut sample.clock {
                (clock.issue_before, clock.issue_after) = (None, None);
            }
            let is_same = |one: &lab::sample::Sample| {
                let item = |one: &lab::sample::Sample| (one.twin, one.round);
                (&one.experiment, &one.point) == (&sample.experiment, &sample.point)
                    && item(one) == item(&sample)
            };
            match last.iter().position(is_same) {
                Some(index) => last[index] = sample,
                None => last.push(sample),
            }
        }
        let lines = last.iter().map(|sample| serde_json::to_string(sample).unwrap() + "\n");
        std::fs::write(folder.join(lab::journal::SAMPLES), lines.collect::<String>()).unwrap();
        let mut record = lab::journal::RunRecord::read(&folder).unwrap();
        record.sessions.iter_mut().for_each(|session| session.written = None);
        record.write(&folder).unwrap();
        // Records the lines of each session.
        let journal = lab::journal::Journal::open(&folder, || panic!("{}", folder.display()));
        journal.unwrap().save_record().unwrap();
    }
}

#[test]
fn doctor_lists_capabilities() {
    let bench = Bench::new();
    let text = bench.ok(&["doctor"]);
    for name in ["invariant-tsc", "core-clock", "avx2", "huge-pages-2m", "dev-mem", "numa"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    let json = bench.json(&["doctor", "--json"]);
    let machine = json[0]["capabilities"].as_array().unwrap();
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
    let of_claims = json.as_array().unwrap().iter().find(|one| one["of"] == "claims").unwrap();
    let lacks = of_claims["unavailable"].as_array().unwrap();
    assert!(!lacks.is_empty() && text.contains("cannot be judged"), "{text}");
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
    assert!(json[0]["experiments"].as_array().unwrap().len() >= 5);
    assert!(json[0]["claims"].as_array().unwrap().len() >= 5);
    assert!(json[0]["figures"].as_array().unwrap().len() >= 2);
}

#[test]
fn run_ends_with_one_screen() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/search", "--rounds", "6", "--quiet", "--seed", "1"]);
    keep_last_attempts(&bench);
    let output = bench.run(&["run", "planted/search", "--rounds", "7"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().count() <= 40, "{text}");
    let headline = "A search finds the edge at 70 in ";
    for part in [
        &format!("planted       {headline}"),
        "\nmeasured      ",
        "\nrun           results/",
        ": samples.csv\nnext          tollgate show planted/search",
        "\n              tollgate claims",
        "\n              tollgate run planted/search --profile standard",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(bench.journal().folder.join("samples.csv").is_file());
    // It is also shown when it becomes known.
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_headline = |line: &&str| line.starts_with(&format!("planted: {headline}"));
    assert_eq!(errors.lines().filter(is_headline).count(), 1, "{errors}");
    assert!(errors.contains(", planted/search\n"), "{errors}");
}

#[test]
fn run_prints_tables_and_json() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/search", "--quiet", "--seed", "1"]);
    keep_last_attempts(&bench);
    let text = bench.ok(&["run", "planted/search", "--tables"]);
    // `show_prints_tables` compares whole tables.
    for line in ["planted/search\n", "A search for a known edge", "\nrun: results/"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let json = bench.json(&["run", "planted/search", "--json"]);
    assert_eq!(json["samples"], 0, "nothing was left to measure");
    assert_eq!(json["tables"]["experiments"].as_array().unwrap().len(), 1);
    assert_eq!(json["headlines"], serde_json::json!([]), "there are 3 rounds");
    let one = ["run", "planted/search", "--where", "edge=30", "--rounds", "1", "--fresh"];
    let output = bench.run(&one);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("1 point in 1 experiment: about "), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("no headline"), "the points of headlines are not selected: {text}");
    for part in ["\nincomplete    0 of 1 experiment measured in the 6 rounds", "--where 'edge=30'"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = bench.ok(&["run", "planted/search", "--rounds", "1", "--fresh"]);
    assert!(text.contains("planted       no headlines: 1 of 6 rounds\n"), "{text}");
    let line = bench.refused(&["run", "planted/search", "--tables", "--json"], 2);
    assert!(line.contains("cannot be used with"), "{line}");
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
        (&["planted-edge"], &["headline planted-edge\n", "no values yet", "; --source prints it"]),
        (&["effect"], &["factor effect of planted/delay, planted/disturbed\n", "levels: 0%, "]),
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
fn claims_prints_verdicts() {
    let bench = measured();
    let text = bench.ok(&["claims", "planted"]);
    assert!(!text.contains("planted-20: ") && text.contains("not measured yet"), "{text}");
    for words in [&["claims", "planted", "--all"][..], &["claims", "planted-20"]] {
        let text = bench.ok(words);
        assert!(text.contains("planted-20: ") && text.contains("not measured yet"), "{text}");
    }
    let user_file = file(
        &bench,
        "my.toml",
        r#"
[[claim]]
id = "edge-holds"
says = "The edge at 70 is found"
source = "me"
experiment = "planted/search"
where = { edge = 70 }
rounds = 6
expect = { at_least = 69, at_most = 70 }
[[claim]]
id = "edge-fails"
says = "The edge at 30 is at 50"
source = "me"
experiment = "planted/search"
where = { edge = 30 }
rounds = 6
expect = { at_least = 50 }
"#,
    );
    let user_file = user_file.to_str().unwrap();
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
    let user_file = file(
        &bench,
        "my.toml",
        r#"
[[experiment]]
name = "rare"
suite = "planted"
method = "search"
about = "edges"
metric = "found"
rounds = 1
quick = { edge = [10] }
[experiment.factors]
edge = [10, 90]
[[experiment]]
name = "skipped"
suite = "planted"
method = "search"
about = "edges"
metric = "found"
rounds = 1
quick = { skip = true }
[experiment.factors]
edge = [10]
[[claim]]
id = "edge-90"
says = "The edge at 90 is found"
source = "me"
experiment = "planted/rare"
where = { edge = 90 }
expect = { at_least = 89, at_most = 90 }
[[claim]]
id = "edge-10"
says = "The edge at 10 is found"
source = "me"
experiment = "planted/skipped"
expect = { at_least = 9, at_most = 10 }
"#,
    );
    bench.ok(&["run", "-e", user_file.to_str().unwrap(), "--claim", "me", "--quiet"]);
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
fn plot_writes_files() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/delay", "--quiet", "--rounds", "6"]);
    let text = bench.ok(&["plot", "planted"]);
    assert_eq!(text, "figures/planted.svg\nfigures/planted.pdf\nfigures/planted.png\n");
    let json = bench.json(&["plot", "--json"]);
    assert_eq!(json["files"].as_array().unwrap().len(), 3, "{json}");
    let skipped = json["skipped"].as_array().unwrap();
    let is_skipped = |id: &str| skipped.iter().any(|one| one["figure"] == id);
    assert!(is_skipped("copy-c") && !is_skipped("planted"), "{json}");
    assert!(
        skipped.iter().all(|one| one["why"].as_str().unwrap().contains("no samples")),
        "{json}"
    );
    let adhoc = ["plot", "planted/delay", "--x", "effect", "--y", "time", "--output", "own"];
    let text = bench.ok(&adhoc);
    assert_eq!(text.lines().count(), 3, "{text}");
    let grid = ["plot", "planted/delay", "--grid", "--x", "effect", "--series", "disturbance"];
    assert_eq!(bench.ok(&grid).lines().count(), 3);
    let twice = ["plot", "planted/delay", "--x", "effect", "--series", "effect"];
    for words in [&twice[..], &[&twice[..], &["--grid"]].concat()] {
        let line = bench.refused(words, 2);
        assert!(line.contains("'x' and 'series' are the same factor"), "{line}");
    }
    let line = bench.refused(&grid[..5], 2);
    assert!(line.contains("--grid requires --x and --series"), "{line}");
    for name in text.lines().chain(["figures/planted.svg"]) {
        assert!(std::fs::metadata(bench.path().join(name)).unwrap().len() > 5_000, "{name}");
    }
    for bench in [&bench, &Bench::new()] {
        let line = bench.refused(&["plot", "planted/delay", "--x", "nonsense"], 2);
        assert!(line.contains("unknown factor 'nonsense'; expected one of "), "{line}");
        let line = bench.refused(&["plot", "planted/delay", "--x", "effect", "--y", "nonsense"], 2);
        assert!(
            line.contains("unknown metric 'nonsense' of method 'delay'; expected one of "),
            "{line}"
        );
    }
    let line = bench.refused(&["plot", "nothing"], 2);
    assert!(line.contains("unknown figure 'nothing'"), "{line}");
}

#[test]
fn an_invalid_user_figure_is_reported() {
    let bench = Bench::new();
    let figure = |name: &str, rest: &str| {
        let text = format!(
            "[[figure]]\nid = \"{name}\"\ntitle = \"mine\"\nexperiment = \"planted/delay\"\n{rest}\n"
        );
        file(&bench, &format!("{name}.toml"), &text).to_str().unwrap().to_owned()
    };
    // Errors that do not depend on samples are reported before anything is measured.
    let claim = file(&bench, "claim.toml", "[[claim]]\nid = 3\n");
    for (file, why) in [
        (
            figure("x", "x = \"nonsense\""),
            "figure 'x': x: unknown factor 'nonsense'; expected one of ",
        ),
        (figure("series", "x = \"effect\"\nseries = \"colour\""), "unknown factor 'colour'"),
        (
            figure("metric", "x = \"effect\"\nmetric = \"speed\""),
            "unknown metric 'speed' of method 'delay'",
        ),
        (
            figure("line", "x = \"effect\"\n[[figure.lines]]\nlabel = \"l\"\nmetric = \"speed\""),
            "unknown metric 'speed' of method 'delay'",
        ),
        (claim.to_str().unwrap().to_owned(), "claim.toml:2: "),
    ] {
        let line = bench.refused(&["run", "planted/delay", "-e", &file], 2);
        assert!(line.contains(why), "{line}");
        assert!(!bench.path().join("results").exists(), "{line}");
    }
    // Errors that depend on samples are reported at the end; the other figures are drawn.
    let several = figure("several", "x = \"disturbance\"\nwhere = { effect = [\"0%\", \"20%\"] }");
    let missing =
        figure("missing", "x = \"effect\"\nwhere = { disturbance = \"drift-and-stalls\" }");
    let run = ["run", "planted/delay", "--rounds", "6", "-e", &several, "-e", &missing];
    let output = bench.run(&run);
    let (out, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{errors}");
    let message = "error: figure 'several': several levels of effect (0%, 20%)";
    assert!(errors.lines().last().unwrap().starts_with(message), "{errors}");
    assert!(out.contains("figures/ (1 figure)"), "{out}");
    assert!(errors.contains(" points in 1 experiment: about "), "{errors}");
    let line = bench.refused(&["plot", "-e", &several, "-e", &missing], 2);
    assert!(line.starts_with(message), "{line}");
    assert!(bench.path().join("figures/planted.svg").is_file());
    let x = figure("x", "x = \"nonsense\"");
    for words in [&["plot", "-e", &x][..], &["plot", "planted/delay", "--x", "effect", "-e", &x]] {
        let line = bench.refused(words, 2);
        assert!(line.contains("x.toml:1: figure 'x': x: unknown factor 'nonsense'"), "{line}");
    }
    bench.ok(&["plot", "-e", &missing]);
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
    bench.ok(&["compare", &a, &b, "--json"]);
    let line = bench.refused(&["compare", &a, "nowhere"], 2);
    assert!(line.contains("no run here; name the folder of a run or of runs"), "{line}");
}

#[test]
fn export_writes_every_format() {
    let bench = measured();
    let csv = bench.ok(&["export", "csv"]);
    let rows = bench.journal().samples.len();
    assert_eq!(csv.lines().count(), rows + 1);
    let json = bench.json(&["export", "json"]);
    assert!(json.is_object());
    bench.ok(&["export", "parquet", "-o", "samples.parquet"]);
    let parquet = std::fs::read(bench.path().join("samples.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
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

#[test]
fn an_export_replaces_only_regular_files() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    use std::os::unix::fs::FileTypeExt;
    let bench = Bench::new();
    bench.ok(&["run", "planted/artefact", "--quiet", "--rounds", "1"]);
    let csv = bench.ok(&["export", "csv"]);
    let to = |path: &str| bench.ok(&["export", "csv", "-o", path]);
    let kind = |name: &str| std::fs::symlink_metadata(bench.path().join(name)).unwrap().file_type();
    // Like /dev/stdout, which a bug would make root lose.
    std::os::unix::fs::symlink("/proc/self/fd/1", bench.path().join("stdout")).unwrap();
    assert_eq!(to("stdout"), csv);
    assert!(kind("stdout").is_symlink());
    assert_eq!(to("new.csv"), "");
    assert_eq!(std::fs::read_to_string(bench.path().join("new.csv")).unwrap(), csv);

    std::os::unix::fs::symlink("new.csv", bench.path().join("link.csv")).unwrap();
    std::fs::write(bench.path().join("new.csv"), "old").unwrap();
    to("link.csv");
    assert!(kind("link.csv").is_symlink());
    assert_eq!(std::fs::read_to_string(bench.path().join("new.csv")).unwrap(), csv);

    let fifo = bench.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::read_to_string(fifo).unwrap()
    });
    to("fifo");
    assert_eq!(reader.join().unwrap(), csv);
    assert!(kind("fifo").is_fifo());

    // Copies of /dev/null and /dev/full, because a bug would make root lose those.
    for (name, minor) in [("null", 3), ("full", 7)] {
        let node = bench.path().join(name);
        let made =
            mknodat(CWD, &node, FileType::CharacterDevice, Mode::from(0o600), makedev(1, minor));
        let opened = made.map_err(std::io::Error::from);
        match opened.and_then(|()| std::fs::File::options().write(true).open(&node)) {
            Ok(_) if name == "null" => drop(to(name)),
            Ok(_) => {
                let line = bench.refused(&["export", "csv", "-o", name], 1);
                assert!(line.contains("full: ") && line.contains("free space"), "{line}");
            }
            Err(why) => {
                machine::untested::note("export to a device node", &why);
                continue;
            }
        }
        assert!(kind(name).is_char_device(), "{name}");
    }
    std::os::unix::fs::symlink("missing", bench.path().join("nowhere")).unwrap();
    std::fs::create_dir(bench.path().join("folder")).unwrap();
    for (name, remedy) in [
        ("none/out.csv", "create its folder first"),
        ("nowhere", "choose another file"),
        ("folder", "choose another file"),
    ] {
        let line = bench.refused(&["export", "csv", "-o", name], 1);
        assert!(line.contains(&format!("{name}: ")) && line.contains(remedy), "{line}");
        assert!(!line.contains("free space") && !line.contains(".tollgate-"), "{line}");
    }
    let names = std::fs::read_dir(bench.path()).unwrap().map(|one| one.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".new")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_run_writes_only_into_its_folder() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let bench = Bench::new();
    let again = ["run", "planted/delay", "--rounds", "1"];
    bench.ok(&again);
    let folder = bench.journal().folder;
    let victim = bench.path().join("victim");
    std::fs::write(&victim, "kept").unwrap();
    let figures = std::fs::read_dir(folder.join("figures")).unwrap();
    let mut planted: Vec<_> = figures.map(|entry| entry.unwrap().path()).collect();
    assert!(!planted.is_empty(), "no figure was drawn");
    planted.push(folder.join("samples.csv"));
    for path in &planted {
        std::fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink(&victim, path).unwrap();
    }
    bench.ok(&again);
    std::fs::remove_file(folder.join("samples.csv")).unwrap();
    mknodat(CWD, folder.join("samples.csv"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    bench.ok(&again);
    for path in &planted {
        assert!(std::fs::symlink_metadata(path).unwrap().is_file(), "{}", path.display());
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");

    std::fs::remove_dir_all(folder.join("figures")).unwrap();
    std::os::unix::fs::symlink(bench.path(), folder.join("figures")).unwrap();
    let line = bench.refused(&again, 1);
    assert!(line.contains("figures: not a directory; remove it"), "{line}");
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

#[test]
fn user_experiments_are_measured() {
    let bench = Bench::new();
    let user_file = file(
        &bench,
        "my.toml",
        r#"
[[experiment]]
name = "two"
suite = "planted"
method = "search"
about = "two edges"
metric = "found"
rounds = 2
[experiment.factors]
edge = [10, 90]
"#,
    );
    bench.ok(&["run", "-e", user_file.to_str().unwrap(), "planted/two", "--quiet"]);
    let run = bench.journal();
    // Two points and a twin in two rounds; disturbed samples may have further attempts.
    let is_complete =
        |one: &&lab::sample::Sample| one.experiment == "planted/two" && one.is_complete();
    assert_eq!(run.samples.iter().filter(is_complete).count(), 2 * 3);
    // A run records its experiments, so the file need not be named again.
    bench.ok(&["plot", "planted/two", "--x", "edge"]);
    let line = bench.refused(&["plot", "planted/two", "--x", "effect"], 2);
    assert!(line.contains("x: unknown factor 'effect'; expected one of edge"), "{line}");
}

#[test]
fn a_text_filter_ignores_default_levels() {
    let bench = Bench::new();
    // Its points have disturbance=calm by default.
    let line = bench.refused(&["run", "planted/roles", "-f", "calm"], 2);
    assert!(line.contains("no point is selected"), "{line}");
    bench.ok(&["run", "planted/roles", "-f", "wait=2", "--rounds", "1", "--quiet"]);
}

#[test]
fn levels_out_of_range_are_usage_errors() {
    let bench = Bench::new();
    for (suite, method, metric, level, limits) in [
        ("crossing", "one-way", "u2k", "crossings = 100000001", "from 1 to 100000000"),
        ("crossing", "one-way", "u2k", "crossings = 0", "from 1 to 100000000"),
        ("crossing", "tracepoint", "u2t", "crossings = 100000001", "from 1 to 100000000"),
        ("bounds", "races", "wrong", "pointers = 65537", "from 1 to 65536"),
        ("bounds", "races", "wrong", "accesses = 10000000001", "from 1 to 10000000000"),
        ("bounds", "tables", "table", "count = 10000001", "from 1 to 10000000"),
        ("bounds", "kernels", "per_operation", "size = \"17 GiB\"", "from 1 B to 16 GiB"),
        ("bounds", "kernels", "per_operation", "size = \"0 B\"", "from 1 B to 16 GiB"),
        ("planted", "search", "found", "edge = 1001", "from 0 to 1000"),
        ("planted", "roles", "waited", "wait = 10001", "from 0 to 10000"),
    ] {
        let text = format!(
            "[[experiment]]\nname = \"mine\"\nsuite = \"{suite}\"\nmethod = \"{method}\"\n\
             about = \"too much\"\nmetric = \"{metric}\"\n[experiment.factors]\n{level}\n"
        );
        let user_file = file(&bench, "mine.toml", &text);
        let mine = format!("{suite}/mine");
        let line = bench.refused(&["run", "-e", user_file.to_str().unwrap(), &mine, "--quiet"], 2);
        let factor = level.split(' ').next().unwrap();
        assert!(line.contains(&format!("factor '{factor}'")) && line.contains(limits), "{line}");
        assert!(!bench.path().join("results").exists(), "{level}");
    }
}

#[test]
fn the_duration_of_a_target_interval_is_forecast() {
    let bench = Bench::new();
    let words = ["run", "planted/delay", "--resolve", "20%", "--quiet"];
    for forecast in ["for all rounds; a better estimate follows", "estimated from earlier rounds"] {
        let output = bench.run(&words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && errors.contains("intervals within 20%"), "{errors}");
        assert!(errors.contains(forecast), "{errors}");
    }
}

#[test]
fn usage_errors_are_one_line_with_status_2() {
    let bench = Bench::new();
    let wrong = file(&bench, "wrong.toml", "[[experiment]]\nname = 3\n");
    let huge = file(&bench, "huge.toml", &"# \n".repeat(400_000));
    let cases: [(&[&str], &str); 13] = [
        (&["run", "nothing"], "unknown suite or experiment 'nothing'"),
        (&["run", "--where", "colour=red"], "unknown factor 'colour'"),
        (&["run", "planted/search", "--where", "edge"], "not FACTOR=LEVEL"),
        (&["run", "planted", "--resolve", "0"], "error: --resolve: '0' is not a share, e.g. '2%'"),
        (&["run", "-e", "missing.toml"], "missing.toml"),
        (&["run", "-e", wrong.to_str().unwrap()], "wrong.toml:"),
        (&["run", "-e", huge.to_str().unwrap()], "has more than 1048576 bytes"),
        (&["run", "-e", "/dev/zero"], "has more than 1048576 bytes"),
        (
            &["run", "planted/search", "--rounds", "4000000000"],
            "rounds: 4000000000 is out of range; use 1",
        ),
        (&["run", "planted/search", "--rounds", "0"], "rounds: 0 is out of range; use 1 to 10000"),
        (
            &["run", "planted/search", "--where", "edge=30", "--where", "edge=70"],
            "factor 'edge' is named twice",
        ),
        (&["run", "planted/search", "--resolve", "nan"], "--resolve: 'nan' is not a share"),
        (&["claims", "nobody"], "unknown claim, source or suite 'nobody'"),
    ];
    for (arguments, why) in cases {
        let line = bench.refused(arguments, 2);
        assert!(line.contains(why), "{line}");
    }
    let unknown: [(&[&str], &str); 11] = [
        (&[], "tollgate: missing command; see tollgate --help"),
        (&["stream"], "tollgate stream: missing command; see tollgate stream --help"),
        (&["measure"], "unrecognized subcommand 'measure'"),
        (
            &["run", "--round", "3"],
            "a similar argument exists: '--rounds'; see tollgate run --help",
        ),
        (&["run", "--rounds"], "a value is required for '--rounds"),
        (&["run", "--profile", "quik"], "similar value exists: 'quick'; see tollgate run --help"),
        (&["run", "--priority", "99"], "99 is not in -20..=19"),
        (
            &["run", "--allow", "everything"],
            "unknown name 'everything'; available: bpf, code, cpufreq,",
        ),
        (&["run", "--set", "colour=red"], "unknown name 'colour'; available: apex, dax-device,"),
        (&["copy", "--colour"], "unexpected argument '--colour' found"),
        (&["bounds", "table", "--colour"], "see tollgate bounds table --help"),
    ];
    for (arguments, why) in unknown {
        let line = bench.refused(arguments, 2);
        assert!(line.contains(why), "{line}");
        let errors = bench.run(arguments).stderr;
        assert_eq!(String::from_utf8_lossy(&errors).lines().count(), 1, "{arguments:?}");
    }
    let line = bench.refused(&["show"], 1);
    assert!(line.contains("measure first"), "{line}");
    // Control characters of an argument do not reach the terminal.
    let line = bench.refused(&["run", "a\u{1b}[31m\u{7}\nb"], 2);
    assert!(!line.contains(['\u{1b}', '\u{7}']), "{line:?}");
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let bench = measured();
    let script = format!("{} show | head -1", env!("CARGO_BIN_EXE_tollgate"));
    let mut command = std::process::Command::new("sh");
    let output = command.args(["-c", &script]).current_dir(bench.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("planted/search"));
    // The reader exits before anything is written.
    let script = format!("(sleep 1; {} completions bash) | true", env!("CARGO_BIN_EXE_tollgate"));
    let mut command = std::process::Command::new("sh");
    let output = command.args(["-c", &script]).current_dir(bench.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_full_standard_output_is_an_error() {
    let bench = Bench::new();
    for words in [
        &["list"] as &[&str],
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["copy", "--help"],
        &["crossing", "--help"],
        &["bounds", "table", "--help"],
    ] {
        let Some(full) = full_device("output to a full disk") else { return };
        let output = bench.command(words).stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {errors}");
        assert!(errors.starts_with("error: standard output: "), "{words:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{words:?}: {errors}");
        // A closed pipe is not an error.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = bench.command(words).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn a_file_over_the_size_limit_is_an_error() {
    use std::os::unix::process::CommandExt;
    let bench = Bench::new();
    let mut command = bench.command(&["stream", "pcap", "--packets", "1000"]);
    // SAFETY: setrlimit is async-signal-safe and reads only a local structure.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 8 << 10, rlim_max: 8 << 10 };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}: {errors}", output.status);
    assert!(errors.starts_with("error: ") && errors.lines().count() == 1, "{errors}");
    assert!(errors.contains("raise the limit of file sizes (ulimit -f)"), "{errors}");
    let left = std::fs::read_dir(bench.path()).unwrap().count();
    assert_eq!(left, 0, "no file is left");
}
