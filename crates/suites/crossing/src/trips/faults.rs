//! Page-fault trips that the kernel serves from memory, checked by its counts.

use std::ops::{Range, RangeInclusive};

use lab::measure::Measurement;
use lab::sample::Failure;
use machine::usage::Usage;

use super::batch::{Operation, Timing, verified};
use super::pages::{FILLED, Pages, permutation};

/// Pages per mapping: as many as one page table maps.
pub(super) const PAGES: usize = 512;
/// Minimum pages per batch, because the kernel's code is not cached at the first faults.
const MIN_PAGES: usize = 128;
/// Maximum additional faults of a batch, e.g. of reclaimed pages of this program or its stack. They are counted, but
/// times are not divided by them.
const MAX_STRAY_FAULTS: u64 = 8;
/// Cause of a void sample whose time includes many stray faults.
const STRAY_FAULTS: &str = "stray faults: pages of this program were reclaimed";
/// Cause of a void sample in which the kernel mapped other pages around a fault than before.
const MAPPED_OTHER_PAGES: &str =
    "the kernel mapped other pages of the file around a fault than before";
/// Cause of a void sample in which the kernel moved or reclaimed pages of the file.
const UNMAPPED_PAGES: &str = "the kernel removed pages of the file from the mapping";

/// Access that raises the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// Write of a word; each page faults.
    Write,
    /// Read of a word, which is zero; each page faults.
    ReadZero,
    /// Read of a word of the file; one fault may map several pages.
    ReadFile,
}

/// Operation that touches absent pages once each, in an order.
pub(super) struct PageTouches<'a> {
    pages: &'a Pages,
    touch: Touch,
    order: Vec<usize>,
    /// Whether a fault may map pages that are touched later.
    faults_around: bool,
    /// Number of faults of all touches, once known.
    faults_of_all: Option<u64>,
    wrong: u64,
    before: u64,
    /// Total faults made.
    made: u64,
    /// Total faults counted by the kernel.
    counted: u64,
    /// Total pages touched.
    touched: u64,
}

impl<'a> PageTouches<'a> {
    fn new(pages: &'a Pages, touch: Touch, order: Vec<usize>, faults_around: bool) -> Self {
        Self {
            pages,
            touch,
            order,
            faults_around,
            faults_of_all: None,
            wrong: 0,
            before: 0,
            made: 0,
            counted: 0,
            touched: 0,
        }
    }

    /// Always touches all of these pages in this order; one fault may map several.
    pub(super) fn of_all(pages: &'a Pages, touch: Touch, order: Vec<usize>) -> Self {
        Self::new(pages, touch, order, true)
    }

    /// Touches only the pages that fault when all are touched in a random order, so each touch is a fault.
    pub(super) fn of_faulting(pages: &'a Pages, touch: Touch, seed: u64) -> Result<Self, Failure> {
        let order = faulting_pages(pages, touch, &permutation(pages.count(), seed))?;
        Ok(Self::new(pages, touch, order, false))
    }

    /// Adds the counts.
    fn with_counts(&self, measurement: Measurement) -> Measurement {
        measurement
            .value("faults_made", self.made as f64)
            .value("faults_counted", self.counted as f64)
            .value("pages_touched", self.touched as f64)
    }

    /// Returns the total faults counted by the kernel.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// Returns the faults made by `touches` touches, if the kernel counted at least as many and few more.
    fn faults_made(&mut self, counted: u64, touches: u64) -> Result<u64, Failure> {
        let expected = match (self.faults_around, self.faults_of_all) {
            (false, _) => touches,
            (true, Some(faults)) => faults,
            // Only after the touches, because this touches the pages too.
            (true, None) => faulting_pages(self.pages, self.touch, &self.order)?.len() as u64,
        };
        self.faults_of_all = Some(expected);
        if counted > expected + MAX_STRAY_FAULTS {
            return Err(Failure::check(STRAY_FAULTS));
        }
        if counted >= expected {
            return Ok(expected);
        }
        Err(match self.touch {
            Touch::ReadFile => Failure::check(MAPPED_OTHER_PAGES),
            Touch::Write | Touch::ReadZero => Failure::check(format!(
                "the kernel counted {counted} page faults; expected {expected}"
            )),
        })
    }

    /// Checks the contents that were read or written.
    fn check_contents(&self, made: usize) -> Result<(), Failure> {
        // SAFETY: the word is inside this readable mapping.
        let word = |page: usize| unsafe { self.pages.word(page).read_volatile() };
        let written = |page: &&usize| word(**page) == **page as u64 + 1;
        let is_right = match self.touch {
            Touch::Write => self.order[..made].iter().filter(written).count() == made,
            Touch::ReadZero | Touch::ReadFile => self.wrong == 0,
        };
        if is_right { Ok(()) } else { Err(Failure::check("wrong contents of a page")) }
    }

