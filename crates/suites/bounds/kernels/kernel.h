/* What a kernel's program shares with all others: its arguments, the time, and what it prints.
 *
 *   PROGRAM SIZE fresh|prefaulted
 *
 * A kernel makes one pass, or two of which the second is timed (prefaulted: every page that a pass
 * touches, those of tables and shadows too, is there by then). */
#ifndef TOLLGATE_KERNEL_H
#define TOLLGATE_KERNEL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One timed pass: its ticks of the time-stamp counter, and how many accesses, calls or blocks it had. */
struct timed {
    uint64_t begin, end, operations, checksum;
};

/* Every instruction before has ended, and no store or load is moved across. */
static inline __attribute__((always_inline)) uint64_t ticks(void) {
    uint32_t low, high;
    __asm__ volatile("mfence\n\tlfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
}

/* The kernel. `first` is 0 where a pass goes before the timed one, which has the number 1. */
static struct timed kernel(size_t size, int first);

static inline void *there(void *memory) {
    if (memory == NULL) {
        perror("memory");
        exit(3);
    }
    return memory;
}

#define allocated(size) there(malloc(size))
/* What is large comes from the system as pages of zeros that nothing has touched yet. */
#define zeroed(size) there(calloc(1, size))

/* Most memory that this program had, in bytes. */
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

int main(int count, char **arguments) {
    if (count != 3) {
        fputs("arguments: SIZE fresh|prefaulted\n", stderr);
        return 2;
    }
    size_t size = strtoull(arguments[1], NULL, 10);
    int first = strcmp(arguments[2], "prefaulted") == 0 ? 0 : 1;
    struct timed timed = kernel(size, first);
    uint64_t memory = peak_memory();
    printf("ticks=%llu operations=%llu checksum=%llu memory=%llu\n",
           (unsigned long long)(timed.end - timed.begin), (unsigned long long)timed.operations,
           (unsigned long long)timed.checksum, (unsigned long long)memory);
    return 0;
}

#endif
