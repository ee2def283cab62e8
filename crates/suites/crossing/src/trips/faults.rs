//! Page faults that the kernel serves from memory, counted by the kernel.

use std::ops::{Range, RangeInclusive};

use lab::measure::Measurement;
use lab::sample::Failure;

use crate::counted::faults_of_thread;

use super::batch::{Operation, Timing};
use super::order::permutation;
use super::pages::{FILLED, Pages};

/// Pages of a mapping: what one page table maps.
pub(super) const PAGES: usize = 512;
/// The least pages of a batch: its first faults find the kernel's code out of the cache.
const LEAST_PAGES: usize = 128;
/// Faults of a batch that may have other causes: a page of the program or its stack that comes back. They are
/// counted beside those that were made, and never divide.
const STRAY: u64 = 8;
/// With more of them the time is of something else too.
const STRAYS: &str =
    "the kernel counted more faults than were made: pages of this program came back";
/// Which pages of a file one fault brings in is the kernel's choice, and it may choose anew.
const BROUGHT_IN: &str = "the kernel brought in pages of the file that had faulted before";
/// It may also take pages of a file out of the mapping again, to move or to reclaim them.
const TAKEN_OUT: &str = "the kernel took pages of the file out of the mapping meanwhile";

/// How a page is touched, and so which fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// A word is written: each page faults.
    Write,
    /// A word is read, and is zero: each page faults.
    ReadZero,
    /// A word of the file is read: one fault may bring in pages around it.
    ReadFile,
}

/// Touches pages in an order, each once, none of them there before.
pub(super) struct Touching<'a> {
    pages: &'a Pages,
    touch: Touch,
    order: Vec<usize>,
    /// Whether a fault may bring in pages that are touched later.
    around: bool,
    /// How many faults all touches make then, once that is known.
    of_all: Option<u64>,
    wrong: u64,
    before: u64,
    /// Faults made so far.
    made: u64,
    /// Faults that the kernel counted meanwhile.
    counted: u64,
    /// Pages touched so far.
    touched: u64,
}

impl<'a> Touching<'a> {
    fn new(pages: &'a Pages, touch: Touch, order: Vec<usize>, around: bool) -> Self {
        let (wrong, before, made, counted, touched) = (0, 0, 0, 0, 0);
        Self { pages, touch, order, around, of_all: None, wrong, before, made, counted, touched }
    }

    /// Of these pages in this order, all of them always; one fault may serve several.
    pub(super) fn around(pages: &'a Pages, touch: Touch, order: Vec<usize>) -> Self {
        Self::new(pages, touch, order, true)
    }

    /// Of those pages alone that fault where all are touched in a random order: each is a fault.
    pub(super) fn faulting(pages: &'a Pages, touch: Touch, seed: u64) -> Result<Self, Failure> {
        let order = faults_of(pages, touch, &permutation(pages.count(), seed))?;
        Ok(Self::new(pages, touch, order, false))
    }

    /// Adds the counts.
    fn told(&self, told: Measurement) -> Measurement {
        told.value("faults_made", self.made as f64)
            .value("faults_counted", self.counted as f64)
            .value("pages_touched", self.touched as f64)
    }

    /// Faults that the kernel counted in all.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// How many faults so many touches make, if as many were counted, and few more.
    fn due(&mut self, counted: u64, touches: u64) -> Result<u64, Failure> {
        let due = match (self.around, self.of_all) {
            (false, _) => touches,
            (true, Some(faults)) => faults,
            // Behind the first time: what it touches is then no longer new.
            (true, None) => faults_of(self.pages, self.touch, &self.order)?.len() as u64,
        };
        self.of_all = Some(due);
        match counted {
            _ if counted > due + STRAY => Err(Failure::check(STRAYS)),
            _ if counted >= due => Ok(due),
            _ if self.touch == Touch::ReadFile => Err(Failure::check(BROUGHT_IN)),
            _ => {
                Err(Failure::check(format!("{counted} faults were counted where {due} were made")))
            }
        }
    }

    /// Whether what was read or written is what is there.
    fn right(&self, made: usize) -> Result<(), Failure> {
        // SAFETY: the word lies in this readable mapping.
        let word = |page: usize| unsafe { self.pages.word(page).read_volatile() };
        let written = |page: &&usize| word(**page) == **page as u64 + 1;
        let right = match self.touch {
            Touch::Write => self.order[..made].iter().filter(written).count() == made,
            _ => self.wrong == 0,
        };
        if right { Ok(()) } else { Err(Failure::check("a page does not hold what it must")) }
    }

