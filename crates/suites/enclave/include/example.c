/* A minimal user-supplied allocator: a list of blocks, first fit, under a spinning lock. To build a library for
 * tollgate:
 *
 *     cc -O2 -ffreestanding -fPIE -fno-stack-protector -c example.c && ar rcs libexample.a example.o
 */
#include "tollgate_allocator.h"

#include <stdatomic.h>
#include <stdbool.h>

#define UNIT 16

/* The header of each block, free or used; the next block follows it. Adjacent free blocks are merged when an
 * allocation searches for space. */
struct head {
    size_t size;
    size_t used;
};

static char *start;
/* No block before this one is free. */
static struct head *lowest, *end;
static atomic_flag taken = ATOMIC_FLAG_INIT;

static void lock(void) {
    while (atomic_flag_test_and_set_explicit(&taken, memory_order_acquire))
        __builtin_ia32_pause();
}

static void unlock(void) {
    atomic_flag_clear_explicit(&taken, memory_order_release);
}

static struct head *after(struct head *block) {
    return (struct head *)((char *)(block + 1) + block->size);
}

void tollgate_allocator_init(void *heap_start, void *heap_end) {
    start = heap_start;
    lowest = heap_start;
    end = heap_end;
    lowest->size = (size_t)((char *)heap_end - (char *)heap_start) - sizeof *lowest;
    lowest->used = false;
}

void tollgate_allocator_cleanup(void) {}
void tollgate_allocator_thread_init(void) {}
void tollgate_allocator_thread_cleanup(void) {}

/* Splits a block if the remainder is large enough for another. */
static void cut(struct head *block, size_t size) {
    if (block->size >= size + sizeof *block + UNIT) {
        size_t rest = block->size - size - sizeof *block;
        block->size = size;
        after(block)->size = rest;
        after(block)->used = false;
    }
}

void *tollgate_allocator_aligned_alloc(size_t alignment, size_t size) {
    void *found = NULL;
    if (size > SIZE_MAX / 2)
        return NULL;
    size = size < UNIT ? UNIT : (size + UNIT - 1) / UNIT * UNIT;
    lock();
    for (struct head *block = lowest; block < end; block = after(block)) {
        if (block->used) {
            if (block == lowest)
                lowest = after(block);
            continue;
        }
        while (after(block) < end && !after(block)->used)
            block->size += sizeof *block + after(block)->size;
        /* The space before the aligned block must be empty or large enough for a block. */
        size_t skip = -(uintptr_t)(block + 1) % alignment;
        if (skip > 0 && skip < sizeof *block + UNIT)
            skip += alignment;
        if (block->size < skip || block->size - skip < size)
            continue;
        if (skip > 0) {
            cut(block, skip - sizeof *block);
            block = after(block);
        }
        cut(block, size);
        block->used = true;
        found = block + 1;
        break;
    }
    unlock();
    return found;
}

void *tollgate_allocator_malloc(size_t size) {
    return tollgate_allocator_aligned_alloc(UNIT, size);
}

void tollgate_allocator_free(void *pointer) {
    if (pointer) {
        struct head *block = (struct head *)pointer - 1;
        lock();
        block->used = false;
        if (block < lowest)
            lowest = block;
        unlock();
    }
}

size_t tollgate_allocator_usable_size(void *pointer) {
    return pointer ? ((struct head *)pointer - 1)->size : 0;
}

void *tollgate_allocator_calloc(size_t count, size_t size) {
    size_t bytes;
    void *pointer = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes))
        pointer = tollgate_allocator_malloc(bytes);
    return pointer ? __builtin_memset(pointer, 0, bytes) : NULL;
}

void *tollgate_allocator_realloc(void *pointer, size_t size) {
    size_t usable = tollgate_allocator_usable_size(pointer);
    void *moved = tollgate_allocator_malloc(size);
    if (moved && pointer) {
        __builtin_memcpy(moved, pointer, usable < size ? usable : size);
        tollgate_allocator_free(pointer);
    }
    return moved;
}

int tollgate_allocator_posix_memalign(void **pointer, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
        return 22;
    *pointer = tollgate_allocator_aligned_alloc(alignment < UNIT ? UNIT : alignment, size);
    return *pointer ? 0 : 12;
}

/* Optional. It need not be fast. */
int tollgate_allocator_mallinfo(struct tollgate_mallinfo *info) {
    *info = (struct tollgate_mallinfo){.max_heap_size = (size_t)((char *)end - start)};
    lock();
    for (struct head *block = (struct head *)start; block < end; block = after(block))
        info->current += block->used ? block->size : 0;
    unlock();
    return 0;
}
