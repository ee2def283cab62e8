// Same as funccalls.c: a span, which carries its length, is passed to a function.
#include "kernel.h"
#include <span>
#include <vector>

__attribute__((noinline)) static void add(std::span<uint32_t> counters, size_t at, uint32_t value) {
    __asm__ volatile("" : "+r"(at));
    counters[at] += value;
}

static timed kernel(size_t size, int passes) {
    timed timed = {};
    size_t count = size / 8;
    std::vector<uint32_t> counters(1024);
    for (int pass = 0; pass < passes; pass++) {
        for (uint32_t &counter : counters) counter = 0;
        uint64_t begin = ticks();
        for (size_t i = 0; i < count; i++) add(counters, i % 1024, static_cast<uint32_t>(i));
        timed.passes[pass] = ticks() - begin;
    }
    for (uint32_t counter : counters) timed.checksum += counter;
    timed.operations = count;
    return timed;
}
