"""Pipes of the software NIC for programs in Python, on top of the C library.

The functions are those of tollgate_pipes.h. An error is raised as PipeError, with the code and the text of the C library.

    with Device("nic.sock") as device:
        pipe = device.rx_tx_pipe()
        pipe.bind("192.168.0.0", 80)
        device.ready()
        ...

Received bytes are a memoryview of the ring: they are not copied, and writing to them changes the ring. A pipe cannot be
closed while such views of it exist, as with mmap. Device and pipes belong to the thread that created them, which closes them
when it ends: views must not outlive it.
"""

import ctypes
import ipaddress
import os
import pathlib
import struct
import weakref

OK, INVALID, NO_HANDLE, NO_NIC, REFUSED, CLOSED, FULL, RANGE, SYSTEM, INTERNAL = range(0, -10, -1)
TCP, UDP = 6, 17
FLIT = 64

_RX, _TX, _RX_TX = 1, 2, 3


class PipeError(Exception):
    """An error of the library: `code` is one of the codes above."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class _Flow(ctypes.Structure):
    _fields_ = [
        ("dst_ip", ctypes.c_uint32),
        ("src_ip", ctypes.c_uint32),
        ("dst_port", ctypes.c_uint16),
        ("src_port", ctypes.c_uint16),
        ("protocol", ctypes.c_uint32),
    ]


def _load():
    """Loads the library named by TOLLGATE_PIPES, next to this file, of a release build, or of the system."""
    name = "libtollgate_pipes.so"
    here = pathlib.Path(__file__).resolve().parent
    places = [here / name, *(folder / "target" / "release" / name for folder in here.parents)]
    found = next((str(place) for place in places if place.exists()), name)
    library = ctypes.CDLL(os.environ.get("TOLLGATE_PIPES", found))
    handle, out, code, count, size = (
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.c_size_t,
    )
    for function, result, arguments in [
        ("tg_error", ctypes.c_char_p, []),
        ("tg_device_create", code, [ctypes.c_char_p, size, out]),
        ("tg_device_close", code, [handle]),
        ("tg_device_ready", code, [handle]),
        ("tg_device_nic_cpu", code, [handle]),
        ("tg_device_next", code, [handle, out]),
        ("tg_device_complete", count, [handle]),
        ("tg_pipe_create", code, [handle, code, out]),
        ("tg_pipe_close", code, [handle]),
        ("tg_pipe_bind", code, [handle, ctypes.POINTER(_Flow)]),
        ("tg_pipe_recv", count, [handle, out]),
        ("tg_pipe_peek", count, [handle, size, out]),
        ("tg_pipe_confirm", code, [handle, size]),
        ("tg_pipe_free", code, [handle, size]),
        ("tg_pipe_prefetch", code, [handle]),
        ("tg_pipe_buffer", count, [handle, size, out]),
        ("tg_pipe_send", code, [handle, size]),
    ]:
        of = getattr(library, function)
        of.restype, of.argtypes = result, arguments
    return library


_library = _load()


def _checked(result):
    """Returns a result that is not an error."""
    if result < 0:
        raise PipeError(result, _library.tg_error().decode(errors="replace"))
    return result


class Device:
    """One thread's access to the NIC at a socket. `ring_bytes` is the size of each ring; 0 means 2 MiB."""

    def __init__(self, socket, ring_bytes=0):
        self._handle = None
        self._pipes = {}
        handle = ctypes.c_void_p()
        _checked(_library.tg_device_create(os.fsencode(socket), ring_bytes, ctypes.byref(handle)))
        self._handle = handle.value
        self._next = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            self.close()
        except BufferError:
            # The error's trace may have views. The device is closed at the end of the thread.
            if error is None:
                raise

    def close(self):
        """Sends the last packets, then closes the device and its pipes. It may be called again."""
        for pipe in self._pipes.values():
            pipe._check_unused()
        if self._handle is not None:
            handle, self._handle = self._handle, None
            for pipe in self._pipes.values():
                pipe._handle = None
            self._pipes.clear()
            _checked(_library.tg_device_close(handle))

    def ready(self):
        """Reports that the program is ready; the generator starts when the first program is."""
        _checked(_library.tg_device_ready(self._handle))

    def nic_cpu(self):
        """Returns the CPU that the NIC uses and the program should not."""
        return _checked(_library.tg_device_nic_cpu(self._handle))

    def next(self):
        """Returns the next pipe that has received bytes, or None. Raises PipeError with CLOSED if the NIC has stopped."""
        _checked(_library.tg_device_next(self._handle, ctypes.byref(self._next)))
        return self._pipes.get(self._next.value)

    def complete(self):
        """Processes completions and returns the number of requests to send that are in flight."""
        return _checked(_library.tg_device_complete(self._handle))

    def rx_pipe(self):
        """Creates a pipe that receives."""
        return self._pipe(_RX)

    def tx_pipe(self):
        """Creates a pipe that sends from a ring of the program."""
        return self._pipe(_TX)

    def rx_tx_pipe(self):
        """Creates a pipe that receives, and sends from the same ring."""
        return self._pipe(_RX_TX)

    def _pipe(self, kind):
        handle = ctypes.c_void_p()
        _checked(_library.tg_pipe_create(self._handle, kind, ctypes.byref(handle)))
        pipe = Pipe(self, handle.value)
        self._pipes[handle.value] = pipe
        return pipe


