//! The end of a run on one screen, and claims grouped by cause.

#![allow(clippy::unwrap_used)]

mod synthetic;

use lab::claim::{Claim, Verdict, VerdictKind};
use lab::headline::Filled;
use lab::sample::Failure;
use report::table::{NoHeadline, Page, Screen, claim, judged_claims, verdicts};

const CLAIMS: &str = r#"
[[claim]]
id = "rep-ahead"
says = "rep movsb is ahead of glibc at 4 KiB by 1.3 or more"
source = "tollgate"
experiment = "copy/throughput"
where = { length = "4 KiB", memory = "heap", direction = "write", threads = 0 }
expect = { ratio_of = { function = "rep" }, to = { function = "glibc" }, at_least = 1.3 }

[[claim]]
id = "naive-wins"
says = "The naive loop is the fastest at 16 B, however it is compiled and whatever the other functions do to be faster"
source = "a paper"
experiment = "copy/throughput"
where = { length = "16 B", memory = "heap", direction = "write", threads = 0 }
expect = { ratio_of = { function = "naive" }, to = { function = "glibc" }, at_least = 1.5 }

[[claim]]
id = "device-write"
says = "Device memory takes 1 GB/s"
source = "a paper"
experiment = "copy/throughput"
where = { length = "16 MiB", function = "glibc", threads = 0, direction = "write", memory = "device" }
expect = { at_least = 1e9 }

[[claim]]
id = "device-read"
says = "Device memory yields 1 GB/s"
source = "a paper"
experiment = "copy/throughput"
where = { length = "16 MiB", function = "glibc", threads = 0, direction = "read", memory = "device" }
expect = { at_least = 1e9 }

[[claim]]
id = "scales"
says = "It scales to 64 cores"
source = "a paper"
experiment = "copy/throughput"
cores = 64
expect = { at_least = 1e9 }

[[claim]]
id = "frames"
says = "Frames pass"
source = "a paper"
experiment = "copy/frames"
expect = { at_least = 1e9 }
"#;

fn judged() -> Vec<(Claim, Verdict)> {
    let mut run = synthetic::run(12);
    for sample in run.samples.iter_mut().filter(|it| it.point.text("memory") == "device") {
        // The detail differs between points.
        let detail = sample.point.text("direction");
        let why = format!("there is no device memory ({detail})");
        sample.error =
            Some(Failure::unavailable(why, "fit some").with_cause("there is no device memory"));
    }
    let file = lab::catalogue::DataFile::read("claims.toml", CLAIMS, None).unwrap();
    let judge = |claim: &Claim| (claim.clone(), lab::claim::judge(claim, Some(&run), 4));
    file.claims().iter().map(judge).collect()
}

fn screen(page: Page, selects_claims: bool) -> String {
    screen_of(&judged(), page, selects_claims)
}

fn screen_of(judged: &[(Claim, Verdict)], page: Page, selects_claims: bool) -> String {
    let filled = |id: &str, sentence: &str| Filled {
        id: id.into(),
        suite: "copy".into(),
        sentence: sentence.into(),
    };
    let headlines = [
        filled("a", "A copy runs at 19.7 GB/s ±1.7%, 1.80 times as fast as glibc's"),
        filled("b", "The first touch of a page takes 1.44 us ±2.0%"),
    ];
    let next = |command: &str| (command.to_owned(), "print what was measured, with reasons");
    let screen = Screen {
        suites: &[("copy", None), ("stream", Some(NoHeadline::TooFewRounds(1)))],
        headlines: &headlines,
        judged,
        selects_claims,
        failures: &["2 samples in copy/throughput: timeout".into()],
        inconsistencies: &["a part is larger than the whole".into()],
        facts: &[("measured", "12 samples on testbed".into()), ("run", "results/r-1".into())],
        commands: &[next("tollgate show"), next("tollgate claims --results elsewhere")],
    };
    screen.text(page)
}

#[test]
fn a_screen_is_readable_at_each_width() {
    let texts = [100, 80, 40].map(|width| screen(Page { width, colour: false }, false));
    insta::assert_snapshot!(texts.join("\n———\n"));
}

/// The lines of a screen are few, but no contradicted claim is left out.
#[test]
fn too_many_contradicted_claims_of_an_experiment_share_a_line() {
    let (claim, verdict) =
        judged().into_iter().find(|(_, one)| one.kind == VerdictKind::Contradicted).unwrap();
    let on = |experiment: &str, id: String| {
        (Claim { experiment: experiment.into(), id, ..claim.clone() }, verdict.clone())
    };
    let mut judged: Vec<_> = (0..30).map(|n| on("copy/frames", format!("f-{n}"))).collect();
    judged.push(on("copy/other", "other".into()));
    let text = screen_of(&judged, Page::default(), false);
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("contradicted")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("30 on copy/frames: f-0, f-1, "), "{text}");
    assert!(lines[1].contains("(other; here "), "{text}");
    let few = screen_of(&judged[28..], Page::default(), false);
    assert_eq!(few.matches("; here ").count(), 3, "{few}");
}

#[test]
fn each_selected_claim_has_a_line() {
    insta::assert_snapshot!(screen(Page::default(), true));
}

#[test]
fn claims_without_a_verdict_are_grouped() {
    let judged = judged();
    let grouped = verdicts(&judged, false, Page::default());
    insta::assert_snapshot!(grouped);
    let whole = verdicts(&judged, true, Page::default());
    for (claim, _) in &judged {
        assert!(whole.contains(&claim.id), "{}: {whole}", claim.id);
    }
    let json = serde_json::to_value(judged_claims(&judged)).unwrap();
    assert_eq!(json[0]["cause"], serde_json::Value::Null);
    assert_eq!(json[2]["cause"], "there is no device memory");
    assert_eq!(
        (&json[2]["cause"], &json[5]["cause"]),
        (&json[3]["cause"], &"not measured yet".into())
    );
}

#[test]
fn one_claim_is_shown_whole() {
    let judged = judged();
    let texts = judged.iter().take(3).map(|(it, verdict)| claim(it, verdict, Page::default()));
    insta::assert_snapshot!(texts.collect::<Vec<_>>().join("\n"));
}
