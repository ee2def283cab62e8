//! Verification of the stamps. It measures no time, so it also runs on an emulated CPU.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use lab::sample::Failure;
use machine::signal::{Registers, ScopedHandler, end_process};
use machine::usage::Usage;
use serde::{Deserialize, Serialize};

use super::BATCH;
use super::arming::arm;
use super::touch::{Tags, TouchedPages, after, instruction};

/// Number of SIGSEGVs at the armed instruction.
const SIGNALS: u64 = 1_000;

/// Counts of one check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampCounts {
    /// Page faults made, confirmed by the kernel's count.
    pub faults: u64,
    /// Of these, with both stamps, from this fault.
    pub stamped: u64,
    /// Of these, with the four stamps in order of time.
    pub ordered: u64,
    /// Touches by the armed instruction without a fault, confirmed by the kernel's count.
    pub quiet_touches: u64,
    /// Of these, with changed registers.
    pub spurious: u64,
    /// Touches by the armed instruction that raised SIGSEGV.
    pub signals: u64,
    /// Of these, continued with unchanged registers.
    pub survived: u64,
}

impl StampCounts {
    /// Checks that every fault, and nothing else, was stamped.
    ///
    /// # Errors
    /// Returns `check` with the first count that is wrong.
    pub fn verify(&self) -> Result<(), Failure> {
        let Self { faults, stamped, ordered, quiet_touches, spurious, signals, survived } = self;
        if stamped != faults || ordered != faults {
            let why = format!("{stamped} of {faults} faults stamped, {ordered} in order");
            return Err(Failure::check(why));
        }
        if *spurious > 0 {
            let why = format!("{spurious} of {quiet_touches} touches without a fault stamped");
            return Err(Failure::check(why));
        }
        if survived != signals {
            return Err(Failure::check(format!("{survived} of {signals} SIGSEGVs survived")));
        }
        Ok(())
    }
}

/// Makes `faults` page faults, as many touches without a fault, and 1,000 that raise SIGSEGV, all by the armed
/// instruction.
///
/// # Errors
/// Returns `unavailable` if this kernel cannot stamp, `check` if its count of faults differs.
pub fn check(faults: u64) -> Result<StampCounts, Failure> {
    let armed = arm()?;
    let mut counts = StampCounts::default();
    let mut tags = Tags::new(0);
    let pages = TouchedPages::new(BATCH)?;
    warm_up(&pages, &mut tags);

    while counts.faults < faults {
        let count = (faults - counts.faults).min(BATCH as u64);
        make_faults(&pages, count, &mut tags, &mut counts)?;
        touch_present(&pages, count, &mut tags, &mut counts)?;
    }
    raise_signals(&pages, &mut tags, &mut counts)?;
    drop(armed);
    Ok(counts)
}

/// Faults code and stack in, so that later faults are only those of the pages. The counts are ignored.
fn warm_up(pages: &TouchedPages, tags: &mut Tags) {
    for _ in 0..2 {
        let _ = make_faults(pages, BATCH as u64, tags, &mut StampCounts::default());
        let _ = touch_present(pages, BATCH as u64, tags, &mut StampCounts::default());
    }
}

/// Touches absent pages.
fn make_faults(
    pages: &TouchedPages,
    count: u64,
    tags: &mut Tags,
    counts: &mut StampCounts,
) -> Result<(), Failure> {
    pages.madvise_dontneed();
    let counted = count_faults(|| {
        for page in 0..count as usize {
            let tag = tags.next();
            let crossing = pages.touch(page, tag);
            let stamped = crossing.is_stamped(tag);
            counts.stamped += u64::from(stamped);
            counts.ordered += u64::from(stamped && crossing.is_ordered());
        }
    });
    counts.faults += count;
    check_faults(counted, count)
}

/// Touches present pages.
fn touch_present(
    pages: &TouchedPages,
    count: u64,
    tags: &mut Tags,
    counts: &mut StampCounts,
) -> Result<(), Failure> {
    let counted = count_faults(|| {
        for page in 0..count as usize {
            let tag = tags.next();
            counts.spurious += u64::from(!pages.touch(page, tag).is_untouched(tag));
        }
    });
    counts.quiet_touches += count;
    check_faults(counted, 0)
}

/// Touches an inaccessible page.
fn raise_signals(
    pages: &TouchedPages,
    tags: &mut Tags,
    counts: &mut StampCounts,
) -> Result<(), Failure> {
    pages.mprotect_none()?;
    let recovery = SegvRecovery::start()?;
    let before = SegvRecovery::signals();
    for _ in 0..SIGNALS {
        let tag = tags.next();
        counts.survived += u64::from(pages.touch(0, tag).is_untouched(tag));
    }
    counts.signals = SegvRecovery::signals() - before;
    drop(recovery);
    if counts.signals == SIGNALS {
        return Ok(());
    }
    Err(Failure::check(format!(
        "{SIGNALS} touches of an inaccessible page raised {} SIGSEGVs",
        counts.signals
    )))
}

