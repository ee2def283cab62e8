//! The content of a bundle, and its check.

use std::process::Command;

use machine::untested;
use serde_json::Value;

use crate::{Entries, measured, measured_in_sessions, read, write, write_bundle};

#[test]
fn the_same_run_gives_the_same_bundle_in_any_folder() {
    let bench = measured();
    let line = bench.ok(&["bundle", "-o", "a.zip"]);
    assert!(line.starts_with("a.zip: ") && line.contains("; SHA-256 "), "{line}");
    std::fs::rename(bench.path().join("results"), bench.path().join("elsewhere")).unwrap();
    bench.ok(&["bundle", "--results", "elsewhere", "-o", "b.zip"]);
    let bytes = |name: &str| std::fs::read(bench.path().join(name)).unwrap();
    assert!(bytes("a.zip") == bytes("b.zip"), "the bundles differ");
    let entries = read(&bench.path().join("a.zip"));
    for name in [
        "claims.json",
        "environments.json",
        "manifest-sha256.txt",
        "report.html",
        "ro-crate-metadata.json",
        "run.json",
        "samples.jsonl",
        "values.json",
        "verify.py",
    ] {
        assert!(entries.contains_key(name), "{name}: {:?}", entries.keys());
    }
    assert!(entries.keys().any(|name| name.starts_with("figures/") && name.ends_with(".svg")));
    let path = bench.path().display().to_string();
    for (name, bytes) in &entries {
        assert!(
            !String::from_utf8_lossy(bytes).contains(&path),
            "{name} has the path of its folder"
        );
    }
}

#[test]
fn claims_state_what_measuring_them_takes() {
    let bench = measured();
    bench.ok(&["bundle"]);
    let entries = read(&bench.path().join("bundle.zip"));
    let claims: Value = serde_json::from_slice(&entries["claims.json"]).unwrap();
    let stated = bench.json(&["claims", "--json", "--all"]);
    let verdict = |claims: &Value, id: &Value| {
        let all = claims["claims"].as_array().unwrap();
        all.iter().find(|one| one["id"] == *id).map(|one| one["verdict"].clone())
    };
    let mut measured = 0;
    for claim in claims["claims"].as_array().unwrap() {
        assert_eq!(
            Some(claim["verdict"].clone()),
            verdict(&stated, &claim["id"]),
            "{}",
            claim["id"]
        );
        let command = claim["command"].as_str().unwrap();
        assert!(command.starts_with("tollgate run --claim "), "{command}");
        let took = &claim["took"];
        if took.is_null() {
            continue;
        }
        let samples = took["samples"].as_u64().unwrap();
        // Each sample of the journal takes this time.
        let seconds = took["seconds"].as_f64().unwrap();
        assert!((seconds - samples as f64 * 0.0125).abs() < 1e-6, "{took}");
        assert!(took["disk_bytes"].as_u64().unwrap() >= samples * 200, "{took}");
        measured += usize::from(samples > 0);
    }
    assert!(measured > 10, "{measured}");
}

#[test]
fn a_check_reports_every_modification() {
    let bench = measured();
    bench.ok(&["bundle", "-o", "a.zip"]);
    let line = bench.ok(&["bundle", "--check", "a.zip"]);
    assert!(line.contains(" entries, none modified; SHA-256 "), "{line}");
    let digest = line.trim().rsplit(' ').next().unwrap().to_owned();
    bench.ok(&["bundle", "--check", "a.zip", "--sha256", &digest]);
    let original = read(&bench.path().join("a.zip"));
    let check = |modify: &dyn Fn(&mut Entries)| {
        let mut entries = original.clone();
        modify(&mut entries);
        let all = entries.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        write(&bench.path().join("b.zip"), all);
        let output = bench.run(&["bundle", "--check", "b.zip"]);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    for name in original.keys().filter(|name| *name != "manifest-sha256.txt") {
        let (status, lines) = check(&|entries| entries.get_mut(name).unwrap().push(b' '));
        assert!(status == Some(1) && lines.starts_with(&format!("{name}: modified\n")), "{lines}");
        let (status, lines) = check(&|entries| drop(entries.remove(name)));
        assert!(status == Some(1) && lines.starts_with(&format!("{name}: missing\n")), "{lines}");
    }
    let (status, lines) = check(&|entries| drop(entries.insert("more.txt".into(), Vec::new())));
    assert!(status == Some(1) && lines.starts_with("more.txt: additional"), "{lines}");
    // A list of digests that fits the modified file differs from the metadata.
    let mut entries = original.clone();
    entries.get_mut("claims.json").unwrap().push(b' ');
    write_bundle(&bench.path().join("b.zip"), entries);
    let output = bench.run(&["bundle", "--check", "b.zip"]);
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.contains("states another digest of claims.json"), "{lines}");
    let error = bench.refused(&["bundle", "--check", "run.json"], 2);
    assert!(error.contains("run.json: "), "{error}");
}

#[test]
fn a_check_reports_every_changed_byte_of_the_file() {
    let bench = measured();
    bench.ok(&["bundle", "-o", "a.zip"]);
    let original = std::fs::read(bench.path().join("a.zip")).unwrap();
    let path = bench.path().join("b.zip");
    let step = original.len() / 40 + 1;
    let last = original.len().saturating_sub(30);
    for at in (0..original.len()).step_by(step).chain(last..original.len()) {
        let mut bytes = original.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, bytes).unwrap();
        let status = bench.run(&["bundle", "--check", "b.zip"]).status.code();
        assert!(matches!(status, Some(1 | 2)), "byte {at}: {status:?}");
    }
    std::fs::write(&path, [&original[..], b"x"].concat()).unwrap();
    assert!(matches!(bench.run(&["bundle", "--check", "b.zip"]).status.code(), Some(1 | 2)));
}

