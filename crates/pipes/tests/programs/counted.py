"""Echoes a number of packets to an address: counted.py SOCKET ADDRESS COUNT"""

import signal
import sys

import tollgate_pipes

signal.alarm(1200)  # a loop that never ends fails the test
socket, address, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with tollgate_pipes.Device(socket) as device:
    pipe = device.rx_tx_pipe()
    pipe.bind(0xC0A80000 + address, 80)
    device.ready()
    echoed = 0
    while echoed < count:
        data = pipe.peek(64)
        if data:
            data[43] = (data[43] + 1) % 256
            pipe.confirm(64)
            pipe.send(64)
            echoed += 1
    del data
print(f"echoed {echoed} packets")
