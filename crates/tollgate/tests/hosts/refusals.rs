//! Hosts that cannot be used: one line each, and nothing is measured or left.

use std::fs;
use std::path::Path;

use crate::exits;
use crate::harness::{Bench, TIMEOUT};
use crate::sshd::{Options, Sshd};

const RUN: [&str; 6] = ["run", "planted/delay", "--rounds", "1", "--host", "dut"];

/// Returns the error line of a run, which must fail with `status` and measure nothing.
#[track_caller]
fn refusal(bench: &Bench, status: i32) -> String {
    let (_, errors) = exits(bench, &RUN, status);
    let lines: Vec<_> = errors.lines().filter(|line| line.starts_with("error: ")).collect();
    let [line] = lines[..] else { panic!("{errors}") };
    assert_eq!(bench.samples(), 0);
    line.to_owned()
}

#[test]
fn an_unknown_host_key_is_never_accepted() {
    let bench = Bench::new();
    let Some(sshd) = Sshd::start(&bench, "an unknown host key") else { return };
    let client = sshd.file("ssh_config");
    // A user's configuration that accepts any key changes nothing.
    let text = fs::read_to_string(&client).unwrap();
    let accepting =
        " StrictHostKeyChecking no\n NoHostAuthenticationForLocalhost yes\n VerifyHostKeyDNS yes\n";
    fs::write(&client, format!("{text}{accepting}")).unwrap();
    let known = fs::read_to_string(sshd.file("known_hosts")).unwrap();
    fs::write(sshd.file("known_hosts"), "").unwrap();
    let line = refusal(&bench, 1);
    assert!(
        line.contains("host 'dut': its host key is unknown; connect once with 'ssh -F "),
        "{line}"
    );
    assert_eq!(fs::read_to_string(sshd.file("known_hosts")).unwrap(), "");
    // The same for another key than the known one.
    let other = fs::read_to_string(sshd.file("key.pub")).unwrap();
    let (address, _) = known.split_once(' ').unwrap();
    fs::write(sshd.file("known_hosts"), format!("{address} {other}")).unwrap();
    let line = refusal(&bench, 1);
    assert!(line.contains("its host key is not the one that is known"), "{line}");
    let (output, _) = exits(&bench, &["hosts", "check"], 1);
    assert!(output.starts_with("dut: its host key is not the one"), "{output}");
    bench.wait_for_no_processes(TIMEOUT);
    assert!(!Sshd::cache(&bench).exists());
}

