/* Reads an array of char, descending, every second: checks whose bounds stay in registers. */
#include "kernel.h"
#include "bounds.h"

static struct timed kernel(size_t size, int passes) {
    struct timed timed = {0};
    unsigned char *a = zeroed(size);
    bounds b = bounds_of(a, size);
    if (passes > 1) {
        for (size_t i = 0; i < size; i++) a[i] = (unsigned char)i;
    }
    for (int pass = 0; pass < passes; pass++) {
        uint64_t sum = 0;
        uint64_t begin = ticks();
        for (ptrdiff_t i = (ptrdiff_t)size - 1; i >= 0; i -= 2) {
            check_read(b, &a[i], sizeof a[i]);
            sum += a[i];
        }
        /* The sum is computed before the clock is read. */
        __asm__ volatile("" : "+r"(sum));
        timed.passes[pass] = ticks() - begin;
        timed.checksum = sum;
    }
    timed.operations = (size + 1) / 2;
    return timed;
}
