// jemalloc's tables of the address space: 2 MiB for each GiB of addresses that the heap spans, of which few pages are
// used. They are part of the image, because they are as large as a small heap.
#define base_alloc_rtree table
#include "rtree.c"

#define TABLE ((size_t)2 << 20)
// A heap of up to 1 GiB spans at most two.
#define TABLES 2

static char tables[TABLES][TABLE] __attribute__((aligned(4096)));

void* table(tsdn_t* tsdn, base_t* base, size_t size)
{
  static unsigned used;
  return size <= TABLE && used < TABLES ? tables[used++] : base_alloc(tsdn, base, size, CACHELINE);
}
