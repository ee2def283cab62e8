//! Output and errors of each command, with numbers masked.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod claims;
mod errors;
mod files;
#[path = "../harness/mod.rs"]
mod harness;
mod output;
mod progress;
mod run;
mod shells;
mod user_file;

use harness::Bench;
use lab::sample::FailureKind;

/// Replaces numbers by `#` and the host and CPU by fixed names, and collapses spaces and rules, so that
/// the text does not depend on the machine.
pub(crate) fn masked(text: &str, bench: &Bench) -> String {
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
    // Where a caption wraps depends on the names of the host and the CPU.
    out = out.replace("no noise\nfloor", "no noise floor");
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
pub(crate) fn measured() -> Bench {
    let bench = Bench::new();
    bench.ok(&["run", "planted/search", "planted/artefact", "--quiet", "--seed", "1"]);
    keep_last_attempts(&bench);
    bench
}

/// Keeps the last attempt of each sample in the journals, marks it as valid and removes the rates that show a shared
/// core: on a busy machine some samples are void or on a shared core, and tables show that.
pub(crate) fn keep_last_attempts(bench: &Bench) {
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
