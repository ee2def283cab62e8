//! The standalone guest as a multiboot (version 1) image, which GRUB and QEMU load.
//!
//! With GRUB, on a machine whose serial port (115200 baud, 8N1) is connected to another machine:
//!
//! ```text
//! set gfxpayload=text
//! multiboot /boot/guest
//! boot
//! ```
//!
//! With QEMU, which exits with status 33 on success and 35 after an unexpected exception:
//!
//! ```text
//! qemu-system-x86_64 -accel tcg -cpu max -m 16 -kernel FILE -display none -monitor none -no-reboot
//!     -nodefaults -serial file:OUTPUT -device isa-debug-exit,iobase=0xf4,iosize=4
//! ```
//!
//! The header has the address fields (bit 16, the "a.out kludge"), so that no ELF is needed. Source: the
//! Multiboot Specification 0.6.96, section 3.1.

use lab::statistics::order;
use lab::suite::UsageError;

use super::GuestCrossing;
use super::image::{Image, ScheduledSample};
use super::layout::{BASE, END, LOADED_END, SCHEDULE_CAPACITY};

const MAGIC: u32 = 0x1bad_b002;
const HAS_ADDRESSES: u32 = 1 << 16;

/// Parameters of a standalone guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandaloneParams {
    /// Rounds: passes over all crossings.
    pub rounds: u32,
    /// Crossings per sample.
    pub crossings: u64,
    /// Warm-up crossings before each sample.
    pub warmup: u64,
    /// Seed of the order within each round.
    pub seed: u64,
}

impl StandaloneParams {
    /// Maximum number of rounds: the capacity of the image's schedule.
    pub const MAX_ROUNDS: u32 = (SCHEDULE_CAPACITY / GuestCrossing::COUNT) as u32;
    /// Maximum crossings per sample: the range of a count.
    pub const MAX_CROSSINGS: u64 = u32::MAX as u64;
}

impl Default for StandaloneParams {
    /// Returns 20 rounds of 10,000 crossings, for bare metal.
    fn default() -> Self {
        Self { rounds: 20, crossings: 10_000, warmup: 1000, seed: 1 }
    }
}

/// Builds the image, to be written to a file and booted.
///
/// # Errors
/// Returns the parameter that is out of range, and the range.
pub fn multiboot_image(params: &StandaloneParams) -> Result<Vec<u8>, UsageError> {
    image_of(&schedule(params), params)
}

/// Builds an image with a given schedule.
pub(super) fn image_of(
    samples: &[ScheduledSample],
    params: &StandaloneParams,
) -> Result<Vec<u8>, UsageError> {
    check_range("rounds", params.rounds.into(), StandaloneParams::MAX_ROUNDS.into())?;
    check_range("crossings per sample", params.crossings, StandaloneParams::MAX_CROSSINGS)?;
    let image = Image::new().with_crossings(params.crossings, params.warmup);
    let mut image = image
        .standalone(samples, params.rounds, params.seed)
        .map_err(|why| UsageError::new(why.to_string()))?;
    image.put(BASE, &header(image.start32()));
    Ok(image.bytes().to_vec())
}

fn check_range(name: &str, value: u64, max: u64) -> Result<(), UsageError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(UsageError::new(format!("{value} {name}: out of range; choose 1 to {max}")))
}

/// Schedules every crossing once per round, in the lab's balanced order.
fn schedule(params: &StandaloneParams) -> Vec<ScheduledSample> {
    let points: Vec<GuestCrossing> = GuestCrossing::all().collect();
    let pass = |round: u32| order::of_round(points.len(), round as usize, params.seed);
    (0..params.rounds)
        .flat_map(|round| pass(round).into_iter().map(move |point| (round, point)))
        .map(|(round, point)| ScheduledSample { round, crossing: points[point] })
        .collect()
}

/// Returns the header: magic, flags, checksum; addresses of the header, of the load range, of the end of the
/// zeroed range, and of the entry.
fn header(start: u64) -> [u8; 32] {
    let flags = HAS_ADDRESSES;
    let checksum = 0u32.wrapping_sub(MAGIC).wrapping_sub(flags);
    let addresses = [BASE, LOADED_END, END, start].map(|address| address as u32);
    let [base, loaded_end, end, start] = addresses;
    let words = [MAGIC, flags, checksum, base, base, loaded_end, end, start];
    let mut header = [0; 32];
    for (bytes, word) in header.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_sums_to_zero_and_contains_the_entry_address() {
        let image = multiboot_image(&StandaloneParams::default()).unwrap();
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        assert_eq!(word(0).wrapping_add(word(4)).wrapping_add(word(8)), 0);
        // The first instruction is cli.
        assert_eq!(image[word(28) as usize - BASE as usize], 0xfa);
        assert_eq!(image.len() as u32, word(20) - word(16));
    }

    #[test]
    fn each_round_has_every_crossing_once_in_a_new_order() {
        let samples = schedule(&StandaloneParams { rounds: 3, ..StandaloneParams::default() });
        let passes: Vec<_> = samples.chunks(GuestCrossing::COUNT).collect();
        assert_eq!(passes.len(), 3);
        for (round, pass) in passes.iter().enumerate() {
            for crossing in GuestCrossing::all() {
                let sample = ScheduledSample { round: round as u32, crossing };
                assert_eq!(pass.iter().filter(|other| **other == sample).count(), 1);
            }
        }
        let order = |pass: &[ScheduledSample]| {
            pass.iter().map(|sample| sample.crossing).collect::<Vec<_>>()
        };
        assert_ne!(order(passes[0]), order(passes[1]));
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let refused = |params| multiboot_image(&params).unwrap_err().to_string();
        let rounds = refused(StandaloneParams { rounds: 745, ..StandaloneParams::default() });
        assert_eq!(rounds, "745 rounds: out of range; choose 1 to 744");
        let crossings = refused(StandaloneParams { crossings: 0, ..StandaloneParams::default() });
        assert_eq!(crossings, "0 crossings per sample: out of range; choose 1 to 4294967295");
    }
}
