//! What the lab asks of the suite.

use std::sync::LazyLock;

use lab::factor::Factor;
use lab::journal::Run;
use lab::method::{AnyMethod, Untyped};
use lab::metric::Metric;
use lab::option::{OptionValue, SuiteOption};
use lab::run::Lab;
use lab::suite::{Capability, Data, Suite};

use crate::{
    clock, consistency, factors, guest, hand, metrics, one_way, patched, stamping, trace, trips, vm,
};

/// From user to kernel and back.
pub struct CrossingSuite;

static FACTORS: LazyLock<Vec<Factor>> =
    LazyLock::new(|| [factors::FACTORS, trips::FACTORS, trace::FACTORS, clock::FACTORS].concat());

static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    [metrics::METRICS, stamping::METRICS, trips::METRICS, trace::METRICS, clock::METRICS].concat()
});

const fn option(name: &'static str, enables: &'static str) -> SuiteOption {
    SuiteOption { name, enables, value: OptionValue::Text }
}

/// What a user may allow or set by name.
const OPTIONS: &[SuiteOption] = &[
    option("allow-tracefs", "makes a trace instance of its own in tracefs and removes it"),
    option("allow-bpf", "loads a BPF program into the kernel and unloads it"),
    option("allow-cpufreq", "lowers the highest core clock of a CPU and restores it"),
    option("file-folder", "the folder for files that are measured [default: the temporary folder]"),
];

/// What all methods share.
const SUITE_WIDE: Untyped =
    Untyped { factors: || &FACTORS, metrics: || &METRICS, guest: vm::guest, ..Untyped::PLAIN };

static ONE_WAY: Untyped = Untyped {
    name: "one-way",
    available: one_way::available,
    expected: one_way::expected,
    probe: || Ok(one_way::probe()),
    ..SUITE_WIDE
};

static STAMPING: Untyped = Untyped {
    name: "stamping",
    available: stamping::available,
    expected: stamping::expected,
    probe: || Ok(stamping::probe()),
    ..SUITE_WIDE
};

static TRACEPOINT: Untyped = Untyped {
    name: "tracepoint",
    available: trace::available,
    expected: trace::expected,
    probe: || Ok(trace::probe()),
    ..SUITE_WIDE
};

static ROUND_TRIPS: Untyped = Untyped {
    name: "round-trips",
    available: trips::available,
    expected: trips::expected,
    probe: || Ok(trips::probe()),
    ..SUITE_WIDE
};

static CLOCK: Untyped = Untyped {
    name: "clock",
    available: clock::available,
    expected: clock::expected,
    probe: || Ok(clock::probe()),
    ..SUITE_WIDE
};

static METHODS: &[&dyn AnyMethod] = &[&ONE_WAY, &STAMPING, &TRACEPOINT, &ROUND_TRIPS, &CLOCK];

impl Suite for CrossingSuite {
    fn name(&self) -> &'static str {
        "crossing"
    }

    fn about(&self) -> &'static str {
        "from user to kernel and back, one way each and as round trips"
    }

    fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        METHODS
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../experiments.toml"),
            claims: include_str!("../claims.toml"),
            promises: include_str!("../promises.toml"),
            figures: include_str!("../figures.toml"),
        }
    }

    fn capabilities(&self) -> Vec<Capability> {
        vec![
            guest::capability(),
            patched::capability(),
            vm::QEMU.capability(),
            trips::perf::PROGRAM.capability(),
        ]
    }

    fn inconsistencies(&self, run: &Run) -> Vec<String> {
        consistency::breaks(run)
    }

    fn options(&self) -> &'static [SuiteOption] {
        OPTIONS
    }

    fn by_hand(
        &self,
        arguments: &[String],
        lab: &Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        hand::main(arguments, lab)
    }
}
