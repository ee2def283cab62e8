// snmalloc on a fixed range, with tollgate's interface. Its heap is that of FixedRangeConfig, and its platform
// allocates no memory. A thread takes an allocator from the pool at each root call and releases it afterwards.
#include <tollgate_allocator.h>

#include <snmalloc/aal/aal.h>

namespace snmalloc
{
  // The platform below snmalloc: no operating system.
  class EnclaveBase
  {
  public:
    static constexpr size_t address_bits = Aal::address_bits;
    static constexpr size_t page_size = Aal::smallest_page_size;
    static void print_stack_trace() {}
    static void message(const char* const) noexcept {}
    [[noreturn]] static void error(const char* const) noexcept
    {
      __builtin_trap();
    }
    // Keys that obfuscate free lists.
    static uint64_t get_entropy64()
    {
      return __builtin_ia32_rdtsc();
    }
  };
}

#define SNMALLOC_MEMORY_PROVIDER PALNoAlloc<EnclaveBase>
#define SNMALLOC_PLATFORM_HAS_GETENTROPY
#define SNMALLOC_PROVIDE_OWN_CONFIG
#define SNMALLOC_EXTERNAL_THREAD_ALLOC
#include <snmalloc/backend/fixedglobalconfig.h>
#include <snmalloc/snmalloc_core.h>

namespace snmalloc
{
  using Config = FixedRangeConfig<DefaultPal>;
  using Alloc = Allocator<Config>;

  class ThreadAllocExternal
  {
  public:
    static inline thread_local Alloc* alloc = nullptr;

    static Alloc& get()
    {
      return *alloc;
    }
  };
}

#include <snmalloc/snmalloc_front.h>

#include <errno.h>

using namespace snmalloc;

extern "C"
{
  static size_t heap;

  void tollgate_allocator_init(void* start, void* end)
  {
    heap = pointer_diff(start, end);
    Config::init(nullptr, start, heap);
  }

  void tollgate_allocator_cleanup() {}

  void tollgate_allocator_thread_init()
  {
    ThreadAllocExternal::alloc = AllocPool<Config>::acquire();
  }

  void tollgate_allocator_thread_cleanup()
  {
    ThreadAllocExternal::alloc->flush();
    AllocPool<Config>::release(ThreadAllocExternal::alloc);
    ThreadAllocExternal::alloc = nullptr;
  }

  void* tollgate_allocator_malloc(size_t size)
  {
    return alloc(size);
  }

  void tollgate_allocator_free(void* pointer)
  {
    dealloc(pointer);
  }

  void* tollgate_allocator_calloc(size_t count, size_t size)
  {
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? nullptr : alloc<Zero>(bytes);
  }

  // A block stays if the new size has the same size class.
  void* tollgate_allocator_realloc(void* pointer, size_t size)
  {
    size_t usable = tollgate_allocator_usable_size(pointer);
    if (pointer && usable == round_size(size))
      return pointer;
    void* moved = alloc(size);
    if (moved && pointer)
    {
      __builtin_memcpy(moved, pointer, usable < size ? usable : size);
      dealloc(pointer);
    }
    return moved;
  }

  int tollgate_allocator_posix_memalign(void** pointer, size_t alignment, size_t size)
  {
    if (alignment < sizeof(void*) || !bits::is_pow2(alignment))
      return EINVAL;
    *pointer = tollgate_allocator_aligned_alloc(alignment, size);
    return *pointer ? 0 : ENOMEM;
  }

  void* tollgate_allocator_aligned_alloc(size_t alignment, size_t size)
  {
    // For size 0, snmalloc would ignore the alignment.
    return alloc_aligned(alignment, size ? size : 1);
  }

  size_t tollgate_allocator_usable_size(void* pointer)
  {
    return pointer ? alloc_size(pointer) : 0;
  }

  // Counts the chunks that its threads took from the heap.
  int tollgate_allocator_mallinfo(struct tollgate_mallinfo* info)
  {
    *info = {Config::Backend::get_current_usage(), Config::Backend::get_peak_usage(), heap};
    return 0;
  }
}
