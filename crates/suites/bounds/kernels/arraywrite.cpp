// Same as arraywrite.c, with a span: the library checks each index if told to.
#include "kernel.h"
#include <cstddef>
#include <span>

static timed kernel(size_t size, int passes) {
    timed timed = {};
    std::span<char> a(static_cast<char *>(allocated(size)), size);
    for (int pass = 0; pass < passes; pass++) {
        uint64_t begin = ticks();
        for (ptrdiff_t i = static_cast<ptrdiff_t>(size) - 1; i >= 0; i -= 3) a[i] = static_cast<char>(i);
        timed.passes[pass] = ticks() - begin;
    }
    for (ptrdiff_t i = static_cast<ptrdiff_t>(size) - 1; i >= 0; i -= 3) {
        timed.checksum += static_cast<unsigned char>(a[i]);
        timed.operations++;
    }
    return timed;
}
