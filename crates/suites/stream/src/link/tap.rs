//! TAP: an interface of Linux whose wire ends in this program. Each packet is one system call.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use machine::SysError;
use machine::mapping::Mapping;

use super::socket::ioctl;
use super::{BURST, Drops, FRAME, Link, LinkMode, NoDrops, interface, not_permitted, refused};
use crate::wire::PacketRef;

const SUPPORT: &str = "use a kernel with CONFIG_TUN and a device /dev/net/tun";

/// The wire of a TAP interface.
pub(super) struct Tap {
    name: String,
    device: File,
    /// [`BURST`] frames for receiving and as many for sending.
    memory: Mapping,
}

// SAFETY: nothing else has pointers into the mapping.
unsafe impl Send for Tap {}

impl Tap {
    /// Opens a TAP interface and sets it up. It is created if it does not exist, and then removed when this value is dropped.
    ///
    /// # Errors
    /// Returns what is not permitted or not supported, or that the interface is of another kind or in use.
    pub(super) fn open(name: &str) -> Result<Self, SysError> {
        let attempt = || format!("open the TAP interface {name}");
        if !interface::is_name(name) {
            let why = ErrorKind::InvalidInput;
            return Err(refused(attempt(), why, "choose a name of at most 15 letters and digits"));
        }
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(|why| not_permitted(attempt(), why, SUPPORT))?;
        ioctl::set_tap(&device, name).map_err(|why| match why.raw_os_error() {
            Some(libc::EINVAL) => {
                let why = std::io::Error::other("it is an interface of another kind");
                refused(attempt(), why, "use --link af-xdp or af-packet")
            }
            Some(libc::EBUSY) => {
                let why = std::io::Error::other("another program is its wire");
                refused(attempt(), why, "stop that program, or choose another name")
            }
            _ => not_permitted(attempt(), why, SUPPORT),
        })?;
        interface::find(name)?.set_up()?;
        let memory = Mapping::anonymous(BURST.saturating_mul(2 * FRAME))?;
        Ok(Self { name: name.to_owned(), device, memory })
    }

    /// Returns the address of a frame: those for receiving come first.
    fn frame(&self, index: usize) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(index.saturating_mul(FRAME))
    }

    fn failed(&self, what: &str, why: std::io::Error) -> SysError {
        not_permitted(format!("{what} the TAP interface {}", self.name), why, SUPPORT)
    }
}

impl Link for Tap {
    fn mode(&self) -> LinkMode {
        LinkMode::Tap
    }

    fn receive(&mut self, max: usize, frames: &mut Vec<PacketRef>) -> Result<(), SysError> {
        for index in 0..BURST.min(max) {
            let start = self.frame(index);
            // SAFETY: the frame is within the mapping, and the caller has returned it.
            let buffer = unsafe { std::slice::from_raw_parts_mut(start, FRAME) };
            match (&self.device).read(buffer) {
                Ok(bytes) => frames.push(PacketRef { start, bytes: bytes as u32 }),
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(self.failed("read from", why)),
            }
        }
        Ok(())
    }

    fn release(&mut self) {}

    fn reserve(&mut self, max: usize, places: &mut Vec<*mut u8>) -> Result<(), SysError> {
        let frames = BURST..BURST.saturating_add(BURST.min(max));
        places.extend(frames.map(|index| self.frame(index)));
        Ok(())
    }

    fn send(&mut self, lengths: &[u32]) -> Result<(), SysError> {
        for (index, length) in (BURST..).zip(lengths) {
            let length = (*length as usize).min(FRAME);
            // SAFETY: the frame is within the mapping, and nothing writes it during the call.
            let packet = unsafe { std::slice::from_raw_parts(self.frame(index), length) };
            match (&self.device).write(packet) {
                Ok(_) => {}
                // The kernel has dropped it, which shows as a loss.
                Err(why)
                    if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(why) => return Err(self.failed("write to", why)),
            }
        }
        Ok(())
    }

    fn drops(&self) -> Result<Box<dyn Drops>, SysError> {
        Ok(Box::new(NoDrops))
    }
}
