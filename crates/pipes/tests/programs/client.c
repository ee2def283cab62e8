/* One of several programs: client SOCKET ADDRESS RING MODE
 *
 * It binds an address, says so, and waits for a line before it is ready. Modes: echo; copy, which copies packets to a
 * transmit pipe; flood, which sends as fast as memory is free. It ends with the NIC, or by SIGTERM. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tollgate_pipes.h>
#include <unistd.h>

static volatile sig_atomic_t ended;

static void end(int signal) {
    (void)signal;
    ended = 1;
}

static int failed(long long code) {
    fprintf(stderr, "%lld: %s\n", code, tg_error());
    return code == TG_CLOSED ? 0 : 1;
}

static unsigned long long echoed;

static int echo(tg_pipe *from, tg_pipe *to, uint8_t *data, size_t bytes) {
    tg_packets packets = tg_packets_of(data, bytes);
    uint8_t *packet, *copy;
    size_t length;
    while ((packet = tg_packets_next(&packets, &length)) != NULL) {
        echoed++;
        packet[43]++;
        if (to != NULL) {
            int64_t space = tg_pipe_buffer(to, length, &copy);
            if (space < 0) return (int)space;
            memcpy(copy, packet, length);
            int code = tg_pipe_send(to, length);
            if (code != TG_OK) return code;
        }
    }
    return to == NULL ? tg_pipe_send(from, bytes) : tg_pipe_free(from, bytes);
}

static int flood(tg_pipe *to) {
    uint8_t *data;
    for (;;) {
        int64_t space = tg_pipe_buffer(to, 65536, &data);
        if (space < 0) return (int)space;
        int code = tg_pipe_send(to, (size_t)space);
        if (code != TG_OK) return code;
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    alarm(1200); /* a loop that never ends fails the test */
    signal(SIGTERM, end);
    int copies = strcmp(argv[4], "copy") == 0, floods = strcmp(argv[4], "flood") == 0;
    tg_device *device;
    tg_pipe *pipe, *to = NULL;
    int code = tg_device_create(argv[1], (size_t)atoi(argv[3]), &device);
    if (code != TG_OK) return failed(code);
    code = tg_pipe_create(device, copies ? TG_RX : TG_RX_TX, &pipe);
    if (code == TG_OK && (copies || floods)) code = tg_pipe_create(device, TG_TX, &to);
    tg_flow flow = {0xc0a80000u + (uint32_t)atoi(argv[2]), 0, 80, 0, TG_UDP};
    if (code == TG_OK) code = tg_pipe_bind(pipe, &flow);
    if (code != TG_OK) return failed(code);
    fprintf(stderr, "bound\n");
    char line[16];
    if (fgets(line, sizeof line, stdin) == NULL) return 0;
    if ((code = tg_device_ready(device)) != TG_OK) return failed(code);
    if (floods) return failed(flood(to));
    while (!ended && (code = tg_device_next(device, &pipe)) == TG_OK) {
        if (pipe == NULL) {
            struct timespec moment = {0, 1000000};
            nanosleep(&moment, NULL);
            continue;
        }
        uint8_t *data;
        int64_t bytes = tg_pipe_recv(pipe, &data);
        code = bytes < 0 ? (int)bytes : echo(pipe, to, data, (size_t)bytes);
        if (code != TG_OK) break;
    }
    int result = code == TG_OK ? 0 : failed(code);
    tg_device_close(device);
    printf("echoed %llu packets\n", echoed);
    return result;
}
