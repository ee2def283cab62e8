/* Writes to an array of char, descending, every third: checks whose bounds stay in registers. */
#include "kernel.h"
#include "bounds.h"

static struct timed kernel(size_t size, int passes) {
    struct timed timed = {0};
    char *a = allocated(size);
    bounds b = bounds_of(a, size);
    for (int pass = 0; pass < passes; pass++) {
        uint64_t begin = ticks();
        for (ptrdiff_t i = (ptrdiff_t)size - 1; i >= 0; i -= 3) {
            check_write(b, &a[i], sizeof a[i]);
            a[i] = (char)i;
        }
        timed.passes[pass] = ticks() - begin;
    }
    for (ptrdiff_t i = (ptrdiff_t)size - 1; i >= 0; i -= 3) {
        timed.checksum += (unsigned char)a[i];
        timed.operations++;
    }
    return timed;
}
