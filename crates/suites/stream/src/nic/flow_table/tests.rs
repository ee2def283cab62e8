use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Returns a rule as the echo binds it: to a destination, from any source.
fn destination(number: u32) -> Flow {
    Flow {
        source: Ipv4Addr::UNSPECIFIED,
        destination: Ipv4Addr::from_bits(0xc0a8_0000 + number),
        source_port: 0,
        destination_port: 80,
        protocol: UDP,
    }
}

/// Returns a flow whose fields are pseudo-random.
fn scattered(number: u32) -> Flow {
    let word =
        |salt: u32| (number ^ salt).wrapping_mul(0x9e37_79b1).rotate_left(15).wrapping_mul(salt);
    Flow {
        source: Ipv4Addr::from_bits(word(0x85eb_ca6b)),
        destination: Ipv4Addr::from_bits(word(0xc2b2_ae35)),
        source_port: word(0x27d4_eb2f) as u16,
        destination_port: word(0x1656_67b1) as u16,
        protocol: TCP,
    }
}

/// Returns the number of rules before the first refusal, and checks the whole table before and after it.
fn fill(flows: fn(u32) -> Flow) -> usize {
    let mut table = FlowTable::default();
    let refused = (0..=CAPACITY as u32).find_map(|n| table.insert(flows(n), n).err()).unwrap();
    let (rules, epoch) = (table.len(), table.epoch());
    assert_eq!(refused, FlowTableFull { flow: flows(rules as u32), rules });
    assert_eq!(epoch, rules as u64);
    for n in 0..rules as u32 {
        assert_eq!(table.find(&flows(n)), Some(n));
    }
    assert_eq!(table.find(&flows(rules as u32)), None);
    assert_eq!((table.insert(flows(rules as u32), 0).is_err(), table.epoch()), (true, epoch));
    assert_eq!(table.slots.iter().flatten().count(), rules);
    rules
}

#[test]
fn the_table_fills_up_to_the_limit_of_four_slots_per_rule() {
    // With four candidate slots per key, random graphs have an arrangement up to a load of 0.977.
    for (name, flows) in [("counting up", destination as fn(u32) -> Flow), ("scattered", scattered)]
    {
        let rules = fill(flows);
        let load = rules as f64 / CAPACITY as f64;
        println!("{name}: first refused at {rules} rules, a load of {load:.4}");
        assert!((0.95..1.0).contains(&load), "{name}: {rules}");
    }
}

#[test]
fn a_refusal_names_the_rule_and_the_fix() {
    let full = FlowTableFull { flow: destination(7), rules: 8000 };
    let message = "the flow table has no space for a rule to 192.168.0.7:80 besides 8000 of 8192; bind fewer flows";
    assert_eq!(full.to_string(), message);
}

#[test]
fn a_full_table_has_space_again_after_removals() {
    let mut table = FlowTable::default();
    let rules = (0..).find(|n| table.insert(destination(*n), *n).is_err()).unwrap();
    assert_eq!(table.remove_all_of(0), 1);
    for n in 1..200 {
        assert_eq!(table.remove(&destination(n)), Some(n));
    }
    for n in 0..200 {
        // Half as many as were removed, so that an arrangement exists.
        if n % 2 == 0 {
            assert_eq!(table.insert(destination(rules + n), n), Ok(()));
        }
    }
    assert_eq!(table.len(), rules as usize - 100);
}

#[test]
fn rules_of_a_pipe_are_removed_together_and_the_epoch_grows_with_every_change() {
    let mut table = FlowTable::default();
    assert!(table.is_empty());
    for n in 0..100 {
        table.insert(destination(n), n % 3).unwrap();
    }
    assert_eq!(table.epoch(), 100);
    table.insert(destination(5), 2).unwrap();
    assert_eq!(table.epoch(), 100, "it had this pipe before");
    table.insert(destination(5), 0).unwrap();
    assert_eq!((table.epoch(), table.len(), table.find(&destination(5))), (101, 100, Some(0)));
    assert_eq!(table.remove(&destination(100)), None);
    assert_eq!(table.remove_all_of(3), 0);
    assert_eq!(table.epoch(), 101, "nothing was removed");
    assert_eq!(table.remove_all_of(0), 35);
    assert_eq!((table.epoch(), table.len()), (102, 65));
    assert_eq!(table.remove(&destination(1)), Some(1));
    assert_eq!((table.epoch(), table.len(), table.find(&destination(1))), (103, 64, None));
}

