/* Sends packets back to a NIC in another process: echo SOCKET PIPES */
#include <stdio.h>
#include <stdlib.h>
#include <tollgate_pipes.h>

static int failed(void) {
    fprintf(stderr, "error: %s\n", tg_error());
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s SOCKET PIPES\n", argv[0]);
        return 2;
    }
    tg_device *device;
    if (tg_device_create(argv[1], 0, &device) != TG_OK) {
        return failed();
    }
    for (int i = 0; i < atoi(argv[2]); i++) {
        /* One pipe per address, from 192.168.0.0. */
        tg_flow flow = {.dst_ip = 0xc0a80000u + (uint32_t)i, .dst_port = 80, .protocol = TG_UDP};
        tg_pipe *pipe;
        if (tg_pipe_create(device, TG_RX_TX, &pipe) != TG_OK || tg_pipe_bind(pipe, &flow) != TG_OK) {
            return failed();
        }
    }
    if (tg_device_ready(device) != TG_OK) {
        return failed();
    }
    unsigned long long echoed = 0;
    tg_pipe *pipe;
    int status = TG_OK;
    while (status == TG_OK && (status = tg_device_next(device, &pipe)) == TG_OK) {
        if (pipe == NULL) {
            continue;
        }
        uint8_t *data, *packet;
        int64_t bytes = tg_pipe_recv(pipe, &data);
        if (bytes < 0) {
            status = (int)bytes;
            break;
        }
        tg_packets packets = tg_packets_of(data, (size_t)bytes);
        size_t length;
        while ((packet = tg_packets_next(&packets, &length)) != NULL) {
            packet[43]++; /* the generator expects this change */
            echoed++;
        }
        status = tg_pipe_send(pipe, (size_t)bytes);
    }
    int result = status == TG_CLOSED ? 0 : failed(); /* the NIC has stopped, or an error */
    printf("echoed %llu packets\n", echoed);
    tg_device_close(device);
    return result;
}
