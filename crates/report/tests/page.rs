//! The page of synthetic runs: what it contains, and that no text of a journal becomes markup.

#![allow(clippy::unwrap_used)]

mod synthetic;

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use lab::catalogue::DataFile;
use lab::claim::{Claim, Verdict};
use lab::figure::Figure;
use lab::headline::Filled;
use lab::journal::Run;
use lab::point::Level;
use lab::sample::Failure;
use proptest::prelude::*;
use report::page::{Repetition, RunPage, SuiteHeadlines};
use report::table::NoHeadline;
use serde_json::Value;

const DATA: &str = r#"
[[claim]]
id = "naive-is-slow"
says = "SAYS"
source = "SAYS"
experiment = "EXPERIMENT"
where = { length = "4 KiB", memory = "heap", direction = "write", threads = 0 }
expect = { ratio_of = { function = "naive" }, to = { function = "glibc" }, at_most = 0.7 }

[[claim]]
id = "device"
says = "Device memory takes 1 GB/s"
source = "a paper"
experiment = "EXPERIMENT"
where = { length = "16 MiB", function = "glibc", threads = 0, direction = "write", memory = "device" }
expect = { at_least = 1e9 }

[[figure]]
id = "functions"
title = "SAYS"
experiment = "EXPERIMENT"
x = "length"
series = "function"
where = { memory = "heap", direction = "write", threads = 0 }

[[figure]]
id = "grid"
title = "SAYS"
kind = "grid"
experiment = "EXPERIMENT"
x = "length"
series = "function"
where = { memory = "heap", direction = "write", threads = 0 }
"#;

/// Returns the claims and figures on an experiment, with a text as what they say.
fn declared(experiment: &str, says: &str) -> (Vec<Claim>, Vec<Figure>) {
    let quoted = |text: &str| toml::Value::String(text.into()).to_string();
    let text = DATA.replace("\"EXPERIMENT\"", &quoted(experiment));
    let text = text.replace("\"SAYS\"", &quoted(says));
    let file = DataFile::read("data.toml", &text, None).unwrap();
    (file.claims().to_vec(), file.figures().cloned().collect())
}

/// Renders the page of a run with one experiment; `text` is in all sentences.
fn page(run: &Run, text: &str) -> String {
    let id = run.record.experiments.keys().next().unwrap().clone();
    let (claims, figures) = declared(&id, text);
    let judge = |claim: Claim| -> (Claim, Verdict) {
        let verdict = lab::claim::judge(&claim, Some(run), 4);
        (claim, verdict)
    };
    let filled = Filled { id: "a".into(), suite: "copy".into(), sentence: text.into() };
    let page = RunPage {
        run,
        terms: &[],
        suites: &[],
        experiments: &[id],
        figures: &figures,
        headlines: &[
            SuiteHeadlines { suite: "copy".into(), filled: vec![filled], missing: None },
            SuiteHeadlines {
                suite: "stream".into(),
                filled: Vec::new(),
                missing: Some(NoHeadline::TooFewRounds(1)),
            },
        ],
        judged: &claims.into_iter().map(judge).collect::<Vec<_>>(),
        unlisted_claims: 3,
        inconsistencies: &[text.to_owned()],
        repetition: &Repetition {
            command: format!("tollgate run {text}"),
            arguments: format!(" {text}"),
            limits: vec![text.to_owned()],
        },
    };
    page.html().unwrap()
}

/// Returns the data of an element.
fn decoded(page: &str, id: &str) -> Value {
    let start = page.find(&format!("<script id=\"{id}\"")).unwrap();
    let text = page[start..].split_once('>').unwrap().1.split_once('<').unwrap().0;
    let bytes = STANDARD.decode(text).unwrap();
    let mut json = String::new();
    ZlibDecoder::new(bytes.as_slice()).read_to_string(&mut json).unwrap();
    serde_json::from_str(&json).unwrap()
}