fn count_faults(work: impl FnOnce()) -> u64 {
    let before = Usage::of_thread().faults();
    work();
    Usage::of_thread().faults() - before
}

/// Maximum additional faults of a batch, e.g. of reclaimed pages of this program or its stack.
const MAX_STRAY_FAULTS: u64 = 8;

fn check_faults(counted: u64, made: u64) -> Result<(), Failure> {
    if (made..=made + MAX_STRAY_FAULTS).contains(&counted) {
        return Ok(());
    }
    Err(Failure::check(format!("the kernel counted {counted} page faults; expected {made}")))
}

/// SIGSEGVs at the touching instruction since the process started.
static SEGV_COUNT: AtomicU64 = AtomicU64::new(0);

/// Guard under which a touch that raises SIGSEGV continues after its instruction.
struct SegvRecovery {
    _handler: ScopedHandler,
}

impl SegvRecovery {
    /// Installs the handler.
    ///
    /// # Errors
    /// Returns the `errno` of `sigaction(2)`.
    fn start() -> Result<Self, Failure> {
        // SAFETY: the handler is async-signal-safe, and `touch` is correct without its access.
        let handler =
            unsafe { ScopedHandler::install(libc::SIGSEGV, skip_touch, libc::SA_ONSTACK) }?;
        Ok(Self { _handler: handler })
    }

    /// Returns the number of SIGSEGVs handled since the process started.
    fn signals() -> u64 {
        SEGV_COUNT.load(Ordering::Relaxed)
    }
}

extern "C" fn skip_touch(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the argument is that of this running handler.
    let rip = unsafe { &mut Registers::of(context)[libc::REG_RIP] };
    if *rip as usize == instruction() {
        *rip = after() as libc::greg_t;
        SEGV_COUNT.fetch_add(1, Ordering::Relaxed);
    } else {
        end_process(libc::SIGSEGV);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patched::arming;

    #[test]
    fn a_patched_kernel_stamps_every_fault() {
        if let Err(why) = arming::available() {
            assert_eq!(check(10), Err(why.clone()));
            return machine::untested::note("crossing: stamps of a patched kernel", &why);
        }
        let counts = check(100_000).unwrap();
        assert_eq!(counts.verify(), Ok(()));
        assert_eq!((counts.stamped, counts.survived), (100_000, 1_000));
    }

    #[test]
    fn without_stamping_the_kernel_still_counts_every_fault() {
        let (pages, mut tags) = (TouchedPages::new(BATCH).unwrap(), Tags::new(1));
        warm_up(&pages, &mut tags);
        let mut counts = StampCounts::default();
        for _ in 0..10 {
            make_faults(&pages, 64, &mut tags, &mut counts).unwrap();
            touch_present(&pages, 64, &mut tags, &mut counts).unwrap();
        }
        raise_signals(&pages, &mut tags, &mut counts).unwrap();
        let expected = StampCounts {
            faults: 640,
            quiet_touches: 640,
            signals: SIGNALS,
            survived: SIGNALS,
            ..StampCounts::default()
        };
        assert_eq!(counts, expected);
        let why = counts.verify().unwrap_err().why;
        assert_eq!(why, "0 of 640 faults stamped, 0 in order");
    }

    #[test]
    fn a_few_stray_faults_are_accepted() {
        assert!(check_faults(64, 64).is_ok() && check_faults(64 + MAX_STRAY_FAULTS, 64).is_ok());
        assert!(check_faults(63, 64).is_err() && check_faults(65 + MAX_STRAY_FAULTS, 64).is_err());
    }

    #[test]
    fn the_check_names_the_wrong_count() {
        let good = StampCounts { faults: 2, stamped: 2, ordered: 2, ..StampCounts::default() };
        assert_eq!(good.verify(), Ok(()));
        let wrong = |counts: StampCounts| counts.verify().unwrap_err().why;
        assert!(wrong(StampCounts { ordered: 1, ..good }).contains("1 in order"));
        assert!(wrong(StampCounts { spurious: 1, ..good }).contains("without a fault"));
        assert!(wrong(StampCounts { signals: 3, survived: 2, ..good }).contains("2 of 3 SIGSEGVs"));
    }

    #[test]
    fn touches_of_an_inaccessible_page_continue_and_are_counted() {
        let pages = TouchedPages::new(1).unwrap();
        pages.mprotect_none().unwrap();
        let before = SegvRecovery::signals();
        let recovery = SegvRecovery::start().unwrap();
        let untouched = (0..100).filter(|&tag| pages.touch(0, tag).is_untouched(tag)).count();
        drop(recovery);
        assert_eq!(untouched, 100);
        assert!(SegvRecovery::signals() >= before + 100);
    }
}
