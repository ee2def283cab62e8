//! The metrics of the enclave suite.

use lab::metric::{Better, Metric};

/// The metrics of all methods.
pub const METRICS: &[Metric] = &[
    Metric::new(
        "wall",
        "ns",
        Better::Lower,
        "time from the first thread's start to the last thread's end",
    ),
    Metric::new(
        "cpu",
        "ns",
        Better::Lower,
        "CPU time of all threads between their starts and ends",
    ),
    Metric::new("rate", "1/s", Better::Higher, "allocations per second of all threads"),
    Metric::new(
        "transactions",
        "1/s",
        Better::Higher,
        "SmallBank transactions per second of all threads",
    ),
    Metric::new("pages", "1", Better::Lower, "smallest heap in which no allocation fails, pages"),
    Metric::new(
        "heap_per_thread",
        "B",
        Better::Lower,
        "smallest heap divided by the number of threads",
    ),
    Metric::new(
        "usable",
        "share",
        Better::Higher,
        "share of the heap that blocks of 64 B use until an allocation fails",
    ),
    Metric::new(
        "reusable",
        "share",
        Better::Higher,
        "blocks that fit after all were freed, as a share of those that fitted first",
    ),
    Metric::new("ecall", "ns", Better::Lower, "one empty ECALL: median over batches"),
    Metric::new("ocall", "ns", Better::Lower, "one empty OCALL: median over batches"),
    Metric::new(
        "short",
        "ns",
        Better::Lower,
        "one ECALL of malloc or free of 64 B, including thread_init and thread_cleanup",
    ),
    Metric::new("plain", "ns", Better::Lower, "one plain call of a function with the same words"),
    Metric::new(
        "ecall_over_plain",
        "cycles",
        Better::Lower,
        "cost of an ECALL above a plain call, core cycles",
    ),
    Metric::new("load", "ns", Better::Lower, "time to load the enclave: median"),
    Metric::new("load_in_ecalls", "1", Better::Lower, "time to load the enclave, in ECALLs"),
    Metric::new("ocalls", "1", Better::Neither, "OCALLs of waits and wakes"),
    Metric::new(
        "waits",
        "1",
        Better::Neither,
        "OCALLs that wait: for locks, and in producer-consumer for the queue",
    ),
];
