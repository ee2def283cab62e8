//! Availability and measurement of the route under KVM.

use std::sync::OnceLock;
use std::time::Duration;

use lab::capability::{self, Capability};
use lab::measure::{Context, Measurement};
use lab::sample::{Failure, FailureKind};
use machine::kvm;
use machine::timed_code;
use machine::tsc::Tsc;

use super::code::{Code, code};
use super::counts::{REMEDY, SampleCounts};
use super::image::Image;
use super::kvm::Guest;
use super::layout::{CODE, PAGE};
use super::{CrossingKind, GuestCrossing};

/// Crossings of the ring-0 test.
const TEST_CROSSINGS: u64 = 64;
/// Crossings per batch. Between batches the host checks the guest, so that it notices a hang soon.
const BATCH: u64 = 65_536;
/// Warm-up crossings of each batch.
const WARMUP: u64 = 1000;
/// Maximum time to start a batch.
const START_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum average time of a crossing, far above that of an emulated one.
const CROSSING_TIMEOUT: Duration = Duration::from_micros(100);
/// How much longer both may take on an emulated CPU, which other processes may have too.
const EMULATED_SLOWDOWN: u32 = 20;

/// Checks that a crossing can be timed here. The first call starts a guest.
///
/// # Errors
/// As [`countable`], and `unavailable` without a usable counter.
pub fn available(crossing: GuestCrossing) -> Result<(), Failure> {
    clock()?;
    countable(crossing)
}

/// Checks that a crossing can be made here. The first call starts a guest.
///
/// # Errors
/// Returns `unavailable` without KVM, if its guests do not run in ring 0, if it intercepts this kind, or if the
/// guest has no code for it.
pub fn countable(crossing: GuestCrossing) -> Result<(), Failure> {
    crossing.variant()?;
    match crossing.kind {
        CrossingKind::None => Ok(kvm::open().map(drop)?),
        // Source: Linux 6.12, vmx_update_exception_bitmap and init_vmcb: both always intercept #UD.
        CrossingKind::InvalidOpcode => ring_0_test().clone().and(Err(Failure::unavailable(
            "KVM intercepts invalid opcodes, because it emulates some: the time would be that of an exit",
            "boot the guest on bare metal: tollgate crossing guest --write FILE",
        ))),
        CrossingKind::PageFault
        | CrossingKind::SoftwareInterrupt
        | CrossingKind::Breakpoint
        | CrossingKind::SyscallSysret
        | CrossingKind::SyscallIretq
        | CrossingKind::SameRing => ring_0(),
    }
}

/// Checks that this machine's KVM runs guests in ring 0.
///
/// # Errors
/// Returns `unavailable` with the observation and the fix.
pub fn ring_0() -> Result<(), Failure> {
    ring_0_test().clone().map(drop)
}

/// Checks that the time-stamp counter is usable.
///
/// # Errors
/// Returns `unavailable` with the reason and the fix.
pub fn clock() -> Result<(), Failure> {
    Tsc::get().map(drop).map_err(|why| Failure::unavailable(why.to_string(), REMEDY))
}

/// Returns the step of the counter, by which the times of both rings are compared; `None` on an emulated CPU, where times
/// are meaningless.
fn step() -> Result<Option<u64>, Failure> {
    match Tsc::get() {
        Ok(tsc) => Ok(Some(tsc.step)),
        Err(_) if machine::cpu::emulated() => Ok(None),
        Err(why) => Err(Failure::unavailable(why.to_string(), REMEDY)),
    }
}

/// Returns the capability `kvm-ring-0`.
pub fn capability() -> Capability {
    let about = "KVM with guests in ring 0";
    capability::checked("kvm-ring-0", about, ring_0_test().clone())
}

/// Runs a few page faults once per process, and describes the ring that they saw.
fn ring_0_test() -> &'static Result<String, Failure> {
    static RESULT: OnceLock<Result<String, Failure>> = OnceLock::new();
    RESULT.get_or_init(|| {
        kvm::open()?;
        kvm::nested_paging()?;
        let step = step()?;
        let crossing = GuestCrossing::with_lfence(CrossingKind::PageFault, false);
        let counts = Guest::new(&Image::new())
            .and_then(|mut guest| {
                guest.sample(crossing, TEST_CROSSINGS, TEST_CROSSINGS, limit(TEST_CROSSINGS))
            })
            .map_err(|failure| {
                if failure.kind == FailureKind::Unavailable {
                    return failure;
                }
                let cause = "the guest does not run under this KVM";
                let why = format!("{cause}: {}", failure.why);
                Failure::unavailable(why, REMEDY).with_cause(cause)
            })?;
        counts.check_ring_0(crossing.kind, step)?;
        Ok(match step {
            Some(_) => format!(
                "CS {:#x}; two consecutive rdtsc take {} ticks, in ring 3 {}",
                counts.cs, counts.floor_handler, counts.floor_user
            ),
            None => format!("CS {:#x}; for counts only, because this CPU is emulated", counts.cs),
        })
    })
}

