// rpmalloc with tollgate's interface. Its memory consists of spans of the heap instead of mappings.
#include <tollgate_allocator.h>

#include <stdbool.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// rpmalloc's system calls. None is used if memory has another source.
#define sysconf(name) 4096
#define mmap(...) MAP_FAILED
#define munmap(...) 0
#define madvise(...) 0
#define fopen(...) NULL
#define fgets(...) NULL
#define fclose(...) 0
#define strstr(...) NULL
#define strtol(...) 0

#define ENABLE_OVERRIDE 0
#define ENABLE_PRELOAD 0
#define ENABLE_VALIDATE_ARGS 1
// Memory that a thread keeps after its call is not available to others, so in such a small heap all of it is
// released.
#define ENABLE_GLOBAL_CACHE 0
#include "rpmalloc.c"

// The length and alignment of memory requests.
#define SPAN ((size_t)64 * 1024)
// Number of spans in 16 GiB.
#define MAX_SPANS ((size_t)1 << 18)

static char* spans;
static size_t count;
static bool used[MAX_SPANS];
static atomic_flag taken = ATOMIC_FLAG_INIT;

static void lock(void)
{
  while (atomic_flag_test_and_set_explicit(&taken, memory_order_acquire))
    __builtin_ia32_pause();
}

static void unlock(void)
{
  atomic_flag_clear_explicit(&taken, memory_order_release);
}

// Returns the first consecutive free spans, or NULL if there are not enough.
static void* span_map(size_t size, size_t* offset)
{
  size_t wanted = size / SPAN + (size % SPAN > 0), row = 0;
  void* found = NULL;
  *offset = 0;
  lock();
  for (size_t at = 0; at < count && !found; ++at)
  {
    row = used[at] ? 0 : row + 1;
    if (row == wanted)
    {
      size_t first = at + 1 - wanted;
      memset(&used[first], true, wanted);
      found = spans + first * SPAN;
    }
  }
  unlock();
  return found;
}

static void span_unmap(void* address, size_t size, size_t offset, size_t release)
{
  (void)size, (void)offset;
  // A part of an allocation is kept until the whole is freed.
  if (!release)
    return;
  lock();
  memset(&used[((char*)address - spans) / SPAN], false, release / SPAN + (release % SPAN > 0));
  unlock();
}

void tollgate_allocator_init(void* heap_start, void* heap_end)
{
  uintptr_t first = ((uintptr_t)heap_start + SPAN - 1) & ~(SPAN - 1);
  spans = (char*)first;
  count = first < (uintptr_t)heap_end ? ((uintptr_t)heap_end - first) / SPAN : 0;
  if (count > MAX_SPANS)
    count = MAX_SPANS;
  rpmalloc_config_t config = {
    .memory_map = span_map, .memory_unmap = span_unmap, .span_map_count = 1};
  rpmalloc_initialize_config(&config);
  // The initialisation also started a thread, but threads start with their calls.
  rpmalloc_thread_finalize(1);
  // The first TCS must not be the main thread either, because rpmalloc lets that one bypass its lock.
  _rpmalloc_main_thread_id = 0;
}

void tollgate_allocator_cleanup(void)
{
  rpmalloc_finalize();
}

void tollgate_allocator_thread_init(void)
{
  rpmalloc_thread_initialize();
  // A thread without memory for its heap could not free blocks of other threads.
  if (!rpmalloc_is_thread_initialized())
    __builtin_trap();
}

void tollgate_allocator_thread_cleanup(void)
{
  rpmalloc_thread_finalize(1);
}

void* tollgate_allocator_malloc(size_t size)
{
  return rpmalloc(size);
}

void tollgate_allocator_free(void* pointer)
{
  rpfree(pointer);
}

void* tollgate_allocator_calloc(size_t number, size_t size)
{
  return rpcalloc(number, size);
}

void* tollgate_allocator_realloc(void* pointer, size_t size)
{
  return rprealloc(pointer, size);
}

void* tollgate_allocator_aligned_alloc(size_t alignment, size_t size)
{
  // rpmalloc's sum of both could overflow 64 bits.
  return size > SIZE_MAX / 2 ? NULL : rpaligned_alloc(alignment, size);
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
  return rpmalloc_usable_size(pointer);
}

// Counts the spans taken from the heap.
int tollgate_allocator_mallinfo(struct tollgate_mallinfo* info)
{
  size_t taken_now = 0;
  lock();
  for (size_t at = 0; at < count; ++at)
    taken_now += used[at];
  unlock();
  *info = (struct tollgate_mallinfo){.current = taken_now * SPAN, .max_heap_size = count * SPAN};
  return 0;
}
