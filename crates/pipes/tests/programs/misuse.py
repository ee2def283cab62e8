"""The module with wrong arguments: misuse.py SOCKET"""

import gc
import signal
import sys
import threading

import tollgate_pipes
from tollgate_pipes import CLOSED, INVALID, NO_HANDLE, NO_NIC, RANGE, REFUSED, Device, PipeError


def fails(code, text, call, *arguments):
    try:
        call(*arguments)
    except PipeError as error:
        assert error.code == code and text in str(error), (error.code, str(error))
    else:
        raise AssertionError(f"no error with '{text}'")


signal.alarm(1200)  # a loop that never ends fails the test
fails(NO_NIC, "no NIC at nowhere", Device, "nowhere")
fails(INVALID, "power of two", Device, sys.argv[1], 5000)
device = Device(sys.argv[1])
fails(REFUSED, "cannot have pipes of 64 KiB", Device, sys.argv[1], 65536)
rx, tx, both = device.rx_pipe(), device.tx_pipe(), device.rx_tx_pipe()
fails(INVALID, "a source with UDP", rx.bind, "192.168.0.0", 80, "1.2.3.4")
fails(INVALID, "cannot receive", tx.recv)
fails(RANGE, "only 0 B", rx.free, 64)
fails(RANGE, "only 0 B", both.send, 64)
fails(RANGE, "fit in the ring", tx.buffer, (2 << 20) + 1)
buffer = tx.buffer()
assert len(buffer) == 2 << 20
buffer[-1] = 7
fails(RANGE, "of the buffer are free", tx.send, len(buffer) + 1)
assert len(rx.recv()) == 0 and device.complete() == 0 and device.nic_cpu() >= 0

# A part of a view keeps the ring mapped.
part = buffer[-1:]
del buffer
gc.collect()
for close in [tx.close, device.close]:
    try:
        close()
    except BufferError:
        assert part[0] == 7
    else:
        raise AssertionError("closed with views")
del part
tx.close()
fails(NO_HANDLE, "not a pipe of this thread", tx.buffer)
fails(NO_HANDLE, "not a pipe of this thread", tx.close)

# Another thread has other devices.
errors = []


def other_thread():
    try:
        fails(NO_HANDLE, "created by another thread", rx.recv)
        with Device(sys.argv[1]) as mine:
            mine.rx_pipe()
    except BaseException as error:
        errors.append(error)


thread = threading.Thread(target=other_thread)
thread.start()
thread.join()
assert not errors, errors

# Packets arrive, and each is freed once.
rx.bind("192.168.0.0", 80)
device.ready()
while not (data := rx.recv()):
    pass
packets = list(tollgate_pipes.packets(data))
assert all(len(packet) == 60 for packet in packets) and len(data) == 64 * len(packets)
assert bytes(packets[0][30:34]) == b"\xc0\xa8\0\0"
rx.free(len(data))
fails(RANGE, "only 0 B", rx.free, len(data))
del packets, data
device.close()
device.close()
fails(NO_HANDLE, "not a pipe of this thread", rx.recv)
fails(NO_HANDLE, "not a device of this thread", device.next)
assert CLOSED == -5
print("all checks passed")
