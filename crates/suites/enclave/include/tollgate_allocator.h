/* The functions that an allocator defines to be linked into an enclave of tollgate.
 *
 * All functions but mallinfo are required: a missing one is a link error. They may call each other, but no code
 * outside the image: of the C library, only memcpy, memmove, memset and memcmp exist. Compile with
 * -ffreestanding -fPIE -fno-stack-protector -ftls-model=local-exec. Locks spin, or sleep by
 * tollgate_enclave_wait. */
#ifndef TOLLGATE_ALLOCATOR_H
#define TOLLGATE_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called once, before all other functions, with the heap's first byte and the byte after its end, both page-aligned.
 * The memory is zero. */
void tollgate_allocator_init(void *heap_start, void *heap_end);
/* Called once, after all other functions, when the enclave is unloaded; not if a fault ended a call before. */
void tollgate_allocator_cleanup(void);
/* Called around each root call into the enclave, on the calling thread. Thread-local variables keep their values
 * between the calls of a TCS. */
void tollgate_allocator_thread_init(void);
void tollgate_allocator_thread_cleanup(void);

/* As in C, with these additions: if no space is left, the result is NULL and nothing else changes; a size of 0
 * returns a pointer that can be freed; realloc of NULL allocates; alignments are at least 16. */
void *tollgate_allocator_malloc(size_t size);
void tollgate_allocator_free(void *pointer);
void *tollgate_allocator_calloc(size_t count, size_t size);
void *tollgate_allocator_realloc(void *pointer, size_t size);
void *tollgate_allocator_aligned_alloc(size_t alignment, size_t size);
/* Returns 0, 12 (ENOMEM) or 22 (EINVAL: not a power of two, or less than the size of a pointer). */
int tollgate_allocator_posix_memalign(void **pointer, size_t alignment, size_t size);
/* Returns how many bytes of a block may be used: at least the requested size. 0 for NULL. */
size_t tollgate_allocator_usable_size(void *pointer);

/* Statistics of an allocator, bytes; 0 if the allocator does not know one of them. */
struct tollgate_mallinfo {
    /* Memory in use, in the units that the allocator counts. */
    size_t current;
    /* Maximum of `current` so far. */
    size_t peak;
    /* Capacity of the heap. */
    size_t max_heap_size;
};
/* Optional; returns 0 if it wrote the statistics. Without it, an allocator reports none. */
int tollgate_allocator_mallinfo(struct tollgate_mallinfo *info);

/* Offered to allocators. Leaves the enclave and sleeps until the word differs from the value, or until a wake. */
void tollgate_enclave_wait(const uint32_t *address, uint32_t value);
/* Leaves the enclave to wake up to `count` sleeping threads. */
void tollgate_enclave_wake(const uint32_t *address, uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
