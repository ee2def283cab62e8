// mimalloc with tollgate's interface. Its interface to the system, prim.h, is implemented with the pages of the heap;
// its other sources are those of its static.c.
#include <pages.h>

#include "mimalloc.h"
#include "mimalloc/internal.h"

#include "alloc.c"
#include "alloc-aligned.c"
#include "alloc-posix.c"
#include "arena.c"
#include "arena-meta.c"
#include "bitmap.c"
#include "heap.c"
#include "init.c"
#include "libc.c"
#include "options.c"
#include "os.c"
#include "page.c"
#include "page-map.c"
#include "random.c"
#include "stats.c"
#include "theap.c"
#include "threadlocal.c"

// Its map of the address space: one pointer per group of slices of the 47-bit address space. Few of its pages are
// used. It is part of the image, because no heap is as large.
#define MAP_ENTRIES ((size_t)1 << (47 - MI_ARENA_SLICE_SHIFT - MI_PAGE_MAP_SUB_SHIFT))
static char map[MAP_ENTRIES * sizeof(void*) + 2 * MI_MiB] __attribute__((aligned(4096)));

static uintptr_t heap_end;

FILE *stdout, *stderr;

void _mi_prim_mem_init(mi_os_mem_config_t* config)
{
  config->page_size = PAGE_BYTES;
  // Alignments up to here are guaranteed, so that mimalloc need not request more memory and return the rest: all are.
  config->alloc_granularity = SIZE_MAX;
  config->large_page_size = 0;
  config->physical_memory_in_kib = pages_count * (PAGE_BYTES / MI_KiB);
  config->virtual_address_bits = 64 - (size_t)__builtin_clzll(heap_end);
  config->has_overcommit = true;
  config->has_partial_free = true;
  config->has_virtual_reserve = false;
  config->has_transparent_huge_pages = false;
}

int _mi_prim_alloc(
  void* hint, size_t size, size_t alignment, bool commit, bool allow_large, bool* is_large, bool* is_zero, void** address)
{
  // The map is the first request.
  static bool mapped;
  *is_large = false;
  if (!mapped && size <= sizeof map)
  {
    mapped = true;
    *is_zero = true;
    *address = map;
    return 0;
  }
  *is_zero = false;
  *address = pages_take(NULL, size, alignment, is_zero);
  return *address ? 0 : ENOMEM;
}

int _mi_prim_free(void* address, size_t size)
{
  pages_give(address, size);
  return 0;
}

// Pages are always present and usable.
int _mi_prim_commit(void* address, size_t size, bool* is_zero)
{
  *is_zero = false;
  return 0;
}

int _mi_prim_decommit(void* address, size_t size, bool* needs_recommit)
{
  *needs_recommit = false;
  return 0;
}

int _mi_prim_reset(void* address, size_t size)
{
  return 0;
}

int _mi_prim_reuse(void* address, size_t size)
{
  return 0;
}

int _mi_prim_protect(void* address, size_t size, bool protect)
{
  return 0;
}

int _mi_prim_alloc_huge_os_pages(void* hint, size_t size, int node, bool* is_zero, void** address)
{
  *address = NULL;
  return ENOMEM;
}

size_t _mi_prim_numa_node(void)
{
  return 0;
}

size_t _mi_prim_numa_node_count(void)
{
  return 1;
}

// The time in ticks: mimalloc's time-based work may run at any time.
mi_msecs_t _mi_prim_clock_now(void)
{
  return (mi_msecs_t)(__builtin_ia32_rdtsc() >> 20);
}

void _mi_prim_process_info(mi_process_info_t* info)
{
}

void _mi_prim_out_stderr(const char* message)
{
}

bool _mi_prim_getenv(const char* name, char* result, size_t size)
{
  return false;
}

// The clock suffices.
bool _mi_prim_random_buf(void* buffer, size_t length)
{
  return false;
}

void _mi_prim_thread_init_auto_done(void)
{
}

void _mi_prim_thread_done_auto_done(void)
{
}

void _mi_prim_thread_associate_default_theap(mi_theap_t* theap)
{
}

bool _mi_prim_thread_is_in_threadpool(void)
{
  return false;
}

void _mi_prim_thread_yield(void)
{
  __builtin_ia32_pause();
}

bool _mi_is_redirected(void)
{
  return false;
}

bool _mi_allocator_init(const char** message)
{
  return true;
}

void _mi_allocator_done(void)
{
}

// Creates one arena of as many whole chunks as fit into the heap next to the lower level of the map, which is
// allocated as pages: at most two parts for the heap's addresses. The remaining pages stay available.
static void one_arena(void)
{
  size_t lower = 2 * MI_PAGE_MAP_SUB_SIZE, all = pages_count * PAGE_BYTES;
  size_t size = all > lower ? (all - lower) / MI_ARENA_MIN_SIZE * MI_ARENA_MIN_SIZE : 0;
  bool zero = true;
  void* start = pages_take(NULL, size, MI_ARENA_SLICE_ALIGN, &zero);
  if (start)
    mi_manage_os_memory(start, size, true, true, true, -1);
}

void tollgate_allocator_init(void* start, void* end)
{
  pages_begin(start, end);
  heap_end = (uintptr_t)end;
  // No memory is returned to a system, and the system has no more.
  mi_option_set(mi_option_purge_delay, -1);
  mi_option_set(mi_option_arena_reserve, 0);
  _mi_auto_process_init();
  one_arena();
}

void tollgate_allocator_cleanup(void)
{
}

// A thread's heap belongs to its TCS: it is created by the first allocation and serves all calls.
void tollgate_allocator_thread_init(void)
{
}

void tollgate_allocator_thread_cleanup(void)
{
}

// mimalloc aligns blocks of less than 16 bytes to 8.
static inline size_t at_least(size_t size)
{
  return size < 16 ? 16 : size;
}

void* tollgate_allocator_malloc(size_t size)
{
  return mi_malloc(at_least(size));
}

void tollgate_allocator_free(void* pointer)
{
  mi_free(pointer);
}

void* tollgate_allocator_calloc(size_t count, size_t size)
{
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? NULL : mi_zalloc(at_least(bytes));
}

void* tollgate_allocator_realloc(void* pointer, size_t size)
{
  return mi_realloc(pointer, at_least(size));
}

void* tollgate_allocator_aligned_alloc(size_t alignment, size_t size)
{
  return mi_malloc_aligned(size, alignment);
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
  return mi_usable_size(pointer);
}
