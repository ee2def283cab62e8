/* Common code of all kernels: arguments, timing and output.
 *
 *   PROGRAM SIZE fresh|prefaulted
 *
 * fresh: one timed pass. prefaulted: one pass that touches all pages (also of tables and shadow memory) and
 * is not counted, then eleven passes whose median is printed. */
#ifndef TOLLGATE_KERNEL_H
#define TOLLGATE_KERNEL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PASSES = 12 };

/* Result of a kernel: ticks of the time-stamp counter of each pass; accesses, calls or blocks per pass; the
 * sum of the values that the last pass wrote or read. */
struct timed {
    uint64_t passes[MOST_PASSES], operations, checksum;
};

/* Waits for all previous instructions; no store or load is moved across. */
static inline __attribute__((always_inline)) uint64_t ticks(void) {
    uint32_t low, high;
    __asm__ volatile("mfence\n\tlfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
}

static struct timed kernel(size_t size, int passes);

/* Makes the memory visible to unknown code, so that no pass is removed. Its size stays known. */
static inline __attribute__((always_inline)) void *check_allocated(void *memory) {
    if (memory == NULL) {
        perror("memory");
        exit(3);
    }
    __asm__ volatile("" : : "r"(memory) : "memory");
    return memory;
}

#define allocated(size) check_allocated(malloc(size))
/* Large blocks are untouched zero pages from the system. */
#define zeroed(size) check_allocated(calloc(1, size))

/* Peak memory of this program, in bytes. */
static uint64_t peak_memory(void) {
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL) return 0;
    while (fgets(line, sizeof line, status) != NULL) {
        if (sscanf(line, "VmHWM: %llu kB", &kilobytes) == 1) break;
    }
    fclose(status);
    return kilobytes * 1024;
}

static int ascending(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

int main(int count, char **arguments) {
    if (count != 3) {
        fputs("arguments: SIZE fresh|prefaulted\n", stderr);
        return 2;
    }
    size_t size = strtoull(arguments[1], NULL, 10);
    int passes = strcmp(arguments[2], "prefaulted") == 0 ? MOST_PASSES : 1;
    struct timed timed = kernel(size, passes);
    if (passes > 1) qsort(&timed.passes[1], MOST_PASSES - 1, sizeof timed.passes[0], ascending);
    uint64_t taken = timed.passes[passes / 2];
    uint64_t memory = peak_memory();
    printf("ticks=%llu operations=%llu checksum=%llu memory=%llu\n",
           (unsigned long long)taken, (unsigned long long)timed.operations,
           (unsigned long long)timed.checksum, (unsigned long long)memory);
    return 0;
}

#endif
