//! Functions of pipes.

use std::ffi::{c_int, c_void};
use std::net::Ipv4Addr;
use std::ptr;

use stream::host::{NicClosed, RxPipe, RxTxPipe, TxPipe};
use stream::nic::flow_table::looked_up;
use stream::wire::Flow;

use crate::device::{TgDevice, null};
use crate::error::{Code, Failure, count, status};
use crate::handles::{Handle, Object, with};

/// Unit in which the NIC transfers data, in bytes.
const FLIT: usize = 64;

/// Kinds of pipes, as in the header.
pub const TG_RX: c_int = 1;
/// See [`TG_RX`].
pub const TG_TX: c_int = 2;
/// See [`TG_RX`].
pub const TG_RX_TX: c_int = 3;

/// A pipe of a device.
pub(crate) struct Pipe {
    device: Handle,
    /// Size of the ring, in bytes.
    ring: usize,
    /// The program's pointer, which the library does not follow.
    context: *mut c_void,
    kind: Kind,
}

enum Kind {
    Rx(RxPipe),
    Tx(TxPipe),
    RxTx(RxTxPipe),
}

impl Pipe {
    /// Returns the handle of the device.
    pub(crate) fn device(&self) -> Handle {
        self.device
    }

    /// Returns the NIC's ID; `None` for a transmit pipe, which the NIC does not know.
    fn id(&self) -> Option<u32> {
        match &self.kind {
            Kind::Rx(pipe) => Some(pipe.id()),
            Kind::RxTx(pipe) => Some(pipe.id()),
            Kind::Tx(_) => None,
        }
    }
}

/// Evaluates an expression with the receiving pipe of a kind.
macro_rules! receiving {
    ($kind:expr, $pipe:ident => $result:expr) => {
        match $kind {
            Kind::Rx($pipe) => $result,
            Kind::RxTx($pipe) => $result,
            Kind::Tx(_) => return Err(wrong("receive", "TG_RX or TG_RX_TX")),
        }
    };
}

/// Returns the error of an operation that a pipe's kind does not have.
#[cold]
fn wrong(what: &str, kinds: &str) -> Failure {
    Failure::new(Code::Invalid, format!("the pipe cannot {what}; create one of kind {kinds}"))
}

/// Checks that `bytes` bytes, rounded up to 64, are available.
#[inline(always)]
fn check(bytes: usize, available: usize, what: &str) -> Result<(), Failure> {
    if bytes.div_ceil(FLIT) <= available / FLIT {
        return Ok(());
    }
    Err(out_of_range(bytes, available, what))
}

#[cold]
fn out_of_range(bytes: usize, available: usize, what: &str) -> Failure {
    let why = format!("{bytes} B: only {available} B {what}; use at most as many");
    Failure::new(Code::Range, why)
}

/// A pipe as C has it: a number that is never followed as a pointer.
#[repr(C)]
pub struct TgPipe(());

/// A flow as in the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TgFlow {
    dst_ip: u32,
    src_ip: u32,
    dst_port: u16,
    src_port: u16,
    protocol: u32,
}

impl TgFlow {
    /// Converts the flow.
    ///
    /// # Errors
    /// Returns an error if no packet would match.
    fn flow(self) -> Result<Flow, Failure> {
        let Ok(protocol) = u8::try_from(self.protocol) else {
            let why =
                format!("protocol {}: use TG_UDP, TG_TCP or another below 256", self.protocol);
            return Err(Failure::new(Code::Invalid, why));
        };
        let flow = Flow {
            source: Ipv4Addr::from_bits(self.src_ip),
            destination: Ipv4Addr::from_bits(self.dst_ip),
            source_port: self.src_port,
            destination_port: self.dst_port,
            protocol,
        };
        if [true, false].iter().any(|syn| looked_up(&flow, *syn) == flow) {
            return Ok(flow);
        }
        let why = match self.protocol {
            TG_UDP => "a source with UDP; set the source address and port to 0",
            _ => {
                "more than an address with a protocol without ports; set all other fields to 0, also the protocol"
            }
        };
        Err(Failure::new(Code::Invalid, format!("no packet would match: {why}")))
    }
}

