// jemalloc with tollgate's interface.
#include "system.h"

#include <tollgate_allocator.h>

// Returns the freed memory that this thread and all arenas keep to the heap.
static __attribute__((noinline, cold)) void make_room(void)
{
  tsd_t* tsd = tsd_fetch();
  if (tcache_available(tsd))
    tcache_flush(tsd);
  for (unsigned each = 0, all = narenas_total_get(); each < all; ++each)
  {
    arena_t* arena = arena_get(tsd_tsdn(tsd), each, false);
    if (arena)
      arena_decay(tsd_tsdn(tsd), arena, false, true);
  }
}

// The result of an allocation, which is retried after freed memory was returned.
#define WITH_ROOM(allocation) \
  ({ \
    void* found = (allocation); \
    if (unlikely(!found)) \
    { \
      make_room(); \
      found = (allocation); \
    } \
    found; \
  })

// jemalloc aligns blocks of less than 16 bytes to 8.
static inline size_t at_least(size_t size)
{
  return size < 16 ? 16 : size;
}

void tollgate_allocator_init(void* heap_start, void* heap_end)
{
  system_begin(heap_start, heap_end);
  // The first call initialises jemalloc.
  je_free(je_malloc(1));
}

void tollgate_allocator_cleanup(void)
{
}

// A thread's cache belongs to its TCS: it is created by the first allocation and serves all calls.
void tollgate_allocator_thread_init(void)
{
}

void tollgate_allocator_thread_cleanup(void)
{
}

void* tollgate_allocator_malloc(size_t size)
{
  return WITH_ROOM(je_malloc(at_least(size)));
}

void tollgate_allocator_free(void* pointer)
{
  je_free(pointer);
}

void* tollgate_allocator_calloc(size_t count, size_t size)
{
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes))
    return NULL;
  return WITH_ROOM(je_calloc(1, at_least(bytes)));
}

void* tollgate_allocator_realloc(void* pointer, size_t size)
{
  return WITH_ROOM(je_realloc(pointer, at_least(size)));
}

void* tollgate_allocator_aligned_alloc(size_t alignment, size_t size)
{
  return WITH_ROOM(je_aligned_alloc(alignment, at_least(size)));
}

int tollgate_allocator_posix_memalign(void** pointer, size_t alignment, size_t size)
{
  if (alignment < sizeof(void*) || (alignment & (alignment - 1)))
    return EINVAL;
  *pointer = tollgate_allocator_aligned_alloc(alignment, size);
  return *pointer ? 0 : ENOMEM;
}

size_t tollgate_allocator_usable_size(void* pointer)
{
  return pointer ? je_malloc_usable_size(pointer) : 0;
}
