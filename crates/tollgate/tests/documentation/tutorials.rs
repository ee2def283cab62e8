//! The tutorials, step by step as a user follows them: a block that starts with a comment of a file's name is that file, and
//! a block of shell is run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::Bench;
use crate::page::{self, Block, Page, source};

/// Returns the name of the file that a block contains: its first line is `# NAME` or `/* NAME */`.
fn file_name(block: &Block) -> Option<&str> {
    let first = block.text.lines().next()?;
    let name = first.trim_start_matches(['#', '/', '*', ' ']).trim_end_matches(['*', '/', ' ']);
    (name != first && name.contains('.') && !name.contains(' ')).then_some(name)
}

/// Runs a block of shell in the folder of the bench, with this program as `tollgate`.
fn shell(bench: &Bench, text: &str) -> Output {
    // Of a run, which sets what tests need.
    let program = bench.command(&[]);
    let mut command = Command::new("bash");
    let folder = bench.path().join("bin");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    command.args(["-euo", "pipefail", "-c", text]).current_dir(bench.path());
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("PATH", path).env("SOURCE", source()).output().unwrap()
}

/// Follows a tutorial, whose commands `adapt` may change. Returns what they printed; `None`, with a record, if the machine was
/// too busy for a point.
fn follow(bench: &Bench, name: &str, adapt: impl Fn(&str) -> String) -> Option<String> {
    let bin = bench.path().join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tollgate"), bin.join("tollgate")).unwrap();
    let path = Path::new("docs/tutorials").join(name);
    let page = page::all().into_iter().find(|page| page.path == path).unwrap();
    let mut printed = String::new();
    for block in page.blocks() {
        if let Some(file) = file_name(&block) {
            fs::write(bench.path().join(file), &block.text).unwrap();
        } else {
            assert_eq!(
                block.language, "sh",
                "{name}: neither a file nor a command: {}",
                block.text
            );
            let text = adapt(&block.text);
            let output = shell(bench, &text);
            let [out, errors] = [&output.stdout, &output.stderr]
                .map(|text| String::from_utf8_lossy(text).into_owned());
            if errors.contains(": void: in every round") {
                machine::untested::note(
                    &format!("the tutorial {name}"),
                    &"points were void in every round",
                );
                return None;
            }
            assert!(output.status.success(), "{name}: {text}\n{out}{errors}");
            printed += &out;
        }
    }
    Some(printed)
}

fn unchanged(text: &str) -> String {
    text.to_owned()
}

#[test]
fn the_tutorial_of_claims_judges_its_claim() {
    let bench = Bench::new();
    let Some(printed) = follow(&bench, "claim.md", unchanged) else { return };
    assert!(printed.contains("term round"), "{printed}");
    let text = fs::read_to_string(bench.path().join("verdict.json")).unwrap();
    let verdict: serde_json::Value = serde_json::from_str(&text).unwrap();
    let claim = &verdict["claims"][0];
    assert_eq!(claim["id"], "wake-up-by-pipe");
    // A busy machine may leave it open.
    let kind = claim["verdict"].as_str().unwrap();
    assert!(["reproduced", "inconclusive"].contains(&kind), "{claim}");
}

#[test]
fn the_tutorial_of_copies_measures_and_draws() {
    let bench = Bench::new();
    let Some(printed) = follow(&bench, "copy.md", unchanged) else { return };
    assert!(printed.contains("./libcopy.so:my_copy"), "{printed}");
    for file in ["figures/mine.svg", "figures/mine.pdf", "mine.csv", "mine.html"] {
        assert!(fs::metadata(bench.path().join(file)).unwrap().len() > 1000, "{file}");
    }
}

#[test]
fn the_tutorial_of_allocators_compares_them() {
    let bench = Bench::new();
    let Some(printed) = follow(&bench, "allocator.md", unchanged) else { return };
    assert!(printed.contains("speed-up") && printed.contains("./libmine.a"), "{printed}");
}

/// Returns the folder in which cargo puts the C library of the pipes, if it has been built.
fn pipes() -> Option<PathBuf> {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    folder.join("libtollgate_pipes.a").exists().then_some(folder)
}

#[test]
fn the_tutorial_of_nic_programs_echoes_every_packet() {
    let Some(folder) = pipes() else {
        let what = "the tutorial of NIC programs";
        return machine::untested::note(what, &"the C library is built by a test of all crates");
    };
    if machine::topology::allowed_cpus().len() < 2 {
        return machine::untested::note("the tutorial of NIC programs", &"requires two CPUs");
    }
    let bench = Bench::new();
    // The library that the tests of all crates have built.
    let built = format!("\"{}\"/libtollgate_pipes.a", folder.display());
    let adapt = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("cargo build"));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        text.replace("\"$SOURCE\"/target/release/libtollgate_pipes.a", &built)
    };
    let Some(printed) = follow(&bench, "nic-program.md", adapt) else { return };
    assert!(printed.contains("echoed 20000 packets"), "{printed}");
    let text = fs::read_to_string(bench.path().join("result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&result["received"], &result["lost"]), (&20_000.into(), &0.into()), "{result}");
}

#[test]
fn each_tutorial_is_followed() {
    let tutorials = page::all().into_iter().filter(|page| page.path.starts_with("docs/tutorials"));
    let names = tutorials.map(|Page { path, .. }| path.file_name().unwrap().to_owned());
    let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(names, ["allocator.md", "claim.md", "copy.md", "nic-program.md"]);
}
