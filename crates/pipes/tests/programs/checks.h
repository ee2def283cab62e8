/* Checks of results: a failed one prints its line and ends the program. */
#ifndef CHECKS_H
#define CHECKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tollgate_pipes.h>

#define FAILED(...)                                   \
    do {                                              \
        printf("%s:%d: ", __FILE__, __LINE__);        \
        printf(__VA_ARGS__);                          \
        printf("\n");                                 \
        exit(1);                                      \
    } while (0)

/* Checks that a call succeeds. */
#define OK(call)                                                          \
    do {                                                                  \
        long long ok_result = (call);                                     \
        if (ok_result != TG_OK) FAILED("%lld: %s", ok_result, tg_error()); \
    } while (0)

/* Checks that a call fails with a code and one line that contains a text. */
#define FAILS(call, code, text)                                                                          \
    do {                                                                                                 \
        long long fails_result = (call);                                                                 \
        if (fails_result != (code)) FAILED("%lld instead of %d: %s", fails_result, (int)(code), tg_error()); \
        if (strstr(tg_error(), (text)) == NULL || strchr(tg_error(), '\n') != NULL)                      \
            FAILED("'%s' is not in: %s", (text), tg_error());                                            \
    } while (0)

/* Checks a condition. */
#define TRUE(condition)                                 \
    do {                                                \
        if (!(condition)) FAILED("not " #condition);    \
    } while (0)

static inline tg_pipe *pipe_of(tg_device *device, int kind) {
    tg_pipe *pipe;
    OK(tg_pipe_create(device, kind, &pipe));
    return pipe;
}

static inline tg_flow udp_to(uint32_t address) {
    tg_flow flow = {0xc0a80000u + address, 0, 80, 0, TG_UDP};
    return flow;
}

#endif
