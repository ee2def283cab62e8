//! What a sample of an enclave measures.

use lab::metric::{Better, Metric};

/// The metrics of all experiments.
pub const METRICS: &[Metric] = &[
    Metric::new("wall", "ns", Better::Lower, "from the first thread's start to the last one's end"),
    Metric::new(
        "cpu",
        "ns",
        Better::Lower,
        "CPU time of all threads between their starts and ends",
    ),
    Metric::new("rate", "1/s", Better::Higher, "allocations a second, of all threads"),
    Metric::new(
        "transactions",
        "1/s",
        Better::Higher,
        "SmallBank transactions a second, of all threads",
    ),
    Metric::new(
        "pages",
        "1",
        Better::Lower,
        "the smallest heap with which nothing failed, in pages",
    ),
    Metric::new("heap_per_thread", "B", Better::Lower, "the smallest heap over the threads"),
    Metric::new(
        "usable",
        "share",
        Better::Higher,
        "of the heap: what blocks of 64 B can use until there is no room",
    ),
    Metric::new(
        "comes_back",
        "share",
        Better::Higher,
        "once all are freed: the blocks that fit again, over those that fitted first",
    ),
    Metric::new("ecall", "ns", Better::Lower, "one ECALL that does nothing: median over batches"),
    Metric::new("ocall", "ns", Better::Lower, "one OCALL that does nothing: median over batches"),
    Metric::new(
        "short",
        "ns",
        Better::Lower,
        "one ECALL of a malloc or free of 64 B, thread_init and all",
    ),
    Metric::new("plain", "ns", Better::Lower, "a plain call of a function with the same words"),
    Metric::new(
        "ecall_over_plain",
        "cycles",
        Better::Lower,
        "an ECALL less a plain call, core cycles",
    ),
    Metric::new("load", "ns", Better::Lower, "loading the enclave: median"),
    Metric::new("load_in_ecalls", "1", Better::Lower, "loading the enclave over one ECALL"),
    Metric::new(
        "ocalls",
        "1",
        Better::Neither,
        "OCALLs made: those that wait, and those that wake",
    ),
    Metric::new(
        "waits",
        "1",
        Better::Neither,
        "OCALLs that wait: a lock's, and in producer-consumer the queue's",
    ),
];