/// Makes a crossing `crossings` times and measures both ways.
///
/// # Errors
/// Returns `unavailable` if ring 0 is not real, `timeout` if the guest hangs, `check` if a crossing is not
/// stamped, and `failed` after an unexpected exception.
pub fn measure(
    context: &mut Context,
    crossing: GuestCrossing,
    crossings: u64,
) -> Result<Measurement, Failure> {
    let tsc = context.tsc()?;
    available(crossing)?;
    let mut guest = Guest::new(&Image::new())?;
    let counts = run_batches(&mut guest, crossing, crossings)?;
    record_code();
    let pcid = if guest.pcid() { "yes" } else { "no" };
    Ok(counts.to_measurement(crossing, tsc.hertz, tsc.step)?.covariate("pcid", pcid))
}

/// Records the guest's code that crosses between the rings: it is the same for all crossings.
fn record_code() {
    let Code { bytes, entries, user, .. } = code();
    let parts =
        [("the micro-guest's entries, ring 0", entries..user), ("its ring 3", user..bytes.len())];
    for (name, part) in parts {
        let offset = (CODE as usize + part.start) % PAGE as usize;
        timed_code::record_at(|| name.into(), offset, bytes.get(part).unwrap_or_default());
    }
}

/// Makes a crossing `crossings` times and counts the stamped ones, also on an emulated CPU.
///
/// # Errors
/// As [`measure`], but a usable counter is not needed.
pub fn count(crossing: GuestCrossing, crossings: u64) -> Result<Measurement, Failure> {
    countable(crossing)?;
    let counts = run_batches(&mut Guest::new(&Image::new())?, crossing, crossings)?;
    counts.without_times(crossing.kind, step()?)
}

/// Returns the maximum time of a batch.
fn limit(crossings: u64) -> Duration {
    let limit = START_TIMEOUT + CROSSING_TIMEOUT * crossings.min(u64::from(u32::MAX)) as u32;
    if machine::cpu::emulated() { limit * EMULATED_SLOWDOWN } else { limit }
}