    /// Checks that at least `expected` pages are present, or none if it is 0.
    fn check_present(&self, expected: usize) -> Result<(), Failure> {
        let present = self.pages.present(0, self.pages.count())?;
        let is_right = if expected == 0 { present == 0 } else { present >= expected };
        if is_right {
            return Ok(());
        }
        Err(match self.touch {
            Touch::ReadFile if expected > 0 => Failure::check(UNMAPPED_PAGES),
            Touch::ReadFile | Touch::Write | Touch::ReadZero => {
                Failure::check(format!("{present} pages are present; expected {expected}"))
            }
        })
    }
}

/// Returns the pages of an order that are absent just before their touch, by the page table, because the kernel's
/// count of faults includes stray ones.
fn faulting_pages(pages: &Pages, touch: Touch, order: &[usize]) -> Result<Vec<usize>, Failure> {
    let mut all = PageTouches::of_all(pages, touch, order.to_vec());
    all.prepare(order.len())?;
    let mut faulting = Vec::new();
    for (number, page) in order.iter().enumerate() {
        if pages.present(*page, 1)? == 0 {
            faulting.push(*page);
        }
        all.make(number..number + 1);
    }
    Ok(faulting)
}

impl Operation for PageTouches<'_> {
    fn sizes(&self) -> RangeInclusive<usize> {
        let all = self.order.len();
        if self.faults_around { all..=all } else { MIN_PAGES.min(all)..=all }
    }

    fn prepare(&mut self, _: usize) -> Result<(), Failure> {
        self.pages.madvise_dontneed();
        self.check_present(0)?;
        self.before = Usage::of_thread().faults();
        Ok(())
    }

    fn make(&mut self, numbers: Range<usize>) {
        let (start, order) = (self.pages.start().cast::<u64>(), &self.order[numbers]);
        match self.touch {
            Touch::Write => write(start, order),
            Touch::ReadZero => self.wrong |= read(start, order, 0),
            Touch::ReadFile => self.wrong |= read(start, order, u64::from_ne_bytes([FILLED; 8])),
        }
    }

    /// Returns the faults made, which the kernel must have counted.
    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        let counted = Usage::of_thread().faults() - self.before;
        self.check_present(made)?;
        self.check_contents(made)?;
        let faults = self.faults_made(counted, made as u64)?;
        self.made += faults;
        self.counted += counted;
        self.touched += made as u64;
        Ok(faults)
    }
}

/// Words per page.
const WORDS_PER_PAGE: usize = machine::mapping::PAGE / 8;

/// Writes its number plus 1 to each page.
#[inline(never)]
fn write(start: *mut u64, order: &[usize]) {
    for page in order {
        let word = page.wrapping_mul(WORDS_PER_PAGE);
        // SAFETY: every page of an order is inside the writable mapping at `start`.
        unsafe { start.add(word).write_volatile((*page as u64).wrapping_add(1)) };
    }
}

/// Reads a word of each page; returns the bits in which any differed from `expected`.
#[inline(never)]
pub(super) fn read(start: *const u64, order: &[usize], expected: u64) -> u64 {
    let mut wrong = 0;
    for page in order {
        let word = page.wrapping_mul(WORDS_PER_PAGE);
        // SAFETY: every page of an order is inside the readable mapping at `start`.
        wrong |= unsafe { start.add(word).read_volatile() } ^ expected;
    }
    wrong
}

/// Times faults of these pages, or without timing verifies them: `time` in batches and `each` individually. Batches of a file touch all pages, as
/// lmbench does, so that both measure the same.
pub(super) fn measure(
    pages: &Pages,
    touch: Touch,
    seed: u64,
    timing: Option<Timing>,
) -> Result<Measurement, Failure> {
    void_if_disturbed(match timing {
        Some(timing) => timed(pages, touch, seed, timing),
        None => counted(pages, touch, seed),
    })
}

/// Makes and verifies a fixed number of faults.
fn counted(pages: &Pages, touch: Touch, seed: u64) -> Result<Measurement, Failure> {
    let mut faulting = PageTouches::of_faulting(pages, touch, seed)?;
    let measurement = verified(&mut faulting)?;
    Ok(faulting.with_counts(measurement))
}

/// Makes a measurement void in which the kernel mapped or reclaimed pages unexpectedly.
pub(super) fn void_if_disturbed(
    result: Result<Measurement, Failure>,
) -> Result<Measurement, Failure> {
    match result {
        Err(failure)
            if [MAPPED_OTHER_PAGES, UNMAPPED_PAGES, STRAY_FAULTS]
                .contains(&failure.why.as_str()) =>
        {
            Ok(Measurement { void: Some(failure.why), ..Measurement::default() })
        }
        result => result,
    }
}

