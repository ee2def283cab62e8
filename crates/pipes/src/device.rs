//! Functions of devices.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stream::host::{self, NotificationBatch, Sizes};
use stream::nic::InterfaceConfig;
use stream::nic::layout::{PIPES, RING};
use stream::nic::pipes::Notify;

use crate::connections::Nic;
use crate::error::{Code, Failure, count, status};
use crate::handles::{self, Handle, Object, with};
use crate::pipe;

/// Maximum wait of a closing device for its last packets to be sent.
const LAST_PACKETS: Duration = Duration::from_secs(1);

/// One thread's access to a NIC.
pub(crate) struct Device {
    pub(crate) device: host::Device,
    /// `None` once it is disconnected.
    nic: Option<Arc<Nic>>,
    /// Size of each ring, in bytes.
    ring: usize,
    /// Handles of the device's pipes by the NIC's IDs; 0 if there is none.
    pipes: Box<[Handle]>,
}

impl Device {
    /// Connects to a NIC whose rings have `ring` bytes, by default those of the hardware.
    fn open(path: &Path, ring: usize) -> Result<Self, Failure> {
        let ring = if ring == 0 { RING } else { ring };
        let sizes = Sizes { ring, batch: NotificationBatch::Merged, ..Sizes::default() };
        let notifications = sizes.notifications;
        let config = InterfaceConfig::Pipes { notify: Notify::Reactively, ring, notifications };
        if !config.is_possible() {
            let why = format!(
                "rings of {ring} B: use a power of two from 4 KiB to 1 GiB, or 0 for 2 MiB"
            );
            return Err(Failure::new(Code::Invalid, why));
        }
        let nic = Nic::connect(path, config)?;
        let connection = nic.connection();
        let device = host::Device::new(&connection.port(), sizes)
            .map_err(|why| Failure::of_request(&why, connection.is_closed()))?;
        let pipes = vec![0; PIPES as usize].into();
        Ok(Self { device, nic: Some(nic), ring, pipes })
    }

    /// Returns the size of each ring, in bytes.
    pub(crate) fn ring(&self) -> usize {
        self.ring
    }

    /// Records the handle of the pipe with this ID, or 0 if it is closed.
    pub(crate) fn set_pipe(&mut self, id: u32, handle: Handle) {
        if let Some(entry) = self.pipes.get_mut(id as usize) {
            *entry = handle;
        }
    }

    /// Sends the last packets and leaves the NIC. The objects of the device are dropped afterwards.
    pub(crate) fn disconnect(&mut self) {
        let Some(nic) = self.nic.take() else { return };
        let start = Instant::now();
        while !self.device.is_closed() && start.elapsed() < LAST_PACKETS {
            self.device.complete();
            if self.device.in_flight() == 0 {
                break;
            }
        }
        nic.leave();
    }

    fn nic(&self) -> Result<&Arc<Nic>, Failure> {
        self.nic.as_ref().ok_or_else(|| handles::unknown("device"))
    }
}

/// A device as C has it: a number that is never followed as a pointer.
#[repr(C)]
pub struct TgDevice(());

/// Returns the error of a null pointer.
#[cold]
pub(crate) fn null(what: &str) -> Failure {
    Failure::new(Code::Invalid, format!("{what} is NULL; pass the address of a variable"))
}

/// Creates a device of this thread. See the header.
///
/// # Safety
/// `socket` is NULL or a text that ends with NUL, and `device` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_device_create(
    socket: *const c_char,
    ring_bytes: usize,
    device: *mut *mut TgDevice,
) -> c_int {
    status(|| {
        if device.is_null() {
            return Err(null("device"));
        }
        // SAFETY: the caller guarantees a variable.
        unsafe { device.write(std::ptr::null_mut()) };
        if socket.is_null() {
            return Err(null("socket"));
        }
        // SAFETY: the caller guarantees a text that ends with NUL.
        let path = unsafe { CStr::from_ptr(socket) };
        handles::prepare()?;
        let opened = Device::open(Path::new(OsStr::from_bytes(path.to_bytes())), ring_bytes)?;
        let handle = with(|table| table.add(Object::Device(Box::new(opened))))?;
        // SAFETY: the caller guarantees a variable.
        unsafe { device.write(std::ptr::without_provenance_mut(handle as usize)) };
        Ok(())
    })
}

/// Closes a device and its pipes. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_device_close(device: *mut TgDevice) -> c_int {
    status(|| with(|table| table.close(device.addr() as Handle)))
}

/// Reports that the program is ready. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_device_ready(device: *mut TgDevice) -> c_int {
    status(|| {
        with(|table| {
            let connection = table.device(device.addr() as Handle)?.nic()?.connection();
            connection.ready().map_err(|why| Failure::of_request(&why, connection.is_closed()))
        })
    })
}

/// Returns the CPU of the NIC's thread. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_device_nic_cpu(device: *mut TgDevice) -> c_int {
    count(|| with(|table| Ok(table.device(device.addr() as Handle)?.nic()?.connection().nic_cpu())))
        as c_int
}

/// Finds the next pipe that has received packets. See the header.
///
/// # Safety
/// `pipe` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_device_next(
    device: *mut TgDevice,
    pipe: *mut *mut pipe::TgPipe,
) -> c_int {
    status(|| {
        if pipe.is_null() {
            return Err(null("pipe"));
        }
        // SAFETY: the caller guarantees a variable.
        let set = |handle: Handle| unsafe {
            pipe.write(std::ptr::without_provenance_mut(handle as usize));
        };
        set(0);
        with(|table| {
            let device = table.device(device.addr() as Handle)?;
            while let Some(id) = device.device.next_id() {
                let handle = device.pipes[id as usize];
                // A NIC that names a pipe of another program is ignored.
                if handle != 0 {
                    set(handle);
                    return Ok(());
                }
            }
            if device.device.is_closed() { Err(host::NicClosed.into()) } else { Ok(()) }
        })
    })
}

/// Processes completions and returns the number of requests in flight. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_device_complete(device: *mut TgDevice) -> i64 {
    count(|| {
        with(|table| {
            let device = &table.device(device.addr() as Handle)?.device;
            device.complete();
            match device.in_flight() {
                1.. if device.is_closed() => Err(host::NicClosed.into()),
                in_flight => Ok(in_flight),
            }
        })
    })
}
