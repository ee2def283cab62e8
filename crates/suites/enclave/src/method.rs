//! The form of the suite's methods, and their metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::artefact::Recipe;
use lab::measure::{Context, Measurement};
use lab::method::{EmbeddedImage, Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;

use crate::allocation::CHECKED;
use crate::images::Image;
use crate::loaded;
use crate::params::EnclaveParams;

/// A method of this suite; only these fields differ between methods.
pub struct EnclaveMethod<P> {
    /// The name.
    pub name: &'static str,
    /// How a sample is timed and verified, in two sentences.
    pub how: &'static str,
    /// The metrics.
    pub metrics: &'static [Metric],
    /// Checks that this machine supports a point.
    pub available: fn(&P) -> Result<(), Failure>,
    /// Estimates how long a sample takes, within a budget, on a machine that supports its point.
    pub expected: fn(&P, Duration) -> Duration,
    /// Measures a point once.
    pub measure: fn(&mut Context, &P) -> Result<Measurement, Failure>,
}

impl<P: Params + AsRef<EnclaveParams>> Method for EnclaveMethod<P> {
    type Params = P;

    fn name(&self) -> &'static str {
        self.name
    }

    fn how(&self) -> &'static str {
        self.how
    }

    fn metrics(&self) -> &'static [Metric] {
        self.metrics
    }

    fn available(&self, params: &P) -> Result<(), Failure> {
        (self.available)(params)
    }

    fn expected(&self, params: &P, budget: Duration) -> Duration {
        (self.expected)(params, budget)
    }

    fn code(&self, params: &P, _: &BTreeMap<String, String>) -> Option<String> {
        params.as_ref().supplied().map(str::to_owned)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["enclave::kinds::in_process", "enclave::kinds::kvm", "enclave::kinds::process"]
    }

    fn images(&self, params: &P) -> Vec<EmbeddedImage> {
        loaded::built_in(params.as_ref()).into_iter().map(Image::embedded).collect()
    }

    fn foreign_code(&self, params: &P) -> Vec<&'static str> {
        loaded::foreign_code(params.as_ref())
    }

    fn artefacts(&self, params: &P) -> Vec<Recipe> {
        params.as_ref().artefacts()
    }

    fn probe(&self) -> Result<Box<dyn Probe<P>>, Failure> {
        Ok(Box::new(self.measure))
    }
}

/// The metrics of heaps, which are counts: they do not depend on the clock or on a busy sibling.
pub const COUNTS: &[Metric] = &[
    Metric::new("pages", "1", Better::Lower, "smallest heap in which no allocation fails, pages")
        .called("pages of the smallest heap"),
    Metric::new(
        "heap_per_thread",
        "B",
        Better::Lower,
        "smallest heap divided by the number of threads",
    )
    .called("smallest heap per thread"),
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
];

/// Metric that counts transactions, also on an emulated CPU.
pub const TRANSACTIONS_CHECKED: &str = "transactions_checked";

/// The metrics of the methods that measure time.
pub const TIMES: &[Metric] = &[
    Metric::new(
        "wall",
        "ns",
        Better::Lower,
        "time from the first thread's start to the last thread's end",
    )
    .called("wall time"),
    Metric::new(
        "cpu",
        "ns",
        Better::Lower,
        "CPU time of all threads between their starts and ends",
    )
    .called("CPU time"),
    Metric::new("rate", "1/s", Better::Higher, "allocations per second of all threads"),
    Metric::new(
        "transactions",
        "1/s",
        Better::Higher,
        "SmallBank transactions per second of all threads",
    ),
    Metric::new("ecall", "ns", Better::Lower, "one empty ECALL: median over batches")
        .called("empty ECALL"),
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
    Metric::new("load_in_ecalls", "1", Better::Lower, "time to load the enclave, in ECALLs")
        .from_time(),
    Metric::count(CHECKED, "allocated blocks, none of which is NULL or outside the heap"),
    Metric::count(
        TRANSACTIONS_CHECKED,
        "SmallBank transactions, after which the total balance is right",
    ),
    Metric::count(
        "calls_answered",
        "ECALLs and OCALLs with the right result, counted on an emulated CPU",
    ),
    Metric::new("ocalls", "1", Better::Neither, "OCALLs of waits and wakes"),
    Metric::new(
        "waits",
        "1",
        Better::Neither,
        "OCALLs that wait: for locks, and in producer-consumer for the queue",
    ),
];
