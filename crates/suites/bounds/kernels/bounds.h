/* Software bounds checks, at the points where a compiler pass for bounds registers would insert them.
 *
 * Without SOFTWARE_BOUNDS all macros are empty and the program is the baseline. With it, bounds are two
 * words in registers, and each access is preceded by a comparison with both.
 *
 *   SOFTWARE_TABLES   bounds of a stored pointer are stored in a table with a directory, as by bndstx and
 *                     bndldx; without it a loaded pointer has no bounds
 *   ONLY_WRITES       reads are not checked
 *   NO_NARROWING      a member of an object has the bounds of the whole object
 */
#ifndef TOLLGATE_BOUNDS_H
#define TOLLGATE_BOUNDS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define INLINE static inline __attribute__((always_inline, unused))

#ifndef SOFTWARE_BOUNDS

typedef struct {
} bounds;

INLINE bounds bounds_of(const void *pointer, size_t size) { return (bounds){}; }
INLINE bounds narrowed(bounds outer, const void *pointer, size_t size) { return outer; }
INLINE void check_read(bounds b, const void *pointer, size_t size) {}
INLINE void check_write(bounds b, const void *pointer, size_t size) {}
INLINE void store_bounds(const void *slot, const void *pointer, bounds b) {}
INLINE bounds load_bounds(const void *slot, const void *pointer) { return (bounds){}; }
INLINE void make_directory(void) {}

#else

/* First and last byte. */
typedef struct {
    uintptr_t low, high;
} bounds;

__attribute__((noinline, cold, noreturn, unused)) static void violated(void) {
    fputs("software bounds: violated\n", stderr);
    abort();
}

/* Hides a bound from the optimiser, which would otherwise remove checks that hardware would make. */
INLINE bounds opaque(bounds b) {
    __asm__ volatile("" : "+r"(b.low), "+r"(b.high));
    return b;
}

/* bndmk */
INLINE bounds bounds_of(const void *pointer, size_t size) {
    uintptr_t low = (uintptr_t)pointer;
    return opaque((bounds){low, low + size - 1});
}

INLINE bounds narrowed(bounds outer, const void *pointer, size_t size) {
#ifdef NO_NARROWING
    return outer;
#else
    return bounds_of(pointer, size);
#endif
}

/* bndcl and bndcu */
INLINE void check(bounds b, const void *pointer, size_t size) {
    uintptr_t address = (uintptr_t)pointer;
    if (__builtin_expect(address < b.low, 0)) violated();
    if (__builtin_expect(address + size - 1 > b.high, 0)) violated();
}

INLINE void check_write(bounds b, const void *pointer, size_t size) { check(b, pointer, size); }

INLINE void check_read(bounds b, const void *pointer, size_t size) {
#ifndef ONLY_WRITES
    check(b, pointer, size);
#endif
}

#ifdef SOFTWARE_TABLES

/* As in hardware: 28 bits of an address select an entry of the 2 GiB directory, 17 bits an entry of a
 * 4 MiB table. */
struct entry {
    bounds stored;
    const void *pointer;
    uintptr_t reserved;
};
enum { DIRECTORY_BITS = 28, TABLE_BITS = 17, SLOT_BITS = 3 };
static struct entry **directory;

INLINE void *reserved(size_t size) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) {
        perror("bounds tables");
        exit(3);
    }
    return memory;
}

INLINE void make_directory(void) {
    directory = (struct entry **)reserved(sizeof(struct entry *) << DIRECTORY_BITS);
}

__attribute__((noinline, cold, unused)) static struct entry *made_table(struct entry **place) {
    return *place = (struct entry *)reserved(sizeof(struct entry) << TABLE_BITS);
}

INLINE struct entry *entry_of(const void *slot) {
    uintptr_t word = (uintptr_t)slot >> SLOT_BITS;
    struct entry **place = &directory[word >> TABLE_BITS & (((uintptr_t)1 << DIRECTORY_BITS) - 1)];
    struct entry *table = *place;
    if (__builtin_expect(table == NULL, 0)) table = made_table(place);
    return &table[word & (((uintptr_t)1 << TABLE_BITS) - 1)];
}

/* bndstx */
INLINE void store_bounds(const void *slot, const void *pointer, bounds b) {
    struct entry *entry = entry_of(slot);
    entry->stored = b;
    entry->pointer = pointer;
}

/* bndldx: if the entry is of another pointer, every access is allowed. */
INLINE bounds load_bounds(const void *slot, const void *pointer) {
    struct entry *entry = entry_of(slot);
    if (entry->pointer != pointer) return (bounds){0, UINTPTR_MAX};
    return entry->stored;
}

#else

INLINE void store_bounds(const void *slot, const void *pointer, bounds b) {}
INLINE bounds load_bounds(const void *slot, const void *pointer) {
    return (bounds){0, UINTPTR_MAX};
}
INLINE void make_directory(void) {}

#endif
#endif

/* Checks both ranges first, as wrappers of library functions do. */
INLINE void copy(void *to, bounds to_bounds, const void *from, bounds from_bounds, size_t size) {
    if (size > 0) {
        check_write(to_bounds, to, size);
        check_read(from_bounds, from, size);
    }
    memcpy(to, from, size);
}

#endif
