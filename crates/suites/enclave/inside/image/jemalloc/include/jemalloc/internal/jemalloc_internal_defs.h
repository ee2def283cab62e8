// jemalloc's configuration on x86-64, without the features that need an operating system.
#pragma once

#define JEMALLOC_PREFIX "je_"
#define JEMALLOC_NO_PRIVATE_NAMESPACE
#define JEMALLOC_CONFIG_MALLOC_CONF ""

// CPU and compiler.
#define CPU_SPINWAIT __asm__ volatile("pause")
#define HAVE_CPU_SPINWAIT 1
#define LG_VADDR 48
#define LG_PAGE 12
#define LG_SIZEOF_INT 2
#define LG_SIZEOF_LONG 3
#define LG_SIZEOF_LONG_LONG 3
#define LG_SIZEOF_INTMAX_T 3
#define JEMALLOC_C11_ATOMICS
#define JEMALLOC_GCC_ATOMIC_ATOMICS
#define JEMALLOC_GCC_U8_ATOMIC_ATOMICS
#define JEMALLOC_HAVE_BUILTIN_CLZ
#define JEMALLOC_HAVE_ASM_VOLATILE
#define JEMALLOC_HAVE_INT128
#define JEMALLOC_HAS_RESTRICT
#define JEMALLOC_HAVE_CLOCK_MONOTONIC
#define JEMALLOC_INTERNAL_UNREACHABLE __builtin_unreachable
#define JEMALLOC_INTERNAL_FFSLL __builtin_ffsll
#define JEMALLOC_INTERNAL_FFSL __builtin_ffsl
#define JEMALLOC_INTERNAL_FFS __builtin_ffs
#define JEMALLOC_INTERNAL_POPCOUNTL __builtin_popcountl
#define JEMALLOC_INTERNAL_POPCOUNT __builtin_popcount

// Defaults.
#define JEMALLOC_MAPS_COALESCE
#define JEMALLOC_CACHE_OBLIVIOUS
#define JEMALLOC_ZERO_REALLOC_DEFAULT_FREE

// The granularity of its metadata: 64 KiB instead of the 2 MiB that it requests from a system, of which few pages are
// used.
#define LG_HUGEPAGE 16

// Threads: their variables are the image's, and no function is called when a thread ends.
#define JEMALLOC_HAVE_PTHREAD
#define JEMALLOC_TLS
#define JEMALLOC_TLS_MODEL __attribute__((tls_model("local-exec")))
#define JEMALLOC_MALLOC_THREAD_CLEANUP

#include "jemalloc/internal/jemalloc_internal_overrides.h"