class _Views:
    """What all views of a pipe refer to as long as they live."""


class Pipe:
    """A pipe of a device."""

    def __init__(self, device, handle):
        self._device, self._handle = device, handle
        self._data = ctypes.c_void_p()
        self._views = _Views()

    def close(self):
        """Closes the pipe once its packets are sent."""
        self._check_unused()
        handle, self._handle = self._handle, None
        _checked(_library.tg_pipe_close(handle))
        self._device._pipes.pop(handle, None)

    def bind(self, dst_ip, dst_port=0, src_ip="0.0.0.0", src_port=0, protocol=UDP):
        """Directs packets of a flow to the pipe. Addresses are texts or numbers."""
        flow = _Flow(int(ipaddress.IPv4Address(dst_ip)), int(ipaddress.IPv4Address(src_ip)), dst_port, src_port, protocol)
        _checked(_library.tg_pipe_bind(self._handle, ctypes.byref(flow)))

    def recv(self):
        """Receives all bytes that have arrived, as a memoryview. Raises PipeError with CLOSED if the NIC has stopped."""
        return self._view(_library.tg_pipe_recv(self._handle, ctypes.byref(self._data)))

    def peek(self, max_bytes):
        """Returns at most `max_bytes` bytes without confirming them."""
        return self._view(_library.tg_pipe_peek(self._handle, max_bytes, ctypes.byref(self._data)))

    def confirm(self, count):
        """Confirms the first `count` bytes of a peek as received."""
        _checked(_library.tg_pipe_confirm(self._handle, count))

    def free(self, count):
        """Frees the oldest `count` received bytes."""
        _checked(_library.tg_pipe_free(self._handle, count))

    def prefetch(self):
        """Requests a notification of bytes that have arrived since the last."""
        _checked(_library.tg_pipe_prefetch(self._handle))

    def buffer(self, min_bytes=0):
        """Returns the free memory to send from, as a memoryview, once it has `min_bytes`."""
        return self._view(_library.tg_pipe_buffer(self._handle, min_bytes, ctypes.byref(self._data)))

    def send(self, count):
        """Sends the oldest `count` received bytes, or the first `count` of the buffer."""
        _checked(_library.tg_pipe_send(self._handle, count))

    def _view(self, count):
        if _checked(count) == 0:
            return memoryview(bytearray())
        array = (ctypes.c_uint8 * count).from_address(self._data.value)
        # The memoryview keeps the array, and the array the mapping.
        array.views, array.device = self._views, self._device
        return memoryview(array).cast("B")

    def _check_unused(self):
        """Raises BufferError if there are views of the ring, which closing unmaps."""
        before, self._views = weakref.ref(self._views), None
        views = before()
        self._views = views or _Views()
        if views is not None:
            raise BufferError("the pipe has views of its ring; delete them before it is closed")


def packets(data):
    """Iterates over the packets of received bytes."""
    at, end = 0, len(data)
    while at < end:
        length = max(struct.unpack_from(">H", data, at + 16)[0] + 14, 60)
        padded = -(-length // FLIT) * FLIT
        if padded > end - at:
            return
        yield data[at : at + length]
        at += padded
