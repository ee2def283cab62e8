//! Steering of packets to pipes, mixed sizes, and the progress of a run.

use crate::{Running, alone, echo, folder, generate, has_two_cpus, number};

#[test]
fn packets_reach_the_pipes_by_rules_by_hash_and_round_robin() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    let pcap = "pcap 48_imix_1_4.pcap 64_64_1_64.pcap";
    assert!(Running::start(folder.path(), pcap).ends().0.success());
    for (pcap, order, options) in [
        ("64_64_1_64.pcap", "", "1 4 0 --flows 64"),
        ("64_64_1_64.pcap", "", "1 4 0 --steering hash"),
        ("64_64_1_64.pcap", "", "1 4 0 --steering hash --interface descriptors"),
        ("64_64_1_64.pcap", "--round-robin 3", "1 3 0 --steering round-robin"),
        ("48_imix_1_4.pcap", "--round-robin 5", "1 5 0 --steering round-robin"),
        (
            "48_imix_1_4.pcap",
            "--round-robin 2",
            "1 2 0 --steering round-robin --interface descriptors",
        ),
        ("48_imix_1_4.pcap", "", "1 4 0"),
    ] {
        // No more than the rings of descriptors hold; a multiple of all packets and of the mix.
        let words = format!("generate {pcap} 1Mpps --count 960 {order} --nic nic --json");
        let mut generator = Running::start(folder.path(), &words);
        generator.says("NIC at");
        let echo = echo(folder.path(), options);
        let sent = generator.ends_with_json();
        let of = ["sent", "received", "corrupted", "late"].map(|name| number(&sent, name));
        assert_eq!(of, [960, 960, 0, 0], "{pcap} {options}: {sent}");
        let echoed = echo.ends_with_json();
        assert_eq!(number(&echoed, "packets"), 960);
        let steering = options.split_whitespace().skip_while(|word| *word != "--steering").nth(1);
        assert_eq!(echoed["steering"], steering.unwrap_or("rules"));
        // The mean packet of the mix has 381.8 B on the wire, the shortest 84 B.
        let bits =
            sent["received_gbps"].as_f64().unwrap() / sent["received_mpps"].as_f64().unwrap() * 1e3;
        let expected = if pcap.contains("imix") { 8.0 * 4582.0 / 12.0 } else { 8.0 * 84.0 };
        assert!((bits / expected - 1.0).abs() < 1e-6, "{bits} bits");
    }
}

#[test]
fn progress_shows_rates_counters_and_round_trips() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    let words = "0.1Mpps --rtt --counters --interval 100ms --save intervals.csv";
    let mut generator = generate(folder.path(), words);
    let mut echo = echo(folder.path(), "1 2 0 --interval 200ms");
    assert!(echo.says("echoed").contains("Mpps"));
    let line = generator.says("round trip");
    assert!(line.contains("Gbps") && line.contains(" ns"), "{line}");
    assert!(generator.says("IN_PKT:").contains("/s"));
    generator.says("OUT_PKT:");
    generator.signal(libc::SIGINT);
    let sent = generator.ends_with_json();
    assert!(
        sent["rtt_ns"]["mean"].as_f64().unwrap() >= sent["rtt_ns"]["min"].as_f64().unwrap(),
        "{sent}"
    );
    echo.ends_with_json();
    let saved = std::fs::read_to_string(folder.path().join("intervals.csv")).unwrap();
    let mut lines = saved.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let lines: Vec<_> = lines.collect();
    let column = |name: &str| {
        let at = names.iter().position(|other| *other == name).unwrap();
        lines.iter().map(move |line| line[at].parse::<f64>().unwrap()).fold(0.0, f64::max)
    };
    assert!(lines.iter().all(|line| line.len() == names.len()), "{saved}");
    assert!(
        column("sent") > 0.0 && column("IN_PKT") > 0.0 && column("rtt_mean_ns") > 0.0,
        "{saved}"
    );
    assert!(column("sent_gbps") > 0.0 && column("PKT_DROP") == 0.0, "{saved}");
}
