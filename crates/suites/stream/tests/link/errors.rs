//! Each error is one line: what, the cause, and the fix.

use stream::link::namespace::Namespace;

use crate::packets::{echo, folder};
use crate::processes::Running;
use crate::{Pair, alone};

const ALLOW: &str = "--allow network";

#[test]
fn an_interface_is_used_only_if_it_is_allowed() {
    let (folder, _) = folder();
    let refused = |words: &str| Running::start(None, folder.path(), words).refused(2);
    for words in ["generate x.pcap 1 --interface lo", "echo --interface lo --link af-packet"] {
        let line = refused(words);
        assert!(
            line.contains("--interface lo: ") && line.contains("add --allow network"),
            "{line}"
        );
    }
    let unknown = refused("echo --interface lo --allow nothing");
    assert!(unknown.contains("unknown name 'nothing'; available: ") && unknown.contains("network"));
}

#[test]
fn options_that_do_not_fit_are_usage_errors() {
    let (folder, _) = folder();
    for (words, expected) in [
        ("generate x.pcap 1 --link tap", "--link: is about an interface of Linux; name one"),
        ("echo 1 1 0 --queue 1", "--queue: is about an interface of Linux"),
        ("key-value --address 10.0.0.1", "--address: is about an interface of Linux"),
        ("maglev --next-hop 02:00:00:00:00:01", "--next-hop: is about an interface of Linux"),
        (
            "maglev --interface lo --backend 10.0.2.1 --backend 10.0.2.1",
            "--backend: backend 10.0.2.1 is listed twice; remove one of them",
        ),
        (
            "echo --interface lo --link af-packet --queue 0 --allow network",
            "--queue: only an AF_XDP",
        ),
        (
            "echo 1 2 0 --interface veth1 --allow network",
            "one core and one queue of all flows; give 1 1",
        ),
    ] {
        let line = Running::start(None, folder.path(), words).refused(2);
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
#[cfg(not(feature = "dpdk"))]
fn a_build_without_dpdk_names_the_feature() {
    let (folder, _) = folder();
    for words in ["echo --dpdk", "key-value 1 1 --dpdk=--no-pci --allow network"] {
        let line = Running::start(None, folder.path(), words).refused(2);
        assert!(line.contains("build it with --features dpdk"), "{line}");
    }
}

#[test]
fn a_missing_interface_and_one_that_is_down_have_a_clear_line() {
    let (folder, _) = folder();
    for kind in ["af-xdp", "af-packet"] {
        let words = format!("generate x.pcap 1 --interface nosuchif0 --link {kind} {ALLOW}");
        for words in [words.replace(ALLOW, ""), words] {
            let line = Running::start(None, folder.path(), &words).refused(1);
            assert!(line.contains("find the interface nosuchif0: No such device"), "{line}");
        }
    }
    let test = "stream: a link at an interface that is down";
    let Ok(namespace) = Namespace::new().inspect_err(|why| machine::untested::note(test, why))
    else {
        return;
    };
    let words = format!("echo --interface lo {ALLOW}");
    let line = Running::start(Some(&namespace), folder.path(), &words).refused(1);
    assert!(line.contains("lo is down") && line.ends_with("ip link set dev lo up"), "{line}");
}

#[test]
fn missing_rights_are_named() {
    let test = "stream: links without rights";
    let up = stream::link::interface::find("lo").and_then(|lo| lo.check_up());
    if let Err(why) = up {
        return machine::untested::note(test, &why);
    }
    if machine::topology::allowed_cpus().len() < 2 {
        return machine::untested::note(test, &"requires two CPUs");
    }
    let (folder, _) = folder();
    let mut links = vec![("af-xdp", "lo"), ("af-packet", "lo")];
    if std::path::Path::new("/dev/net/tun").exists() {
        links.push(("tap", "tollgate-tap0"));
    } else {
        machine::untested::note("stream: TAP without rights", &"requires /dev/net/tun");
    }
    for (kind, interface) in links {
        let words = format!("echo --interface {interface} --link {kind} {ALLOW}");
        let line = Running::start_without_rights(folder.path(), &words).refused(1);
        assert!(line.contains(interface) && line.ends_with("; run as root"), "{line}");
    }
}

#[test]
fn an_interface_that_is_in_use_or_of_another_kind_has_a_clear_line() {
    let _alone = alone();
    let Some(pair) = Pair::create("stream: a link at an interface in use") else { return };
    let (folder, _) = folder();
    let refused = |words: &str| Running::start(Some(&pair.b), folder.path(), words).refused(1);
    let other = echo(&pair.b, folder.path(), "--interface veth1");
    let line = refused(&format!("echo --interface veth1 {ALLOW}"));
    assert!(line.contains("another socket is bound to it; stop the other program"), "{line}");
    let line = refused(&format!("echo --interface veth1 --queue 77 {ALLOW}"));
    assert!(line.contains("queue 77 of veth1: there is no such queue"), "{line}");
    other.interrupted();
    if std::path::Path::new("/dev/net/tun").exists() {
        let line = refused(&format!("echo --interface veth1 --link tap {ALLOW}"));
        assert!(line.contains("veth1: it is an interface of another kind; use --link"), "{line}");
    }
}