    /// Whether none of the pages is there, or all that were touched.
    fn present(&self, due: usize) -> Result<(), Failure> {
        let present = self.pages.present(0, self.pages.count())?;
        let enough = if due == 0 { present == 0 } else { present >= due };
        if enough {
            return Ok(());
        }
        if due > 0 && self.touch == Touch::ReadFile {
            return Err(Failure::check(TAKEN_OUT));
        }
        Err(Failure::check(format!("{present} pages are mapped where {due} are due")))
    }
}

/// Those pages of an order that are not there when their turn comes. The kernel's table of pages says so: its
/// count of faults has those of others too.
fn faults_of(pages: &Pages, touch: Touch, order: &[usize]) -> Result<Vec<usize>, Failure> {
    let mut all = Touching::around(pages, touch, order.to_vec());
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

impl Operation for Touching<'_> {
    fn sizes(&self) -> RangeInclusive<usize> {
        let all = self.order.len();
        if self.around { all..=all } else { LEAST_PAGES.min(all)..=all }
    }

    fn prepare(&mut self, _: usize) -> Result<(), Failure> {
        self.pages.unmap()?;
        self.present(0)?;
        self.before = faults_of_thread();
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

    /// Divides by the faults that were made, which the kernel must have counted.
    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        let counted = faults_of_thread() - self.before;
        self.present(made)?;
        self.right(made)?;
        let faults = self.due(counted, made as u64)?;
        self.made += faults;
        self.counted += counted;
        self.touched += made as u64;
        Ok(faults)
    }
}

/// Words of a page.
const WORDS: usize = machine::mapping::PAGE / 8;

/// Writes to each page its number and one.
#[inline(never)]
fn write(start: *mut u64, order: &[usize]) {
    for page in order {
        let word = page.wrapping_mul(WORDS);
        // SAFETY: every page of an order lies in the writable mapping that begins at `start`.
        unsafe { start.add(word).write_volatile((*page as u64).wrapping_add(1)) };
    }
}

/// Reads a word of each page; the bits in which one ever differed from what is due.
#[inline(never)]
pub(super) fn read(start: *const u64, order: &[usize], due: u64) -> u64 {
    let mut wrong = 0;
    for page in order {
        let word = page.wrapping_mul(WORDS);
        // SAFETY: every page of an order lies in the readable mapping that begins at `start`.
        wrong |= unsafe { start.add(word).read_volatile() } ^ due;
    }
    wrong
}

/// Times faults of these pages: `time` in batches and `each` one by one. Batches of a file touch all
/// pages, as lmbench does, so that both tell of the same thing.
pub(super) fn measure(
    pages: &Pages,
    touch: Touch,
    seed: u64,
    timing: Timing,
) -> Result<Measurement, Failure> {
    settled(timed(pages, touch, seed, timing))
}

/// A measurement in which the kernel did what is its choice is none of anything, and void.
pub(super) fn settled(told: Result<Measurement, Failure>) -> Result<Measurement, Failure> {
    match told {
        Err(failure) if [BROUGHT_IN, TAKEN_OUT, STRAYS].contains(&failure.why.as_str()) => {
            Ok(Measurement { void: Some(failure.why), ..Measurement::default() })
        }
        told => told,
    }
}

