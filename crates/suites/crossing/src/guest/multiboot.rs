//! The guest as a multiboot(1) image, which GRUB and QEMU load, and which runs by itself.
//!
//! With GRUB, on a machine with a serial port (115200 baud, 8N1) that another reads:
//!
//! ```text
//! set gfxpayload=text
//! multiboot /boot/guest
//! boot
//! ```
//!
//! With QEMU, which ends with status 33 where all went well and 35 after an unexpected exception:
//!
//! ```text
//! qemu-system-x86_64 -accel tcg -cpu max -m 16 -kernel FILE -display none -monitor none -no-reboot
//!     -nodefaults -serial file:OUTPUT -device isa-debug-exit,iobase=0xf4,iosize=4
//! ```
//!
//! The header has the address fields (bit 16, the "a.out kludge"), so that no ELF is needed. Source: the
//! Multiboot Specification 0.6.96, section 3.1.

use lab::statistics::order;

use super::image::{Image, Turn};
use super::kind::Kind;
use super::layout::{BASE, END, LOADED_END, SCHEDULE_ROOM};

const MAGIC: u32 = 0x1bad_b002;
const HAS_ADDRESSES: u32 = 1 << 16;

/// What the guest does where it runs by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Passes over all kinds, with isolation off and on.
    pub rounds: u32,
    /// Crossings a sample.
    pub crossings: u64,
    /// Crossings before those, which do not count.
    pub warmup: u64,
    /// The seed of the order within each round.
    pub seed: u64,
}

impl Settings {
    /// The most rounds that the image's schedule has room for.
    pub const MOST_ROUNDS: u32 = (SCHEDULE_ROOM / (2 * Kind::ALL.len())) as u32;
    /// The most crossings a sample: what a count holds.
    pub const MOST_CROSSINGS: u64 = u32::MAX as u64;
}

impl Default for Settings {
    /// For bare metal: 20 rounds of 10,000 crossings.
    fn default() -> Self {
        Self { rounds: 20, crossings: 10_000, warmup: 1000, seed: 1 }
    }
}

/// Why no image can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Too few or too many rounds.
    #[error("{0} rounds: ask for 1 to {most}", most = Settings::MOST_ROUNDS)]
    Rounds(u32),
    /// Too few or too many crossings.
    #[error("{0} crossings a sample: ask for 1 to {most}", most = Settings::MOST_CROSSINGS)]
    Crossings(u64),
}

/// The image: write it to a file and boot that.
///
/// # Errors
/// Where the settings ask for more than the image has room for, or for nothing.
pub fn multiboot_image(settings: &Settings) -> Result<Vec<u8>, ImageError> {
    image_of(&schedule(settings), settings)
}

/// The image that takes these samples and no others.
pub(super) fn image_of(turns: &[Turn], settings: &Settings) -> Result<Vec<u8>, ImageError> {
    if !(1..=Settings::MOST_ROUNDS).contains(&settings.rounds) {
        return Err(ImageError::Rounds(settings.rounds));
    }
    if !(1..=Settings::MOST_CROSSINGS).contains(&settings.crossings) {
        return Err(ImageError::Crossings(settings.crossings));
    }
    let mut image = Image::new().crossings(settings.crossings, settings.warmup).alone(
        turns,
        settings.rounds,
        settings.seed,
    );
    image.put(BASE, &header(image.start32()));
    Ok(image.bytes().to_vec())
}

/// Every kind with isolation off and on, once a round, in the lab's balanced order.
fn schedule(settings: &Settings) -> Vec<Turn> {
    let points: Vec<(Kind, bool)> =
        Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]).collect();
    let pass = |round: u32| order::of_round(points.len(), round as usize, settings.seed);
    (0..settings.rounds)
        .flat_map(|round| pass(round).into_iter().map(move |point| (round, point)))
        .map(|(round, point)| Turn { round, kind: points[point].0, isolation: points[point].1 })
        .collect()
}

/// Magic, flags, checksum; where the header lies, what is loaded, what is zeroed, where to enter.
fn header(start: u64) -> [u8; 32] {
    let flags = HAS_ADDRESSES;
    let checksum = 0u32.wrapping_sub(MAGIC).wrapping_sub(flags);
    let [base, loaded_end, end, start] = [BASE, LOADED_END, END, start].map(|at| at as u32);
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
    fn header_sums_to_zero_and_names_the_entry() {
        let image = multiboot_image(&Settings::default()).unwrap();
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        assert_eq!(word(0).wrapping_add(word(4)).wrapping_add(word(8)), 0);
        // The first instruction there: cli.
        assert_eq!(image[word(28) as usize - BASE as usize], 0xfa);
        assert_eq!(image.len() as u32, word(20) - word(16));
    }

    #[test]
    fn a_round_holds_every_kind_both_ways_once_in_an_order_of_its_own() {
        let turns = schedule(&Settings { rounds: 3, ..Settings::default() });
        let passes: Vec<_> = turns.chunks(16).collect();
        assert_eq!(passes.len(), 3);
        for (round, pass) in passes.iter().enumerate() {
            for kind in Kind::ALL {
                for isolation in [false, true] {
                    let turn = Turn { round: round as u32, kind, isolation };
                    assert_eq!(pass.iter().filter(|other| **other == turn).count(), 1);
                }
            }
        }
        let order = |pass: &[Turn]| pass.iter().map(|t| (t.kind, t.isolation)).collect::<Vec<_>>();
        assert_ne!(order(passes[0]), order(passes[1]));
    }

    #[test]
    fn what_has_no_room_is_refused_in_one_line() {
        let refused = |settings| multiboot_image(&settings).unwrap_err().to_string();
        let rounds = refused(Settings { rounds: 1025, ..Settings::default() });
        assert_eq!(rounds, "1025 rounds: ask for 1 to 1024");
        let crossings = refused(Settings { crossings: 0, ..Settings::default() });
        assert_eq!(crossings, "0 crossings a sample: ask for 1 to 4294967295");
    }
}