fn timed(pages: &Pages, touch: Touch, seed: u64, timing: Timing) -> Result<Measurement, Failure> {
    let mut faulting = PageTouches::of_faulting(pages, touch, seed)?;
    let measurement = match touch {
        Touch::ReadFile => {
            let order = permutation(pages.count(), seed);
            let mut all = PageTouches::of_all(pages, touch, order);
            let measurement = timing.half().batches(&mut all)?.to_measurement(timing.tsc)?;
            let measurement = all.with_counts(measurement);
            let per_page = measurement.values["time"] * all.made as f64 / all.touched as f64;
            measurement.value("time_per_page", per_page)
        }
        Touch::Write | Touch::ReadZero => {
            let measurement = timing.half().batches(&mut faulting)?.to_measurement(timing.tsc)?;
            faulting.with_counts(measurement)
        }
    };
    let each = timing.half().one_by_one(&mut faulting)?;
    each.into_measurement(measurement, "each", each.trimmed_mean(), timing.tsc.hertz)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Touches all pages, of which the first `present` are already present.
    fn touch_all(pages: &Pages, touch: Touch, present: usize) -> Result<u64, Failure> {
        let mut touching = PageTouches::of_faulting(pages, touch, 1)?;
        let count = touching.order.len();
        touching.prepare(count)?;
        touching.make(0..present);
        touching.before = Usage::of_thread().faults();
        touching.make(0..count);
        touching.check(count)
    }

    #[test]
    fn each_page_faults_once_unless_it_is_present() {
        let folder = std::env::temp_dir();
        for (pages, touch) in [
            (Pages::anonymous(64), Touch::Write),
            (Pages::anonymous(64), Touch::ReadZero),
            (Pages::shared(64), Touch::Write),
            (Pages::file(PAGES, &folder), Touch::ReadFile),
        ] {
            let pages = pages.unwrap();
            let expected = PageTouches::of_faulting(&pages, touch, 1).unwrap().order.len();
            // The kernel may map another number of pages per fault than before.
            match touch_all(&pages, touch, 0) {
                Ok(faults) => assert_eq!(faults, expected as u64, "{touch:?}"),
                Err(failure) => assert!(void_if_disturbed(Err(failure)).unwrap().void.is_some()),
            }
            if expected as u64 > MAX_STRAY_FAULTS {
                let failure = touch_all(&pages, touch, expected).unwrap_err();
                let is_count = failure.why.contains("the kernel counted");
                assert!(is_count || failure.why == MAPPED_OTHER_PAGES, "{failure}");
            }
        }
    }

    #[test]
    fn stray_faults_are_counted_but_times_are_not_divided_by_them() {
        let (pages, others) = (Pages::anonymous(64).unwrap(), Pages::anonymous(64).unwrap());
        let mut touching = PageTouches::of_faulting(&pages, Touch::Write, 1).unwrap();
        let mut stray = PageTouches::of_faulting(&others, Touch::Write, 2).unwrap();
        let mut with = |strays: usize| {
            touching.prepare(64).unwrap();
            stray.prepare(64).unwrap();
            touching.before = Usage::of_thread().faults();
            stray.make(0..strays);
            touching.make(0..64);
            let checked = touching.check(64);
            (checked, touching.counted)
        };
        let (made, counted) = with(5);
        assert_eq!(made, Ok(64));
        assert!(counted >= 69, "{counted}");
        let void = void_if_disturbed(with(40).0.map(|_| Measurement::default())).unwrap().void;
        assert_eq!(void.as_deref(), Some(STRAY_FAULTS));
    }

    #[test]
    fn a_fault_that_maps_several_pages_counts_once() {
        let pages = Pages::file(PAGES, &std::env::temp_dir()).unwrap();
        let order = permutation(PAGES, 1);
        let mut all = PageTouches::of_all(&pages, Touch::ReadFile, order);
        all.prepare(PAGES).unwrap();
        all.make(0..PAGES);
        match all.check(PAGES) {
            Ok(faults) => {
                let expected =
                    PageTouches::of_faulting(&pages, Touch::ReadFile, 1).unwrap().order.len();
                assert_eq!(faults, expected as u64);
            }
            Err(failure) => assert!(void_if_disturbed(Err(failure)).unwrap().void.is_some()),
        }
    }

    #[test]
    fn pages_that_the_kernel_unmaps_make_a_measurement_void() {
        let pages = Pages::file(PAGES, &std::env::temp_dir()).unwrap();
        let mut all = PageTouches::of_all(&pages, Touch::ReadFile, permutation(PAGES, 1));
        all.prepare(PAGES).unwrap();
        all.make(0..PAGES);
        pages.madvise_dontneed();
        let measurement =
            void_if_disturbed(all.check(PAGES).map(|_| Measurement::default())).unwrap();
        assert!(measurement.void.is_some());
        assert!(void_if_disturbed(Err(Failure::check("another"))).is_err());
    }

    #[test]
    fn wrong_contents_and_present_pages_fail_the_check() {
        let pages = Pages::anonymous(64).unwrap();
        let mut touching = PageTouches::of_faulting(&pages, Touch::Write, 1).unwrap();
        touching.prepare(64).unwrap();
        touching.make(0..64);
        // SAFETY: the word is inside this writable mapping.
        unsafe { pages.word(5).write_volatile(0) };
        assert!(touching.check(64).unwrap_err().why.contains("wrong contents"));
        assert!(touching.check_present(0).unwrap_err().why.contains("64 pages are present"));
        touching.touch = Touch::ReadZero;
        touching.make(0..64);
        assert!(touching.check_contents(64).is_err());
    }
}
