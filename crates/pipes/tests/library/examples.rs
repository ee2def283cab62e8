//! The programs of docs/library.md and docs/applications.md.

use std::path::Path;
use std::process::Command;

use crate::build::{self, Link, c_program, documented_c_program, python, rust_example};
use crate::process::{Nic, Running, SOCKET, all_echoed, alone};

/// Returns the commands of the echo in all languages, with a name for each.
fn echoes(folder: &Path) -> Vec<(&'static str, Command)> {
    let mut all = vec![
        ("C", Command::new(documented_c_program(folder))),
        ("C, dynamic", Command::new(c_program(folder, "examples/echo.c", Link::Dynamic))),
        ("Rust", Command::new(rust_example("echo"))),
    ];
    all.extend(python("examples/echo.py").map(|command| ("Python", command)));
    all
}

#[test]
fn the_documentation_contains_the_programs() {
    for (page, language, file) in [
        ("library.md", "rust", "echo.rs"),
        ("library.md", "c", "echo.c"),
        ("library.md", "python", "echo.py"),
        ("applications.md", "rust", "filter.rs"),
    ] {
        let name = Path::new("../../docs").join(page);
        let contents = std::fs::read_to_string(build::source(name.to_str().unwrap())).unwrap();
        let text = std::fs::read_to_string(build::source("examples").join(file)).unwrap();
        let block = format!("```{language}\n{text}```\n");
        assert!(contents.contains(&block), "docs/{page} does not contain examples/{file} as it is");
    }
}

#[test]
fn every_packet_is_echoed_by_each_language() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (language, mut command) in echoes(folder.path()) {
        command.args([SOCKET, "2"]);
        // No more than the rings hold, so a busy machine does not lose packets.
        for (sample, packets) in [("2_64_1_2.pcap", 20_000), ("50_imix_1_2.pcap", 5000)] {
            let nic = Nic::start(folder.path(), sample, &format!("20kpps --count {packets}"));
            let program = Running::start(folder.path(), &mut command);
            all_echoed(&nic.result(), packets);
            let said = program.succeeds();
            assert_eq!(said, format!("echoed {packets} packets\n"), "{language}, {sample}");
        }
    }
}

#[test]
fn an_application_of_a_user_sends_some_packets_and_drops_others() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Two destinations, of which one has an even address; more packets than the ring holds.
    let packets = 100_000;
    let nic = Nic::start(folder.path(), "2_64_1_2.pcap", &format!("20kpps --count {packets}"));
    let mut command = Command::new(rust_example("filter"));
    let program = Running::start(folder.path(), command.arg(SOCKET));
    let result = nic.result();
    let of = |name: &str| result[name].as_u64().unwrap();
    assert_eq!((of("sent"), of("received")), (packets, packets / 2), "{result}");
    assert_eq!((of("dropped"), of("corrupted"), of("late")), (0, 0, 0), "{result}");
    let half = packets / 2;
    assert_eq!(program.succeeds(), format!("sent-packets {half}\ndropped-packets {half}\n"));
}

#[test]
fn a_program_ends_when_its_nic_is_killed() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (language, mut command) in echoes(folder.path()) {
        command.args([SOCKET, "2"]);
        let mut nic = Nic::start(folder.path(), "2_64_1_2.pcap", "50kpps");
        let program = Running::start(folder.path(), &mut command);
        nic.sends();
        nic.kill();
        let said = program.succeeds();
        assert!(said.starts_with("echoed ") && said != "echoed 0 packets\n", "{language}: {said}");
    }
}

#[test]
fn a_missing_nic_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (language, mut command) in echoes(folder.path()) {
        let program = Running::start(folder.path(), command.args(["nowhere", "2"]));
        let (status, _, errors) = program.ends();
        assert_eq!(status.code(), Some(1), "{language}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{language}: {errors}");
        assert!(
            errors.starts_with("error: no NIC at nowhere (No such file"),
            "{language}: {errors}"
        );
    }
}