fn timed(pages: &Pages, touch: Touch, seed: u64, timing: Timing) -> Result<Measurement, Failure> {
    let mut faulting = Touching::faulting(pages, touch, seed)?;
    let told = if touch == Touch::ReadFile {
        let order = permutation(pages.count(), seed);
        let mut all = Touching::around(pages, touch, order);
        let told = timing.half().batches(&mut all)?.told(timing.tsc)?;
        let told = all.told(told);
        let per_page = told.values["time"] * all.made as f64 / all.touched as f64;
        told.value("time_per_page", per_page)
    } else {
        let told = timing.half().batches(&mut faulting)?.told(timing.tsc)?;
        faulting.told(told)
    };
    timing.half().one_by_one(&mut faulting)?.into_measurement(told, "each", timing.tsc.hertz)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Touches all pages, some of which are there already.
    fn touched(pages: &Pages, touch: Touch, planted: usize) -> Result<u64, Failure> {
        let mut touching = Touching::faulting(pages, touch, 1)?;
        let count = touching.order.len();
        touching.prepare(count)?;
        touching.make(0..planted);
        touching.before = faults_of_thread();
        touching.make(0..count);
        touching.check(count)
    }

    #[test]
    fn each_page_faults_once_unless_it_is_there() {
        let folder = std::env::temp_dir();
        for (pages, touch) in [
            (Pages::anonymous(64), Touch::Write),
            (Pages::anonymous(64), Touch::ReadZero),
            (Pages::shared(64), Touch::Write),
            (Pages::file(PAGES, &folder), Touch::ReadFile),
        ] {
            let pages = pages.unwrap();
            let due = Touching::faulting(&pages, touch, 1).unwrap().order.len();
            // How many pages one fault brings in is the kernel's choice, and it may choose anew.
            match touched(&pages, touch, 0) {
                Ok(faults) => assert_eq!(faults, due as u64, "{touch:?}"),
                Err(failure) => assert!(settled(Err(failure)).unwrap().void.is_some()),
            }
            if due as u64 > STRAY {
                let failure = touched(&pages, touch, due).unwrap_err();
                let told = failure.why.contains("faults were counted where");
                assert!(told || failure.why == BROUGHT_IN, "{failure}");
            }
        }
    }

    #[test]
    fn faults_of_others_are_counted_and_do_not_divide() {
        let (pages, others) = (Pages::anonymous(64).unwrap(), Pages::anonymous(64).unwrap());
        let mut touching = Touching::faulting(&pages, Touch::Write, 1).unwrap();
        let mut beside = Touching::faulting(&others, Touch::Write, 2).unwrap();
        let mut with = |strays: usize| {
            touching.prepare(64).unwrap();
            beside.prepare(64).unwrap();
            touching.before = faults_of_thread();
            beside.make(0..strays);
            touching.make(0..64);
            let checked = touching.check(64);
            (checked, touching.counted)
        };
        let (made, counted) = with(5);
        assert_eq!(made, Ok(64));
        assert!(counted >= 69, "{counted}");
        let void = settled(with(40).0.map(|_| Measurement::default())).unwrap().void;
        assert_eq!(void.as_deref(), Some(STRAYS));
    }

    #[test]
    fn a_fault_brings_in_more_of_a_file_and_divides_once() {
        let pages = Pages::file(PAGES, &std::env::temp_dir()).unwrap();
        let order = permutation(PAGES, 1);
        let mut all = Touching::around(&pages, Touch::ReadFile, order);
        all.prepare(PAGES).unwrap();
        all.make(0..PAGES);
        match all.check(PAGES) {
            Ok(faults) => {
                let due = Touching::faulting(&pages, Touch::ReadFile, 1).unwrap().order.len();
                assert_eq!(faults, due as u64);
            }
            Err(failure) => assert!(settled(Err(failure)).unwrap().void.is_some()),
        }
    }

    #[test]
    fn pages_that_the_kernel_takes_out_make_a_measurement_void() {
        let pages = Pages::file(PAGES, &std::env::temp_dir()).unwrap();
        let mut all = Touching::around(&pages, Touch::ReadFile, permutation(PAGES, 1));
        all.prepare(PAGES).unwrap();
        all.make(0..PAGES);
        pages.unmap().unwrap();
        let told = settled(all.check(PAGES).map(|_| Measurement::default())).unwrap();
        assert!(told.void.is_some());
        assert!(settled(Err(Failure::check("another"))).is_err());
    }

    #[test]
    fn wrong_contents_and_pages_that_stay_are_seen() {
        let pages = Pages::anonymous(64).unwrap();
        let mut touching = Touching::faulting(&pages, Touch::Write, 1).unwrap();
        touching.prepare(64).unwrap();
        touching.make(0..64);
        // SAFETY: the word lies in this writable mapping.
        unsafe { pages.word(5).write_volatile(0) };
        assert!(touching.check(64).unwrap_err().why.contains("does not hold"));
        assert!(touching.present(0).unwrap_err().why.contains("64 pages are mapped"));
        touching.touch = Touch::ReadZero;
        touching.make(0..64);
        assert!(touching.right(64).is_err());
    }
}
