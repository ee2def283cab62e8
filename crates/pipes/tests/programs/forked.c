/* A child made by fork: forked SOCKET */
#include "checks.h"
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    alarm(1200); /* a loop that never ends fails the test */
    tg_device *device, *other;
    OK(tg_device_create(argv[1], 0, &device));
    tg_pipe *pipe = pipe_of(device, TG_RX);
    tg_flow flow = udp_to(0);
    OK(tg_pipe_bind(pipe, &flow));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        uint8_t *data;
        FAILS(tg_pipe_recv(pipe, &data), TG_NO_HANDLE, "pipe of this thread");
        FAILS(tg_device_close(device), TG_NO_HANDLE, "device of this thread");
        FAILS(tg_device_create(argv[1], 0, &other), TG_INVALID, "forked by one with devices");
        exit(0); /* with all that runs at the end of a process */
    }
    int status;
    TRUE(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    /* The end of the child had no effect on the parent's device. */
    OK(tg_device_ready(device));
    uint8_t *data;
    int64_t bytes;
    while ((bytes = tg_pipe_recv(pipe, &data)) == 0) {
    }
    TRUE(bytes > 0);
    OK(tg_device_close(device));
    printf("all checks passed\n");
    return 0;
}
