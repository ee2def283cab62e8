//! What a sample of an enclave measures.

use lab::metric::{Better, Metric};

const fn metric(
    name: &'static str,
    unit: &'static str,
    better: Better,
    about: &'static str,
) -> Metric {
    Metric { name, unit, better, about }
}

/// The metrics of all experiments.
pub const METRICS: &[Metric] = &[
    metric("wall", "ns", Better::Lower, "from the first thread's start to the last one's end"),
    metric("cpu", "ns", Better::Lower, "CPU time of all threads between their starts and ends"),
    metric("rate", "1/s", Better::Higher, "allocations a second, of all threads"),
    metric(
        "transactions",
        "1/s",
        Better::Higher,
        "SmallBank transactions a second, of all threads",
    ),
    metric("pages", "1", Better::Lower, "the smallest heap with which nothing failed, in pages"),
    metric("heap_a_thread", "B", Better::Lower, "the smallest heap over the threads"),
    metric(
        "usable",
        "share",
        Better::Higher,
        "of the heap: what blocks of 64 B can use until there is no room",
    ),
    metric(
        "comes_back",
        "share",
        Better::Higher,
        "once all are freed: the blocks that fit again, over those that fitted first",
    ),
    metric("ecall", "ns", Better::Lower, "one ECALL that does nothing: median over batches"),
    metric("ocall", "ns", Better::Lower, "one OCALL that does nothing: median over batches"),
    metric(
        "short",
        "ns",
        Better::Lower,
        "one ECALL of a malloc or free of 64 B, thread_init and all",
    ),
    metric("plain", "ns", Better::Lower, "a plain call of a function with the same words"),
    metric("ecall_over_plain", "cycles", Better::Lower, "an ECALL less a plain call, core cycles"),
    metric("load", "ns", Better::Lower, "loading the enclave: median"),
    metric("load_in_ecalls", "1", Better::Lower, "loading the enclave over one ECALL"),
    metric("ocalls", "1", Better::Neither, "OCALLs made: locks that wait outside"),
];
