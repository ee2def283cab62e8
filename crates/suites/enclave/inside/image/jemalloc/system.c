// jemalloc's interface to the system, in place of its src/pages.c, extent_mmap.c and conf.c, with the pages of the
// heap. Its output and statistics (malloc_io.c, stats.c, ctl.c, prof.c) are stubs.
#include "system.h"

#include <pages.h>

#include "jemalloc/internal/buf_writer.h"
#include "jemalloc/internal/conf.h"
#include "jemalloc/internal/extent_mmap.h"
#include "jemalloc/internal/malloc_io.h"
#include "jemalloc/internal/safety_check.h"

// The number of CPUs that jemalloc assumes, because code inside cannot know it. jemalloc creates up to four
// arenas for each.
#define PROCESSORS 8

void system_begin(void* heap_start, void* heap_end)
{
  pages_begin(heap_start, heap_end);
}

size_t os_page = PAGE;
bool opt_retain = false;
thp_mode_t opt_thp = thp_mode_do_nothing;
system_thp_mode_t init_system_thp_mode = system_thp_mode_not_supported;

bool pages_boot(void)
{
  return false;
}

void* pages_map(void* at, size_t size, size_t alignment, bool* commit)
{
  bool zero = true;
  return extent_alloc_mmap(at, size, alignment, &zero, commit);
}

void pages_unmap(void* address, size_t size)
{
  pages_give(address, size);
}

void* extent_alloc_mmap(void* at, size_t size, size_t alignment, bool* zero, bool* commit)
{
  *commit = true;
  return pages_take(at, size, alignment, zero);
}

bool extent_dalloc_mmap(void* address, size_t size)
{
  pages_give(address, size);
  return false;
}

// Pages are always present: true reports that nothing was done.
bool pages_commit(void* address, size_t size)
{
  return true;
}

bool pages_decommit(void* address, size_t size)
{
  return true;
}

bool pages_purge_lazy(void* address, size_t size)
{
  return true;
}

bool pages_purge_forced(void* address, size_t size)
{
  return true;
}

bool pages_huge(void* address, size_t size)
{
  return true;
}

bool pages_nohuge(void* address, size_t size)
{
  return true;
}

bool pages_collapse(void* address, size_t size)
{
  return true;
}

void pages_mark_guards(void* head, void* tail)
{
}

void pages_unmark_guards(void* head, void* tail)
{
}

void malloc_conf_init(sc_data_t* classes, unsigned shards[SC_NBINS], char link[PATH_MAX + 1])
{
  // Freed extents stay with their arena until an allocation fails; then allocator.c returns them to the heap.
  opt_dirty_decay_ms = -1;
  opt_muzzy_decay_ms = 0;
  // Metadata is allocated in steps of LG_HUGEPAGE instead of 2 MiB.
  opt_metadata_thp = metadata_thp_always;
}

void malloc_abort_invalid_conf(void)
{
  abort();
}

long sysconf(int name)
{
  return PROCESSORS;
}

// The time in ticks: jemalloc's time-based work may run at any time.
int clock_gettime(clockid_t clock, struct timespec* now)
{
  uint64_t ticks = __builtin_ia32_rdtsc();
  now->tv_sec = (time_t)(ticks >> 30);
  now->tv_nsec = (long)(ticks & ((1 << 30) - 1));
  return 0;
}

int atexit(void (*call)(void))
{
  return 0;
}

void prof_tdata_cleanup(tsd_t* tsd)
{
}

void safety_check_fail(const char* format, ...)
{
  abort();
}

void malloc_write(const char* text)
{
}

void malloc_printf(const char* format, ...)
{
}

// Only used for the names of arenas.
size_t malloc_snprintf(char* text, size_t size, const char* format, ...)
{
  if (size > 0)
    *text = 0;
  return 0;
}

char* strncpy(char* to, const char* from, size_t size)
{
  for (size_t at = 0; at < size; ++at)
    to[at] = *from ? *from++ : 0;
  return to;
}

size_t strlen(const char* text)
{
  size_t length = 0;
  while (text[length])
    ++length;
  return length;
}

bool opt_stats_print = false;
char opt_stats_print_opts[stats_print_tot_num_options + 1];
int64_t opt_stats_interval = -1;

bool ctl_boot(void)
{
  return false;
}

bool stats_boot(void)
{
  return false;
}

void stats_print(write_cb_t* write, void* to, const char* options)
{
}

bool buf_writer_init(tsdn_t* tsdn, buf_writer_t* writer, write_cb_t* write, void* to, char* buffer, size_t size)
{
  return true;
}

void buf_writer_terminate(tsdn_t* tsdn, buf_writer_t* writer)
{
}

void buf_writer_cb(void* writer, const char* text)
{
}

static te_enabled_t no_statistics(void)
{
  return te_enabled_no;
}

te_base_cb_t stats_interval_te_handler = {.enabled = no_statistics};

bool stats_interval_accum_batch(tsdn_t* tsdn, uint64_t bytes)
{
  return false;
}
