/* Each function with wrong arguments: misuse SOCKET */
#include "checks.h"
#include <unistd.h>

#define RING ((size_t)2 << 20)

static void devices(const char *socket) {
    tg_device *device;
    FAILS(tg_device_create("nowhere/nic", 0, &device), TG_NO_NIC, "no NIC at nowhere/nic (No such file");
    TRUE(device == NULL);
    FAILS(tg_device_create("/dev/null", 0, &device), TG_NO_NIC, "no NIC at /dev/null (Connection refused");
    FAILS(tg_device_create("", 0, &device), TG_INVALID, "empty");
    FAILS(tg_device_create(NULL, 0, &device), TG_INVALID, "socket is NULL");
    FAILS(tg_device_create(socket, 0, NULL), TG_INVALID, "device is NULL");
    FAILS(tg_device_create(socket, 5000, &device), TG_INVALID, "5000 B: use a power of two");
    FAILS(tg_device_create(socket, (size_t)1 << 31, &device), TG_INVALID, "power of two");
    FAILS(tg_device_create(socket, SIZE_MAX, &device), TG_INVALID, "power of two");
    OK(tg_device_create(socket, 0, &device));
    tg_device *other;
    FAILS(tg_device_create(socket, 65536, &other), TG_REFUSED, "cannot have pipes of 64 KiB");
    TRUE(other == NULL);
    FAILS(tg_device_next(device, NULL), TG_INVALID, "pipe is NULL");
    TRUE(tg_device_nic_cpu(device) >= 0);
    TRUE(tg_device_complete(device) == 0);
    tg_pipe *pipe = pipe_of(device, TG_RX);
    FAILS(tg_device_close((tg_device *)pipe), TG_NO_HANDLE, "not a device of this thread");
    OK(tg_device_close(device));
    FAILS(tg_device_close(device), TG_NO_HANDLE, "not a device of this thread: closed");
    FAILS(tg_device_ready(device), TG_NO_HANDLE, "device");
    FAILS(tg_device_nic_cpu(device), TG_NO_HANDLE, "device");
    FAILS(tg_device_complete(device), TG_NO_HANDLE, "device");
    FAILS(tg_device_next(device, &pipe), TG_NO_HANDLE, "device");
    TRUE(pipe == NULL);
    FAILS(tg_device_close(NULL), TG_NO_HANDLE, "device");
}

static void handles(tg_device *device) {
    uint8_t *data;
    tg_pipe *pipe;
    FAILS(tg_pipe_create(device, 9, &pipe), TG_INVALID, "kind 9: use TG_RX");
    TRUE(pipe == NULL);
    FAILS(tg_pipe_create(device, TG_RX, NULL), TG_INVALID, "pipe is NULL");
    FAILS(tg_pipe_create(NULL, TG_RX, &pipe), TG_NO_HANDLE, "device");
    tg_pipe *last = NULL;
    for (int i = 0; i < 30; i++) {
        pipe = pipe_of(device, 1 + i % 3);
        TRUE(pipe != last);
        last = pipe;
        OK(tg_pipe_close(pipe));
    }
    FAILS(tg_pipe_close(pipe), TG_NO_HANDLE, "not a pipe of this thread: closed");
    FAILS(tg_pipe_recv(pipe, &data), TG_NO_HANDLE, "pipe");
    FAILS(tg_pipe_send(pipe, 64), TG_NO_HANDLE, "pipe");
    for (uintptr_t wrong = 0; wrong < 100; wrong++) {
        tg_pipe *guess = (tg_pipe *)(wrong * 0x123456789u);
        FAILS(tg_pipe_free(guess, 0), TG_NO_HANDLE, "pipe");
    }
    FAILS(tg_pipe_recv((tg_pipe *)device, &data), TG_NO_HANDLE, "pipe");
}

static void contexts(tg_device *device) {
    tg_pipe *one = pipe_of(device, TG_RX), *other = pipe_of(device, TG_TX);
    void *context = &one;
    OK(tg_pipe_context(one, &context));
    TRUE(context == NULL);
    OK(tg_pipe_set_context(one, &one));
    OK(tg_pipe_set_context(other, &other));
    OK(tg_pipe_context(one, &context));
    TRUE(context == &one);
    FAILS(tg_pipe_context(one, NULL), TG_INVALID, "context is NULL");
    OK(tg_pipe_close(one));
    FAILS(tg_pipe_set_context(one, &one), TG_NO_HANDLE, "pipe");
    FAILS(tg_pipe_context(one, &context), TG_NO_HANDLE, "pipe");
    OK(tg_pipe_close(other));
}

static void flows(tg_device *device) {
    tg_pipe *rx = pipe_of(device, TG_RX), *tx = pipe_of(device, TG_TX);
    tg_flow flow = udp_to(5);
    FAILS(tg_pipe_bind(rx, NULL), TG_INVALID, "flow is NULL");
    FAILS(tg_pipe_bind(tx, &flow), TG_INVALID, "cannot receive");
    flow.src_port = 7;
    FAILS(tg_pipe_bind(rx, &flow), TG_INVALID, "a source with UDP");
    flow.protocol = TG_TCP;
    OK(tg_pipe_bind(rx, &flow));
    flow.protocol = 1;
    FAILS(tg_pipe_bind(rx, &flow), TG_INVALID, "no packet would match");
    flow.protocol = 256;
    FAILS(tg_pipe_bind(rx, &flow), TG_INVALID, "protocol 256");
    OK(tg_pipe_close(rx));
    OK(tg_pipe_close(tx));
}