/// Protocol number of UDP.
const TG_UDP: u32 = 17;

/// Creates a pipe. See the header.
///
/// # Safety
/// `pipe` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_pipe_create(
    device: *mut TgDevice,
    kind: c_int,
    pipe: *mut *mut TgPipe,
) -> c_int {
    status(|| {
        if pipe.is_null() {
            return Err(null("pipe"));
        }
        // SAFETY: the caller guarantees a variable.
        unsafe { pipe.write(ptr::null_mut()) };
        let handle = with(|table| {
            let of = device.addr() as Handle;
            let device = table.device(of)?;
            let closed = device.device.is_closed();
            let refused = |why| Failure::of_request(&why, closed);
            let kind = match kind {
                TG_RX => Kind::Rx(device.device.rx_pipe().map_err(refused)?),
                TG_TX => Kind::Tx(device.device.tx_pipe().map_err(refused)?),
                TG_RX_TX => Kind::RxTx(device.device.rx_tx_pipe().map_err(refused)?),
                kind => {
                    let why = format!("kind {kind}: use TG_RX, TG_TX or TG_RX_TX");
                    return Err(Failure::new(Code::Invalid, why));
                }
            };
            let (ring, context) = (device.ring(), ptr::null_mut());
            let made = Pipe { device: of, ring, context, kind };
            let id = made.id();
            let handle = table.add(Object::Pipe(made))?;
            if let Some(id) = id {
                table.device(of)?.set_pipe(id, handle);
            }
            Ok(handle)
        })?;
        // SAFETY: the caller guarantees a variable.
        unsafe { pipe.write(ptr::without_provenance_mut(handle as usize)) };
        Ok(())
    })
}

/// Closes a pipe. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_pipe_close(pipe: *mut TgPipe) -> c_int {
    status(|| {
        with(|table| {
            let handle = pipe.addr() as Handle;
            let pipe = table.pipe(handle)?;
            let (of, id) = (pipe.device, pipe.id());
            if let Some(id) = id {
                table.device(of)?.set_pipe(id, 0);
            }
            drop(table.remove(handle));
            Ok(())
        })
    })
}

/// Stores the program's pointer with a pipe. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_pipe_set_context(pipe: *mut TgPipe, context: *mut c_void) -> c_int {
    status(|| {
        with(|table| {
            table.pipe(pipe.addr() as Handle)?.context = context;
            Ok(())
        })
    })
}

/// Returns the program's pointer. See the header.
///
/// # Safety
/// `context` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_pipe_context(pipe: *mut TgPipe, context: *mut *mut c_void) -> c_int {
    status(|| {
        if context.is_null() {
            return Err(null("context"));
        }
        let stored = with(|table| Ok(table.pipe(pipe.addr() as Handle)?.context))?;
        // SAFETY: the caller guarantees a variable.
        unsafe { context.write(stored) };
        Ok(())
    })
}

/// Directs packets of a flow to a pipe. See the header.
///
/// # Safety
/// `flow` is NULL or points to a flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_pipe_bind(pipe: *mut TgPipe, flow: *const TgFlow) -> c_int {
    status(|| {
        if flow.is_null() {
            return Err(null("flow"));
        }
        // SAFETY: the caller guarantees a flow.
        let flow = unsafe { flow.read() }.flow()?;
        with(|table| {
            let pipe = table.pipe(pipe.addr() as Handle)?;
            receiving!(&mut pipe.kind, pipe => pipe.bind(flow)?);
            Ok(())
        })
    })
}

/// Receives and confirms all bytes that have arrived. See the header.
///
/// # Safety
/// `data` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_pipe_recv(pipe: *mut TgPipe, data: *mut *mut u8) -> i64 {
    received(pipe, data, |kind| {
        receiving!(kind, pipe => {
            if pipe.unconfirmed() == 0 {
                pipe.poll();
            }
            let mut batch = pipe.recv();
            let start = batch.bytes().as_mut_ptr();
            Ok((start, batch.len(), batch.is_empty() && pipe.is_closed()))
        })
    })
}

