// Same as struct.c, with a span of structs that hold a std::array.
#include "kernel.h"
#include <array>
#include <cstddef>
#include <span>

struct item {
    int x;
    std::array<int, 2> a;
    int y;
};

static timed kernel(size_t size, int passes) {
    timed timed = {};
    size_t count = size / 8;
    std::span<item> s(static_cast<item *>(allocated(count * sizeof(item))), count);
    for (int pass = 0; pass < passes; pass++) {
        uint64_t begin = ticks();
        for (size_t i = 0; i < count; i++) {
            for (int j = 0; j < 2; j++) s[i].a[j] = static_cast<int>(i) + j;
        }
        timed.passes[pass] = ticks() - begin;
    }
    for (const item &one : s) {
        for (int value : one.a) timed.checksum += static_cast<uint32_t>(value);
    }
    timed.operations = 2 * count;
    return timed;
}
