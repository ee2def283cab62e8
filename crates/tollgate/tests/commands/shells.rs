//! Completions and manual pages, read by real shells and by man.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::harness::Bench;

/// Runs a shell with a script; `None`, with a record, without that shell.
fn shell(bench: &Bench, name: &str, script: &str) -> Option<String> {
    let output = Command::new(name).args(["-c", script]).current_dir(bench.path()).output();
    let Ok(output) = output else {
        machine::untested::note(
            &format!("completions of {name}"),
            &format!("{name} is not installed"),
        );
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{name}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn completions_work_in_each_shell() {
    let bench = Bench::new();
    for (name, file) in [("bash", "tollgate.bash"), ("zsh", "_tollgate"), ("fish", "tollgate.fish")]
    {
        fs::write(bench.path().join(file), bench.ok(&["completions", name])).unwrap();
    }
    let bash = "source ./tollgate.bash; COMP_WORDS=(tollgate su) COMP_CWORD=1; \
                _tollgate tollgate su tollgate; echo \"${COMPREPLY[*]}\"";
    let found = shell(&bench, "bash", bash).unwrap();
    assert_eq!(found.trim(), "summary");
    if let Some(found) = shell(&bench, "fish", "source ./tollgate.fish; complete -C 'tollgate su'")
    {
        assert!(found.starts_with("summary"), "{found}");
    }
    let zsh = "fpath=($PWD $fpath); autoload -Uz compinit; compinit -D -u; echo $_comps[tollgate]";
    if let Some(found) = shell(&bench, "zsh", zsh) {
        assert_eq!(found.trim(), "_tollgate");
    }
}

#[test]
fn each_command_has_a_manual_page_that_man_accepts() {
    let bench = Bench::new();
    bench.ok(&["man", "share/man1"]);
    let folder = bench.path().join("share/man1");
    let pages: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for page in ["tollgate.1", "tollgate-run.1", "tollgate-stream-generate.1"] {
        assert!(pages.contains(page), "{pages:?}");
    }
    let hidden = pages.iter().any(|page| page.contains("worker") || page.contains("guest-init"));
    assert!(!hidden, "{pages:?}");
    for page in &pages {
        let shown = Command::new("man")
            .args(["--warnings=w", "-l"])
            .arg(folder.join(page))
            .env("MANWIDTH", "80")
            .output();
        let Ok(shown) = shown else {
            return machine::untested::note("manual pages", &"man is not installed");
        };
        let errors = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.success() && errors.is_empty(), "{page}: {errors}");
        let text = String::from_utf8_lossy(&shown.stdout);
        assert!(text.contains("SYNOPSIS") && text.contains("DESCRIPTION"), "{page}: {text}");
    }
    let refused = bench.refused(&["man", "/proc/none"], 1);
    assert!(refused.contains("/proc/none: "), "{refused}");
}

#[test]
fn a_manual_page_replaces_a_link_and_not_the_file_it_leads_to() {
    let bench = Bench::new();
    let folder = bench.path().join("man");
    fs::create_dir(&folder).unwrap();
    let other = bench.path().join("other");
    fs::write(&other, "kept").unwrap();
    for (page, to) in [("tollgate.1", &other), ("tollgate-run.1", &bench.path().join("nothing"))] {
        std::os::unix::fs::symlink(to, folder.join(page)).unwrap();
    }
    bench.ok(&["man", "man"]);
    assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
    assert!(!bench.path().join("nothing").exists());
    for page in ["tollgate.1", "tollgate-run.1"] {
        let kind = fs::symlink_metadata(folder.join(page)).unwrap();
        assert!(kind.is_file() && kind.len() > 100, "{page}: {kind:?}");
    }
    // Again, over its own pages.
    bench.ok(&["man", "man"]);
}