/// Returns bytes that have arrived without confirming them. See the header.
///
/// # Safety
/// `data` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_pipe_peek(
    pipe: *mut TgPipe,
    max_bytes: usize,
    data: *mut *mut u8,
) -> i64 {
    received(pipe, data, |kind| {
        receiving!(kind, pipe => {
            if pipe.unconfirmed() == 0 {
                pipe.poll();
            }
            let mut batch = pipe.peek_at_most(max_bytes);
            let start = batch.bytes().as_mut_ptr();
            Ok((start, batch.len(), batch.is_empty() && pipe.is_closed()))
        })
    })
}

/// Runs the body of a function that receives: it returns the start of the bytes, their number, and whether there will be
/// no more.
#[inline(always)]
fn received(
    pipe: *mut TgPipe,
    data: *mut *mut u8,
    body: impl FnOnce(&mut Kind) -> Result<(*mut u8, usize, bool), Failure>,
) -> i64 {
    count(|| {
        if data.is_null() {
            return Err(null("data"));
        }
        with(|table| {
            let (start, bytes, ended) = body(&mut table.pipe(pipe.addr() as Handle)?.kind)?;
            if ended {
                return Err(NicClosed.into());
            }
            // SAFETY: the callers of this function guarantee a variable.
            unsafe { data.write(start) };
            Ok(bytes)
        })
    })
}

/// Confirms bytes. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_pipe_confirm(pipe: *mut TgPipe, bytes: usize) -> c_int {
    status(|| {
        with(|table| {
            receiving!(&mut table.pipe(pipe.addr() as Handle)?.kind, pipe => {
                check(bytes, pipe.unconfirmed(), "have arrived and are not confirmed")?;
                pipe.confirm(bytes);
            });
            Ok(())
        })
    })
}

/// Requests a notification. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_pipe_prefetch(pipe: *mut TgPipe) -> c_int {
    status(|| {
        with(|table| {
            receiving!(&mut table.pipe(pipe.addr() as Handle)?.kind, pipe => pipe.prefetch());
            Ok(())
        })
    })
}

/// Frees received bytes. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_pipe_free(pipe: *mut TgPipe, bytes: usize) -> c_int {
    status(|| {
        with(|table| match &mut table.pipe(pipe.addr() as Handle)?.kind {
            Kind::Rx(pipe) => {
                check(bytes, pipe.confirmed(), "are confirmed and not freed")?;
                pipe.free(bytes);
                Ok(())
            }
            Kind::RxTx(_) | Kind::Tx(_) => Err(wrong("free bytes, which sending does", "TG_RX")),
        })
    })
}

/// Returns the free memory of a transmit pipe. See the header.
///
/// # Safety
/// `data` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_pipe_buffer(
    pipe: *mut TgPipe,
    min_bytes: usize,
    data: *mut *mut u8,
) -> i64 {
    count(|| {
        if data.is_null() {
            return Err(null("data"));
        }
        with(|table| {
            let pipe = table.pipe(pipe.addr() as Handle)?;
            let ring = pipe.ring;
            let Kind::Tx(pipe) = &mut pipe.kind else {
                return Err(wrong("allocate memory to send", "TG_TX"));
            };
            check(min_bytes, ring, "fit in the ring")?;
            let buffer = if min_bytes == 0 { pipe.extend() } else { pipe.allocate(min_bytes)? };
            // SAFETY: the caller guarantees a variable.
            unsafe { data.write(buffer.as_mut_ptr()) };
            Ok(buffer.len())
        })
    })
}

/// Sends bytes. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_pipe_send(pipe: *mut TgPipe, bytes: usize) -> c_int {
    status(|| {
        with(|table| match &mut table.pipe(pipe.addr() as Handle)?.kind {
            Kind::RxTx(pipe) => {
                check(bytes, pipe.confirmed(), "are confirmed and not sent")?;
                Ok(pipe.send_and_free(bytes)?)
            }
            Kind::Tx(pipe) => {
                check(bytes, pipe.free(), "of the buffer are free")?;
                Ok(pipe.send_and_free(bytes)?)
            }
            Kind::Rx(_) => Err(wrong("send", "TG_TX or TG_RX_TX")),
        })
    })
}
