//! The content of a page, without a browser.

use lab::experiment::Profile;
use serde_json::Value;

use crate::harness::Bench;
use crate::journal::{all_metrics, empty, measure, metrics_shown, write};

/// Returns the text of a page with the entities of HTML replaced.
fn unescaped(html: &str) -> String {
    html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

#[test]
fn a_page_has_every_claim_with_its_verdict_and_reason() {
    let bench = Bench::new();
    let mut run = empty(Profile::Quick, |one| one.suite == "copy" || one.suite == "bounds");
    measure(&mut run, 8, &metrics_shown);
    write(&run, &bench.path().join("results"));
    let line = bench.ok(&["report", "-o", "page.html"]);
    assert!(line.starts_with("page.html: ") && line.ends_with("iB\n"), "{line}");
    let page = std::fs::read_to_string(bench.path().join("page.html")).unwrap();
    let claims = bench.json(&["claims", "copy", "bounds", "--json"]);
    let claims = claims["claims"].as_array().unwrap().clone();
    let is_measured =
        |claim: &Value| run.record.experiments.contains_key(claim["experiment"].as_str().unwrap());
    let claims: Vec<Value> = claims.into_iter().filter(is_measured).collect();
    assert!(claims.len() > 100, "{}", claims.len());
    for claim in &claims {
        let id = claim["id"].as_str().unwrap();
        let start =
            page.find(&format!("id=\"claim-{id}\"")).unwrap_or_else(|| panic!("no claim {id}"));
        let item = &page[start..];
        let end = item[1..].find("id=\"claim-").or_else(|| item.find("</ul></section>"));
        let item = unescaped(&item[..end.unwrap_or(item.len())]);
        for name in ["says", "why", "source"] {
            let text = claim[name].as_str().unwrap();
            let text = if text == "tollgate" { "a promise of tollgate" } else { text };
            assert!(item.contains(text), "{id}: no {name} '{text}' in {item}");
        }
        let verdict = claim["verdict"].as_str().unwrap();
        assert!(
            item.contains(&format!(">{verdict}<")) || item.contains(">not measured<"),
            "{id}: {item}"
        );
    }
    for id in run.record.experiments.keys() {
        assert!(page.contains(&format!(">{id}</h3>")), "{id}");
    }
    let brand = &run.record.environments["e1"].cpu.brand;
    assert!(page.contains(brand) && page.contains("there is no such device"));
    assert!(page.contains("add it &lt;b&gt;here&lt;/b&gt;"));
    assert!(page.contains(">tollgate run copy bounds --rounds 10 --seed 7 --fresh<"));
}

#[test]
fn a_page_explains_its_terms_as_explain_does() {
    let bench = Bench::new();
    let mut run = empty(Profile::Quick, |one| one.id() == "bounds/checks");
    measure(&mut run, 6, &metrics_shown);
    write(&run, &bench.path().join("results"));
    bench.ok(&["report"]);
    let page = std::fs::read_to_string(bench.path().join("report.html")).unwrap();
    let page = unescaped(&page);
    let (_, reading) = page.split_once("id=\"reading\"").unwrap();
    let (reading, _) = reading.split_once("</dl>").unwrap();
    for term in ["noise floor", "twin", "void", "lag-1 correlation", "near", "promise"] {
        let explained = bench.ok(&["explain", term]);
        let (_, explained) = explained.split_once('\n').unwrap();
        let means = explained.split("see also").next().unwrap();
        let means = means.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(reading.contains(&format!(">{term}</dt><dd>{means}</dd>")), "{means} in {reading}");
    }
    let (_, verdicts) = page.split_once("table class=\"counts\"").unwrap();
    let (verdicts, _) = verdicts.split_once("</table>").unwrap();
    for name in [
        "reproduced",
        "contradicted",
        "inconclusive",
        "incomparable",
        "unmeasurable",
        "not measured",
    ] {
        let (_, row) = verdicts.split_once(&format!("scope=\"row\">{name}</th>")).unwrap();
        let (_, meaning) = row.split_once("<td class=\"meaning\">").unwrap();
        assert!(meaning.len() > 20 && !meaning.starts_with('<'), "{name}: {meaning}");
    }
}

#[test]
fn a_page_of_a_standard_run_is_small() {
    let bench = Bench::new();
    let mut run = empty(Profile::Standard, |_| true);
    // Every point is measured, with every metric of its method, so often that there are as many samples as a machine has.
    run.record.experiments.values_mut().for_each(|one| one.twins.truncate(4));
    measure(&mut run, 16, &all_metrics);
    write(&run, &bench.path().join("results"));
    bench.ok(&["report"]);
    let size = std::fs::metadata(bench.path().join("report.html")).unwrap().len();
    assert!(size <= 3_000_000, "{size}");
}

#[test]
fn errors_name_the_cause_and_write_no_page() {
    let bench = Bench::new();
    let error = bench.refused(&["report"], 2);
    assert!(error.contains("results: no run here; measure first"), "{error}");
    let mut run = empty(Profile::Quick, |one| one.id() == "copy/sizes");
    measure(&mut run, 2, &metrics_shown);
    write(&run, &bench.path().join("results"));
    let error = bench.refused(&["report", "-o", "nowhere/page.html"], 1);
    assert!(error.contains("nowhere/page.html: "), "{error}");
    let error = bench.refused(&["report", "-e", "none.toml"], 2);
    assert!(error.contains("none.toml"), "{error}");
    assert_eq!(Value::Null, bench.json(&["claims", "copy", "--json"])["guests"]);
    assert!(!bench.path().join("report.html").exists());
}
