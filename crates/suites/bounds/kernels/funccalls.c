/* Passes a pointer to a function, and its bounds with it. */
#include "kernel.h"
#include "bounds.h"

enum { COUNTERS = 1024 };

/* Not inlined, so that each is a call; the assembly keeps the caller from knowing what it does. */
__attribute__((noinline)) static void add(uint32_t *counter, bounds b, uint32_t value) {
    __asm__ volatile("" : "+r"(counter));
    check_read(b, counter, sizeof *counter);
    check_write(b, counter, sizeof *counter);
    *counter += value;
}

static struct timed kernel(size_t size, int passes) {
    struct timed timed = {0};
    size_t count = size / 8;
    uint32_t *counters = allocated(COUNTERS * sizeof *counters);
    bounds b = bounds_of(counters, COUNTERS * sizeof *counters);
    for (int pass = 0; pass < passes; pass++) {
        for (int k = 0; k < COUNTERS; k++) counters[k] = 0;
        uint64_t begin = ticks();
        for (size_t i = 0; i < count; i++) add(&counters[i % COUNTERS], b, (uint32_t)i);
        timed.passes[pass] = ticks() - begin;
    }
    for (int k = 0; k < COUNTERS; k++) timed.checksum += counters[k];
    timed.operations = count;
    return timed;
}
