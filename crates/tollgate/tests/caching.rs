//! Caching attributes of mappings in a guest with Debian's kernel: samples record the memory type of the kernel's list, and a
//! point that has another one than requested is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::collections::BTreeMap;
use std::fs;

use harness::{Bench, file};
use lab::sample::{FailureKind, Sample};

/// Bytes per copy.
const LENGTH: usize = 64 << 10;

/// Returns the recorded memory type of a sample, or the reason why the point is unavailable.
fn result(sample: &Sample) -> Result<&str, &str> {
    match &sample.error {
        None => {
            assert_eq!(sample.values.get("checked"), Some(&(LENGTH as f64)), "{sample:?}");
            assert_eq!(sample.values.len(), 1, "an emulated CPU has no time: {sample:?}");
            Ok(sample.covariates["memory_type"].as_str())
        }
        Some(failure) => {
            assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
            assert!(failure.remedy.is_some(), "{failure}");
            Err(&failure.why)
        }
    }
}

#[test]
#[ignore = "boots a guest"]
fn long_a_mapping_has_the_requested_caching_attribute_or_the_point_is_refused() {
    let bench = Bench::new();
    let guest = file(&bench, "attributes.toml", include_str!("guests/attributes.toml"));
    let files = bench.path().join("files");
    fs::create_dir(&files).unwrap();
    let output = bench
        .command_with_user_cache(&["run", "copy/caching", "--rounds", "1", "--quiet", "--guest"])
        .arg(guest)
        .arg("--guest-files")
        .arg(&files)
        .args(["--accelerator", "tcg"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");

    let run = bench.journal();
    let of_host = |sample: &&Sample| {
        sample.experiment == "copy/caching" && !sample.twin && sample.point.text("memory") != "heap"
    };
    let mut samples = BTreeMap::new();
    for sample in run.samples.iter().filter(of_host) {
        let levels = ["memory", "caching", "direction"].map(|factor| sample.point.text(factor));
        samples.entry(levels).or_insert_with(Vec::new).push(result(sample));
    }
    for direction in ["write", "read"] {
        for (memory, caching, expected) in [
            ("pci-bar", "default", Ok("uncached-minus")),
            ("pci-bar", "uncached", Ok("uncached-minus")),
            ("pci-bar", "write-combining", Ok("write-combining")),
            ("host-physical", "default", Ok("uncached-minus")),
            ("host-physical", "uncached", Ok("uncached-minus")),
            ("host-physical", "write-back", Ok("write-back")),
            (
                "host-physical",
                "write-combining",
                Err("the kernel maps host-physical uncached-minus instead of write-combining"),
            ),
            // The MTRR decides, and the kernel reports no error.
            ("device", "default", Ok("write-combining")),
            ("device", "write-combining", Ok("write-combining")),
            (
                "device",
                "uncached",
                Err("the kernel maps device write-combining instead of uncached"),
            ),
            (
                "device",
                "write-back",
                Err("the kernel maps device write-combining instead of write-back"),
            ),
            ("dax", "default", Ok("write-back")),
            ("dax", "write-back", Ok("write-back")),
        ] {
            let levels = [memory, caching, direction];
            let results = samples.get(&levels).unwrap_or_else(|| panic!("{levels:?}: {errors}"));
            assert!(results.iter().all(|one| *one == expected), "{levels:?}: {results:?}");
        }
    }
    // Each byte of the pattern is one more than the byte before it.
    let bar = fs::read(files.join("bar")).unwrap();
    let follows = |pair: &[u8]| pair[1] == pair[0].wrapping_add(1);
    assert_eq!(bar[..LENGTH].windows(2).position(|pair| !follows(pair)), None);
    // `show` counts the points of each type.
    let text = bench.ok(&["show", "copy/caching", "--metric", "checked"]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("memory_type: ") && text.contains("uncached-minus ("), "{text}");
    assert!(text.contains("write-back (") && text.contains("write-combining ("), "{text}");
}
