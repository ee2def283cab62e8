/* What an allocator must define to be linked into an enclave of tollgate.
 *
 * All of them but mallinfo: a missing one is an error of the linker. They may call each other, and nothing outside the
 * image: there is no C library below them but memcpy, memmove, memset and memcmp. Compile with
 * -ffreestanding -fPIE -fno-stack-protector -ftls-model=local-exec. Locks spin, or wait by
 * tollgate_enclave_wait. */
#ifndef TOLLGATE_ALLOCATOR_H
#define TOLLGATE_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Once, before all else: the heap's first byte and the first one behind it, both at page bounds. The
 * memory is zero. */
void tollgate_allocator_init(void *heap_start, void *heap_end);
/* Once, after all else, when the enclave is unloaded; not where a fault ended a call before. */
void tollgate_allocator_cleanup(void);
/* Around each root call into the enclave, on the thread that makes it. Thread-local variables keep their
 * values from one call of a TCS to the next. */
void tollgate_allocator_thread_init(void);
void tollgate_allocator_thread_cleanup(void);

/* As in C, with these points settled: where there is no room the result is NULL and nothing else changes;
 * a size of 0 gives a pointer like any other; realloc of NULL allocates; alignments are at least 16. */
void *tollgate_allocator_malloc(size_t size);
void tollgate_allocator_free(void *pointer);
void *tollgate_allocator_calloc(size_t count, size_t size);
void *tollgate_allocator_realloc(void *pointer, size_t size);
void *tollgate_allocator_aligned_alloc(size_t alignment, size_t size);
/* 0, 12 (ENOMEM) or 22 (EINVAL: not a power of two, or below a pointer's size). */
int tollgate_allocator_posix_memalign(void **pointer, size_t alignment, size_t size);
/* How many bytes may be used: at least as many as were asked for. 0 for NULL. */
size_t tollgate_allocator_usable_size(void *pointer);

/* What an allocator tells of itself, in bytes; 0 where it does not know one of them. */
struct tollgate_mallinfo {
    /* In use: in whatever pieces the allocator counts by. */
    size_t current;
    /* The most that ever was. */
    size_t peak;
    /* What the heap can hold. */
    size_t max_heap_size;
};
/* Optional: 0 once it has told. An allocator that lacks it tells nothing. */
int tollgate_allocator_mallinfo(struct tollgate_mallinfo *info);

/* Offered to allocators. Leaves the enclave until the word differs from the value, or was woken. */
void tollgate_enclave_wait(const uint32_t *address, uint32_t value);
/* Leaves the enclave to wake up to so many that wait. */
void tollgate_enclave_wake(const uint32_t *address, uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
