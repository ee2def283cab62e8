// Same as ptrcreation.c, with a span of pointers.
#include "kernel.h"
#include <array>
#include <cstddef>
#include <span>

static timed kernel(size_t size, int passes) {
    constexpr size_t step = 6;
    timed timed = {};
    size_t count = size / sizeof(char *);
    std::span<char *> a(static_cast<char **>(allocated(count * sizeof(char *))), count);
    std::array<char *, 5> p;
    for (size_t k = 0; k < p.size(); k++) p[k] = static_cast<char *>(allocated(100 + 10 * k));
    for (int pass = 0; pass < passes; pass++) {
        uint64_t begin = ticks();
        for (size_t i = 0; i + step <= count; i += step) {
            a[i] = p[0];
            a[i + 2] = p[1];
            a[i + 3] = p[2];
            a[i + 4] = p[3];
            a[i + 5] = p[4];
        }
        timed.passes[pass] = ticks() - begin;
    }
    for (size_t i = 0; i + step <= count; i += step) {
        for (size_t k = 0; k < p.size(); k++) {
            timed.checksum += a[i + k + (k > 0)] == p[k] ? k + 1 : 0;
            timed.operations++;
        }
    }
    return timed;
}
