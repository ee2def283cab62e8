//! Files of the user: experiments, claims and figures, and errors in them.

use crate::harness::{Bench, file};

/// A file of the user in the folder of a bench.
pub(crate) struct UserFile(String);

impl UserFile {
    pub(crate) fn new(bench: &Bench, name: &str, text: &str) -> Self {
        Self(file(bench, name, text).to_str().unwrap().to_owned())
    }

    pub(crate) fn path(&self) -> &str {
        &self.0
    }
}

/// Declares an experiment `planted/NAME` that finds edges, with further keys.
pub(crate) fn edges(name: &str, keys: &str, levels: &str) -> String {
    format!(
        "[[experiment]]\nname = \"{name}\"\nsuite = \"planted\"\nmethod = \"search\"\nabout = \"edges\"\n\
         metric = \"found\"\n{keys}\n[experiment.factors]\nedge = [{levels}]\n"
    )
}

/// Declares a claim of the source `me` on the edge that an experiment finds.
pub(crate) fn edge_claim(id: &str, says: &str, experiment: &str, keys: &str) -> String {
    format!(
        "[[claim]]\nid = \"{id}\"\nsays = \"{says}\"\nsource = \"me\"\nexperiment = \"{experiment}\"\n{keys}\n"
    )
}

#[test]
fn an_invalid_user_figure_is_reported() {
    let bench = Bench::new();
    let figure = |name: &str, rest: &str| {
        let text = format!(
            "[[figure]]\nid = \"{name}\"\ntitle = \"mine\"\nexperiment = \"planted/delay\"\n{rest}\n"
        );
        UserFile::new(&bench, &format!("{name}.toml"), &text)
    };
    // Errors that do not depend on samples are reported before anything is measured.
    let claim = UserFile::new(&bench, "claim.toml", "[[claim]]\nid = 3\n");
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
        (claim, "claim.toml:2: "),
    ] {
        let line = bench.refused(&["run", "planted/delay", "-e", file.path()], 2);
        assert!(line.contains(why), "{line}");
        assert!(!bench.path().join("results").exists(), "{line}");
    }
    // Errors that depend on samples are reported at the end; the other figures are drawn.
    let several = figure("several", "x = \"disturbance\"\nwhere = { effect = [\"0%\", \"20%\"] }");
    let missing =
        figure("missing", "x = \"effect\"\nwhere = { disturbance = \"drift-and-stalls\" }");
    let (several, missing) = (several.path(), missing.path());
    let run = ["run", "planted/delay", "--rounds", "6", "-e", several, "-e", missing];
    let output = bench.run(&run);
    let (out, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{errors}");
    let message = "error: figure 'several': several levels of effect (0%, 20%)";
    assert!(errors.lines().last().unwrap().starts_with(message), "{errors}");
    assert!(out.contains("figures/ (1 figure)"), "{out}");
    assert!(errors.contains(" points in 1 experiment: about "), "{errors}");
    let line = bench.refused(&["plot", "-e", several, "-e", missing], 2);
    assert!(line.starts_with(message), "{line}");
    assert!(bench.path().join("figures/planted.svg").is_file());
    let x = figure("x", "x = \"nonsense\"");
    let x = x.path();
    for words in [&["plot", "-e", x][..], &["plot", "planted/delay", "--x", "effect", "-e", x]] {
        let line = bench.refused(words, 2);
        assert!(line.contains("x.toml:1: figure 'x': x: unknown factor 'nonsense'"), "{line}");
    }
    bench.ok(&["plot", "-e", missing]);
}

#[test]
fn user_experiments_are_measured() {
    let bench = Bench::new();
    let user_file = UserFile::new(&bench, "my.toml", &edges("two", "rounds = 2", "10, 90"));
    bench.ok(&["run", "-e", user_file.path(), "planted/two", "--quiet"]);
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
        let user_file = UserFile::new(&bench, "mine.toml", &text);
        let mine = format!("{suite}/mine");
        let line = bench.refused(&["run", "-e", user_file.path(), &mine, "--quiet"], 2);
        let factor = level.split(' ').next().unwrap();
        assert!(line.contains(&format!("factor '{factor}'")) && line.contains(limits), "{line}");
        assert!(!bench.path().join("results").exists(), "{level}");
    }
}
