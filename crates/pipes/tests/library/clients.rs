//! Several programs of one NIC.

use std::path::Path;
use std::process::Command;

use crate::build::{Link, c_program, python};
use crate::process::{Nic, Running, SOCKET, all_echoed, alone};

/// Starts a program of `tests/programs/client.c` that binds the address `first` and waits for a line before it is ready.
fn client(folder: &Path, program: &Path, first: u32, ring: &str, mode: &str) -> Running {
    let mut command = Command::new(program);
    let mut running =
        Running::start(folder, command.args([SOCKET, &first.to_string(), ring, mode]));
    running.says("bound");
    running
}

#[test]
fn sixty_four_programs_share_a_nic() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = c_program(folder.path(), "tests/programs/client.c", Link::Static);
    let nic = Nic::start(folder.path(), "64_64_1_64.pcap", "10kpps --count 6400");
    let mut clients: Vec<_> =
        (0..64).map(|first| client(folder.path(), &program, first, "65536", "echo")).collect();
    let mut command = Command::new(&program);
    let one_more = Running::start(folder.path(), command.args([SOCKET, "64", "65536", "echo"]));
    let (status, _, errors) = one_more.ends();
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("-4: ") && errors.contains("the limit is 64 programs"), "{errors}");
    clients.iter_mut().for_each(|client| client.tell("go"));
    all_echoed(&nic.result(), 6400);
    for client in clients {
        assert_eq!(client.succeeds(), "echoed 100 packets\n");
    }
}

#[test]
fn packets_are_copied_to_a_transmit_pipe() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = c_program(folder.path(), "tests/programs/client.c", Link::Static);
    // More than both rings hold, so they wrap around.
    let nic = Nic::start(folder.path(), "7_imix_1_1.pcap", "1kpps --count 6000");
    let mut client = client(folder.path(), &program, 0, "1048576", "copy");
    client.tell("go");
    all_echoed(&nic.result(), 6000);
    assert_eq!(client.succeeds(), "echoed 6000 packets\n");
}

#[test]
fn a_program_that_waits_for_memory_ends_with_its_nic() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = c_program(folder.path(), "tests/programs/client.c", Link::Static);
    let mut nic = Nic::start(folder.path(), "1_64_1_1.pcap", "1kpps");
    let mut client = client(folder.path(), &program, 0, "65536", "flood");
    client.tell("go");
    nic.sends();
    // It now waits for a NIC that does nothing.
    nic.signal(libc::SIGSTOP);
    std::thread::sleep(std::time::Duration::from_millis(200));
    nic.kill();
    let (status, _, errors) = client.ends();
    assert_eq!(status.code(), Some(0), "{errors}");
    assert!(errors.contains("-5: the NIC has stopped"), "{errors}");
}

#[test]
fn programs_come_and_go_without_an_effect_on_others() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = c_program(folder.path(), "tests/programs/client.c", Link::Static);
    let mut nic = Nic::start(folder.path(), "2_64_1_2.pcap", "2kpps");
    let mut first = client(folder.path(), &program, 0, "0", "echo");
    first.tell("go");
    nic.sends();
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGKILL] {
        let mut second = client(folder.path(), &program, 1, "0", "echo");
        second.tell("go");
        nic.sends();
        second.signal(signal);
        let (status, said, errors) = second.ends();
        if signal == libc::SIGTERM {
            assert!(status.success() && said != "echoed 0 packets\n", "{said}{errors}");
        }
    }
    // Another language takes over the flow.
    if let Some(mut command) = python("tests/programs/counted.py") {
        let said = Running::start(folder.path(), command.args([SOCKET, "1", "100"])).succeeds();
        assert_eq!(said, "echoed 100 packets\n");
    }
    let result = nic.interrupt();
    let said = first.succeeds();
    let echoed: u64 = said.split(' ').nth(1).unwrap().parse().unwrap();
    let of = |name: &str| result[name].as_u64().unwrap_or_else(|| panic!("{name} of {result}"));
    // Packets alternate between the two flows; the first program's flow lost none.
    assert_eq!(echoed, of("sent").div_ceil(2), "{result}");
    assert_eq!((of("corrupted"), of("late")), (0, 0), "{result}");
}