#[test]
fn a_configuration_of_sessions_changes_nothing() {
    let bench = Bench::new();
    let Some(sshd) = Sshd::start(&bench, "a configuration of sessions") else { return };
    let client = sshd.file("ssh_config");
    let text = fs::read_to_string(&client).unwrap();
    for line in [
        "SessionType none",
        "SessionType subsystem",
        "StdinNull yes",
        "ForkAfterAuthentication yes",
        "ControlPersist yes",
        "RequestTTY force",
        "RemoteCommand true",
        "IgnoreUnknown Other\n Other yes",
    ] {
        fs::write(&client, format!("{text} {line}\n")).unwrap();
        let (output, errors) = exits(&bench, &["hosts", "check"], 0);
        assert!(output.starts_with("dut: ready, "), "{line}: {output}{errors}");
        bench.wait_for_no_processes(TIMEOUT);
        // The server's process ends after the client's.
        let start = std::time::Instant::now();
        while !sshd.connections().is_empty() {
            assert!(start.elapsed() < TIMEOUT, "{line}: {:?}", sshd.connections());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn a_host_that_refuses_or_is_absent_is_one_line() {
    let bench = Bench::new();
    let Some(sshd) = Sshd::start(&bench, "a refused login") else { return };
    fs::write(sshd.file("authorized_keys"), "").unwrap();
    let line = refusal(&bench, 1);
    assert!(
        line.contains("host 'dut': it refuses the login (") && line.contains("Permission denied"),
        "{line}"
    );
    drop(sshd);
    let line = refusal(&bench, 1);
    assert!(line.contains("Connection refused; check the name"), "{line}");
    fs::write(bench.path().join("tollgate.toml"), "[host.dut]\nssh = \"dut.invalid\"\n").unwrap();
    let line = refusal(&bench, 1);
    assert!(line.contains("host 'dut': ") && line.contains("resolve hostname"), "{line}");
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn names_and_files_are_checked_before_any_connection() {
    let bench = Bench::new();
    let touched = bench.path().join("touched");
    let attack = format!("x;touch {}", touched.display());
    for name in [
        "-oProxyCommand=touch touched",
        "$(touch touched)",
        "`touch touched`",
        attack.as_str(),
        "a b",
        "../x",
        "",
    ] {
        for command in [&["run", "planted/delay"][..], &["doctor"]] {
            let host = format!("--host={name}");
            let (_, errors) = exits(&bench, &[command, &[host.as_str()]].concat(), 2);
            assert!(errors.contains("error: host name '"), "{errors}");
        }
        let (_, errors) = exits(&bench, &["hosts", "check", "--", name], 2);
        assert!(errors.contains("error: host name '"), "{errors}");
    }
    fs::write(bench.path().join("tollgate.toml"), format!("[host.dut]\nssh = \"{attack}\"\n"))
        .unwrap();
    let (_, errors) = exits(&bench, &["hosts", "check"], 2);
    assert!(errors.starts_with("error: tollgate.toml:2: ssh name 'x;touch "), "{errors}");
    assert!(!touched.exists() && !bench.path().join("touched").exists());
    let (_, errors) = exits(&bench, &["hosts", "check", "--config", "absent.toml"], 2);
    assert!(errors.starts_with("error: absent.toml: "), "{errors}");
    fs::write(bench.path().join("tollgate.toml"), "").unwrap();
    let (_, errors) = exits(&bench, &["hosts", "env"], 2);
    assert!(errors.contains("no host: name one, or write [host.NAME]"), "{errors}");
    let (_, errors) = exits(&bench, &["run", "copy", "--host", "dut", "--allow", "code"], 2);
    assert!(errors.contains("--allow code: its files are on this machine"), "{errors}");
    let (_, errors) = exits(&bench, &["run", "copy", "--host", "a", "--host", "b"], 2);
    assert!(errors.contains("each needs a role"), "{errors}");
    let (_, errors) = exits(&bench, &["logs"], 2);
    assert!(errors.contains("no run here"), "{errors}");
}

#[test]
fn another_architecture_is_refused() {
    let bench = Bench::new();
    // The kernel states another machine to a 32-bit personality.
    let config = "ForceCommand setarch i686 sh -c \"$SSH_ORIGINAL_COMMAND\"";
    let options = Options { config, ..Options::default() };
    let Some(_sshd) = Sshd::start_with(&bench, "another architecture", &options) else { return };
    let line = refusal(&bench, 1);
    assert!(
        line.contains(
            "host 'dut': its system is Linux i686; tollgate measures on Linux x86_64 only"
        ),
        "{line}"
    );
    assert!(!Sshd::cache(&bench).exists());
}

#[test]
fn another_program_is_refused() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "another program on a host") else { return };
    let other = bench.path().join("other");
    // The same program with another content.
    let mut content = fs::read(env!("CARGO_BIN_EXE_tollgate")).unwrap();
    content.extend(b"another build");
    fs::write(&other, content).unwrap();
    fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let use_program = |path: &Path| {
        let text =
            format!("config = \"ssh/ssh_config\"\n[host.dut]\nprogram = \"{}\"\n", path.display());
        fs::write(bench.path().join("tollgate.toml"), text).unwrap();
    };
    use_program(&other);
    let line = refusal(&bench, 1);
    assert!(line.contains("the worker on 'dut': it runs another build of tollgate"), "{line}");
    use_program(Path::new("/bin/true"));
    let line = refusal(&bench, 1);
    assert!(
        line.contains("host 'dut': /bin/true there is not a tollgate; correct 'program'"),
        "{line}"
    );
    use_program(Path::new("/nonexistent/tollgate"));
    let line = refusal(&bench, 1);
    assert!(
        line.contains("host 'dut': the program does not run there: ") && line.contains("not found"),
        "{line}"
    );
    assert!(!Sshd::cache(&bench).exists());
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn a_full_disk_of_a_host_is_one_line_and_leaves_no_copy() {
    let bench = Bench::new();
    let small = bench.path().join("small");
    fs::create_dir(&small).unwrap();
    let cache = small.display().to_string();
    let options = Options { small: Some(&small), variables: &[("X", "y")], ..Options::default() };
    let Some(sshd) = Sshd::start_with(&bench, "a full disk of a host", &options) else { return };
    // SAFETY: `geteuid` has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        machine::untested::note("a full disk of a host", &"only root can mount a small one");
        return;
    }
    let text = format!(
        "config = \"ssh/ssh_config\"\n[host.dut]\nenvironment = {{ XDG_CACHE_HOME = \"{cache}\" }}\n"
    );
    fs::write(bench.path().join("tollgate.toml"), text).unwrap();
    let line = refusal(&bench, 1);
    assert!(
        line.contains("host 'dut': the program cannot be installed: ")
            && line.contains("No space left"),
        "{line}"
    );
    assert!(line.ends_with("set XDG_CACHE_HOME in its 'environment'"), "{line}");
    // The small file system is in the server's namespace only.
    let mut list = std::process::Command::new("ssh");
    list.arg("-F").arg(sshd.file("ssh_config")).args(["dut", "find", &cache, "-type", "f"]);
    let output = list.output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

#[test]
fn a_shell_that_prints_is_refused_with_its_line() {
    let bench = Bench::new();
    let config = "ForceCommand echo 'Welcome to cluster X'; eval \"$SSH_ORIGINAL_COMMAND\"";
    let options = Options { config, ..Options::default() };
    let Some(_sshd) = Sshd::start_with(&bench, "a shell that prints", &options) else { return };
    let expected =
        "its login shell prints 'Welcome to cluster X' for each command; let its start-up files";
    let line = refusal(&bench, 1);
    assert!(line.contains("host 'dut': ") && line.contains(expected), "{line}");
    let output = bench.run(&["hosts", "check", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    bench.validate("hosts", &checked);
    assert!(checked["hosts"][0]["error"].as_str().unwrap().contains(expected), "{checked}");
    let output = bench.run(&["doctor", "--host", "dut", "--json"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains(expected));
    assert!(!Sshd::cache(&bench).exists());
}

#[test]
fn a_host_that_answers_wrongly_is_named_with_its_log() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "a host that answers wrongly") else { return };
    let wrong = bench.path().join("wrong");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = worker ] || exec {program} \"$@\"\n{program} \"$@\" | sed -u 's/^.\"sample.*/garbage/'\n",
        program = env!("CARGO_BIN_EXE_tollgate")
    );
    fs::write(&wrong, script).unwrap();
    fs::set_permissions(&wrong, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let text =
        format!("config = \"ssh/ssh_config\"\n[host.dut]\nprogram = \"{}\"\n", wrong.display());
    fs::write(bench.path().join("tollgate.toml"), text).unwrap();
    let output = bench.run(&["run", "planted/delay", "--host", "dut", "--rounds", "2"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let line = errors.lines().last().unwrap();
    assert!(
        line.contains("consecutive workers were lost, the last: the worker on 'dut': "),
        "{line}"
    );
    assert!(
        line.ends_with("'tollgate logs' prints what that host reported; repair it and run again"),
        "{line}"
    );
    bench.wait_for_no_processes(TIMEOUT);
}
