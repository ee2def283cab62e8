// jemalloc's internal headers, and the initialisation of its system.
#pragma once
#include "jemalloc/internal/jemalloc_preamble.h"

#include "jemalloc/internal/jemalloc_internal_includes.h"

// Sets the heap that jemalloc's pages come from.
void system_begin(void* heap_start, void* heap_end);
