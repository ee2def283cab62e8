// Same as arrayread.c, with a span.
#include "kernel.h"
#include <cstddef>
#include <span>

static timed kernel(size_t size, int passes) {
    timed timed = {};
    std::span<unsigned char> a(static_cast<unsigned char *>(zeroed(size)), size);
    if (passes > 1) {
        for (size_t i = 0; i < size; i++) a[i] = static_cast<unsigned char>(i);
    }
    for (int pass = 0; pass < passes; pass++) {
        uint64_t sum = 0;
        uint64_t begin = ticks();
        for (ptrdiff_t i = static_cast<ptrdiff_t>(size) - 1; i >= 0; i -= 2) sum += a[i];
        __asm__ volatile("" : "+r"(sum));
        timed.passes[pass] = ticks() - begin;
        timed.checksum = sum;
    }
    timed.operations = (size + 1) / 2;
    return timed;
}
