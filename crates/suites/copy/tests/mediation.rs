//! The rules of a mediated pool are enforced for every combination of permissions and against attacks.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Also outside of test functions.

use copy::functions;
use copy::mediation::{AccessCounts, HOSTS, HostConfig, Mediator, Permission, Rules};
use machine::mapping::{Mapping, PAGE};
use machine::topology::allowed_cpus;

/// ESCAPE's pool, reduced to 16 MiB.
const SCALE: u64 = 1024;

fn mediator(rules: Rules, confined: bool) -> (Mediator, Mapping) {
    let cpus = allowed_cpus();
    let function = functions::find("glibc").unwrap();
    let source = Mapping::anonymous(4096).unwrap();
    // SAFETY: the bytes are within the mapping.
    unsafe { source.as_mut_ptr().write_bytes(0x5a, 4096) };
    let config = HostConfig {
        cpus: [cpus[0], *cpus.last().unwrap()],
        copy: function.pointer(),
        source: &source,
        confined,
    };
    (Mediator::new(rules, &config).unwrap(), source)
}

fn two_ranges(first: &str, second: &str) -> Rules {
    let text = format!(
        "[[range]]\nname='a'\nlength='64 KiB'\n{first}\n[[range]]\nname='b'\nlength='4 KiB'\n{second}\n"
    );
    Rules::read("test.toml", &text, 1).unwrap()
}

#[test]
fn escapes_rules_are_enforced() {
    let (mut mediator, _source) = mediator(Rules::escape(SCALE).unwrap(), true);
    let mut counts = AccessCounts::default();
    mediator.verify(16, &mut counts).unwrap();
    // Each host may load and store in two of three ranges.
    assert_eq!(counts, AccessCounts { allowed: 16 * 8, stopped: 16 * 4, leaked: 0, refused: 0 });
    assert!(counts.check().is_ok());
}

#[test]
fn read_only_ranges_cannot_be_written_and_private_ones_cannot_be_read() {
    let rules = two_ranges("read=[0,1]\nwrite=[0]", "read=[0]\nwrite=[0]");
    let (mut mediator, _source) = mediator(rules, true);
    let mut counts = AccessCounts::default();
    mediator.verify(1, &mut counts).unwrap();
    // Host 0: all four; host 1: only the load in 'a', so its store there and both accesses in 'b' fail.
    assert_eq!(counts, AccessCounts { allowed: 5, stopped: 3, leaked: 0, refused: 0 });
}

#[test]
fn every_combination_of_permissions_is_enforced_after_a_change() {
    let rules = two_ranges("read=[0,1]\nwrite=[0,1]", "read=[0,1]\nwrite=[0,1]");
    let (mut mediator, _source) = mediator(rules, true);
    let all = [Permission::None, Permission::Read, Permission::ReadWrite];
    let accesses = |permission: Permission| match permission {
        Permission::None => 0,
        Permission::Read | Permission::WriteOnly => 1,
        Permission::ReadWrite => 2,
    };
    for first in all {
        for second in all {
            mediator.change(0, 0, first).unwrap();
            mediator.change(0, 1, second).unwrap();
            assert_eq!(mediator.rules().ranges[0].permissions, [first, second]);
            let mut counts = AccessCounts::default();
            mediator.verify(2, &mut counts).unwrap();
            // The other range is unchanged: 4 accesses at each offset succeed there.
            let allowed = 2 * (accesses(first) + accesses(second) + 4);
            let expected = AccessCounts { allowed, stopped: 16 - allowed, leaked: 0, refused: 0 };
            assert_eq!(counts, expected, "{first:?} {second:?}");
        }
    }
}

#[test]
fn the_contents_of_a_range_survive_a_change() {
    let (mut mediator, source) = mediator(Rules::escape(SCALE).unwrap(), true);
    mediator.copy(0, 1, &source, 1).unwrap();
    mediator.change(0, 1, Permission::Read).unwrap();
    assert!(mediator.copy(0, 1, &source, 1).unwrap_err().why.contains("may not copy"));
    mediator.change(0, 1, Permission::ReadWrite).unwrap();
    assert!(mediator.copy(0, 1, &source, 1).unwrap() > 0.0);
}

#[test]
fn a_host_that_tries_to_bypass_the_rules_is_stopped() {
    let (mut mediator, _source) = mediator(Rules::escape(SCALE).unwrap(), true);
    for host in 0..HOSTS {
        let mut counts = AccessCounts::default();
        mediator.attack(0, host, &mut counts).unwrap();
        assert!(counts.stopped > 0, "host {host} tried nothing");
        let none = AccessCounts { stopped: counts.stopped, ..AccessCounts::default() };
        assert_eq!(counts, none, "host {host}");
    }
}

#[test]
fn without_confinement_an_attack_succeeds_and_is_counted() {
    let (mut mediator, _source) = mediator(Rules::escape(SCALE).unwrap(), false);
    let mut counts = AccessCounts::default();
    mediator.attack(0, 1, &mut counts).unwrap();
    assert!(counts.stopped > 0 && counts.allowed + counts.refused == 0, "{counts:?}");
    // Only reopening the read-only descriptor through /proc bypasses the kernel's own rules, and a
    // security module may forbid that too.
    if counts.leaked == 0 {
        return machine::untested::note("an attack that succeeds", &"/proc reopens no descriptor");
    }
    assert_eq!(counts.leaked, 1, "{counts:?}");
    assert!(counts.check().unwrap_err().why.starts_with("1 forbidden"));
}

#[test]
fn an_open_pool_permits_every_access() {
    let (mut mediator, source) = mediator(Rules::escape(SCALE).unwrap().open(), false);
    let mut counts = AccessCounts::default();
    mediator.verify(4, &mut counts).unwrap();
    assert_eq!(counts, AccessCounts { allowed: 48, stopped: 0, leaked: 0, refused: 0 });
    assert!(mediator.copy(2, 0, &source, 1).is_ok());
}

#[test]
fn ranges_of_one_page_work() {
    let (mut mediator, _source) = mediator(Rules::escape(u64::MAX).unwrap(), true);
    assert!(mediator.rules().ranges.iter().all(|range| range.length == PAGE));
    let mut counts = AccessCounts::default();
    mediator.verify(2, &mut counts).unwrap();
    assert!(counts.check().is_ok() && counts.stopped == 8, "{counts:?}");
}
