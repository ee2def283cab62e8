"""Sends packets back to a NIC in another process: echo.py SOCKET PIPES"""

import sys

import tollgate_pipes


def echo(device, count):
    for index in range(count):
        pipe = device.rx_tx_pipe()
        pipe.bind(0xC0A80000 + index, 80)  # one pipe per address, from 192.168.0.0
    device.ready()
    echoed = 0
    try:
        while True:
            pipe = device.next()
            if pipe is None:
                continue
            data = pipe.recv()
            for packet in tollgate_pipes.packets(data):
                packet[43] = (packet[43] + 1) % 256  # the generator expects this change
                echoed += 1
            pipe.send(len(data))
    except tollgate_pipes.PipeError as error:
        if error.code != tollgate_pipes.CLOSED:
            raise
    return echoed


if len(sys.argv) != 3:
    sys.exit(f"usage: {sys.argv[0]} SOCKET PIPES")
try:
    with tollgate_pipes.Device(sys.argv[1]) as device:
        print(f"echoed {echo(device, int(sys.argv[2]))} packets")
except tollgate_pipes.PipeError as error:
    sys.exit(f"error: {error}")