#[test]
fn commands_read_a_bundle_as_its_folder() {
    let bench = measured();
    bench.ok(&["bundle"]);
    for arguments in [
        &["claims", "--json"][..],
        &["show", "--json"],
        &["export", "csv"],
        &["export", "openmetrics"],
        &["explain", "escape-memory-limit", "copy/functions"],
    ] {
        let of_folder = bench.ok(arguments);
        let of_bundle = bench.ok(&[arguments, &["--results", "bundle.zip"]].concat());
        // Commands name the results that they read.
        let of_bundle = of_bundle.replace(" --results bundle.zip", "");
        assert!(of_folder == of_bundle, "{arguments:?}");
    }
    for command in ["summary", "plot"] {
        bench.ok(&[command, "--results", "bundle.zip"]);
    }
    let entries = read(&bench.path().join("bundle.zip"));
    for (schema, file) in [
        ("bundle-claims", "claims.json"),
        ("bundle-values", "values.json"),
        ("bundle-environments", "environments.json"),
    ] {
        bench.validate(schema, &serde_json::from_slice(&entries[file]).unwrap());
    }
    bench.ok(&["report", "results/testbed-quick-1", "-o", "folder.html"]);
    bench.ok(&["report", "bundle.zip", "-o", "bundle.html"]);
    let page = std::fs::read_to_string(bench.path().join("bundle.html")).unwrap();
    let of_folder = std::fs::read_to_string(bench.path().join("folder.html")).unwrap();
    assert!(page.contains("--results bundle.zip"));
    assert!(page == of_folder.replace("results/testbed-quick-1", "bundle.zip"), "the pages differ");
    // A modified journal is read with a warning, and a check of its claims fails.
    let mut entries = read(&bench.path().join("bundle.zip"));
    let samples = entries.get_mut("samples.jsonl").unwrap();
    let text = String::from_utf8(samples.clone()).unwrap().replacen("0.0125", "0.0126", 1);
    *samples = text.into_bytes();
    let all = entries.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    write(&bench.path().join("edited.zip"), all);
    let output = bench.run(&["claims", "--check", "--results", "edited.zip"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("edited.zip: samples.jsonl is not the file that was bundled"),
        "{errors}"
    );
}

/// The lab's sample of its own overhead is written at the end of a session and lasts as long.
#[test]
fn the_measurement_ends_with_the_session() {
    let bench = measured_in_sessions();
    bench.ok(&["bundle"]);
    let entries = read(&bench.path().join("bundle.zip"));
    let text = |name: &str| String::from_utf8(entries[name].clone()).unwrap();
    let session: Value =
        serde_json::from_str(text("samples.jsonl").lines().last().unwrap()).unwrap();
    assert_eq!(session["experiment"], "lab/session");
    let at = format!("@{}", session["at"].as_f64().unwrap() as i64);
    let date =
        Command::new("date").args(["-u", "-d", &at, "+%Y-%m-%dT%H:%M:%SZ"]).output().unwrap();
    let end = String::from_utf8(date.stdout).unwrap();
    let metadata: Value = serde_json::from_str(&text("ro-crate-metadata.json")).unwrap();
    for (id, field) in [("#measurement", "endTime"), ("./", "datePublished")] {
        let graph = metadata["@graph"].as_array().unwrap().iter();
        let entity = graph.clone().find(|entity| entity["@id"] == id).unwrap();
        assert_eq!(entity[field], end.trim(), "{id}");
    }
}

/// The library of the RO-Crate community reads the metadata.
#[test]
fn a_bundle_is_an_ro_crate() {
    let Some(library) = std::env::var_os("TOLLGATE_PYTHON") else {
        untested::note("a_bundle_is_an_ro_crate", &"TOLLGATE_PYTHON names no folder with rocrate");
        return;
    };
    let bench = measured();
    bench.ok(&["bundle", "--author", "A. U. Thor", "--licence", "https://spdx.org/licenses/MIT"]);
    let program = r#"
import sys
from rocrate.rocrate import ROCrate
crate = ROCrate(sys.argv[1])
root = crate.root_dataset
print(root["author"]["name"], root["license"].id, len(crate.data_entities))
for action in crate.get_by_type("CreateAction"):
    tools = action["instrument"]
    tools = tools if isinstance(tools, list) else [tools]
    print(action.id, [one.type for one in tools], len(action["result"]))
assert all(one["sha256"] and one["contentSize"] for one in crate.data_entities)
"#;
    let mut python = Command::new("python3");
    python.arg("-c").arg(program).arg(bench.path().join("bundle.zip")).env("PYTHONPATH", library);
    let output = python.output().unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    // The list of digests is not part of the data that it lists.
    let files = read(&bench.path().join("bundle.zip")).len() - 2;
    assert!(
        text.starts_with(&format!("A. U. Thor https://spdx.org/licenses/MIT {files}\n")),
        "{text}"
    );
    assert!(text.contains("#measurement ['SoftwareApplication', 'IndividualProduct'] 2"), "{text}");
}