fn run_batches(
    guest: &mut Guest,
    crossing: GuestCrossing,
    crossings: u64,
) -> Result<SampleCounts, Failure> {
    let mut batch =
        |crossings: u64| guest.sample(crossing, crossings, WARMUP, limit(crossings + WARMUP));
    let mut left = crossings.saturating_sub(BATCH);
    let mut counts = batch(crossings.min(BATCH))?;
    while left > 0 {
        counts.add(&batch(left.min(BATCH))?);
        left = left.saturating_sub(BATCH);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Stamp;

    const NONE: GuestCrossing =
        GuestCrossing { kind: CrossingKind::None, stamp: Stamp::Lfence, isolated: false };

    #[test]
    fn ring_0_is_real_or_unavailable_with_a_fix() {
        match ring_0_test() {
            Ok(seen) => println!("{seen}"),
            Err(failure) => {
                println!("{failure}");
                assert_eq!(failure.kind, FailureKind::Unavailable);
                assert!(failure.remedy.is_some() && !failure.why.contains('\n'));
            }
        }
        let capability = capability();
        assert_eq!(capability.name, "kvm-ring-0");
        assert_eq!(capability.state.is_present(), ring_0_test().is_ok());
    }

    #[test]
    fn the_recorded_code_has_the_crossings() {
        timed_code::collect();
        record_code();
        let recorded = timed_code::take();
        let [entries, user] = &recorded.loops[..] else { panic!("{recorded:x?}") };
        let has = |code: &[u8], instruction: &[u8]| {
            code.windows(instruction.len()).any(|window| window == instruction)
        };
        // iretq; syscall; int $0x80; rdtsc
        assert!(has(&entries.code, &[0x48, 0xCF]) && has(&entries.code, &[0x0F, 0x31]));
        for instruction in [[0x0F, 0x05], [0xCD, 0x80], [0x0F, 0x31]] {
            assert!(has(&user.code, &instruction), "{instruction:x?}");
        }
    }

    #[test]
    fn invalid_opcodes_are_unavailable_under_kvm() {
        let failure =
            available(GuestCrossing::with_lfence(CrossingKind::InvalidOpcode, false)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
    }

    /// Starts a guest; notes the test as not run and returns `None` without KVM.
    fn start_guest(test: &str, image: &Image) -> Option<Guest> {
        match Guest::new(image) {
            Ok(guest) => Some(guest),
            Err(why) => {
                machine::untested::note(test, &why);
                None
            }
        }
    }

    #[test]
    fn samples_without_a_crossing_run_in_batches() {
        let Some(mut guest) = start_guest("the guest's stamps", &Image::new()) else { return };
        let all = 2 * BATCH + 5;
        let counts = run_batches(&mut guest, NONE, all).unwrap();
        assert_eq!((counts.made, counts.stamped), (all, all));
        assert_eq!((counts.u2k.count(), counts.k2u.count()), (all, all));
        // Two readings of the counter take about as long in the guest as on the host.
        let host = Tsc::get().map_or(u64::MAX, |tsc| tsc.overhead.max(tsc.step));
        assert!(u64::from(counts.floor_user) <= host.saturating_mul(10), "{counts:?} {host}");
        assert_eq!(counts.floor_handler, u32::MAX);
        counts.check(CrossingKind::None).unwrap();
    }

    #[test]
    fn every_stamp_counts_each_of_its_pairs() {
        let Some(mut guest) = start_guest("the guest's other stamps", &Image::new()) else {
            return;
        };
        for stamp in Stamp::ALL {
            let counts = run_batches(&mut guest, GuestCrossing { stamp, ..NONE }, 1000).unwrap();
            counts.check(CrossingKind::None).unwrap();
            assert_eq!(counts.empty.count(), crate::guest::layout::EMPTY_PAIRS);
        }
    }

    /// Returns the image with the first instructions of ring 3 replaced.
    fn image_with(code: &[u8]) -> Image {
        let mut image = Image::new();
        // guest_user_start, in every sample: mov $EMPTY_PAIRS,%r10d.
        let start = [0x41, 0xba, 0xd0, 0x07, 0, 0];
        let bytes = image.bytes();
        let offset = bytes.windows(start.len()).position(|window| window == start).unwrap();
        image.put(CODE + offset as u64, code);
        image
    }

    #[test]
    fn an_unexpected_exception_is_reported_on_one_line() {
        // Reads an unmapped address: mov (0x1ff008),%eax.
        let image = image_with(&[0x8b, 0x04, 0x25, 0x08, 0xf0, 0x1f, 0]);
        let Some(mut guest) = start_guest("the guest's fault line", &image) else { return };
        let result = run_batches(&mut guest, NONE, 10);
        let why = result.unwrap_err().to_string();
        assert!(
            why.starts_with("failed: unexpected exception 14 in the guest: error code 0x4"),
            "{why}"
        );
        assert!(why.ends_with("CS 0x2b, CR2 0x1ff008") && !why.contains('\n'), "{why}");
    }

    #[test]
    fn a_hung_guest_times_out() {
        // jmp to itself.
        let image = image_with(&[0xeb, 0xfe]);
        let Some(mut guest) = start_guest("the guest's time limit", &image) else { return };
        let limit = Duration::from_millis(300);
        let failure = guest.sample(NONE, 10, 0, limit).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        assert!(
            failure.why.starts_with("the guest did not finish in 0.3 s, RIP 0x10"),
            "{failure}"
        );
    }

    #[test]
    fn every_kind_has_times_if_and_only_if_ring_0_is_real() {
        let (Ok(_), Ok(tsc)) = (ring_0_test(), Tsc::get()) else {
            return every_kind_is_refused();
        };
        for crossing in GuestCrossing::all() {
            let mut guest = Guest::new(&Image::new()).unwrap();
            let counts = run_batches(&mut guest, crossing, 5000).unwrap();
            let measurement = counts.to_measurement(crossing, tsc.hertz, tsc.step).unwrap();
            println!("{crossing:?} {:?}", measurement.values);
            assert_eq!(measurement.values["crossings_stamped"], 5000.0);
            assert_eq!(measurement.values.contains_key("u2k"), crossing.kind.needs_ring_0());
        }
    }

    fn every_kind_is_refused() {
        let why = ring_0_test().as_ref().unwrap_err();
        machine::untested::note("the guest's crossings under KVM", why);
        for crossing in GuestCrossing::all().filter(|crossing| crossing.kind.needs_ring_0()) {
            let Ok(mut guest) = Guest::new(&Image::new()) else { return };
            let result = run_batches(&mut guest, crossing, 100)
                .and_then(|counts| counts.to_measurement(crossing, 1e9, 26));
            let failure = result.unwrap_err();
            println!("{crossing:?}: {failure}");
            assert!(!failure.to_string().contains('\n'), "{failure}");
        }
    }
}
