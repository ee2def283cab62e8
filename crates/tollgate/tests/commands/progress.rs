//! Progress of `run` as a user sees it: the display on terminals of 80 and of 40 columns, and plain lines without one.

use std::fs::File;
use std::io::Read;
use std::num::NonZeroU16;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use crate::harness::{Bench, Started};
use crate::{keep_last_attempts, user_file::UserFile, user_file::edges};

const ROWS: u16 = 24;
/// Silence after which a picture is complete: the program writes each one at once.
const SILENCE: Duration = Duration::from_millis(3);
const HEADLINE: &str = "planted: A search finds the edge at 70 in ";

/// Output of a program on a terminal.
struct Seen {
    columns: usize,
    /// The rows of the screen after each change, without spaces at their ends.
    screens: Vec<Vec<String>>,
    /// All bytes.
    bytes: Vec<u8>,
    status: ExitStatus,
}

/// Runs a command with its output on a terminal. `acts` is called with the process after each change of the screen.
fn seen(
    mut command: Command,
    columns: u16,
    mut acts: impl FnMut(&Child, &[String]),
) -> std::io::Result<Seen> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    tcsetwinsize(&terminal, Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
    let name = ptsname(&terminal, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let end = open(name.as_c_str(), flags, Mode::empty())?;
    // Otherwise the system would pass a picture on in pieces.
    let mut modes = tcgetattr(&end)?;
    modes.output_modes.remove(OutputModes::OPOST);
    tcsetattr(&end, OptionalActions::Now, &modes)?;
    command.stdout(end.try_clone()?).stderr(end).env_remove("NO_COLOR");
    // The terminal reports its end only if the command no longer has it either.
    let mut started = Started::new(command);
    let size = [ROWS, columns].map(|one| NonZeroU16::new(one).unwrap());
    let mut parser = vt100::Parser::new(size[0], size[1], 0);
    let (mut terminal, mut screens, mut bytes) = (File::from(terminal), Vec::new(), Vec::new());
    loop {
        let mut chunk = [0; 1 << 16];
        match terminal.read(&mut chunk) {
            // EIO: no process has the other end.
            Ok(0) | Err(_) => break,
            Ok(count) => {
                for byte in &chunk[..count] {
                    // The terminal driver of the system usually does this.
                    parser.process(if *byte == b'\n' {
                        b"\r\n"
                    } else {
                        std::slice::from_ref(byte)
                    });
                }
                bytes.extend(&chunk[..count]);
            }
        }
        let silence = Timespec { tv_sec: 0, tv_nsec: SILENCE.subsec_nanos().into() };
        if poll(&mut [PollFd::new(&terminal, PollFlags::IN)], Some(&silence))? == 0 {
            let rows = rows(&parser, columns);
            acts(&started, &rows);
            screens.push(rows);
        }
    }
    screens.push(rows(&parser, columns));
    Ok(Seen { columns: columns.into(), screens, bytes, status: started.wait()? })
}

fn rows(parser: &vt100::Parser, columns: u16) -> Vec<String> {
    parser.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect()
}

fn is_bar(row: &str) -> bool {
    row.ends_with('%') && row.contains(['━', '─'])
}

/// Returns the text below the bar, with its lines joined by spaces: a line that the terminal had wrapped would break a word.
fn below_bar(screen: &[String]) -> Option<String> {
    let bar = screen.iter().position(|row| is_bar(row))?;
    Some(screen[bar + 1..].join(" ").split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Splits the text below the bar into the time left, the round and the headline, which may be cut.
fn parts<'t>(text: &'t str, experiment: &str, rounds: u32) -> (&'t str, u32, &'t str) {
    let (state, rest) = text.split_once(experiment).unwrap_or_else(|| panic!("{text}"));
    let (left, round) = state.split_once(": round ").unwrap_or_else(|| panic!("{text}"));
    let round = round.strip_suffix(&format!(" of {rounds}, ")).unwrap_or_else(|| panic!("{text}"));
    (left, round.parse().unwrap_or_else(|_| panic!("{text}")), rest.trim_start())
}

impl Seen {
    /// Checks each screen: at most one bar, over the whole width; below it the state. Returns the texts below the bar.
    fn checked(&self, experiment: &str, rounds: u32) -> Vec<String> {
        let mut texts = Vec::new();
        for screen in &self.screens {
            let bars: Vec<_> = screen.iter().filter(|row| is_bar(row)).collect();
            assert!(bars.len() <= 1, "{screen:#?}");
            let Some(text) = below_bar(screen) else { continue };
            assert_eq!(bars[0].chars().count(), self.columns, "{screen:#?}");
            let (left, round, headline) = parts(&text, experiment, rounds);
            assert!(left == "finishing" || left.ends_with(" left"), "{screen:#?}");
            assert!((1..=rounds).contains(&round), "{screen:#?}");
            let is_headline = headline.is_empty() || headline.starts_with(HEADLINE);
            assert!(is_headline, "{screen:#?}");
            texts.push(text);
        }
        texts
    }

    /// Checks that nothing of the display is left at the end.
    fn is_clear(&self) {
        let screen = self.screens.last().unwrap();
        for row in screen {
            let is_left =
                [" left:", ": round ", HEADLINE, "finishing:"].iter().any(|it| row.contains(it));
            assert!(!is_bar(row) && !is_left, "{screen:#?}");
        }
    }
}

/// Runs on a terminal, until it ends.
#[track_caller]
fn run(bench: &Bench, columns: u16, term: &str, words: &[&str]) -> Seen {
    let mut command = bench.command(words);
    command.env("TERM", term);
    let seen = seen(command, columns, |_, _| {}).unwrap();
    let is_busy = seen.status.code() == Some(1);
    assert!(seen.status.success() || is_busy, "{}", String::from_utf8_lossy(&seen.bytes));
    seen
}

/// Returns an experiment whose name is so long that the state needs two lines in 40 columns.
fn long_name(bench: &Bench) -> UserFile {
    UserFile::new(
        bench,
        "long.toml",
        &edges("edges-of-two-machines-in-turn", "rounds = 3", "30, 70"),
    )
}

#[test]
fn experiment_round_and_time_left_are_shown_in_80_and_in_40_columns() {
    let bench = Bench::new();
    let user_file = long_name(&bench);
    let name = "planted/edges-of-two-machines-in-turn";
    for columns in [80, 40] {
        let words = ["run", "-e", user_file.path(), name, "--rounds", "12", "--fresh", "--quiet"];
        let seen = run(&bench, columns, "xterm-256color", &words);
        let texts = seen.checked(name, 12);
        let rounds: Vec<_> = texts.iter().map(|text| parts(text, name, 12).1).collect();
        assert!(rounds.is_sorted() && rounds.len() >= 2, "{rounds:?}");
        assert_eq!(
            rounds[0], 1,
            "the first picture is of the first round, with the time left: {texts:?}"
        );
        let state_lines: Vec<_> =
            seen.screens.iter().flatten().filter(|row| row.contains(": round ")).collect();
        let is_whole = |row: &&&String| row.ends_with(name);
        let whole = state_lines.iter().filter(is_whole).count();
        assert_eq!(whole, if columns == 80 { state_lines.len() } else { 0 }, "{state_lines:#?}");
        seen.is_clear();
    }
}

#[test]
fn the_newest_headline_is_shown_below_the_state() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/search", "--rounds", "6", "--quiet", "--seed", "1"]);
    // On a busy machine some rounds would be void, and the headline unknown.
    keep_last_attempts(&bench);
    for (columns, rounds) in [(80, 40), (40, 80)] {
        let rounds_text = rounds.to_string();
        let words = ["run", "planted/search", "--rounds", &rounds_text, "--quiet"];
        let seen = run(&bench, columns, "xterm-256color", &words);
        let texts = seen.checked("planted/search", rounds);
        assert!(texts.iter().any(|text| text.contains(HEADLINE)), "{columns}: {texts:#?}");
        seen.is_clear();
    }
}

#[test]
fn failures_are_printed_above_the_display() {
    let bench = Bench::new();
    let words = ["run", "planted/faults", "--where", "fault=segv", "--rounds", "3", "--quiet"];
    for columns in [80, 40] {
        let seen = run(&bench, columns, "xterm-256color", &[&words[..], &["--fresh"]].concat());
        let texts = seen.checked("planted/faults", 3);
        assert!(!texts.is_empty(), "{:#?}", seen.screens);
        let last = seen.screens.last().unwrap().concat();
        assert_eq!(last.matches("planted/faults fault=segv, round ").count(), 3, "{last}");
        assert!(last.contains("error: 3 samples failed"), "{last}");
        seen.is_clear();
    }
}

#[test]
fn an_interrupted_run_leaves_nothing_of_the_display() {
    let bench = Bench::new();
    let mut command = bench.command(&["run", "planted/search", "--rounds", "1000", "--quiet"]);
    command.env("TERM", "xterm-256color");
    let mut is_interrupted = false;
    let seen = seen(command, 80, |child, screen| {
        if !is_interrupted && below_bar(screen).is_some_and(|text| text.contains("round 2 ")) {
            is_interrupted = true;
            kill_process(Pid::from_child(child), Signal::INT).unwrap();
        }
    });
    let seen = seen.unwrap();
    assert!(is_interrupted && seen.status.code() == Some(130), "{:?}", seen.status);
    seen.is_clear();
    let last = seen.screens.last().unwrap().concat();
    assert!(last.contains("interrupted: samples are kept"), "{last}");
}

#[test]
fn without_a_terminal_there_are_plain_lines() {
    let bench = Bench::new();
    let words = ["run", "planted/search", "--rounds", "2", "--quiet", "--fresh"];
    let output = bench.command(&words).output().unwrap();
    let on_dumb = run(&bench, 80, "dumb", &words).bytes;
    for bytes in [output.stderr, on_dumb] {
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.contains(['\u{1b}', '\r', '━']), "{text:?}");
        let states: Vec<_> = text.lines().filter(|line| line.contains("round ")).collect();
        assert!(states[0].ends_with(" left: round 1 of 2, planted/search"), "{text}");
    }
    let output = bench.run(&["run", "planted/artefact", "--rounds", "1", "--quiet"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.lines().any(|line| line.starts_with("preparing ")), "{text}");
}
