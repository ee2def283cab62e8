/* Stores pointers to five blocks into an array: the bounds of each go into a table. */
#include "kernel.h"
#include "bounds.h"

enum { BLOCKS = 5, STEP = 6 };

static struct timed kernel(size_t size, int passes) {
    struct timed timed = {0};
    size_t count = size / sizeof(char *);
    make_directory();
    char **a = allocated(count * sizeof *a);
    bounds b = bounds_of(a, count * sizeof *a);
    char *p[BLOCKS];
    bounds blocks[BLOCKS];
    for (int k = 0; k < BLOCKS; k++) {
        p[k] = allocated(100 + 10 * k);
        blocks[k] = bounds_of(p[k], 100 + 10 * k);
    }
#define PUT(at, k)                                  \
    do {                                            \
        check_write(b, &a[at], sizeof a[at]);       \
        a[at] = p[k];                               \
        store_bounds(&a[at], p[k], blocks[k]);      \
    } while (0)
    for (int pass = 0; pass < passes; pass++) {
        uint64_t begin = ticks();
        for (size_t i = 0; i + STEP <= count; i += STEP) {
            PUT(i, 0);
            PUT(i + 2, 1);
            PUT(i + 3, 2);
            PUT(i + 4, 3);
            PUT(i + 5, 4);
        }
        timed.passes[pass] = ticks() - begin;
    }
    for (size_t i = 0; i + STEP <= count; i += STEP) {
        for (int k = 0; k < BLOCKS; k++) {
            char *slot = a[i + k + (k > 0)];
            /* A pointer counts with its number, and its bounds must allow the whole block. */
            bounds loaded = load_bounds(&a[i + k + (k > 0)], slot);
            check_write(loaded, slot, 100 + 10 * k);
            timed.checksum += slot == p[k] ? k + 1 : 0;
            timed.operations++;
        }
    }
    return timed;
}
