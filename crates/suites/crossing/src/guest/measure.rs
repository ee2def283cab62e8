//! Measures points of the route under KVM.

use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::sample::Failure;

use super::available::available;
use super::image::Image;
use super::kind::Kind;
use super::kvm::Guest;
use super::tally::Tally;
use crate::params::{Isolation, OneWayParams};

/// Crossings that the guest makes before the host looks: so that a hang is found soon.
const BATCH: u64 = 65_536;
/// Crossings before those of each batch that count.
const WARMUP: u64 = 1000;
/// The longest that a batch's start may take.
pub(super) const START: Duration = Duration::from_secs(2);
/// The longest that a crossing may take on average: far beyond what even an emulated one does.
const CROSSING: Duration = Duration::from_micros(100);

/// Measures one point once: as many crossings as it asks for.
///
/// # Errors
/// 'not ring 0', an exception that nobody expected, a guest that hangs, a crossing without its stamps.
pub fn measure(context: &mut Context, params: &OneWayParams) -> Result<Measurement, Failure> {
    let tsc = context.tsc()?;
    let OneWayParams { kind, crossings, .. } = *params;
    available(kind)?;
    let mut guest = Guest::new(&Image::new())?;
    let tally = sample(&mut guest, kind, params.isolation == Isolation::On, crossings)?;
    let pcid = if guest.pcid() { "yes" } else { "no" };
    Ok(tally.measurement(kind, tsc.hertz, tsc.step)?.covariate("pcid", pcid))
}

/// So many crossings, in batches.
fn sample(
    guest: &mut Guest,
    kind: Kind,
    isolation: bool,
    crossings: u64,
) -> Result<Tally, Failure> {
    let mut batch = |crossings: u64| {
        let limit = START + CROSSING * (crossings + WARMUP) as u32;
        guest.sample(kind, isolation, crossings, WARMUP, limit)
    };
    let mut left = crossings.saturating_sub(BATCH);
    let mut tally = batch(crossings.min(BATCH))?;
    while left > 0 {
        tally.add(&batch(left.min(BATCH))?);
        left = left.saturating_sub(BATCH);
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::available::tried;
    use crate::guest::layout::CODE;
    use lab::sample::FailureKind;
    use machine::tsc::Tsc;

    /// A guest, where there is a KVM.
    fn guest(test: &str, image: &Image) -> Option<Guest> {
        match Guest::new(image) {
            Ok(guest) => Some(guest),
            Err(why) => {
                machine::untested::note(test, &why);
                None
            }
        }
    }

    #[test]
    fn stamps_alone_run_in_batches() {
        let Some(mut guest) = guest("the guest's stamps", &Image::new()) else { return };
        let tally = sample(&mut guest, Kind::None, false, 2 * BATCH + 5).unwrap();
        let all = 2 * BATCH + 5;
        assert_eq!((tally.made, tally.stamped), (all, all));
        assert_eq!((tally.u2k.count(), tally.k2u.count()), (all, all));
        // Two readings of the counter cost there about what they cost here, whatever that is.
        let here = Tsc::get().map_or(u64::MAX, |tsc| tsc.overhead.max(tsc.step));
        assert!(u64::from(tally.floor_user) <= here.saturating_mul(10), "{tally:?} {here}");
        assert_eq!(tally.floor_handler, u32::MAX);
        tally.check(Kind::None).unwrap();
    }

    /// The image with instructions at the start of ring 3 replaced.
    fn planted(code: &[u8]) -> Image {
        let mut image = Image::new();
        // guest_user_start, in every sample: mov $EMPTY_PAIRS,%r10d.
        let start = [0x41, 0xba, 0xd0, 0x07, 0, 0];
        let bytes = image.bytes();
        let at = bytes.windows(start.len()).position(|window| window == start).unwrap();
        image.put(CODE + at as u64, code);
        image
    }

    #[test]
    fn an_exception_that_nobody_expected_is_one_line() {
        // Reads what is mapped nowhere: mov (0x1ff008),%eax.
        let image = planted(&[0x8b, 0x04, 0x25, 0x08, 0xf0, 0x1f, 0]);
        let Some(mut guest) = guest("the guest's fault line", &image) else { return };
        let why = sample(&mut guest, Kind::None, false, 10).unwrap_err().to_string();
        assert!(why.starts_with("failed: the guest met exception 14 with error code 0x4"), "{why}");
        assert!(why.ends_with("CS 0x2b, CR2 0x1ff008") && !why.contains('\n'), "{why}");
    }

    #[test]
    fn a_guest_that_hangs_is_ended() {
        // jmp to itself.
        let Some(mut guest) = guest("the guest's time limit", &planted(&[0xeb, 0xfe])) else {
            return;
        };
        let limit = Duration::from_millis(300);
        let failure = guest.sample(Kind::None, false, 10, 0, limit).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        assert!(failure.why.starts_with("the guest did not end in 0.3 s, at 0x10"), "{failure}");
    }

    /// Where ring 0 is real every kind gives its times; where it is not, none does.
    #[test]
    fn every_kind_is_measured_in_ring_0_alone() {
        let (Ok(real), Ok(tsc)) = (tried().as_ref().map(|_| ()), Tsc::get()) else {
            return no_kind_is_measured();
        };
        println!("{real:?}");
        for (kind, isolation) in
            Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)])
        {
            let mut guest = Guest::new(&Image::new()).unwrap();
            let tally = sample(&mut guest, kind, isolation, 5000).unwrap();
            let told = tally.measurement(kind, tsc.hertz, tsc.step).unwrap();
            println!("{kind:?} {isolation} {:?}", told.values);
            assert_eq!(told.values["crossings_stamped"], 5000.0);
            assert_eq!(told.values.contains_key("u2k"), kind.needs_ring_0());
        }
    }

    fn no_kind_is_measured() {
        let why = tried().as_ref().unwrap_err();
        machine::untested::note("the guest's crossings under KVM", why);
        for kind in Kind::ALL.into_iter().filter(|kind| kind.needs_ring_0()) {
            let Ok(mut guest) = Guest::new(&Image::new()) else { return };
            let told = sample(&mut guest, kind, false, 100)
                .and_then(|tally| tally.measurement(kind, 1e9, 26));
            let failure = told.unwrap_err();
            println!("{kind:?}: {failure}");
            assert!(!failure.to_string().contains('\n'), "{failure}");
        }
    }
}
