/* Writes to an array inside a struct: its bounds are narrowed to the member for each struct. */
#include "kernel.h"
#include "bounds.h"

struct __attribute__((packed)) item {
    int x;
    int a[2];
    int y;
};

static struct timed kernel(size_t size, int passes) {
    struct timed timed = {0};
    size_t count = size / 8;
    struct item *s = allocated(count * sizeof *s);
    bounds b = bounds_of(s, count * sizeof *s);
    for (int pass = 0; pass < passes; pass++) {
        uint64_t begin = ticks();
        for (size_t i = 0; i < count; i++) {
            bounds inner = narrowed(b, s[i].a, sizeof s[i].a);
            for (int j = 0; j < 2; j++) {
                check_write(inner, &s[i].a[j], sizeof s[i].a[j]);
                s[i].a[j] = (int)i + j;
            }
        }
        timed.passes[pass] = ticks() - begin;
    }
    for (size_t i = 0; i < count; i++) timed.checksum += (uint32_t)s[i].a[0] + (uint64_t)(uint32_t)s[i].a[1];
    timed.operations = 2 * count;
    return timed;
}
