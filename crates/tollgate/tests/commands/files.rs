//! Files that commands write: figures, exports and the folder of a run.

use crate::harness::Bench;
use crate::measured;

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
