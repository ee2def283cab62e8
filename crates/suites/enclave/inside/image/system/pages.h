// Pages of the heap, for allocators that request them from a system. One bit per page records its state, under a
// lock.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define PAGE_BYTES ((size_t)4096)
#define PAGES_PER_WORD 64
// Number of pages in 4 GiB; a larger heap is used up to there.
#define MAX_PAGES ((size_t)1 << 20)

static char* pages_first;
static size_t pages_count;
// No page before this one is free.
static size_t pages_lowest;
static uint64_t pages_used[MAX_PAGES / PAGES_PER_WORD];
// Pages that were used before, so that they may not be zero.
static uint64_t pages_written[MAX_PAGES / PAGES_PER_WORD];
static pthread_mutex_t pages_mutex = PTHREAD_MUTEX_INITIALIZER;

static void pages_begin(void* start, void* end)
{
  pages_first = start;
  pages_count = (size_t)((char*)end - (char*)start) / PAGE_BYTES;
  if (pages_count > MAX_PAGES)
    pages_count = MAX_PAGES;
}

static bool pages_bit(const uint64_t* bits, size_t page)
{
  return bits[page / PAGES_PER_WORD] >> (page % PAGES_PER_WORD) & 1;
}

static void pages_set(uint64_t* bits, size_t page, size_t count, bool to)
{
  for (size_t end = page + count; page < end; ++page)
  {
    uint64_t bit = (uint64_t)1 << (page % PAGES_PER_WORD);
    bits[page / PAGES_PER_WORD] = to ? bits[page / PAGES_PER_WORD] | bit : bits[page / PAGES_PER_WORD] & ~bit;
  }
}

// Returns the first used page from a page on, below an end; otherwise the end.
static size_t pages_until_used(size_t page, size_t end)
{
  while (page < end)
  {
    uint64_t ahead = pages_used[page / PAGES_PER_WORD] >> (page % PAGES_PER_WORD);
    if (ahead)
    {
      page += (size_t)__builtin_ctzll(ahead);
      return page < end ? page : end;
    }
    page = (page / PAGES_PER_WORD + 1) * PAGES_PER_WORD;
  }
  return end;
}

static size_t pages_until_free(size_t page)
{
  while (page < pages_count)
  {
    uint64_t ahead = ~pages_used[page / PAGES_PER_WORD] >> (page % PAGES_PER_WORD);
    if (ahead)
      return page + (size_t)__builtin_ctzll(ahead);
    page = (page / PAGES_PER_WORD + 1) * PAGES_PER_WORD;
  }
  return pages_count;
}

// Returns the first aligned position from a page on with `count` free pages, or pages_count if there is none.
static size_t pages_find(size_t page, size_t count, size_t alignment)
{
  for (;;)
  {
    page = pages_until_free(page);
    uintptr_t address = (uintptr_t)(pages_first + page * PAGE_BYTES);
    page += (size_t)(-address & (alignment - 1)) / PAGE_BYTES;
    if (page >= pages_count || count > pages_count - page)
      return pages_count;
    size_t used = pages_until_used(page, page + count);
    if (used == page + count)
      return page;
    page = used;
  }
}

// Allocates pages at an alignment, or at an address if one is given; returns NULL if no space is left. If `zero` is
// true before the call, the pages are zeroed; afterwards it states whether they are zero.
static void* pages_take(void* at, size_t size, size_t alignment, bool* zero)
{
  size_t count = size / PAGE_BYTES + (size % PAGE_BYTES > 0);
  if (size == 0 || count > pages_count)
    return NULL;
  bool written = false;
  pthread_mutex_lock(&pages_mutex);
  size_t page = pages_count;
  if (!at)
    page = pages_find(pages_lowest, count, alignment < PAGE_BYTES ? PAGE_BYTES : alignment);
  else if ((char*)at >= pages_first)
  {
    page = (size_t)((char*)at - pages_first) / PAGE_BYTES;
    if (page >= pages_count || count > pages_count - page ||
        pages_until_used(page, page + count) < page + count)
      page = pages_count;
  }
  if (page < pages_count)
  {
    for (size_t each = page; each < page + count && !written; ++each)
      written = pages_bit(pages_written, each);
    pages_set(pages_used, page, count, true);
    pages_set(pages_written, page, count, true);
    if (page <= pages_lowest)
      pages_lowest = pages_until_free(page);
  }
  pthread_mutex_unlock(&pages_mutex);
  if (page == pages_count)
    return NULL;
  void* taken = pages_first + page * PAGE_BYTES;
  if (written && *zero)
    memset(taken, 0, count * PAGE_BYTES);
  *zero = *zero || !written;
  return taken;
}

static void pages_give(void* address, size_t size)
{
  size_t page = (size_t)((char*)address - pages_first) / PAGE_BYTES;
  pthread_mutex_lock(&pages_mutex);
  pages_set(pages_used, page, size / PAGE_BYTES + (size % PAGE_BYTES > 0), false);
  if (page < pages_lowest)
    pages_lowest = page;
  pthread_mutex_unlock(&pages_mutex);
}