#[test]
fn udp_and_new_connections_are_found_by_destination_and_open_ones_by_all_fields() {
    let packet = |protocol| Flow {
        source: Ipv4Addr::new(10, 0, 0, 9),
        source_port: 5000,
        protocol,
        ..destination(1)
    };
    let rule = |protocol| Flow { protocol, ..destination(1) };
    let mut table = FlowTable::default();
    table.insert(rule(UDP), 1).unwrap();
    table.insert(rule(TCP), 2).unwrap();
    assert_eq!(table.steer(&packet(UDP), false), Some(1));
    assert_eq!(table.steer(&packet(TCP), true), Some(2));
    assert_eq!(table.steer(&packet(TCP), false), None, "an open connection needs a separate rule");
    table.insert(packet(TCP), 3).unwrap();
    table.insert(packet(UDP), 4).unwrap();
    assert_eq!(table.steer(&packet(TCP), false), Some(3));
    assert_eq!(table.steer(&packet(UDP), false), Some(1), "a rule with a source is not looked up");
}

#[test]
fn other_protocols_are_found_by_destination_address_only() {
    let ping = Flow { source: Ipv4Addr::new(10, 0, 0, 9), protocol: 1, ..destination(1) };
    let ping = Flow { destination_port: 0, ..ping };
    let mut table = FlowTable::default();
    table.insert(destination(1), 1).unwrap();
    assert_eq!(table.steer(&ping, false), None);
    table.insert(Flow { destination_port: 0, protocol: 0, ..destination(1) }, 2).unwrap();
    assert_eq!(table.steer(&ping, false), Some(2));
}

/// An operation on a table.
#[derive(Debug, Clone)]
enum Step {
    Insert(u32, u32),
    Remove(u32),
    RemoveAllOf(u32),
}

fn step() -> impl Strategy<Value = Step> {
    // Few enough flows to meet rules again, and enough to fill the table.
    let flow = 0..9000_u32;
    prop_oneof![
        12 => (flow.clone(), 0..40_u32).prop_map(|(flow, pipe)| Step::Insert(flow, pipe)),
        4 => flow.prop_map(Step::Remove),
        1 => (0..4000_u32).prop_map(Step::RemoveAllOf),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(10)))]

    /// The table agrees with a map of unlimited capacity, except for refused rules.
    #[test]
    fn it_behaves_like_a_map(begin in 0..7900_u32, steps in prop::collection::vec(step(), 3000)) {
        let mut table = FlowTable::default();
        let mut map = HashMap::new();
        for n in 0..begin {
            prop_assert_eq!(table.insert(scattered(n), n % 40), Ok(()));
            map.insert(scattered(n), n % 40);
        }
        for step in steps {
            let epoch = table.epoch();
            let changed = match step {
                Step::Insert(n, pipe) => match table.insert(scattered(n), pipe) {
                    Ok(()) => map.insert(scattered(n), pipe) != Some(pipe),
                    Err(full) => {
                        prop_assert!(map.len() > CAPACITY * 95 / 100);
                        prop_assert_eq!(full.rules, map.len());
                        prop_assert!(!map.contains_key(&scattered(n)));
                        false
                    }
                },
                Step::Remove(n) => {
                    let removed = map.remove(&scattered(n));
                    prop_assert_eq!(table.remove(&scattered(n)), removed);
                    removed.is_some()
                }
                Step::RemoveAllOf(pipe) => {
                    let before = map.len();
                    map.retain(|_, of| *of != pipe);
                    prop_assert_eq!(table.remove_all_of(pipe), before - map.len());
                    before > map.len()
                }
            };
            prop_assert_eq!(table.epoch() > epoch, changed);
            prop_assert_eq!(table.len(), map.len());
        }
        for n in 0..9000 {
            prop_assert_eq!(table.find(&scattered(n)), map.get(&scattered(n)).copied());
        }
    }
}
