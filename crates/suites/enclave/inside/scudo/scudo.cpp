// Scudo with tollgate's interface, in LLVM's configuration for Linux. Its memory is the system's.
#include <tollgate_allocator.h>

#include "allocator_config.h"
#include "wrappers_c.h"
#include "wrappers_c_checks.h"

#include <errno.h>

extern "C" void tollgate_scudo_begun();

SCUDO_REQUIRE_CONSTANT_INITIALIZATION
static scudo::Allocator<scudo::Config, tollgate_scudo_begun> Scudo;

// As in Scudo's own wrappers after its initialisation, except for fork, which is not used here.
extern "C" void tollgate_scudo_begun()
{
  Scudo.initGwpAsan();
}

static constexpr auto Origin = scudo::Chunk::Origin::Malloc;
static constexpr scudo::uptr Alignment = scudo::uptr(1) << SCUDO_MIN_ALIGNMENT_LOG;

extern "C" void tollgate_allocator_init(void*, void*) {}

extern "C" void tollgate_allocator_cleanup() {}

extern "C" void tollgate_allocator_thread_init()
{
  Scudo.initThreadMaybe();
}

// A thread's cache is released when the thread ends.
extern "C" void tollgate_allocator_thread_cleanup() {}

extern "C" void* tollgate_allocator_malloc(size_t size)
{
  return Scudo.allocate(size, Origin, Alignment);
}

extern "C" void tollgate_allocator_free(void* pointer)
{
  Scudo.deallocate(pointer, Origin);
}

extern "C" void* tollgate_allocator_calloc(size_t count, size_t size)
{
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes)
    ? nullptr
    : Scudo.allocate(bytes, Origin, Alignment, true);
}

extern "C" void* tollgate_allocator_realloc(void* pointer, size_t size)
{
  return pointer ? Scudo.reallocate(pointer, size, Alignment)
                 : tollgate_allocator_malloc(size);
}

extern "C" void* tollgate_allocator_aligned_alloc(size_t alignment, size_t size)
{
  return Scudo.allocate(size, Origin, alignment);
}

extern "C" int tollgate_allocator_posix_memalign(void** pointer, size_t alignment, size_t size)
{
  if (scudo::checkPosixMemalignAlignment(alignment))
    return EINVAL;
  *pointer = tollgate_allocator_aligned_alloc(alignment, size);
  return *pointer ? 0 : ENOMEM;
}

extern "C" size_t tollgate_allocator_usable_size(void* pointer)
{
  return Scudo.getUsableSize(pointer);
}
