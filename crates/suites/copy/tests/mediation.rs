//! The rules of a mediated pool hold, for every combination of rights and against a host that tries.

#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

use copy::functions;
use copy::mediation::{HOSTS, Mediator, Right, Rules, Tally, Terms};
use machine::mapping::{Mapping, PAGE};
use machine::topology::allowed_cpus;

/// ESCAPE's pool in 16 MiB.
const SCALE: u64 = 1024;

fn mediator(rules: Rules, confined: bool) -> (Mediator, Mapping) {
    let cpus = allowed_cpus();
    let function = functions::find("glibc").unwrap();
    let source = Mapping::anonymous(4096).unwrap();
    // SAFETY: inside the mapping.
    unsafe { source.as_mut_ptr().write_bytes(0x5a, 4096) };
    let terms = Terms {
        cpus: [cpus[0], *cpus.last().unwrap()],
        copy: function.pointer(),
        source: &source,
        confined,
    };
    (Mediator::new(rules, &terms).unwrap(), source)
}

fn two_ranges(first: &str, second: &str) -> Rules {
    let text = format!(
        "[[range]]\nname='a'\nlength='64 KiB'\n{first}\n[[range]]\nname='b'\nlength='4 KiB'\n{second}\n"
    );
    Rules::read("test.toml", &text, 1).unwrap()
}

#[test]
fn escapes_rules_hold() {
    let (mut mediator, _source) = mediator(Rules::escape(SCALE).unwrap(), true);
    let mut tally = Tally::default();
    mediator.verify(16, &mut tally).unwrap();
    // Each host may load and store in two ranges of three.
    assert_eq!(tally, Tally { allowed: 16 * 8, stopped: 16 * 4, leaked: 0, refused: 0 });
    assert!(tally.enforced().is_ok());
}

#[test]
fn a_read_only_range_cannot_be_written_nor_the_others_private_one_read() {
    let rules = two_ranges("read=[0,1]\nwrite=[0]", "read=[0]\nwrite=[0]");
    let (mut mediator, _source) = mediator(rules, true);
    let mut tally = Tally::default();
    mediator.verify(1, &mut tally).unwrap();
    // Host 0: all four; host 1: the load in 'a' only, so one store there and two accesses in 'b' fail.
    assert_eq!(tally, Tally { allowed: 5, stopped: 3, leaked: 0, refused: 0 });
}

#[test]
fn every_combination_of_rights_is_enforced_and_every_change_takes_effect() {
    let rules = two_ranges("read=[0,1]\nwrite=[0,1]", "read=[0,1]\nwrite=[0,1]");
    let (mut mediator, _source) = mediator(rules, true);
    let all = [Right::None, Right::Read, Right::Write];
    let through = |right: Right| match right {
        Right::None => 0,
        Right::Read => 1,
        Right::Write => 2,
    };
    for first in all {
        for second in all {
            mediator.change(0, 0, first).unwrap();
            mediator.change(0, 1, second).unwrap();
            assert_eq!(mediator.rules().ranges[0].rights, [first, second]);
            let mut tally = Tally::default();
            mediator.verify(2, &mut tally).unwrap();
            // The other range stays as it is: 4 accesses of each place come through there.
            let allowed = 2 * (through(first) + through(second) + 4);
            let expected = Tally { allowed, stopped: 16 - allowed, leaked: 0, refused: 0 };
            assert_eq!(tally, expected, "{first:?} {second:?}");
        }
    }
}

#[test]
fn what_a_range_holds_outlasts_a_change() {
    let (mut mediator, source) = mediator(Rules::escape(SCALE).unwrap(), true);
    mediator.copy(0, 1, &source, 1).unwrap();
    mediator.change(0, 1, Right::Read).unwrap();
    assert!(mediator.copy(0, 1, &source, 1).unwrap_err().why.contains("may not copy"));
    mediator.change(0, 1, Right::Write).unwrap();
    assert!(mediator.copy(0, 1, &source, 1).unwrap() > 0.0);
}

#[test]
fn a_host_that_tries_to_get_round_the_rules_is_stopped() {
    let (mut mediator, _source) = mediator(Rules::escape(SCALE).unwrap(), true);
    for host in 0..HOSTS {
        let mut tally = Tally::default();
        mediator.attack(0, host, &mut tally).unwrap();
        assert!(tally.stopped > 0, "host {host} tried nothing");
        let none = Tally { stopped: tally.stopped, ..Tally::default() };
        assert_eq!(tally, none, "host {host}");
    }
}

#[test]
fn without_confinement_the_attack_comes_through_and_is_counted() {
    let (mut mediator, _source) = mediator(Rules::escape(SCALE).unwrap(), false);
    let mut tally = Tally::default();
    mediator.attack(0, 1, &mut tally).unwrap();
    assert!(tally.stopped > 0 && tally.allowed + tally.refused == 0, "{tally:?}");
    // Only opening the read-only descriptor anew through /proc gets round the kernel's own rules, and a
    // security module may forbid that too.
    if tally.leaked == 0 {
        return machine::untested::note(
            "an attack that comes through",
            &"/proc opens nothing anew",
        );
    }
    assert_eq!(tally.leaked, 1, "{tally:?}");
    assert!(tally.enforced().unwrap_err().why.starts_with("1 forbidden"));
}

#[test]
fn an_open_pool_allows_everything() {
    let (mut mediator, source) = mediator(Rules::escape(SCALE).unwrap().open(), false);
    let mut tally = Tally::default();
    mediator.verify(4, &mut tally).unwrap();
    assert_eq!(tally, Tally { allowed: 48, stopped: 0, leaked: 0, refused: 0 });
    assert!(mediator.copy(2, 0, &source, 1).is_ok());
}

#[test]
fn ranges_of_one_page_work() {
    let (mut mediator, _source) = mediator(Rules::escape(u64::MAX).unwrap(), true);
    assert!(mediator.rules().ranges.iter().all(|range| range.length == PAGE));
    let mut tally = Tally::default();
    mediator.verify(2, &mut tally).unwrap();
    assert!(tally.enforced().is_ok() && tally.stopped == 8, "{tally:?}");
}
