// Same as mallocs.c, with vectors.
#include "kernel.h"
#include <array>
#include <vector>

static timed kernel(size_t size, int passes) {
    constexpr size_t living = 16;
    timed timed = {};
    size_t count = size / 64;
    for (int pass = 0; pass < passes; pass++) {
        std::array<std::vector<unsigned char>, living> ring;
        uint64_t sum = 0;
        uint64_t begin = ticks();
        for (size_t i = 0; i < count; i++) {
            std::vector<unsigned char> &slot = ring[i % living];
            if (!slot.empty()) sum += slot[0];
            size_t length = 100 + i % 5 * 10;
            slot = std::vector<unsigned char>(length);
            slot[0] = static_cast<unsigned char>(i);
            slot[length - 1] = static_cast<unsigned char>(i);
        }
        timed.passes[pass] = ticks() - begin;
        for (const auto &slot : ring) sum += slot.empty() ? 0 : slot[0];
        timed.checksum = sum;
    }
    timed.operations = count;
    return timed;
}