static void bytes(tg_device *device) {
    uint8_t *data;
    tg_pipe *rx = pipe_of(device, TG_RX), *tx = pipe_of(device, TG_TX), *both = pipe_of(device, TG_RX_TX);
    FAILS(tg_pipe_recv(rx, NULL), TG_INVALID, "data is NULL");
    FAILS(tg_pipe_peek(rx, 64, NULL), TG_INVALID, "data is NULL");
    FAILS(tg_pipe_buffer(tx, 64, NULL), TG_INVALID, "data is NULL");
    TRUE(tg_pipe_recv(rx, &data) == 0);
    TRUE(tg_pipe_peek(both, SIZE_MAX, &data) == 0);
    FAILS(tg_pipe_free(rx, 1), TG_RANGE, "1 B: only 0 B are confirmed and not freed");
    FAILS(tg_pipe_free(rx, SIZE_MAX), TG_RANGE, "only 0 B");
    FAILS(tg_pipe_confirm(rx, 64), TG_RANGE, "only 0 B have arrived");
    FAILS(tg_pipe_send(both, 64), TG_RANGE, "64 B: only 0 B are confirmed and not sent");
    FAILS(tg_pipe_send(both, SIZE_MAX), TG_RANGE, "only 0 B");
    FAILS(tg_pipe_send(rx, 0), TG_INVALID, "cannot send; create one of kind TG_TX or TG_RX_TX");
    FAILS(tg_pipe_free(both, 0), TG_INVALID, "cannot free");
    FAILS(tg_pipe_free(tx, 0), TG_INVALID, "cannot free");
    FAILS(tg_pipe_buffer(both, 0, &data), TG_INVALID, "cannot allocate");
    FAILS(tg_pipe_recv(tx, &data), TG_INVALID, "cannot receive; create one of kind TG_RX or TG_RX_TX");
    FAILS(tg_pipe_prefetch(tx), TG_INVALID, "cannot receive");
    FAILS(tg_pipe_confirm(tx, 0), TG_INVALID, "cannot receive");
    OK(tg_pipe_prefetch(rx));
    OK(tg_pipe_free(rx, 0));
    OK(tg_pipe_send(both, 0));
    FAILS(tg_pipe_buffer(tx, RING + 1, &data), TG_RANGE, "only 2097152 B fit in the ring");
    FAILS(tg_pipe_buffer(tx, SIZE_MAX, &data), TG_RANGE, "fit in the ring");
    TRUE(tg_pipe_buffer(tx, RING, &data) == (int64_t)RING);
    FAILS(tg_pipe_send(tx, RING + 1), TG_RANGE, "2097153 B: only 2097152 B of the buffer are free");
    FAILS(tg_pipe_send(tx, SIZE_MAX), TG_RANGE, "of the buffer are free");
    OK(tg_pipe_send(tx, 0));
    /* The whole buffer is writable, to its last byte. */
    memset(data, 0, RING);
    TRUE(tg_pipe_buffer(tx, 0, &data) == (int64_t)RING);
}

/* Frees received bytes twice. */
static void freed_twice(tg_device *device) {
    tg_pipe *rx = pipe_of(device, TG_RX), *other = pipe_of(device, TG_RX_TX), *next;
    tg_flow flow = udp_to(0);
    OK(tg_pipe_bind(rx, &flow));
    flow = udp_to(1);
    OK(tg_pipe_bind(other, &flow));
    OK(tg_device_ready(device));
    uint8_t *data, *again;
    int64_t count;
    while ((count = tg_pipe_peek(rx, 64, &data)) == 0) {
    }
    TRUE(count == 64 && tg_packet_length(data) == 60);
    FAILS(tg_pipe_free(rx, 64), TG_RANGE, "only 0 B");
    TRUE(tg_pipe_peek(rx, 64, &again) == 64 && again == data);
    OK(tg_pipe_confirm(rx, 64));
    OK(tg_pipe_free(rx, 64));
    FAILS(tg_pipe_free(rx, 64), TG_RANGE, "64 B: only 0 B are confirmed");
    /* Receiving from one pipe does not hide the other's packets. */
    do {
        OK(tg_device_next(device, &next));
    } while (next != other);
    TRUE((count = tg_pipe_recv(other, &data)) >= 64);
    data[43]++;
    OK(tg_pipe_send(other, 64));
    FAILS(tg_pipe_send(other, (size_t)count), TG_RANGE, "are confirmed and not sent");
    while ((count = tg_device_complete(device)) > 0) {
    }
    TRUE(count == 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    alarm(1200); /* a loop that never ends fails the test */
    TRUE(strcmp(tg_error(), "") == 0);
    devices(argv[1]);
    tg_device *device;
    OK(tg_device_create(argv[1], 0, &device));
    handles(device);
    contexts(device);
    flows(device);
    bytes(device);
    freed_twice(device);
    OK(tg_device_close(device));
    printf("all checks passed\n");
    return 0;
}
