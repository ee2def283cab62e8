/* Allocates and frees small blocks, of which sixteen live at a time. */
#include "kernel.h"
#include "bounds.h"

enum { LIVING = 16 };

static struct timed kernel(size_t size, int passes) {
    struct timed timed = {0};
    size_t count = size / 64;
    make_directory();
    unsigned char *ring[LIVING] = {0};
    for (int pass = 0; pass < passes; pass++) {
        uint64_t sum = 0;
        uint64_t begin = ticks();
        for (size_t i = 0; i < count; i++) {
            unsigned char **slot = &ring[i % LIVING], *old = *slot;
            if (old != NULL) {
                bounds b = load_bounds(slot, old);
                check_read(b, old, 1);
                sum += *old;
                free(old);
            }
            size_t length = 100 + i % 5 * 10;
            unsigned char *new = allocated(length);
            bounds b = bounds_of(new, length);
            check_write(b, &new[0], 1);
            new[0] = (unsigned char)i;
            check_write(b, &new[length - 1], 1);
            new[length - 1] = (unsigned char)i;
            *slot = new;
            store_bounds(slot, new, b);
        }
        timed.passes[pass] = ticks() - begin;
        for (int k = 0; k < LIVING; k++) {
            if (ring[k] != NULL) sum += *ring[k];
            free(ring[k]);
            ring[k] = NULL;
        }
        timed.checksum = sum;
    }
    timed.operations = count;
    return timed;
}
