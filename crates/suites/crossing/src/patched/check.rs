//! Whether the stamps are what they are said to be. Takes no time, so an emulated CPU will do.

use lab::sample::Failure;
use serde::{Deserialize, Serialize};

use super::BATCH;
use super::refused_touch::Survival;
use super::stamp::armed;
use super::touch::{Pages, Tags};
use crate::counted::faults_of_thread;

/// SIGSEGVs at the armed instruction.
const SIGNALS: u64 = 1_000;

/// What a check counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Page faults made, as many as the kernel counted.
    pub faults: u64,
    /// Of these, with both stamps, each its own.
    pub stamped: u64,
    /// Of these, with user, kernel, kernel, user in the clock's order.
    pub ordered: u64,
    /// Touches at the armed instruction where nothing faults; the kernel counted none.
    pub unfaulting_touches: u64,
    /// Of these, with registers that changed.
    pub spurious: u64,
    /// Touches at the armed instruction that raised SIGSEGV.
    pub signals: u64,
    /// Of these, gone on from with registers unchanged.
    pub survived: u64,
}

impl Checked {
    /// Whether the stamps may be believed.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn verdict(&self) -> Result<(), Failure> {
        let Self { faults, stamped, ordered, unfaulting_touches, spurious, signals, survived } =
            self;
        if stamped != faults || ordered != faults {
            let why = format!("of {faults} faults {stamped} are stamped, {ordered} in order");
            return Err(Failure::check(why));
        }
        if *spurious > 0 {
            let why =
                format!("{spurious} of {unfaulting_touches} touches without fault are stamped");
            return Err(Failure::check(why));
        }
        if survived != signals {
            return Err(Failure::check(format!("{survived} of {signals} SIGSEGVs survived")));
        }
        Ok(())
    }
}

/// Makes so many faults that are stamped, as many touches that do not fault, and 1,000 that raise
/// SIGSEGV, all at the armed instruction.
///
/// # Errors
/// Where this kernel cannot stamp, and where it counts other faults than were made.
pub fn check(faults: u64) -> Result<Checked, Failure> {
    let arming = armed()?;
    let mut checked = Checked::default();
    let mut tags = Tags::new(0);
    let pages = Pages::new(BATCH)?;
    warm_up(&pages, &mut tags);

    while checked.faults < faults {
        let now = (faults - checked.faults).min(BATCH as u64);
        fault(&pages, now, &mut tags, &mut checked)?;
        unfaulting(&pages, now, &mut tags, &mut checked)?;
    }
    signal(&pages, &mut tags, &mut checked)?;
    drop(arming);
    Ok(checked)
}

/// Brings code and stack in, so that all faults from now on are the pages'. What the kernel counts
/// here is both.
fn warm_up(pages: &Pages, tags: &mut Tags) {
    for _ in 0..2 {
        let _ = fault(pages, BATCH as u64, tags, &mut Checked::default());
        let _ = unfaulting(pages, BATCH as u64, tags, &mut Checked::default());
    }
}

/// Touches pages that are not there.
fn fault(pages: &Pages, count: u64, tags: &mut Tags, into: &mut Checked) -> Result<(), Failure> {
    pages.give_up();
    let counted = counting(|| {
        for page in 0..count as usize {
            let tag = tags.next();
            let crossing = pages.touch(page, tag);
            let stamped = crossing.is_stamped(tag);
            into.stamped += u64::from(stamped);
            into.ordered += u64::from(stamped && crossing.is_ordered());
        }
    });
    into.faults += count;
    agree(counted, count)
}

/// Touches pages that are there.
fn unfaulting(
    pages: &Pages,
    count: u64,
    tags: &mut Tags,
    into: &mut Checked,
) -> Result<(), Failure> {
    let counted = counting(|| {
        for page in 0..count as usize {
            let tag = tags.next();
            into.spurious += u64::from(!pages.touch(page, tag).is_untouched(tag));
        }
    });
    into.unfaulting_touches += count;
    agree(counted, 0)
}

/// Touches a page that may not be touched.
fn signal(pages: &Pages, tags: &mut Tags, into: &mut Checked) -> Result<(), Failure> {
    pages.forbid()?;
    let survival = Survival::begin()?;
    let before = Survival::signals();
    for _ in 0..SIGNALS {
        let tag = tags.next();
        into.survived += u64::from(pages.touch(0, tag).is_untouched(tag));
    }
    into.signals = Survival::signals() - before;
    drop(survival);
    if into.signals == SIGNALS {
        return Ok(());
    }
    Err(Failure::check(format!("{SIGNALS} forbidden touches raised {} SIGSEGVs", into.signals)))
}

fn counting(work: impl FnOnce()) -> u64 {
    let before = faults_of_thread();
    work();
    faults_of_thread() - before
}

/// Faults of a batch that may have other causes: a page of the program or its stack that comes back.
const STRAY: u64 = 8;

fn agree(counted: u64, made: u64) -> Result<(), Failure> {
    if (made..=made + STRAY).contains(&counted) {
        return Ok(());
    }
    Err(Failure::check(format!("the kernel counted {counted} faults where {made} were made")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patched::stamp;

    #[test]
    fn every_fault_is_stamped_where_the_kernel_can_stamp() {
        if let Err(why) = stamp::available() {
            assert_eq!(check(10), Err(why.clone()));
            return machine::untested::note("crossing: faults are stamped by this kernel", &why);
        }
        let checked = check(100_000).unwrap();
        assert_eq!(checked.verdict(), Ok(()));
        assert_eq!((checked.stamped, checked.survived), (100_000, 1_000));
    }

    #[test]
    fn without_stamps_the_faults_are_still_those_that_the_kernel_counts() {
        let (pages, mut tags) = (Pages::new(BATCH).unwrap(), Tags::new(1));
        warm_up(&pages, &mut tags);
        let mut checked = Checked::default();
        for _ in 0..10 {
            fault(&pages, 64, &mut tags, &mut checked).unwrap();
            unfaulting(&pages, 64, &mut tags, &mut checked).unwrap();
        }
        signal(&pages, &mut tags, &mut checked).unwrap();
        let expected = Checked {
            faults: 640,
            unfaulting_touches: 640,
            signals: SIGNALS,
            survived: SIGNALS,
            ..Checked::default()
        };
        assert_eq!(checked, expected);
        let why = checked.verdict().unwrap_err().why;
        assert_eq!(why, "of 640 faults 0 are stamped, 0 in order");
    }

    #[test]
    fn a_few_faults_of_others_are_no_fault_of_the_stamps() {
        assert!(agree(64, 64).is_ok() && agree(64 + STRAY, 64).is_ok());
        assert!(agree(63, 64).is_err() && agree(65 + STRAY, 64).is_err());
    }

    #[test]
    fn a_verdict_names_what_is_wrong() {
        let good = Checked { faults: 2, stamped: 2, ordered: 2, ..Checked::default() };
        assert_eq!(good.verdict(), Ok(()));
        let wrong = |checked: Checked| checked.verdict().unwrap_err().why;
        assert!(wrong(Checked { ordered: 1, ..good }).contains("1 in order"));
        assert!(wrong(Checked { spurious: 1, ..good }).contains("without fault"));
        assert!(wrong(Checked { signals: 3, survived: 2, ..good }).contains("2 of 3 SIGSEGVs"));
    }
}