#[test]
fn a_page_shows_claims_with_values_facts_and_what_the_machine_lacks() {
    let run = synthetic::run(12);
    let page = page(&run, "A sentence");
    for part in [
        "<h1>testbed-quick-1</h1>",
        "Test CPU (family ",
        ", host testbed; profile quick; ",
        "no headlines: 1 of 6 rounds in one state of the core",
        "<li id=\"claim-naive-is-slow\" data-suite=\"copy\" data-verdict=\"reproduced\" data-kind=\"published\" data-sides=\"agree\">",
        "<li id=\"claim-device\" data-suite=\"copy\" data-verdict=\"unmeasurable\" data-kind=\"published\" data-sides=\"agree\">",
        "<dt>here</dt><dd>0.",
        ", 12 rounds",
        "noise floor ",
        "1 void sample; 1 failed round; lag-1 correlation at most ",
        "void: 1 sample (the core clock moved: 1); all repeated",
        "<figure id=\"figure-functions\"",
        "<table class=\"grid\">",
        "there is no /dev/mem",
        "boot a kernel with CONFIG_DEVMEM",
        "tollgate run copy/throughput A sentence",
        "default-src 'none'",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // The number of samples is that of the button.
    assert!(page.contains(&format!("Download {} samples (CSV)", run.samples.len())));
}

#[test]
fn data_has_the_values_of_the_journal() {
    let run = synthetic::run(12);
    let page = page(&run, "A sentence");
    let data = decoded(&page, "data");
    let figure = &data["figures"][0];
    let glibc =
        figure["curves"].as_array().unwrap().iter().find(|it| it["name"] == "glibc").unwrap();
    let mark = &glibc["marks"][1];
    assert_eq!(figure["x"]["levels"][1], "4 KiB");
    let median = mark[1].as_f64().unwrap();
    assert!((median - 150.0).abs() < 3.0, "{mark}");
    assert!(mark[2].as_f64().unwrap() < median && median < mark[3].as_f64().unwrap());
    assert!(
        mark[5].as_str().unwrap().contains("GB/s")
            && mark[5].as_str().unwrap().contains("12 rounds")
    );
    let samples = decoded(&page, "samples-copy-throughput");
    assert_eq!(samples["point"].as_array().unwrap().len(), run.samples.len());
    let states: Vec<&str> = samples["state"]["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    for state in ["used", "void", "failed", "unavailable"] {
        assert!(states.contains(&state), "{states:?}");
    }
    // Each ratio of two functions at 4 KiB is the quotient of their true values.
    let index = |name: &str, at: usize| {
        let curves = figure["curves"].as_array().unwrap();
        let curve = curves.iter().position(|it| it["name"] == name).unwrap();
        let before = curves[..curve].iter().map(|it| it["marks"].as_array().unwrap().len());
        before.sum::<usize>() + at
    };
    let (a, b) = (index("glibc", 1), index("naive", 1));
    let ratios = figure["ratios"].as_array().unwrap();
    let ratio = ratios.iter().find(|it| it[0] == a && it[1] == b).unwrap();
    assert!((ratio[2].as_f64().unwrap() - 1.0 / 0.6).abs() < 0.05, "{ratio}");
    assert_eq!((&ratio[5], &ratio[6]), (&1.into(), &12.into()));
}

/// Returns a run with a text wherever a journal has a free text.
fn hostile(text: &str) -> Run {
    let mut run = synthetic::run(6);
    let mut experiment = run.record.experiments.pop_first().unwrap().1;
    (experiment.name, experiment.about) = (text.into(), text.into());
    let id = experiment.id();
    let level = |point: &lab::point::Point| match point.text("function") {
        "rep" => point.with("function", Level::from(text)),
        _ => point.clone(),
    };
    experiment.points = experiment.points.iter().map(level).collect();
    run.record.experiments.insert(id.clone(), experiment);
    for name in
        [&mut run.record.host, &mut run.record.name, &mut run.record.program, &mut run.record.start]
    {
        *name = text.into();
    }
    let metrics = run.record.metrics.get_mut("copy").unwrap();
    metrics.get_mut("throughput").unwrap().about = text.into();
    let extra = metrics["latency"].clone();
    metrics.insert(text.into(), extra);
    let environment = run.record.environments.get_mut("e1").unwrap();
    (environment.cpu.brand, environment.kernel_release) = (text.into(), text.into());
    environment.vulnerabilities = [(text.to_owned(), text.to_owned())].into();
    environment.capabilities = vec![text.into()];
    for sample in &mut run.samples {
        sample.experiment.clone_from(&id);
        sample.point = level(&sample.point);
        sample.values.entry(text.into()).or_insert(1.0);
        sample.covariates.insert(text.into(), Level::from(text));
        sample.void = sample.void.as_ref().map(|_| text.into());
        let failure = sample.error.take();
        sample.error = failure
            .map(|it| Failure::new(it.kind, text))
            .map(|it| Failure { remedy: Some(text.into()), ..it });
    }
    run
}

/// Counts characters that begin or end markup and attributes.
fn markup(page: &str) -> [usize; 3] {
    ['<', '>', '"'].map(|one| page.matches(one).count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_text_of_a_journal_stays_text(
        text in prop_oneof![
            "x\\PC{0,30}",
            "x(</script>|<!--|<script>alert\\(1\\)</script>|\"|'|&lt;|&|onload=|\u{2028}|\u{2029}|\\]\\]>|</style>|`){1,8}",
        ]
    ) {
        let plain = page(&hostile("x"), "x");
        let page = page(&hostile(&text), &text);
        prop_assert_eq!(markup(&page), markup(&plain));
        prop_assert!(!page.contains("<script>alert"));
        // The scripts read the text unchanged.
        let data = decoded(&page, "data");
        prop_assert_eq!(&data["figures"][0]["title"], &Value::from(text.clone()));
        let id = format!("copy/{text}");
        prop_assert_eq!(&data["experiments"][0]["id"], &Value::from(id));
    }
}
