/* Devices of several threads: threads SOCKET */
#include "checks.h"
#include <unistd.h>
#include <pthread.h>

static const char *socket_path;
static tg_device *main_device;
static tg_pipe *main_pipe, *left_pipe;

/* Uses handles of the main thread, then leaves a device open. */
static void *other_thread(void *unused) {
    uint8_t *data;
    tg_pipe *pipe;
    (void)unused;
    TRUE(strcmp(tg_error(), "") == 0);
    FAILS(tg_pipe_recv(main_pipe, &data), TG_NO_HANDLE, "created by another thread");
    FAILS(tg_device_next(main_device, &pipe), TG_NO_HANDLE, "created by another thread");
    FAILS(tg_device_close(main_device), TG_NO_HANDLE, "created by another thread");
    tg_device *device;
    OK(tg_device_create(socket_path, 0, &device));
    FAILS(tg_pipe_close(main_pipe), TG_NO_HANDLE, "created by another thread");
    left_pipe = pipe_of(device, TG_RX);
    tg_flow flow = udp_to(1);
    OK(tg_pipe_bind(left_pipe, &flow));
    return NULL;
}

/* Receives packets of a flow by a separate device. */
static void *receiver(void *address) {
    tg_device *device;
    OK(tg_device_create(socket_path, 0, &device));
    tg_pipe *pipe = pipe_of(device, TG_RX);
    tg_flow flow = udp_to((uint32_t)(uintptr_t)address);
    OK(tg_pipe_bind(pipe, &flow));
    OK(tg_device_ready(device));
    uint8_t *data;
    for (int64_t all = 0; all < 10 * 64;) {
        int64_t bytes = tg_pipe_recv(pipe, &data);
        TRUE(bytes >= 0);
        all += bytes;
        OK(tg_pipe_free(pipe, (size_t)bytes));
        TRUE(bytes == 0 || data[33] == (uintptr_t)address); /* end of the destination address */
    }
    OK(tg_device_close(device));
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    alarm(1200); /* a loop that never ends fails the test */
    socket_path = argv[1];
    pthread_t threads[2];
    OK(tg_device_create(socket_path, 0, &main_device));
    main_pipe = pipe_of(main_device, TG_RX);
    TRUE(pthread_create(&threads[0], NULL, other_thread, NULL) == 0 && pthread_join(threads[0], NULL) == 0);
    uint8_t *data;
    FAILS(tg_pipe_recv(left_pipe, &data), TG_NO_HANDLE, "pipe of this thread");
    /* The main thread's device is not affected, also if others of the process come and go. */
    for (int round = 0; round < 3; round++) {
        for (uintptr_t i = 0; i < 2; i++) {
            TRUE(pthread_create(&threads[i], NULL, receiver, (void *)i) == 0);
        }
        for (int i = 0; i < 2; i++) TRUE(pthread_join(threads[i], NULL) == 0);
    }
    tg_flow flow = udp_to(0);
    OK(tg_pipe_bind(main_pipe, &flow));
    int64_t bytes;
    while ((bytes = tg_pipe_recv(main_pipe, &data)) == 0) {
    }
    TRUE(bytes > 0);
    /* Left to the end of the process. */
    printf("all checks passed\n");
    return 0;
}
